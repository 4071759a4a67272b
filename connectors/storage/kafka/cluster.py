"""The cluster's state in the control topic, and how a worker joins the cluster.

The control topic is read whole. A process changes it only in a transaction that fences every other writer meanwhile.

A worker joins only if its key, policy and mechanism version are the cluster's, or if it may change them. A mechanism
version ends only if no window is unfinished under it, since it alone can finish a window of which it has published
something. A change therefore has these steps:

1. The next version is announced in the control topic.
2. Every partition is fenced, so that earlier owners can write no more and find the announcement when they return.
3. The new version begins, but only if nothing is left unfinished.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import stamina
from aiokafka.errors import KafkaError

from connectors.storage.kafka.client import MAX_RECORD, close
from connectors.storage.kafka.timeouts import BROKER_PATIENCE
from connectors.storage.kafka.topic_readers import last_snapshot, partition_counts, read_keyed, read_range
from connectors.storage.kafka.transactions import transaction, transactional
from connectors.storage.kafka.writers import KafkaWriterFactory
from stream.engine.cluster_state import (
    ClusterState,
    Records,
    admit,
    announce,
    identity_records,
    refuse_other_counts,
    withdraw,
)
from stream.engine.continuation import check_mechanism_version, entries_of_other_version, entries_without_state
from stream.engine.key_rotation import refuse_other_key
from stream.engine.outputs import entries_beyond
from stream.engine.partition import PartitionEngine
from stream.engine.ports import FencedError, InterruptedWriteError, LossError
from stream.engine.snapshot import chains, open_snapshot
from stream.errors import DataError, TacetError, UsageError
from stream.keys import Keys
from stream.pipeline import Options
from stream.release.validation import Policy
from stream.schemas import AUDIT, CONTROL, OBSERVATIONS

log = logging.getLogger(__name__)

FENCE = "tacet-control"
TRIES = 20
FIRST_WAIT, LONGEST_WAIT = 0.1, 0.5
"""Seconds between two attempts.

A random part is added to the first, so that two processes that collided do not collide again.
"""


async def read(bootstrap: str) -> ClusterState:
    """Return the content of the control topic.

    Of each key only the newest record counts, whether or not the broker has compacted the topic. So a damaged record is
    repaired by another one of its key.

    Raises:
        UsageError: there is no such topic.
        DataError: the newest record of a key lacks a field of its kind.
    """
    control = ClusterState()
    newest = {key: (value, stamp_ms) for key, value, stamp_ms in await read_keyed(bootstrap, CONTROL, 0)}
    for key, (value, stamp_ms) in newest.items():
        name = key.decode(errors="replace")
        try:
            control.apply(name, value, stamp_ms * 1000)
        except DataError as damage:
            msg = (
                f"topic {CONTROL}, key {name[:80]!r}: {damage}; only ingests and workers may write there ('tacet "
                "topics acls'). If one of yours wrote records of this key, write the last good one again from a mirror "
                "of the topic; otherwise write a record of this key without a value, which deletes it"
            )
            raise DataError(msg) from None
    return control


async def decide(bootstrap: str, rule: Callable[[ClusterState], Records]) -> ClusterState:
    """Write the records that a rule derives from the present state; return the state afterwards.

    No other process writes between the read and the write: a later one fences this one, which then reads again.
    """
    deciding = stamina.AsyncRetryingCaller(
        attempts=TRIES, timeout=None, wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT, wait_jitter=FIRST_WAIT
    )
    try:
        return await deciding((FencedError, InterruptedWriteError), _decided, bootstrap, rule)
    except (FencedError, InterruptedWriteError):
        msg = "control topic: must be free to write to, but others were writing all the time"
        raise TacetError(msg) from None


async def _decided(bootstrap: str, rule: Callable[[ClusterState], Records]) -> ClusterState:
    producer = await _begin_transaction(bootstrap)
    try:
        control = await read(bootstrap)
        records = rule(control)
        if records:
            async with transaction(producer):
                for key, value in records.items():
                    await producer.send_and_wait(CONTROL, value, key=key.encode(), partition=0)
        for key, value in records.items():
            control.apply(key, value, 0)
        return control
    finally:
        await close(producer)


async def _begin_transaction(bootstrap: str) -> Any:
    try:
        async with asyncio.timeout(BROKER_PATIENCE):
            return await transactional(bootstrap, FENCE)
    except TimeoutError:
        msg = (
            f"Kafka: must be able to begin a transaction within {BROKER_PATIENCE:.0f} s; are there as many brokers as "
            "transaction.state.log.replication.factor asks for?"
        )
        raise TacetError(msg) from None


async def refuse_ended(bootstrap: str, key: str, ledger: str) -> None:
    """Raise UsageError if the cluster has changed to another key than this fingerprint's; idle workers call this.

    If no broker answers, nothing is raised: the caller asks again later.
    """
    try:
        control = await read(bootstrap)
    except (KafkaError, ConnectionError, TimeoutError) as error:
        log.info("the control topic was not read: %s", type(error).__name__)
        return
    refuse_other_key(control, key, ledger)


async def found_cluster(bootstrap: str, partitions: int) -> ClusterState:
    """Give the cluster its identity if it has none."""
    return await decide(bootstrap, lambda control: identity_records(control, partitions, secrets.token_hex(8)))


async def checked(bootstrap: str) -> ClusterState:
    """Return the cluster's record after comparing all topics with it; a cluster without a record gets one.

    UsageError if a topic has another number of partitions, or does not exist.
    """
    counts = await engine_counts(bootstrap)
    if CONTROL not in counts or OBSERVATIONS not in counts:
        missing = CONTROL if OBSERVATIONS in counts else OBSERVATIONS
        msg = f"topic {missing}: does not exist; create it with 'tacet topics create'"
        raise UsageError(msg)
    control = await read(bootstrap)
    if control.partitions is None:
        control = await found_cluster(bootstrap, counts[OBSERVATIONS])
    refuse_other_counts(control, {name: count for name, count in counts.items() if name != CONTROL})
    return control


async def check_cluster(bootstrap: str) -> ClusterState:
    """Return the cluster's record after comparing the visible topics with it; for processes that only read.

    UsageError if the control topic is not visible, or a topic has another number of partitions.
    """
    counts = await engine_counts(bootstrap)
    if CONTROL not in counts:
        msg = f"topic {CONTROL}: does not exist, or is not open to this user"
        raise UsageError(msg)
    control = await read(bootstrap)
    refuse_other_counts(control, {name: count for name, count in counts.items() if name != CONTROL})
    return control


async def refuse_grown(bootstrap: str, topics: Iterable[str]) -> None:
    """Raise UsageError if one of these topics has another number of partitions than the cluster.

    Nothing is compared if the control topic is not visible: readers of private topics need no access to it.
    """
    counts = await engine_counts(bootstrap)
    if CONTROL in counts:
        refuse_other_counts(await read(bootstrap), {name: counts[name] for name in topics if name in counts})


async def engine_counts(bootstrap: str) -> Mapping[str, int]:
    """Return the number of partitions of every topic of the engine that is visible."""
    return {name: count for name, count in (await partition_counts(bootstrap)).items() if name.startswith("tacet.")}


# --- joining ----------------------------------------------------------------------------------------

ENGINE_FENCE = "tacet-engine"
"""Prefix of the partitions' transactional ids: a new owner fences every earlier one, also one of another cluster
identity.
"""
GROUP = "tacet-engine"
"""The workers' consumer group: any other member would take partitions away from them."""


async def join(
    bootstrap: str, policy: Policy, key: str, mechanisms: str, *, accept_policy: bool, again: int | None = None
) -> ClusterState:
    """Let a worker join this cluster.

    Raises:
        UsageError: its key, policy, version or topics are not the cluster's.
        TacetError: the records of the control topic were deleted meanwhile.
    """
    control = await checked(bootstrap)

    def admitted(present: ClusterState) -> Records:
        if present.id != control.id:
            raise TacetError("control topic: must keep its records, but they were deleted while this worker started")
        return admit(present, policy, key, mechanisms, accept=accept_policy, again=again)

    partitions = range(control.partitions or 0)
    if control.key is None:
        for partition in partitions:
            await _refuse_others_state(bootstrap, partition, key)
    changes = accept_policy and control.mechanisms not in (None, mechanisms)
    try:
        if changes:
            await _prepare_change(bootstrap, control, policy, key, mechanisms)
        return await decide(bootstrap, admitted)
    except UsageError:
        if changes:
            await decide(bootstrap, lambda control: withdraw(control, mechanisms))
        raise


async def refuse_unfit(bootstrap: str, control: ClusterState, policy: Policy, keys: Keys, options: Options) -> None:
    """Raise UsageError where the state of a partition cannot go on under a policy that is new to the cluster.

    Copies of all states are adopted. Whoever consents without that could end all other workers with a policy that
    fails on the first state.
    """
    if control.current() in (None, policy.version):
        return
    for partition in range(control.partitions or 0):
        snapshot = await _state(bootstrap, partition)
        if snapshot is None:
            continue
        engine = PartitionEngine(
            policy, keys, options, accept_policy=True, accepted=control.accepted(), versions=control.versions
        )
        try:
            size = len(engine.rehearse(snapshot))
        except TacetError:
            raise
        except Exception as error:
            msg = (
                f"policy: partition {partition} must be able to continue under version {policy.version}, but its state "
                f"does not fit ({type(error).__name__}); nothing was accepted, workers continue under "
                f"{control.current()}"
            )
            raise UsageError(msg) from error
        if size > MAX_RECORD:
            msg = (
                f"policy: the state of partition {partition} must be at most {MAX_RECORD // 2**20} MiB under version "
                f"{policy.version}, got {size / 2**20:.1f}; nothing was accepted"
            )
            raise UsageError(msg)


async def _prepare_change(bootstrap: str, control: ClusterState, policy: Policy, key: str, mechanisms: str) -> None:
    """Stop all work under another version; UsageError if that version has unfinished windows."""
    sites = {site for each in (*control.accepted(), policy) for site in each.site}
    began = str(control.mechanisms)
    partitions = range(control.partitions or 0)
    for partition in partitions:  # before any worker is disturbed
        await _check_usable_state(bootstrap, partition, sites, (began, mechanisms))
    await decide(bootstrap, lambda control: announce(control, key, mechanisms))
    journal = KafkaWriterFactory(bootstrap, fence=ENGINE_FENCE)
    for partition in partitions:
        await (await journal.acquire(partition)).close()
        await _check_usable_state(bootstrap, partition, sites, (began, mechanisms))


async def _check_usable_state(
    bootstrap: str, partition: int, sites: Collection[str], versions: tuple[str, str]
) -> None:
    """Raise UsageError if the second version cannot use a partition's state, or if entries lie beyond the state.

    Without a state, such entries were made by the first version.
    """
    snapshot = await _state(bootstrap, partition)
    made_by, audit, known = versions[0], 0, {}
    if snapshot is not None:
        head, _ = open_snapshot(snapshot)
        made_by, audit, known = head.mechanisms, head.audit_offset, chains(snapshot)
    check_mechanism_version(made_by)
    entries, _ = await read_range(bootstrap, AUDIT, partition, audit, committed=False)
    beyond = entries_beyond(entries, known, sites)
    if beyond and made_by != versions[1]:
        raise (entries_without_state if snapshot is None else entries_of_other_version)(beyond, made_by)


async def _state(bootstrap: str, partition: int) -> bytes | None:
    """Return a partition's state; None if it is lost, which the partition's next owner reports."""
    with suppress(LossError):
        return await last_snapshot(bootstrap, partition)
    return None


async def _refuse_others_state(bootstrap: str, partition: int, key: str) -> None:
    """Raise UsageError if a snapshot was made with another key; a new control topic must not hide that."""
    snapshot = await _state(bootstrap, partition)
    if snapshot is not None and open_snapshot(snapshot)[0].key != key:
        msg = f"key: must be the one the state of partition {partition} was made with; the control topic is new"
        raise UsageError(msg)
