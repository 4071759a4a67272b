"""Read released records, the account and operators' topics from Kafka, without a consumer group.

Each partition is resumed from the position in the history. Positions are stored with the records, in one transaction.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from connectors.runtime.offload import offload
from connectors.serve.indexer import Indexer, own
from connectors.serve.ledger_views import ClusterView, Coalition, CoalitionUnits
from connectors.storage.kafka import cluster
from connectors.storage.kafka.client import AbsentTopicError, partitions_of, reader_of
from connectors.storage.kafka.recreation import RecreationCheck
from connectors.storage.kafka.topic_readers import topic_names
from connectors.storage.kafka.topic_tail import consume
from stream.errors import UsageError
from stream.records import Micros
from stream.release.validation import Policy
from stream.schemas import parse_record

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Seconds between two checks for new topics of an audience and for the cluster's control state."""
WAIT_MS = 500
_PRIVATE = re.compile(r"tacet\.private\.([a-z0-9-]+)\.[a-z0-9-]+\.v1")
Left = Callable[[str], tuple[int, str | None]]
"""Returns the position up to which a source was read, and the id of the last record."""
RecordHandler = Callable[[TopicPartition, Sequence[bytes], Mapping[str, int]], Awaitable[None]]


def topics_of(names: Collection[str], audiences: Collection[str]) -> list[str]:
    """Return the private topics of some audiences, in the order of their names."""
    return sorted(name for name in names if (found := _PRIVATE.fullmatch(name)) and found[1] in audiences)


async def follow_private(kafka: str, audiences: Collection[str], index: Indexer) -> None:
    """Read what the audiences' topics contain, then what is added; returns only by an error.

    Raises:
        UsageError: an audience has no topic on this cluster.
        FinalityError: a record differs from the one in the history.
        DataError: a record belongs to another audience, or is not a private record.
    """

    async def handle(at: TopicPartition, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        found = _PRIVATE.fullmatch(at.topic)
        assert found is not None  # noqa: S101
        await index.add(own(found[1], _source(at), records), positions)

    while True:
        topics = topics_of(await topic_names(kafka), audiences)
        for audience in audiences:
            if not topics_of(topics, [audience]):
                msg = f"--audience {audience}: must have a private topic on this cluster"
                raise UsageError(msg)
        try:
            left = partial(_left_of, index)
            await _follow(kafka, topics, left, handle, RecreationCheck(kafka), LOOK_SECONDS)
        except AbsentTopicError as error:  # deleted, or too new for this broker: the next check decides
            log.info("%s", error)
            await asyncio.sleep(WAIT_MS / 1000)


def _left_of(index: Indexer, source: str) -> tuple[int, str | None]:
    return index.position(source), index.last(source)


class TopicOfView:
    """A topic from which a view in memory is built, and how far it was read."""

    def __init__(self, kafka: str, topic: str, handle: Callable[[Sequence[bytes]], None]) -> None:
        self._kafka, self._topic, self._handle = kafka, topic, handle
        self._positions: dict[str, int] = {}
        self._recreation = RecreationCheck(kafka)

    async def follow(self) -> None:
        """Read on, from the start at first; returns only by an error."""

        async def handle(at: TopicPartition, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
            del at
            self._handle(records)
            self._positions |= positions

        await _follow(self._kafka, [self._topic], self._left, handle, self._recreation, None)

    def _left(self, source: str) -> tuple[int, str | None]:
        return self._positions.get(source, 0), None


async def follow_control(kafka: str, view: ClusterView, clock: Callable[[], Micros]) -> None:
    """Keep an operator's view up to date with the cluster's control state and with its ingest processes."""
    while True:
        state = await cluster.read(kafka)
        view.set_control_state(state.current(), state.silent_sources(clock()))
        await asyncio.sleep(LOOK_SECONDS)


def combined_account(policy: Policy, kafka: str, audiences: frozenset[str]) -> dict[str, CoalitionUnits]:
    """Return the combined account of some audiences, from their topics. It blocks: do not call it in an event loop."""
    return asyncio.run(_combined_account(policy, kafka, audiences))


async def _combined_account(policy: Policy, kafka: str, audiences: frozenset[str]) -> dict[str, CoalitionUnits]:
    coalition = Coalition(policy, audiences)
    for topic in topics_of(await topic_names(kafka), audiences):
        async for record in consume(kafka, topic, until_end=True):
            coalition.add(record.value)
    return coalition.units()


async def _follow(
    kafka: str, topics: Sequence[str], left: Left, handle: RecordHandler, recreation: RecreationCheck,
    seconds: float | None,
) -> None:  # fmt: skip
    """Read topics from each partition's stored position, for a time limit or for ever."""
    async with reader_of(kafka) as reader:
        known = await _seek(reader, topics, left, recreation)
        until = None if seconds is None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            batches = await _next(reader, recreation)
            for at in sorted(batches):
                records = batches[at]
                if records and at in known:
                    _refuse_other(at, records[0], *known.pop(at))
                    records = records[1:]
                if records:
                    await handle(at, [raw.value or b"" for raw in records], {_source(at): records[-1].offset + 1})


def _refuse_other(at: TopicPartition, record: Any, offset: int, last: str) -> None:
    """Raise UsageError unless a record is the one that was read last at its offset."""
    if record.offset != offset or parse_record(record.value or b"{}").get("release_id") != last:
        raise _recreated(
            at.topic,
            f"no longer contains the record that was read last, at offset {offset} of partition {at.partition}",
        )


def _recreated(topic: str, how: str) -> UsageError:
    return UsageError(
        f"--index: must belong to this cluster's {topic}, which {how}: the topic was recreated, or is another one; "
        "delete the index and start again"
    )


async def _next(reader: Any, recreation: RecreationCheck) -> dict[TopicPartition, list[Any]]:
    """Return the next batch; UsageError if a topic was recreated, or truncated beyond the position."""
    try:
        batches = dict(await reader.getmany(timeout_ms=WAIT_MS))
    except OffsetOutOfRangeError as error:
        (at, *_) = error.args[0]
        raise _changed(at.topic) from None
    if (topic := await recreation.recreated_before(batches)) is not None:
        raise _changed(topic)
    return batches


def _changed(topic: str) -> UsageError:
    return UsageError(
        f"{topic}: must contain the next records, but was recreated or truncated; delete --index and restart"
    )


async def _seek(
    reader: Any, topics: Sequence[str], left: Left, recreation: RecreationCheck
) -> dict[TopicPartition, tuple[int, str]]:
    """Seek to each partition's stored position, or to its first record if that one is gone.

    If the record that was read last still exists, seek to it, so that it comes first. Return the positions of such
    records, with their ids.
    """
    places = [TopicPartition(topic, number) for topic in topics for number in await partitions_of(reader, topic)]
    reader.assign(places)
    begins, ends = await reader.beginning_offsets(places), await reader.end_offsets(places)
    known: dict[TopicPartition, tuple[int, str]] = {}
    for at in places:
        position, last = await offload(left, _source(at))
        if position > ends[at]:
            raise _recreated(at.topic, f"ends at {ends[at]}, before the position up to which it was read")
        if last is not None and position > begins[at]:
            known[at] = position - 1, last
        if 0 < position < begins[at]:
            log.warning("%s: %d offsets were deleted before they were read", _source(at), begins[at] - position)
        if position <= begins[at]:
            recreation.begin_at_first([at])
        reader.seek(at, max(begins[at], position - 1 if at in known else position))
    return known


def _source(at: TopicPartition) -> str:
    return f"{at.topic}/{at.partition}"
