"""The engines of a partition's sites: each is one site's pipeline with its state.

``SiteEngines`` runs all sites of a partition under one policy. It knows neither offsets nor the log: these are the
business of ``PartitionEngine``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from stream.accounting.account_state import AccountState
from stream.encryption import Vault
from stream.engine.snapshot import SiteParts, chain_of, open_site, seal_site
from stream.errors import UsageError
from stream.keys import Keys, key_day_of
from stream.pipeline import ABSENT, Options, Output, Pipeline, SiteState
from stream.records import Message, Micros
from stream.release.account_stage import CurrentAccount, current_account
from stream.release.state import ReleaseState
from stream.release.validation import Policy
from stream.sensing import watermark
from stream.sensing.counter_feed import COUNTERS
from stream.sensing.state import SensingState


def _no_alarm(site: str) -> None:
    del site


@dataclass(frozen=True, slots=True)
class OverflowPolicy:
    """How sites that are suspended at ``max_devices`` are handled."""

    alarm: Callable[[str], None] = _no_alarm
    """Called with each site that is suspended, and again at a start with each that still is."""
    resume: frozenset[str] = frozenset()
    """Sites that are resumed at a start if they are suspended, without an alarm."""


STAY_SUSPENDED = OverflowPolicy()


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

    def current_account(self, policy: Policy) -> CurrentAccount | None:
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

    def __init__(self, policy: Policy, keys: Keys, options: Options, overflow: OverflowPolicy) -> None:
        """Start without any state; KeyFileError if the key file has no data key."""
        self._keys = keys
        self._vault = keys.vault
        self._options = options
        self._overflow = overflow
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

    def load(self, policy: Policy, sites: Mapping[str, SiteParts], *, same_policy: bool) -> None:
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

    def switch_policy(self, policy: Policy) -> None:
        """Let all sites continue under another policy."""
        stages = {name: open_site(name, data, self._vault) for name, data in self.sealed().items()}
        self.load(policy, stages, same_policy=False)

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
                self._overflow.alarm(name)
            yield outputs, last

    def _pipeline(self, name: str) -> Pipeline:
        return Pipeline(self.policy, name, self._keys, self._options)

    def get(self, name: str) -> SiteEngine | None:
        """Return the engine of a site; None if no message of the site has been read."""
        return self._engines.get(name)

    def current_account(self, name: str) -> CurrentAccount | None:
        """Return a site's current account; None if nothing has been released."""
        return self._engines[name].current_account(self.policy) if name in self._engines else None

    def suspended_sites(self) -> list[str]:
        """Return the sites suspended at ``max_devices``: they accept and release nothing until resumed."""
        return sorted(name for name, site in self._engines.items() if site.is_suspended)

    def resume_or_report_suspended(self) -> None:
        """Resume the suspended sites that the operator has named, and report the others."""
        for name in self.suspended_sites():
            if name in self._overflow.resume:
                self.resume(name)
            else:
                self._overflow.alarm(name)

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
