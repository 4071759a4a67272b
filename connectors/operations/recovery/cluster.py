"""What the recovery report reads of a cluster, and its own obstacles.

Only a cluster has topics with settings and partitions, a control topic, an announced mechanism version, observations
that expire before they are read, and messages of later versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.operations.audit.kafka_bundle import kafka_bundle
from connectors.operations.audit.verification import AuditBundle
from connectors.operations.recovery.obstacles import (
    ACCEPT_LOSS,
    CLUSTER_RETIRE,
    CONTROL_COPY,
    NEW_KEY_AND_LEDGER,
    Advice,
    Obstacle,
    Remedy,
    cluster_advice,
)
from connectors.operations.recovery.report import StoredState, recovery_report
from connectors.storage.kafka.client import NotAllowedError
from connectors.storage.kafka.cluster import engine_counts, read
from connectors.storage.kafka.topic_readers import (
    begin_offsets,
    end_offsets,
    first_used,
    last_snapshot,
    read_first,
    read_one,
    read_range,
)
from connectors.storage.kafka.topics import dangerous_settings, result_topics
from stream.encoding import heartbeat_of, later_sender_of
from stream.engine.cluster_state import ClusterState
from stream.engine.outputs import ReplayVerifier, entries_beyond
from stream.engine.ports import LossError
from stream.engine.snapshot import chains, open_snapshot, sensing_status
from stream.errors import AuditError, KeyFileError, UsageError
from stream.keys import fingerprint
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS, SNAPSHOT, rfc3339
from stream.sensing.state import SensingStatus

SEARCHED = 1000
"""The number of messages that are searched for the first remaining heartbeat."""
SETTING_PRICE = "none, while neither workers nor ingests run; what is already deleted stays deleted"


def cluster_obstacles(servers: str, key_file: Path | None, policy: PolicyDocument | None) -> list[Obstacle]:
    """Return what prevents workers from continuing, as far as topics, key and policy show."""
    return recovery_report(asyncio.run(read_cluster(servers, key_file, policy)), key_file, policy)


@dataclass(slots=True)
class ClusterStorage:
    """What a cluster's topics contained when they were read."""

    servers: str
    advice: Advice
    control: ClusterState = field(default_factory=ClusterState)
    absent: Sequence[Obstacle] = ()
    """Topics without which nothing else can be read."""
    topics: Sequence[Obstacle] = ()
    """Obstacles of topics and their settings."""
    partitions: Sequence[StoredState] = ()
    pending: Sequence[Obstacle] = ()
    """Obstacles of the next messages, and of ledgers that have not been taken over."""

    @property
    def name(self) -> str:
        """The cluster, as messages name it."""
        return "the cluster"

    def missing(self) -> Sequence[Obstacle]:
        """Return the topics that do not exist."""
        return self.absent

    def key_in_use(self) -> str | None:
        """Return the fingerprint in the control topic."""
        return self.control.key

    def retired_ledgers(self) -> Collection[str]:
        """Return the ledgers whose keys were retired, from the control topic."""
        return self.control.retired

    def bound_elsewhere(self, key_file: Path) -> Obstacle | None:
        """Return the obstacle for a key whose cluster is not the one in the control topic."""
        bound = key_files.store_of(key_file)
        if bound is None or bound == f"cluster {self.control.id}":
            return None
        if not bound.startswith("cluster "):
            what = f"{key_file}: belongs to store {bound}, not to a cluster"
            return Obstacle(what, (self.advice.right_key, self.advice.retire))
        here = "holds no cluster's record" if self.control.id is None else f"holds those of cluster {self.control.id}"
        return Obstacle(
            f"the key belongs to {bound}, but topic {CONTROL} {here}: the topic was deleted and created again, or is "
            "that of another cluster",
            (self.advice.right_key, CONTROL_COPY, NEW_KEY_AND_LEDGER),
        )

    def conditions(self) -> Iterable[Obstacle]:
        """Yield the obstacles of topics, of an announced mechanism version, and of the next messages."""
        yield from self.topics
        if self.control.announced is not None:
            yield Obstacle(
                f"mechanism version {self.control.announced} was announced and has not begun; no partition is opened "
                "until then",
                (
                    Remedy(f"'tacet worker --accept-policy' of version {self.control.announced}", "none"),
                    Remedy(
                        f"'tacet worker' of version {self.control.mechanisms}, which withdraws the announcement", "none"
                    ),
                ),
            )
        yield from self.pending

    def states(self) -> Sequence[StoredState]:
        """Return the state of each partition."""
        return self.partitions

    def current_policy(self) -> str | None:
        """Return the policy that was accepted last."""
        return self.control.current()

    def stored_policies(self) -> Collection[str]:
        """Return the accepted policies, which the control topic keeps."""
        return self.control.policies

    def unreadable_records(self) -> Sequence[Obstacle]:
        """Return nothing: what a topic lacks is missing in the audit."""
        return ()

    def audit(self, *, records: bool) -> AuditBundle:
        """Return the cluster's audit bundle; AuditError if it cannot be read.

        Subscribers refuse a topic that has grown, so with such an obstacle the bundle is empty.
        """
        if self.topics:
            return AuditBundle([], [])
        try:
            return kafka_bundle(self.servers, records=records)
        except NotAllowedError:
            raise
        except UsageError as problem:
            raise AuditError(str(problem)) from None


class _Given(NamedTuple):
    """What a report was asked about, and the control topic."""

    keys: FileKeys | None
    policies: list[PolicyDocument]
    """The accepted policies."""
    control: ClusterState


async def read_cluster(servers: str, key_file: Path | None, policy: PolicyDocument | None) -> ClusterStorage:
    """Read everything from a cluster that the recovery report needs, except the audit."""
    advice, counts = cluster_advice(key_file=key_file), dict(await engine_counts(servers))
    if absent := _absent_topics(counts, key_file, advice):
        return ClusterStorage(servers, advice, absent=absent)
    control = await read(servers)
    accepted = control.accepted()
    current = control.current()
    if policy is not None and current is not None and policy.version in control.policies:
        advice = cluster_advice(control.policies[current].order, key_file)
    storage = ClusterStorage(servers, advice, control)
    grown = [
        _grown(name, count, control.partitions)
        for name, count in sorted(counts.items())
        if name != CONTROL and control.partitions not in (None, count)
    ]
    storage.topics = [*grown, *await _settings(servers, [policy] if policy else accepted)]
    results, given = result_topics(counts, accepted), _Given(_keys(key_file), accepted, control)
    partitions, pending = list[StoredState](), list[Obstacle]()
    for partition in range(min(counts[OBSERVATIONS], counts[SNAPSHOT], counts[AUDIT])):
        state, more = await _read_partition(servers, partition, results, given)
        partitions.append(state)
        pending += more
    storage.partitions, storage.pending = partitions, pending
    return storage


def _keys(key_file: Path | None) -> FileKeys | None:
    try:
        return None if key_file is None else FileKeys(key_file)
    except KeyFileError:
        return None


# --- topics -----------------------------------------------------------------------------------------------


def _absent_topics(counts: Collection[str], key_file: Path | None, advice: Advice) -> list[Obstacle]:
    bound = _cluster_of(key_file)
    if CONTROL not in counts and bound is not None:
        what = f"topic {CONTROL}: is not there, and the key belongs to {bound}"
        return [Obstacle(what, (CONTROL_COPY, NEW_KEY_AND_LEDGER))]
    create = Remedy(
        "'tacet topics create'", "none, if the cluster is new; if the topic was deleted, its content is lost"
    )
    return [
        Obstacle(f"topic {name}: is not there", (create, advice.copy))
        for name in (CONTROL, OBSERVATIONS, SNAPSHOT, AUDIT)
        if name not in counts
    ]


def _cluster_of(key_file: Path | None) -> str | None:
    """Return the cluster to which a production key is bound (``cluster ID``); None if it is not bound to one."""
    if _keys(key_file) is None or key_file is None or key_files.is_laboratory(key_file):
        return None
    bound = key_files.store_of(key_file)
    return bound if bound is not None and bound.startswith("cluster ") else None


def _grown(topic: str, count: int, wanted: int | None) -> Obstacle:
    what = f"topic {topic}: has {count} partitions, the cluster {wanted}; Kafka cannot remove any"
    last = (wanted or 1) - 1
    if topic == OBSERVATIONS:
        unread = Remedy(
            f"stop ingests and workers, copy what is unread of partitions 0 to {last} elsewhere ('tacet status' shows "
            "the next message), delete the topic, 'tacet topics create', copy it back in order, then "
            f"{ACCEPT_LOSS.do}",
            "no message is lost; the windows up to the next heartbeat have coverage 0",
        )
        lossy = Remedy(f"the same without the copy: {ACCEPT_LOSS.do}", ACCEPT_LOSS.price)
        ending = Remedy(f"if workers stop because an entry would differ: {CLUSTER_RETIRE.do}", CLUSTER_RETIRE.price)
        return Obstacle(what, (unread, lossy, ending))
    copied = Remedy(
        f"stop the workers, copy partitions 0 to {last} elsewhere, delete the topic, 'tacet topics create', and copy "
        "them back in order",
        "none: the other partitions hold nothing of this cluster",
    )
    return Obstacle(what, (copied,))


async def _settings(servers: str, policies: Iterable[PolicyDocument]) -> list[Obstacle]:
    """Return the settings of topics that workers refuse, because records would be lost or chains forked."""
    faults = {fault: None for policy in policies for fault in await dangerous_settings(servers, policy)}
    return [Obstacle(str(fault), (Remedy(fault.remedy(), SETTING_PRICE),)) for fault in faults]


# --- one partition ----------------------------------------------------------------------------------------


async def _read_partition(
    servers: str, partition: int, results: tuple[str, ...], given: _Given
) -> tuple[StoredState, list[Obstacle]]:
    """Return the state of a partition, and the obstacles of its next message and of an ended ledger."""
    name = f"partition {partition}"
    shortened = (await begin_offsets(servers, AUDIT))[partition] > 0
    committed = await _entries(servers, partition)  # before the state: both are one transaction
    try:
        snapshot = await last_snapshot(servers, partition)
    except LossError as loss:
        return StoredState(name, None, deleted=str(loss), lost_entries=shortened), []
    entries = await _entries(servers, partition, committed=False)
    if snapshot is None:
        used = await first_used(servers, results, partition)
        versions = tuple(given.control.versions)
        return StoredState(name, None, len(entries), bool(committed), versions, used, lost_entries=shortened), []
    head, sites = open_snapshot(snapshot)
    known = {site for policy in given.policies for site in policy.site}
    beyond = entries_beyond(entries, chains(snapshot), known)
    end = (await end_offsets(servers, OBSERVATIONS))[partition]  # read after the state, because workers may be running
    missing = await _loss(servers, partition, snapshot, end, given)
    lost: Obstacle | None = None
    if missing is not None:
        ticks = {name: site.tick for policy in given.policies for name, site in policy.site.items()}
        status = {site: sensing_status(stages) for site, stages in sites.items()}
        price = await price_of_loss(servers, partition, status, ticks)
        lost = Obstacle(missing, remedies_after_loss(beyond, price))
    state = StoredState(
        name,
        snapshot,
        beyond,
        versions=(head.mechanisms,),
        lost_entries=shortened or (head.audit_offset > 0 and not entries),
        lost_observations=lost,
    )
    pending = [
        *of_ended(name, head.key, given.control),
        *await of_next(servers, partition, head.next_offset, end, given.policies),
    ]
    return state, pending


async def _entries(servers: str, partition: int, *, committed: bool = True) -> list[bytes]:
    """Return the audit records of a partition; none if the topic has lost its first ones."""
    try:
        return (await read_range(servers, AUDIT, partition, 0, committed=committed))[0]
    except LossError:
        return []


def of_ended(partition: str, key: str, control: ClusterState) -> Iterator[Obstacle]:
    """Yield an obstacle for a partition whose ledger has ended, if the following ledger has not begun.

    ``key`` is the fingerprint in the partition's state.
    """
    if control.key not in (None, key):
        again = Remedy("'tacet key retire' once more, with the same keys", "none: finished steps are skipped")
        yield Obstacle(f"{partition}: its ledger has ended, and the partition has not been taken over", (again,))


# --- observations -----------------------------------------------------------------------------------------


async def _loss(servers: str, partition: int, snapshot: bytes, end: int, given: _Given) -> str | None:
    """Return which observations are missing between a partition's state and the log; None if none are."""
    name, position = f"partition {partition}", open_snapshot(snapshot)[0].next_offset
    begin = (await begin_offsets(servers, OBSERVATIONS))[partition]
    if position < begin:
        return (
            f"{name}: offset {position} of the observations is next, but they begin at {begin}: {begin - position} "
            "messages expired or were deleted before they were read"
        )
    if position > end:
        return (
            f"{name}: offset {position} of the observations is next, but they end at {end}: the topic was deleted and "
            "created again"
        )
    if not await _same_log(servers, partition, snapshot, given.keys):
        return (
            f"{name}: the observations hold another message than the one that was read last: the topic was deleted and "
            "created again"
        )
    return None


async def _same_log(servers: str, partition: int, snapshot: bytes, keys: FileKeys | None) -> bool:
    """Return whether the log contains the message that the state read last; True if that is unknown."""
    head, _ = open_snapshot(snapshot)
    last = head.last
    if keys is None or last is None or head.key != fingerprint(keys):
        return True
    if last[0] < (await begin_offsets(servers, OBSERVATIONS))[partition]:
        return True
    message = await read_one(servers, OBSERVATIONS, partition, last[0])
    return message is not None and ReplayVerifier(keys.audit, last).recognises(*message)


async def price_of_loss(
    servers: str, partition: int, sites: Mapping[str, SensingStatus], ticks: Mapping[str, Micros]
) -> str:
    """Return which windows lose their coverage if the worker continues from the first existing message.

    ``sites`` are those of the partition's state, ``ticks`` the lengths of their windows.
    """
    beats: dict[str, Micros] = {}
    for value in await read_first(servers, OBSERVATIONS, partition, SEARCHED):
        if (beat := heartbeat_of(value)) is not None:
            beats.setdefault(beat.site, beat.watermark)
    windows = [
        _windows(site, status.last_window + ticks[site], beats.get(site), ticks[site])
        for site, status in sorted(sites.items())
        if status.last_window is not None and site in ticks
    ]
    return f"unread messages are lost for good; {'; '.join(windows) or 'no window has been begun'}"


def _windows(site: str, first: Micros, beat: Micros | None, tick: Micros) -> str:
    if beat is None:
        return (
            f"of site {site} the windows from the one that ends at {rfc3339(first)} up to the next heartbeat have "
            "coverage 0, and are charged"
        )
    last = -(-beat // tick) * tick
    if last < first:
        return f"of site {site} no whole window"
    return (
        f"of site {site} the {(last - first) // tick + 1:,} windows that end from {rfc3339(first)} to {rfc3339(last)} "
        "have coverage 0, and are charged"
    )


def remedies_after_loss(beyond: int, price: str) -> tuple[Remedy, ...]:
    """Return the remedies for lost observations; ``beyond`` entries were made from them, and cannot be made again."""
    if not beyond:
        return (Remedy(ACCEPT_LOSS.do, price),)
    entries = f"{beyond} ledger entries beyond the state cannot be made again without these messages"
    return (Remedy(f"{entries}: {CLUSTER_RETIRE.do}", CLUSTER_RETIRE.price),)


async def of_next(
    servers: str, partition: int, position: int, end: int, policies: Iterable[PolicyDocument]
) -> list[Obstacle]:
    """Return an obstacle if only a later version can read the next message."""
    message = await read_one(servers, OBSERVATIONS, partition, position) if position < end else None
    sender = None if message is None else later_sender_of(message[1])
    if sender is None or not any(
        sender.site in policy.site and sender.source in policy.site[sender.site].sources for policy in policies
    ):
        return []
    what = (
        f"partition {partition}: the message at offset {position} is of a later version, whose ingest wrote it for "
        f"source {sender.source} of site {sender.site}"
    )
    upgrade = Remedy("upgrade the workers to the version of the ingests", "none: no message is skipped")
    delete = Remedy(
        "if no ingest of yours wrote it: find out who may write observations ('tacet topics acls'), stop the workers, "
        f"run 'kafka-delete-records.sh' with offset {position + 1} of partition {partition} of {OBSERVATIONS}, then "
        "'tacet worker --accept-loss'",
        "that message is lost; the windows up to the next heartbeat have coverage 0 and are charged",
    )
    return [Obstacle(what, (upgrade, delete))]
