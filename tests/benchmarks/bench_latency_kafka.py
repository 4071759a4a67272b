"""From the heartbeat that closes a window to its records being readable, on Kafka: p50 and p99, wall clock.

A broker of its own, one partition, one ``tacet worker`` process. The clock starts when the heartbeat is handed
to the producer and stops when a plain consumer has both audiences' records. What comes before the heartbeat
has been worked off by then, as it has in live running.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aiokafka import AIOKafkaConsumer

from connectors.keys import key_files
from connectors.lab.simulation.policy import site_text
from connectors.sources.ingest.sighting import Message
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.records import MINUTE
from stream.release.validation import Policy
from stream.schemas import private_topic
from tests.benchmarks.shared import RELEASE, SOURCE, Figure, by_window, log, policy, quick, simulations, tell
from tests.integration.kafka_brokers import Broker, NoKafkaError, find_broker

PLAN = {(64, "laplace"): 15, (64, "pegasus"): 15, (64, "filter"): 15, (1000, "laplace"): 8, (1000, "pegasus"): 8,
        (1000, "filter"): 8}  # fmt: skip
"""Windows by zones and mechanism."""
WARM_UP = 3
SETTLED = 0.5
"""Seconds for the worker to work off what came before a closing heartbeat, with some to spare."""


def main() -> None:
    os.environ.pop("TACET_TEST_KAFKA", None)  # topics are deleted here: never on somebody's broker
    figures: list[Figure] = []
    for (zones, mechanism), windows in PLAN.items():
        try:
            broker = find_broker()
        except NoKafkaError as reason:
            tell([Figure("Kafka: not measured", float("nan"), "", note=f"no broker: {reason}")])
            return
        try:
            figures += measure(broker, zones, mechanism, max(5, windows // 10) if quick() else windows)
        finally:
            broker.close()
    tell(figures)


def measure(broker: Broker, zones: int, mechanism: str, windows: int) -> list[Figure]:
    """Run a worker on an empty log and time its windows."""
    buildings = simulations(zones)
    rules = policy(buildings, mechanism)
    begin = buildings[0].start + 9 * 60 * MINUTE
    messages = log(buildings, rules, begin, begin + (windows + WARM_UP + 2) * 5 * MINUTE)
    with tempfile.TemporaryDirectory(prefix="tacet-bench-") as name:
        folder = Path(name)
        key_files.create(folder / "key", laboratory=True)
        (folder / "policy.toml").write_text(site_text(buildings[0], [SOURCE]) + RELEASE.format(mechanism=mechanism))
        asyncio.run(create_topics(broker.bootstrap, topic_names(rules), partitions=1))
        command = [sys.executable, "-m", "connectors", "worker", "--kafka", broker.bootstrap]
        command += ["--policy", str(folder / "policy.toml"), "--key-file", str(folder / "key")]
        with (folder / "log").open("wb") as output:
            worker = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            taken = sorted(asyncio.run(drive(broker, rules, messages, windows + WARM_UP))[WARM_UP:])
        finally:
            worker.terminate()
            worker.wait(15)
    p50, p99 = taken[len(taken) // 2], taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    title = f"Kafka, {zones:,} zones, {mechanism}"
    return [
        Figure(f"{title}: p50", p50, "s", aside=True),
        Figure(f"{title}: p99", p99, "s", detail=f"{windows} windows"),
    ]


async def drive(broker: Broker, rules: Policy, messages: Iterator[Message], windows: int) -> list[float]:
    """Send the log window by window; return how long each closing heartbeat took to become records."""
    sink = KafkaSink(broker.bootstrap)
    topics = [private_topic(audience.name, "occupancy") for audience in rules.audience]
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    await sink.start()
    await consumer.start()
    taken: list[float] = []
    try:
        for before, closing in by_window(rules, messages):
            await asyncio.gather(*(sink.append(message) for message in before))
            await asyncio.sleep(SETTLED)
            began = time.monotonic()
            await sink.append(closing)
            async with asyncio.timeout(60):
                for _ in topics:
                    await consumer.getone()
            taken.append(time.monotonic() - began)
            if len(taken) == windows:
                return taken
    finally:
        await consumer.stop()
        await sink.stop()
    raise AssertionError("the log is too short")


if __name__ == "__main__":
    main()
