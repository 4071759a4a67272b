"""The subscriber's SDK: private releases as they come, each once, each site in window order.

async for release in subscribe(store=Path("store"), audience="facilities"):
    print(release["window_end"], release["values"])
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing, closing
from itertools import groupby
from pathlib import Path
from typing import Any

from connectors.embedded.readings import has_outbox, read_outbox
from connectors.kafka.bounded import topic_names
from connectors.kafka.control import refuse_grown
from connectors.kafka.cursor import Cursor
from connectors.kafka.following import Following, Record, following
from stream.errors import DataError, UsageError
from stream.schemas import parse_record, parse_time

Release = dict[str, Any]
_Arrived = tuple[str, int, Release]
"""A record on Kafka with its topic and offset."""
POLL_SECONDS = 0.2

_CAUGHT_UP = None
"""What a source yields once, when all that was there at the beginning has been given."""


async def subscribe(
    *,
    audience: str,
    store: Path | None = None,
    kafka: str | None = None,
    release: str | None = None,
    from_start: bool = False,
    after: str | None = None,
    cursor: Cursor | None = None,
    until_end: bool = False,
) -> AsyncGenerator[Release, None]:
    """Yield releases for one audience, from an embedded store or from Kafka.

    Of a window a site's attributes come before its counts, and these by the name of their release. What is
    on Kafka already comes by (window, site); what comes later as it arrives. A store gives the order of arrival.

    Args:
        audience: whose outbox or topics to read.
        store: folder of the embedded store (its outboxes are all that is opened).
        kafka: bootstrap servers; give this or ``store``.
        release: only this release; all of the audience's otherwise.
        from_start: begin with the first record kept, not with the next one to come.
        after: begin behind this release id, at its site; other sites begin at the start. On Kafka other releases
            do too, since they may have arrived later; ``cursor`` knows how far each of them has come.
        cursor: on Kafka, begin where it stands; it moves on when the next release is asked for.
        until_end: stop at the end of what is there now.

    Raises:
        UsageError: neither or both of ``store`` and ``kafka``; no such store, audience or, on Kafka, release;
            a topic of it has another number of partitions than its cluster;
            ``after`` is none of the releases that were there at the beginning; ``cursor`` with a store or ``after``.
        FinalityError: a release id came twice with different content.
    """
    if (store is None) == (kafka is None):
        msg = "subscribe: must be given either a store or Kafka's bootstrap servers"
        raise UsageError(msg)
    if cursor is not None and (kafka is None or after is not None):
        msg = "cursor: must go with Kafka and without after; a store has one order, in which after is exact"
        raise UsageError(msg)
    whole = from_start or after is not None or cursor is not None
    if store is not None:
        source = _behind(_from_store(store, audience, whole=whole), after)
    else:
        assert kafka is not None  # noqa: S101
        source = _from_kafka(kafka, audience, release, whole=whole, after=after, cursor=cursor)
    async with aclosing(source) as records:
        async for record in records:
            if record is not _CAUGHT_UP:
                if release is None or record["release"] == release:
                    yield record
            elif until_end:
                return


async def _behind(
    source: AsyncGenerator[Release | None, None], after: str | None
) -> AsyncGenerator[Release | None, None]:
    """Leave out what one order has up to a release, at its site."""
    skipping = after
    async with aclosing(source) as records:
        async for record in records:
            if record is _CAUGHT_UP:
                _refuse_unfound(skipping)
                yield _CAUGHT_UP
            elif skipping is not None and record["site"] == skipping.partition("/")[0]:
                if record["release_id"] == skipping:
                    skipping = None
            else:
                yield record


def _refuse_unfound(after: str | None) -> None:
    if after is not None:
        msg = f"--after: must be a release id of this audience that is still kept, got {after!r}"
        raise UsageError(msg)


def _place(record: Release) -> tuple[int, str, bool, str]:
    """Return where a record stands: window (of revised values the one with which they came), site, attributes before
    counts, release."""
    try:
        came = parse_time(record["window_end"])
        if "lag" in record:
            came += record["lag"] * (came - parse_time(record["window_start"]))
        return came, record["site"], "attribute" not in record, record["release"]
    except (KeyError, TypeError, ValueError):
        msg = "record: must be a private release, has no window, site or release"
        raise DataError(msg) from None


# --- the embedded store ---------------------------------------------------------------------------------


async def _from_store(store: Path, audience: str, *, whole: bool) -> AsyncGenerator[Release | None, None]:
    if not await asyncio.to_thread(has_outbox, store, audience):
        msg = f"audience {audience}: must be one of this store's, {store} has no outbox of it"
        raise UsageError(msg)
    seen = 0 if whole else max((seq for seq, _ in read_outbox(store, audience, 0)), default=0)
    caught_up = False
    while True:
        rows = read_outbox(store, audience, seen)
        for record in _by_release(parse_record(value) for _, value in rows):
            yield record
        seen = max((seq for seq, _ in rows), default=seen)
        if not caught_up:
            caught_up = True
            yield _CAUGHT_UP
        if not rows:
            await asyncio.sleep(POLL_SECONDS)


def _by_release(records: Iterable[Release]) -> Iterator[Release]:
    """Put records of one window and site, which arrive together, in the order that Kafka's readers know too."""
    for _, window in groupby(records, key=lambda record: _place(record)[:2]):
        yield from sorted(window, key=_place)


# --- Kafka ----------------------------------------------------------------------------------------------


async def _from_kafka(
    kafka: str, audience: str, release: str | None, *, whole: bool, after: str | None, cursor: Cursor | None
) -> AsyncGenerator[Release | None, None]:
    topics = await _private_topics(kafka, audience, release)
    await refuse_grown(kafka, topics.values())
    if release is not None and after is None:
        topics = {release: topics[release]}  # else the others are needed to find ``after``
    async with following(kafka, [*topics.values()], from_start=whole) as records:
        for topic in topics.values():
            if cursor is not None:
                cursor.refuse_short(topic, records.end(topic))
        with closing(_Waiting()) as waiting:
            async for batch in records.present():
                waiting.add(batch)
            if after is not None:
                _refuse_unfound(None if waiting.forget_up_to(after) else after)
            for arrived in waiting:
                async for record in _given([arrived], cursor):
                    yield record
        yield _CAUGHT_UP
        while True:
            async for record in _given(await _coming(records), cursor):
                yield record


async def _coming(records: Following) -> list[_Arrived]:
    """Return what has come, by window and site, of one topic and site as it lies there."""
    came = [(record, parse_record(record.value)) for record in await records.coming()]
    came.sort(key=lambda one: _place(one[1]))
    return [(record.topic, record.offset, body) for record, body in _as_they_lie(came)]


def _as_they_lie(came: list[tuple[Record, Release]]) -> Iterator[tuple[Record, Release]]:
    """Keep the places of a topic's and site's records, but fill them in the order of the topic."""
    of: dict[tuple[str, str], list[tuple[Record, Release]]] = {}
    for record, body in came:
        of.setdefault((record.topic, body["site"]), []).append((record, body))
    queues = {name: iter(sorted(own, key=lambda one: one[0].offset)) for name, own in of.items()}
    for record, body in came:
        yield next(queues[record.topic, body["site"]])


async def _given(arrived: Iterable[_Arrived], cursor: Cursor | None) -> AsyncGenerator[Release, None]:
    """Yield what the cursor has not seen; it moves on when the reader has come back for the next."""
    for topic, offset, record in arrived:
        if cursor is None or cursor.is_behind(topic, record["site"], offset):
            yield record
            if cursor is not None:
                cursor.advance(topic, record["site"], offset)


async def _private_topics(kafka: str, audience: str, release: str | None) -> dict[str, str]:
    """Return an audience's topics by release; UsageError when there are none, or none of ``release``."""
    pattern = re.compile(rf"tacet\.private\.{re.escape(audience)}\.([a-z0-9-]+)\.v1")
    matches = [found for name in await topic_names(kafka) if (found := pattern.fullmatch(name))]
    topics = {found[1]: found[0] for found in matches}
    if not topics:
        msg = f"audience {audience}: must have a private topic on this cluster"
        raise UsageError(msg)
    if release is not None and release not in topics:
        msg = f"release {release}: must have a private topic of audience {audience} on this cluster"
        raise UsageError(msg)
    return topics


class _Waiting:
    """Records of several topics until all are there, then in order; beyond a few MB they wait on disk.

    The topics cannot be merged as they are read: of each, only the order within a site is known. A record that
    was released late stands behind those before it in its topic.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # a file without a name, for this connection alone
        self._db.execute(
            "CREATE TABLE waiting"
            " (time INT, site TEXT, counts INT, release TEXT, topic TEXT, at INT, id TEXT, value BLOB)"
        )
        self._latest: dict[tuple[str, str], int] = {}

    def add(self, batch: Iterable[Record]) -> None:
        """Take records of which each site's are in the order of their topic."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?)", map(self._row, batch))
        self._db.execute("COMMIT")

    def _row(self, record: Record) -> tuple[Any, ...]:
        body = parse_record(record.value)
        time, site, counts, release = _place(body)
        time = self._latest[record.topic, site] = max(time, self._latest.get((record.topic, site), time))
        return time, site, counts, release, record.topic, record.offset, body.get("release_id"), record.value

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

    def __iter__(self) -> Iterator[_Arrived]:
        """Yield them by window, site, attributes before counts, release; of one release as they lie in its topic."""
        order = "SELECT topic, at, value FROM waiting ORDER BY time, site, counts, release, at"
        return ((topic, at, parse_record(bytes(value))) for topic, at, value in self._db.execute(order))

    def close(self) -> None:
        """Forget them."""
        self._db.close()
