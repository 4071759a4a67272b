"""Rules for a lost or stolen key: a new ledger continues.

1. One record of the control topic (``end_ledger``) switches the cluster to the new key. It cannot be undone. From then
   on no worker starts or opens a partition with the old key, no ingest of the old key is admitted, and running ingests
   have lost their sources.
2. Each partition is then taken over (``take_over``), in one transaction each. After an interruption the procedure is
   started again and continues with the remaining partitions.

On a partition, the new ledger continues the chains of the old one. The lost or stolen key may have left entries beyond
its last state, from a transaction that was never committed. Readers of uncommitted records may have seen the releases
for which these entries pay, and their noise cannot be drawn again. The worst case is therefore assumed: the entries are
charged and count as queried, as if everything had been published, but they are never released.

The functions are pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson

from stream.accounting.audit import ChainLink, LedgerStart, Start
from stream.accounting.ledger import Entry
from stream.engine.cluster_state import OTHER_KEY, SILENT, ClusterState, Records, engine_record, record
from stream.engine.continuation import adopted_from
from stream.engine.outputs import OutputRecord, in_order
from stream.engine.snapshot import (
    SiteParts,
    SnapshotHead,
    chain_anew,
    chain_of,
    ledger_and_account_only,
    open_snapshot,
    seal_site,
    seal_snapshot,
)
from stream.errors import UsageError
from stream.keys import Keys, fingerprint
from stream.pipeline import RADIOS, Pipeline
from stream.policy.document import PolicyDocument
from stream.records import Micros, Published
from stream.release.account_stage import AccountProgress, account_stage, extend_account
from stream.release.backfill import count_as_published
from stream.release.stage import MECHANISM_VERSION
from stream.release.state import decode_release_state, encode_release_state
from stream.release.validation import validate

NOBODY = "retired"
"""Ingest id for a source whose ingest had the old key; no ingest of this id sends heartbeats."""


def end_ledger(control: ClusterState, old: str | None, new: str, ended: Collection[str], *, now: Micros) -> Records:
    """Return the records that switch a cluster to another key; none if it has that key already.

    Args:
        control: the current state.
        old: fingerprint of the key whose ledger ends; None if it is lost.
        new: fingerprint of the new key.
        ended: ids of the ledgers that end, from key and entries.
        now: the time of the broker's clock, as exactly as it is known.

    Raises:
        UsageError: the cluster has a third key or none yet, or an ingest is still running.
    """
    if control.key == new:
        return {}
    if control.key is None:
        raise UsageError("key: must have a ledger to end, but no worker has begun on this cluster")
    if old not in (None, control.key):
        raise UsageError(OTHER_KEY)
    if alive := sum(beat > now - SILENT for beat in control.beats.values()):
        msg = f"ingest: must be stopped before a key is retired, {alive} of them are still alive"
        raise UsageError(msg)
    retired = [*control.retired, *sorted(set(ended) - set(control.retired))]
    claims = {
        f"source/{site}/{source}": record(ingest=NOBODY, session=claim.session)
        for (site, source), claim in control.claims.items()
    }
    return {"engine": engine_record(control, new, control.versions, retired=retired)} | claims


def refuse_retired(control: ClusterState, ledger: str) -> None:
    """Raise UsageError for a key whose ledger has ended."""
    if ledger in control.retired:
        msg = f"key: ledger {ledger} has ended, its key was retired; use the key of the ledger that continues"
        raise UsageError(msg)


def refuse_other_key(control: ClusterState, key: str, ledger: str) -> None:
    """Raise UsageError if the cluster has switched to another key since a worker began."""
    refuse_retired(control, ledger)
    if control.key not in (None, key):
        raise UsageError(OTHER_KEY)


def ledger_start_record(ledger_start: LedgerStart) -> Records:
    """Return the record of a ledger that takes a partition over."""
    return {f"ledger/{ledger_start.ledger}/{ledger_start.partition}": record(**ledger_start.document())}


class EndedLedger(NamedTuple):
    """The state and entries of an ended ledger on a partition; its chains are complete."""

    snapshot: bytes
    entries: Sequence[Entry]
    """All ledger entries, each site's in order, committed or not."""
    policies: Sequence[PolicyDocument]
    """All accepted policies, in order."""


class PredecessorSpend(NamedTuple):
    """The records to write when another ledger takes a partition over."""

    snapshot: bytes
    ledger_start: LedgerStart
    accounts: list[OutputRecord]
    """Records of the account, where entries beyond the state change it."""
    unreleased: int
    """Number of entries that are charged but never released."""


def take_over(
    ended_ledger: EndedLedger, keys: Keys, partition: int, *, next_offset: int, audit_offset: int
) -> PredecessorSpend:
    """Return the state with which the ledger of new keys continues where an old one ends.

    Args:
        ended_ledger: state, entries and policies of the old ledger.
        keys: the new keys.
        partition: number of the partition.
        next_offset: offset of the first observation to read; earlier ones are skipped.
        audit_offset: the offset up to which the state knows the audit partition.

    Raises:
        UsageError: this program cannot continue from the version or policy of the state.
    """
    head, sites = open_snapshot(adopted_from(ended_ledger.snapshot))
    policies = {policy.version: policy for policy in ended_ledger.policies}
    if head.policy not in policies:
        raise UsageError(f"policy: version {head.policy}, of partition {partition}, must be an accepted one")
    by_site: dict[str, list[Entry]] = defaultdict(list)
    for entry in ended_ledger.entries:
        by_site[str(entry["site"])].append(entry)
    starts, continued, accounts = dict[str, Start](), dict[str, SiteParts](), list[Published]()
    for site in sorted(sites.keys() | by_site.keys()):
        stages = sites.get(site) or _nothing(site, ended_ledger.policies, keys)
        known, _ = chain_of(stages)
        beyond = [entry for entry in by_site[site] if entry["sequence"] >= known]
        if beyond:
            stages, records = _charge_unreleased(site, stages, beyond, policies, policies[head.policy])
            accounts += records
        continued[site] = ledger_and_account_only(stages)
        starts[site] = Start(ChainLink(*chain_of(stages)), known)
    snapshot = first_snapshot(keys, head.policy, continued, next_offset=next_offset, audit_offset=audit_offset)
    beginning = LedgerStart(keys.ledger, partition, starts).signed(keys.audit)
    count = sum(start.link.sequence - start.unreleased for start in starts.values())
    return PredecessorSpend(snapshot, beginning, in_order(accounts), count)


def _nothing(site: str, policies: Iterable[PolicyDocument], keys: Keys) -> SiteParts:
    """Return the initial states of a site that has entries but no state yet."""
    policy = next((policy for policy in reversed([*policies]) if site in policy.site), None)
    if policy is None:
        raise UsageError(f"policy: one with site {site} must be known, since the ledger has entries of it")
    pipeline = Pipeline(validate(policy), site, keys)
    return pipeline.encode(pipeline.initial())


def _charge_unreleased(
    site: str,
    stages: SiteParts,
    beyond: Sequence[Entry],
    policies: Mapping[str, PolicyDocument],
    present: PolicyDocument,
) -> tuple[SiteParts, list[Published]]:
    """Return the states after entries that were never released, and the records of the account about them."""
    if unknown := {str(entry["policy_version"]) for entry in beyond} - policies.keys():
        msg = f"policy: version {min(unknown)}, under which entries of site {site} were made, must be an accepted one"
        raise UsageError(msg)
    before, _ = decode_release_state(stages["release"])
    radios = {zone: tuple(addresses) for zone, addresses in orjson.loads(stages.get(RADIOS, b"{}")).items()}
    own = policies[str(beyond[0]["policy_version"])]
    stage = account_stage(own, site, laboratory=bool(beyond[0]["laboratory"]))
    progress = AccountProgress(stage.decode(stages["account"]), before.ledger.budgets, radios)
    account, records = extend_account(progress, policies.values(), site, beyond, {})
    state, _ = decode_release_state(stages["release"])
    count_as_published(state, beyond, policies, present, site)
    return stages | {"release": encode_release_state(state, {}), "account": stage.encode(account)}, records


def successor(snapshot: bytes, keys: Keys) -> bytes:
    """Return the state with which the ledger of new keys begins in a new store, where an old ledger ends.

    It contains only the parts that are readable without a key: budgets, charges, queried days, the account, and clocks.
    It has no devices, so bounded counts begin after two days, and each release is blocked until a privacy day that was
    not paid for. Windows begin with the first one that is due.

    UsageError for the state of another mechanism version.
    """
    head, sites = open_snapshot(snapshot)
    if head.mechanisms != MECHANISM_VERSION:
        msg = (
            f"state: must be of mechanism version {MECHANISM_VERSION} before its ledger can end, got "
            f"{head.mechanisms}; run that version to end it, or this one with --accept-policy first"
        )
        raise UsageError(msg)
    continued = {site: chain_anew(ledger_and_account_only(stages)) for site, stages in sites.items()}
    return first_snapshot(keys, head.policy, continued)


def first_snapshot(
    keys: Keys, policy: str, sites: Mapping[str, SiteParts], *, next_offset: int = 0, audit_offset: int = 0
) -> bytes:  # fmt: skip
    """Return the first snapshot of a new ledger; ``sites`` are the states of the former ledger under this policy."""
    head = SnapshotHead(
        next_offset, audit_offset, policy, MECHANISM_VERSION, fingerprint(keys), last=None, before=MECHANISM_VERSION
    )  # fmt: skip
    return seal_snapshot(head, {site: seal_site(site, stages) for site, stages in sites.items()})
