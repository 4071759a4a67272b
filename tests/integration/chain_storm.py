"""The hash-chain engine in the storm: what is fed, when all is out, and what must have come out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Hashable
from pathlib import Path

import orjson
from aiokafka import AIOKafkaProducer

from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.topic_readers import last_snapshots
from connectors.storage.kafka.topic_tail import by_release_id
from connectors.storage.kafka.topics import create_topics
from tests.integration.chain_engine import Topics, chain
from tests.integration.kafka_brokers import Broker
from tests.integration.storm import Plan, Report, Worker, exactly_once, records, storm

SITES = [f"site-{number}" for number in range(10)]
PARTITIONS = 4
ROOT = Path(__file__).parents[2]


def start(module: str, *arguments: str, log: Path | None = None, folder: Path | None = None) -> Worker:
    """Start a Python module of the tests as a process of its own."""
    with (log or Path(os.devnull)).open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=folder or tempfile.gettempdir(),
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def feed(bootstrap: str, topic: str, enough: asyncio.Event, per_second: int) -> None:
    """Send numbered messages for every site until told that it is enough."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, request_timeout_ms=120_000
    )
    await producer.start()
    number = 0
    try:
        while not enough.is_set():
            for site in SITES:
                value = orjson.dumps({"n": number})
                await producer.send(topic, value, key=site.encode(), partition=partition_of(site, PARTITIONS))
            number += 1
            await asyncio.sleep(len(SITES) / per_second)
    finally:
        await producer.stop()


async def reference(bootstrap: str, topics: Topics) -> dict[Hashable, bytes]:
    """Return every output that must come out, from the log of inputs itself."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for record in await records(bootstrap, topics.source):
        numbers[record.key.decode()].append(orjson.loads(record.value)["n"])
    return {
        release_id: orjson.dumps({"release_id": release_id, "head": head.hex()})
        for site, values in numbers.items()
        for release_id, head in chain(site, values)
    }


async def chain_storm(
    broker: Broker,
    prefix: str,
    plan: Plan,
    folder: Path,
    *,
    module: str,
    per_second: int = 200,
    settle: float = 90.0,
    until_read: bool = False,
) -> tuple[Report, Topics]:
    """Run the storm over a chain worker module; return what happened and where the outputs are.

    ``until_read`` waits only until all input has been read (or will not be), whatever came out.
    """
    topics = Topics.of(prefix)
    await create_topics(broker.bootstrap, topics, partitions=PARTITIONS)

    def start_worker(number: int) -> Worker:
        arguments = [broker.bootstrap, prefix, str(plan.session_timeout)]
        return start(module, *arguments, log=folder / f"worker-{number}.log")

    patience = time.monotonic() + 3600

    wanted: dict[Hashable, bytes] = {}

    async def all_out() -> bool:
        if not wanted:  # the feeding has ended
            wanted.update(await reference(broker.bootstrap, topics))
        return wanted.keys() <= {by_release_id(record) for record in await records(broker.bootstrap, topics.private)}

    async def all_read() -> bool:
        nonlocal patience
        patience = min(patience, time.monotonic() + settle / 2)
        ends = Counter(record.partition for record in await records(broker.bootstrap, topics.source))
        saved = await last_snapshots(broker.bootstrap, topic=topics.snapshot)
        done = all(
            value and orjson.loads(value)["next"] >= ends[number] for number, value in saved.items() if ends[number]
        )
        return done or time.monotonic() > patience

    report = await storm(
        broker,
        plan,
        start_worker=start_worker,
        feed=lambda enough: feed(broker.bootstrap, topics.source, enough, per_second),
        complete=all_read if until_read else all_out,
    )
    return report, topics


async def verify(broker: Broker, topics: Topics, report: Report) -> int:
    """Assert that every output is there exactly once by its id; return how many there are."""
    wanted = await reference(broker.bootstrap, topics)
    for topic in (topics.private, topics.audit):
        report.copies[topic] = await exactly_once(broker.bootstrap, topic, by_release_id, wanted)
    return len(wanted)


async def share_out(broker: Broker, topics: Topics) -> float:
    """Return the share of the expected outputs that came out at all, rightly or wrongly."""
    wanted = await reference(broker.bootstrap, topics)
    there = {by_release_id(record) for record in await records(broker.bootstrap, topics.private)}
    return len(wanted.keys() & there) / len(wanted)
