"""The engine of one partition: processes the log's messages in order, from a restored state.

``PartitionEngine`` implements ``stream.engine.ports.Engine``. Its parts are ``Continuation`` (from which state, and
under which policy and mechanism version), ``SiteEngines`` (the state of all sites under one policy) and
``ReplayVerifier`` (the audit entries that must be repeated). State and position are saved in one value, so they always
agree.


States of an engine
===================

    state      meaning
    LIVE       no published audit entry is outstanding
    REPLAYING  audit entries beyond the state were published; they must be repeated before the configured policy begins

    state      event                                              next       action
    -          PartitionEngine()                                  LIVE       empty, under the configured policy
    any        restore(None)                                      LIVE       empty, under the configured policy
    any        restore(snapshot)                                  LIVE       that state, under the policy that made it
    any        restore: other key, version or unaccepted policy   (same)     UsageError
    any        expect_replay: no entries beyond the state         (same)     the due policy takes effect
    any        expect_replay: entries beyond the state            REPLAYING  the due policy takes effect
    any        expect_replay: of another mechanism version        REPLAYING  UsageError; the engine must not be used
    LIVE       process                                            LIVE       the configured policy is in effect
    REPLAYING  process: the entry equals its outstanding copy     REPLAYING  after the last one LIVE
    REPLAYING  process: the entry differs                         REPLAYING  FinalityError; the step publishes nothing

The due policy is that of the sites' next outstanding entries; if there are none, the configured one
(``Continuation.due_policy``). It is looked up before each message.


Steps of a message
==================

1. Switch to the due policy.
2. Decode. A message of a later version ends the engine if its sender can be genuine; any other unreadable message is
   rejected.
3. Reject times that are too far ahead of the stamp (``bounded``).
4. Reject messages of sites that belong to another partition or to no site of the policy.
5. Run the site's pipeline, step by step. Compare each audit entry with its outstanding copy.
6. With the last step, note the message as read.
7. Return the records of the step: audit entries, then the records that they pay for, then rejections, in quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from stream.accounting.ledger import REPEATED
from stream.encoding import LaterMessageError, Read, Sender, decode_message
from stream.engine.continuation import PUT_BACK, Continuation
from stream.engine.outputs import OutputRecord, ReplayVerifier, check_complete_chains, in_order, quarantined
from stream.engine.site_engines import STAY_SUSPENDED, OverflowPolicy, SiteEngines
from stream.engine.snapshot import SnapshotHead, open_snapshot, seal_snapshot
from stream.keys import Keys, fingerprint
from stream.pipeline import DEFAULTS, Options, Output
from stream.policy.document import PolicyDocument
from stream.records import Message, Micros, ObservationBatch, Published, Rejected
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy
from stream.schemas import AUDIT
from stream.sensing.watermark import MAX_CLOCK_SKEW, bounded, newest_session_of

NO_STATE = f"no state is saved that belongs to it; {PUT_BACK}; 'tacet recover --kafka' lists the other remedies"


@dataclass(slots=True)
class Counters:
    """Totals of what was processed; nothing about a single device."""

    messages: int = 0
    rows: int = 0
    rejected: int = 0
    windows: int = 0


class PartitionEngine:
    """The engine of one partition."""

    def __init__(
        self,
        policy: Policy,
        keys: Keys,
        options: Options = DEFAULTS,
        *,
        accept_policy: bool = False,
        accepted: Iterable[PolicyDocument] = (),
        versions: Collection[str] = (MECHANISM_VERSION,),
        owns: Callable[[str], bool] | None = None,
        overflow: OverflowPolicy = STAY_SUSPENDED,
    ) -> None:
        """``policy`` is the policy to use from now on; ``accepted`` are all accepted policies in order, if they are
        stored.

        ``versions`` are the mechanism versions that may have processed this partition. ``owns`` says whether a site
        belongs to this partition; messages of other sites are rejected.
        """
        self.sites = SiteEngines(policy, keys, options, overflow)
        self.counters = Counters()
        self._continuation = Continuation(policy, accepted, versions, accept_policy=accept_policy)
        self._owns = owns
        self._keys = keys
        self.vault = keys.vault
        """The data keys for encryption at rest; None if nothing is stored."""
        self._verifier = ReplayVerifier(keys.audit)
        self._restored = self._continuation.read(None, keys)
        self._audit_offset = 0

    @property
    def policy(self) -> Policy:
        """The policy under which the engine releases now."""
        return self.sites.policy

    # --- position and state ---------------------------------------------------------------------------

    def restore(self, snapshot: bytes | None) -> int | None:
        """Replace all state by that of a snapshot; return its next offset, None if there is no snapshot.

        UsageError if the snapshot was made under another policy that was not accepted, another mechanism version or
        another key.
        """
        state = self._continuation.read(snapshot, self._keys)
        self.sites.load(state.policy, state.sites, same_policy=not state.is_migrated)
        self._restored, self._audit_offset = state._replace(sites={}), state.audit_offset
        self._verifier = ReplayVerifier(self._keys.audit, state.last, NO_STATE if snapshot is None else REPEATED)
        self.sites.resume_or_report_suspended()
        return state.next_offset

    @property
    def mechanism_version(self) -> str | None:
        """The mechanism version that made the restored state; None if there was no state."""
        return self._restored.made_by

    @property
    def unsaved(self) -> bool:
        """Whether there was no saved state of this mechanism version; one must then be saved before any publication.

        The entries beyond a saved state are therefore always those of the version that made the state.
        """
        return self._restored.made_by != MECHANISM_VERSION

    def adopted(self) -> bool:
        """Return whether another policy or mechanism version made the restored state."""
        return self._restored.is_adopted

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        """Return the one record of this partition: position and the state of all sites."""
        self._audit_offset = audit_offset
        key, last = fingerprint(self._keys), self._verifier.mark()
        head = SnapshotHead(next_offset, audit_offset, self.sites.version, MECHANISM_VERSION, key, last)
        return seal_snapshot(head, self.sites.sealed())

    def rehearse(self, snapshot: bytes) -> bytes:
        """Return a snapshot's state as the configured policy adopts it, encoded and read again; for a trial run."""
        position = self.restore(snapshot)
        self.sites.switch_policy(self._continuation.configured)
        adopted = self.snapshot(position or 0, self._audit_offset)
        self.sites.load(self.policy, open_snapshot(adopted, self.vault)[1], same_policy=True)
        return adopted

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state includes; None if that is not known."""
        return self._verifier.last_read()

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state includes; True if that is not known."""
        return self._verifier.recognises(key, value)

    def audit_offset(self) -> int:
        """Return the offset up to which the state knows the audit partition."""
        return self._audit_offset

    def due(self) -> dict[str, Micros]:
        """Return the end of the next window of each site that has closed one."""
        states = self.sites.sensing().items()
        return {site: state.next_tick for site, state in states if state.next_tick is not None}

    def resume_after_loss(self, next_offset: int) -> None:
        """Continue although messages before ``next_offset`` are lost; their windows have coverage 0."""
        del next_offset
        self._verifier.forget_last_read()
        self.sites.mark_data_loss()

    def expect_replay(self, entries: Iterable[bytes], *, complete: bool = False) -> None:
        """Pass the audit entries that the log has beyond the state; they must be replayed equal.

        LossError if they are the ``complete`` log and do not contain the state's complete hash chains. UsageError if
        another or an unknown mechanism version made them: an entry does not show the noise, so equal entries would not
        prove equal releases.
        """
        chains, entries = self.sites.chains(), list(entries)
        if complete:
            check_complete_chains(entries, chains)
        for value in entries:
            self._verifier.add(value, chains)
        self._verifier.keep_to(self._continuation.sites.union(chains))
        if self._verifier:
            self._continuation.refuse_other_version(self.mechanism_version, self._verifier.count())
        self._follow_policy()

    def has_unreplayed_entries(self) -> bool:
        """Whether some published entries have not been replayed yet."""
        return bool(self._verifier)

    def _follow_policy(self) -> None:
        """Switch to the policy of the entries to be replayed next; UsageError if it is not known."""
        due = self._continuation.due_policy(self.sites.version, self._verifier.policies())
        if due is not None:
            self.sites.switch_policy(due)

    # --- the log --------------------------------------------------------------------------------------

    def process(self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None = None) -> list[OutputRecord]:
        """Process one message; return the records to publish, audit entries first within each step of
        ``process_in_steps``.

        FinalityError if a released window would be released differently.
        """
        return [emitted for part, _ in self.process_in_steps(offset, key, value, stamp) for emitted in part]

    def process_in_steps(
        self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None
    ) -> Iterator[tuple[list[OutputRecord], bool]]:
        """Process one message in steps of a bounded number of windows.

        ``stamp`` is the time at which the log appended the message, None for a recording; no time in a message may lie
        more than ``MAX_CLOCK_SKEW`` ahead of it. Yields the records of each step, audit entries first, and whether it
        was the last. The state may be saved after any step; before the last one this message's offset is still the next
        one, and processing it again continues after that step.

        Raises:
            FinalityError: as for ``process``.
            LaterVersionError: a later version of this program wrote the message; nothing of it is processed.
        """
        self._follow_policy()
        message, rejections = self._decoded(value, stamp)
        self.counters.messages += 1
        if message is not None:
            message, early = bounded(message, stamp)
            rejections += early
        if message is not None and (problem := self._foreign(message.site)):
            rejections.append(Rejected(message.source, problem, "site"))
            message = None
        for outputs, last in [([], True)] if message is None else self._steps(message):
            if last:
                self._verifier.note_read(offset, key, value)
            yield self._emit([*rejections, *outputs], value), last
            rejections = []

    def _decoded(self, value: bytes, stamp: Micros | None) -> Read:
        try:
            return decode_message(value, self.vault)
        except LaterMessageError as later:
            if self._may_send(later.sender, stamp):
                raise
        return None, [Rejected("unknown", "version", "v")]

    def _may_send(self, sender: Sender, stamp: Micros | None) -> bool:
        """Return whether a later version's message can be genuine: source in the policy, session neither replaced nor
        ahead of the stamp.

        A message that no version would accept must not stop the engine.
        """
        engine = self.sites.get(sender.site)
        newest = -1 if engine is None else newest_session_of(engine.sensing.clock, sender.source)
        return (
            self._foreign(sender.site) is None
            and sender.source in self.policy.site[sender.site].sources
            and max(newest, 0) <= sender.session
            and (stamp is None or sender.session <= stamp + MAX_CLOCK_SKEW)
        )

    def _foreign(self, site: str) -> str | None:
        """Return the reason why a site's messages are rejected, None if they are processed."""
        if self._owns is not None and not self._owns(site):
            return "wrong_partition"
        return None if site in self.policy.site else "unknown_site"

    def _steps(self, message: Message) -> Iterator[tuple[list[Output], bool]]:
        if isinstance(message, ObservationBatch):
            self.counters.rows += len(message.rows)
        for outputs, last in self.sites.steps(message):
            for output in outputs:
                if isinstance(output, Published) and output.topic == AUDIT:
                    self._verifier.compare(message.site, output.value)
            yield outputs, last

    def _emit(self, outputs: list[Output], value: bytes) -> list[OutputRecord]:
        published = [output for output in outputs if isinstance(output, Published)]
        rejected = [output for output in outputs if isinstance(output, Rejected)]
        self.counters.rejected += len(rejected)
        self.counters.windows += len({output.time for output in published if output.topic == AUDIT})
        return in_order(published, self.vault) + [self._quarantined(rejection, value) for rejection in rejected]

    def _quarantined(self, rejection: Rejected, value: bytes) -> OutputRecord:
        now = max((mark for mark in self.sites.watermarks().values() if mark is not None), default=0)
        return quarantined(rejection, value, now=now, sources=self.sites.sources, audit_key=self._keys.audit)
