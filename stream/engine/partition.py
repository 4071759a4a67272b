"""The engine of one partition: the engines of its sites.

* ``process`` and ``process_in_steps`` process the log's messages in order.
* ``snapshot`` returns one value with the state of every site and the next offset, so state and position always agree.
* ``expect_replay`` accepts the audit entries that the log has beyond the snapshot. While such entries are outstanding,
  the engine must produce them again byte for byte; otherwise it publishes nothing.
* A window is finished under the policy under which it began. Another policy takes effect when no entry of the previous
  policy is outstanding.
* A window can be finished only by the mechanism version under which it began; until then no other version accepts the
  partition.

``SiteEngine`` is one site's pipeline with its state, ``SiteEngines`` all sites of a partition under one policy, and
``PartitionEngine`` implements ``stream.engine.ports.Engine``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stream.accounting.account import AccountState
from stream.encoding import LaterMessageError, Read, Sender, decode_message
from stream.encryption import Vault
from stream.engine.outputs import OutputRecord, ReplayVerifier, check_complete_chains, in_order, quarantined
from stream.engine.snapshot import (
    BEFORE,
    PUT_BACK,
    Stages,
    adopted_from,
    chain_of,
    entries_of_other_version,
    mechanism_version,
    open_site,
    open_snapshot,
    refuse_differences,
    seal_site,
    seal_snapshot,
)
from stream.errors import UsageError
from stream.keys import Keys, fingerprint, key_day_of
from stream.pipeline import ABSENT, DEFAULTS, Options, Output, Pipeline, SiteState
from stream.policy.document import PolicyDocument
from stream.records import Message, Micros, ObservationBatch, Published, Rejected
from stream.release.account_stage import current_account
from stream.release.stage import MECHANISMS
from stream.release.state import ReleaseState
from stream.release.validation import Policy, validate
from stream.schemas import AUDIT
from stream.sensing import watermark
from stream.sensing.counter_feed import COUNTERS
from stream.sensing.state import SensingState
from stream.sensing.watermark import MAX_CLOCK_SKEW, bounded, newest_session_of


class SiteEngine:
    """The pipeline of one site with its state."""

    def __init__(self, pipeline: Pipeline, state: SiteState, vault: Vault | None) -> None:
        self._pipeline = pipeline
        self._state = state
        self._vault = vault
        self._sealed: bytes | None = None
        """The compressed byte form of the state; None if the state has changed since."""

    def steps(self, message: Message) -> Iterator[tuple[list[Output], bool]]:
        """Process one message; see ``Pipeline.steps``."""
        for outputs, last in self._pipeline.steps(self._state, message):
            self._sealed = None
            yield outputs, last

    def sealed(self) -> bytes:
        """Return the state's byte form, compressed, and encrypted under the key of the oldest day that it needs.

        Each site's form is cached: when the windows of several sites close one after another, only one site has changed
        each time.
        """
        if self._sealed is None:
            start = self.oldest_start()
            key_day = -1 if start is None else key_day_of(start)
            self._sealed = seal_site(self._pipeline.site, self._pipeline.encode(self._state), self._vault, key_day)
        return self._sealed

    @property
    def is_suspended(self) -> bool:
        """Whether the site is suspended at ``max_devices``."""
        return self._pipeline.is_suspended(self._state)

    def resume(self) -> None:
        """Resume the suspended site with the next window."""
        self._sealed = None
        self._pipeline.resume(self._state)

    def mark_data_loss(self) -> None:
        """Record that messages are lost; their windows have coverage 0."""
        self._sealed = None
        self._pipeline.mark_data_loss(self._state)

    @property
    def sensing(self) -> SensingState:
        """The site's sensing state; callers must not change it."""
        return self._state.occupancy

    @property
    def chain(self) -> tuple[int, str]:
        """The site's next ledger sequence and the head of its hash chain."""
        ledger = self._state.release.ledger
        return ledger.sequence, ledger.head

    def oldest_start(self) -> Micros | None:
        """Return the start of the oldest window or local day that is not released yet; None before the first."""
        return self._pipeline.oldest_start(self._state.occupancy, self._state.attributes)

    def released_through(self) -> Micros | None:
        """Return the end of the latest released window; None when nothing has been released."""
        through = self._state.release.released_until
        return None if through < 0 else through

    def current_account(self, policy: Policy) -> dict[str, Any] | None:
        """Return the site's current account; see ``stream.release.account_stage``."""
        return current_account(policy, self._pipeline.stages.account, self._state.account, self._state.release)

    def release_state(self) -> ReleaseState:
        """Return the release state, which callers may change for releases that do not come from the log."""
        self._sealed = None
        return self._state.release

    def replace_account(self, account: AccountState) -> None:
        """Replace the account by one that was rebuilt."""
        self._sealed = None
        self._state.account = account


class SiteEngines:
    """The engines of all sites of a partition, under one policy."""

    def __init__(self, policy: Policy, keys: Keys, options: Options, alarm: Callable[[str], None]) -> None:
        """Start without any state; ``alarm`` is called with each site that is suspended at ``max_devices``.

        KeyFileError if the key file has no data key.
        """
        self._keys = keys
        self._vault = keys.vault
        self._options = options
        self._alarm = alarm
        self._set_policy(policy)
        self._engines: dict[str, SiteEngine] = {}
        self._absent: dict[str, bytes] = {}
        """Encoded states of sites that the policy no longer has: if they return, their ledgers must continue."""

    def _set_policy(self, policy: Policy) -> None:
        self.policy = policy
        self.version = policy.version
        counters = {COUNTERS} if any(site.feed == "counts" for site in policy.site.values()) else set[str]()
        self.sources = counters.union(*(site.sources for site in policy.site.values()))
        """All sources that the policy names, and ``COUNTERS`` where it has people counters."""

    def load(self, policy: Policy, sites: Mapping[str, Stages], *, same_policy: bool) -> None:
        """Replace all state by these states; states of another policy are adopted."""
        self._set_policy(policy)
        self._engines, self._absent = {}, {}
        for name, stages in sites.items():
            if name in policy.site:
                pipeline = self._pipeline(name)
                state = pipeline.decode(stages) if same_policy else pipeline.migrate(stages)
                self._engines[name] = SiteEngine(pipeline, state, self._vault)
            else:
                self._absent[name] = seal_site(name, {**stages, ABSENT: b""}, self._vault)

    def sealed(self) -> dict[str, bytes]:
        """Return each site's state in its compressed byte form."""
        return self._absent | {name: site.sealed() for name, site in self._engines.items()}

    def steps(self, message: Message) -> Iterator[tuple[list[Output], bool]]:
        """Process one message; see ``Pipeline.steps``."""
        name = message.site
        if name not in self._engines:
            pipeline = self._pipeline(name)
            self._engines[name] = SiteEngine(pipeline, pipeline.initial(), self._vault)
        site = self._engines[name]
        shut = site.is_suspended
        for outputs, last in site.steps(message):
            if site.is_suspended and not shut:
                self._alarm(name)
            yield outputs, last

    def _pipeline(self, name: str) -> Pipeline:
        return Pipeline(self.policy, name, self._keys, self._options)

    def get(self, name: str) -> SiteEngine | None:
        """Return the engine of a site; None if no message of the site has been read."""
        return self._engines.get(name)

    def current_account(self, name: str) -> dict[str, Any] | None:
        """Return a site's current account; None if nothing has been released."""
        return self._engines[name].current_account(self.policy) if name in self._engines else None

    def suspended_sites(self) -> list[str]:
        """Return the sites suspended at ``max_devices``: they accept and release nothing until resumed."""
        return sorted(name for name, site in self._engines.items() if site.is_suspended)

    def resume(self, name: str) -> None:
        """Resume a suspended site with the next window; UsageError if it is not suspended."""
        if name not in self.suspended_sites():
            shut = ", ".join(self.suspended_sites()) or "none"
            msg = f"site {name!r}: must be one that has shut at max_devices ({shut})"
            raise UsageError(msg)
        self._engines[name].resume()

    def mark_data_loss(self) -> None:
        """Record that messages of any of the sites are lost."""
        for site in self._engines.values():
            site.mark_data_loss()

    def sensing(self) -> dict[str, SensingState]:
        """Return each site's sensing state; callers must not change it."""
        return {name: site.sensing for name, site in self._engines.items()}

    def watermarks(self) -> dict[str, Micros | None]:
        """Return each site's watermark."""
        return {name: state.clock.watermark for name, state in self.sensing().items()}

    def chains(self) -> dict[str, tuple[int, str]]:
        """Return each site's next ledger sequence and the head of its hash chain."""
        absent = {name: chain_of(open_site(name, sealed)) for name, sealed in self._absent.items()}
        return absent | {name: site.chain for name, site in self._engines.items()}

    def oldest_key_day_needed(self) -> int | None:
        """Return the oldest UTC day whose key an unfinished release still needs; None when not known yet.

        A site of which no source has sent a heartbeat needs none, whether or not it has observations.
        """
        starts = [site.oldest_start() for site in self._engines.values() if watermark.has_begun(site.sensing.clock)]
        known = [start for start in starts if start is not None]
        if len(known) < len(starts) or not known:
            return None
        return min(key_day_of(start) for start in known)


NO_STATE = f"no state is saved that goes with it; {PUT_BACK}; 'tacet recover --kafka' says what else can be done"


@dataclass(slots=True)
class Counters:
    """Totals of what was processed; nothing about a single device."""

    messages: int = 0
    rows: int = 0
    rejected: int = 0
    windows: int = 0


def _no_alarm(site: str) -> None:
    del site


@dataclass(frozen=True, slots=True)
class OverflowPolicy:
    """How sites that are suspended at ``max_devices`` are handled."""

    alarm: Callable[[str], None] = _no_alarm
    """Called with each site that is suspended, and again at a start with each that still is."""
    resume: frozenset[str] = frozenset()
    """Sites that are resumed at a start if they are suspended, without an alarm."""


STAY_SHUT = OverflowPolicy()


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
        versions: Collection[str] = (MECHANISMS,),
        owns: Callable[[str], bool] | None = None,
        overflow: OverflowPolicy = STAY_SHUT,
    ) -> None:
        """``policy`` is the policy to use from now on; ``accepted`` are all accepted policies in order, if they are
        stored.

        ``versions`` are the mechanism versions that may have processed this partition. ``owns`` says whether a site
        belongs to this partition; messages of other sites are rejected.
        """
        self.sites = SiteEngines(policy, keys, options, overflow.alarm)
        self.counters = Counters()
        self._overflow = overflow
        self._configured_policy = policy
        self._accepted: dict[str, PolicyDocument] = {each.version: each for each in accepted} | {policy.version: policy}
        self._owns = owns
        self._keys = keys
        self.vault = keys.vault
        """The data keys for encryption at rest; None if nothing is stored."""
        self._accept_policy = accept_policy
        self._guard = ReplayVerifier(keys.audit)
        self._audit_offset = 0
        self._versions = tuple(versions)
        self.mechanism_version: str | None = None
        """The mechanism version that made the restored state; None if there was no state."""
        self.unsaved = True
        """Whether no state of this mechanism version is saved yet; a state must then be saved before any publication.

        The entries beyond a saved state are therefore always those of the version that made the state."""
        self._adopted = False

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
        self.sites.load(self._configured_policy, {}, same_policy=True)
        self._guard, self._audit_offset, self._adopted = ReplayVerifier(self._keys.audit, advice=NO_STATE), 0, False
        self.mechanism_version, self.unsaved = None, True
        if snapshot is None:
            return None
        head, _ = open_snapshot(snapshot)
        self.mechanism_version = mechanism_version(head)
        self.unsaved = self.mechanism_version != MECHANISMS
        self._adopted = self.unsaved or head["policy"] != self._configured_policy.version
        if self._accept_policy and head["mechanisms"] in BEFORE:
            snapshot = adopted_from(snapshot)
            head, _ = open_snapshot(snapshot)
        refuse_differences(head, self._keys, self._configured_policy, self._accepted, accept_policy=self._accept_policy)
        _, sites = open_snapshot(snapshot, self.vault)
        # the policy in effect until ``expect_replay`` has received the outstanding entries
        policy = self._accepted_policy(head["policy"])
        same = head["policy"] == policy.version and not head.get("adopt", False)
        self.sites.load(policy, sites, same_policy=same)
        self._audit_offset = head["audit"]
        for site in self.sites.suspended_sites():
            if site in self._overflow.resume:
                self.sites.resume(site)
            else:
                self._overflow.alarm(site)
        last = head["last"]
        self._guard = ReplayVerifier(self._keys.audit, None if last is None else (last[0], last[1]))
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

    def rehearse(self, snapshot: bytes) -> bytes:
        """Return a snapshot's state as the configured policy adopts it, encoded and read again; for a trial run."""
        position = self.restore(snapshot)
        self.sites.load(self._configured_policy, self._decrypted(self.sites.sealed()), same_policy=False)
        adopted = self.snapshot(position or 0, self._audit_offset)
        self.sites.load(self._configured_policy, open_snapshot(adopted, self.vault)[1], same_policy=True)
        return adopted

    def adopted(self) -> bool:
        """Return whether another policy or mechanism version made the restored state."""
        return self._adopted

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state includes; None if that is not known."""
        return self._guard.last_read()

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state includes; True if that is not known."""
        return self._guard.recognises(key, value)

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
            self._guard.add(value, chains)
        self._guard.keep_to(frozenset(chains).union(*(policy.site for policy in self._accepted.values())))
        if self._guard:
            self._refuse_other_version()
        self._follow_policy()

    def has_unreplayed_entries(self) -> bool:
        """Whether some published entries have not been replayed yet."""
        return bool(self._guard)

    def _refuse_other_version(self) -> None:
        if self.mechanism_version not in (None, MECHANISMS):
            raise entries_of_other_version(self._guard.count(), self.mechanism_version)
        if self.mechanism_version is None and any(version != MECHANISMS for version in self._versions):
            msg = (
                f"ledger: {self._guard.count()} entries were published and there is no state, while mechanism versions "
                f"{', '.join(self._versions)} have worked here: it is not known which of them made the entries; "
                "'tacet recover --kafka' says what can be done"
            )
            raise UsageError(msg)

    def _follow_policy(self) -> None:
        """Switch to the policy of the entries to be replayed next; if there are none, to the configured policy.

        UsageError if that policy is not known.
        """
        versions = self._guard.policies()
        if self.sites.version in versions or (not versions and self.policy is self._configured_policy):
            return
        if unknown := sorted(versions - self._accepted.keys()):
            msg = (
                f"policy: {unknown[0]} must be known, since a window began under it; start a worker with that policy "
                "and --accept-policy, and when it has finished the window with the present one, --accept-policy and "
                "--again N, with the number N from its error message"
            )
            raise UsageError(msg)
        due = self._accepted_policy(next((version for version in self._accepted if version in versions), None))
        sealed = self.sites.sealed()
        self.sites.load(due, self._decrypted(sealed), same_policy=False)

    def _accepted_policy(self, version: str | None) -> Policy:
        """Return the accepted policy of a version, validated; the configured one if no accepted one has it."""
        document = self._accepted.get(version) if version is not None else None
        return (
            self._configured_policy
            if document is None or version == self._configured_policy.version
            else validate(document)
        )

    def _decrypted(self, sealed: Mapping[str, bytes]) -> dict[str, Stages]:
        return {name: open_site(name, data, self.vault) for name, data in sealed.items()}

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
                self._guard.read(offset, key, value)
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
                    self._guard.compare(message.site, output.value)
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
