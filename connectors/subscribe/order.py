"""The order in which a subscriber receives records.

By window and site, attributes before counts, then by release name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from connectors.storage.kafka.topic_tail import Record
from connectors.subscribe.cursor import Cursor, Delivered
from stream.errors import DataError
from stream.records import JsonObject
from stream.schemas import parse_record, parse_time

Release = JsonObject
"""The JSON object of a record as it was published."""


class Mark(Enum):
    """What a source yields between records."""

    CAUGHT_UP = "caught up"
    """Once, after all records that existed at the start."""


class Arrival(NamedTuple):
    """A record, and where it is (see ``Cursor``)."""

    topic: str
    partition: int
    offset: int
    release: Release

    @property
    def cursor_entry(self) -> Delivered:
        """Its entry in a cursor; DataError if it is not a private release."""
        if type(name := self.release.get("release_id")) is not str:
            raise DataError("record: must be a private release, but has no release_id")
        return Delivered(self.offset, name)


def sort_key(record: Release) -> tuple[int, str, bool, str]:
    """Return a record's sort key: window (for revised values the window with which they were published), site,
    attributes before counts, release. DataError if it is not a private release."""
    try:
        published = parse_time(record["window_end"])
        if "lag" in record:
            published += record["lag"] * (published - parse_time(record["window_start"]))
        return published, record["site"], "attribute" not in record, record["release"]
    except (KeyError, TypeError, ValueError):
        msg = "record: must be a private release, but has no window, site or release"
        raise DataError(msg) from None


def by_release(records: Iterable[Arrival]) -> Iterator[Arrival]:
    """Sort records of one window and site, which arrive together, as readers of Kafka receive them."""
    for _, window in groupby(records, key=lambda one: sort_key(one.release)[:2]):
        yield from sorted(window, key=lambda one: sort_key(one.release))


def in_topic_order(records: list[Arrival]) -> Iterator[Arrival]:
    """Sort records by window and site, but keep those of one topic and site in the topic's order."""
    records = sorted(records, key=lambda one: sort_key(one.release))
    of: dict[tuple[str, str], list[Arrival]] = {}
    for one in records:
        of.setdefault((one.topic, one.release["site"]), []).append(one)
    queues = {name: iter(sorted(own, key=lambda one: one.offset)) for name, own in of.items()}
    for one in records:
        yield next(queues[one.topic, one.release["site"]])


async def unseen(records: Iterable[Arrival], cursor: Cursor | None) -> AsyncGenerator[Release, None]:
    """Yield the records that the cursor has not passed; it advances when the reader requests the next one."""
    for one in records:
        site = one.release["site"]
        if cursor is None or cursor.is_behind(one.topic, one.partition, site, one.offset):
            yield one.release
            if cursor is not None:
                cursor.advance(one.topic, one.partition, site, one.cursor_entry)


def last_by_partition(records: Iterable[Arrival]) -> dict[tuple[str, int], Delivered]:
    """Return the last of these records in each partition, by topic and partition."""
    return {(one.topic, one.partition): one.cursor_entry for one in sorted(records, key=lambda one: one.offset)}


class PendingRecords:
    """Buffers records of several topics until all are read, then yields them in order; beyond a few MB on disk.

    The topics cannot be merged as they are read: within each, only the order of one site is known. A record that
    was released late comes after the earlier ones of its topic.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # an anonymous temporary database
        self._db.execute(
            "CREATE TABLE waiting (time INT, site TEXT, counts INT, release TEXT, topic TEXT, partition INT,"
            " offset INT, id TEXT, value BLOB)"
        )
        self._latest: dict[tuple[str, str], int] = {}

    def add(self, batch: Iterable[Record]) -> None:
        """Add records; those of each site are in the order of their topic."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(self._row, batch))
        self._db.execute("COMMIT")

    def _row(self, record: Record) -> tuple[object, ...]:
        body = parse_record(record.value)
        time, site, counts, release = sort_key(body)
        time = self._latest[record.topic, site] = max(time, self._latest.get((record.topic, site), time))
        where = (record.topic, record.partition, record.offset)
        return time, site, counts, release, *where, body.get("release_id"), record.value

    def release_at(self, topic: str, partition: int, offset: int) -> str | None:
        """Return the release id of the record at an offset; None if there is none."""
        query = "SELECT id FROM waiting WHERE topic = ? AND partition = ? AND offset = ?"
        row = self._db.execute(query, (topic, partition, offset)).fetchone()
        return None if row is None else row[0]

    def last(self) -> dict[tuple[str, int], Delivered]:
        """Return the last record of each partition, by topic and partition."""
        query = "SELECT topic, partition, max(offset), id FROM waiting GROUP BY topic, partition"
        rows = self._db.execute(query)
        return {(topic, partition): Delivered(offset, name) for topic, partition, offset, name in rows}

    def forget_up_to(self, after: str) -> bool:
        """Drop what was certainly delivered before a release, and that release; return whether it was found.

        Certain is only what precedes it in its own topic. Other topics prove nothing: their leader may have been slow
        while this topic's leader delivered many windows.
        """
        site = after.partition("/")[0]
        found = self._db.execute("SELECT topic, offset FROM waiting WHERE id = ? AND site = ?", (after, site))
        row = found.fetchone()
        if row is None:
            return False
        topic, offset = row
        self._db.execute("DELETE FROM waiting WHERE site = ? AND topic = ? AND offset <= ?", (site, topic, offset))
        return True

    def __iter__(self) -> Iterator[Arrival]:
        """Yield them by window, site, attributes before counts, release; within a release in the topic's order."""
        query = "SELECT topic, partition, offset, value FROM waiting ORDER BY time, site, counts, release, offset"
        rows = self._db.execute(query)
        return (
            Arrival(topic, partition, offset, parse_record(bytes(value))) for topic, partition, offset, value in rows
        )

    def close(self) -> None:
        """Drop everything."""
        self._db.close()
