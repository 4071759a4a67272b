"""The engines of a partition's sites: one pipeline each, with the state that it has come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stream.accounting.account import AccountState
from stream.errors import UsageError
from stream.keys import Keys, key_day_of
from stream.pipeline import AWAY, Options, Output, Pipeline, SiteState
from stream.policy.document import Policy
from stream.records import Message, Micros
from stream.release.standing import standing
from stream.release.state import ReleaseState
from stream.runners.site_form import Stages, open_site, seal_site
from stream.runners.snapshot import chain_of
from stream.sensing.sense_state import SenseState
from stream.vault import Vault


class Site:
    """The engine of one site."""

    def __init__(self, pipeline: Pipeline, state: SiteState, vault: Vault | None) -> None:
        self._pipeline = pipeline
        self._state = state
        self._vault = vault
        self._sealed: bytes | None = None
        """The compressed byte form of the state where it has been made since that last changed."""

    def steps(self, message: Message) -> Iterator[tuple[list[Output], bool]]:
        """Fold one message in; see ``Pipeline.steps``."""
        for outputs, last in self._pipeline.steps(self._state, message):
            self._sealed = None
            yield outputs, last

    def sealed(self) -> bytes:
        """Return the state's byte form, compressed, and encrypted under the key of the oldest day that it needs.

        Made site by site: several sites' windows close at once, and only one has changed each time.
        """
        if self._sealed is None:
            start = self.oldest_start()
            key_day = -1 if start is None else key_day_of(start)
            self._sealed = seal_site(self._pipeline.site, self._pipeline.encode(self._state), self._vault, key_day)
        return self._sealed

    @property
    def shut(self) -> bool:
        """Whether it has shut at ``max_devices``."""
        return self._pipeline.shut(self._state)

    def reopen(self) -> None:
        """Let it go on with the next window."""
        self._sealed = None
        self._pipeline.reopen(self._state)

    def lose(self) -> None:
        """Take note that messages are gone: their windows will have coverage 0."""
        self._sealed = None
        self._pipeline.lose(self._state)

    @property
    def sensing(self) -> SenseState:
        """Its state of sensing; not to be changed."""
        return self._state.sense

    @property
    def chain(self) -> tuple[int, str]:
        """Its next ledger sequence and the head of its hash chain."""
        ledger = self._state.release.ledger
        return ledger.sequence, ledger.head

    def oldest_start(self) -> Micros | None:
        """Return the start of the oldest window or local day not yet released; None before the first."""
        return self._pipeline.oldest_start(self._state.sense, self._state.attributes)

    def released_through(self) -> Micros | None:
        """Return the end of the latest released window; None when nothing has been released."""
        through = self._state.release.through
        return None if through < 0 else through

    def standing(self, policy: Policy) -> dict[str, Any] | None:
        """Return its account as it stands; see ``stream.release.standing``."""
        return standing(policy, self._pipeline.table.account, self._state.account, self._state.release)

    def books(self) -> ReleaseState:
        """Return its books, to be changed by what is released besides the log."""
        self._sealed = None
        return self._state.release

    def replace_account(self, account: AccountState) -> None:
        """Go on from an account that was rebuilt."""
        self._sealed = None
        self._state.account = account


class Sites:
    """The engines of all sites of a partition, under one policy."""

    def __init__(self, policy: Policy, keys: Keys, options: Options, alarm: Callable[[str], None]) -> None:
        """Begin without any state; ``alarm`` is called with each site that shuts at ``max_devices``.

        KeyFileError where the key file has no data key.
        """
        self._keys = keys
        self._vault = keys.vault
        self._options = options
        self._alarm = alarm
        self._use(policy)
        self._held: dict[str, Site] = {}
        self._absent: dict[str, bytes] = {}
        """Encoded states of sites that the policy no longer has: their books must not begin anew one day."""

    def _use(self, policy: Policy) -> None:
        self.policy = policy
        self.version = policy.version
        self.sources = frozenset(source for site in policy.site.values() for source in site.sources)
        """All sources that the policy names."""

    def load(self, policy: Policy, sites: Mapping[str, Stages], *, same_policy: bool) -> None:
        """Forget everything and go on from these states; those of another policy are adopted."""
        self._use(policy)
        self._held, self._absent = {}, {}
        for name, stages in sites.items():
            if name in policy.site:
                pipeline = self._pipeline(name)
                state = pipeline.decode(stages) if same_policy else pipeline.adopt(stages)
                self._held[name] = Site(pipeline, state, self._vault)
            else:
                self._absent[name] = seal_site(name, {**stages, AWAY: b""}, self._vault)

    def sealed(self) -> dict[str, bytes]:
        """Return each site's state in its compressed byte form."""
        return self._absent | {name: site.sealed() for name, site in self._held.items()}

    def steps(self, message: Message) -> Iterator[tuple[list[Output], bool]]:
        """Fold one message in; see ``Pipeline.steps``."""
        name = message.site
        if name not in self._held:
            pipeline = self._pipeline(name)
            self._held[name] = Site(pipeline, pipeline.initial(), self._vault)
        site = self._held[name]
        shut = site.shut
        for outputs, last in site.steps(message):
            if site.shut and not shut:
                self._alarm(name)
            yield outputs, last

    def _pipeline(self, name: str) -> Pipeline:
        return Pipeline(self.policy, name, self._keys, self._options)

    def held(self, name: str) -> Site | None:
        """Return the engine of a site; None where nothing of it has been read."""
        return self._held.get(name)

    def standing(self, name: str) -> dict[str, Any] | None:
        """Return a site's account as it stands; None where nothing of it has been released."""
        return self._held[name].standing(self.policy) if name in self._held else None

    def shut(self) -> list[str]:
        """Return the sites that have shut at ``max_devices``: they take and release nothing until reopened."""
        return sorted(name for name, site in self._held.items() if site.shut)

    def reopen(self, name: str) -> None:
        """Let a shut site go on with the next window; UsageError when it is not shut."""
        if name not in self.shut():
            shut = ", ".join(self.shut()) or "none"
            msg = f"site {name!r}: must be one that has shut at max_devices ({shut})"
            raise UsageError(msg)
        self._held[name].reopen()

    def lose(self) -> None:
        """Take note that messages are gone, of whatever sites."""
        for site in self._held.values():
            site.lose()

    def sensing(self) -> dict[str, SenseState]:
        """Return each site's state of sensing; not to be changed."""
        return {name: site.sensing for name, site in self._held.items()}

    def watermarks(self) -> dict[str, Micros | None]:
        """Return each site's watermark."""
        return {name: state.clock.watermark for name, state in self.sensing().items()}

    def chains(self) -> dict[str, tuple[int, str]]:
        """Return each site's next ledger sequence and the head of its hash chain."""
        absent = {name: chain_of(open_site(name, sealed)) for name, sealed in self._absent.items()}
        return absent | {name: site.chain for name, site in self._held.items()}

    def oldest_key_day_needed(self) -> int | None:
        """Return the oldest UTC day whose key an unfinished release still needs; None when not known yet."""
        starts = [site.oldest_start() for site in self._held.values()]
        known = [start for start in starts if start is not None]
        if len(known) < len(starts) or not known:
            return None
        return min(key_day_of(start) for start in known)
