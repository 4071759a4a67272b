"""What w-event mechanisms promise, measured: noise scales, ε over any w windows, and who errs least.

The tests are functions of fixed keys, so they cannot fail by chance later; a right mechanism would have
failed at most once in a million choices of keys.
"""

from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.stats import binomtest

from stream.mechanisms.base import TickInput, WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise import pmf
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.wevent import BudgetAbsorption, Publication
from stream.policy.mechanisms import names_where
from tests.statistical.chi_square import of_laplace
from tests.support.w_event import w_event_mechanism

F = Fraction
KEY = b"w-event".ljust(32, b".")
ALPHA = 1e-6
N = 200_000


def input_of(window: int, counts: Ints) -> TickInput:
    context = Context("dbh", "w", window, 1, ("a",))
    return TickInput(counts, np.zeros_like(counts), KEY, context, WeekSlot(0, 0, False))


# Noise scales


@cache
def published(name: str, windows: int) -> list[Ints]:
    """Errors of 200,000 zones at the windows that published; ε = 3, w = 6."""
    mechanism = w_event_mechanism(name, zones=N, epsilon=F(3), windows=6)
    state, errors = mechanism.initial(), []
    for window in range(windows):
        counts = np.full(N, 100 if window < 4 else 100_000)
        before = state
        state, [value] = mechanism.step(state, input_of(window, counts))
        if window == 0 or (state.values != before.values).any():
            errors.append(value.exact.numerator - counts)
    return errors


@pytest.mark.parametrize(
    ("name", "place", "epsilon"), [("uniform", 0, 0.5), ("sample", 0, 3.0), ("ba", 0, 0.25), ("ba", 1, 0.5)]
)
def test_publications_have_the_noise_that_is_booked(name: str, place: int, epsilon: float) -> None:
    """BA: u = 3/12 at first; that noise is itself a distance of 1/u > 1/2u, so 2 u next; one passes; one stays; 2 u."""
    errors = published(name, 5)
    assert len(errors) == {"uniform": 5, "sample": 1, "ba": 3}[name]
    assert of_laplace(errors[place], epsilon) > ALPHA
    assert of_laplace(errors[place], epsilon * 1.05) < ALPHA
    assert of_laplace(errors[place], epsilon * 0.95) < ALPHA


@pytest.mark.parametrize(("distance", "least"), [(4, -2), (8, -6)])
def test_dissimilarity_test_has_noise_of_one_unit(distance: int, least: int) -> None:
    """One zone, u = 1/2, one unit absorbed: it publishes iff distance + Z > 1/u = 2."""
    mechanism, trials = BudgetAbsorption(1, F(4), 4), 12_000
    state = Publication(np.zeros(1, np.int64), 1, 0, 0, 0)
    costs = [mechanism.step(state, input_of(window, np.array([distance])))[0].cost for window in range(trials)]
    assert set(costs) == {1, 2}, "a test, and where it says so one unit for publishing"

    def p_value(epsilon: float) -> float:
        chance = pmf(Fraction(epsilon), np.arange(least + 1, 2000)).sum()
        return float(binomtest(costs.count(2), trials, chance).pvalue)

    assert p_value(0.5) > ALPHA
    assert p_value(0.5 * 1.2) < ALPHA
    assert p_value(0.5 / 1.2) < ALPHA


# ε over any w windows, by enumeration

GRID = range(-9, 16)
"""Published values that are enumerated; tails beyond are left out, which can only hide outcomes."""


def outcomes(mechanism: BudgetAbsorption, streams: list[tuple[int, ...]]) -> np.ndarray:
    """ln Pr of every outcome (which windows published what) of BA over one zone, for each stream of counts.

    The laws are written down here; what follows from an outcome (counters, budgets) is the mechanism's own.
    """
    found: list[np.ndarray] = []
    length, unit = len(streams[0]), mechanism.unit
    counts = np.array(streams)

    def follow(state: Publication, window: int, log: np.ndarray) -> None:
        if window == length:
            found.append(log)
            return
        if state.waiting:
            follow(mechanism._passed(state), window + 1, log)
            return
        at = counts[:, window]
        stay, go = decided(state, False, window), decided(state, True, window)
        log_stay, log_go = np.zeros(len(log)), np.zeros(len(log))
        if state.units:
            threshold = 1 / (go.units * unit)
            distance = np.abs(at - int(state.values[0]))
            noise = np.arange(-300, 301)
            moved = np.array([pmf(unit, noise)[d + noise > threshold].sum() for d in distance])
            log_stay, log_go = np.log(1 - moved), np.log(moved)
            follow(stay, window + 1, log + log_stay)
        for value in GRID:
            after = Publication(np.array([value]), go.units, go.waiting, go.unused, go.cost)
            follow(after, window + 1, log + log_go + np.log(pmf(go.units * unit, value - at)))

    follow(mechanism.initial(), 0, np.zeros(len(streams)))
    return np.array(found)


def decided(state: Publication, moved: bool, window: int) -> Publication:
    """The state after a test that came out so, without noise."""
    mechanism = JsonFactor(1, F(3), 2)
    object.__setattr__(mechanism, "moved", moved)
    return mechanism._tested(state, input_of(window, np.zeros(1, np.int64)))


class JsonFactor(BudgetAbsorption):
    """BA whose test comes out as it is told to, without noise."""

    moved: bool

    def _moved(self, state: Publication, item: TickInput, units: int) -> bool:
        return self.moved

    def _noisy(self, item: TickInput, units: int) -> Ints:
        return item.counts


@lru_cache(maxsize=1)
def enumerated() -> tuple[list[tuple[int, ...]], np.ndarray]:
    """w = 2, ε = 3: the 8 streams of three windows in which each count is 3 or 4."""
    streams = list(product((3, 4), repeat=3))
    return streams, outcomes(BudgetAbsorption(1, F(3), 2), streams)


def test_streams_that_differ_in_w_windows_in_a_row_are_told_apart_by_at_most_epsilon() -> None:
    streams, logs = enumerated()
    assert np.exp(logs).sum(axis=0) == pytest.approx(1, abs=0.02), "nearly all outcomes are enumerated"
    worst = {"within w": 0.0, "over w": 0.0}
    for (i, one), (j, other) in product(enumerate(streams), repeat=2):
        differ = [k for k in range(3) if one[k] != other[k]]
        if differ:
            span = "within w" if differ[-1] - differ[0] < 2 else "over w"
            worst[span] = max(worst[span], float((logs[:, i] - logs[:, j]).max()))
    assert worst["within w"] <= 3 + 1e-9
    assert worst["within w"] > 3 * 0.9
    assert worst["over w"] > 3, "three windows cost more than two: the enumeration can tell"


# Who errs least


def wifi_like(mean: float, days: int = 4) -> Ints:
    """A stream that stands still most of the time and follows the day, seeded."""
    rng, level, counts = Random(8), 0, []
    for window in range(288 * days):
        hour = window % 288 / 12
        target = 2.4 * mean if 8 <= hour < 18 else 0.1 * mean
        for _ in range(3):
            if rng.random() < 0.05:
                level = max(0, level + (1 if rng.random() * (level + target) < target else -1))
        counts.append(level)
    return np.array(counts)


@lru_cache(maxsize=8)
def mean_error(name: str, mean: float) -> float:
    """Mean absolute error of what is published at ε = 1, w = 12."""
    mechanism, counts = w_event_mechanism(name, zones=1, epsilon=F(1), windows=12), wifi_like(mean)
    state, errors = mechanism.initial(), []
    for window, count in enumerate(counts):
        state, [value] = mechanism.step(state, input_of(window, np.array([count])))
        errors.append(abs(int(value.values[0]) - int(count)))
    return float(np.mean(errors))


@pytest.mark.parametrize("mean", [0.13, 1.9])
def test_sample_errs_least_on_quiet_streams_then_budget_absorption_then_uniform(mean: float) -> None:
    """Published experience with low and medium access points: about 0.6 to 1.1, 4.6 to 5.1, 6.2 to 6.6."""
    sample, ba, uniform = (mean_error(name, mean) for name in ("sample", "ba", "uniform"))
    assert 3 * sample < ba
    assert ba < uniform
    assert 5.5 < uniform < 7.5
    assert sample < 2


def test_uniform_errs_less_than_sample_where_counts_rush() -> None:
    rng = Random(1)
    counts = np.array([rng.randrange(500) for _ in range(600)])
    errors = {}
    for name in names_where("pays_for_w"):
        mechanism = w_event_mechanism(name, zones=1, epsilon=F(1), windows=12)
        state, off = mechanism.initial(), []
        for window, count in enumerate(counts):
            state, [value] = mechanism.step(state, input_of(window, np.array([count])))
            off.append(abs(int(value.values[0]) - int(count)))
        errors[name] = float(np.mean(off))
    assert 5 * errors["uniform"] < errors["sample"]
