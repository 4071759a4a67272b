"""A ledger ends on a partition of Kafka, and one of another key goes on with its chains.

The key that is lost or stolen may have left entries behind its last state, of a transaction that was never committed:
readers who do not wait for commits may have seen what they pay for, and nobody can draw that noise again. They are
counted at their worst: charged and asked as if all of it had been given away, and never released.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from stream.accounting.audit import Link
from stream.accounting.beginnings import Beginning, Start
from stream.errors import UsageError
from stream.keys import Keys
from stream.pipeline import RADIOS, Pipeline
from stream.policy.document import Policy
from stream.records import Published
from stream.release.account_stage import Begun, account_stage, go_on
from stream.release.earlier import settle
from stream.release.state import decode_release_state, encode_release_state
from stream.runners.emitted import Emitted, in_order
from stream.runners.site_form import Stages, books_only
from stream.runners.snapshot import begun_by, chain_of, open_snapshot, upgraded

Entry = Mapping[str, Any]


class Left(NamedTuple):
    """What an ended ledger has left on a partition, its chains whole."""

    snapshot: bytes
    entries: Sequence[Entry]
    """All ledger entries, each site's in order, committed or not."""
    policies: Sequence[Policy]
    """All that were accepted, in their order."""


class Taken(NamedTuple):
    """What is written where another ledger takes a partition over."""

    snapshot: bytes
    beginning: Beginning
    accounts: list[Emitted]
    """Records of the account, where entries behind the state change it."""
    unreleased: int
    """How many entries are charged, and never released."""


def taken_over(left: Left, keys: Keys, partition: int, *, next_offset: int, audit_offset: int) -> Taken:
    """Return the state with which the ledger of other keys goes on where an old one ends.

    Args:
        left: what there is.
        keys: those of the ledger that goes on.
        partition: which one.
        next_offset: the first observation to be read; none before it is.
        audit_offset: up to which the state knows the audit's records.

    Raises:
        UsageError: the state is of a version or a policy that one cannot go on from.
    """
    head, sites = open_snapshot(upgraded(left.snapshot))
    policies = {policy.version: policy for policy in left.policies}
    if head["policy"] not in policies:
        raise UsageError(f"policy: version {head['policy']}, of partition {partition}, must be an accepted one")
    by_site: dict[str, list[Entry]] = defaultdict(list)
    for entry in left.entries:
        by_site[str(entry["site"])].append(entry)
    starts, begun, accounts = dict[str, Start](), dict[str, Stages](), list[Published]()
    for site in sorted(sites.keys() | by_site.keys()):
        stages = sites.get(site) or _nothing(site, left.policies, keys)
        known, _ = chain_of(stages)
        beyond = [entry for entry in by_site[site] if entry["sequence"] >= known]
        if beyond:
            stages, records = _settled(site, stages, beyond, policies, policies[head["policy"]])
            accounts += records
        begun[site] = books_only(stages)
        starts[site] = Start(Link(*chain_of(stages)), known)
    snapshot = begun_by(keys, head["policy"], begun, next_offset=next_offset, audit_offset=audit_offset)
    beginning = Beginning(keys.ledger, partition, starts).signed(keys.audit)
    count = sum(start.link.sequence - start.unreleased for start in starts.values())
    return Taken(snapshot, beginning, in_order(accounts), count)


def _nothing(site: str, policies: Iterable[Policy], keys: Keys) -> Stages:
    """Return the states of a site of which there are entries, and no state yet."""
    policy = next((policy for policy in reversed([*policies]) if site in policy.site), None)
    if policy is None:
        raise UsageError(f"policy: must be known that has site {site}, of which there are ledger entries")
    pipeline = Pipeline(policy, site, keys)
    return pipeline.encode(pipeline.initial())


def _settled(
    site: str, stages: Stages, beyond: Sequence[Entry], policies: Mapping[str, Policy], present: Policy
) -> tuple[Stages, list[Published]]:
    """Return the states after entries that were never released, and what the account says of them."""
    if unknown := {str(entry["policy_version"]) for entry in beyond} - policies.keys():
        msg = f"policy: version {min(unknown)}, under which entries of site {site} were made, must be an accepted one"
        raise UsageError(msg)
    before, _ = decode_release_state(stages["release"])
    radios = {zone: tuple(held) for zone, held in orjson.loads(stages.get(RADIOS, b"{}")).items()}
    own = policies[str(beyond[0]["policy_version"])]
    stage = account_stage(own, site, laboratory=bool(beyond[0]["laboratory"]))
    begun = Begun(stage.decode(stages["account"]), before.ledger, radios)
    account, records = go_on(begun, policies.values(), site, beyond, {})
    state, _ = decode_release_state(stages["release"])
    settle(state, beyond, policies, present, site)
    return stages | {"release": encode_release_state(state, {}), "account": stage.encode(account)}, records
