"""An audience's releases from its topics on Kafka, merged into one stream."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import closing
from functools import partial

from aiokafka.errors import KafkaError

from connectors.storage.kafka.client import AbsentTopicError
from connectors.storage.kafka.cluster import refuse_grown
from connectors.storage.kafka.topic_readers import topic_names
from connectors.storage.kafka.topic_tail import TopicTail, open_tail
from connectors.subscribe.cursor import Cursor, Delivered
from connectors.subscribe.order import Arrival, Mark, PendingRecords, Release, in_topic_order, last_by_partition, unseen
from connectors.subscribe.outbox import not_stored
from stream.errors import UsageError
from stream.schemas import parse_record

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Seconds between two checks whether the topics are still the same, and whether releases were added."""
LOOK_BACK = 1000
"""Records of a partition that are read again before what a cursor has settled, so that a copy of one is known as such.

A worker that is killed writes again what it has not committed, so a copy follows its first close behind."""


async def from_topics(
    kafka: str, audience: str, release: str | None, *, whole: bool, after: str | None, cursor: Cursor | None
) -> AsyncGenerator[Release | Mark, None]:
    """Yield the topics' records, of one release or all, then ``CAUGHT_UP``, then those that are added.

    ``whole`` starts at the first record, or shortly before the cursor's settled offset; otherwise at the present
    end.
    """
    topics = await _private_topics(kafka, audience, release)
    every = release is None or after is not None  # ``after`` may be a record of another release
    opened = {*topics.values()} if every else {topics[release or ""]}
    await refuse_grown(kafka, opened)
    if cursor is not None:
        cursor.belong_to("kafka")
    begin = _begin_of(cursor)
    async with open_tail(kafka, sorted(opened), from_start=whole, begin=begin) as records:
        last: dict[tuple[str, int], Delivered] = {}
        async for record in _present(records, after, cursor, last):
            yield record
        yield Mark.CAUGHT_UP
        looked = time.monotonic()
        while True:
            arrived = [Arrival(one.topic, one.partition, one.offset, parse_record(one.value))
                    for one in await records.poll()]  # fmt: skip
            look = time.monotonic() - looked >= LOOK_SECONDS
            if look:
                await _refuse_recreated(records)
            async for record in unseen(in_topic_order(arrived), cursor):
                yield record
            newest = last_by_partition(arrived)
            last |= newest
            _mark_delivered(cursor, ((*where, record.offset + 1) for where, record in newest.items()), last)
            if look:
                if every and (added := await _open_added(kafka, audience, records, opened, begin)):
                    opened |= added
                    async for record in _present(records, None, cursor, last):
                        yield record
                looked = time.monotonic()


async def _open_added(
    kafka: str, audience: str, records: TopicTail, opened: set[str], begin: Callable[[str, int], int] | None
) -> set[str]:
    """Open the topics of releases that were added since, from their first record, and return them.

    If a broker is unavailable, or does not serve a new topic yet, it is opened the next time.
    """
    try:
        added = {*(await _topics_of(kafka, audience)).values()} - opened
        if added:
            await refuse_grown(kafka, added)
            await records.open(sorted(added), begin)
    except (KafkaError, ConnectionError, TimeoutError, AbsentTopicError) as error:
        log.info("added releases were not checked: %s", type(error).__name__)
        return set()
    return added


def _begin_of(cursor: Cursor | None) -> Callable[[str, int], int] | None:
    """Return the first offset to read of each partition, shortly before what the cursor has settled; None without a
    cursor."""
    return None if cursor is None else lambda topic, partition: cursor.resume_offset(topic, partition, LOOK_BACK)


async def _refuse_recreated(records: TopicTail) -> None:
    """Raise UsageError if a topic was recreated, even if no record arrives that shows it.

    If a broker is unavailable, the check is repeated the next time.
    """
    try:
        await records.refuse_recreated()
    except (KafkaError, ConnectionError, TimeoutError) as error:
        log.info("topics were not checked for recreation: %s", type(error).__name__)


async def _present(
    records: TopicTail, after: str | None, cursor: Cursor | None, last: dict[tuple[str, int], Delivered]
) -> AsyncGenerator[Release, None]:
    """Yield the existing records; ``last`` receives the last record of each partition."""
    with closing(PendingRecords()) as waiting:
        async for batch in records.existing():
            waiting.add(batch)
        last |= waiting.last()
        if cursor is not None:
            for topic, partition, first in records.begins():
                cursor.check_retained(topic, partition, first)
                since = max(first, cursor.resume_offset(topic, partition, LOOK_BACK))
                cursor.refuse_other(topic, partition, since, partial(waiting.release_at, topic, partition))
        if after is not None and not waiting.forget_up_to(after):
            raise not_stored(after)
        for arrived in waiting:
            async for record in unseen([arrived], cursor):
                yield record
    _mark_delivered(cursor, records.ends(), last)


def _mark_delivered(
    cursor: Cursor | None, ends: Iterable[tuple[str, int, int]], last: Mapping[tuple[str, int], Delivered]
) -> None:
    if cursor is not None:
        for topic, partition, end in ends:
            cursor.mark_delivered(topic, partition, end, last.get((topic, partition)))


async def _private_topics(kafka: str, audience: str, release: str | None) -> dict[str, str]:
    """Return an audience's topics by release; UsageError if there are none, or none for ``release``."""
    topics = await _topics_of(kafka, audience)
    if not topics:
        msg = f"audience {audience}: must have a private topic on this cluster"
        raise UsageError(msg)
    if release is not None and release not in topics:
        msg = f"release {release}: must have a private topic of audience {audience} on this cluster"
        raise UsageError(msg)
    return topics


async def _topics_of(kafka: str, audience: str) -> dict[str, str]:
    """Return an audience's topics by release."""
    pattern = re.compile(rf"tacet\.private\.{re.escape(audience)}\.([a-z0-9-]+)\.v1")
    matches = [found for name in await topic_names(kafka) if (found := pattern.fullmatch(name))]
    return {found[1]: found[0] for found in matches}
