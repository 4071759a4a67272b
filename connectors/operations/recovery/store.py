"""What the recovery report reads of a store, and its own obstacles.

Only a store has private folders, outboxes, a mark beside the key, and a clock that live input is compared with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import orjson

from connectors.keys import key_files
from connectors.operations.audit.verification import AuditBundle, store_bundle
from connectors.operations.recovery.obstacles import NO_DIFFERENCE, Advice, Obstacle, Remedy, store_advice
from connectors.operations.recovery.report import StoredState, of_key, recovery_report, replaying_version
from connectors.runtime.clock import CLOCK_STEP
from connectors.secrets.private_files import check_private_folder
from connectors.storage.audit_chains import audit_of, heads_of
from connectors.storage.embedded.reader import (
    contradicted,
    outboxes,
    read_identity,
    read_outbox,
    read_policies,
    read_snapshot,
)
from connectors.storage.embedded.rollback_mark import DamagedMarkError, mark_path, read_marks, read_versions
from connectors.storage.embedded.sqlite_file import StoreError
from stream.accounting.audit import ChainLink
from stream.engine.snapshot import encode_sensing_status, open_snapshot, sensing_status
from stream.errors import AuditError, KeyFileError, UsageError
from stream.keys import key_day_of
from stream.policy.document import PolicyDocument
from stream.records import Micros
from stream.release.stage import MECHANISM_VERSION
from stream.runners.embedded import Chains
from stream.schemas import rfc3339


def store_obstacles(
    folder: Path,
    key_file: Path | None,
    policy: PolicyDocument | None,
    now: Micros | None = None,
    *,
    policy_file: Path | None = None,
) -> list[Obstacle]:
    """Return what prevents a run on a store from continuing, as far as store, key, policy and clock show.

    Args:
        folder: the store.
        key_file: its key, with the mark beside it; None if it is not looked at.
        policy: the policy of the run; None if it is not looked at.
        now: the wall clock; None if it is not compared with the store.
        policy_file: the file of the policy, which the remedies name.
    """
    store = EmbeddedStorage(folder, key_file, now, policy_file)
    try:
        return recovery_report(store, key_file, policy)
    except StoreError as problem:
        damaged = Obstacle(str(problem), (store.advice.copy, store.advice.new_ledger))
        return [damaged, *store.damaged_outboxes()]


def key_obstacles(folder: Path, key_file: Path) -> list[Obstacle]:
    """Return what prevents a run on a store with a readable key, as far as the key and its mark show."""
    storage = EmbeddedStorage(folder, key_file)
    missing = storage.missing()
    return list(missing or [*of_key(storage, key_file, key_files.FileKeys(key_file)), *storage.mark_obstacles()])


class EmbeddedStorage:
    """A store and the mark beside its key, read beside a run that may be writing."""

    def __init__(
        self, folder: Path, key_file: Path | None = None, now: Micros | None = None, policy_file: Path | None = None
    ) -> None:
        self._folder, self._now = folder, now
        self._key_file = key_file if key_file is not None and _has_keys(key_file) else None
        self.advice: Advice = store_advice(folder, key_file, policy_file)
        self.name = f"store {folder}"

    @cached_property
    def _snapshot(self) -> bytes | None:
        return read_snapshot(self._folder)[0]

    @cached_property
    def _marks(self) -> dict[str, Chains] | None:
        """The marks of the key, by store; None if they cannot be read."""
        try:
            return {} if self._key_file is None else read_marks(self._key_file)
        except DamagedMarkError:
            return None

    @property
    def _laboratory(self) -> bool:
        """Whether no mark binds the key to one store: it is a laboratory's, or it cannot be read."""
        return self._key_file is None or key_files.is_laboratory(self._key_file)

    @property
    def _mark(self) -> Chains:
        """How far each site's chain has been published, as the mark knows; empty if the mark is of no use."""
        return (self._marks or {}).get(read_identity(self._folder), {})

    # --- for the report -----------------------------------------------------------------------------------

    def missing(self) -> Sequence[Obstacle]:
        """Return the obstacle of a store that does not exist, or that is empty although its mark has entries."""
        marked = {} if self._laboratory else self._marks or {}
        entries = sum(link[0] for sites in marked.values() for link in sites.values())
        if (self._folder / "store.sqlite").exists() and not (entries and self._snapshot is None):
            return ()
        what = f"{self._folder}: there is no store"
        if entries:
            what += f"; the mark beside the key knows of {entries} ledger entries"
        elif self._key_file is not None and self._marks is not None:
            return (Obstacle(what, (Remedy("'tacet run' creates it", "none"),)),)
        return (Obstacle(what, (self.advice.copy, self.advice.new_ledger)),)

    def key_in_use(self) -> str | None:
        """Return the fingerprint of the key that made the state."""
        return None if self._snapshot is None else open_snapshot(self._snapshot)[0].key

    def retired_ledgers(self) -> Collection[str]:
        """Return nothing: the file of a retired key has no keys, and the next ledger is in another store."""
        return ()

    def bound_elsewhere(self, key_file: Path) -> Obstacle | None:
        """Return the obstacle for a key that its file or its mark binds to another store, or to a cluster."""
        own, bound = read_identity(self._folder), key_files.store_of(key_file)
        others = sorted({*(self._marks or {}), *([bound] if bound else [])} - {own})
        if not others:
            return None
        other = others[0] if others[0].startswith("cluster ") else f"store {others[0]}"
        return Obstacle(
            f"{key_file}: belongs to {other}, and {self._folder} is store {own}",
            (self.advice.right_key, self.advice.retire, self.advice.new_ledger),
        )

    def conditions(self) -> Iterable[Obstacle]:
        """Yield the obstacles of folders, clock and mark."""
        for folder in (self._folder, self._folder / "private"):
            try:
                check_private_folder(folder)
            except UsageError as problem:
                yield Obstacle(str(problem), (Remedy(f"'chmod 700 {folder}'", "none"),))
        yield from self._clock_behind()
        yield from self.mark_obstacles()

    def states(self) -> Sequence[StoredState]:
        """Return the one state of the store; the mark knows the entries beyond it."""
        return (self._state(),)

    def _state(self) -> StoredState:
        made_by = None if self._snapshot is None else open_snapshot(self._snapshot)[0].made_by
        published_by = None
        if self._key_file is not None and self._marks is not None:
            published_by = read_versions(self._key_file).get(read_identity(self._folder))
        versions = tuple(sorted({version for version in (made_by, published_by) if version is not None}))
        return StoredState(str(self._folder), self._snapshot, sum(self._set_back().values()), versions=versions)

    def current_policy(self) -> str | None:
        """Return the policy of the state."""
        return None if self._snapshot is None else open_snapshot(self._snapshot)[0].policy

    def stored_policies(self) -> Collection[str]:
        """Return the versions of the policies under which the store has released."""
        return {PolicyDocument.from_document(document).version for document in read_policies(self._folder)}

    def unreadable_records(self) -> Sequence[Obstacle]:
        """Return the obstacles of damaged outboxes; of outboxes of another store only if none is damaged."""
        return list(self.damaged_outboxes()) or list(self._other_outboxes())

    def audit(self, *, records: bool) -> AuditBundle:
        """Return the store's audit bundle."""
        return store_bundle(self._folder, records=records)

    # --- outboxes -----------------------------------------------------------------------------------------

    def damaged_outboxes(self) -> Iterator[Obstacle]:
        """Yield an obstacle for each outbox that cannot be read."""
        for audience, path in outboxes(self._folder):
            try:
                read_outbox(self._folder, audience, 0)
            except StoreError as problem:
                yield _wrong_outbox(audience, path, str(problem))

    def _other_outboxes(self) -> Iterator[Obstacle]:
        """Yield an obstacle for each outbox of another store, whose records would contradict this store's."""
        for audience, release_id in contradicted(self._folder).items():
            path = dict(outboxes(self._folder))[audience]
            yield _wrong_outbox(audience, path, f"{path}: has a different release {release_id} than the store")

    # --- clock --------------------------------------------------------------------------------------------

    def _clock_behind(self) -> Iterator[Obstacle]:
        """Yield an obstacle if the store was made with a clock ahead. It prevents live input, but not recordings."""
        if self._snapshot is None or self._now is None:
            return
        for site, stages in sorted(open_snapshot(self._snapshot)[1].items()):
            until = sensing_status(stages).reached
            if self._now < until - CLOCK_STEP:
                yield Obstacle(
                    f"clock: is at {rfc3339(self._now)}, but site {site} has reached {rfc3339(until)}; 'tacet run "
                    "--udp' does not start before that time",
                    (
                        Remedy("set the clock, if it is behind", "none"),
                        Remedy(
                            "wait until then", "nothing is counted until then, and those windows are not released again"
                        ),
                        self.advice.new_ledger,
                    ),
                )

    # --- the mark -----------------------------------------------------------------------------------------

    def mark_obstacles(self) -> Iterator[Obstacle]:
        """Yield the obstacles of a mark that is missing or damaged, or that contradicts the store."""
        key_file = self._key_file
        if key_file is None or (not self._laboratory and self.bound_elsewhere(key_file) is not None):
            return
        if self._marks is None:
            yield _without_mark(self._folder, key_file, "is damaged", self.advice)
        elif read_identity(self._folder) in self._marks:
            yield from self._sites_set_back(key_file)
            yield from self._other_chains()
        elif not self._laboratory and key_files.store_of(key_file) is not None:
            yield _without_mark(self._folder, key_file, "is missing", self.advice)

    def _set_back(self) -> dict[str, int]:
        """Return how many entries of the mark each site's state lacks."""
        known = heads_of(self._snapshot)
        lacking = {site: link[0] - known.get(site, ChainLink()).sequence for site, link in sorted(self._mark.items())}
        return {site: entries for site, entries in lacking.items() if entries > 0}

    def _sites_set_back(self, key_file: Path) -> Iterator[Obstacle]:
        known, sites = heads_of(self._snapshot), {} if self._snapshot is None else open_snapshot(self._snapshot)[1]
        for site, lacking in self._set_back().items():
            entries = known.get(site, ChainLink()).sequence
            window = sensing_status(sites[site]).last_window if site in sites else None
            since = "" if window is None else f", up to the window that ended at {rfc3339(window)}"
            yield Obstacle(
                f"site {site}: the store was set back; it knows of {entries} ledger entries{since}, the mark of "
                f"{entries + lacking}",
                (self.advice.copy, *self._same_observations(key_file), self.advice.new_ledger),
            )

    def _same_observations(self, key_file: Path) -> Iterator[Remedy]:
        """Yield the remedy of processing the same observations again, if the key still has the days they need."""
        state = self._state()
        version = replaying_version(state)
        sites = {} if state.snapshot is None else open_snapshot(state.snapshot)[1]
        due = [orjson.loads(encode_sensing_status(stages))["ticks"][0] for stages in sites.values()]
        available = all(key_files.has_key_day(key_file, key_day_of(tick - 1)) for tick in due if tick is not None)
        if version is None or not available:
            return
        which = "" if version == MECHANISM_VERSION else f"with mechanism version {version}, which made them: "
        yield Remedy(
            f"{which}'tacet run --observations' with the recording from which the missing windows were made, under the "
            "same policy and key: the same observations make the same entries again",
            NO_DIFFERENCE,
        )

    def _other_chains(self) -> Iterator[Obstacle]:
        """Yield an obstacle if the store's chains contradict the mark."""
        known = heads_of(self._snapshot)
        within = {
            site: ChainLink(*link)
            for site, link in self._mark.items()
            if link[0] <= known.get(site, ChainLink()).sequence
        }
        try:
            audit_of([], within).chains(store_bundle(self._folder).entries)
        except AuditError as problem:
            what = f"{problem}: the store is not the one that released"
            yield Obstacle(what, (self.advice.copy, self.advice.new_ledger))


def _has_keys(key_file: Path) -> bool:
    try:
        key_files.FileKeys(key_file)
    except KeyFileError:
        return False
    return True


def _wrong_outbox(audience: str, path: Path, what: str) -> Obstacle:
    return Obstacle(
        what,
        (
            Remedy(f"put {path} back from a copy", f"{audience} does not receive what is newer than the copy again"),
            Remedy(
                f"move {path} away; 'tacet run' creates a new one",
                f"{audience} does not receive its content again, and 'tacet audit verify' continues to report it as "
                "missing",
            ),
        ),
    )


def _without_mark(folder: Path, key_file: Path, how: str, advice: Advice) -> Obstacle:
    mark = mark_path(key_file)
    what = f"{mark}: {how}, so it is unknown whether the store was set back"
    copy = Remedy(f"put {mark.name} back from a copy made after the last release", "none")
    if key_files.is_laboratory(key_file):
        remove = Remedy(f"remove {mark.name}", "a store of this key that was set back before is not noticed")
        return Obstacle(what, (copy, remove))
    rebuild = Remedy(
        f"'tacet recover --store {folder} --key-file {key_file} --heads FILE'; FILE is what 'tacet audit verify "
        "--json' printed for this store, and was kept elsewhere",
        "what was released after FILE was made and is not in the store might be released again, differently: the newer "
        "FILE is, the less",
    )
    return Obstacle(what, (copy, rebuild, advice.new_ledger))
