"""One partition of the log: the pipelines of all its sites, and the one record that can bring them back.

``feed`` takes the log's messages in order. ``snapshot`` gives a single value holding the state of every
site together with the next offset, so that state and position can never disagree. What was published after
that snapshot is known from the audit log (``published``): while such entries are outstanding, what comes
out again must be the same to the byte, or nothing comes out at all. A window begun under a policy is finished
under it: another policy begins when no entry of the one before is outstanding any more.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from stream.accounting.account import AccountState
from stream.accounting.ledger import LedgerState
from stream.errors import FinalityError, UsageError
from stream.keys import Keys, key_day
from stream.pipeline import AWAY, DEFAULTS, Options, Output, Pipeline, SiteState
from stream.policy.document import Policy
from stream.records import (
    DAY,
    DayClosed,
    Heartbeat,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Published,
    Rejected,
)
from stream.release.late import LateReleases
from stream.release.stage import MECHANISMS
from stream.release.state import ReleaseState
from stream.runners.outstanding import Outstanding
from stream.runners.snapshot import (
    BEFORE,
    Stages,
    chain_of,
    open_site,
    open_snapshot,
    seal_site,
    seal_snapshot,
    upgraded,
)
from stream.schemas import AUDIT, QUARANTINE, decode_message
from stream.sensing.occupancy import SenseState
from stream.sensing.stamp import bounded


class Emitted(NamedTuple):
    """One record on its way to a topic, in publishing order: audit entries come first."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    checkpoint: bool
    """Whether a window closed with this message."""
    id: str


@dataclass(slots=True)
class Counters:
    """What went through; sums only, nothing about a device."""

    messages: int = 0
    rows: int = 0
    rejected: int = 0
    windows: int = 0


@dataclass(slots=True)
class _Site:
    pipeline: Pipeline
    states: SiteState
    encoded: bytes | None = None
    """The compressed byte form of ``states`` where it has been made since they last changed."""


def _nobody(site: str) -> None:
    del site


class Partition:
    """The engine of one partition."""

    def __init__(
        self,
        policy: Policy,
        keys: Keys,
        options: Options = DEFAULTS,
        *,
        accept_policy: bool = False,
        alarm: Callable[[str], None] = _nobody,
        reopen: Collection[str] = (),
        accepted: Iterable[Policy] = (),
        owns: Callable[[str], bool] | None = None,
    ) -> None:
        """Take the policy to go on with, and all accepted ones in their order where they are kept.

        ``owns`` says whether a site belongs to this partition: a message of any other is not folded in. ``alarm``
        is told of each site that shuts, and again of each that is found shut at a start, unless it is in ``reopen``:
        these go on instead.
        """
        self._alarm = alarm
        self._reopen = frozenset(reopen)
        self._wanted = policy
        self._accepted = {each.version: each for each in accepted} | {policy.version: policy}
        self._owns = owns
        self._keys = keys
        self._options = options
        self._accept_policy = accept_policy
        self._sites: dict[str, _Site] = {}
        self._absent: dict[str, bytes] = {}
        """Encoded states of sites that the policy no longer has: their books must not begin anew one day."""
        self._outstanding = Outstanding()
        self._audit_offset = 0
        self._last: tuple[int, str] | None = None
        """Offset and keyed digest of the last message that was folded in whole."""
        self._unmarked: tuple[int, bytes | None, bytes] | None = None
        """The same message where its digest has not been made yet."""
        self.counters = Counters()
        self._use(policy)

    def _use(self, policy: Policy) -> None:
        self._policy = policy
        self._version = policy.version
        self._sources = {source for site in policy.site.values() for source in site.sources}

    # --- position and state ---------------------------------------------------------------------------

    def restore(self, snapshot: bytes | None) -> int | None:
        """Forget everything and take a snapshot's state; return its next offset, None where there is none.

        UsageError when the snapshot was made under another policy that was not accepted, another mechanism
        version or another key.
        """
        self._use(self._wanted)
        self._sites, self._absent, self._outstanding = {}, {}, Outstanding()
        self._audit_offset, self._last, self._unmarked = 0, None, None
        if snapshot is None:
            return None
        body, sites = open_snapshot(snapshot)
        if self._accept_policy and body["mechanisms"] == BEFORE:
            body, sites = open_snapshot(upgraded(snapshot))
        self._refuse_differences(body)
        if body["policy"] in self._accepted:  # until it is known what was published under it
            self._use(self._accepted[body["policy"]])
        self._load(sites, same_policy=body["policy"] == self._version and not body.get("adopt", False))
        self._audit_offset = body["audit"]
        for site in self.shut_sites():
            if site in self._reopen:
                self.reopen(site)
            else:
                self._alarm(site)
        if body.get("last") is not None:
            self._last = body["last"][0], body["last"][1]
        next_offset: int = body["next"]
        return next_offset

    def _load(self, sites: Mapping[str, Stages], *, same_policy: bool) -> None:
        self._sites, self._absent = {}, {}
        for site, stages in sites.items():
            if site in self._policy.site:
                self._sites[site] = self._revive(site, stages, same_policy=same_policy)
            else:
                self._absent[site] = seal_site({**stages, AWAY: b""})

    def shut_sites(self) -> list[str]:
        """Return the sites that have shut at ``max_devices``: they take and release nothing until reopened."""
        return sorted(name for name, site in self._sites.items() if site.pipeline.shut(site.states))

    def reopen(self, name: str) -> None:
        """Let a shut site go on with the next window; UsageError when it is not shut."""
        if name not in self.shut_sites():
            shut = ", ".join(self.shut_sites()) or "none"
            msg = f"site {name!r}: must be one that has shut at max_devices ({shut})"
            raise UsageError(msg)
        site = self._sites[name]
        site.encoded = None
        site.pipeline.reopen(site.states)

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        """Return the one record of this partition: position and the state of all sites."""
        self._audit_offset = audit_offset
        head = {
            "next": next_offset, "audit": audit_offset, "policy": self._version,
            "mechanisms": MECHANISMS, "key": fingerprint(self._keys), "last": self._mark(),
        }  # fmt: skip
        return seal_snapshot(head, self._sealed())

    def _sealed(self) -> dict[str, bytes]:
        return self._absent | {name: _encoded(site) for name, site in self._sites.items()}

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state holds; None where that is not known."""
        return None if self._last is None else self._last[0]

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state holds, as far as that is known."""
        return self._last is None or hmac.compare_digest(self._last[1], self._digest(self._last[0], key, value))

    def _mark(self) -> tuple[int, str] | None:
        if self._unmarked is not None:
            offset, key, value = self._unmarked
            self._last, self._unmarked = (offset, self._digest(offset, key, value)), None
        return self._last

    def _digest(self, offset: int, key: bytes | None, value: bytes) -> str:
        """Return what tells a message from any other without telling what it holds."""
        text = b"tacet message v1 %d %d " % (offset, len(key or b"")) + (key or b"") + value
        return hmac.new(self._keys.audit, text, hashlib.sha256).hexdigest()[:32]

    def audit_offset(self) -> int:
        """Return the offset in the audit partition up to which the state knows what was published."""
        return self._audit_offset

    def resume_after_loss(self, next_offset: int) -> None:
        """Go on although messages before ``next_offset`` are gone: their windows will have coverage 0."""
        del next_offset
        for site in self._sites.values():
            site.encoded = None
            site.pipeline.lose(site.states)

    def published(self, entries: Iterable[bytes]) -> None:
        """Take the audit entries already in the log beyond the state; they must come out again equal."""
        chains = self.chains()
        for value in entries:
            self._outstanding.add(value, chains)
        self._outstanding.keep_to(frozenset(chains).union(*(policy.site for policy in self._accepted.values())))
        self._follow_policy()

    def _follow_policy(self) -> None:
        """Go on under the policy of the entries that must come out next; where there are none, the one wanted.

        UsageError when that policy is not known.
        """
        begun = self._outstanding.policies()
        if self._version in begun or (not begun and self._version == self._wanted.version):
            return
        if unknown := sorted(begun - self._accepted.keys()):
            msg = (
                f"policy: {unknown[0]} must be known, a window was begun under it; start a worker with that policy "
                "and --accept-policy, and with the new one when it has finished the window"
            )
            raise UsageError(msg)
        due = next((policy for version, policy in self._accepted.items() if version in begun), self._wanted)
        sealed = self._sealed()
        self._use(due)
        self._load({name: open_site(data) for name, data in sealed.items()}, same_policy=False)

    def _refuse_differences(self, body: dict[str, Any]) -> None:
        if body["key"] != fingerprint(self._keys):
            msg = "key: must be the one this state was made with; another key would break its promises"
            raise UsageError(msg)
        if body["mechanisms"] != MECHANISMS:
            msg = (
                f"mechanism version: must be {body['mechanisms']}, under which this state was made, got {MECHANISMS}; "
                "'tacet store upgrade', or --accept-policy, lets it begin with the next window"
            )
            raise UsageError(msg)
        if body["policy"] not in self._accepted and not self._accept_policy:
            msg = (
                f"policy: must be version {body['policy']}, under which this state was made, got "
                f"{self._version}; --accept-policy lets the new one begin with the next window"
            )
            raise UsageError(msg)

    def _revive(self, site: str, encoded: dict[str, bytes], *, same_policy: bool) -> _Site:
        pipeline = Pipeline(self._policy, site, self._keys, self._options)
        if same_policy:
            return _Site(pipeline, pipeline.decode(encoded))
        return _Site(pipeline, pipeline.adopt(encoded))

    @property
    def policy(self) -> Policy:
        """The policy under which it releases."""
        return self._policy

    def released_through(self, site: str) -> Micros | None:
        """Return the end of a site's latest released window; None when it has released nothing."""
        if site not in self._sites:
            return None
        through = self._sites[site].states.release.through
        return None if through < 0 else through

    def books(self, name: str) -> ReleaseState:
        """Return a site's books, for what is released besides the log."""
        site = self._sites[name]
        site.encoded = None
        return site.states.release

    def release_past(
        self, name: str, releases: LateReleases, item: OccupancyWindow | DayClosed, aside: ReleaseState
    ) -> list[Emitted]:
        """Release a window or day that was passed over, into the site's books; ``aside`` is its smoothing."""
        made = releases.past(self.books(name), item, aside)
        return self._emit([output for output in made if isinstance(output, Published)], b"")

    def rebuilt(self, name: str, account: AccountState, records: Iterable[Published]) -> list[Emitted]:
        """Go on from an account that was added up anew; return its records."""
        site = self._sites[name]
        site.encoded, site.states.account = None, account
        return self._emit([*records], b"")

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
        message, rejections = decode_message(value)
        self.counters.messages += 1
        if message is not None:
            message, early = bounded(message, stamp)
            rejections += early
        if message is not None and (problem := self._foreign(message.site)):
            rejections.append(Rejected(message.source, problem, "site"))
            message = None
        for outputs, last in [([], True)] if message is None else self._steps(message):
            if last:
                self._unmarked = offset, key, value
            yield self._emit([*rejections, *outputs], value), last
            rejections = []

    def _foreign(self, site: str) -> str | None:
        """Return why a site's message is not folded in, None if it is."""
        if self._owns is not None and not self._owns(site):
            return "wrong_partition"
        return None if site in self._policy.site else "unknown_site"

    def _steps(self, message: ObservationBatch | Heartbeat) -> Iterator[tuple[list[Output], bool]]:
        site = self._site(message.site)
        if isinstance(message, ObservationBatch):
            self.counters.rows += len(message.rows)
        shut = site.pipeline.shut(site.states)
        for outputs, last in site.pipeline.steps(site.states, message):
            site.encoded = None
            if site.pipeline.shut(site.states) and not shut:
                self._alarm(message.site)
            for output in outputs:
                if isinstance(output, Published) and output.topic == AUDIT:
                    self._outstanding.compare(message.site, output.value)
            yield outputs, last

    def _emit(self, outputs: list[Output], value: bytes) -> list[Emitted]:
        published = [output for output in outputs if isinstance(output, Published)]
        rejected = [output for output in outputs if isinstance(output, Rejected)]
        self.counters.rejected += len(rejected)
        closed = any(output.topic == AUDIT for output in published) or len(published) > 0
        self.counters.windows += len({output.time for output in published if output.topic == AUDIT})
        published.sort(key=lambda output: output.topic != AUDIT)
        emitted = [
            Emitted(out.topic, out.key.encode(), out.value, out.time // 1000, closed, out.id) for out in published
        ]
        return emitted + [self._quarantine(rejection, value) for rejection in rejected]

    def _quarantine(self, rejection: Rejected, value: bytes) -> Emitted:
        """Say what was wrong with a message without keeping it: rounded length and a keyed digest.

        Its time is how far the sites have come, 0 before any has. A log that is kept by the clock on the wall
        stamps it anew (Kafka); a store counts its days from the first time there is.
        """
        now = max((mark for mark in self.watermarks().values() if mark is not None), default=0)
        day = now // DAY
        source = rejection.source if rejection.source in self._sources else "unknown"
        daily = hmac.new(self._keys.audit, f"quarantine {day}".encode(), hashlib.sha256).digest()
        body = {
            "v": 1, "source": source, "reason": rejection.reason, "place": rejection.place,
            "length": -(-len(value) // 64) * 64,
            "digest": hmac.new(daily, value, hashlib.sha256).hexdigest()[:32],
        }  # fmt: skip
        return Emitted(QUARANTINE, source.encode(), orjson.dumps(body), now // 1000, False, "")

    # --- sites ----------------------------------------------------------------------------------------

    def _site(self, name: str) -> _Site:
        if name not in self._sites:
            pipeline = Pipeline(self._policy, name, self._keys, self._options)
            self._sites[name] = _Site(pipeline, pipeline.initial())
        return self._sites[name]

    def watermarks(self) -> dict[str, Micros | None]:
        """Return each site's watermark."""
        return {name: state.clock.watermark for name, state in self.sensing().items()}

    def sensing(self) -> dict[str, SenseState]:
        """Return each site's state of sensing; not to be changed."""
        return {name: site.states.sense for name, site in self._sites.items()}

    def chains(self) -> dict[str, tuple[int, str]]:
        """Return each site's next ledger sequence and the head of its chain."""
        absent = {name: chain_of(open_site(sealed)) for name, sealed in self._absent.items()}
        return absent | {name: (_chain(site).sequence, _chain(site).head) for name, site in self._sites.items()}

    def has_unreplayed_entries(self) -> bool:
        """Whether some of what was published has not come out again yet."""
        return bool(self._outstanding)

    def oldest_day_needed(self) -> int | None:
        """Return the oldest UTC day whose key an unfinished release still needs; None when not known yet."""
        starts = [
            site.pipeline.oldest_start(site.states.sense, site.states.attributes) for site in self._sites.values()
        ]
        known = [start for start in starts if start is not None]
        if len(known) < len(starts) or not known:
            return None
        return min(key_day(start) for start in known)


def _encoded(site: _Site) -> bytes:
    """Compressed site by site: several sites' windows close at once, and only one has changed each time."""
    if site.encoded is None:
        site.encoded = seal_site(site.pipeline.encode(site.states))
    return site.encoded


def _chain(site: _Site) -> LedgerState:
    return site.states.release.ledger


def fingerprint(keys: Keys) -> str:
    """Return what identifies a key file without telling anything of its keys."""
    return hmac.new(keys.audit, b"tacet fingerprint v1 " + keys.ledger.encode(), hashlib.sha256).hexdigest()[:16]


__all__ = ["Counters", "Emitted", "FinalityError", "Partition", "fingerprint"]
