"""The errors of a release's counts on given days, compared with constants.

Exact counts pass through the release's own mechanism under a public key, so that anybody can reproduce a plan. A
release that is charged per day is compared with bounded counts, which are what it counts.

The days are recorded ones (restricted) or the simulated day, which contains no real people. The simulated day is the
demo's, in the site's own time zone, sensed with the site's tick, validity and privacy day. A zone of the policy uses
the simulated zone of the same id and kind; if there is none, the next simulated zone of the same kind; if its kind is
unknown, the next one that is not an office. A second day, at desks, has the zones of the policy itself.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import chain, count, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from connectors.sources.recordings.dialect import OWN, Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from stream.domains import Purpose
from stream.errors import DataError
from stream.keys import LaboratoryKeys, key_day_of, subkey
from stream.lab.simulator.building import CLASSROOM, CORRIDOR, OFFICE, OPEN
from stream.lab.simulator.desks import LEFT, at_desks
from stream.lab.simulator.events import DAY_SHOWN, Simulation, simulate
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.base import CountMechanism, TickInput, WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import noise_chain
from stream.pipeline import Pipeline, definition_of, visits_of
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.policy.privacy_days import PrivacyDays
from stream.policy.sites import Site, Zone
from stream.records import MINUTE, Heartbeat, LevelCounts, Micros, ObservationBatch, OccupancyWindow, Row
from stream.release.count_plan import ByLevel, ChangePlan, CountPlan, count_plan
from stream.release.validation import Policy
from stream.sensing.contribution import ContributionBound
from stream.sensing.occupancy import OccupancyOperator
from stream.sensing.state import dropped_rows
from stream.sensing.visits import VisitBound, VisitCounter, VisitCounts

KEY = b"a plan draws the same noise again"
"""A public key: noise drawn with it hides nothing."""

MOST_STAND_INS = 64
"""Simulated zones that a zone of a policy stands for, at most: as many as the simulated building has."""

PASSED_THROUGH = frozenset({CLASSROOM, OPEN, CORRIDOR})
"""Kinds of the simulated building's zones to which people come for an hour, if at all."""
DESKS_OF_AN_ACCESS_POINT = 8
"""Desks of a zone for each of its access points, at most; never more than its capacity."""

Windows = Mapping[str, Sequence[OccupancyWindow]]
"""Site -> its windows, in order."""


def plan_keys() -> LaboratoryKeys:
    """Return the public keys with which a plan draws."""
    return LaboratoryKeys(KEY, "plan", KEY)


def simulated_windows(policy: Policy) -> Windows:
    """Return the simulated day as each site of a policy would count it."""
    return {name: simulated_site(name, site, visits_of(policy, name)) for name, site in policy.site.items()}


def simulated_site(name: str, site: Site, visits: VisitBound | None) -> list[OccupancyWindow]:
    """Return the simulated day as one site would count it.

    The simulated building has no logins: each device counts as a login's only one.
    """
    by_day = definition_of(site)
    by_device = None if by_day is None else by_day._replace(logins=None)
    day = simulated_day(site.tick, site.counts_for, site.timezone, by_device, sessions=site.has_sessions)
    places = stand_ins(site.zones, day.zones, day.kinds)
    by_visits = {} if visits is None else _visits_of_stand_ins(site, places, visits._replace(logins=None))
    return [
        replace(
            window,
            site=name,
            counts=_summed(window.counts, places),
            bounded=None if window.bounded is None else _summed(window.bounded, places),
            by_visits=by_visits.get(window.window_end),
        )
        for window in day.windows
    ]


def is_passed_through(site: Site) -> bool:
    """Whether a site's zones are of kinds that the simulated building has, offices alone excepted."""
    return any(zone.kind in PASSED_THROUGH for zone in site.zones)


def desk_site(name: str, site: Site, visits: VisitBound | None) -> list[OccupancyWindow]:
    """Return a day at desks as one site would count it; its people are as many as its zones are made for.

    A day at desks has no machines, and no logins: each device counts as a login's only one.
    """
    zones = tuple(zone.id for zone in site.zones)
    desks = (min(zone.capacity, DESKS_OF_AN_ACCESS_POINT * _access_points(zone)) for zone in site.zones)
    day = at_desks(tuple(desks), site.timezone)
    by_day = definition_of(site)
    sense = OccupancyOperator(
        site=name, zones=zones, sources=("simulated",), max_devices=200_000,
        access_points={zone: zone for zone in zones}, tick_length=site.tick, validity=site.counts_for,
        lateness=30_000_000, by_day=None if by_day is None else by_day._replace(logins=None),
        by_visits=None if visits is None else visits._replace(logins=None), sessions=site.has_sessions,
    )  # fmt: skip
    rows = (
        Row(f"{device}", None if zone == LEFT else zones[zone], time)
        for time, device, zone in day.heard
        if zone != LEFT or site.has_sessions
    )
    return _windows(sense, _by_privacy_day(name, rows, by_day), day.start, day.end)


def _summed(counts: Sequence[int], places: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the counts of the zones that stand for these places each."""
    return tuple(sum(counts[place] for place in own) for own in places)


def _visits_of_stand_ins(
    site: Site, places: Sequence[Sequence[int]], visits: VisitBound
) -> dict[Micros, LevelCounts | None]:
    """Return the counts by visits of a site that has the devices of the simulated day.

    A visit may span zones, so the devices are followed through the site's own zones. A simulated zone that stands in
    several times has other devices each time.
    """
    simulation = _simulation(site.timezone)
    counters, found = VisitCounts(visits), dict[Micros, LevelCounts | None]()
    tally, present = counters.initial(), dict[str, tuple[int, Micros]]()
    zone_of: dict[tuple[int, int], int] = {}
    times = Counter[int]()
    for at, own in enumerate(places):
        for place in own:
            zone_of[place, times[place]] = at
            times[place] += 1
    tick = -(-simulation.start // site.tick) * site.tick
    for time, device, point in _sightings(simulation, sessions=site.has_sessions):
        while time > tick:
            found[tick] = _visits_at(counters, tally, present, tick, site.counts_for)
            tick += site.tick
        for copy in range(max(times.values())):
            zone = None if point is None else zone_of.get((point, copy))
            if zone is None:
                present.pop(f"{device}/{copy}", None)
            else:
                present[f"{device}/{copy}"] = (zone, time)
    while tick <= simulation.end:
        found[tick] = _visits_at(counters, tally, present, tick, site.counts_for)
        tick += site.tick
    return found


def _visits_at(
    counters: VisitCounts, tally: VisitCounter, present: dict[str, tuple[int, Micros]], tick: Micros, validity: Micros
) -> LevelCounts | None:
    for device in [device for device, (_, time) in present.items() if tick >= time + validity]:
        del present[device]
    return counters.count(tally, tick, present)


class ObservedWindows(NamedTuple):
    """What comes of a recording."""

    windows: Windows
    problem: DataError | None
    """What to report of rows that were bad or lost, once the answer is printed; None where there is nothing."""


def observed_windows(
    policy: Policy,
    path: Path,
    progress: Callable[..., None] | None = None,
    dialect: Dialect = OWN,
    heard: Callable[[ObservationBatch], None] = lambda _: None,
) -> ObservedWindows:
    """Return the windows of a recording, sensed as a replay would: restricted, as their counts are true ones.

    Pseudonyms are temporary. Each batch is also passed to ``heard``.

    Raises:
        UsageError: the file cannot be read.
        DataError: it cannot be read to its end, or no window comes of it.
    """
    file = ObservationFile(path, policy, secrets.token_bytes(32), dialect=dialect, progress=progress)
    stages = {site: Pipeline(policy, site, plan_keys()).stages.occupancy for site in policy.site}
    states = {site: sense.initial() for site, sense in stages.items()}
    windows: dict[str, list[OccupancyWindow]] = {site: [] for site in policy.site}
    for message in file.messages():
        if isinstance(message, ObservationBatch):
            heard(message)
        states[message.site], made = stages[message.site].step(states[message.site], message)
        windows[message.site] += [each for each in made if isinstance(each, OccupancyWindow)]
    dropped = Counter[str]()
    for state in states.values():
        dropped.update(dropped_rows(state.counters))
    problem = shortfall(file.tally, dropped)
    if not any(windows.values()):
        raise problem or DataError("the file contains no window")
    return ObservedWindows(windows, problem)


class SimulatedDay(NamedTuple):
    """A simulated building on its day; it contains no real people, so its counts may be shown."""

    zones: tuple[str, ...]
    kinds: tuple[str, ...]
    windows: tuple[OccupancyWindow, ...]


@lru_cache(maxsize=4)
def simulated_day(
    tick_length: Micros = 5 * MINUTE,
    validity: Micros = 10 * MINUTE,
    timezone: str = "America/Los_Angeles",
    by_day: ContributionBound | None = None,
    *,
    sessions: bool = False,
) -> SimulatedDay:
    """Return the simulated day as a site with this tick, validity, time zone and privacy day would count it.

    With ``sessions`` its controller reports who leaves.
    """
    return sensed(_simulation(timezone), tick_length, validity, by_day, sessions=sessions)


@lru_cache(maxsize=4)
def _simulation(timezone: str) -> Simulation:
    return simulate(replace(DAY_SHOWN, timezone=timezone))


def sensed(
    simulation: Simulation, tick_length: Micros, validity: Micros, by_day: ContributionBound | None,
    *, sessions: bool = False,
) -> SimulatedDay:  # fmt: skip
    """Return a simulated run as a site with this tick, validity and privacy day would count it."""
    site, building = simulation.config.site, simulation.building
    sense = OccupancyOperator(
        site=site, zones=building.zones, sources=("simulated",), max_devices=200_000,
        access_points=dict(zip(building.access_points, building.zones, strict=True)),
        tick_length=tick_length, validity=validity, lateness=30_000_000, by_day=by_day, sessions=sessions,
    )  # fmt: skip
    batches = _batches(simulation, by_day, sessions=sessions)
    windows = _windows(sense, batches, simulation.start, simulation.end)
    return SimulatedDay(building.zones, building.kinds, tuple(windows))


def _windows(
    sense: OccupancyOperator, batches: Iterable[ObservationBatch], start: Micros, end: Micros
) -> list[OccupancyWindow]:
    """Return the windows of batches that all come before the first heartbeat."""
    state, windows = sense.initial(), list[OccupancyWindow]()
    beats = (Heartbeat(sense.site, "simulated", 0, start), Heartbeat(sense.site, "simulated", 0, end))
    items: tuple[ObservationBatch | Heartbeat, ...] = (*batches, *beats)
    for item in items:
        state, produced = sense.step(state, item)
        windows += [output for output in produced if isinstance(output, OccupancyWindow)]
    return windows


def _batches(simulation: Simulation, by_day: ContributionBound | None, *, sessions: bool) -> Iterator[ObservationBatch]:
    """Return the observations, one batch for each privacy day; with ``sessions`` also the end of each visit."""
    points = simulation.building.access_points
    rows = (
        Row(simulation.devices[device], None if point is None else points[point], time)
        for time, device, point in _sightings(simulation, sessions=sessions)
    )
    return _by_privacy_day(simulation.config.site, rows, by_day)


def _by_privacy_day(site: str, rows: Iterable[Row], by_day: ContributionBound | None) -> Iterator[ObservationBatch]:
    """Yield rows in order of time as one batch for each privacy day."""
    days = None if by_day is None else PrivacyDays(by_day.day_starts, by_day.timezone)
    of_days = groupby(rows, lambda row: None if days is None else days.at(row.time))
    for number, (day, batch) in enumerate(of_days):
        yield ObservationBatch(site, "simulated", 0, number, tuple(batch), day)


def _sightings(simulation: Simulation, *, sessions: bool) -> Iterable[tuple[Micros, int, int | None]]:
    """Return time, device and access point of each observation; with ``sessions`` also (None) the end of each visit."""
    rows = zip(simulation.time.tolist(), simulation.device.tolist(), simulation.access_point.tolist(), strict=True)
    if not sessions:
        return rows
    visits = zip(simulation.visits.end.tolist(), simulation.visits.device.tolist(), strict=True)
    ends = ((end, device, None) for end, device in visits)
    return sorted(chain(rows, ends), key=lambda row: (row[0], row[2] is not None))


def stand_ins(zones: Sequence[Zone], names: Sequence[str], kinds: Sequence[str]) -> list[tuple[int, ...]]:
    """Return, for each zone of a policy, the indices of the simulated zones whose devices it has.

    They are its namesake alone, or for each of its access points one of its kind: simulated zones have one each.

    Args:
        zones: those of the policy's site, in registry order.
        names: ids of the simulated zones.
        kinds: their kinds.
    """
    known = {named: place for place, named in enumerate(zip(names, kinds, strict=True))}
    of_kind = {kind: [place for place, other in enumerate(kinds) if other == kind] for kind in kinds}
    public = [place for place, kind in enumerate(kinds) if kind != OFFICE]
    nexts = {kind: count() for kind in ("", *of_kind)}
    chosen = list[tuple[int, ...]]()
    for zone in zones:
        namesake = known.get((zone.id, zone.kind))
        if namesake is not None:
            chosen.append((namesake,))
            continue
        like, kind = of_kind.get(zone.kind, public), zone.kind if zone.kind in of_kind else ""
        chosen.append(tuple(like[next(nexts[kind]) % len(like)] for _ in range(_access_points(zone))))
    return chosen


def _access_points(zone: Zone) -> int:
    """Return how many access points a zone has, as far as its keys tell: at least 1, at most ``MOST_STAND_INS``."""
    return min(max(1, len(zone.radios), len(zone.access_point_names)), MOST_STAND_INS)


class Quality(NamedTuple):
    """The quality of a release at one level, per value and window."""

    error: float
    """Mean absolute error."""
    mean: float
    """Mean true count, which is the error of a constant 0."""
    median: float
    """Mean absolute error of the median of the same zone, floor or building as a constant."""

    @property
    def worse_than_zero(self) -> bool:
        """Whether a constant 0 would be nearer to the truth."""
        return self.error > self.mean

    @property
    def worse_than_median(self) -> bool:
        """Whether a constant median would be nearer to the truth."""
        return self.error > self.median

    @property
    def poor(self) -> bool:
        """Whether one of these constants would be nearer to the truth."""
        return self.worse_than_zero or self.worse_than_median


ByLevelQuality = Mapping[str, Quality]
"""Level -> quality, what is counted first."""


def expected_quality(
    policy: Policy, site: str, release: CountRelease, epsilon: Fraction, days: Windows,
    tick: Callable[[], None] = lambda: None,
) -> ByLevelQuality:  # fmt: skip
    """Return how good a release is at an epsilon on a site's windows; nothing where none can be released.

    ``tick`` is called after each window.
    """
    plan = count_plan(policy, release, site)
    windows = tried_windows(release, days[site])
    truth, published = [plan.truth(window) for window in windows], []
    for counts in published_counts(policy, plan, epsilon, windows):
        published.append(counts)
        tick()
    return by_level_quality(truth, published)


def tried_windows(release: CountRelease, windows: Sequence[OccupancyWindow]) -> list[OccupancyWindow]:
    """Return the windows on which a release is tried: those that have the counts that it publishes."""
    if release.by_changes:
        return [window for window in windows if window.by_visits is not None]
    return [window for window in windows if not release.by_day or window.bounded is not None]


def by_level_quality(truth: Sequence[ByLevel], published: Sequence[ByLevel]) -> ByLevelQuality:
    """Return the quality of counts, window by window, against the true ones of the same names."""
    levels = truth[0] if truth else {}
    return {
        level: _quality(_table(truth, level, names), _table(published, level, names)) for level, names in levels.items()
    }


def _table(rows: Sequence[ByLevel], level: str, names: Iterable[str]) -> Ints:
    """Return one level's counts, shape [windows, names]."""
    return np.array([[row[level][name] for name in names] for row in rows], dtype=np.int64)


def _quality(truth: Ints, published: Ints) -> Quality:
    always = np.median(truth, axis=0)
    return Quality(*(float(np.mean(each)) for each in (np.abs(published - truth), truth, np.abs(truth - always))))


def published_counts(
    policy: PolicyDocument, plan: CountPlan, epsilon: Fraction, windows: Sequence[OccupancyWindow]
) -> Iterator[ByLevel]:
    """Yield the published counts of each window: with one audience, those of a replay under the same keys."""
    site, mechanism = policy.site[plan.site], plan.mechanisms[epsilon]
    state, today = mechanism.initial(), None
    summed = plan.sums.initial() if isinstance(plan, ChangePlan) else None
    for window in windows:
        key_day = key_day_of(window.window_end - site.tick)
        if key_day != today:
            state, today = mechanism.pause(state), key_day
        key = subkey(plan_keys().noise_key(key_day), Purpose.NOISE)
        slot = slot_of(window.window_end, site.timezone, site.day_starts or MIDNIGHT)
        item = _input(plan, mechanism, window, key, slot)
        if isinstance(plan, ChangePlan) and summed is not None:
            tick = plan.day_tick(window)
            summed, [counts] = plan.sums.step(summed, tick)
            item = item._replace(counts=counts, position=tick.position)
        state, [made] = mechanism.step(state, item)
        yield plan.published_counts(mechanism, made)


def _input(
    plan: CountPlan, mechanism: CountMechanism, window: OccupancyWindow, key: bytes, slot: WeekSlot
) -> TickInput:
    context = Context(plan.site, plan.release.name, window.window_end, 1, plan.names, plan.suffix(window))
    counts, law = plan.counts(window), mechanism.noise
    noise = np.zeros_like(counts)
    if not plan.draws_own_noise:
        noise = noise_chain(key, context, counts_digest(counts), [law], len(counts))[law]
    return TickInput(counts, noise, key, context, slot)
