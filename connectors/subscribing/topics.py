"""An audience's releases from its topics on Kafka: several read as one stream."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import closing

from connectors.kafka.bounded import topic_names
from connectors.kafka.control import refuse_grown
from connectors.kafka.following import Following, following
from connectors.subscribing.cursor import Cursor
from connectors.subscribing.order import CAUGHT_UP, Arrived, Release, Waiting, as_they_lie, unseen
from connectors.subscribing.outbox import not_kept
from stream.errors import UsageError
from stream.schemas import parse_record

LOOK_BACK = 1000
"""Records of a partition that are read again before what a cursor has settled, so that a copy of one is known as such.

A worker that is killed writes again what it has not committed, so a copy follows its first close behind."""


async def from_topics(
    kafka: str, audience: str, release: str | None, *, whole: bool, after: str | None, cursor: Cursor | None
) -> AsyncGenerator[Release | None, None]:
    """Yield what the topics hold, of one release or all, then CAUGHT_UP, then what comes.

    ``whole`` begins at the first record, or close before where the cursor has settled; else at the present end.
    """
    topics = await _private_topics(kafka, audience, release)
    await refuse_grown(kafka, topics.values())
    if release is not None and after is None:
        topics = {release: topics[release]}  # else the others are needed to find ``after``
    if cursor is not None:
        cursor.belong_to("kafka")
    async with following(kafka, [*topics.values()], from_start=whole, begin=_begin_of(cursor)) as records:
        if cursor is not None:
            for topic in topics.values():
                cursor.refuse_short(topic, records.end(topic))
        async for record in _present(records, after, cursor):
            yield record
        yield CAUGHT_UP
        while True:
            came = [Arrived(one.topic, one.partition, one.offset, parse_record(one.value))
                    for one in await records.coming()]  # fmt: skip
            async for record in unseen(as_they_lie(came), cursor):
                yield record
            _settle(cursor, ((one.place, one.part, one.at + 1) for one in came))


def _begin_of(cursor: Cursor | None) -> Callable[[str, int], int] | None:
    """Return where reading a partition begins: a little before what a cursor has settled; None without one."""
    return None if cursor is None else lambda topic, partition: cursor.begin(topic, partition) - LOOK_BACK


async def _present(records: Following, after: str | None, cursor: Cursor | None) -> AsyncGenerator[Release, None]:
    with closing(Waiting()) as waiting:
        async for batch in records.present():
            waiting.add(batch)
        if after is not None and not waiting.forget_up_to(after):
            raise not_kept(after)
        for arrived in waiting:
            async for record in unseen([arrived], cursor):
                yield record
    _settle(cursor, records.ends())


def _settle(cursor: Cursor | None, ends: Iterable[tuple[str, int, int]]) -> None:
    if cursor is not None:
        for topic, partition, end in ends:
            cursor.settle(topic, partition, end)


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
