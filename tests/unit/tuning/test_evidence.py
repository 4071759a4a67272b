"""Whether runs reach a utility more often than not: the bet, its closed form, and how often it is wrong."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from stream.errors import UsageError
from stream.lab.tuning.search import fewest_runs, verdict, wealth


@pytest.mark.parametrize(("reached", "runs"), [(0, 1), (1, 1), (3, 5), (17, 18), (30, 60), (60, 60)])
def test_wealth_is_the_likelihood_ratio_of_all_larger_probabilities_alike(reached: int, runs: int) -> None:
    p = (np.arange(200_000) + 0.5) / 400_000 + 0.5
    integral = np.mean((2 * p) ** reached * (2 * (1 - p)) ** (runs - reached))
    assert float(wealth(reached, runs)) == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize("runs", [1, 2, 7, 20])
def test_at_one_half_wealth_is_a_fair_bet(runs: int) -> None:
    assert sum(comb(runs, k) * wealth(k, runs) for k in range(runs + 1)) == 2**runs


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 5), Fraction(49, 100)])
def test_below_one_half_wealth_is_lost(p: Fraction) -> None:
    mean = sum(comb(12, k) * p**k * (1 - p) ** (12 - k) * wealth(k, 12) for k in range(13))
    assert mean < 1


def test_runs_alike_tell_as_soon_as_their_ratio_allows() -> None:
    error = Fraction(1, 16_900)
    assert fewest_runs(error) == 18
    assert verdict(17, 17, error) == "open"
    assert verdict(18, 18, error) == "reached"
    assert verdict(0, 18, error) == "missed"


def test_half_of_all_runs_tell_nothing() -> None:
    assert all(verdict(n // 2, n, Fraction(1, 20)) == "open" for n in range(2, 400, 2))


@pytest.mark.parametrize(("reached", "runs", "error"), [(3, 2, "0.1"), (-1, 2, "0.1"), (1, 2, "0"), (1, 2, "1")])
def test_numbers_out_of_range_are_refused(reached: int, runs: int, error: str) -> None:
    with pytest.raises(UsageError, match="verdict"):
        verdict(reached, runs, Fraction(error))


def test_whoever_looks_after_every_run_is_wrong_no_more_often_than_was_said() -> None:
    """Of 2,000 walks at probability 1/2, the worst: more than the limit are wrong with probability 1e-6 at most."""
    error, walks = Fraction(1, 10), 2_000
    generator = np.random.default_rng(7)
    steps = np.cumsum(generator.random((walks, 100)) < 0.5, axis=1)
    reported = {(k, n): verdict(k, n, error) for n in range(1, 101) for k in range(n + 1)}
    wrong = sum(any(reported[int(k), n] == "reached" for n, k in enumerate(walk, 1)) for walk in steps)
    assert wrong <= binom.isf(1e-6, walks, 0.1)


def test_a_probability_away_from_one_half_is_told() -> None:
    """At 0.9 two hundred runs leave it open with probability below 1e-9."""
    least = next(k for k in range(201) if verdict(k, 200, Fraction(1, 16_900)) == "reached")
    assert binom.cdf(least - 1, 200, 0.9) < 1e-9
