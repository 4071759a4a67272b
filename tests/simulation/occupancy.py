"""What the simulated cluster works on: a policy, people who move, and the product's programs as processes.

``ingest`` and ``worker`` run the product's code below the command line: the same calls in the same order as
``connectors/cli/ingest.py`` and ``connectors/cli/worker.py``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import orjson
from aiokafka.errors import KafkaError

from connectors.keys import key_files
from connectors.storage.kafka import aiokafka_client, metadata
from connectors.storage.kafka.broker_health import BrokerHealth
from connectors.storage.kafka.client import partition_of
from connectors.storage.kafka.cluster import ENGINE_FENCE, checked, join, read, refuse_ended
from connectors.storage.kafka.key_rotation import ClusterLedger, forget_past_key_days
from connectors.storage.kafka.message_sink import KafkaSink
from connectors.storage.kafka.source_leases import SourceLeases
from connectors.storage.kafka.topics import (
    BESIDES,
    create_topics,
    result_topics,
    topic_names,
)
from connectors.storage.kafka.worker import PeriodicTask, WorkerConfig, run_until_stopped
from connectors.storage.kafka.writers import EngineTopics
from connectors.storage.retirement import retire
from connectors.storage.site_metadata import site_metadata
from stream.encoding import decode_message, encode_message
from stream.engine.cluster_state import refuse_other_counts, refuse_superseded
from stream.engine.key_rotation import EndedLedger, refuse_other_key, refuse_retired, take_over
from stream.engine.partition import PartitionEngine
from stream.engine.ports import Output
from stream.errors import TacetError, UsageError
from stream.keys import fingerprint
from stream.pipeline import DEFAULTS, Options
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, Row
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, LEAKAGE, OBSERVATIONS, private_topic, rfc3339
from tests.simulation import processes
from tests.support.later_mechanism_version import changes, later

PARTITIONS = 2
SITES = ("east", "north", "west")
SOURCE = "10.0.0.1"
TICK = 1 * MINUTE
BEGIN: Micros = processes.START * SECOND - 60 * MINUTE
"""The first window begins an hour before the world does: the brokers' time bounds what may be claimed. The day ends,
and its key with it, after five windows.
"""
PRIVATE = (private_topic("public", "occupancy"),)
"""One audience: most of a schedule's time is the account, which has an entry for each audience and one for all."""
SESSION_TIMEOUT = 6.0
OPEN_TIMEOUT = 60.0
FORGET_EVERY = 5.0
"""Seconds between two attempts to destroy the keys of past days."""

_SITE = """
[site.{site}]
tick = "1min"
sources = ["10.0.0.1"]
zones = [
    {{ id = "101", floor = "1", kind = "classroom", capacity = 60, access_points = ["02:00:00:00:{n:02x}:01"] }},
    {{ id = "102", floor = "1", kind = "classroom", capacity = 60, access_points = ["02:00:00:00:{n:02x}:02"] }},
]
"""
_RELEASES = """
[[audience]]
name = "public"

[[release]]
name = "occupancy"
query = "count"
mechanism = "plain"
levels = ["zone"]
epsilon = { public = "0.1" }
daily_budget = { public = "10" }
"""

GLOBALS: Mapping[str, processes.Own] = {
    aiokafka_client.__name__: lambda: {"BROKER_HEALTH": BrokerHealth(SESSION_TIMEOUT), "_probes": {}}
}
"""What each process has for itself."""


def globals_of_a_later_version() -> Mapping[str, processes.Own]:
    """Return what a process has for itself that runs the mechanism version to come."""
    values: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for module, name, value in changes():
        values[module.__name__][name] = value
    return {**GLOBALS, **{module: partial(dict, each) for module, each in values.items()}}


def policy_text(capacity: int = 60) -> str:
    """Return a policy of three buildings with windows of a minute."""
    sites = "".join(_SITE.format(site=site, n=number) for number, site in enumerate(SITES))
    return sites.replace("capacity = 60", f"capacity = {capacity}") + _RELEASES


POLICY = load_policy(policy_text())
CHANGED = load_policy(policy_text(61))
"""The policy to which a cluster may change."""


@dataclass
class Movement:
    """Seeded people in three buildings, window by window."""

    seed: int
    windows: int
    _sequence: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def messages(self) -> list[list[ObservationBatch | Heartbeat]]:
        """Return the messages of each window in order; the first are heartbeats with which the sites begin."""
        draw = random.Random(self.seed)
        made: list[list[ObservationBatch | Heartbeat]] = [[Heartbeat(site, SOURCE, 1, BEGIN, 0) for site in SITES]]
        begins = [BEGIN + window * TICK for window in range(self.windows)]
        return made + [[message for site in SITES for message in self._window(draw, site, begin)] for begin in begins]

    def _window(self, draw: random.Random, site: str, begin: Micros) -> Iterator[ObservationBatch | Heartbeat]:
        points = [zone.access_points[0] for zone in POLICY.site[site].zones]
        for _ in range(draw.randint(1, 4)):
            times = sorted(begin + 1 + draw.randrange(TICK - 1) for _ in range(4))
            rows = tuple(Row(f"{draw.randrange(30):016x}", draw.choice(points), time) for time in times)
            yield ObservationBatch(site, SOURCE, 1, self._sequence[site], rows)
            self._sequence[site] += 1
        yield Heartbeat(site, SOURCE, 1, begin + TICK + 31 * SECOND, 0)


# --- programs -----------------------------------------------------------------------------------------


def create_key(path: Path) -> None:
    """Create a production key that begins with the day of the first window, and a copy that forgets nothing."""
    key_files.create(path, laboratory=False, first_day=BEGIN // DAY)
    shutil.copy2(path, copy_of(path))


def copy_of(key: Path) -> Path:
    """Return the copy of a key file that was made with it."""
    return key.with_suffix(".copy")


async def create(bootstrap: str) -> int:
    """Create the topics, as ``tacet topics create`` does."""
    await create_topics(bootstrap, [*topic_names(POLICY), *BESIDES], partitions=PARTITIONS)
    await checked(bootstrap)
    return 0


class Feed:
    """What is to be sent, and how much of it is acknowledged; outlives the ingest."""

    def __init__(self, seed: int, windows: int, pace: float) -> None:
        """Spread the messages evenly: ``pace`` is the time in seconds between two windows."""
        self.waiting = [message for window in Movement(seed, windows).messages() for message in window]
        self.pace = pace * windows / len(self.waiting)
        """Seconds between two messages."""

    @property
    def done(self) -> bool:
        """Whether everything is acknowledged."""
        return not self.waiting


NOTHING = Feed(0, 0, 0.0)
"""A feed without messages: whoever sends it only claims the sources, and gives them back."""
NOTHING.waiting.clear()


def _stopped(program: str, failure: Exception, code: int) -> int:
    """Say why a program ends, as the command line does."""
    logging.getLogger("connectors.cli").error("%s stopped: %s: %s", program, type(failure).__name__, failure)
    return code


async def ingest(bootstrap: str, feed: Feed, key_file: Path) -> int:
    """Send a feed from where the ingest before this one stopped, as ``tacet ingest`` does."""
    keys = key_files.IngestKeys(key_file)
    sink = KafkaSink(bootstrap, encode=partial(encode_message, vault=keys.vault))
    leases = SourceLeases(bootstrap, [(site, SOURCE) for site in SITES])
    renewing: asyncio.Task[None] | None = None
    try:
        control = await checked(bootstrap)
        await sink.start()
        await leases.start(control.partitions or 0, session=1)
        renewing = asyncio.create_task(leases.renew())
        while feed.waiting:
            if renewing.done():
                renewing.result()
            await sink.append(feed.waiting[0])
            del feed.waiting[0]
            await asyncio.sleep(feed.pace)
    except UsageError as error:
        return _stopped("ingest", error, 2)
    except (TacetError, KafkaError, OSError) as error:
        return _stopped("ingest", error, 1)
    finally:
        if renewing is not None:
            renewing.cancel()
        await leases.stop()
        await sink.stop()
    return 0


async def _at_once(partition: int) -> None:
    """Hold nothing up."""


async def worker(
    bootstrap: str, key_file: Path, policy: Policy = POLICY, *, accept_policy: bool = False, again: int | None = None,
    accept_loss: bool = False, options: Options = DEFAULTS, open_timeout: float = OPEN_TIMEOUT,
    hold: Callable[[int], Awaitable[None]] = _at_once,
) -> int:  # fmt: skip
    """Run a worker, as ``tacet worker`` does; ``hold`` is awaited in each partition's opening."""
    try:
        keys = key_files.FileKeys(key_file)
        cluster = await checked(bootstrap)
        refuse_retired(cluster, keys.ledger)
        key_files.serve(key_file, str(cluster.id))
        key = fingerprint(keys)
        control = await join(bootstrap, policy, key, MECHANISM_VERSION, accept_policy=accept_policy, again=again)
        await metadata.publish(bootstrap, site_metadata(policy))
    except UsageError as error:
        return _stopped("worker", error, 2)
    except (TacetError, KafkaError, OSError) as error:
        return _stopped("worker", error, 1)
    partitions = control.partitions or 0
    results = result_topics(topic_names(policy), (policy, *control.accepted()))

    async def engine(partition: int) -> PartitionEngine:
        await hold(partition)
        if partition >= partitions:
            refuse_other_counts(control, {OBSERVATIONS: partition + 1})
        state = await read(bootstrap)
        refuse_other_key(state, fingerprint(keys), keys.ledger)
        refuse_superseded(state, policy, MECHANISM_VERSION)
        return PartitionEngine(
            policy, keys, options, accept_policy=accept_policy, accepted=state.accepted(), versions=state.versions,
            owns=lambda site: partition_of(site, partitions) == partition,
        )  # fmt: skip

    config = WorkerConfig(
        bootstrap,
        fence=ENGINE_FENCE,
        topics=EngineTopics(results=results),
        session_timeout=SESSION_TIMEOUT,
        open_timeout=open_timeout,
        accept_loss=accept_loss,
        chores=[
            PeriodicTask(lambda: refuse_ended(bootstrap, fingerprint(keys), keys.ledger), 10.0),
            PeriodicTask(lambda: forget_past_key_days(bootstrap, policy, keys), FORGET_EVERY),
        ],
    )
    return await run_until_stopped(config, engine)


async def retire_key(bootstrap: str, old: Path, new: Path) -> int:
    """End the ledger of a key, as ``tacet key create`` and ``tacet key retire`` do; return the exit code."""
    try:
        if not new.exists():
            create_key(new)
        await retire(ClusterLedger(bootstrap), new, old)
    except UsageError as error:
        return _stopped("key retire", error, 2)
    except (TacetError, KafkaError, OSError) as error:
        return _stopped("key retire", error, 1)
    return 0


# --- reference ----------------------------------------------------------------------------------------

Log = list[tuple[int, bytes | None, bytes, Micros]]
"""Offset, key, value and append time of the records of a partition, in order."""


Begun = Mapping[tuple[str, str], str]
"""The version of the policy under which a window (site, end) was released."""


@dataclass(frozen=True)
class Succession:
    """Where the ledger of one key ends and that of another begins on a partition."""

    key: Path
    """The later key."""
    read: int
    """The first message that the last state of the former key does not include whole."""
    known: Mapping[str, int]
    """How many entries of each site that state includes."""
    entries: Mapping[str, int]
    """How many entries of each site the former ledger has."""
    next: int
    """The first message of the later key; those that the former one had not read are lost."""


def expected(
    logs: Mapping[int, Log], key_file: Path, begun: Begun, successions: Mapping[int, Succession] | None = None,
    options: Options = DEFAULTS, versions: Mapping[str, int] | None = None,
) -> dict[str, list[bytes]]:  # fmt: skip
    """Return what one process makes of the final log, by topic: the values of what must be visible.

    Each window is released under the policy under which the cluster began it. ``versions`` says how many entries of a
    site the present mechanism version has made, if the one to come has made the others.
    """
    values: dict[str, list[bytes]] = {topic: [] for topic in (*PRIVATE, AUDIT, LEAKAGE)}
    for site in SITES:
        partition = partition_of(site, PARTITIONS)
        log = [each for each in logs.get(partition, []) if each[1] == site.encode()]
        reference = _Reference(site, begun, options, (versions or {}).get(site))
        for topic, value in reference.released(log, key_file, (successions or {}).get(partition)):
            values.setdefault(topic, []).append(value)
    return values


class _Reference:
    """One process that makes the releases of one site."""

    def __init__(self, site: str, begun: Begun, options: Options, entries: int | None) -> None:
        self._site, self._begun, self._options = site, begun, options
        self._entries = entries
        """How many entries are left for the present mechanism version; None if all are."""
        self._policies = {policy.version: policy for policy in (POLICY, CHANGED)}
        first = min((end for name, end in begun if name == site), default="")
        self._version = begun.get((site, first), POLICY.version)

    def released(self, log: Log, key: Path, succession: Succession | None) -> Iterator[tuple[str, bytes]]:
        """Yield topic and value of everything that is released."""
        keys = key_files.FileKeys(copy_of(key))
        if succession is None:
            for _, outputs, _ in self._steps(log, keys, None):
                yield from ((output.topic, output.value) for output in outputs)
            return
        entries: list[bytes] = []
        known, due = succession.known.get(self._site, 0), succession.entries.get(self._site, 0)
        state = self._engine(keys, None).snapshot(0, 0)
        former = [each for each in log if each[0] < succession.next]
        for offset, outputs, engine in self._steps(former, keys, None):
            made = [output.value for output in outputs if output.topic == AUDIT]
            if len(entries) < known:
                yield from ((output.topic, output.value) for output in outputs)
            elif len(entries) < due:  # charged, and never released
                yield from ((AUDIT, value) for value in made)
            elif offset >= succession.read:
                break
            entries += made
            if len(entries) <= known and (made or offset < succession.read):
                state = engine.snapshot(0, 0)
        later = key_files.FileKeys(copy_of(succession.key))
        ended = EndedLedger(state, [orjson.loads(entry) for entry in entries], [POLICY, CHANGED])
        begun = take_over(ended, later, partition_of(self._site, PARTITIONS), next_offset=0, audit_offset=0)
        yield from ((output.topic, output.value) for output in begun.accounts)
        rest = [each for each in log if each[0] >= succession.next]
        for _, outputs, _ in self._steps(rest, later, begun.snapshot):
            yield from ((output.topic, output.value) for output in outputs)

    def _steps(
        self, log: Log, keys: key_files.FileKeys, state: bytes | None
    ) -> Iterator[tuple[int, Sequence[Output], PartitionEngine]]:
        """Yield the offset of each step, what it releases, and the engine after it."""
        engine = self._engine(keys, state)
        for offset, key, value, stamp in log:
            if self._entries is not None and self._entries <= 0:
                yield from self._later_steps(log, keys, engine.snapshot(offset, 0), offset)
                return
            message, _ = decode_message(value, keys.vault)
            if isinstance(message, Heartbeat):
                due = self._begun.get((self._site, rfc3339(message.watermark // TICK * TICK)), self._version)
                if due != self._version:
                    self._version = due
                    engine = self._engine(keys, engine.snapshot(offset, 0))
            for outputs, _ in engine.process_in_steps(offset, key, value, stamp):
                if self._entries is not None:
                    self._entries -= sum(output.topic == AUDIT for output in outputs)
                yield offset, outputs, engine

    def _later_steps(
        self, log: Log, keys: key_files.FileKeys, state: bytes, begin: int
    ) -> Iterator[tuple[int, Sequence[Output], PartitionEngine]]:
        """Yield the steps from an offset on under the mechanism version to come."""
        self._entries = None
        with later():
            yield from list(self._steps([each for each in log if each[0] >= begin], keys, state))

    def _engine(self, keys: key_files.FileKeys, state: bytes | None) -> PartitionEngine:
        policy, site = self._policies[self._version], self._site
        engine = PartitionEngine(policy, keys, self._options, accept_policy=True, owns=lambda each: each == site)
        engine.restore(state)
        return engine
