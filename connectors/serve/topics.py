"""Released records from Kafka: an audience's private topics, the account's and operators', read without a group.

Each partition is read on from where the history was left; positions are kept with the records, in one transaction.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from connectors.kafka import control
from connectors.kafka.bounded import topic_names
from connectors.kafka.client import partitions_of, reader_of
from connectors.kafka.following import consume
from connectors.serve.books import AccountBook
from connectors.serve.cluster import ClusterBook
from connectors.serve.coalitions import Coalition
from connectors.serve.feed import Intake, own
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.records import Micros
from stream.schemas import LEAKAGE, QUARANTINE

LOOK_SECONDS = 30.0
"""After so long it is looked whether an audience has a topic more, and what the cluster has agreed on."""
WAIT_MS = 500
_PRIVATE = re.compile(r"tacet\.private\.([a-z0-9-]+)\.[a-z0-9-]+\.v1")
Take = Callable[[TopicPartition, Sequence[bytes], Mapping[str, int]], Awaitable[None]]


def topics_of(names: Collection[str], audiences: Collection[str]) -> list[str]:
    """Return the private topics of some audiences, in the order of their names."""
    return sorted(name for name in names if (found := _PRIVATE.fullmatch(name)) and found[1] in audiences)


async def follow_private(kafka: str, audiences: Collection[str], intake: Intake) -> None:
    """Take in what the audiences' topics hold and what comes; ends by an error only.

    Raises:
        UsageError: an audience has no topic on this cluster.
        FinalityError: a record differs from what the history has of it.
        DataError: a record is another audience's, or none.
    """

    async def take(at: TopicPartition, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        found = _PRIVATE.fullmatch(at.topic)
        assert found is not None  # noqa: S101
        await intake.take(own(found[1], _source(at), records), positions)

    while True:
        topics = topics_of(await topic_names(kafka), audiences)
        for audience in audiences:
            if not topics_of(topics, [audience]):
                msg = f"--audience {audience}: must have a private topic on this cluster"
                raise UsageError(msg)
        await _follow(kafka, topics, intake.position, take, LOOK_SECONDS)


async def follow_account(kafka: str, book: AccountBook) -> None:
    """Keep the account's book up with its topic."""

    async def take(at: TopicPartition, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        del at, positions
        book.take(records)

    await _follow(kafka, [LEAKAGE], lambda source: 0, take, None)


async def follow_quarantine(kafka: str, book: ClusterBook) -> None:
    """Keep an operator's book up with the messages that were refused."""

    async def take(at: TopicPartition, records: Sequence[bytes], positions: Mapping[str, int]) -> None:
        del at, positions
        book.take_refused(records)

    await _follow(kafka, [QUARANTINE], lambda source: 0, take, None)


async def follow_control(kafka: str, book: ClusterBook, clock: Callable[[], Micros]) -> None:
    """Keep an operator's book up with what the cluster has agreed on, and with who sends."""
    while True:
        agreed = await control.read(kafka)
        book.take_agreed(agreed.current(), agreed.silent_sources(clock()))
        await asyncio.sleep(LOOK_SECONDS)


def together(policy: Policy, kafka: str, audiences: frozenset[str]) -> dict[str, dict[str, Any]]:
    """Return what some audiences have been told together, by their topics. To be called aside from any loop."""
    return asyncio.run(_together(policy, kafka, audiences))


async def _together(policy: Policy, kafka: str, audiences: frozenset[str]) -> dict[str, dict[str, Any]]:
    coalition = Coalition(policy, audiences)
    for topic in topics_of(await topic_names(kafka), audiences):
        async for record in consume(kafka, topic, until_end=True):
            coalition.take(record.value)
    return coalition.units()


async def _follow(
    kafka: str, topics: Sequence[str], position: Callable[[str], int], take: Take, seconds: float | None
) -> None:
    """Read topics on from where each partition was left, for a while or for ever."""
    async with reader_of(kafka) as reader:
        await _seek(reader, topics, position)
        until = None if seconds is None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            batches = await _next(reader)
            for at in sorted(batches):
                if held := batches[at]:
                    await take(at, [raw.value or b"" for raw in held], {_source(at): held[-1].offset + 1})


async def _next(reader: Any) -> dict[TopicPartition, list[Any]]:
    """Return what comes next; UsageError where a topic has been made anew, or cut off, in front of that."""
    try:
        return dict(await reader.getmany(timeout_ms=WAIT_MS))
    except OffsetOutOfRangeError as error:
        (gone, *_) = error.args[0]
        msg = f"{gone.topic}: must hold what comes next, but was made anew or shortened; delete --index and start again"
        raise UsageError(msg) from None


async def _seek(reader: Any, topics: Sequence[str], position: Callable[[str], int]) -> None:
    """Go to where each partition was left, or to its first record where that is gone."""
    client = reader._client  # noqa: SLF001 - no public way to ask without a subscription
    places = [TopicPartition(topic, number) for topic in topics for number in await partitions_of(client, topic)]
    reader.assign(places)
    begins, ends = await reader.beginning_offsets(places), await reader.end_offsets(places)
    for at in places:
        left = await asyncio.to_thread(position, _source(at))
        if left > ends[at]:
            msg = (
                f"--index: must have been made from this cluster, but has read further of {at.topic}; "
                "delete it and start again"
            )
            raise UsageError(msg)
        reader.seek(at, max(begins[at], left))


def _source(at: TopicPartition) -> str:
    return f"{at.topic}/{at.partition}"
