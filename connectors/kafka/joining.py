"""A worker joins a cluster: its key, policy and mechanism version are the cluster's, or it may change them.

A mechanism version ends only where no window is begun under it: what it has published of such a window it alone can
finish. So the next one is announced first, then every partition is taken, so that whoever worked on it can write no
more and finds the announcement when it comes back; and only if nothing is left unfinished then does it begin.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from connectors.kafka.bounded import last_snapshot, read_range
from connectors.kafka.control import checked, decide
from connectors.kafka.writers import KafkaJournal
from stream.errors import UsageError
from stream.policy.document import Policy
from stream.runners.agreement import Control, admit, announce, withdraw
from stream.runners.contract import LossError
from stream.runners.replay_guard import entries_beyond
from stream.runners.snapshot import begun_by_another, begun_without_state, chains, open_snapshot, refuse_made_by
from stream.schemas import AUDIT

FENCE = "tacet-engine"
"""Whoever takes a partition fences every earlier owner, also one that knows another identity of the cluster."""
GROUP = "tacet-engine"
"""The workers' consumer group: who joined it would take partitions away from them."""


async def join(
    bootstrap: str, policy: Policy, key: str, mechanisms: str, *, accept_policy: bool, again: int | None = None
) -> Control:
    """Let a worker begin on this cluster; UsageError when its key, policy, version or topics are not the cluster's."""
    control = await checked(bootstrap)
    partitions = range(control.partitions or 0)
    if control.key is None:
        for partition in partitions:
            await _refuse_others_state(bootstrap, partition, key)
    changes = accept_policy and control.mechanisms not in (None, mechanisms)
    try:
        if changes:
            await _prepare_change(bootstrap, control, policy, key, mechanisms)
        return await decide(
            bootstrap, lambda control: admit(control, policy, key, mechanisms, accept=accept_policy, again=again)
        )
    except UsageError:
        if changes:
            await decide(bootstrap, lambda control: withdraw(control, mechanisms))
        raise


async def _prepare_change(bootstrap: str, control: Control, policy: Policy, key: str, mechanisms: str) -> None:
    """Let nobody work under another version any more; UsageError where somebody has to, to finish what was begun."""
    sites = {site for each in (*control.accepted(), policy) for site in each.site}
    began = str(control.mechanisms)
    partitions = range(control.partitions or 0)
    for partition in partitions:  # before anybody is disturbed
        await _refuse_begun(bootstrap, partition, sites, (began, mechanisms))
    await decide(bootstrap, lambda control: announce(control, key, mechanisms))
    journal = KafkaJournal(bootstrap, fence=FENCE)
    for partition in partitions:
        await (await journal.take(partition)).close()
        await _refuse_begun(bootstrap, partition, sites, (began, mechanisms))


async def _refuse_begun(bootstrap: str, partition: int, sites: Collection[str], versions: tuple[str, str]) -> None:
    """Raise UsageError where a partition's state is of no use to the second version, or entries lie beyond it.

    Where there is no state yet, the first version has made them.
    """
    snapshot = await _state(bootstrap, partition)
    made_by, audit, known = versions[0], 0, {}
    if snapshot is not None:
        head, _ = open_snapshot(snapshot)
        made_by, audit, known = head["mechanisms"], head["audit"], chains(snapshot)
    refuse_made_by(made_by)
    entries, _ = await read_range(bootstrap, AUDIT, partition, audit, committed=False)
    beyond = entries_beyond(entries, known, sites)
    if beyond and made_by != versions[1]:
        raise (begun_without_state if snapshot is None else begun_by_another)(beyond, made_by)


async def _state(bootstrap: str, partition: int) -> bytes | None:
    """Return a partition's state; one that is gone is for who takes the partition to speak of."""
    with suppress(LossError):
        return await last_snapshot(bootstrap, partition)
    return None


async def _refuse_others_state(bootstrap: str, partition: int, key: str) -> None:
    """Raise UsageError where a snapshot was made with another key, which a new control topic must not give way to."""
    snapshot = await _state(bootstrap, partition)
    if snapshot is not None and open_snapshot(snapshot)[0]["key"] != key:
        msg = f"key: must be the one the state of partition {partition} was made with; the control topic is new"
        raise UsageError(msg)
