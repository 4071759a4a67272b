"""The whole engine in the storm: simulated movement in ten buildings, and what one process makes of it alone.

The workers are ``tacet worker`` processes, the messages go through ``KafkaSink``; the reference is what the
embedded runner makes of the same messages, under the same policy at each window.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiokafka.errors import KafkaError

from connectors.keys.key_files import create
from connectors.storage.kafka import cluster
from connectors.storage.kafka.client import partition_of, producer_of
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.source_leases import SourceLeases
from connectors.storage.kafka.topic_tail import Record
from connectors.storage.kafka.topics import create_topics, topic_names
from stream.encoding import encode_message
from stream.errors import TacetError, UsageError
from stream.records import DAY, MINUTE, Heartbeat, ObservationBatch, Row
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, OBSERVATIONS, SNAPSHOT, private_topic, rfc3339
from tests.integration.chain_storm import PARTITIONS, ROOT
from tests.integration.kafka_brokers import Broker, JavaCluster
from tests.integration.kafka_topics import clear_topics
from tests.integration.one_process import (
    PRIVACY_DAYS,
    SITES,
    SOURCE,
    START,
    TICK,
    Movement,
    Reference,
    identity_in,
    policy_text,
    reference,
)
from tests.integration.storm import Faults, Field, Plan, Report, Worker, exactly_once, is_stopped, records, storm
from tests.integration.topic_storm import Operator, TopicFaults
from tests.support.hash_chain import verify_chain
from tests.support.patience import waiting_for

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
        self._admitted = asyncio.Event()
        self._admitted.set()
        self._ingesting = asyncio.Lock()
        self._topics = TopicFaults(
            Operator(self.broker.bootstrap, lambda: (self.files[self.version], self.key)),
            self.movement,
            silence=self._silence,
            start_worker=self.start_worker,
            send_unread=self._send_unread,
            outcomes=self.outcomes,
        )
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
        present = (await cluster.read(self.broker.bootstrap)).policies.get(before)
        consent = ["--accept-policy", *([] if present is None else ["--again", str(present.order)])]
        async with field.replaced(other, lambda number: self.start_worker(number, *consent)) as worker:
            async with waiting_for("the policy that was begun"):
                while (await cluster.read(self.broker.bootstrap)).current() != self.version:
                    if worker.poll() is not None:  # its broker was away for too long
                        self.version, _ = before, self.outcomes.update(["not rolled"])
                        return
                    await asyncio.sleep(0.5)
            self.outcomes["rolled"] += 1
        await self._begun_everywhere()

    async def _begun_everywhere(self) -> None:
        """Wait until every site has a window under the policy that has begun.

        Where none had before the next policy begins, groups would begin anew and no entry would say so; what is to come
        out is worked out from entries.
        """
        async with waiting_for("a window of every site under the policy that was begun"):
            while True:
                with suppress(ConnectionError):  # the storm takes the broker away too
                    entries = [orjson.loads(record.value) for record in await records(self.broker.bootstrap, AUDIT)]
                    latest = {entry["site"]: entry["policy_version"] for entry in entries}
                    if set(latest) == set(SITES) and set(latest.values()) == {self.version}:
                        return
                await asyncio.sleep(1.0)

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
            batch = ObservationBatch(site, SOURCE, ahead, 0, (row,), PRIVACY_DAYS.at(ahead))
            await self._send(site, encode_message(batch))

    async def bomb(self, field: Field) -> None:
        """What no connector sends: a large heap of nonsense, JSON that is none of ours, other keys, nothing."""
        deep = b"[" * 100_000
        for value in (field.random.randbytes(900_000), deep, b'{"v":1,"site":1e999}', b"null", b"", b"{" * 500_000):
            await self._send(field.random.choice(["", "nobody", *SITES]), value, field.random.randrange(PARTITIONS))

    async def twin(self, field: Field) -> None:
        """A second ingest for a source that has one."""
        second = SourceLeases(self.broker.bootstrap, [(field.random.choice(SITES), SOURCE)])
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
        await self._sender.send(OBSERVATIONS, value, key=site.encode(), partition=number)

    # --- the storm ------------------------------------------------------------------------------------

    async def feed(self, enough: asyncio.Event) -> None:
        """Send movement until told that it is enough; what was begun is sent to its end."""
        first = True
        while not enough.is_set():
            await self._admitted.wait()
            async with self._ingesting, self._ingest() as sink:
                for message in self.movement.made if first else ():
                    await sink.append(message)
                first = False
                while True:
                    await asyncio.gather(*map(sink.append, self.movement.next_tick()))
                    await asyncio.sleep(self.pace)
                    if enough.is_set() or not self._admitted.is_set():
                        break

    @asynccontextmanager
    async def _ingest(self) -> AsyncIterator[KafkaSink]:
        """Send for all sources, which are claimed meanwhile."""
        sink, claims = (
            KafkaSink(self.broker.bootstrap),
            SourceLeases(self.broker.bootstrap, [(site, SOURCE) for site in SITES]),
        )
        await sink.start()
        await claims.start(PARTITIONS, session=1)
        living = asyncio.create_task(claims.renew())
        yield sink
        living.cancel()
        await claims.stop()
        await sink.stop()

    @asynccontextmanager
    async def _silence(self) -> AsyncIterator[None]:
        """Stop the ingest, and let it begin again at the end."""
        self._admitted.clear()
        try:
            async with self._ingesting:
                yield
        finally:
            self._admitted.set()

    async def _send_unread(self) -> None:
        """Send one tick more, as an ingest does that began before a topic grew, in the moment before it is stopped."""
        for message in self.movement.next_tick():
            await self._send(message.site, encode_message(message))
        await self._sender.flush()

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
        await cluster.found_cluster(self.broker.bootstrap, PARTITIONS)
        self._sender = producer_of(self.broker.bootstrap)
        await self._sender.start()
        try:
            return await storm(
                self.broker,
                self.plan,
                start_worker=self.start_worker,
                feed=self.feed,
                complete=self.complete,
                settling=self.plan.faults,
                more=self.more(),
                alone={"grown": self._topics.grown, "recreated": self._topics.recreated},
            )
        finally:
            await self._sender.stop()

    def more(self) -> Faults:
        """Return the faults of this scenario, by their names in a plan."""
        return {
            "zombie": self.zombie, "roll": self.roll, "misplaced": self.misplaced, "clock": self.clock,
            "bomb": self.bomb, "twin": self.twin, "lose": self.lose,
        }  # fmt: skip

    async def reference(self) -> Reference:
        """Return what must have come out, given under which policy each window was begun."""
        if self._reference is None:
            entries = [orjson.loads(record.value) for record in await records(self.broker.bootstrap, AUDIT)]
            started = {(entry["site"], entry["window_end"]): entry["policy_version"] for entry in entries}
            self._reference = await asyncio.to_thread(reference, self.policies, self.key, self.movement, started)
        return self._reference

    async def verify(self, report: Report) -> int:
        """Assert that Kafka holds exactly what one process made, and intact ledgers; return the records."""
        wanted = (await self.reference()).topics
        for topic, expected in wanted.items():
            report.copies[topic] = await exactly_once(self.broker.bootstrap, topic, identity_in(topic), expected)
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
