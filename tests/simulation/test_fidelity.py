"""The same random scripts of client operations have the same outcome on simulated brokers and on real ones.

Compared are the class of each operation's error and, when nothing moves, what readers see under both isolations, the
end of the log and the last stable offset.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import IllegalOperation, InvalidProducerEpoch, InvalidTxnState, KafkaError, ProducerFenced

from tests.conftest import had
from tests.integration.kafka_brokers import OLDEST, VERSION, Broker, find_release
from tests.simulation.kafka_brokers import Cluster
from tests.simulation.network import Network
from tests.simulation.processes import Process, World, guarded

Step = tuple[str, str]
WRITERS = {"first": "writer", "heir": "writer", "other": "other", "plain": None}
"""Producers, and the transactional id of each; two of them fence each other."""
_CLASSES = {
    "fenced": (ProducerFenced, InvalidProducerEpoch),
    "state": (InvalidTxnState, IllegalOperation, AssertionError),
    "failed": (KafkaError,),
}


def script(seed: int, length: int = 30) -> list[Step]:
    """Draw operations; reads come when nothing moves."""
    chance = random.Random(seed)
    weights = {"send": 8, "begin": 4, "commit": 3, "abort": 2, "start": 2, "read": 2}
    steps = [("start", name) for name in WRITERS]
    for _ in range(length):
        (kind,) = chance.choices(list(weights), list(weights.values()))
        steps.append((kind, chance.choice(list(WRITERS))))
    return [*steps, ("read", "")]


async def play(bootstrap: str, topic: str, steps: list[Step], prefix: str) -> list[object]:
    """Carry out a script; return the outcome of each step."""
    producers: dict[str, Any] = {}
    outcomes: list[object] = []
    for number, (kind, name) in enumerate(steps):
        if kind == "read":
            await asyncio.sleep(1.0)
            outcomes.append([await _seen(bootstrap, topic, isolation) for isolation in ("committed", "uncommitted")])
            continue
        try:
            async with asyncio.timeout(30.0):
                await _step(bootstrap, topic, producers, kind, name, prefix, b"%d" % number)
            outcomes.append("done")
        except (KafkaError, IllegalOperation, AssertionError) as error:
            outcomes.append(next(name for name, kinds in _CLASSES.items() if isinstance(error, kinds)))
        await asyncio.sleep(0.05)
    for producer in producers.values():
        with suppress(KafkaError, TimeoutError):
            await asyncio.wait_for(producer.stop(), 10.0)
    return outcomes


async def _step(
    bootstrap: str, topic: str, producers: dict[str, Any], kind: str, name: str, prefix: str, value: bytes
) -> None:
    identity = WRITERS[name]
    match kind:
        case "start":
            former = producers.pop(name, None)
            if former is not None:
                with suppress(KafkaError):
                    await former.stop()
            options: dict[str, Any] = {"transactional_id": f"{prefix}-{identity}"} if identity else {}
            producers[name] = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **options)
            await producers[name].start()
        case "send":
            await producers[name].send_and_wait(topic, value)
        case _ if identity is None:
            return
        case "begin":
            await producers[name].begin_transaction()
        case "commit":
            await producers[name].commit_transaction()
        case "abort":
            await producers[name].abort_transaction()


async def _seen(bootstrap: str, topic: str, isolation: str) -> tuple[list[bytes | None], int]:
    """Return the visible values and the end up to which a reader sees."""
    at = TopicPartition(topic, 0)
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=f"read_{isolation}", auto_offset_reset="earliest"
    )
    await reader.start()
    try:
        reader.assign([at])
        end = (await reader.end_offsets([at]))[at]
        found: list[bytes | None] = []
        while await reader.position(at) < end:
            batches = await reader.getmany(timeout_ms=200)
            found += [record.value for records in batches.values() for record in records]
        return found, end
    finally:
        await reader.stop()


def simulated(steps: list[Step]) -> list[object]:
    """Carry out a script on simulated brokers."""
    world, outcomes = World(1), list[object]()
    with guarded(world):
        cluster = Cluster(world, Network(world), 1)
        cluster.create("topic", 1, 1, {})

        async def main() -> int:
            outcomes.extend(await play(cluster.bootstrap, "topic", steps, "script"))
            return 0

        process = Process(world, "client")
        process.start(main)
        world.run(lambda: process.exit_code is not None, 1000.0)
    assert process.exit_code == 0, process.failure
    return outcomes


async def real(bootstrap: str, steps: list[Step]) -> list[object]:
    """Carry out a script on a real broker, on a topic and under transactional ids of its own."""
    name = f"fidelity-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1)])
    await admin.close()
    return await play(bootstrap, name, steps, name)


def test_scripts_of_operations_reach_what_they_are_to_compare() -> None:
    """Among a few scripts, records are committed and aborted, producers are fenced, and transactions stay open."""
    outcomes = [outcome for seed in range(6) for outcome in simulated(script(seed))]
    assert {"done", "fenced", "state"} <= {outcome for outcome in outcomes if isinstance(outcome, str)}
    reads = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert any(committed != everything for committed, everything in reads)


@pytest.fixture(scope="module", params=[VERSION, OLDEST])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A real broker of each release that is compared."""
    if request.param == VERSION:
        yield request.getfixturevalue("kafka")
        return
    older = had(lambda: find_release(request.param))
    yield older
    older.close()


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(20))
async def test_simulated_brokers_answer_as_a_real_one_does(broker: Broker, seed: int) -> None:
    steps = script(seed)
    there = await real(broker.bootstrap, steps)
    here = await asyncio.to_thread(simulated, steps)
    assert list(zip(steps, here, strict=True)) == list(zip(steps, there, strict=True))
