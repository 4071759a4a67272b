"""The whole engine in the storm: simulated movement in ten buildings, and what one process makes of it alone.

The workers are ``tacet worker`` processes, the messages go through ``KafkaSink``; the reference is what the
embedded runner makes of the same messages, under the same policy at each window.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from aiokafka.errors import KafkaError

from connectors.kafka import control
from connectors.kafka.claims import Claims
from connectors.kafka.client import KafkaSink, partition_of, producer_of
from connectors.kafka.following import Record, by_release_id, by_sequence
from connectors.kafka.topics import create_topics, topic_names
from connectors.keyfile import FileKeys, create
from stream.errors import TacetError, UsageError
from stream.policy.document import Policy, load_policy
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, Row
from stream.runners.embedded import Chains, Embedded
from stream.runners.emitted import Emitted
from stream.runners.partition import Partition
from stream.schemas import AUDIT, LEAKAGE, OBSERVATIONS, SNAPSHOT, encode_message, private_topic, rfc3339
from tests.chains import verify_chain
from tests.integration.chain_storm import PARTITIONS, ROOT
from tests.integration.kafka_ground import Broker, JavaCluster, clear_topics
from tests.integration.storm import Field, Plan, Report, Worker, exactly_once, is_stopped, records, storm

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


def policy_text(capacity: int = 60) -> str:
    """Return a policy of ten buildings; its budgets run out within the day, so that refusals happen too."""
    sites = "".join(_SITE.format(site=site, n=number) for number, site in enumerate(SITES))
    return sites.replace("capacity = 60", f"capacity = {capacity}") + _RELEASES


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
        self._snapshot: bytes | None = None

    def append(self, value: bytes, stamp: Micros | None) -> int:
        return 0

    def snapshot(self) -> bytes | None:
        return self._snapshot

    def waiting(self, start: int) -> list[tuple[int, bytes, Micros | None]]:
        return []

    def commit(self, outputs: Sequence[Emitted], snapshot: bytes, position: int) -> None:
        self.outputs += outputs
        self._snapshot = snapshot

    def keep_policy(self, version: str, document: bytes) -> None:
        pass

    def chain_hash(self, site: str, sequence: int) -> str | None:
        return None

    def deliver(self) -> None:
        pass


class MemoryMark:
    def read(self) -> Chains:
        return {}

    def made_by(self) -> str | None:
        return None

    def advance(self, chains: Chains) -> None:
        pass


Begun = Mapping[tuple[str, str], str]
"""The version of the policy under which a window (site, end) was released."""


def reference(policies: Mapping[str, Policy], key: Path, messages: list[Message], begun: Begun) -> Reference:
    """Run the embedded runner over the messages of each site, with another policy from where another was taken."""
    keys = FileKeys(key)
    outputs: list[Emitted] = []
    for site in SITES:
        store, runner = MemoryStore(), None
        version = begun.get((site, rfc3339(START + TICK)), next(iter(policies)))
        for message in messages:
            if message.site != site:
                continue
            if isinstance(message, Heartbeat):
                due = begun.get((site, rfc3339(message.watermark // TICK * TICK)), version)
                if runner is not None and due != version:
                    runner.stop()
                    runner = None
                version = due
            if runner is None:
                runner = Embedded(Partition(policies[version], keys, accept_policy=True), store, MemoryMark(), keys)
                runner.start()
            runner.take(message, durable=False)
        if runner is not None:
            runner.stop()
        outputs += store.outputs
    return _by_identity((output.topic, output.value) for output in outputs if output.topic in _compared())


def _compared() -> list[str]:
    named = {"occupancy": AUDIENCES, "office-day": AUDIENCES[:1]}
    return [AUDIT, LEAKAGE, *(private_topic(reader, name) for name, readers in named.items() for reader in readers)]


def _by_identity(records: Iterable[tuple[str, bytes]]) -> Reference:
    topics: defaultdict[str, dict[Hashable, bytes]] = defaultdict(dict)
    for topic, value in records:
        record = Record(0, 0, orjson.loads(value)["site"].encode(), value, 0)
        topics[topic][_identity(topic)(record)] = value
    return Reference(dict(topics))


BEFORE = (AUDIT, private_topic("public", "occupancy"), SNAPSHOT)
"""Where a zombie is stopped: just before a record for one of these."""


@dataclass
class EngineStorm:
    """One storm over the engine on a broker whose topics are made anew."""

    broker: Broker
    folder: Path
    plan: Plan
    pace: float = 0.6
    """Seconds between two ticks of all buildings."""

    def __post_init__(self) -> None:
        self.key = self.folder / "key"
        create(self.key, laboratory=True)
        self.policies: dict[str, Policy] = {}
        self.files: dict[str, Path] = {}
        for capacity in (60, 61):
            policy = load_policy(policy_text(capacity))
            self.policies[policy.version] = policy
            self.files[policy.version] = self.folder / f"policy-{capacity}.toml"
            self.files[policy.version].write_text(policy_text(capacity))
        self.version = next(iter(self.policies))
        """The policy under which the cluster works."""
        self.policy = self.policies[self.version]
        self.movement = Movement(self.policy, self.plan.seed)
        self.outcomes: Counter[str] = Counter()
        """What became of the faults that may end in more than one way."""
        self._rolling = asyncio.Lock()
        self._reference: Reference | None = None

    # --- workers --------------------------------------------------------------------------------------

    def start_worker(self, number: int, *more: str, stop_at: str = "") -> Worker:
        """Start ``tacet worker``, or one that stops itself just before the nth record of a topic."""
        given = ["worker", "--kafka", self.broker.bootstrap, "--policy", self.files[self.version]]
        module = "tests.integration.stopping_worker" if stop_at else "connectors"
        env = {"TACET_SESSION_TIMEOUT": str(self.plan.session_timeout), "TACET_LOG_LEVEL": "warning"}
        with (self.folder / f"worker-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *map(str, given), "--key-file", str(self.key), *more],
                cwd=ROOT,
                env=os.environ | env | {"STOP_AT": stop_at},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def zombie(self, field: Field) -> None:
        """Stop a worker in the middle of a window's records, and wake it when another has its partitions."""
        await self._zombie(field, rolled=False)

    async def roll(self, field: Field) -> None:
        """The same, and the other one takes the partitions under another policy."""
        await self._zombie(field, rolled=True)

    async def _zombie(self, field: Field, *, rolled: bool) -> None:
        async with self._rolling:
            number, stop_at = field.random.choice(await _two_free(field)), field.random.choice(BEFORE)
            place = f"{stop_at}:{field.random.randint(1, 9)}"
            begin = functools.partial(self.start_worker, stop_at=place)
            async with field.replaced(number, begin) as worker:
                if not await _stops(worker):  # it has come to nothing to write
                    worker.kill()
                    self.outcomes["never stopped"] += 1
                    return
                if rolled:
                    await self._roll(field)
                await field.pause_length()
                worker.send_signal(signal.SIGCONT)
                self.outcomes["woken"] += 1

    async def _roll(self, field: Field) -> None:
        """Let another policy begin; who works under the one before ends by itself and is started anew."""
        while not field.free():
            await asyncio.sleep(0.2)
        other, before = field.free()[0], self.version
        self.version = next(version for version in self.policies if version != before)
        present = (await control.read(self.broker.bootstrap)).policies.get(before)
        consent = ["--accept-policy", *([] if present is None else ["--again", str(present.order)])]
        async with field.replaced(other, lambda number: self.start_worker(number, *consent)) as worker:
            async with asyncio.timeout(60):
                while (await control.read(self.broker.bootstrap)).current() != self.version:
                    if worker.poll() is not None:  # its broker was away for too long
                        self.version, _ = before, self.outcomes.update(["not rolled"])
                        return
                    await asyncio.sleep(0.5)
            self.outcomes["rolled"] += 1

    # --- what others send -----------------------------------------------------------------------------

    async def misplaced(self, field: Field) -> None:
        """A message of each site on a partition that is not its own."""
        for site in SITES:
            beat = Heartbeat(site, SOURCE, 1, START + 40 * DAY, 0)
            await self._send(site, encode_message(beat), 1 + partition_of(site, PARTITIONS))

    async def clock(self, field: Field) -> None:
        """Heartbeats and rows of a clock that is years ahead of the broker's."""
        for site in SITES:
            ahead = time.time_ns() // 1000 + field.random.randint(6, 10**6) * MINUTE
            await self._send(site, encode_message(Heartbeat(site, SOURCE, 1, ahead, 0)))
            row = Row("00" * 8, "02:00:00:00:00:01", ahead)
            await self._send(site, encode_message(ObservationBatch(site, SOURCE, ahead, 0, (row,))))

    async def bomb(self, field: Field) -> None:
        """What no connector sends: a large heap of nonsense, JSON that is none of ours, other keys, nothing."""
        deep = b"[" * 100_000
        for value in (field.random.randbytes(900_000), deep, b'{"v":1,"site":1e999}', b"null", b"", b"{" * 500_000):
            await self._send(field.random.choice(["", "nobody", *SITES]), value, field.random.randrange(PARTITIONS))

    async def twin(self, field: Field) -> None:
        """A second ingest for a source that has one."""
        second = Claims(self.broker.bootstrap, [(field.random.choice(SITES), SOURCE)])
        try:
            await second.start(PARTITIONS)
            self.outcomes["twin admitted"] += 1
        except UsageError:
            self.outcomes["twin refused"] += 1
        except (KafkaError, TacetError, ConnectionError, TimeoutError):
            self.outcomes["twin without broker"] += 1
        finally:
            await second.stop()

    async def lose(self, field: Field) -> None:
        """Lose a broker of three for good."""
        assert isinstance(self.broker, JavaCluster)
        await asyncio.to_thread(self.broker.lose)

    async def _send(self, site: str, value: bytes, partition: int | None = None) -> None:
        number = partition_of(site, PARTITIONS) if partition is None else partition % PARTITIONS
        await self._hostile.send(OBSERVATIONS, value, key=site.encode(), partition=number)

    # --- the storm ------------------------------------------------------------------------------------

    async def feed(self, enough: asyncio.Event) -> None:
        """Send movement until told that it is enough; what was begun is sent to its end."""
        sink, first = (
            KafkaSink(self.broker.bootstrap),
            Claims(self.broker.bootstrap, [(site, SOURCE) for site in SITES]),
        )
        await sink.start()
        await first.start(PARTITIONS, session=1)
        living = asyncio.create_task(first.keep())
        for message in self.movement.made:
            await sink.append(message)
        while not enough.is_set():
            await asyncio.gather(*map(sink.append, self.movement.next_tick()))
            await asyncio.sleep(self.pace)
        living.cancel()
        await first.stop()
        await sink.stop()

    async def complete(self) -> bool:
        """Say whether every window of every site can be read; its transaction holds all else of it."""
        there = {_of_window(record) for record in await records(self.broker.bootstrap, BEFORE[1])}
        ends = [rfc3339(START + number * TICK) for number in range(1, self.movement.tick + 1)]
        return {(site, end) for site in SITES for end in ends} <= there

    async def run(self) -> Report:
        """Let the storm loose."""
        names = topic_names(self.policy)
        await clear_topics(self.broker.bootstrap)
        await create_topics(self.broker.bootstrap, names, partitions=PARTITIONS)
        await control.found_cluster(self.broker.bootstrap, PARTITIONS)
        self._hostile = producer_of(self.broker.bootstrap)
        await self._hostile.start()
        try:
            return await storm(
                self.broker,
                self.plan,
                start_worker=self.start_worker,
                feed=self.feed,
                complete=self.complete,
                settle_timeout=90.0 + self.plan.faults,
                more={
                    "zombie": self.zombie, "roll": self.roll, "misplaced": self.misplaced, "clock": self.clock,
                    "bomb": self.bomb, "twin": self.twin, "lose": self.lose,
                },
            )  # fmt: skip
        finally:
            await self._hostile.stop()

    async def reference(self) -> Reference:
        """Return what must have come out, given under which policy each window was begun."""
        if self._reference is None:
            entries = [orjson.loads(record.value) for record in await records(self.broker.bootstrap, AUDIT)]
            begun = {(entry["site"], entry["window_end"]): entry["policy_version"] for entry in entries}
            self._reference = await asyncio.to_thread(reference, self.policies, self.key, self.movement.made, begun)
        return self._reference

    async def verify(self, report: Report) -> int:
        """Assert that Kafka holds exactly what one process made, and intact ledgers; return the records."""
        wanted = (await self.reference()).topics
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


async def _two_free(field: Field) -> list[int]:
    """Wait until nothing is being done to any worker: a zombie needs an heir."""
    while len(free := field.free()) < len(field.workers):
        await asyncio.sleep(0.2)
    return free


async def _stops(worker: Worker) -> bool:
    """Wait until a worker has stopped itself; False when it does not within half a minute."""
    for _ in range(150):
        if worker.poll() is None and is_stopped(worker):
            return True
        await asyncio.sleep(0.2)
    return False


def _of_window(record: Record) -> tuple[str, str]:
    body = orjson.loads(record.value)
    return body["site"], body["window_end"]


def by_account_window(record: Record) -> Hashable:
    """Identify a leakage record: one of each kind follows each window of a site."""
    body = orjson.loads(record.value)
    return body["site"], body["window_end"], body["kind"]


def _identity(topic: str) -> Callable[[Record], Hashable]:
    return {AUDIT: by_sequence, LEAKAGE: by_account_window}.get(topic, by_release_id)
