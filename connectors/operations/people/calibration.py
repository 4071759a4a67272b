"""The calibration of a model: evidence, split of days, curves, bands, check.

Steps for each level (zones, floors, the building):

1. **Evidence.** Windows with a released value and a count of people. Refused are levels with too few days or windows
   with people; left out are nodes on fewer than three days.
2. **Split.** Days with people are dealt to fit and calibration, evenly in time: nine or half of them calibrate. So
   are days without.
3. **Curves** by node from the days of the fit, shrunk to floor and building; factors of hours if they lower the error
   on days that were held back.
4. **Band.** The spread from the days of the fit, the quantile from those of the calibration.
5. **Check.** Five times, a fifth of the days is held back, and the rest is split, fitted and calibrated as above.

With fewer days, a **provisional** model can be made of a few counts (``provisional``): people per device, one factor
for all counted nodes of a level, and a band from that divided by 2.5, and two people less, to that times 2.5, and two
people more. With these numbers, bands of three counts within an hour covered more than 90 % of the windows with people
in working hours, of the rest of that day and of the next 14 days, in a room where people were counted on 76 days
(docs/measurements.md has other days and another place). Noise widens the band: that of the released values by their
95 % half-widths, that of paid counts by the half-width of their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from connectors.operations.people.estimation import (
    Bools,
    Curve,
    Floats,
    Ints,
    Noise,
    Spread,
    blended,
    conformal_quantile,
    day_weights,
    expected_devices,
    fit_curve,
    fit_spread,
    fixed_factor,
    hour_factors,
    times_factors,
)
from stream.errors import DataError
from stream.mechanisms.noise import std
from stream.policy.counts import LEVELS, Level
from stream.policy.fields import parse_epsilon
from stream.policy.people import (
    BAND,
    LARGEST,
    THOUSAND,
    Check,
    LevelModel,
    NodeCurve,
    PeopleModel,
    Provisional,
    Truth,
)
from stream.records import EPOCH

CALIBRATING = 9
"""Fewest days with people from which a band of 90 % follows: 0.9 / (1 - 0.9)."""
FITTING = 3
FEWEST_WINDOWS = 36
"""Of windows with people, three for each of the fewest days."""
FEWEST_DAYS = 3
"""Fewest days with counts of people at a node, and in an hour of the day at a level."""
FOLDS = 5
FEWEST_COUNTS = 3
"""Fewest windows of a node with people, from which a provisional model follows."""
FACTOR, PEOPLE = 2.5, 2.0
"""How wide the band of a provisional model is, and how much wider in people, without noise."""
NOISIEST = 0.25
"""Largest 95 % half-width of noise, as a share of what it is in, of the counts behind a provisional model.

With a third, the band would reach down to nobody at every count: 1 / (2.5 x 1.33) < 0.33.
"""
BEYOND = 2
"""A provisional model knows up to so many times the largest released value with a count of people."""
DAYS_HELD = 14
"""So many days after the last count a provisional model holds."""
_NORMAL_95 = 1.96


class NodeHistory(NamedTuple):
    """All released values of a node, in the order of time."""

    values: Ints
    days: Ints
    """Number of the site-local day of each window's end."""
    noise: Noise | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Windows of one level with a released value and a count of people; arrays of one length."""

    nodes: tuple[str, ...]
    node: Ints
    """Index in ``nodes``."""
    days: Ints
    hours: Ints
    released: Ints
    devices: Floats
    """Expected true number of devices."""
    people: Floats
    coverage: Floats
    floors: tuple[str, ...]
    """Floor of each node, or an empty text."""
    half_widths: Floats
    """95 % half-width of the noise in each released value, in devices; infinite where none is stated."""

    def __len__(self) -> int:
        return len(self.people)

    def where(self, chosen: Bools) -> Evidence:
        """Return a part of the windows."""
        names = ("node", "days", "hours", "released", "devices", "people", "coverage", "half_widths")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def on(self, days: Ints) -> Evidence:
        """Return the windows of some days."""
        return self.where(np.isin(self.days, days))


class Fitted(NamedTuple):
    """The curves of a level's nodes, and the factors of hours."""

    curves: dict[int, Curve]
    factors: dict[int, float]

    def estimates(self, windows: Evidence) -> Floats:
        """Return people for each window; 0 where a node has no curve."""
        found = np.zeros(len(windows))
        for node, curve in self.curves.items():
            here = windows.node == node
            found[here] = curve.people(windows.devices[here])
        return times_factors(found, windows.hours, self.factors)


class Banded(NamedTuple):
    """A fit with its band."""

    fitted: Fitted
    spread: Spread
    quantile: float


class Calibrated(NamedTuple):
    """The result of a calibration."""

    model: PeopleModel
    left_out: tuple[str, ...]
    """What has too little evidence, in sentences."""
    compared: dict[Level, Compared]
    """Windows of days that were held back, for a figure."""


class Compared(NamedTuple):
    """People and estimates of windows that were held back."""

    people: Floats
    estimates: Floats
    low: Floats
    high: Floats
    fixed: Floats
    """Estimates by the best fixed factor."""


# --- one level ----------------------------------------------------------------------------------------


def occupied_days(windows: Evidence) -> Ints:
    """Return the days with people, ascending."""
    return np.unique(windows.days[windows.people > 0])


def split_days(windows: Evidence) -> tuple[Ints, Ints]:
    """Return the days of the fit and those of the calibration."""
    with_people = occupied_days(windows)
    without = np.setdiff1d(np.unique(windows.days), with_people)
    parts = [_dealt(with_people, max(CALIBRATING, len(with_people) // 2)), _dealt(without, len(without) // 2)]
    fit, calibration = (np.sort(np.concatenate(each)) for each in zip(*parts, strict=True))
    return fit, calibration


def _dealt(days: Ints, calibrating: int) -> tuple[Ints, Ints]:
    """Return days without and with a number of them that are spread evenly in time."""
    n, place = len(days), np.arange(len(days))
    chosen = (place + 1) * calibrating // max(1, n) > place * calibrating // max(1, n)
    return days[~chosen], days[chosen]


def fit(windows: Evidence, *, by_hour: bool) -> Fitted:
    """Return the curves of the nodes, each shrunk to its floor's and that to the level's, and factors of hours."""
    pool = _curve(windows)
    floors = {
        name: blended(_curve(own), pool, len(occupied_days(own)))
        for name in set(windows.floors) - {""}
        if len(own := windows.where(np.array([windows.floors[node] == name for node in windows.node])))
    }
    present = np.unique(windows.node).tolist()
    curves = {}
    for node in present:
        own = windows.where(windows.node == node)
        parent = floors.get(windows.floors[node], pool)
        curves[node] = blended(_curve(own), parent, len(occupied_days(own))) if len(present) > 1 else pool
    found = Fitted(curves, {})
    if not by_hour:
        return found
    return found._replace(
        factors=hour_factors(windows.hours, windows.days, windows.people, found.estimates(windows))
    )  # fmt: skip


def _curve(windows: Evidence) -> Curve:
    return fit_curve(windows.devices, windows.people, day_weights(windows.days))


def with_band(windows: Evidence, *, by_hour: bool) -> Banded:
    """Return a fit on some days, with a band that others calibrate.

    With too few days for the quantile, as when days are held back from few, the largest score stands for it.
    """
    fit_days, calibration_days = split_days(windows)
    fitting, calibrating = windows.on(fit_days), windows.on(calibration_days)
    fitted = fit(fitting, by_hour=by_hour)
    spread = fit_spread(fitting.people - fitted.estimates(fitting), fitting.released)
    scores = np.abs(calibrating.people - fitted.estimates(calibrating)) / spread.of(calibrating.released)
    quantiles = [
        conformal_quantile(scores[chosen], calibrating.days[chosen], BAND)
        for chosen in (np.full(len(scores), fill_value=True), calibrating.people > 0)
    ]
    quantile = max(quantiles)
    return Banded(fitted, spread, quantile if np.isfinite(quantile) else float(scores.max()))


def folds(windows: Evidence) -> Iterator[tuple[Evidence, Evidence]]:
    """Yield the windows of other days, and of those held back; days with and without people are dealt in turn."""
    with_people = occupied_days(windows)
    without = np.setdiff1d(np.unique(windows.days), with_people)
    for number in range(FOLDS):
        left_out = np.concatenate([with_people[number::FOLDS], without[number::FOLDS]])
        back = np.isin(windows.days, left_out)
        if back.any() and len(occupied_days(windows.where(~back))) > CALIBRATING:
            yield windows.where(~back), windows.where(back)


def prefers_hours(windows: Evidence) -> bool:
    """Whether factors of hours lower the mean error on days that were held back."""
    errors = {False: 0.0, True: 0.0}
    for others, left_out in folds(windows):
        plain, hourly = fit(others, by_hour=False), fit(others, by_hour=True)
        errors[False] += float(np.abs(np.rint(plain.estimates(left_out)) - left_out.people).sum())
        errors[True] += float(np.abs(np.rint(hourly.estimates(left_out)) - left_out.people).sum())
    return errors[True] < errors[False]


def compared(windows: Evidence, *, by_hour: bool) -> Compared:
    """Return people and bands of all windows, each from days that do not include its own."""
    parts = []
    for others, left_out in folds(windows):
        banded = with_band(others, by_hour=by_hour)
        parts.append(applied(banded, left_out, fixed_factor(others.devices, others.people)))
    return Compared(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else _NOTHING


_NOTHING = Compared(*(np.zeros(0) for _ in Compared._fields))


def applied(banded: Banded, windows: Evidence, factor: float) -> Compared:
    """Return what a model says about windows, rounded as its records are."""
    estimates = banded.fitted.estimates(windows)
    half = banded.quantile * banded.spread.of(windows.released)
    low, high = np.floor(np.maximum(0, estimates - half)), np.ceil(estimates + half)
    return Compared(windows.people, np.rint(estimates), low, high, factor * windows.devices)


def check_of(found: Compared, days: int) -> Check:
    """Return the figures of windows that were held back."""
    above = (found.people >= found.low) | (found.low == 0)  # noise in paid truth may be below 0
    inside = above & (found.people <= found.high)
    occupied, width = found.people > 0, found.high - found.low

    def mean(values: Any) -> int:
        return round(THOUSAND * float(np.mean(values))) if len(values) else 0

    return Check(
        windows=len(inside), occupied=int(occupied.sum()), days=days, covered=mean(inside),
        covered_occupied=mean(inside[occupied]), width=mean(width), width_occupied=mean(width[occupied]),
        error=mean(np.abs(found.estimates - found.people)), fixed_error=mean(np.abs(found.fixed - found.people)),
    )  # fmt: skip


# --- the whole ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """What a model is of."""

    site: str
    release: str
    audience: str
    terms: str
    laboratory: bool
    truth: Truth
    working_hours: frozenset[int] = frozenset()
    """Local hours in which a provisional model has numbers, besides those with counts."""


@dataclass(slots=True)
class Findings:
    """Parts of a model, level by level."""

    levels: dict[Level, LevelModel] = field(default_factory=dict)
    nodes: dict[str, NodeCurve] = field(default_factory=dict)
    checked: dict[Level, Check] = field(default_factory=dict)
    compared: dict[Level, Compared] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def calibrate(subject: Subject, history: Mapping[str, NodeHistory], evidence: Mapping[Level, Evidence]) -> Calibrated:
    """Return a model with what has been left out of it.

    Args:
        subject: what the model is of.
        history: released values by node, all that there are.
        evidence: windows with counts of people, by level.

    Raises:
        DataError: no level has enough evidence; the message says which rule it breaks, and what is missing.
    """
    found = Findings()
    for level in LEVELS:
        if level in evidence:
            _level(found, level, evidence[level], history)
    if not found.levels:
        lines = "\n  ".join(found.left_out) or "no count of people belongs to a window with a released value"
        raise DataError(f"truth: must have enough evidence for at least one level:\n  {lines}")
    model = PeopleModel(
        v=1, site=subject.site, release=subject.release, audience=subject.audience, laboratory=subject.laboratory,
        terms=subject.terms, truth=subject.truth, levels=found.levels, nodes=found.nodes, checked=found.checked,
    )  # fmt: skip
    return Calibrated(model, tuple(found.left_out), found.compared)


def provisional(subject: Subject, evidence: Mapping[Level, Evidence]) -> Calibrated:
    """Return a model of a few counts, which promises no share of windows, with what has been left out of it.

    Raises:
        DataError: no level has enough counts; the message says which rule it breaks.
    """
    levels, nodes, factors, left_out = dict[Level, LevelModel](), dict[str, NodeCurve](), list[float](), list[str]()
    used = list[Evidence]()
    paid = None if subject.truth.epsilon is None else std(parse_epsilon(subject.truth.epsilon) / len(evidence))
    for level, windows in evidence.items():
        counted = windows.where((windows.people > 0) & (windows.released > 0))
        enough = [node for node in np.unique(counted.node).tolist() if (counted.node == node).sum() >= FEWEST_COUNTS]
        of_level = windows.where(np.isin(windows.node, enough))
        problem = _too_noisy(of_level, paid) if enough else f"must have at least {FEWEST_COUNTS} windows with people"
        if problem is not None:
            left_out.append(f"{level}: {problem}")
            continue
        used.append(of_level)
        ratio = float(of_level.people.sum() / np.maximum(0, of_level.released).sum())
        factors.append(FACTOR * (1 + _noise_of_devices(of_level)) * (1 + _noise_of_people(of_level, paid)))
        hours = sorted(subject.working_hours | set(of_level.hours.tolist()))
        constant = PEOPLE + ratio * float(of_level.half_widths.mean())
        levels[level] = LevelModel(
            hours={str(hour): THOUSAND for hour in hours}, constant=_thousandths(constant), relative=0,
            quantile=THOUSAND, coverage=_thousandths(float(of_level.coverage.min())),
        )  # fmt: skip
        for node in enough:
            own = of_level.where(of_level.node == node)
            largest = BEYOND * int(own.released.max())
            nodes[of_level.nodes[node]] = NodeCurve(
                curve=((0, 0), (largest, _thousandths(ratio * largest))), largest=largest,
                usual=(0, _thousandths(largest)), days=len(np.unique(own.days)),
            )  # fmt: skip
    if not levels:
        lines = "\n  ".join(left_out) or "no count of people belongs to a window with a released value"
        raise DataError(f"truth: must have enough counts for at least one level:\n  {lines}")
    days = np.unique(np.concatenate([windows.days for windows in used]))
    model = PeopleModel(
        v=1, site=subject.site, release=subject.release, audience=subject.audience, laboratory=subject.laboratory,
        terms=subject.terms, truth=subject.truth, levels=levels, nodes=nodes,
        provisional=Provisional(
            counts=max(map(len, used)), days=len(days), factor=_thousandths(max(factors)),
            until=EPOCH.date() + timedelta(days=int(days.max()) + DAYS_HELD),
        ),
    )  # fmt: skip
    return Calibrated(model, tuple(left_out), {})


def _too_noisy(windows: Evidence, paid: float | None) -> str | None:
    """Return which rule about noise the counts of a provisional model break; None if they break none."""
    if _noise_of_devices(windows) > NOISIEST:
        return (
            f"released values with counts must have a 95 % band of at most ±{NOISIEST:.0%} of them; count where or "
            "when more devices are there, or after the first hour"
        )
    if _noise_of_people(windows, paid) > NOISIEST:
        return f"paid counts must have a 95 % band of at most ±{NOISIEST:.0%} of their sum; count more people"
    return None


def _noise_of_devices(windows: Evidence) -> float:
    """Return the mean half-width of released values as a share of their mean: bands of filters do not average out."""
    return float(windows.half_widths.mean() / max(1.0, windows.released.mean()))


def _noise_of_people(windows: Evidence, deviation: float | None) -> float:
    """Return the half-width of the sum of the counts of people as a share of it; 0 where they are public."""
    if deviation is None:
        return 0.0
    return float(_NORMAL_95 * deviation * sqrt(len(windows)) / max(1.0, windows.people.sum()))


def _level(found: Findings, level: Level, windows: Evidence, history: Mapping[str, NodeHistory]) -> None:
    """Add a level to the findings, or say what it lacks."""
    few = [
        node for node in np.unique(windows.node).tolist()
        if len(np.unique(windows.days[windows.node == node])) < FEWEST_DAYS
    ]  # fmt: skip
    if few:
        found.left_out.append(f"{level}: {len(few)} node(s) have counts of people on fewer than {FEWEST_DAYS} days")
    kept = windows.where(~np.isin(windows.node, few))
    lacking = missing_evidence(kept)
    if lacking is not None:
        # If no node is left, days are missing to those that there are.
        found.left_out.append(f"{level}: {lacking if len(kept) else missing_evidence(windows) or lacking}")
        return
    windows = kept
    by_hour = prefers_hours(windows)
    banded = with_band(windows, by_hour=by_hour)
    found.compared[level] = compared(windows, by_hour=by_hour)
    found.checked[level] = check_of(found.compared[level], len(np.unique(windows.days)))
    found.levels[level] = LevelModel(
        hours=_hours(windows, banded.fitted.factors), constant=_thousandths(banded.spread.constant),
        relative=_thousandths(banded.spread.relative), quantile=_thousandths(banded.quantile),
        coverage=_thousandths(float(windows.coverage.min())),
    )  # fmt: skip
    for node, curve in banded.fitted.curves.items():
        name = windows.nodes[node]
        found.nodes[name] = _node_curve(curve, windows.where(windows.node == node), history[name])
    missing = sorted({windows.nodes[node] for node in np.unique(windows.node)} - set(found.nodes))
    if missing:
        found.left_out.append(f"{level}: {len(missing)} node(s) have no counts of people on the days of the fit")


def missing_evidence(windows: Evidence) -> str | None:
    """Return which rule a level's evidence breaks, and by how much; None if it is enough."""
    days, occupied = len(occupied_days(windows)), int((windows.people > 0).sum())
    rules = (
        (days, CALIBRATING + FITTING, "days on which people were counted"),
        (occupied, FEWEST_WINDOWS, "windows in which people were counted"),
        (int(windows.devices.max(initial=0) > 0), 1, "windows with a released value above 0"),
    )
    for given, least, what in rules:
        if given < least:
            return f"must have at least {least} {what}, has {given}; {least - given} more are missing"
    return None


def _hours(windows: Evidence, factors: Mapping[int, float]) -> dict[str, int]:
    """Return the hours with counts of people on enough days, each with its factor."""
    known = (hour for hour in range(24) if len(np.unique(windows.days[windows.hours == hour])) >= FEWEST_DAYS)
    return {str(hour): _thousandths(factors.get(hour, 1.0)) for hour in known}


def _node_curve(curve: Curve, windows: Evidence, history: NodeHistory) -> NodeCurve:
    largest = int(windows.released.max(initial=0))
    known = expected_devices(history.values, history.noise)
    released = np.array(sorted(known), dtype=np.float64)
    estimates = np.array([known[int(value)] for value in released])
    knots = [0, *(knot for place in range(40) for knot in (1 << place, 3 << place) if knot < largest), largest]
    knots = sorted(set(knots))
    people = curve.people(np.interp(knots, released, estimates))
    heights = np.maximum.accumulate([_thousandths(each) for each in people]).tolist()
    return NodeCurve(
        curve=tuple(zip(knots, heights, strict=True)), largest=largest, usual=_usual(windows, history),
        days=len(np.unique(windows.days)),
    )  # fmt: skip


def _usual(windows: Evidence, history: NodeHistory) -> tuple[int, int]:
    """Return the least and the largest mean of released values, of the days with counts of people."""
    means = [
        float(values.mean()) for day in np.unique(windows.days).tolist()
        if len(values := history.values[history.days == day])
    ]  # fmt: skip
    return max(0, _thousandths(min(means))), max(0, _thousandths(max(means)))


def _thousandths(number: float) -> int:
    return min(LARGEST, max(0, round(THOUSAND * number)))
