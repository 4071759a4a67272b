"""Who operates the cluster: reads what ``tacet recover`` names, and does it.

The findings are the product's own. What is done is what its verbs do, and plain copies of records.

| way out | the remedy that names it | what is done |
|---|---|---|
| ``mirror`` | records are put back from a mirror | the topics are made anew with every committed record |
| ``copy`` | the same | the partitions are put back as they were, offsets included |
| ``accept-loss`` | ``tacet worker --accept-loss``, which also rebuilds a state | workers start with it |
| ``retire`` | ``tacet key retire`` | the key is retired, and everything starts with another one |
| ``new-ledger`` | a new ledger | all topics and the key are made anew; windows begin after the last released one |
| ``copies`` | a grown topic is made anew with what it held | the same |
| ``unread`` | grown observations are made anew with what is unread | the same, then ``accept-loss`` |
| ``anew`` | grown observations are made anew empty | the same, then ``accept-loss`` |
| ``republish`` | ``tacet republish`` | the same |
| ``nothing`` | to go on without the records | nothing |
| ``right-key`` | another key or cluster was given | nothing: the operator has one of each |
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.keys import key_files
from connectors.operations.audit.kafka_bundle import cluster_bundle
from connectors.operations.recovery import cluster as product
from connectors.operations.recovery.obstacles import (
    CLUSTER_NEW_LEDGER,
    CLUSTER_RETIRE,
    CONTROL_COPY,
    REPUBLISH,
    Obstacle,
    Remedy,
    cluster_advice,
)
from connectors.operations.recovery.report import recovery_report
from connectors.storage.kafka.client import connect, producer_of
from connectors.storage.kafka.key_rotation import ClusterLedger
from connectors.storage.kafka.republication import ledger_of, observations, put_back
from connectors.storage.kafka.topic_readers import (
    last_snapshots,
)
from connectors.storage.kafka.topics import (
    create_topics,
)
from connectors.storage.retirement import retire
from stream.engine.republication import Republication
from stream.engine.snapshot import open_snapshot
from stream.errors import TacetError
from stream.pipeline import Options
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy
from stream.schemas import CONTROL, OBSERVATIONS, is_private, parse_time
from tests.simulation import occupancy
from tests.simulation.kafka_brokers import Cluster
from tests.simulation.kafka_logs import Partition, Record

log = logging.getLogger("connectors.cli")
"""Of a name that the time line shows."""
WAYS = ("mirror", "copy", "accept-loss", "retire", "new-ledger", "republish", "unread", "anew", "nothing")


def way_of(remedy: Remedy) -> str:
    """Return the way out that a remedy names, as in the table above; ValueError if it is not known."""
    ways = {
        "new-ledger": CLUSTER_NEW_LEDGER.do in remedy.do,
        "retire": CLUSTER_RETIRE.do in remedy.do,
        "mirror": remedy in (CONTROL_COPY, cluster_advice().copy),
        "unread": "copy what is unread" in remedy.do,
        "anew": remedy.do.startswith("the same without the copy"),
        "copies": remedy.do.startswith("stop the workers, copy partitions"),
        "accept-loss": "'tacet worker --accept-loss'" in remedy.do,
        "republish": remedy == REPUBLISH,
        "nothing": remedy.do == "continue without them",
        "right-key": remedy == cluster_advice().right_key,
    }
    found = next((way for way, named in ways.items() if named), None)
    if found is None:
        raise ValueError(f"no way out of the simulation's: {remedy.do}")
    return found


class Mirror:
    """A copy of every topic, which holds each committed record in order, whatever happens to the topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._records: dict[str, list[list[Record]]] = {}
        self._read: dict[str, list[int]] = {}
        self.lost: dict[str, list[Sequence[Record]]] = {}
        """By topic of which acknowledged records were destroyed, what its partitions held before."""
        self._copies: dict[str, list[Partition]] = {}
        """By topic, its partitions before the last such event, of which nothing new has come since."""
        self.behind: set[str] = set()
        """The topics that lack something that the mirror has."""

    def records(self, topic: str) -> list[list[Record]]:
        """Return the records of each partition, up to the present end."""
        there = self._cluster.topics.get(topic, [])
        known, read = self._records.setdefault(topic, []), self._read.setdefault(topic, [])
        known += ([] for _ in there[len(known) :])
        read += [0] * (len(there) - len(read))
        for partition in there:
            at = partition.number
            new = [each for each in partition.records() if each.committed and each.offset >= read[at]]
            known[at] += (each for each in new if each.offset < partition.last_stable)
            read[at] = partition.last_stable
            if new:
                self._copies.pop(topic, None)
        return known

    def before_loss(self, topic: str) -> None:
        """Remember what a topic holds of which something is about to be destroyed."""
        self.records(topic)
        there = self._cluster.topics.get(topic, [])
        self.lost.setdefault(topic, []).extend(each.history() for each in there)
        self._copies[topic] = [_copied(each) for each in there]
        self.behind.add(topic)

    def after_loss(self, topic: str) -> None:
        """Follow a topic that has lost records, or was made anew."""
        for partition in self._cluster.topics.get(topic, []):
            self._read[topic][partition.number] = min(self._read[topic][partition.number], partition.high_watermark)

    def forget(self, topics: Iterable[str]) -> None:
        """Begin with empty topics, which lack nothing."""
        for topic in topics:
            self._records.pop(topic, None)
            self._read.pop(topic, None)
            self._copies.pop(topic, None)
            self.behind.discard(topic)

    def whole(self, topic: str) -> None:
        """Take note that a topic holds again what it is to hold."""
        self.behind.discard(topic)
        self._read[topic] = [each.last_stable for each in self._cluster.topics[topic]]

    def restore(self, topic: str) -> bool:
        """Put a topic's partitions back as they were; return whether nothing has been written since."""
        self.records(topic)
        copies = self._copies.get(topic)
        if copies is None:
            return False
        for partition in self._cluster.topics[topic]:
            partition.notify()
        self._cluster.topics[topic] = copies
        self._cluster.elect()
        self.whole(topic)
        return True


def _copied(partition: Partition) -> Partition:
    waiting, partition.moved = partition.moved, []
    copied = deepcopy(partition)
    partition.moved = waiting
    copied.leader_epoch += 1
    return copied


@dataclass
class Operator:
    """Who does what ``tacet recover`` names; outlives the process that does it."""

    bootstrap: str
    mirror: Mirror
    folder: Path
    keys: list[Path]
    """The keys of the cluster; the last one is in use."""
    preferred: str = ""
    """The way out to take where ``tacet recover`` names it; otherwise the first one."""
    accept_loss: bool = False
    """Whether workers start with ``--accept-loss``."""
    first_window: Micros | None = None
    """Where the windows of a new ledger begin."""
    gaps: bool = False
    """Whether windows lack observations, so that nobody knows their bytes without the product."""
    followed: Counter[str] = field(default_factory=Counter)
    """How often each remedy was followed."""
    steps: list[str] = field(default_factory=list)
    """What is left to do."""
    idle: bool = False
    """Whether nothing was left to do when it last looked."""

    async def act(self, policy: Policy, key_file: Path) -> int:
        """Read the report and follow it, or go on with what is left; return the exit code."""
        try:
            if not self.steps:
                self.steps = self._plan(await findings(self.bootstrap, key_file, policy))
                self.idle = not self.steps
            while self.steps:
                await self._follow(self.steps[0], policy, key_file)
                del self.steps[0]
        except (TacetError, KafkaError, OSError) as error:
            log.error("operator stopped: %s: %s", type(error).__name__, error)
            return 1
        return 0

    def _plan(self, found: Sequence[Obstacle]) -> list[str]:
        steps: dict[str, None] = {}
        chosen: set[str] = set()
        for obstacle in found:
            remedy = min(obstacle.remedies, key=self._order)
            way = way_of(remedy)
            log.info("recover: %s", obstacle.what)
            if way not in ("nothing", "right-key"):
                log.info("follows: %s: %s", way, remedy.do)
                steps[way] = None
                chosen.add(remedy.do)
        self.followed.update(chosen)
        return ["new-ledger"] if "new-ledger" in steps else list(steps)

    def _order(self, remedy: Remedy) -> tuple[bool, int, bool]:
        """Return what comes first: what can help, then what was not tried, then what is preferred; then as named."""
        way = way_of(remedy)
        later = way == "right-key" or "if workers stop" in remedy.do
        return later, self.followed[remedy.do], way != ("mirror" if self.preferred == "copy" else self.preferred)

    async def _follow(self, way: str, policy: Policy, key_file: Path) -> None:
        match way:
            case "mirror":
                for topic in sorted(self.mirror.behind - {OBSERVATIONS}):
                    await self._restore(topic)
            case "copies":
                for topic in self._grown():
                    await self._make_anew(topic, self.mirror.records(topic)[: occupancy.PARTITIONS])
            case "unread" | "anew":
                unread = await self._unread() if way == "unread" else []
                await self._make_anew(OBSERVATIONS, unread)
                self.accept_loss = self.gaps = True
            case "accept-loss":
                self.accept_loss = True
                self.gaps = self.gaps or OBSERVATIONS in self.mirror.lost
            case "republish":
                await self._republish(policy, key_file)
            case "retire":
                new = self._new_key()
                await retire(ClusterLedger(self.bootstrap), new, self.keys[-1])
                self.keys.append(new)
                self.gaps = True
            case "new-ledger":
                await self._begin_anew()

    def _new_key(self) -> Path:
        new = self.folder / f"key-{len(self.keys)}-{sum(self.followed.values())}"
        if not new.exists():
            occupancy.create_key(new)
        return new

    # --- topics ---------------------------------------------------------------------------------------

    def _grown(self) -> list[str]:
        topics = self.mirror._cluster.topics
        return [name for name, each in topics.items() if name != CONTROL and len(each) > occupancy.PARTITIONS]

    async def _restore(self, topic: str) -> None:
        """Put a topic back from the mirror; of the control topic, the last record of every key."""
        if self.preferred == "copy" and self.mirror.restore(topic):
            log.info("puts %s back with its offsets", topic)
            return
        held = self.mirror.records(topic)
        if topic == CONTROL:
            newest = {record.key: record for record in held[0]}
            await _produce(self.bootstrap, topic, [list(newest.values())])
            self.mirror.whole(topic)
        else:
            await self._make_anew(topic, held)

    async def _make_anew(self, topic: str, held: Sequence[Sequence[Record]]) -> None:
        held = [list(each) for each in held]
        if topic in self.mirror._cluster.topics:
            self.mirror.before_loss(topic)
            await _delete(self.bootstrap, [topic])
        await create_topics(self.bootstrap, [topic], partitions=occupancy.PARTITIONS)
        log.info("puts %d records of %s back", sum(map(len, held)), topic)
        await _produce(self.bootstrap, topic, held)
        self.mirror.whole(topic)

    async def _unread(self) -> list[list[Record]]:
        """Return the observations that no state includes."""
        states = await last_snapshots(self.bootstrap)
        there = self.mirror._cluster.topics[OBSERVATIONS][: occupancy.PARTITIONS]
        begins = [0 if value is None else open_snapshot(value)[0].next_offset for _, value in sorted(states.items())]
        return [
            [record for record in partition.records() if record.committed and record.offset >= begin]
            for partition, begin in zip(there, begins, strict=False)
        ]

    async def _republish(self, policy: Policy, key_file: Path) -> None:
        state, entries, published = await ledger_of(self.bootstrap)
        made = Republication(
            policy, state.accepted(), key_files.FileKeys(key_file), Options(), entries, published,
            state.versions or (MECHANISM_VERSION,),
        )  # fmt: skip
        async for record in observations(self.bootstrap):
            made.take(record.key.decode(), record.value, record.timestamp_ms * 1000)
        made.finish()
        await put_back(self.bootstrap, made.lost)

    async def _begin_anew(self) -> None:
        """Begin a new ledger: new topics, a new key, windows after the last released one."""
        topics = self.mirror._cluster.topics
        private = [name for name in topics if is_private(name)]
        kept = [record for name in private for part in self.mirror.records(name) for record in part if record.value]
        released = [parse_time(orjson.loads(record.value or b"")["window_end"]) for record in kept]
        for name in topics:
            self.mirror.before_loss(name)
        await _delete(self.bootstrap, list(topics))
        self.mirror.forget(list(self.mirror.lost))
        await occupancy.create(self.bootstrap)
        self.keys[:] = [self._new_key()]
        self.first_window = max(released) + occupancy.TICK if released else None
        self.accept_loss = self.gaps = False


async def findings(bootstrap: str, key_file: Path, policy: PolicyDocument) -> list[Obstacle]:
    """Return what ``tacet recover`` finds."""
    storage = await product.read_cluster(bootstrap, key_file, policy)
    try:
        bundle = await cluster_bundle(bootstrap, records=True)
    except TacetError as error:
        _READ.append(error)
    else:
        _READ.append(bundle)
    try:
        return recovery_report(storage, key_file, policy)
    finally:
        _READ.clear()


_READ: list[Any] = []
"""The audit bundle that was just read, or why it could not be: the report asks for it outside of any event loop."""


def _bundle(servers: str, *, records: bool = False) -> Any:
    (read,) = _READ
    if isinstance(read, Exception):
        raise read
    return read


GLOBALS: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    **occupancy.GLOBALS, product.__name__: lambda: {"kafka_bundle": _bundle}
}  # fmt: skip
"""What the operator's process has for itself."""


async def _delete(bootstrap: str, names: Sequence[str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await connect(admin, bootstrap)
        await admin.delete_topics(list(names))
    finally:
        await admin.close()


async def _produce(bootstrap: str, topic: str, held: Sequence[Sequence[Record]]) -> None:
    """Write records to the partitions of a topic, each in order."""
    producer = producer_of(bootstrap)
    try:
        await connect(producer, bootstrap)
        for number, records in enumerate(held):
            for record in records:
                await producer.send_and_wait(
                    topic, record.value, key=record.key, partition=number, timestamp_ms=record.timestamp
                )
    finally:
        await producer.stop()
