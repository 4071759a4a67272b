"""In which order a subscriber is given records: by window and site, attributes before counts, by name of release."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from connectors.kafka.following import Record
from connectors.subscribing.cursor import Cursor
from stream.errors import DataError
from stream.schemas import parse_record, parse_time

Release = dict[str, Any]
"""The JSON object of a record as it was published."""

CAUGHT_UP = None
"""What a source yields once, when all that was there at the beginning has been given."""


class Arrived(NamedTuple):
    """A record and where it lies (see ``Cursor``)."""

    place: str
    part: int
    at: int
    release: Release


def window_place(record: Release) -> tuple[int, str, bool, str]:
    """Return where a record stands: window (of revised values the one with which they came), site, attributes before
    counts, release; DataError when it is no private release."""
    try:
        came = parse_time(record["window_end"])
        if "lag" in record:
            came += record["lag"] * (came - parse_time(record["window_start"]))
        return came, record["site"], "attribute" not in record, record["release"]
    except (KeyError, TypeError, ValueError):
        msg = "record: must be a private release, has no window, site or release"
        raise DataError(msg) from None


def by_release(came: Iterable[Arrived]) -> Iterator[Arrived]:
    """Put records of one window and site, which arrive together, in the order that Kafka's readers know too."""
    for _, window in groupby(came, key=lambda one: window_place(one.release)[:2]):
        yield from sorted(window, key=lambda one: window_place(one.release))


def as_they_lie(came: list[Arrived]) -> Iterator[Arrived]:
    """Put records by window and site, but those of one topic and site in the order of the topic."""
    came = sorted(came, key=lambda one: window_place(one.release))
    of: dict[tuple[str, str], list[Arrived]] = {}
    for one in came:
        of.setdefault((one.place, one.release["site"]), []).append(one)
    queues = {name: iter(sorted(own, key=lambda one: one.at)) for name, own in of.items()}
    for one in came:
        yield next(queues[one.place, one.release["site"]])


async def unseen(came: Iterable[Arrived], cursor: Cursor | None) -> AsyncGenerator[Release, None]:
    """Yield what the cursor has not seen; it moves on when the reader has come back for the next."""
    for place, part, at, record in came:
        if cursor is None or cursor.is_behind(place, part, record["site"], at):
            yield record
            if cursor is not None:
                cursor.advance(place, record["site"], at)


class Waiting:
    """Records of several topics until all are there, then in order; beyond a few MB they wait on disk.

    The topics cannot be merged as they are read: of each, only the order within a site is known. A record that
    was released late stands behind those before it in its topic.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # a file without a name, for this connection alone
        self._db.execute(
            "CREATE TABLE waiting (time INT, site TEXT, counts INT, release TEXT, topic TEXT, part INT, at INT,"
            " id TEXT, value BLOB)"
        )
        self._latest: dict[tuple[str, str], int] = {}

    def add(self, batch: Iterable[Record]) -> None:
        """Take records of which each site's are in the order of their topic."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", map(self._row, batch))
        self._db.execute("COMMIT")

    def _row(self, record: Record) -> tuple[Any, ...]:
        body = parse_record(record.value)
        time, site, counts, release = window_place(body)
        time = self._latest[record.topic, site] = max(time, self._latest.get((record.topic, site), time))
        where = (record.topic, record.partition, record.offset)
        return time, site, counts, release, *where, body.get("release_id"), record.value

    def forget_up_to(self, after: str) -> bool:
        """Forget what was certainly given before a release, and itself; return whether it is there.

        That is what lies before it in its own topic. Of other topics nothing is certain: their leader may have
        hung while this one's gave many windows.
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
        """Yield them by window, site, attributes before counts, release; of one release as they lie in its topic."""
        order = "SELECT topic, part, at, value FROM waiting ORDER BY time, site, counts, release, at"
        return (
            Arrived(topic, part, at, parse_record(bytes(value))) for topic, part, at, value in self._db.execute(order)
        )

    def close(self) -> None:
        """Forget everything."""
        self._db.close()
