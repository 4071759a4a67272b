"""What an admin does to topics in the storm, and what the operator does then: read ``tacet recover``, and do it.

A topic is *grown*: every start is refused. A topic is *recreated*, deleted and made anew: its records are gone. The
ways out are the product's own, taken by what its verbs do and with plain copies of records, as from a mirror.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka.admin import NewPartitions

from connectors.operations.recovery.cluster import cluster_obstacles
from connectors.operations.recovery.obstacles import Obstacle
from connectors.storage.kafka.client import producer_of
from connectors.storage.kafka.cluster import checked, found_cluster
from connectors.storage.kafka.topic_readers import end_offsets, last_snapshots, read_keyed
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.engine.snapshot import open_snapshot
from stream.errors import UsageError
from stream.release.validation import load_policy
from stream.schemas import AUDIT, CONTROL, LEAKAGE, OBSERVATIONS, SNAPSHOT, private_topic
from tests.integration.chain_storm import PARTITIONS
from tests.integration.kafka_topics import administrator, delete_topics
from tests.integration.one_process import Movement
from tests.integration.storm import Field, Worker
from tests.support.patience import PATIENCE, waiting_for

GROWN = (OBSERVATIONS, AUDIT, SNAPSHOT, private_topic("public", "occupancy"), LEAKAGE)
RECREATED = (AUDIT, OBSERVATIONS, SNAPSHOT, CONTROL)
"""What happens to, in this order, from the first again after the last."""


class Kept(NamedTuple):
    """A record in a mirror."""

    partition: int
    key: bytes
    value: bytes | None
    timestamp_ms: int


async def mirrored(kafka: str, topic: str) -> list[Kept]:
    """Return the committed records of a topic's first partitions, as many as the cluster has."""
    partitions = 1 if topic == CONTROL else PARTITIONS
    return [Kept(number, *record) for number in range(partitions) for record in await read_keyed(kafka, topic, number)]


async def put_back(kafka: str, topic: str, records: Sequence[Kept]) -> None:
    """Write records in order; of the control topic the last one of every key."""
    producer = producer_of(kafka)
    await producer.start()
    for record in {record.key: record for record in records}.values() if topic == CONTROL else records:
        await producer.send(
            topic, record.value, key=record.key, partition=record.partition, timestamp_ms=record.timestamp_ms
        )
    await producer.stop()


async def grow(kafka: str, topic: str) -> None:
    """Double the partitions of a topic, as an admin does."""
    async with administrator(kafka) as admin:
        await admin.create_partitions({topic: NewPartitions(2 * PARTITIONS)})


async def make_anew(kafka: str, topic: str) -> None:
    """Delete a topic and make it again, as an admin does."""
    await delete_topics(kafka, [topic])
    await create_topics(kafka, [topic], partitions=PARTITIONS)


@dataclass
class Operator:
    """Who has the verbs, the policy and the key; ``files`` says which they are now. What verbs do is done in place."""

    kafka: str
    files: Callable[[], tuple[Path, Path]]

    async def findings(self) -> list[Obstacle]:
        """Return what ``tacet recover`` finds."""
        policy, key = self.files()
        return await asyncio.to_thread(cluster_obstacles, self.kafka, key, load_policy(policy.read_text()))

    async def settled(self) -> None:
        """Wait until nothing keeps the workers from going on."""
        end = time.monotonic() + PATIENCE
        while found := await self.findings():
            assert time.monotonic() < end, found
            await asyncio.sleep(0.5)

    async def positions(self) -> dict[int, tuple[int, int]]:
        """Return each partition's next offset and lag, as ``tacet status`` does."""
        ends = await end_offsets(self.kafka, OBSERVATIONS)
        heads = {
            number: open_snapshot(snapshot)[0]
            for number, snapshot in (await last_snapshots(self.kafka)).items()
            if snapshot
        }
        return {number: (head.next_offset, ends[number] - head.next_offset) for number, head in heads.items()}

    async def create_topics(self) -> None:
        """Make the topics that are missing, as ``tacet topics create`` does."""
        names = topic_names(load_policy(self.files()[0].read_text()))
        await create_topics(self.kafka, names, partitions=PARTITIONS)
        await found_cluster(self.kafka, PARTITIONS)


@dataclass
class TopicFaults:
    """Grown and recreated topics under a storm.

    ``silence`` stops the ingests for as long as it is entered; ``start_worker`` takes a number and further options.
    """

    operator: Operator
    movement: Movement
    silence: Callable[[], AbstractAsyncContextManager[None]]
    start_worker: Callable[..., Worker]
    send_unread: Callable[[], Awaitable[None]]
    outcomes: Counter[str]
    _grown: int = field(default=0)
    _recreated: int = field(default=0)

    async def grown(self, storm: Field) -> None:
        """A topic has more partitions than the cluster: no start, until it is made anew with what it held."""
        topic, self._grown = GROWN[self._grown % len(GROWN)], self._grown + 1
        kafka = self.operator.kafka
        await self._at_work()
        async with self.silence() if topic == OBSERVATIONS else nullcontext():
            if topic == OBSERVATIONS:
                await self._read_to_the_end()
            await grow(kafka, topic)
            async with storm.replaced(storm.random.choice(storm.free()), self.start_worker) as worker:
                assert await asyncio.to_thread(worker.wait, 60) == 2
            with pytest.raises(UsageError, match=rf"topic {topic}: must have {PARTITIONS} partitions"):
                await checked(kafka)  # what every ingest and reader begins with
            (found,) = await self.operator.findings()
            assert found.what.startswith(f"topic {topic}: has {2 * PARTITIONS} partitions")
            await (self._replanted(storm) if topic == OBSERVATIONS else self._copied(storm, topic, []))
        self.outcomes[f"grown {topic}"] += 1

    async def recreated(self, storm: Field) -> None:
        """A topic has lost all it held while workers and ingests were at work."""
        topic, self._recreated = RECREATED[self._recreated % len(RECREATED)], self._recreated + 1
        await self._at_work()
        await (self._emptied(storm) if topic == OBSERVATIONS else self._forgotten(storm, topic))
        self.outcomes[f"recreated {topic}"] += 1

    async def _emptied(self, storm: Field) -> None:
        """The observations: what was not read is lost, and that is said; with consent it goes on without."""
        async with self.silence():
            await self.send_unread()
            stored = await mirrored(self.operator.kafka, OBSERVATIONS)
            await make_anew(self.operator.kafka, OBSERVATIONS)
            made = len(self.movement.made)
        await _one_ends_with(storm, 1)
        async with storm.halted(self._consenting):
            await self._expect_consent()
            lost = {record.value or b"" for record in await self._unread(stored)}
            self.movement.begin_anew(made, lost, kept=False)
            self.outcomes["messages lost"] += len(lost)
        await self._take_consent_back(storm)

    async def _replanted(self, storm: Field) -> None:
        """The observations: made anew with what had not been read; nothing is lost, yet consent is asked for.

        No ingest sends, and all was read before the topic grew. So every window with an entry has a state: an entry
        without one would be another one after consent, which has a way out of its own.
        """
        async with storm.halted(self._consenting):
            await self.send_unread()
            unread = await self._unread(await mirrored(self.operator.kafka, OBSERVATIONS))
            self.movement.begin_anew(len(self.movement.made), {record.value or b"" for record in unread}, kept=True)
            self.outcomes["messages put back"] += len(unread)
            await delete_topics(self.operator.kafka, [OBSERVATIONS])
            await self.operator.create_topics()
            await put_back(self.operator.kafka, OBSERVATIONS, unread)
            await self._expect_consent()
        await self._take_consent_back(storm)

    async def _unread(self, held: Sequence[Kept]) -> list[Kept]:
        """Return those of the observations held that are in no state."""
        seen, unread = Counter[int](), []
        positions = await self.operator.positions()
        for record in held:
            if seen[record.partition] >= positions[record.partition][0]:
                unread.append(record)
            seen[record.partition] += 1
        return unread

    def _consenting(self, number: int) -> Worker:
        return self.start_worker(number, "--accept-loss")

    async def _expect_consent(self) -> None:
        found = await self.operator.findings()
        assert found
        assert all("--accept-loss" in way.do for finding in found for way in finding.remedies), found

    async def _take_consent_back(self, storm: Field) -> None:
        """Start workers anew without it when they have gone on: it is given once."""
        await self.operator.settled()
        async with storm.halted():
            pass

    async def _forgotten(self, storm: Field, topic: str) -> None:
        """What the engine writes: put back from a mirror, with what has been written since."""
        async with self.silence():
            await self._read_to_the_end()
            stored = await mirrored(self.operator.kafka, topic)
            await make_anew(self.operator.kafka, topic)
        await asyncio.sleep(storm.random.uniform(1.0, 4.0))
        if topic == AUDIT:
            found = await self.operator.findings()
            assert any("put the records of the topic back from a mirror" in way.do
                       for finding in found for way in finding.remedies), found  # fmt: skip
        await self._copied(storm, topic, stored)

    async def _copied(self, storm: Field, topic: str, held: Sequence[Kept]) -> None:
        """Make a topic anew with the records held and those that are in it; of the control topic with the former."""
        async with self.silence() if topic == CONTROL else nullcontext(), storm.halted():
            since = [] if topic == CONTROL else await mirrored(self.operator.kafka, topic)
            await delete_topics(self.operator.kafka, [topic])
            await self.operator.create_topics()
            await put_back(self.operator.kafka, topic, [*held, *since])
        await self.operator.settled()

    async def _at_work(self) -> None:
        """Wait until every partition has a state."""
        async with waiting_for("a state of every partition"):
            while len(await self.operator.positions()) < PARTITIONS:
                await asyncio.sleep(0.5)

    async def _read_to_the_end(self) -> None:
        """Wait until nothing is left to read."""
        async with waiting_for("the end of every partition"):
            while any(lag for _, lag in (await self.operator.positions()).values()):
                await asyncio.sleep(0.2)


async def _one_ends_with(storm: Field, code: int) -> None:
    """Wait until a worker has ended by itself."""
    async with waiting_for(f"a worker that ends with {code}"):
        while code not in (worker.poll() for worker in storm.workers):
            await asyncio.sleep(0.2)
