"""Lower bounds on epsilon: never above what is true, and near it where the runs suffice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.lab.attackers.membership import LEVEL, best_threshold, measure, most_shown, rate_at_least, rate_at_most


def drawn(epsilon: float, centre: int, runs: int, seed: int) -> Floats:
    """Return counts with discrete Laplace noise; the seed is fixed, so that what is asserted does not vary."""
    rng, p = np.random.default_rng(seed), -math.expm1(-epsilon)
    return np.asarray(centre + rng.geometric(p, runs) - rng.geometric(p, runs), dtype=np.float64)


class TestRates:
    @pytest.mark.parametrize(("hits", "runs"), [(0, 10), (1, 10), (7, 10), (10, 10), (930, 1000)])
    def test_ends_are_clopper_and_pearsons(self, hits: int, runs: int) -> None:
        low, high = (float(f(np.array([hits]), runs, LEVEL)[0]) for f in (rate_at_least, rate_at_most))
        assert low == pytest.approx(beta.ppf(LEVEL, hits, runs - hits + 1) if hits else 0.0, abs=1e-12)
        assert high == pytest.approx(beta.ppf(1 - LEVEL, hits + 1, runs - hits) if hits < runs else 1.0, abs=1e-12)

    @pytest.mark.parametrize("rate", [0.003, 0.2, 0.9])
    def test_an_end_misses_the_rate_no_oftener_than_said(self, rate: float) -> None:
        """Exactly, by the binomial law, not by drawing."""
        hits = np.arange(201)
        missed = binom.pmf(hits, 200, rate)
        assert missed[rate_at_least(hits, 200, LEVEL) > rate].sum() <= LEVEL
        assert missed[rate_at_most(hits, 200, LEVEL) < rate].sum() <= LEVEL

    def test_a_thousand_runs_show_at_most_4_9(self) -> None:
        assert most_shown(1000) == pytest.approx(4.876, abs=0.0005)
        sure, never = np.ones(1000), np.zeros(1000)
        assert measure(sure, never, 0.5, LEVEL).epsilon == pytest.approx(most_shown(1000))


class TestBounds:
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
    def test_what_noise_of_an_epsilon_shows_lies_below_it_and_not_far(self, epsilon: float) -> None:
        there, away = drawn(epsilon, 1, 4000, 1), drawn(epsilon, 0, 4000, 2)
        threshold = best_threshold(there[:2000], away[:2000], LEVEL)
        found = measure(there[2000:], away[2000:], threshold, LEVEL)
        assert found.epsilon <= epsilon
        assert found.epsilon > epsilon - 0.45
        assert not found.exceeds(epsilon)
        assert not found.exceeds(found.epsilon), "who keeps a promise to the digit keeps it"

    def test_halved_noise_is_found_out(self) -> None:
        """Promised 1, made with 2: the bound passes the promise."""
        there, away = drawn(2.0, 1, 2000, 3), drawn(2.0, 0, 2000, 4)
        threshold = best_threshold(there[:1000], away[:1000], LEVEL)
        assert measure(there[1000:], away[1000:], threshold, LEVEL).exceeds(1.0)

    def test_the_other_direction_counts_as_well(self) -> None:
        """The outcome *low* never happens with the device: the scores above the threshold show nothing of it."""
        there, away = np.ones(1000), np.repeat([0.0, 1.0], 500)
        assert measure(there, away, 0.5, LEVEL).epsilon > 3.5
        assert math.log(float(rate_at_least(np.array([1000]), 1000, LEVEL)[0]) / 0.5) < 0.7

    def test_delta_is_taken_off(self) -> None:
        there, away = np.repeat([0.0, 1.0], [990, 10]), np.zeros(1000)
        assert measure(there, away, 0.5, LEVEL).epsilon >= 0.0
        assert measure(there, away, 0.5, LEVEL, delta=0.02).epsilon == 0.0
        sure = np.ones(1000)
        assert measure(sure, away, 0.5, LEVEL, delta=0.5).epsilon < measure(sure, away, 0.5, LEVEL).epsilon - 0.6

    def test_more_releases_make_each_bound_more_careful(self) -> None:
        there, away = drawn(2.0, 1, 1000, 5), drawn(2.0, 0, 1000, 6)
        one, of_ten = (measure(there, away, 1.0, level).epsilon for level in (LEVEL, LEVEL / 10))
        assert of_ten < one

    def test_runs_on_both_sides_are_as_many(self) -> None:
        with pytest.raises(UsageError, match="as many"):
            measure(np.ones(3), np.ones(2), 0.5, LEVEL)

    def test_the_law_of_the_noise_says_what_can_be_shown(self) -> None:
        """No value is likelier by more than e^epsilon: the exact ratio that is printed beside the bound."""
        law, values = NoiseDistribution("laplace", 0.5), np.arange(-30, 32)
        assert np.abs(law.log(values - 1) - law.log(values)).max() == pytest.approx(2.0)
