"""Observations a second on a real Kafka, each way of doing it beside the others, from one run.

    python tests/benchmarks/bench_kafka.py [--json]

    faust       the worker's own path: Faust agent, strict consumer, engine, publishing, snapshots
    raw         the same batches, engine, publishing and snapshots, driven by a plain aiokafka consumer
    stages      the same batches and engine on a plain aiokafka consumer; nothing is published or saved
    single      one observation a message, Faust's own consumer and a table that counts per device
    quix        one observation a message, Quix Streams, tumbling count of five minutes per access point

Every contender is a process of its own; the time runs from its first message to its last. The engine's
windows are real: two sites a partition, 64 zones each, PeGaSus for two audiences and the account; observations and
snapshots are encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from connectors.keys.data_keys import DataKeys
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topics import create_topics, topic_names
from connectors.storage.kafka.worker import GARBAGE, WorkerClients
from connectors.storage.kafka.writers import KafkaWriterFactory
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.engine.ports import Engine, Output
from stream.keys import LaboratoryKeys
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, Row
from stream.release.validation import Policy, load_policy
from stream.runners.faust_app import create_app
from stream.runners.partition_tasks import TaskManager
from stream.schemas import AUDIT, OBSERVATIONS

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.integration.kafka_brokers import Broker, find_broker
from tests.integration.kafka_topics import delete_topics

PARTITIONS, SITES, ZONES, BATCH = 4, 8, 64, 500
TICKS, BATCHES_A_TICK = 36, 6
"""864,000 observations: in each of 36 windows 3,000 a site, three hours of a day."""
ROUNDS = 2
"""Turns of each of the fast three, one after the other; the best of each counts."""
SINGLES = {"single": 12_000, "quix": 120_000}
GOALS = {"raw": 0.5, "stages": 0.5, "single": 60.0, "quix": 12.0}
START: Micros = 1_772_442_000 * SECOND
TICK = 5 * MINUTE
VAULT = DataKeys(START // DAY, bytes(32))
NAMES = [f"site-{number}" for number in range(SITES)]


@cache
def policy() -> Policy:
    zones = [
        f'    {{ id = "{z}", floor = "{z // 16}", kind = "open", capacity = 60, access_points = ["{{mac}}:{z:02x}"] }},'
        for z in range(ZONES)
    ]
    text = "".join(
        f'[site.{name}]\nsources = ["10.0.0.1"]\nzones = [\n'
        + "\n".join(zones).replace("{mac}", f"02:00:00:00:{n:02x}")
        + "\n]\n"
        for n, name in enumerate(NAMES)
    )
    return load_policy(
        text + '[[audience]]\nname = "a"\n[[audience]]\nname = "b"\n[[release]]\nname = "occupancy"\nquery = "count"\n'
        'mechanism = "pegasus"\nlevels = ["zone", "floor", "building"]\nepsilon = { a = "1", b = "0.1" }\n'
    )


def messages() -> Iterator[ObservationBatch | Heartbeat]:
    """Yield the log: per tick and site six batches of 500 rows, then the heartbeat that closes the window."""
    chance = random.Random(1)
    for tick in range(TICKS):
        begin = START + tick * TICK
        for number, name in enumerate(NAMES):
            for part in range(BATCHES_A_TICK):
                low = begin + part * TICK // BATCHES_A_TICK
                times = sorted(low + chance.randrange(TICK // BATCHES_A_TICK) for _ in range(BATCH))
                rows = tuple(
                    Row(f"{chance.randrange(4000):016x}", f"02:00:00:00:{number:02x}:{chance.randrange(ZONES):02x}", at)
                    for at in times
                )
                yield ObservationBatch(name, "10.0.0.1", 1, tick * BATCHES_A_TICK + part, rows)
            yield Heartbeat(name, "10.0.0.1", 1, begin + TICK + 31 * SECOND, 0)


class Stopwatch:
    """Runs from the first message until the last of the expected number is done with."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.done = asyncio.Event()
        self.observations = 0
        self._begun: tuple[float, float] | None = None

    def first(self) -> None:
        self._begun = self._begun or (time.perf_counter(), time.process_time())

    def passed(self, observations: int) -> None:
        self.left -= 1
        self.observations += observations
        if self.left == 0:
            self.done.set()

    def read(self) -> dict[str, float]:
        """Return what was done in which time, now that everything is written."""
        assert self._begun is not None
        wall, cpu = time.perf_counter() - self._begun[0], time.process_time() - self._begun[1]
        return {"observations": self.observations, "seconds": wall, "cpu": cpu}


class Timed:
    """An engine that tells a stopwatch."""

    def __init__(self, engine: Engine, watch: Stopwatch) -> None:
        self._engine, self._watch = engine, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def process_in_steps(
        self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None
    ) -> Iterator[tuple[Sequence[Output], bool]]:
        self._watch.first()
        for outputs, last in self._engine.process_in_steps(offset, key, value, stamp):
            if last:  # whoever takes it asks for no more
                self._watch.passed(0 if value.startswith(b"{") else BATCH)  # a heartbeat is JSON
            yield outputs, last


TOTAL = TICKS * SITES * (BATCHES_A_TICK + 1)


def engine(watch: Stopwatch) -> Callable[[int], Awaitable[Engine]]:
    keys = LaboratoryKeys(bytes(32), "bench", bytes(32), vault=VAULT)

    async def made(_: int) -> Engine:
        return Timed(PartitionEngine(policy(), keys), watch)

    return made


async def everything() -> tuple[int, int]:
    return 0, 1 << 60


async def faust(bootstrap: str) -> dict[str, float]:
    watch, journal = Stopwatch(TOTAL), KafkaWriterFactory(bootstrap, fence=uuid.uuid4().hex)
    await journal.start()
    task_manager = TaskManager(engine(watch), journal, audit_topic=AUDIT)
    app = create_app(
        brokers=bootstrap,
        group=uuid.uuid4().hex,
        source=OBSERVATIONS,
        task_manager=task_manager,
        clients=WorkerClients(),
    )
    await app.start()
    await asyncio.wait_for(watch.done.wait(), 300)
    await task_manager.checkpoint(last=True)
    result = watch.read()
    await task_manager.close()
    await app.stop()
    return result


async def raw(bootstrap: str, *, publish: bool = True) -> dict[str, float]:
    watch, journal = Stopwatch(TOTAL), KafkaWriterFactory(bootstrap, fence=uuid.uuid4().hex)
    await journal.start()
    task_manager = TaskManager(engine(watch), journal, audit_topic=AUDIT)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=16 << 20)
    await consumer.start()
    places = [TopicPartition(OBSERVATIONS, number) for number in range(PARTITIONS)]
    consumer.assign(places)
    await consumer.seek_to_beginning(*places)
    engines = {number: await engine(watch)(number) for number in range(PARTITIONS)}
    if publish:
        for number in range(PARTITIONS):
            await task_manager.open(number, everything)
    while not watch.done.is_set():
        for batch in (await consumer.getmany(timeout_ms=500)).values():
            for record in batch:
                if publish:
                    stored = task_manager.tasks[record.partition]
                    if failure := task_manager.failure or stored.loss_error:
                        raise failure  # else it would wait for ever
                    await stored.process(stored.position, record.offset, record.key, record.value, None)
                else:
                    [*engines[record.partition].process_in_steps(record.offset, record.key, record.value, None)]
                await asyncio.sleep(0)  # lets checkpoints go on beside the stream, as the agent does
    await task_manager.checkpoint(last=True)
    result = watch.read()
    await consumer.stop()
    await task_manager.close()
    return result


async def single(bootstrap: str, topic: str) -> dict[str, float]:
    import faust as plain

    watch = Stopwatch(SINGLES["single"])
    with tempfile.TemporaryDirectory() as folder:
        app = plain.App(
            topic, broker=f"kafka://{bootstrap}", datadir=folder, web_enabled=False, topic_partitions=PARTITIONS,
            topic_disable_leader=True, table_standby_replicas=0, consumer_auto_offset_reset="earliest",
        )  # fmt: skip
        table = app.Table("devices", default=int, partitions=PARTITIONS)

        async def count(stream: Any) -> None:
            async for event in stream:
                watch.first()
                table[event["device"]] += 1
                watch.passed(1)

        app.agent(app.topic(topic, value_serializer="json"))(count)
        await app.start()
        await asyncio.wait_for(watch.done.wait(), 300)
        result = watch.read()
        await app.stop()
    return result


def quix(bootstrap: str, topic: str) -> dict[str, float]:
    from quixstreams import Application

    watch = Stopwatch(SINGLES["quix"])

    ended: list[dict[str, float]] = []

    def seen(value: Any) -> Any:
        watch.first()
        return value

    def counting(watch: Stopwatch) -> None:
        watch.passed(1)
        if watch.left == 0:
            ended.append(watch.read())

    with tempfile.TemporaryDirectory() as folder:
        app = Application(
            broker_address=bootstrap, consumer_group=uuid.uuid4().hex, auto_offset_reset="earliest",
            state_dir=folder, loglevel="WARNING", auto_create_topics=True,
        )  # fmt: skip
        frame = app.dataframe(app.topic(topic, value_deserializer="json", key_deserializer="str")).apply(seen)
        counted = frame.tumbling_window(timedelta(minutes=5)).count().current()
        counted.update(lambda _: counting(watch))
        app.run(count=SINGLES["quix"], timeout=120)
    return ended[0]


# --- the run --------------------------------------------------------------------------------------------


def own_broker() -> Broker:
    """Start a broker for this benchmark: it deletes the standard topics, so it touches no broker of anybody's."""
    os.environ.pop("TACET_TEST_KAFKA", None)
    return find_broker()


async def load(bootstrap: str, topics: dict[str, str]) -> None:
    """Fill the log with batches, and two topics with single observations."""
    names = topic_names(policy())
    await delete_topics(bootstrap, names)
    await create_topics(bootstrap, names, partitions=PARTITIONS)
    await create_topics(bootstrap, topics.values(), partitions=PARTITIONS)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=1 << 18)
    await producer.start()
    made = list(messages())
    for message in made:
        partition = partition_of(message.site, PARTITIONS)
        await producer.send(
            OBSERVATIONS, encode_message(message, VAULT), key=message.site.encode(), partition=partition
        )
    rows = (row for message in made if isinstance(message, ObservationBatch) for row in message.rows)
    for number, row in enumerate(rows):
        body = {"device": row.device, "access_point": row.access_point, "time": row.time}
        for name, topic in topics.items():
            if number < SINGLES[name]:
                key, value = str(row.access_point).encode(), json.dumps(body).encode()
                await producer.send(topic, value, key=key, timestamp_ms=row.time // 1000)
    await producer.stop()


def run(*arguments: str) -> dict[str, float]:
    """Run one contender in its own process."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{arguments[0]} failed:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(lines[-1])
    return result | {"rate": result["observations"] / result["seconds"]}


def contend(which: str, bootstrap: str, topic: str) -> dict[str, float]:
    if which == "quix":
        return quix(bootstrap, topic)
    works: dict[str, Callable[[str], Coroutine[Any, Any, dict[str, float]]]] = {
        "faust": faust, "raw": raw, "stages": lambda to: raw(to, publish=False),
    }  # fmt: skip
    work = works.get(which)
    if work is None:
        return asyncio.run(single(bootstrap, topic))
    gc.set_threshold(*GARBAGE)
    return asyncio.run(work(bootstrap))


async def anew(bootstrap: str) -> None:
    """Forget what a contender published, but not the observations."""
    names = [name for name in topic_names(policy()) if name != OBSERVATIONS]
    await delete_topics(bootstrap, names)
    await create_topics(bootstrap, names, partitions=PARTITIONS)


def main() -> None:
    broker: Broker = own_broker()
    topics = {name: f"bench-{name}-{uuid.uuid4().hex[:8]}" for name in SINGLES}
    with contextlib.closing(broker):
        asyncio.run(load(broker.bootstrap, topics))
        results = {which: run(which, broker.bootstrap, topic) for which, topic in topics.items()}
        for which in ("stages", "raw", "faust") * ROUNDS:
            asyncio.run(anew(broker.bootstrap))
            result = run(which, broker.bootstrap, "")
            results[which] = max(result, results.get(which, result), key=lambda one: one["rate"])
    ratios = {name: results["faust"]["rate"] / results[name]["rate"] for name in GOALS}
    if "--json" in sys.argv:
        print(json.dumps({"results": results, "ratios": ratios, "goals": GOALS, "load": os.getloadavg()[0]}))
        return
    for name, result in results.items():
        cpu = result["cpu"] / result["observations"] * 1e6
        print(f"{name:8} {result['rate']:12,.0f} observations/s  {cpu:8.2f} us CPU")
    for name, goal in GOALS.items():
        print(
            f"faust / {name:8} {ratios[name]:8.2f}   goal {goal:g}   {'reached' if ratios[name] >= goal else 'MISSED'}"
        )
    print(f"machine load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in {"faust", "raw", "stages", "single", "quix"}:
        print(json.dumps(contend(*sys.argv[1:4])))
    else:
        main()
