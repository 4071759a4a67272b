"""One partition of the log: the engines of its sites, and the one record that can bring them back.

``feed`` takes the log's messages in order. ``snapshot`` gives a single value holding the state of every
site together with the next offset, so that state and position can never disagree. What was published after
that snapshot is known from the audit log (``published``): while such entries are outstanding, what comes
out again must be the same to the byte, or nothing comes out at all. A window begun under a policy is finished
under it: another policy begins when no entry of the one before is outstanding any more. So is a window begun under
a mechanism version, but only that version can: no other one takes the partition over before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from stream.errors import UsageError
from stream.keys import Keys, fingerprint
from stream.messages import decode_message
from stream.pipeline import DEFAULTS, Options, Output
from stream.policy.document import Policy
from stream.records import Message, Micros, ObservationBatch, Published, Rejected
from stream.release.stage import MECHANISMS
from stream.runners.emitted import Emitted, in_order, quarantined
from stream.runners.replay_guard import ReplayGuard, refuse_holes
from stream.runners.site_form import Stages, open_site
from stream.runners.sites import Sites
from stream.runners.snapshot import (
    BEFORE,
    PUT_BACK,
    begun_by_another,
    made_by,
    open_snapshot,
    refuse_differences,
    seal_snapshot,
    upgraded,
)
from stream.schemas import AUDIT
from stream.sensing.stamp import bounded

NO_STATE = f"no state is saved that goes with it; {PUT_BACK}; 'tacet recover --kafka' says what else can be done"


@dataclass(slots=True)
class Counters:
    """What went through; sums only, nothing about a device."""

    messages: int = 0
    rows: int = 0
    rejected: int = 0
    windows: int = 0


def _nobody(site: str) -> None:
    del site


@dataclass(frozen=True, slots=True)
class ShutSites:
    """What becomes of sites that shut at ``max_devices``."""

    alarm: Callable[[str], None] = _nobody
    """Called with each site that shuts, and again with each that is found shut at a start."""
    reopen: frozenset[str] = frozenset()
    """Sites that are to go on where they are found shut at a start, without an alarm."""


STAY_SHUT = ShutSites()


class Partition:
    """The engine of one partition."""

    def __init__(
        self,
        policy: Policy,
        keys: Keys,
        options: Options = DEFAULTS,
        *,
        accept_policy: bool = False,
        accepted: Iterable[Policy] = (),
        versions: Collection[str] = (MECHANISMS,),
        owns: Callable[[str], bool] | None = None,
        shut_sites: ShutSites = STAY_SHUT,
    ) -> None:
        """Take the policy to go on with, and all accepted ones in their order where they are kept.

        ``versions`` are the mechanism versions under which the partition may have been worked on. ``owns`` says whether
        a site belongs to this partition: a message of any other is not folded in.
        """
        self.sites = Sites(policy, keys, options, shut_sites.alarm)
        self.counters = Counters()
        self._shut_sites = shut_sites
        self._wanted = policy
        self._accepted = {each.version: each for each in accepted} | {policy.version: policy}
        self._owns = owns
        self._keys = keys
        self.vault = keys.vault
        """What encrypts at rest; None where nothing is kept."""
        self._accept_policy = accept_policy
        self._guard = ReplayGuard(keys.audit)
        self._audit_offset = 0
        self._versions = tuple(versions)
        self.made_by: str | None = None
        """The mechanism version that made the state it was restored from; None where it began without one."""
        self.unsaved = True
        """Whether no state of this mechanism version is saved yet, so that nothing may be published before one is.

        Then the entries beyond a saved state are those of the version that made it."""
        self._adopted = False

    @property
    def policy(self) -> Policy:
        """The policy under which it releases."""
        return self.sites.policy

    # --- position and state ---------------------------------------------------------------------------

    def restore(self, snapshot: bytes | None) -> int | None:
        """Forget everything and take a snapshot's state; return its next offset, None where there is none.

        UsageError when the snapshot was made under another policy that was not accepted, another mechanism
        version or another key.
        """
        self.sites.load(self._wanted, {}, same_policy=True)
        self._guard, self._audit_offset, self._adopted = ReplayGuard(self._keys.audit, advice=NO_STATE), 0, False
        self.made_by, self.unsaved = None, True
        if snapshot is None:
            return None
        head, _ = open_snapshot(snapshot)
        self.made_by = made_by(head)
        self.unsaved = self.made_by != MECHANISMS
        self._adopted = self.unsaved or head["policy"] != self._wanted.version
        if self._accept_policy and head["mechanisms"] in BEFORE:
            snapshot = upgraded(snapshot)
            head, _ = open_snapshot(snapshot)
        refuse_differences(head, self._keys, self._wanted, self._accepted, accept_policy=self._accept_policy)
        _, sites = open_snapshot(snapshot, self.vault)
        # until it is known what was published under it
        policy = self._accepted.get(head["policy"], self._wanted)
        same = head["policy"] == policy.version and not head.get("adopt", False)
        self.sites.load(policy, sites, same_policy=same)
        self._audit_offset = head["audit"]
        for site in self.sites.shut():
            if site in self._shut_sites.reopen:
                self.sites.reopen(site)
            else:
                self._shut_sites.alarm(site)
        last = head.get("last")
        self._guard = ReplayGuard(self._keys.audit, None if last is None else (last[0], last[1]))
        next_offset: int = head["next"]
        return next_offset

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        """Return the one record of this partition: position and the state of all sites."""
        self._audit_offset = audit_offset
        head = {
            "next": next_offset, "audit": audit_offset, "policy": self.sites.version,
            "mechanisms": MECHANISMS, "key": fingerprint(self._keys), "last": self._guard.mark(),
        }  # fmt: skip
        return seal_snapshot(head, self.sites.sealed())

    def adopted(self) -> bool:
        """Return whether another policy or mechanism version made the state that it was restored from."""
        return self._adopted

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state holds; None where that is not known."""
        return self._guard.last_read()

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state holds, as far as that is known."""
        return self._guard.recognises(key, value)

    def audit_offset(self) -> int:
        """Return the offset in the audit partition up to which the state knows what was published."""
        return self._audit_offset

    def resume_after_loss(self, next_offset: int) -> None:
        """Go on although messages before ``next_offset`` are gone: their windows will have coverage 0."""
        del next_offset
        self.sites.lose()

    def published(self, entries: Iterable[bytes], *, whole: bool = False) -> None:
        """Take the audit entries already in the log beyond the state; they must come out again equal.

        LossError when they are said to be the ``whole`` log, and the state's hash chains are not whole in them.
        UsageError when another mechanism version, or nobody knows which, has made them: an entry says nothing of the
        noise, so that it might come out equal and its release not.
        """
        chains, entries = self.sites.chains(), list(entries)
        if whole:
            refuse_holes(entries, chains)
        for value in entries:
            self._guard.add(value, chains)
        self._guard.keep_to(frozenset(chains).union(*(policy.site for policy in self._accepted.values())))
        if self._guard:
            self._refuse_other_version()
        self._follow_policy()

    def has_unreplayed_entries(self) -> bool:
        """Whether some of what was published has not come out again yet."""
        return bool(self._guard)

    def _refuse_other_version(self) -> None:
        if self.made_by not in (None, MECHANISMS):
            raise begun_by_another(self._guard.count(), self.made_by)
        if self.made_by is None and any(version != MECHANISMS for version in self._versions):
            msg = (
                f"ledger: {self._guard.count()} entries were published and there is no state, while mechanism versions "
                f"{', '.join(self._versions)} have worked here: nobody can say which made them; "
                "'tacet recover --kafka' says what can be done"
            )
            raise UsageError(msg)

    def _follow_policy(self) -> None:
        """Go on under the policy of the entries that must come out next; where there are none, the one wanted.

        UsageError when that policy is not known.
        """
        begun = self._guard.policies()
        if self.sites.version in begun or (not begun and self.policy is self._wanted):
            return
        if unknown := sorted(begun - self._accepted.keys()):
            msg = (
                f"policy: {unknown[0]} must be known, a window was begun under it; start a worker with that policy "
                "and --accept-policy, and when it has finished the window with the present one, --accept-policy and "
                "--again N, N as its refusal says"
            )
            raise UsageError(msg)
        due = next((policy for version, policy in self._accepted.items() if version in begun), self._wanted)
        sealed = self.sites.sealed()
        self.sites.load(due, self._opened(sealed), same_policy=False)

    def _opened(self, sealed: Mapping[str, bytes]) -> dict[str, Stages]:
        return {name: open_site(name, data, self.vault) for name, data in sealed.items()}

    # --- the log --------------------------------------------------------------------------------------

    def feed(self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None = None) -> list[Emitted]:
        """Fold one message in; return what to publish, audit entries first within each step of ``fold``.

        FinalityError when a released window would come out differently.
        """
        return [emitted for part, _ in self.fold(offset, key, value, stamp) for emitted in part]

    def fold(
        self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None
    ) -> Iterator[tuple[list[Emitted], bool]]:
        """Fold one message in, in steps of a bounded number of windows.

        ``stamp`` is when the log took the message, None for a recording: nothing that a message claims may lie
        further ahead of it than ``AHEAD``. Yields what each step publishes, audit entries first, and whether
        it was the last. After any step the state may be saved; before the last one the message is still the
        next, and folding it again goes on where it stopped. FinalityError as for ``feed``.
        """
        self._follow_policy()
        message, rejections = decode_message(value, self.vault)
        self.counters.messages += 1
        if message is not None:
            message, early = bounded(message, stamp)
            rejections += early
        if message is not None and (problem := self._foreign(message.site)):
            rejections.append(Rejected(message.source, problem, "site"))
            message = None
        for outputs, last in [([], True)] if message is None else self._steps(message):
            if last:
                self._guard.read(offset, key, value)
            yield self._emit([*rejections, *outputs], value), last
            rejections = []

    def _foreign(self, site: str) -> str | None:
        """Return why a site's message is not folded in, None if it is."""
        if self._owns is not None and not self._owns(site):
            return "wrong_partition"
        return None if site in self.policy.site else "unknown_site"

    def _steps(self, message: Message) -> Iterator[tuple[list[Output], bool]]:
        if isinstance(message, ObservationBatch):
            self.counters.rows += len(message.rows)
        for outputs, last in self.sites.steps(message):
            for output in outputs:
                if isinstance(output, Published) and output.topic == AUDIT:
                    self._guard.compare(message.site, output.value)
            yield outputs, last

    def _emit(self, outputs: list[Output], value: bytes) -> list[Emitted]:
        published = [output for output in outputs if isinstance(output, Published)]
        rejected = [output for output in outputs if isinstance(output, Rejected)]
        self.counters.rejected += len(rejected)
        self.counters.windows += len({output.time for output in published if output.topic == AUDIT})
        return in_order(published, self.vault) + [self._quarantined(rejection, value) for rejection in rejected]

    def _quarantined(self, rejection: Rejected, value: bytes) -> Emitted:
        now = max((mark for mark in self.sites.watermarks().values() if mark is not None), default=0)
        return quarantined(rejection, value, now=now, sources=self.sites.sources, audit_key=self._keys.audit)
