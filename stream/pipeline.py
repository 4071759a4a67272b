"""The table of stages: read this file first.

    observations ──► sense ──► window ──► attributes ──► day
    (batches,                    │                        │
     heartbeats)                 └───────► release ◄──────┘ ──► private records, audit entries
                                              │
                                              └─► spent ──► account ──► leakage records

One site is one pipeline with one order of processing: an item passes through the stages from left to right, and each
output of a stage passes through all later stages before the next output does. So the outputs depend on the log alone,
never on how it was divided into messages. The Kafka worker, the embedded runner, replay and the tests all drive this
table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from stream.accounting.account import Account
from stream.accounting.account_state import AccountState
from stream.domains import Part
from stream.keys import Keys
from stream.policy.attributes import AttributeRelease
from stream.policy.document import PolicyDocument
from stream.policy.sites import Site, zones_now
from stream.records import (
    DayClosed,
    Heartbeat,
    Message,
    Micros,
    OccupancyWindow,
    Published,
    Rejected,
    Stay,
    WindowCharges,
)
from stream.release.account_stage import account_stage
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy
from stream.schemas import OCCUPANCY, PRESENCE, rfc3339
from stream.sensing.contribution import ContributionBound
from stream.sensing.counter_feed import COUNTERS, CounterFeedOperator
from stream.sensing.day_attributes import DayAttributes, DayState
from stream.sensing.occupancy import OccupancyOperator
from stream.sensing.state import SensingState
from stream.sensing.visits import VisitBound
from stream.sensing.watermark import MAX_CLOCK_SKEW


@dataclass(frozen=True, slots=True)
class Stages:
    """The table: the stages of one site, in the order in which items pass through them."""

    occupancy: OccupancyOperator
    """Input: observations and heartbeats. Output: windows, stays and rejections."""
    attributes: DayAttributes
    """Input: windows. Output: days."""
    release: ReleaseStage
    """Input: days and windows. Output: private records, ledger entries and their charges."""
    account: Account
    """Input: charges. Output: leakage records."""


@dataclass(slots=True)
class SiteState:
    """The state of a site between two messages: the state of each stage."""

    occupancy: SensingState
    attributes: DayState
    release: ReleaseState
    account: AccountState


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run that the policy does not contain."""

    attempt: int = 1
    """Above 1 this is an operator-requested re-release: charged again, with fresh noise and its own ids."""
    presence: bool = False
    occupancy: bool = False
    """Also publish true stays or counts (restricted)."""
    first_window: Micros | None = None
    last_window: Micros | None = None


DEFAULTS = Options()
ABSENT = Part.ABSENT
"""Key, beside the stages' states, which marks a site that a later policy did not have."""
RADIOS = Part.RADIOS
"""Key, beside the stages' states, of the radio addresses of their zones."""

Output = Published | Rejected


class Pipeline:
    """All stages of one site, with the policy and the keys they were built from."""

    def __init__(self, policy: Policy, site: str, keys: Keys, options: Options = Options()) -> None:
        """Build the stages; TypeError if the policy is only a document, whose guarantees nothing has checked."""
        if not isinstance(policy, Policy):
            msg = f"policy: must be a validated Policy, got {type(policy).__name__}"
            raise TypeError(msg)
        self.site = site
        self._site = policy.site[site]
        self._tick_length = self._site.tick
        self._zones = tuple(zone.id for zone in policy.site[site].zones)
        self._presence = options.presence or policy.restricted.presence
        self._occupancy = options.occupancy or policy.restricted.occupancy
        self.stages = build_stages(policy, site, keys, options, keep_presence=self._presence)
        self._days = any(isinstance(r, AttributeRelease) and policy.zones_of(r, site) for r in policy.release)

    def initial(self) -> SiteState:
        """Return the state of every stage before the first message."""
        stages = self.stages
        return SiteState(
            stages.occupancy.initial(), stages.attributes.initial(), stages.release.initial(), stages.account.initial()
        )

    def step(self, state: SiteState, item: Message) -> tuple[SiteState, list[Output]]:
        """Process one message of the log; return the state and the records to publish, in order."""
        return state, [output for part, _ in self.steps(state, item) for output in part]

    def steps(self, state: SiteState, item: Message) -> Iterator[tuple[list[Output], bool]]:
        """Process one message in steps of a bounded number of windows; the state changes in place.

        Yields the outputs of each step and whether it is the last. ``OccupancyOperator.steps`` says how a message is
        processed again whose steps were not all run.
        """
        for sensed, last in self.stages.occupancy.steps(state.occupancy, item):
            if not sensed and isinstance(item, Heartbeat):
                self.stages.release.prepare(state.release)  # no output depends on this heartbeat, so there is time
            yield [output for each in sensed for output in self._publish(state, each)], last

    def _publish(self, state: SiteState, sensed: OccupancyWindow | Stay | Rejected) -> Iterator[Output]:
        """Pass one output of the first stage through the other stages."""
        if isinstance(sensed, Rejected):
            yield sensed
        elif isinstance(sensed, Stay):
            if self._presence:
                yield self._stay_record(sensed)
        else:
            if self._occupancy:
                yield _occupancy_record(sensed, self._zones)
            state.attributes, days = self.stages.attributes.step(state.attributes, sensed)
            for day in days:
                yield from self._release(state, day)
            yield from self._release(state, sensed)

    def _release(self, state: SiteState, item: OccupancyWindow | DayClosed) -> Iterator[Output]:
        state.release, released = self.stages.release.step(state.release, item)
        for each in released:
            if isinstance(each, WindowCharges):
                state.account, records = self.stages.account.step(state.account, each)
                yield from records
            else:
                yield each

    def finish(self, state: SiteState) -> list[Output]:
        """Return, at the end of a complete log, the stays not yet output (if stays are kept)."""
        if not self._presence:
            return []
        return [self._stay_record(stay) for stay in self.stages.occupancy.remaining_stays(state.occupancy)]

    def _stay_record(self, stay: Stay) -> Published:
        """Return a stay's record; its time is a tick, as for every record, not the time at which the device left."""
        body = {
            "v": 1, "site": stay.site, "device": stay.device, "zone": stay.zone,
            "start": rfc3339(stay.start), "end": rfc3339(stay.end),
        }  # fmt: skip
        tick = -(-stay.end // self._tick_length) * self._tick_length
        return Published(PRESENCE, stay.site, orjson.dumps(body), tick, "")

    def mark_data_loss(self, state: SiteState) -> None:
        """Record that part of the log is lost: no source covers any time before its next heartbeat."""
        state.occupancy = self.stages.occupancy.mark_data_loss(state.occupancy)

    def is_suspended(self, state: SiteState) -> bool:
        """Whether the site is suspended at ``max_devices``."""
        return state.occupancy.suspended

    def resume(self, state: SiteState) -> None:
        """Resume a suspended site; windows that it missed have coverage 0."""
        state.occupancy = self.stages.occupancy.resume(state.occupancy)

    def encode(self, state: SiteState) -> dict[str, bytes]:
        """Return each stage's state in its byte form, and the radio addresses of its zones."""
        stages = self.stages
        return {
            Part.SENSE: stages.occupancy.encode(state.occupancy),
            Part.ATTRIBUTES: stages.attributes.encode(state.attributes),
            Part.RELEASE: stages.release.encode(state.release),
            Part.ACCOUNT: stages.account.encode(state.account),
            RADIOS: orjson.dumps(self._site.radios),
        }

    def decode(self, data: dict[str, bytes]) -> SiteState:
        """Return the state from these byte forms."""
        stages = self.stages
        return SiteState(
            stages.occupancy.decode(data[Part.SENSE]),
            stages.attributes.decode(data[Part.ATTRIBUTES]),
            stages.release.decode(data[Part.RELEASE]),
            stages.account.decode(data[Part.ACCOUNT]),
        )

    def migrate(self, data: dict[str, bytes]) -> SiteState:
        """Return the state with which a new policy continues from the state of an old one.

        Presence, ledger and account continue; a zone whose id has changed is recognised by its radio addresses. Groups,
        filters and the current local day restart from an empty state. So does a publication that is carried over from
        window to window, unless it belongs to the same release as before. If the tick length has changed, the next
        window is the first of the new grid, and buffered rows are assigned to its windows. A site that was absent from
        the policy continues with the next window.
        """
        stages, now = self.stages, zones_now(orjson.loads(data.get(RADIOS, b"{}")), self._site.zones)
        account = stages.account.decode(data[Part.ACCOUNT])
        account.rename(now)
        sense = stages.occupancy.rebase_ticks(stages.occupancy.decode(data[Part.SENSE]))
        return SiteState(
            stages.occupancy.resume_after_absence(sense) if ABSENT in data else sense,
            stages.attributes.initial(),
            stages.release.migrate(data[Part.RELEASE], now),
            account,
        )

    def oldest_start(self, sensing: SensingState, day: DayState) -> Micros | None:
        """Return the start of the oldest window or local day not yet released; None before the first."""
        if sensing.next_tick is None:
            return None
        window = sensing.next_tick - self._tick_length
        return min(window, day.start) if self._days and day.local_day is not None else window


def _occupancy_operator(policy: Policy, site_id: str, options: Options, *, keep_presence: bool) -> OccupancyOperator:
    """Return the first stage of a site: for observations of devices, or for counts of people counters."""
    site = policy.site[site_id]
    zones = tuple(zone.id for zone in site.zones)
    access_points = {radio: zone.id for zone in site.zones for radio in zone.radios}
    if site.feed == "counts":
        return CounterFeedOperator(
            site=site_id, zones=zones, access_points=access_points, sources=(COUNTERS,), tick_length=site.tick,
            validity=site.counts_for, lateness=site.lateness, max_devices=site.max_devices,
            first_window=options.first_window, last_window=options.last_window,
            days=site.privacy_days, zeros_omitted=site.zeros == "omitted",
        )  # fmt: skip
    return OccupancyOperator(
        site=site_id, zones=zones, access_points=access_points, sources=site.sources, tick_length=site.tick,
        validity=site.counts_for, lateness=site.lateness, max_devices=site.max_devices,
        first_window=options.first_window, last_window=options.last_window,
        ahead=max(MAX_CLOCK_SKEW, site.tick),  # the heartbeats of a file come once per tick length
        keep_presence=keep_presence, by_day=definition_of(site), by_visits=visits_of(policy, site_id),
        sessions=site.has_sessions, others=site.others == "count",
    )  # fmt: skip


def build_stages(policy: Policy, site_id: str, keys: Keys, options: Options, *, keep_presence: bool) -> Stages:
    """Return the stages of one site, in the order in which items pass through them."""
    site = policy.site[site_id]
    sense = _occupancy_operator(policy, site_id, options, keep_presence=keep_presence)
    attribute_releases = [release for release in policy.release if isinstance(release, AttributeRelease)]
    covered = {zone.id for release in attribute_releases for zone in policy.zones_of(release, site_id)}
    attributes = DayAttributes(
        site=site_id,
        zones=tuple((zone.id, index) for index, zone in enumerate(site.zones) if zone.id in covered),
        timezone=site.timezone,
        tick_length=site.tick,
        working_hours=site.working_hours,
        attributes=tuple(sorted({name for release in attribute_releases for name in release.attributes})),
    )
    releases = ReleaseStage(policy, site_id, keys, options.attempt)
    return Stages(sense, attributes, releases, account_stage(policy, site_id, laboratory=keys.laboratory))


def definition_of(site: Site) -> ContributionBound | None:
    """Return how a site bounds counts per privacy day; None if it does not."""
    if site.day_starts is None:
        return None
    ignoring = site.residents == "ignore"
    return ContributionBound(
        site.day_starts, site.timezone, site.contribution_ticks, ignoring, site.tick, site.counts_for, site.login_terms
    )


def visits_of(policy: PolicyDocument, site_id: str) -> VisitBound | None:
    """Return how devices make visits at a site; None if no release counts changes there."""
    site = policy.site[site_id]
    if site.day_starts is None or not policy.counts_changes(site_id):
        return None
    zones = tuple((zone.id, zone.floor) for zone in site.zones)
    return VisitBound(
        site.day_starts, site.timezone, site.visits, site.gap_ticks, site.tick, site.counts_for, zones,
        logins=site.login_terms,
    )  # fmt: skip


def _occupancy_record(window: OccupancyWindow, zones: tuple[str, ...]) -> Published:
    end = rfc3339(window.window_end)
    body = {
        "v": 1, "site": window.site, "window_end": end,
        "counts": dict(zip(zones, window.counts, strict=True)), "coverage": float(window.coverage),
    }  # fmt: skip
    if window.bounded is not None:
        body["bounded"] = dict(zip(zones, window.bounded, strict=True))
    if window.by_visits is not None:
        body["by_visits"] = dict(zip(("zones", "floors", "building"), map(list, window.by_visits), strict=True))
    return Published(OCCUPANCY, window.site, orjson.dumps(body), window.window_end, f"{window.site}/{end}")
