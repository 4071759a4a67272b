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

from connectors import kafka as log
from connectors.store import has_outbox, read_outbox
from stream.errors import DataError, UsageError
from stream.schemas import parse_record, parse_time

Release = dict[str, Any]
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
        after: begin behind this release id, at its site; other sites begin at the start.
        until_end: stop at the end of what is there now.

    Raises:
        UsageError: neither or both of ``store`` and ``kafka``; no such store, audience or, on Kafka, release;
            ``after`` is none of the releases that were there at the beginning.
        FinalityError: a release id came twice with different content.
    """
    if (store is None) == (kafka is None):
        msg = "subscribe: must be given either a store or Kafka's bootstrap servers"
        raise UsageError(msg)
    whole = from_start or after is not None
    if store is not None:
        source = _from_store(store, audience, whole=whole)
    else:
        assert kafka is not None  # noqa: S101
        source = _from_kafka(kafka, audience, release, whole=whole, after=after)
    skipping = after
    async with aclosing(source) as records:
        async for record in records:
            if record is _CAUGHT_UP:
                _refuse_unfound(skipping)
                if until_end:
                    return
            elif skipping is not None and record["site"] == skipping.partition("/")[0]:
                if record["release_id"] == skipping:
                    skipping = None
            elif release is None or record["release"] == release:
                yield record


def _refuse_unfound(after: str | None) -> None:
    if after is not None:
        msg = f"--after: must be a release id of this audience that is still kept, got {after!r}"
        raise UsageError(msg)


def _place(record: Release) -> tuple[int, str, bool, str]:
    """Return where a record stands: window, site, attributes before counts, release."""
    try:
        return parse_time(record["window_end"]), record["site"], "attribute" not in record, record["release"]
    except (KeyError, TypeError, ValueError):
        msg = "record: must be a private release, has no window, site or release"
        raise DataError(msg) from None


# --- the embedded store ---------------------------------------------------------------------------------


async def _from_store(store: Path, audience: str, *, whole: bool) -> AsyncGenerator[Release | None, None]:
    if not await asyncio.to_thread(has_outbox, store, audience):
        msg = f"audience {audience}: must be one of this store's, {store} has no outbox of it"
        raise UsageError(msg)
    seen = 0 if whole else max((seq for seq, _ in read_outbox(store, audience, 0)), default=0)
    told = False
    while True:
        rows = read_outbox(store, audience, seen)
        for record in _by_release(parse_record(value) for _, value in rows):
            yield record
        seen = max((seq for seq, _ in rows), default=seen)
        if not told:
            told = True
            yield _CAUGHT_UP
        if not rows:
            await asyncio.sleep(POLL_SECONDS)


def _by_release(records: Iterable[Release]) -> Iterator[Release]:
    """Put records of one window and site, which arrive together, in the order that Kafka's readers know too."""
    for _, window in groupby(records, key=lambda record: _place(record)[:2]):
        yield from sorted(window, key=_place)


# --- Kafka ----------------------------------------------------------------------------------------------


async def _from_kafka(
    kafka: str, audience: str, release: str | None, *, whole: bool, after: str | None
) -> AsyncGenerator[Release | None, None]:
    topics = await _private_topics(kafka, audience, release)
    if release is not None and after is None:
        topics = {release: topics[release]}  # else the others are needed to find out what lies behind ``after``
    async with log.following(kafka, [*topics.values()], from_start=whole) as records:
        with closing(_Waiting()) as waiting:
            async for batch in records.present():
                waiting.add(record.value for record in batch)
            for value in waiting:
                yield parse_record(value)
        yield _CAUGHT_UP
        while True:
            for record in sorted((parse_record(each.value) for each in await records.coming()), key=_place):
                yield record


async def _private_topics(kafka: str, audience: str, release: str | None) -> dict[str, str]:
    """Return an audience's topics by release; UsageError when there are none, or none of ``release``."""
    pattern = re.compile(rf"tacet\.private\.{re.escape(audience)}\.([a-z0-9-]+)\.v1")
    matches = [found for name in await log.topics(kafka) if (found := pattern.fullmatch(name))]
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

    The topics cannot be merged as they are read: of each, only the order within a site is known.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)  # a file without a name, for this connection alone
        self._db.execute("CREATE TABLE waiting (time INT, site TEXT, counts INT, release TEXT, value BLOB)")

    def add(self, values: Iterable[bytes]) -> None:
        """Take records of which each site's are in the order of their release's topic."""
        rows = ((*_place(parse_record(value)), value) for value in values)
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def __iter__(self) -> Iterator[bytes]:
        """Yield them by window, site, attributes before counts, release; of one release as they lie in its topic."""
        order = "SELECT value FROM waiting ORDER BY time, site, counts, release, rowid"
        return (bytes(value) for (value,) in self._db.execute(order))

    def close(self) -> None:
        """Forget them."""
        self._db.close()
