"""The byte form of a partition's state: position and sites, each site an envelope of its own.

A snapshot of the form before is read too. One that another mechanism version has made needs ``upgraded``
first: what that had begun is not gone on with, since the bytes it would have released are no longer known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from stream.envelope import Kind, join_parts, seal, split_parts, unseal, version_of
from stream.errors import UsageError
from stream.keys import Keys, fingerprint
from stream.policy.document import Policy
from stream.release.stage import MECHANISMS
from stream.release.upgrade import upgraded_stages
from stream.runners.site_form import Stages, books_only, chain_anew, open_site, seal_site
from stream.vault import Vault

BEFORE = ("1", "2")
"""The mechanism versions whose states this one can go on from, the oldest first."""


def seal_snapshot(head: dict[str, Any], sites: Mapping[str, bytes]) -> bytes:
    """Return a snapshot of sealed sites; its head is readable without any key."""
    return seal(Kind.SNAPSHOT, join_parts(head, dict(sorted(sites.items()))))


def open_snapshot(snapshot: bytes, vault: Vault | None = None) -> tuple[dict[str, Any], dict[str, Stages]]:
    """Return a snapshot's head (``next``, ``audit``, ``policy``, ``mechanisms``, ``key``) and sites.

    Without a vault what is encrypted of a site is left out. ``adopt`` in the head says that the mechanisms have changed
    since. DataError when it is no snapshot, KeyFileError as for ``open_site``.
    """
    head, sites = split_parts(unseal(Kind.SNAPSHOT, snapshot))
    return head, {site: open_site(site, data, vault) for site, data in sites.items()}


def made_by(head: Mapping[str, Any]) -> str:
    """Return the mechanism version that made what a snapshot holds, also where another one is to go on from it."""
    return str(head.get("before", BEFORE[0]) if head.get("adopt", False) else head["mechanisms"])


def chains(snapshot: bytes) -> dict[str, tuple[int, str]]:
    """Return of each site how many ledger entries the state knows, and the hash of the last."""
    _, sites = open_snapshot(snapshot)
    return {site: chain_of(stages) for site, stages in sites.items()}


def chain_of(stages: Stages) -> tuple[int, str]:
    """Return how many ledger entries a site's state knows, and the hash of the last; of every version's form."""
    ledger = split_parts(stages["release"])[0]["ledger"]
    return int(ledger["sequence"]), str(ledger["head"])


def refuse_differences(
    head: Mapping[str, Any], keys: Keys, wanted: Policy, accepted: Collection[str], *, accept_policy: bool
) -> None:
    """Raise UsageError where a snapshot was made with what one may not go on from.

    Args:
        head: the snapshot's.
        keys: the keys to go on with.
        wanted: the policy to go on with.
        accepted: versions of all policies from whose states one may go on.
        accept_policy: whether one may go on from any policy's.
    """
    if head["key"] != fingerprint(keys):
        msg = "key: must be the one this state was made with; another key would break its promises"
        raise UsageError(msg)
    refuse_made_by(head["mechanisms"])
    if head["mechanisms"] != MECHANISMS:
        msg = (
            f"mechanism version: must be {head['mechanisms']}, under which this state was made, got {MECHANISMS}; "
            "'tacet store upgrade', or --accept-policy, lets it begin with the next window"
        )
        raise UsageError(msg)
    if head["policy"] not in accepted and not accept_policy:
        msg = (
            f"policy: must be version {head['policy']}, under which this state was made, got "
            f"{wanted.version}; --accept-policy lets the new one begin with the next window"
        )
        raise UsageError(msg)


def is_known(version: str) -> bool:
    """Whether one can go on from the states of a mechanism version."""
    return version in {*BEFORE, MECHANISMS}


def refuse_made_by(version: str) -> None:
    """Raise UsageError where a state was made by a mechanism version that one cannot go on from."""
    if not is_known(version):
        msg = (
            f"mechanism version: must be {', '.join(BEFORE)} or {MECHANISMS} to go on from, got {version}; "
            "'tacet recover' says what can be done"
        )
        raise UsageError(msg)


PUT_BACK = "where snapshots were lost, put them back, on Kafka their topic from a mirror"
"""What to do first where there are ledger entries and no state."""


def begun_without_state(entries: int, version: str) -> UsageError:
    """Return why one may not go on where another mechanism version has made ledger entries, and there is no state."""
    return UsageError(
        f"mechanism version: must be {version}, under which {entries} ledger entries were published that no saved "
        f"state belongs to, got {MECHANISMS}; {PUT_BACK}; where none was saved yet, start version {version} once more, "
        "under the same policy and key, until it has saved one, then this one with --accept-policy; "
        "'tacet recover --kafka' says what else can be done"
    )


def begun_by_another(entries: int, version: str) -> UsageError:
    """Return why one may not go on where ledger entries lie beyond a state that another mechanism version made."""
    return UsageError(
        f"mechanism version: must be {version}, under which {entries} ledger entries beyond the saved state were "
        f"published, got {MECHANISMS}; start version {version} once more, under the same policy and key, until it has "
        "released their windows and saved its state, then this one with --accept-policy; 'tacet recover' says what "
        "else can be done"
    )


def is_current(snapshot: bytes) -> bool:
    """Whether a snapshot has the present form and mechanism version."""
    head, _ = split_parts(unseal(Kind.SNAPSHOT, snapshot))
    return version_of(snapshot) > 1 and head["mechanisms"] == MECHANISMS


def upgraded(snapshot: bytes) -> bytes:
    """Return a snapshot with which the present mechanism version goes on from the next window.

    Position, presence and books stay; the rest begins anew as under an accepted change of policy. UsageError where
    a mechanism version made it that this one cannot go on from.
    """
    if is_current(snapshot):
        return snapshot
    head, sites = split_parts(unseal(Kind.SNAPSHOT, snapshot))
    refuse_made_by(head["mechanisms"])
    head = {name: value for name, value in head.items() if name != "v"}
    if head["mechanisms"] != MECHANISMS:
        head |= {"before": made_by(head), "mechanisms": MECHANISMS, "adopt": True}
    if version_of(snapshot) == 1:
        sites = {site: seal_site(site, upgraded_stages(open_site(site, data))) for site, data in sites.items()}
    return seal_snapshot(head, sites)


def successor(snapshot: bytes, keys: Keys) -> bytes:
    """Return the state with which a new ledger, of new keys, begins in a store of its own where an old one ends.

    Only what is readable without a key goes on: budgets, what was charged and asked, the account, and where clocks
    stand. Nobody is in it, so counts bounded by the privacy day begin when two days are over; and each release waits
    for a privacy day that nobody has paid for. Windows begin with the first that is due.

    UsageError for the state of another mechanism version.
    """
    if not is_current(snapshot):
        msg = "state: must be of this version before its ledger can end; 'tacet store upgrade' takes it up"
        raise UsageError(msg)
    head, sites = open_snapshot(snapshot)
    begun = {site: chain_anew(books_only(stages)) for site, stages in sites.items()}
    return begun_by(keys, head["policy"], begun)


def begun_by(
    keys: Keys, policy: str, sites: Mapping[str, Stages], *, next_offset: int = 0, audit_offset: int = 0
) -> bytes:  # fmt: skip
    """Return the snapshot of a ledger that has only just begun: under this policy the books of these sites end."""
    head = {"next": next_offset, "audit": audit_offset, "policy": policy, "mechanisms": MECHANISMS}
    head |= {"key": fingerprint(keys), "last": None, "before": MECHANISMS, "adopt": True}
    return seal_snapshot(head, {site: seal_site(site, stages) for site, stages in sites.items()})
