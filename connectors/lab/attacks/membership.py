"""Membership trials: do releases exceed their guarantees? Each runs often with and without a canary.

The result is a lower bound on epsilon, which is compared with the guarantee. The two worlds differ by one device of
greatest contribution, the canary:

| unit of epsilon       | the canary                                                               |
|-----------------------|--------------------------------------------------------------------------|
| a window              | is present at one tick, in one zone                                      |
| any w windows         | is present at w consecutive ticks                                        |
| a device's day        | is present all day, so that it counts at as many ticks as a device may;  |
|                       | where changes are counted, it comes and goes as often as a device may,   |
|                       | each time at another node                                                |
| attributes of a day   | is in an office during all working hours, where nobody else is           |

All other devices are those of a recording. A device adds to counts independently of the others, so the worlds are
added.

Where changes are counted, records show only what a filter makes of a day's noisy sums of changes. The attacker is given
these sums, of which everything that is published follows, and knows what they would be without noise in both worlds. So
its ratio is exact, and no attacker on the records does better.

Threshold streams are attacked on a day on which the canary alone decides, at every tick at which it may count. Without
it a node's count lies so far from the query's edge that alerts are rare; with it the count is one more. All other nodes
are empty. Streams that decide on charged counts disclose nothing beyond these, and are not attacked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from functools import partial
from itertools import chain, zip_longest
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import orjson

from connectors.lab.attacks.published import Channel, Nodes, PublishedDay, Publisher, count_releases
from connectors.lab.attacks.recording import Day, RecordedSightings, days_of, laboratory
from stream.errors import DataError, UsageError
from stream.lab.attackers.beliefs import Floats, Ints
from stream.lab.attackers.membership import LEVEL, Bound, best_threshold, measure
from stream.mechanisms.changes.levels import LevelChanges
from stream.mechanisms.changes.mechanism import ChangeState
from stream.pipeline import Options, build_stages
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.sites import Site
from stream.policy.thresholds import ThresholdRelease
from stream.records import (
    EPOCH,
    HOUR,
    DayClosed,
    Heartbeat,
    LevelCounts,
    Message,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Published,
    Row,
)
from stream.release.count_plan import ChangePlan, count_plans
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.thresholds import RunPlan
from stream.release.validation import Policy
from stream.schemas import private_topic

CANARY = "c0ffee0000000000"
AROUND = 2
"""Windows that are released before and after those of the canary."""


class Worlds(NamedTuple):
    """The same windows with and without the canary."""

    there: list[OccupancyWindow]
    away: list[OccupancyWindow]
    zone: int
    """Where the canary is."""


def count_worlds(policy: Policy, recorded: RecordedSightings, day: Day, release: CountRelease) -> Worlds:
    """Return both worlds for a release of counts: the canary is in the zone with most people that the release
    covers, from its fullest window on, but begins early enough that the day contains all its windows.

    Raises:
        DataError: the unit is a day, and the recording has no day with bounded counts.
    """
    covered = [i for i, zone in enumerate(recorded.site.zones) if release.zones.covers(zone)]
    zone = max(covered, key=lambda place: int(day.counts[:, place].sum()))
    if release.by_day:
        return _all_day(policy, recorded, day, _path(policy, recorded, release, zone), changes=release.by_changes)
    first = min(int(day.counts[:, zone].argmax()), max(0, len(day.windows) - release.windows_paid))
    span = range(first, first + release.windows_paid)
    shown = day.windows[max(0, first - AROUND) : span.stop + AROUND]
    ticks = {window.window_end for window in day.windows[span.start : span.stop]}
    return Worlds([_with(window, zone) if window.window_end in ticks else window for window in shown], shown, zone)


def _with(window: OccupancyWindow, zone: int) -> OccupancyWindow:
    return replace(window, counts=_one_more(window.counts, zone))


def _one_more(counts: tuple[int, ...], zone: int) -> tuple[int, ...]:
    return (*counts[:zone], counts[zone] + 1, *counts[zone + 1 :])


class _Path(NamedTuple):
    """Where the canary is during a day."""

    zones: Sequence[int]
    """The zone of each visit."""
    away: bool
    """Whether it is absent between two visits, as long as at each."""


def _path(policy: Policy, recorded: RecordedSightings, release: CountRelease, fullest: int) -> _Path:
    """Return the path of the canary: one visit, or as many as a device may make, each at another node if there are
    several.

    It is absent in between where a node would otherwise see one visit only.
    """
    if not release.by_changes:
        return _Path([fullest], away=False)
    site = recorded.site
    by_floor: dict[str, list[int]] = {}
    for place, zone in enumerate(site.zones):
        if release.zones.covers(zone):
            by_floor.setdefault(zone.floor, []).append(place)
    in_turn = [place for row in zip_longest(*by_floor.values()) for place in row if place is not None]
    zones = [in_turn[number % len(in_turn)] for number in range(site.visits)]
    return _Path(zones, away=len(in_turn) == 1 or release.levels != ("zone",))


def _all_day(policy: Policy, recorded: RecordedSightings, day: Day, path: _Path, *, changes: bool) -> Worlds:
    days = recorded.site.privacy_days
    if days is None:
        raise UsageError("a release that is paid by the day must be of a site with privacy days")
    privacy_day = days.at(int(day.ticks[len(day.ticks) // 2]))
    shown = [w for w in recorded.windows if privacy_day.start < w.window_end <= privacy_day.end]
    alone = {window.window_end: window for window in _canary_windows(policy, recorded, path, shown)}
    there, last = [], 0
    for place, window in enumerate(shown):
        mine = alone.get(window.window_end)
        if mine is None or None in (_paid_for(window, changes=changes), _paid_for(mine, changes=changes)):
            there.append(window)
            continue
        there.append(_with_canary(window, mine))
        last = place if any(_paid_for(mine, changes=changes) or ()) else last
    if not last:
        raise DataError("the recording must contain a whole privacy day; the canary counted in no window of it")
    pairs = enumerate(zip(there, shown, strict=True))
    first = next(n for n, (a, b) in pairs if _paid_for(a, changes=changes) != _paid_for(b, changes=changes))
    return Worlds(there[first : last + 1], shown[first : last + 1], path.zones[0])


def _paid_for(window: OccupancyWindow, *, changes: bool) -> tuple[int, ...] | None:
    """Return the counts that a day's price pays for; those of all levels where it pays for changes."""
    if changes:
        return None if window.by_visits is None else tuple(chain.from_iterable(window.by_visits))
    return window.bounded


def _with_canary(window: OccupancyWindow, mine: OccupancyWindow) -> OccupancyWindow:
    """Return a window with the counts of another one, in which only the canary is present, added."""
    bounded, visits = window.bounded, window.by_visits
    if bounded is not None and mine.bounded is not None:
        bounded = _sum(bounded, mine.bounded)
    if visits is not None and mine.by_visits is not None:
        visits = LevelCounts(*(_sum(a, b) for a, b in zip(visits, mine.by_visits, strict=True)))
    return replace(window, counts=_sum(window.counts, mine.counts), bounded=bounded, by_visits=visits)


def _sum(counts: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(counts, more, strict=True))


def _canary_windows(
    policy: Policy, recorded: RecordedSightings, path: _Path, shown: Sequence[OccupancyWindow]
) -> list[OccupancyWindow]:
    """Return the windows of a building in which only the canary is present, from an hour after the day's start on."""
    sense = build_stages(policy, recorded.name, laboratory(0), Options(), keep_presence=False).occupancy
    state, made = sense.initial(), list[OccupancyWindow]()
    for message in _canary_messages(recorded, path, shown[0].window_end, shown[-1].window_end):
        state, out = sense.step(state, message)
        made += [each for each in out if isinstance(each, OccupancyWindow)]
    return made


def _canary_messages(recorded: RecordedSightings, path: _Path, first: Micros, last: Micros) -> Iterator[Message]:
    """Yield what is heard of a canary; all its visits, and the absences between them, are equally long."""
    parts = [zone for place in path.zones for zone in ((place, None) if path.away else (place,))]
    part = max(1, (last - first - HOUR) // len(parts[:-1] if path.away else parts))
    site, name, days = recorded.site, recorded.name, recorded.site.privacy_days
    for sequence, tick in enumerate(range(first - site.tick, last + 1, site.tick)):
        since = tick - first - HOUR  # devices that are present in the day's first half hour are residents
        if since > 0:
            zone = parts[min(since // part, len(parts) - 1)]
            rows = (Row(CANARY, None if zone is None else site.zones[zone].radios[0], tick),)
            epoch = None if days is None else days.at(tick)
            yield ObservationBatch(name, site.sources[0], 1, sequence, rows, epoch)
        for source in site.sources:
            yield Heartbeat(name, source, 1, tick, first - 2 * site.tick)
    for source in site.sources:
        yield Heartbeat(name, source, 1, last + site.lateness + 1, first - 2 * site.tick)


class AttributeWorlds(NamedTuple):
    """A local day with a person in an office, and the same day with the office empty."""

    there: DayClosed
    """The day with the canary, whose values may not be sensitive."""
    away: DayClosed
    """The day without anybody, whose values are protected."""
    zone: str


def attribute_worlds(
    policy: Policy, recorded: RecordedSightings, day: Day, release: AttributeRelease
) -> AttributeWorlds:
    """Return both days for a release of attributes, for the first zone that it covers.

    Raises:
        DataError: these windows contain no complete day.
    """
    site = recorded.site
    place = next(i for i, zone in enumerate(site.zones) if release.zones.covers(zone))
    opens, closes = (int(text[:2]) * 60 + int(text[3:]) for text in site.working_hours)
    local = ZoneInfo(site.timezone)
    empty, full = [], []
    after = replace(day.windows[-1], window_end=day.windows[-1].window_end + site.tick)
    for window in [*day.windows, after]:
        at = (EPOCH + timedelta(microseconds=window.window_end)).astimezone(local)
        counts = (*window.counts[:place], 0, *window.counts[place + 1 :])
        empty.append(replace(window, counts=counts))
        works = opens <= at.hour * 60 + at.minute < closes
        full.append(replace(window, counts=_one_more(counts, place) if works else counts))
    there, away = (_day_closed(policy, recorded.name, windows) for windows in (full, empty))
    return AttributeWorlds(there, away, site.zones[place].id)


def _day_closed(policy: Policy, site: str, windows: Sequence[OccupancyWindow]) -> DayClosed:
    stage = build_stages(policy, site, laboratory(0), Options(), keep_presence=False).attributes
    state, made = stage.initial(), list[DayClosed]()
    for window in windows:
        state, out = stage.step(state, window)
        made += out
    if not made:
        raise DataError("the recording must contain a whole local day for attributes")
    return made[0]


THRESHOLD_SCORES = ("alerts", "first alert")
"""The number of windows with an alert; how early the first alert begins."""

RARE_ALERTS = 3
"""How far from the edge of the question the count is, in scales of its noise: one more device makes rare alerts
likelier by more than frequent ones."""


def charged_threshold_releases(policy: Policy, site: str) -> list[ThresholdRelease]:
    """Return the threshold streams of a site that are charged per run."""
    releases = [release for release in policy.release if isinstance(release, ThresholdRelease) and not release.free]
    return [release for release in releases if policy.zones_of(release, site)]


def threshold_worlds(policy: Policy, recorded: RecordedSightings, day: Day, release: ThresholdRelease) -> Worlds:
    """Return both worlds: as many windows of one privacy day as the device may count in.

    Raises:
        DataError: the recording does not contain them.
    """
    plan, site = RunPlan(policy, release, recorded.name), recorded.site
    middle = day.windows[len(day.windows) // 2].privacy_day
    windows = [window for window in recorded.windows if window.privacy_day == middle]
    windows = [window for window in windows if plan.scheduled(window.window_end)[0]]
    if middle is None or not windows:
        raise DataError(f"the recording must contain a privacy day on which release '{release.name}' asks")
    zone = [each.id for each in site.zones].index(plan.covered[plan.members[0][0]])
    rare = plan.vector.shift + round(RARE_ALERTS / float(plan.vector.run_distribution.half))
    edge = max(0, plan.thresholds[0] - rare if release.alert == "above" else plan.thresholds[0] + rare - 1)
    shown = windows[: site.contribution_ticks]
    there, away = ([_with_count(window, zone, count) for window in shown] for count in (edge + 1, edge))
    return Worlds(there, away, zone)


def _with_count(window: OccupancyWindow, zone: int, count: int) -> OccupancyWindow:
    counts = tuple(count if place == zone else 0 for place in range(len(window.counts)))
    return replace(window, counts=counts, bounded=counts)


def threshold_run_scores(
    policy: Policy, site: str, release: ThresholdRelease, windows: list[OccupancyWindow], seed: str
) -> dict[str, tuple[float, ...]]:
    """Run a stream over windows; return each audience's scores of the canary's node."""
    only = policy.with_releases([release])
    stage, node = ReleaseStage(only, site, laboratory(0, seed)), RunPlan(policy, release, site).names[0]
    topics = {private_topic(audience, release.name): audience for audience in release.audiences}
    above: dict[str, list[bool]] = {audience: [] for audience in release.audiences}
    state = stage.initial()
    for window in windows:
        state, outputs = stage.step(state, window)
        for output in outputs:
            if isinstance(output, Published) and output.topic in topics:
                above[topics[output.topic]].append(bool(orjson.loads(output.value)["above"].get(node)))
    return {audience: _scored(alerts) for audience, alerts in above.items()}


def _scored(alerts: list[bool]) -> tuple[float, ...]:
    first = alerts.index(True) if True in alerts else len(alerts)
    return float(sum(alerts)), float(len(alerts) - first)


Tick = Callable[[int], None]
SCORES = ("likelihood", "values")
"""What an attacker makes of a run: the exact log-likelihood ratio, 0 where it cannot be had (to nine digits, so that
outcomes of one ratio are one); values added up."""
WITHHELD = ("withheld",)
"""Of attributes: how many are not shown."""


class Guarantee(NamedTuple):
    """The guarantee of one audience's share of a release about the canary."""

    release: str
    audience: str
    unit: str
    epsilon: float
    delta: float


class MembershipTrial(NamedTuple):
    """The result of testing one guarantee."""

    guarantee: Guarantee
    bound: Bound
    score: str
    """The score, chosen together with the threshold."""
    largest_ratio: float | None
    """The largest exact |log-likelihood ratio| of a measured run; None if it is unknown."""

    @property
    def exceeded(self) -> bool:
        """Whether the lower bound exceeds the guarantee."""
        return self.bound.exceeds(self.guarantee.epsilon)


class Scores(NamedTuple):
    """Scores of the runs in both worlds, each of shape [runs, scores]."""

    names: tuple[str, ...]
    there: Floats
    away: Floats


def membership(
    policy: Policy, recorded: RecordedSightings, runs: int, seed: int, bounding: Policy, tick: Tick
) -> Iterator[MembershipTrial]:
    """Yield the result for each count and attribute release and audience.

    Args:
        policy: supplies the releases.
        recorded: the people among whom the canary is.
        runs: measured in each world; as many again choose the threshold.
        seed: of the noise.
        bounding: the policy whose guarantees are tested; it has the same releases and audiences.
        tick: called with the number of completed runs.

    Raises:
        UsageError: a release has no guarantee.
        DataError: the recording has no whole days.
    """
    counts, attributes = count_releases(policy, recorded.name), _attribute_releases(policy, recorded.name)
    guarantees = attacked_guarantees(policy, bounding, recorded.name)
    level, day, done = LEVEL / max(1, len(guarantees)), days_of(recorded)[-1], _RunCounter(tick)
    for release in counts:
        both = count_worlds(policy, recorded, day, release)
        scored = _count_scores(policy, recorded.name, release, both, _Plan(2 * runs, seed, done))
        for audience in release.epsilon:
            yield _trial(guarantees[release.name, audience], scored[audience], level)
    for attribute_release in attributes:
        days = attribute_worlds(policy, recorded, day, attribute_release)
        scored = _attribute_scores(policy, recorded.name, attribute_release, days, _Plan(2 * runs, seed, done))
        for audience, mine in scored.items():
            found = _trial(guarantees[attribute_release.name, audience], mine, level, one_way=True)
            yield found._replace(largest_ratio=_withheld_ratio(attribute_release, audience, days))
    for stream in charged_threshold_releases(policy, recorded.name):
        both = threshold_worlds(policy, recorded, day, stream)
        for audience, mine in _threshold_scores(
            policy, recorded.name, stream, both, _Plan(2 * runs, seed, done)
        ).items():
            yield _trial(guarantees[stream.name, audience], mine, level)


def attacked_guarantees(policy: Policy, bounding: Policy, site: str) -> dict[tuple[str, str], Guarantee]:
    """Return the guarantees of ``bounding`` for each release and audience of ``policy``.

    Raises:
        UsageError: it lacks the site, or has no guarantee for a release and audience.
    """
    if site not in bounding.site:
        raise UsageError(f"--promised: must have site '{site}' too")
    known = {(each.release, each.audience): each for each in _guarantees(bounding, site)}
    tried = [(each.release, each.audience) for each in _guarantees(policy, site)]
    for release, audience in tried:
        if (release, audience) not in known:
            raise UsageError(f"--promised: must have release '{release}' for audience '{audience}' too")
    return {key: known[key] for key in tried}


class _RunCounter:
    """How many runs have been made."""

    def __init__(self, tick: Tick) -> None:
        self._tick, self._runs = tick, 0

    def one(self) -> None:
        self._runs += 1
        self._tick(self._runs)


class _Plan(NamedTuple):
    runs: int
    """Runs in each world, including those that choose the threshold."""
    seed: int
    done: _RunCounter


def _trial(guarantee: Guarantee, scored: Scores, level: float, *, one_way: bool = False) -> MembershipTrial:
    """Choose score and threshold on the first half of the runs, and measure them on the second."""
    half, delta = len(scored.there) // 2, guarantee.delta
    chosen: tuple[float, int, float] = (-1.0, 0, 0.0)  # lower bound, negated index of the score, threshold
    known = scored.names == SCORES and bool(scored.there[:half, 0].any() or scored.away[:half, 0].any())
    for kind in range(scored.names == SCORES and not known, len(scored.names)):
        there, away = scored.there[:half, kind], scored.away[:half, kind]
        threshold = best_threshold(there, away, level, delta, one_way=one_way)
        shown = measure(there, away, threshold, level, delta, one_way=one_way).epsilon
        chosen = max(chosen, (shown, -kind, threshold))
    kind, threshold = -chosen[1], chosen[2]
    there, away = scored.there[half:, kind], scored.away[half:, kind]
    bound = measure(there, away, threshold, level, delta, one_way=one_way)
    ratios = np.abs(np.concatenate([scored.there[half:, 0], scored.away[half:, 0]]))
    return MembershipTrial(guarantee, bound, scored.names[kind], float(ratios.max()) if known else None)


def _guarantees(policy: Policy, site: str) -> Iterator[Guarantee]:
    for release in count_releases(policy, site):
        windows = "window" if release.windows_paid == 1 else f"{release.windows_paid} windows"
        unit = "device_day" if release.by_day else windows
        gaussian = release.by_day and release.noise == "gaussian"
        delta = float(policy.privacy.delta if release.delta is None else release.delta) if gaussian else 0.0
        for audience, epsilon in release.epsilon.items():
            yield Guarantee(release.name, audience, unit, float(epsilon), delta)
    for attributes in _attribute_releases(policy, site):
        for audience in _audiences(attributes):
            total = sum(float(rule.epsilon.get(audience, 0)) for rule in attributes.attributes.values())
            yield Guarantee(attributes.name, audience, "attributes of a day", total, 0.0)
    for stream in charged_threshold_releases(policy, site):
        for audience in stream.audiences:
            yield Guarantee(stream.name, audience, "device_day", float(RunPlan(policy, stream, site).price.day), 0.0)


def _attribute_releases(policy: Policy, site: str) -> list[AttributeRelease]:
    return [r for r in policy.release if isinstance(r, AttributeRelease) and policy.zones_of(r, site)]


def _audiences(release: AttributeRelease) -> list[str]:
    return list(dict.fromkeys(name for rule in release.attributes.values() for name in rule.epsilon))


# --- counts -------------------------------------------------------------------------------------------


def _count_scores(policy: Policy, site: str, release: CountRelease, both: Worlds, plan: _Plan) -> dict[str, Scores]:
    """Run a release in both worlds; return the scores of each audience."""
    publisher = Publisher(policy, site, [release], measured=True)
    nodes = publisher.nodes[release.name]
    count = partial(_visits, policy.site[site]) if release.by_changes else partial(_counts, bounded=release.by_day)
    truth = _Truth(*(count(windows=windows, nodes=nodes) for windows in (both.there, both.away)))
    changes = ChangesAttacker(policy, site, release, both) if release.by_changes else None
    scored: dict[str, tuple[list[tuple[float, ...]], ...]] = {name: ([], []) for name in release.epsilon}
    for run in range(plan.runs):
        for side, windows in enumerate((both.there, both.away)):
            published = publisher.run(windows, laboratory(plan.seed, f"canary {release.name} {side} {run}"))
            for audience, epsilon in release.epsilon.items():
                likelihood, values = _score(published, Channel(release.name, audience, "values"), nodes, truth)
                likelihood = changes.ratio(publisher.state, epsilon) if changes else likelihood
                scored[audience][side].append((likelihood, values))
        plan.done.one()
    return {name: Scores(SCORES, *(np.array(side) for side in sides)) for name, sides in scored.items()}


class _Truth(NamedTuple):
    """True counts of each node in both worlds, shape [windows, nodes]."""

    there: Ints
    away: Ints


class ChangesAttacker:
    """Tells two worlds apart by a day's noisy sums of changes (u'), which the mechanism holds when the day is over."""

    def __init__(self, policy: Policy, site: str, release: CountRelease, both: Worlds) -> None:
        (plan,) = count_plans(policy.with_releases([release]), site)
        if not isinstance(plan, ChangePlan):
            raise UsageError(f"release '{release.name}' must count changes")
        self._plan, self._both = plan, both
        self._expected: dict[tuple[bool, ...], tuple[Floats, Floats]] = {}

    def ratio(self, state: ReleaseState, epsilon: Fraction) -> float:
        """Return the exact log-likelihood ratio of what a run measured, *there* against *away*."""
        held: Any = state.operator_states[self._plan.state_name(epsilon)]
        levels: tuple[ChangeState, ...] = held
        released = levels[0].released
        measured = np.hstack([each.measured[np.array(released)] for each in levels])
        there, away = self._sums_of(released)
        return round(
            float((((measured - away) ** 2 - (measured - there) ** 2) / self._variances(epsilon)).sum() / 2), 9
        )

    def squared_shift(self, epsilon: Fraction) -> float:
        """Return by how much the worlds' sums differ, all windows released: Σ (difference / sigma')², mu² at most."""
        site_day = self._plan.day_prices
        assert site_day is not None  # noqa: S101
        there, away = self._sums_of((True,) * site_day.matrix_factor.ticks)
        return float(((there - away) ** 2 / self._variances(epsilon)).sum())

    def _variances(self, epsilon: Fraction) -> Floats:
        """Return sigma'² of each node."""
        mechanism = self._plan.mechanisms[epsilon]
        if not isinstance(mechanism, LevelChanges):
            raise UsageError("a release that counts changes must have a mechanism of changes")
        return np.concatenate([np.full(each.nodes, float(each.variance)) for each in mechanism.levels])

    def _sums_of(self, released: tuple[bool, ...]) -> tuple[Floats, Floats]:
        """Return the sums without noise of both worlds; the same windows are released in every run."""
        if released not in self._expected:
            there, away = (self._sums(windows, released) for windows in (self._both.there, self._both.away))
            self._expected[released] = there, away
        return self._expected[released]

    def _sums(self, windows: Sequence[OccupancyWindow], released: Sequence[bool]) -> Floats:
        """Return C'd of one world at the released positions, shape [positions, nodes]."""
        sums = self._plan.sums
        state, made = sums.initial(), list[Ints]()
        for window in windows:
            tick = self._plan.day_tick(window) if self._plan.is_counted(window) else None
            if tick is not None and tick.position < len(released) and released[tick.position]:
                state, found = sums.step(state, tick)
                made += found
        return np.array(made, dtype=np.float64)


def _counts(windows: Sequence[OccupancyWindow], nodes: Nodes, *, bounded: bool) -> Ints:
    read = [window.bounded if bounded and window.bounded is not None else window.counts for window in windows]
    return np.asarray(np.array(read, dtype=np.int64) @ nodes.holds.T.astype(np.int64))


def _visits(site: Site, windows: Sequence[OccupancyWindow], nodes: Nodes) -> Ints:
    zones, floors = [zone.id for zone in site.zones], sorted({zone.floor for zone in site.zones})
    places = {("zone", zone): (0, at) for at, zone in enumerate(zones)}
    places |= {("floor", floor): (1, at) for at, floor in enumerate(floors)} | {("building", "building"): (2, 0)}
    wanted = [places[name] for name in nodes.names]
    levels = [window.by_visits for window in windows]
    read = [[0 if each is None else each[level][at] for level, at in wanted] for each in levels]
    return np.array(read, dtype=np.int64)


def _score(published: dict[Channel, PublishedDay], values: Channel, nodes: Nodes, truth: _Truth) -> tuple[float, ...]:
    """Return the scores of one run: from published values with a known law, and from values in the canary's windows."""
    changed = truth.there != truth.away
    shown, likelihood = published[values], 0.0
    exact = published.get(values._replace(reads="noisy"), shown)
    for node, law in enumerate(exact.laws or ()):
        at = changed[:, node] & exact.released
        seen = exact.values[at, node]
        ratio = law.log(seen - truth.there[at, node]) - law.log(seen - truth.away[at, node])
        likelihood += float(ratio.sum())
    return round(likelihood, 9), float((shown.values * changed * shown.released[:, None]).sum())


# --- attributes ---------------------------------------------------------------------------------------


def _attribute_scores(
    policy: Policy, site: str, release: AttributeRelease, both: AttributeWorlds, plan: _Plan
) -> dict[str, Scores]:
    """Query a day's attributes; the score is the number withheld, *there* the world whose values are protected."""
    only = policy.with_releases([release])
    audiences = _audiences(release)
    scored: dict[str, tuple[list[tuple[float, ...]], ...]] = {name: ([], []) for name in audiences}
    for run in range(plan.runs):
        for side, closed in enumerate((both.away, both.there)):
            stage = ReleaseStage(only, site, laboratory(plan.seed, f"canary {release.name} {side} {run}"))
            _, outputs = stage.step(stage.initial(), closed)
            for audience in audiences:
                topic = private_topic(audience, release.name)
                records = [orjson.loads(o.value) for o in outputs if isinstance(o, Published) and o.topic == topic]
                mine = [record for record in records if record["zone"] == both.zone]
                scored[audience][side].append((float(sum(not record["released"] for record in mine)),))
        plan.done.one()
    return {name: Scores(WITHHELD, *(np.array(side) for side in sides)) for name, sides in scored.items()}


def _withheld_ratio(release: AttributeRelease, audience: str, both: AttributeWorlds) -> float:
    """Return the exact log-likelihood ratio of all being withheld: certain if protected, e^-ε each if not."""
    mine = {each.attribute: each.value for each in both.there.attributes if each.zone == both.zone}
    total = 0.0
    for name, rule in release.attributes.items():
        value = mine.get(name)
        if value is not None and not rule.sensitive.holds(value):
            total += float(rule.epsilon.get(audience, 0))
    return total


# --- threshold streams --------------------------------------------------------------------------------


def _threshold_scores(
    policy: Policy, site: str, release: ThresholdRelease, both: Worlds, plan: _Plan
) -> dict[str, Scores]:
    """Run a threshold stream in both worlds; return the scores of each audience."""
    scored: dict[str, tuple[list[tuple[float, ...]], ...]] = {name: ([], []) for name in release.audiences}
    for run in range(plan.runs):
        for side, windows in enumerate((both.there, both.away)):
            key = f"canary {plan.seed} {release.name} {side} {run}"
            for audience, score in threshold_run_scores(policy, site, release, windows, key).items():
                scored[audience][side].append(score)
        plan.done.one()
    return {name: Scores(THRESHOLD_SCORES, *(np.array(side) for side in sides)) for name, sides in scored.items()}
