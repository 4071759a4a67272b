"""The recovery report: what prevents a run from continuing, and the remedies, for both storages.

``RecoverableStorage`` is what the report reads of a storage. ``store.py`` implements it for an embedded store,
``cluster.py`` for Apache Kafka. The report checks, in this order:

1. the key file: whether it can be read, and whether it is the key of this storage;
2. what only this storage has: files, marks, topics and their settings;
3. each saved state: suspended sites, mechanism version, ledger entries beyond it, observations that it needs next;
4. the policy;
5. the ledger: whether its chains are complete, and whether each charged record exists.

An audit chain forks if two different entries are written under one number: readers of the first could then be given a
contradicting record. Therefore no remedy moves a ledger back. If entries are lost for good, the remedy is a new ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.operations.audit.verification import AuditBundle, compare
from connectors.operations.recovery.obstacles import (
    REOPENED,
    REPUBLISH,
    STARTS_AGAIN,
    Advice,
    Obstacle,
    Remedy,
    without_records,
)
from stream.accounting.audit import by_release
from stream.engine.continuation import BEFORE, is_known
from stream.engine.snapshot import open_snapshot, sensing_status
from stream.errors import AuditError, DataError, KeyFileError
from stream.keys import fingerprint
from stream.policy.document import PolicyDocument
from stream.release.stage import MECHANISM_VERSION


@dataclass(frozen=True, slots=True)
class StoredState:
    """The state of a store or of a partition, and what the storage has published beyond it."""

    name: str
    """The store or partition, as messages name it."""
    snapshot: bytes | None
    """None if no state is saved."""
    beyond: int = 0
    """How many ledger entries were published that the state does not include."""
    committed: bool = False
    """Whether some of these entries belong to a finished transaction, which also had a state."""
    versions: tuple[str, ...] = ()
    """The mechanism versions that may have published entries beyond the state."""
    used: str | None = None
    """Where results exist although neither state nor ledger does; None if there are none."""
    deleted: str | None = None
    """What the storage says of a snapshot that existed and was deleted."""
    lost_entries: bool = False
    """Whether ledger entries are lost that the state includes, or the first ones of all."""
    lost_observations: Obstacle | None = None
    """What is missing of the observations that the state needs next."""


class RecoverableStorage(Protocol):
    """What the recovery report reads of a storage. Nothing is written."""

    @property
    def advice(self) -> Advice:
        """The storage's remedies."""

    @property
    def name(self) -> str:
        """The storage, as messages name it."""

    def missing(self) -> Sequence[Obstacle]:
        """Return the parts whose absence prevents all other checks."""

    def key_in_use(self) -> str | None:
        """Return the fingerprint of the key under which the ledger continues; None before the first release."""

    def retired_ledgers(self) -> Collection[str]:
        """Return the ids of ledgers whose keys were retired."""

    def bound_elsewhere(self, key_file: Path) -> Obstacle | None:
        """Return the obstacle for a key file that is bound to another storage."""

    def conditions(self) -> Iterable[Obstacle]:
        """Yield the obstacles that only this kind of storage can have."""

    def states(self) -> Sequence[StoredState]:
        """Return the saved states."""

    def current_policy(self) -> str | None:
        """Return the version of the policy under which the ledger continues; None before the first."""

    def stored_policies(self) -> Collection[str]:
        """Return the versions of the policies that the storage keeps."""

    def unreadable_records(self) -> Sequence[Obstacle]:
        """Return the obstacles that prevent the published records from being read."""

    def audit(self, *, records: bool) -> AuditBundle:
        """Return the ledger with the states, and with the published ``records``."""


def recovery_report(
    storage: RecoverableStorage, key_file: Path | None, policy: PolicyDocument | None
) -> list[Obstacle]:
    """Return what prevents a run on a storage from continuing, as far as storage, key and policy show."""
    keys, found = _readable_keys(key_file, storage.advice)
    if missing := storage.missing():
        return [*found, *missing]
    if key_file is not None and keys is not None:
        found += of_key(storage, key_file, keys)
    found += storage.conditions()
    for state in storage.states():
        found += of_state(state, storage.advice)
    found += of_policy(storage, policy)
    unreadable = storage.unreadable_records()
    if not any(each.ledger_in_doubt for each in found):
        found += of_ledger(storage, records=not unreadable)
    return [*found, *unreadable]


def _readable_keys(key_file: Path | None, advice: Advice) -> tuple[FileKeys | None, list[Obstacle]]:
    if key_file is None:
        return None, []
    try:
        return FileKeys(key_file), []
    except KeyFileError as problem:
        return None, [Obstacle(str(problem), (advice.key_copy, advice.retire, advice.new_ledger))]


def of_key(storage: RecoverableStorage, key_file: Path, keys: FileKeys) -> Iterator[Obstacle]:
    """Yield an obstacle for a key that is not the storage's, or no longer."""
    advice, in_use = storage.advice, storage.key_in_use()
    elsewhere = None if key_files.is_laboratory(key_file) else storage.bound_elsewhere(key_file)
    if elsewhere is not None:
        yield elsewhere
    elif keys.ledger in storage.retired_ledgers():
        yield Obstacle(
            f"{key_file}: is the key of ledger {keys.ledger}, which has ended: the key was retired",
            (Remedy("use the key of the ledger that continues", "none"),),
        )
    elif in_use not in (None, fingerprint(keys)):
        yield Obstacle(
            f"{key_file}: is not the key with which {storage.name} was begun",
            (advice.right_key, advice.retire, advice.new_ledger),
        )


# --- one saved state --------------------------------------------------------------------------------------


def of_state(state: StoredState, advice: Advice) -> Iterator[Obstacle]:
    """Yield the obstacles of one saved state."""
    if state.lost_entries:
        which = "its first audit records" if state.snapshot is None else "the audit records that its state includes"
        yield Obstacle(f"{state.name}: {which} are missing", (advice.copy, advice.new_ledger))
    if state.snapshot is None:
        yield from _without_state(state, advice)
        return
    _, sites = open_snapshot(state.snapshot)
    for site, stages in sorted(sites.items()):
        if sensing_status(stages).suspended:
            yield suspended_site(site, advice)
    yield from of_version(state, advice)
    if state.lost_observations is not None:
        yield state.lost_observations


def _without_state(state: StoredState, advice: Advice) -> Iterator[Obstacle]:
    if state.beyond and replaying_version(state) is None:
        yield Obstacle(
            f"{state.name}: there are ledger entries and no state, and mechanism versions {', '.join(state.versions)} "
            "have worked here, so it is unknown which version made the entries",
            (advice.copy, advice.new_ledger),
        )
    elif state.committed or state.deleted is not None:
        rebuild = () if advice.rebuild is None else (advice.rebuild,)
        yield Obstacle(
            state.deleted
            or f"{state.name}: the audit holds records, but there is no state: the snapshots were deleted",
            (advice.copy, *rebuild, advice.new_ledger),
        )
    elif not state.beyond and state.used is not None:
        yield Obstacle(
            f"{state.name}: {state.used} holds records, but audit and snapshot hold none",
            (advice.copy, advice.new_ledger),
        )


def suspended_site(site: str, advice: Advice) -> Obstacle:
    """Return the obstacle for a suspended site, which affects no other site."""
    return Obstacle(
        f"site {site}: is suspended; it would have held more devices than max_devices",
        (Remedy(f"find out who sends so many addresses, or raise max_devices; then {advice.reopen(site)}", REOPENED),),
    )


def replaying_version(state: StoredState) -> str | None:
    """Return the mechanism version that can reproduce the entries beyond a state; None if none can.

    An entry does not show the noise, so equal entries prove equal records only if one version made the state and all
    entries beyond it.
    """
    versions = set(state.versions)
    if state.snapshot is None:
        return MECHANISM_VERSION if versions <= {MECHANISM_VERSION} else None
    return next(iter(versions)) if len(versions) == 1 else None


def of_version(state: StoredState, advice: Advice) -> Iterator[Obstacle]:
    """Yield an obstacle for a state of another mechanism version, from which this version may not continue."""
    if state.snapshot is None:
        return
    version = open_snapshot(state.snapshot)[0].mechanisms
    made = f"{state.name}: its state was made by mechanism version {version}, this is version {MECHANISM_VERSION}"
    if not is_known(version):
        known = " and ".join((*BEFORE, MECHANISM_VERSION))
        again = Remedy(
            f"'{advice.command}' of mechanism version {version}; {advice.versions_between}",
            f"{STARTS_AGAIN} with each change; budgets and account continue",
        )
        yield Obstacle(f"{made}, which continues only from version {known}", (again, advice.new_ledger))
    elif version != MECHANISM_VERSION and state.beyond:
        finish = Remedy(
            f"start mechanism version {version} once more, under the same policy and key, until it has released these "
            f"windows and saved its state; then '{advice.command} --accept-policy' of this version",
            f"the windows until then are released under version {version}; none is released twice",
        )
        alone = replaying_version(state) is not None
        yield Obstacle(
            f"{state.name}: {state.beyond} ledger entries are beyond its state, which mechanism version {version} made",
            (finish, advice.new_ledger) if alone else (advice.copy, advice.new_ledger),
        )
    elif version != MECHANISM_VERSION:
        accept = Remedy(
            f"stop everything of that version, then '{advice.command} --accept-policy'",
            f"{STARTS_AGAIN}; the attributes of the current day are not published",
        )
        yield Obstacle(made, (accept,))


# --- policy and ledger ------------------------------------------------------------------------------------


def of_policy(storage: RecoverableStorage, policy: PolicyDocument | None) -> Iterator[Obstacle]:
    """Yield an obstacle if the given policy is not the current one."""
    current = storage.current_policy()
    if policy is not None and current is not None and current != policy.version:
        stored = ", which it keeps" if current in storage.stored_policies() else ""
        yield Obstacle(
            f"{storage.name}: continues under policy {current}{stored}; the given policy is {policy.version}",
            (storage.advice.same_policy, storage.advice.accept_policy),
        )


def of_ledger(storage: RecoverableStorage, *, records: bool = True) -> Iterator[Obstacle]:
    """Yield an obstacle for broken chains, and for each release of which charged ``records`` are missing."""
    advice = storage.advice
    try:
        bundle = storage.audit(records=records)
        bundle.audit().chains(bundle.entries)
        missing = by_release(compare(bundle).missing)
    except (AuditError, DataError) as problem:
        yield Obstacle(str(problem), (advice.copy, advice.new_ledger))
        return
    for each in missing:
        yield Obstacle(str(each), (advice.copy, REPUBLISH, without_records(each.audience)))
