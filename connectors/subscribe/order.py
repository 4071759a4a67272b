"""The order in which a subscriber receives records.

By window and site, attributes before counts, then by release name.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from connectors.storage.kafka.topic_readers import Record
from connectors.subscribe.cursor import Cursor, Last
from stream.errors import DataError
from stream.records import JsonObject
from stream.schemas import parse_record, parse_time

Release = JsonObject
"""The JSON object of a record as it was published."""


class Mark(Enum):
    """What a source yields between records."""

    CAUGHT_UP = "caught up"
    """Once, after all records that existed at the start."""


class Arrived(NamedTuple):
    """A record and its position (see ``Cursor``)."""

    place: str
    part: int
    at: int
    release: Release

    @property
    def cursor_entry(self) -> Last:
        """Its entry in a cursor; DataError if it is not a private release."""
        if type(name := self.release.get("release_id")) is not str:
            raise DataError("record: must be a private release, but has no release_id")
        return Last(self.at, name)


def window_place(record: Release) -> tuple[int, str, bool, str]:
    """Return a record's sort key: window (for revised values the window with which they were published), site,
    attributes before counts, release. DataError if it is not a private release."""
    try:
        arrived = parse_time(record["window_end"])
        if "lag" in record:
            arrived += record["lag"] * (arrived - parse_time(record["window_start"]))
        return arrived, record["site"], "attribute" not in record, record["release"]
    except (KeyError, TypeError, ValueError):
        msg = "record: must be a private release, but has no window, site or release"
        raise DataError(msg) from None


def by_release(records: Iterable[Arrived]) -> Iterator[Arrived]:
    """Sort records of one window and site, which arrive together, as readers of Kafka receive them."""
    for _, window in groupby(records, key=lambda one: window_place(one.release)[:2]):
        yield from sorted(window, key=lambda one: window_place(one.release))


def in_topic_order(records: list[Arrived]) -> Iterator[Arrived]:
    """Sort records by window and site, but keep those of one topic and site in the topic's order."""
    records = sorted(records, key=lambda one: window_place(one.release))
    of: dict[tuple[str, str], list[Arrived]] = {}
    for one in records:
        of.setdefault((one.place, one.release["site"]), []).append(one)
    queues = {name: iter(sorted(own, key=lambda one: one.at)) for name, own in of.items()}
    for one in records:
        yield next(queues[one.place, one.release["site"]])


async def unseen(records: Iterable[Arrived], cursor: Cursor | None) -> AsyncGenerator[Release, None]:
    """Yield the records that the cursor has not passed; it advances when the reader requests the next one."""
    for one in records:
        site = one.release["site"]
        if cursor is None or cursor.is_behind(one.place, one.part, site, one.at):
            yield one.release
            if cursor is not None:
                cursor.advance(one.place, one.part, site, one.cursor_entry)


def last_of(records: Iterable[Arrived]) -> dict[tuple[str, int], Last]:
    """Return the last of these records in each partition, by place and part."""
    return {(one.place, one.part): one.cursor_entry for one in sorted(records, key=lambda one: one.at)}


class PendingRecords:
    """Buffers records of several topics until all are read, then yields them in order; beyond a few MB on disk.

    The topics cannot be merged as they are read: within each, only the order of one site is known. A record that
    was released late comes after the earlier ones of its topic.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # an anonymous temporary database
        self._db.execute(
            "CREATE TABLE waiting (time INT, site TEXT, counts INT, release TEXT, topic TEXT, part INT, at INT,"
            " id TEXT, value BLOB)"
        )
        self._latest: dict[tuple[str, str], int] = {}

    def add(self, batch: Iterable[Record]) -> None:
        """Add records; those of each site are in the order of their topic."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(self._row, batch))
        self._db.execute("COMMIT")

    def _row(self, record: Record) -> tuple[object, ...]:
        body = parse_record(record.value)
        time, site, counts, release = window_place(body)
        time = self._latest[record.topic, site] = max(time, self._latest.get((record.topic, site), time))
        where = (record.topic, record.partition, record.offset)
        return time, site, counts, release, *where, body.get("release_id"), record.value

    def release_at(self, topic: str, part: int, at: int) -> str | None:
        """Return the release id of the record at an offset; None if there is none."""
        query = "SELECT id FROM waiting WHERE topic = ? AND part = ? AND at = ?"
        row = self._db.execute(query, (topic, part, at)).fetchone()
        return None if row is None else row[0]

    def last(self) -> dict[tuple[str, int], Last]:
        """Return the last record of each partition, by topic and partition."""
        query = "SELECT topic, part, max(at), id FROM waiting GROUP BY topic, part"
        return {(topic, part): Last(at, name) for topic, part, at, name in self._db.execute(query)}

    def forget_up_to(self, after: str) -> bool:
        """Drop what was certainly delivered before a release, and that release; return whether it was found.

        Certain is only what precedes it in its own topic. Other topics prove nothing: their leader may have been slow
        while this topic's leader delivered many windows.
        """
        site = after.partition("/")[0]
        found = self._db.execute("SELECT topic, at FROM waiting WHERE id = ? AND site = ?", (after, site))
        row = found.fetchone()
        if row is None:
            return False
        topic, at = row
        self._db.execute("DELETE FROM waiting WHERE site = ? AND topic = ? AND at <= ?", (site, topic, at))
        return True

    def __iter__(self) -> Iterator[Arrived]:
        """Yield them by window, site, attributes before counts, release; within a release in the topic's order."""
        order = "SELECT topic, part, at, value FROM waiting ORDER BY time, site, counts, release, at"
        return (
            Arrived(topic, part, at, parse_record(bytes(value))) for topic, part, at, value in self._db.execute(order)
        )

    def close(self) -> None:
        """Drop everything."""
        self._db.close()
