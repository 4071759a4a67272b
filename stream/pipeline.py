"""The table of stages: read this file first.

    observations ──► sense ──► window ──► attributes ──► day
    (batches,                    │                        │
     heartbeats)                 └───────► release ◄──────┘ ──► private records, audit entries
                                              │
                                              └─► spent ──► account ──► leakage records

One site is one pipeline, and everything about it happens here in one order: an item goes through the
stages from left to right, and each output of a stage goes through the stages after it before the next
output does. So what comes out depends on the log alone, never on how it was cut into messages. The Faust
agents, the embedded runner, replay and the tests drive this same table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from stream.accounting.account import Account, AccountState
from stream.keys import Keys
from stream.policy.document import AttributeRelease, Policy
from stream.policy.sites import Site, zones_now
from stream.records import (
    DayClosed,
    Heartbeat,
    Message,
    Micros,
    OccupancyWindow,
    Published,
    Rejected,
    Spent,
    Stay,
)
from stream.release.account_stage import account_stage
from stream.release.stage import Releases
from stream.release.state import ReleaseState
from stream.schemas import OCCUPANCY, PRESENCE, rfc3339
from stream.sensing.attributes import DayAttributes, DayState
from stream.sensing.contribution import Definition
from stream.sensing.counted import COUNTERS, CountedSense
from stream.sensing.occupancy import Sense
from stream.sensing.sense_state import SenseState
from stream.sensing.stamp import AHEAD


@dataclass(frozen=True, slots=True)
class Stages:
    """The table: the stages of one site, in the order in which items meet them."""

    sense: Sense
    """Observations and heartbeats in; windows and stays out, and what had to be rejected."""
    attributes: DayAttributes
    """Windows in, days out."""
    release: Releases
    """Days and windows in; private records, ledger entries and what they spent out."""
    account: Account
    """What was spent in, leakage records out."""


@dataclass(slots=True)
class SiteState:
    """What a site remembers between two messages: the state of each stage, under the stage's name."""

    sense: SenseState
    attributes: DayState
    release: ReleaseState
    account: AccountState


@dataclass(frozen=True, slots=True)
class Options:
    """What a runner may ask for beyond the policy."""

    attempt: int = 1
    """Above 1 this is an operator-requested re-release: charged again, with fresh noise and its own ids."""
    presence: bool = False
    occupancy: bool = False
    """Also publish true stays or counts (restricted)."""
    first_window: Micros | None = None
    last_window: Micros | None = None


DEFAULTS = Options()
AWAY = "away"
"""Says, beside the stages' states, that since then a policy has not had their site."""
RADIOS = "radios"
"""Names, beside the stages' states, the radios of the zones that these are about."""

Output = Published | Rejected


class Pipeline:
    """All stages of one site, with the policy and the keys they were built from."""

    def __init__(self, policy: Policy, site: str, keys: Keys, options: Options = Options()) -> None:
        self.site = site
        self._site = policy.site[site]
        self._tick_length = self._site.tick
        self._zones = tuple(zone.id for zone in policy.site[site].zones)
        self._presence = options.presence or policy.restricted.presence
        self._occupancy = options.occupancy or policy.restricted.occupancy
        self.table = table(policy, site, keys, options, keep_presence=self._presence)
        self._days = any(isinstance(r, AttributeRelease) and policy.zones_of(r, site) for r in policy.release)

    def initial(self) -> SiteState:
        """Return the state of every stage before the first message."""
        stages = self.table
        return SiteState(
            stages.sense.initial(), stages.attributes.initial(), stages.release.initial(), stages.account.initial()
        )

    def step(self, state: SiteState, item: Message) -> tuple[SiteState, list[Output]]:
        """Fold one message of the log into the site; return its state and what to publish, in order."""
        return state, [output for part, _ in self.steps(state, item) for output in part]

    def steps(self, state: SiteState, item: Message) -> Iterator[tuple[list[Output], bool]]:
        """Fold one message into the state, which changes in place, in steps of a bounded number of windows.

        Yields what each step publishes and whether it is the last; see ``Sense.steps`` for beginning again.
        """
        for sensed, last in self.table.sense.steps(state.sense, item):
            if not sensed and isinstance(item, Heartbeat):
                self.table.release.prepare(state.release)  # nobody waits for what comes of this heartbeat
            yield [output for each in sensed for output in self._publish(state, each)], last

    def _publish(self, state: SiteState, sensed: OccupancyWindow | Stay | Rejected) -> Iterator[Output]:
        """Lead one output of the first stage through the others."""
        if isinstance(sensed, Rejected):
            yield sensed
        elif isinstance(sensed, Stay):
            if self._presence:
                yield self._stay_record(sensed)
        else:
            if self._occupancy:
                yield _occupancy_record(sensed, self._zones)
            state.attributes, days = self.table.attributes.step(state.attributes, sensed)
            for day in days:
                yield from self._release(state, day)
            yield from self._release(state, sensed)

    def _release(self, state: SiteState, item: OccupancyWindow | DayClosed) -> Iterator[Output]:
        state.release, released = self.table.release.step(state.release, item)
        for each in released:
            if isinstance(each, Spent):
                state.account, records = self.table.account.step(state.account, each)
                yield from records
            else:
                yield each

    def finish(self, state: SiteState) -> list[Output]:
        """Return, at the end of a log that is complete, the stays not yet put out (where stays are kept)."""
        if not self._presence:
            return []
        return [self._stay_record(stay) for stay in self.table.sense.remaining_stays(state.sense)]

    def _stay_record(self, stay: Stay) -> Published:
        """Return a stay's record; its time is a tick, as that of every record, and not the moment somebody left."""
        body = {
            "v": 1, "site": stay.site, "device": stay.device, "zone": stay.zone,
            "start": rfc3339(stay.start), "end": rfc3339(stay.end),
        }  # fmt: skip
        tick = -(-stay.end // self._tick_length) * self._tick_length
        return Published(PRESENCE, stay.site, orjson.dumps(body), tick, "")

    def lose(self, state: SiteState) -> None:
        """Take note that part of the log is gone: no source vouches for what lies before its next heartbeat."""
        state.sense = self.table.sense.lose(state.sense)

    def shut(self, state: SiteState) -> bool:
        """Whether the site has shut at ``max_devices``."""
        return state.sense.shut

    def reopen(self, state: SiteState) -> None:
        """Let a shut site go on; windows that it missed have coverage 0."""
        state.sense = self.table.sense.reopen(state.sense)

    def encode(self, state: SiteState) -> dict[str, bytes]:
        """Return each stage's state in its byte form, and the radios of the zones that it is about."""
        stages = self.table
        return {
            "sense": stages.sense.encode(state.sense),
            "attributes": stages.attributes.encode(state.attributes),
            "release": stages.release.encode(state.release),
            "account": stages.account.encode(state.account),
            RADIOS: orjson.dumps(self._site.radios),
        }

    def decode(self, data: dict[str, bytes]) -> SiteState:
        """Return the state whose byte forms these are."""
        stages = self.table
        return SiteState(
            stages.sense.decode(data["sense"]),
            stages.attributes.decode(data["attributes"]),
            stages.release.decode(data["release"]),
            stages.account.decode(data["account"]),
        )

    def adopt(self, data: dict[str, bytes]) -> SiteState:
        """Return the state with which a new policy goes on from an old one's.

        Presence and books go on, and know a zone whose id has changed by its radios; groups, filters and the local day
        at hand begin anew, and so does a publication that is carried from window to window, unless it belongs to the
        same as before. Where the tick has changed, the next window is the first of the new grid, and what waits for it
        is sorted anew. A site that was away goes on with the next window there is.
        """
        stages, now = self.table, zones_now(orjson.loads(data.get(RADIOS, b"{}")), self._site.zones)
        account = stages.account.decode(data["account"])
        account.rename(now)
        sense = stages.sense.regrid(stages.sense.decode(data["sense"]))
        return SiteState(
            stages.sense.rejoin(sense) if AWAY in data else sense,
            stages.attributes.initial(),
            stages.release.adopt(data["release"], now),
            account,
        )

    def oldest_start(self, sense: SenseState, day: DayState) -> Micros | None:
        """Return the start of the oldest window or local day not yet released; None before the first."""
        if sense.next_tick is None:
            return None
        window = sense.next_tick - self._tick_length
        return min(window, day.start) if self._days and day.local_day is not None else window


def _sense(site_id: str, site: Site, options: Options, *, keep_presence: bool) -> Sense:
    """Return the first stage of a site: from who is where, or from what counters have counted."""
    common: dict[str, Any] = {
        "site": site_id,
        "zones": tuple(zone.id for zone in site.zones),
        "access_points": {radio: zone.id for zone in site.zones for radio in zone.radios},
        "tick_length": site.tick,
        "validity": site.validity,
        "lateness": site.lateness,
        "max_devices": site.max_devices,
        "first_window": options.first_window,
        "last_window": options.last_window,
    }
    if site.feed == "counts":
        return CountedSense(sources=(COUNTERS,), days=site.privacy_days, **common)
    ahead = max(AHEAD, site.tick)  # a file's heartbeats come once a tick length
    return Sense(
        sources=site.sources, ahead=ahead, keep_presence=keep_presence, by_day=definition_of(site), **common
    )  # fmt: skip


def table(policy: Policy, site_id: str, keys: Keys, options: Options, *, keep_presence: bool) -> Stages:
    """Return the stages of one site, in the order in which items meet them."""
    site = policy.site[site_id]
    sense = _sense(site_id, site, options, keep_presence=keep_presence)
    wanted = [release for release in policy.release if isinstance(release, AttributeRelease)]
    covered = {zone.id for release in wanted for zone in policy.zones_of(release, site_id)}
    attributes = DayAttributes(
        site=site_id,
        zones=tuple((zone.id, index) for index, zone in enumerate(site.zones) if zone.id in covered),
        timezone=site.timezone,
        tick_length=site.tick,
        working_hours=site.working_hours,
        attributes=tuple(sorted({name for release in wanted for name in release.attributes})),
    )
    releases = Releases(policy, site_id, keys, options.attempt)
    return Stages(sense, attributes, releases, account_stage(policy, site_id, laboratory=keys.laboratory))


def definition_of(site: Site) -> Definition | None:
    """Return how a site bounds counts by its privacy day; None where it does not."""
    if site.day_starts is None:
        return None
    ignoring = site.residents == "ignore"
    return Definition(site.day_starts, site.timezone, site.contribution_ticks, ignoring, site.tick, site.validity)


def _occupancy_record(window: OccupancyWindow, zones: tuple[str, ...]) -> Published:
    end = rfc3339(window.window_end)
    body = {
        "v": 1, "site": window.site, "window_end": end,
        "counts": dict(zip(zones, window.counts, strict=True)), "coverage": float(window.coverage),
    }  # fmt: skip
    if window.bounded is not None:
        body["bounded"] = dict(zip(zones, window.bounded, strict=True))
    return Published(OCCUPANCY, window.site, orjson.dumps(body), window.window_end, f"{window.site}/{end}")
