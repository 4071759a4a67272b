"""The whole engine in the storm: simulated movement in ten buildings, and what one process makes of it alone.

The workers are ``tacet worker`` processes, the messages go through ``KafkaSink``; the reference is the embedded
runner's store after the same messages.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from connectors.embedded.readings import read_outbox, read_topic
from connectors.embedded.runner import embedded
from connectors.kafka.client import KafkaSink
from connectors.kafka.following import Record, by_release_id, by_sequence
from connectors.kafka.topics import create_topics, topic_names
from connectors.keyfile import FileKeys, create
from stream.accounting.audit import verify_chain
from stream.policy.document import Policy, load_policy
from stream.records import MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, Row
from stream.runners.embedded import Chains, Embedded
from stream.runners.partition import Emitted, Partition
from stream.schemas import AUDIT, LEAKAGE, private_topic
from tests.integration.chain_storm import PARTITIONS
from tests.integration.kafka_ground import Broker, delete_topics
from tests.integration.storm import Plan, Report, Worker, exactly_once, records, storm

START: Micros = 1_772_452_800 * SECOND  # 2026-03-02T12:00Z: half a day later the attributes' day closes
TICK = 5 * MINUTE
Message = ObservationBatch | Heartbeat
SOURCE = "10.0.0.1"
SITES = [f"building-{number}" for number in range(10)]
AUDIENCES = ("facilities", "public")

_SITE = """
[site.{site}]
sources = ["10.0.0.1"]
zones = [
    {{ id = "101", floor = "1", kind = "classroom", capacity = 60, access_points = ["02:00:00:00:{n:02x}:01"] }},
    {{ id = "102", floor = "1", kind = "classroom", capacity = 60, access_points = ["02:00:00:00:{n:02x}:02"] }},
    {{ id = "201", floor = "2", kind = "office", capacity = 1, access_points = ["02:00:00:00:{n:02x}:03"] }},
]
"""
_RELEASES = """
[[audience]]
name = "facilities"
[[audience]]
name = "public"

[[release]]
name = "occupancy"
query = "count"
mechanism = "pegasus"
zones = { kind = "classroom" }
levels = ["zone", "floor"]
epsilon = { facilities = "1", public = "0.1" }
daily_budget = { facilities = "100", public = "10" }

[[release]]
name = "office-day"
query = "attributes"
mechanism = "osdprr"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { facilities = "1" }
sensitive = { after = "10:00" }
"""


def policy_text() -> str:
    """Return a policy of ten buildings; its budgets run out within the day, so that refusals happen too."""
    return "".join(_SITE.format(site=site, n=number) for number, site in enumerate(SITES)) + _RELEASES


@dataclass
class Movement:
    """Seeded people in ten buildings; remembers every message that was made, in order."""

    policy: Policy
    seed: int
    made: list[Message] = field(default_factory=list)
    tick: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._sequence: defaultdict[str, int] = defaultdict(int)
        self._points = {name: [zone.access_points[0] for zone in site.zones] for name, site in self.policy.site.items()}
        self.made += [Heartbeat(site, SOURCE, 1, START, 0) for site in SITES]

    def next_tick(self) -> Iterator[Message]:
        """Make five minutes of every building: batches, then the heartbeat that closes the window."""
        begin = START + self.tick * TICK
        self.tick += 1
        for site in SITES:
            for part in range(self._random.randint(0, 2)):
                rows = sorted((self._row(site, begin + part * TICK // 2) for _ in range(12)), key=lambda row: row.time)
                yield self._keep(ObservationBatch(site, SOURCE, 1, self._sequence[site], tuple(rows)))
                self._sequence[site] += 1
            yield self._keep(Heartbeat(site, SOURCE, 1, begin + TICK + 31 * SECOND, 0))

    def _row(self, site: str, begin: Micros) -> Row:
        device = f"{self._random.randrange(40):016x}"
        return Row(device, self._random.choice(self._points[site]), begin + self._random.randrange(TICK // 2))

    def _keep(self, message: Message) -> Message:
        self.made.append(message)
        return message


@dataclass
class Reference:
    """What one process makes of the same messages, by topic and identity."""

    topics: dict[str, dict[Hashable, bytes]]


class MemoryStore:
    """A store that forgets at its end: the same runner without a disk, for storms of many hours of events."""

    def __init__(self) -> None:
        self.outputs: list[Emitted] = []

    def append(self, value: bytes, stamp: Micros | None) -> int:
        return 0

    def snapshot(self) -> bytes | None:
        return None

    def waiting(self, start: int) -> list[tuple[int, bytes, Micros | None]]:
        return []

    def commit(self, outputs: Sequence[Emitted], snapshot: bytes, position: int) -> None:
        self.outputs += outputs

    def keep_policy(self, version: str, document: bytes) -> None:
        pass

    def chain_hash(self, site: str, sequence: int) -> str | None:
        return None

    def deliver(self) -> None:
        pass


class MemoryMark:
    def read(self) -> Chains:
        return {}

    def advance(self, chains: Chains) -> None:
        pass


def reference_in_memory(policy: Policy, key: Path, messages: list[Message]) -> Reference:
    """Run the embedded runner over the messages, without a disk."""
    keys, store = FileKeys(key), MemoryStore()
    runner = Embedded(Partition(policy, keys), store, MemoryMark(), keys)
    runner.start()
    for message in messages:
        runner.take(message)
    runner.stop()
    return _by_identity((output.topic, output.value) for output in store.outputs)


def reference_on_disk(policy: Policy, key: Path, store: Path, messages: list[Message]) -> Reference:
    """Run ``tacet run``'s own runner and store over the messages and read what was published."""
    with embedded(policy, key, store) as runner:
        for message in messages:
            runner.take(message)
    private = [value for audience in AUDIENCES for _, value in read_outbox(store, audience, 0)]
    shown = [(_private_topic(value), value) for value in private]
    return _by_identity(shown + [(topic, value) for topic in (AUDIT, LEAKAGE) for value in read_topic(store, topic)])


def _private_topic(value: bytes) -> str:
    body = orjson.loads(value)
    return private_topic(body["audience"], body["release"])


def _by_identity(records: Iterable[tuple[str, bytes]]) -> Reference:
    topics: defaultdict[str, dict[Hashable, bytes]] = defaultdict(dict)
    for topic, value in records:
        record = Record(0, 0, orjson.loads(value)["site"].encode(), value, 0)
        topics[topic][_identity(topic)(record)] = value
    return Reference(dict(topics))


@dataclass
class EngineStorm:
    """One storm over the engine on a broker whose topics are made anew."""

    broker: Broker
    folder: Path
    plan: Plan
    pace: float = 0.6
    """Seconds between two ticks of all buildings."""
    on_disk: bool = True
    """Whether the reference is made by the embedded runner with its store, or without."""

    def __post_init__(self) -> None:
        self.policy_file, self.key = self.folder / "policy.toml", self.folder / "key"
        self.policy_file.write_text(policy_text())
        self.policy = load_policy(policy_text())
        create(self.key, laboratory=True)
        self.movement = Movement(self.policy, self.plan.seed)
        self._reference: Reference | None = None

    def start_worker(self, number: int) -> Worker:
        command = ["worker", "--kafka", self.broker.bootstrap, "--policy", self.policy_file, "--key-file", self.key]
        with (self.folder / f"worker-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "connectors", *map(str, command)],
                env=os.environ
                | {"TACET_SESSION_TIMEOUT": str(self.plan.session_timeout), "TACET_LOG_LEVEL": "warning"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def feed(self, enough: asyncio.Event) -> None:
        """Send movement until told that it is enough; what was begun is sent to its end."""
        sink = KafkaSink(self.broker.bootstrap)
        await sink.start()
        for message in self.movement.made:
            await sink.append(message)
        while not enough.is_set():
            await asyncio.gather(*map(sink.append, self.movement.next_tick()))
            await asyncio.sleep(self.pace)
        await sink.stop()
        await asyncio.to_thread(self.reference)

    def reference(self) -> Reference:
        """Return what must have come out, once all messages are made."""
        if self._reference is None and self.on_disk:
            self._reference = reference_on_disk(self.policy, self.key, self.folder / "store", self.movement.made)
        elif self._reference is None:
            self._reference = reference_in_memory(self.policy, self.key, self.movement.made)
        return self._reference

    async def complete(self) -> bool:
        """Say whether every identity of the reference can be read."""
        for topic, wanted in self.reference().topics.items():
            there = {_identity(topic)(record) for record in await records(self.broker.bootstrap, topic)}
            if not wanted.keys() <= there:
                return False
        return True

    async def run(self) -> Report:
        """Let the storm loose."""
        names = topic_names(self.policy)
        await delete_topics(self.broker.bootstrap, names)
        await create_topics(self.broker.bootstrap, names, partitions=PARTITIONS)
        return await storm(
            self.broker,
            self.plan,
            start_worker=self.start_worker,
            feed=self.feed,
            complete=self.complete,
            settle_timeout=90.0 + self.plan.faults,
        )

    async def verify(self, report: Report) -> int:
        """Assert that Kafka holds exactly what one process made, and intact ledgers; return the records."""
        wanted = self.reference().topics
        for topic, expected in wanted.items():
            report.copies[topic] = await exactly_once(self.broker.bootstrap, topic, _identity(topic), expected)
        chains: defaultdict[bytes, dict[int, dict[str, object]]] = defaultdict(dict)
        for record in await records(self.broker.bootstrap, AUDIT):
            entry = orjson.loads(record.value)
            chains[record.key][entry["sequence"]] = entry
        for entries in chains.values():
            ordered = [entries[number] for number in sorted(entries)]
            verify_chain(ordered)
            charged = [(entry["release_id"], entry["attempt"]) for entry in ordered]
            assert len(set(charged)) == len(charged), "a release was charged twice"
        return sum(map(len, wanted.values()))


def by_account_window(record: Record) -> Hashable:
    """Identify a leakage record: one of each kind follows each window of a site."""
    body = orjson.loads(record.value)
    return body["site"], body["window_end"], body["kind"]


def _identity(topic: str) -> Callable[[Record], Hashable]:
    return {AUDIT: by_sequence, LEAKAGE: by_account_window}.get(topic, by_release_id)
