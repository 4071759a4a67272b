"""Search for the most private candidate that serves a task, on a recording.

All results are restricted, because released values are compared with true counts. Attackers are evaluated at each found
candidate: how many people an external visitor, a student and an administrator find. As in the thesis' comparison of
techniques (Ghayyur, 4.6.2), they have a prior for each ten minutes of the day from all earlier days, learn the laws of
released values from earlier days with kernels a tenth of a standard deviation wide, and read one count per zone at the
end of each ten minutes. They search for everybody who is present.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple, TypedDict

import numpy as np

from connectors.lab.attacks.published import Nodes, PublishedDay
from connectors.lab.attacks.study import FoundPeople, Scene, attacked, beliefs, from_prior
from connectors.operations.policy.quality import observed_windows
from connectors.sources.recordings.dialect import OWN, Dialect
from stream.domains import Purpose
from stream.errors import DataError, UsageError
from stream.keys import LaboratoryKeys, subkey
from stream.lab.attackers.beliefs import OPEN_KINDS, Flags, Floats, by_span, opened, prior
from stream.lab.attackers.likelihoods import LearntDistribution, learn
from stream.lab.tuning.bench import (
    EPSILONS,
    Bench,
    NoiseBench,
    Task,
    TtlBench,
    TuningTerms,
    Unit,
    check_periods,
    payable,
    prepared,
)
from stream.lab.tuning.search import Rules, TriedCandidate, check_rules, search
from stream.lab.tuning.utility import Bools, Measured, Period, Site, World, world_of
from stream.local_time import MIDNIGHT
from stream.mechanisms.exact import Ints
from stream.policy.fields import decimal_string
from stream.pseudonyms.rotation import Sightings
from stream.records import DAY, SECOND, ObservationBatch, OccupancyWindow
from stream.release.validation import Policy

# A site's recording as the tuner reads it.


class RecordedSite(NamedTuple):
    """The recording of one site."""

    name: str
    policy: Policy
    windows: tuple[OccupancyWindow, ...]
    sightings: Sightings
    problem: DataError | None = None
    """What to report of rows that were bad or lost, once the answer is printed."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each zone."""
        return tuple(zone.kind for zone in self.policy.site[self.name].zones)

    @property
    def site(self) -> Site:
        """The site's properties for the search."""
        site = self.policy.site[self.name]
        return Site(
            self.name, site.timezone, tuple(zone.id for zone in site.zones),
            tuple(zone.largest for zone in site.zones), site.tick, site.day_starts or MIDNIGHT,
        )  # fmt: skip

    def counts(self, *, bounded: bool) -> tuple[Ints, Ints]:
        """Return ends of windows and their counts, of windows that have such counts: bounded by the privacy day, or
        all."""
        rows = [(each.window_end, each.bounded if bounded else each.counts) for each in self.windows]
        complete = [(end, counts) for end, counts in rows if counts is not None]
        if not complete:
            raise UsageError(f"site '{self.name}' must have counts in at least one window")
        return np.array([end for end, _ in complete], dtype=np.int64), np.array(
            [row for _, row in complete], dtype=np.int64
        )


def recorded_site(
    policy: Policy, site: str, path: Path, progress: Callable[..., None] | None = None, dialect: Dialect = OWN
) -> RecordedSite:
    """Read a recording of a site.

    Raises:
        UsageError: the file cannot be read.
        DataError: the recording cannot be read to its end, or no window comes of it.
    """
    rows = _Rows(policy, site)
    observed = observed_windows(policy, path, progress, dialect, rows.add)
    return RecordedSite(site, policy, tuple(observed.windows[site]), rows.sightings(), observed.problem)


class _Rows:
    """The rows of a site, by column; devices are numbered in the order of their first row."""

    def __init__(self, policy: Policy, site: str) -> None:
        zones = policy.site[site].zones
        self._site = site
        self._places = {point: place for place, zone in enumerate(zones) for point in zone.radios}
        self._numbers: dict[str, int] = {}
        self._columns = (array("q"), array("q"), array("q"))

    def add(self, batch: ObservationBatch) -> None:
        """Add a batch's rows, if it belongs to the site."""
        if batch.site != self._site:
            return
        times, devices, zones = self._columns
        for device, point, time in batch.rows:
            devices.append(self._numbers.setdefault(device, len(self._numbers)))
            zones.append(-1 if point is None else self._places[point])
            times.append(time)

    def sightings(self) -> Sightings:
        """Return all rows."""
        return Sightings(*(np.array(column, dtype=np.int64) for column in self._columns))


SPAN = 10
"""Minutes of a span of the day."""
LEARN_DAYS = 7
"""The number of earlier days from which laws are learnt."""
WIDTH = 0.1
"""Width of a kernel, in standard deviations: the thesis' attackers found most with it."""
RUNS = 5
"""The number of attacked runs; they differ little."""
TRAINING = 1 << 20
"""The number of the run from which laws are learnt, which is never a measured one."""


# The report of a search, as JSON.


class Candidate(TypedDict, total=False):
    """One of the two: the epsilon of noise, or the time to live of pseudonyms; None if no candidate reaches."""

    epsilon: str | None
    ttl_seconds: float | None


class Tried(Candidate):
    """A candidate that was tried, with the outcome of its runs."""

    runs: int
    reached: int
    """Number of runs that reached the utility."""
    verdict: str
    utility: float
    """Mean of the runs."""


class ThesisResult(Candidate):
    """The thesis' candidate for the same parameters."""

    spread: float


class AttackerResult(TypedDict):
    """An attacker's success against the releases of a candidate."""

    success: float
    low: float
    high: float
    prior: float
    """Success without any release."""
    people: float
    found: list[float]
    """People found beyond the prior per span, by class of confidence."""


class TuningRow(Candidate):
    """The result for one mechanism, period and utility: the most private candidate that reaches it."""

    mechanism: str
    period: Period
    utility: float
    status: str
    epsilon_a_day: str | None
    measured: dict[str, float] | None
    attackers: dict[str, AttackerResult] | None
    """By attacker; None if there is no earlier day to learn from."""
    next_below: Candidate | None
    open_below: list[Candidate]
    tried: list[Tried]
    thesis: ThesisResult | None


class TuningReport(TypedDict):
    """All results of a search at a site."""

    site: str
    task: str
    unit: str
    days: int
    before: int
    confidence: float
    policy_version: str
    answers: list[TuningRow]
    laboratory: bool
    restricted: bool


@dataclass(frozen=True, eq=False)
class AttackUtility:
    """Attackers of one mechanism at one site."""

    recorded: RecordedSite
    world: World
    """What is released, without planted people."""
    bench: Bench

    def found(self, place: int, period: Period) -> dict[str, AttackerResult] | None:
        """Return each attacker's result at a candidate; None if there is no earlier day to learn from."""
        training = self.world.before(LEARN_DAYS)
        if training is None:
            return None
        at = np.flatnonzero(self.world.measures(period) & (self.world.minutes[self.world.released] % SPAN == 0))
        runs = [self.bench.release(self.world, place, run).zones[at] for run in range(RUNS if self.bench.chance else 1)]
        law = self._noise_distribution(training, place, runs)
        return {name: self._by(is_open, at, runs, law) for name, is_open in self._open().items()}

    def _open(self) -> dict[str, Flags]:
        """Return the zones that each attacker can see, for attackers with closed zones."""
        all_of = {name: opened(self.recorded.kinds, kinds) for name, kinds in OPEN_KINDS.items()}
        return {name: is_open for name, is_open in all_of.items() if not is_open.all()}

    @cached_property
    def _people(self) -> Ints:
        """Where people truly are in all windows, shape [windows, zones]."""
        times, counts = self.recorded.counts(bounded=False)
        return counts[np.searchsorted(times, self.world.times)]

    @cached_property
    def _nodes(self) -> Nodes:
        zones = self.recorded.site.zones
        if self.world.site.zones == zones:
            return Nodes(tuple(("zone", zone) for zone in zones), np.eye(len(zones), dtype=np.bool_))
        return Nodes((("building", "building"),), np.ones((1, len(zones)), dtype=np.bool_))

    @cached_property
    def _prior(self) -> Floats:
        """The prior, by span of the day."""
        past = slice(0, self.world.begins)
        return prior(by_span(self._people[past], self.world.minutes[past] // SPAN, 24 * 60 // SPAN))

    def _noise_distribution(self, training: World, place: int, runs: list[Ints]) -> LearntDistribution:
        values = self.bench.release(training, place, TRAINING).zones
        truth = self._people[training.begins : len(training.times)] @ self._nodes.holds.T.astype(np.int64)
        low, high = min(int(run.min()) for run in runs), max(int(run.max()) for run in runs)
        most = int(self._people.sum(axis=1).max())
        return learn(truth.ravel(), values.ravel(), WIDTH, low, high, most)

    def _by(self, is_open: Flags, at: Ints, runs: list[Ints], law: LearntDistribution) -> AttackerResult:
        people = self._people[self.world.released][at]
        spans = self.world.minutes[self.world.released][at] // SPAN
        scene = Scene(people, np.zeros_like(people), self._prior[spans], is_open)
        every: Bools = np.ones(len(at), dtype=np.bool_)
        believed = [beliefs(PublishedDay(values, every, None), self._nodes, law, scene) for values in runs]
        found, before = attacked("", {}, believed, scene), from_prior(scene)
        return {
            "success": found.success.share, "low": found.success.low, "high": found.success.high,
            "prior": before.success.share, "people": float(people[:, ~is_open].sum(axis=1).mean()),
            "found": _people_a_span(found),
        }  # fmt: skip


def _people_a_span(found: FoundPeople) -> list[float]:
    """Return the mean number of people found beyond the prior per span, by class of confidence."""
    return [round(float(each), 4) for each in found.by_guess.mean(axis=0)]


TTL = "ttl"
LEAD = DAY
"""Rows are read from this long before the first released window, for pseudonyms that are still valid."""
THESIS: dict[tuple[str, Period, Fraction], tuple[str, float]] = {
    ("laplace", "day", Fraction("0.75")): ("0.1", 23.7),
    ("laplace", "day", Fraction("0.9")): ("0.66", 14.5),
    ("laplace", "night", Fraction("0.75")): ("0.18", 26.6),
    ("laplace", "night", Fraction("0.9")): ("1.675", 19.3),
    ("pegasus", "day", Fraction("0.75")): ("0.04", 24.1),
    ("pegasus", "day", Fraction("0.9")): ("15", 16.9),
    ("pegasus", "night", Fraction("0.75")): ("0.00001", 26.6),
    ("pegasus", "night", Fraction("0.9")): ("4", 19.5),
    (TTL, "day", Fraction("0.75")): ("1", 20.4),
    (TTL, "day", Fraction("0.9")): ("120", 14.9),
    (TTL, "night", Fraction("0.75")): ("1", 19.5),
    (TTL, "night", Fraction("0.9")): ("1", 19.5),
}
"""Mechanism, period and utility of a heat map -> epsilon of a window or salt life in seconds, and the spread of utility
in percent: Table 4.2 of Ghayyur's thesis."""


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """The parameters of a search."""

    task: Task
    mechanisms: tuple[str, ...]
    utilities: tuple[Fraction, ...]
    """Each above 0, at most 1."""
    periods: tuple[Period, ...] = ("all",)
    unit: Unit = "window"
    days: int = 1
    """The last whole local days, on which utility is measured."""
    before: int = 0
    """Earlier days that are released too, from which a filter learns."""
    error: Fraction = Fraction(1, 100)
    """The probability with which a result for a mechanism, period and utility may be wrong."""
    most_runs: int = 200
    epsilons: tuple[Fraction, Fraction] = (EPSILONS[0], EPSILONS[-1])
    """The smallest and the largest that are tried."""
    clamped: bool = False
    """Whether negative values are clamped to 0."""


def tune(
    recorded: RecordedSite, request: TuningRequest, keys: LaboratoryKeys, made: Callable[[], None] = lambda: None
) -> TuningReport:
    """Return the most private candidate of each mechanism, period and utility, and its confidence.

    Args:
        recorded: the site's recording.
        request: the search's parameters.
        keys: the keys of noise; the same keys give the same results.
        made: called after each run.

    Raises:
        UsageError: the parameters contradict each other or the site.
        DataError: the recording has too little data.
    """
    check_request(recorded.policy, recorded.name, request)
    rows = []
    for mechanism in request.mechanisms:
        bounded = mechanism != TTL and _terms(recorded.policy, recorded.name, request, mechanism).bounded
        world = _world(recorded, request, bounded=bounded)
        bench = _bench(recorded, request, mechanism, world, _Noise(keys, made))
        utility = AttackUtility(recorded, world.as_one() if request.task == "building" else world, bench)
        rows += [_row(request, mechanism, bench, utility, _Goal(*goal)) for goal in _goals(request)]
    return {
        "site": recorded.name, "task": request.task, "unit": request.unit, "days": request.days,
        "before": request.before,
        "confidence": float(1 - request.error), "policy_version": recorded.policy.version, "answers": rows,
        "laboratory": True, "restricted": True,
    }  # fmt: skip


def check_request(policy: Policy, site: str, request: TuningRequest) -> None:
    """Check all that can be known of a request before the recording is read.

    Raises:
        UsageError: what is asked does not go together, or not with the site.
    """
    by_day = request.unit == "device_day"
    if by_day and TTL in request.mechanisms:
        raise UsageError(
            "--unit: device_day must be used with a mechanism that has an epsilon, got ttl, which has none"
        )
    if by_day and policy.site[site].day_starts is None:
        raise UsageError(f"--unit: device_day must be used with a site that has day_starts, which '{site}' has not")
    if by_day and policy.site[site].contribution is None:
        raise UsageError(f"--unit: device_day must be used with a site that has contribution, which '{site}' has not")
    check_periods(request.task, request.periods)
    for mechanism in request.mechanisms:
        if mechanism != TTL:
            candidates = payable(_terms(policy, site, request, mechanism).noise, *request.epsilons)
            check_rules(len(candidates), Rules(0.0, request.error, request.most_runs))


class _Noise(NamedTuple):
    """The source of noise, with a callback after each draw."""

    keys: LaboratoryKeys
    after_draw: Callable[[], None]

    def day_key(self, day: int) -> bytes:
        """Return the secret of a key day."""
        return subkey(self.keys.noise_key(day), Purpose.TUNE)


class _Goal(NamedTuple):
    period: Period
    utility: Fraction


def _goals(request: TuningRequest) -> Iterator[tuple[Period, Fraction]]:
    for period in request.periods:
        for utility in request.utilities:
            yield period, utility


def _terms(policy: Policy, name: str, request: TuningRequest, mechanism: str) -> TuningTerms:
    site = policy.site[name]
    return TuningTerms(
        mechanism, request.unit, site.tick, site.ticks_per_observation, site.contribution_ticks, policy.privacy.delta
    )


def _world(recorded: RecordedSite, request: TuningRequest, *, bounded: bool) -> World:
    times, counts = recorded.counts(bounded=bounded)
    return world_of(recorded.site, times, counts, request.days, request.before)


def _bench(recorded: RecordedSite, request: TuningRequest, mechanism: str, world: World, noise: _Noise) -> Bench:
    ready = prepared(world, request.task, request.periods)
    if mechanism == TTL:
        learning = world.before(LEARN_DAYS) or world
        seen = recorded.sightings.since(int(learning.times[learning.begins]) - LEAD)
        validity = recorded.policy.site[recorded.name].counts_for
        return TtlBench(ready, seen, validity, len(world.site.zones), noise.after_draw)
    terms = _terms(recorded.policy, recorded.name, request, mechanism)
    return NoiseBench(ready, terms, noise.day_key, noise.after_draw, request.epsilons, request.clamped)


# --- results ------------------------------------------------------------------------------------------


def _row(request: TuningRequest, mechanism: str, bench: Bench, looking: AttackUtility, goal: _Goal) -> TuningRow:
    def run(place: int, number: int) -> float:
        return bench.measures(place, number)[goal.period].utility

    rules = Rules(float(goal.utility), request.error, request.most_runs, chance=bench.chance)
    found = search(len(bench.candidates), run, rules if bench.chance else rules._replace(stride=1))
    best, by_day = found.place, None
    if best is not None and isinstance(bench, NoiseBench):
        by_day = decimal_string(bench.terms.of_day(bench.candidates[best]))
    return {
        "mechanism": mechanism,
        "period": goal.period,
        "utility": float(goal.utility),
        "status": found.status,
        **_as_json(bench, best),
        "epsilon_a_day": by_day,
        "measured": None if best is None else _measured(bench, goal.period, best, found.tried[best]),
        "attackers": None if best is None else looking.found(best, goal.period),
        "next_below": None if found.next_below is None else _as_json(bench, found.next_below),
        "open_below": [_as_json(bench, place) for place in found.open_below()],
        "tried": [_tried(bench, place, each) for place, each in found.tried.items()],
        "thesis": _thesis(request, mechanism, goal),
    }


def _as_json(bench: Bench, place: int | None) -> Candidate:
    value = None if place is None else bench.candidates[place]
    if bench.chance:
        return {"epsilon": None if value is None else decimal_string(Fraction(value))}
    return {"ttl_seconds": None if value is None else float(value / SECOND)}


def _tried(bench: Bench, place: int, each: TriedCandidate) -> Tried:
    return {
        **_as_json(bench, place),
        "runs": len(each.utilities),
        "reached": each.reached,
        "verdict": each.verdict,
        "utility": fmean(each.utilities),
    }


def _measured(bench: Bench, period: Period, place: int, known: TriedCandidate) -> dict[str, float]:
    runs = [bench.measures(place, number)[period] for number in range(len(known.utilities))]
    means: dict[str, float] = {name: fmean(values) for name, *values in zip(Measured._fields, *runs, strict=True)}
    return {"runs": len(runs), "reached": known.reached} | means | {"between_runs": pstdev(known.utilities)}


def _thesis(request: TuningRequest, mechanism: str, goal: _Goal) -> ThesisResult | None:
    """Return the thesis' result for the same parameters, if it has one."""
    if request.task != "heatmap" or request.unit != "window":
        return None
    found = THESIS.get((mechanism, goal.period, goal.utility))
    if found is None:
        return None
    named: Candidate = {"ttl_seconds": float(found[0])} if mechanism == TTL else {"epsilon": found[0]}
    return {**named, "spread": found[1] / 100}
