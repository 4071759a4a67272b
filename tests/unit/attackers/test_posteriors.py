"""Beliefs after counts, against Bayes' rule by brute force: every way in which people may be spread over zones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats, from_true_counts, noisy_posterior, worst_case
from stream.lab.attackers.likelihoods import NoiseDistribution
from stream.records import NoiseKind

PLACES = (0.45, 0.3, 0.15, 0.1)
PEOPLE = 4
NOBODY_OPEN = np.zeros(len(PLACES), dtype=bool)


def believed(likelihood: Callable[[list[int]], float], target: int, places: tuple[float, ...] = PLACES) -> float:
    """Return Pr[person 0 in ``target`` | what was seen], over all places of all people."""
    there = all_ways = 0.0
    for where in itertools.product(range(len(places)), repeat=PEOPLE):
        counts = [where.count(place) for place in range(len(places))]
        weight = math.prod(places[place] for place in where) * likelihood(counts)
        all_ways += weight
        there += weight * (where[0] == target)
    return there / all_ways


def array(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


class TestTrueCounts:
    @pytest.mark.parametrize("seen", [(2, 1, 1, 0), (0, 4, 0, 0), (1, 1, 1, 1)])
    def test_belief_is_the_zones_share_of_people_whatever_the_prior(self, seen: tuple[int, ...]) -> None:
        found = from_true_counts(np.array([seen]), NOBODY_OPEN)[0]
        by_hand = [believed(lambda counts: float(tuple(counts) == seen), zone) for zone in range(len(PLACES))]
        assert found == pytest.approx(by_hand, abs=1e-12)

    def test_who_is_in_an_open_zone_is_not_looked_for(self) -> None:
        found = from_true_counts(np.array([[6, 3, 1, 0]]), np.array([True, False, False, False]))
        assert found.tolist() == [[0.0, 0.75, 0.25, 0.0]]

    def test_where_nobody_is_in_a_closed_zone_nothing_is_believed(self) -> None:
        assert not from_true_counts(np.array([[6, 0]]), np.array([True, False])).any()


class TestNoisyCounts:
    @pytest.mark.parametrize("kind", ["laplace", "gaussian"])
    @pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
    @pytest.mark.parametrize("value", [-7, 0, 2, 4, 30])
    def test_belief_is_brute_force_bayes(self, kind: NoiseKind, scale: float, value: int) -> None:
        noise = NoiseDistribution(kind, scale)
        nearest = noise.log(np.array(min(abs(value - z) for z in range(PEOPLE + 1))))  # so that nothing underflows

        def weight(count: int) -> float:
            return math.exp(float(noise.log(np.array(value - count)) - nearest))

        for zone, p in enumerate(PLACES):
            found = noisy_posterior(noise.log_likelihood(np.array(value), PEOPLE), np.array(p))
            by_hand = believed(lambda counts, zone=zone: weight(counts[zone]), zone)  # type: ignore[misc]
            assert float(found) == pytest.approx(by_hand, abs=1e-12)

    def test_the_sum_begins_at_nobody(self) -> None:
        """The print's begins at 1: with no noise worth the name left, 20 people and p = 0.05 it says .0779."""
        noise = NoiseDistribution("laplace", 1e9)
        assert float(noisy_posterior(noise.log_likelihood(np.array(3), 20), np.array(0.05))) == pytest.approx(
            0.05, abs=1e-6
        )

    def test_known_people_are_taken_off_what_is_published(self) -> None:
        noise = NoiseDistribution("laplace", 2.0)
        with_known = noise.log_likelihood(np.array([9]), PEOPLE, known=5)
        assert with_known.tolist() == noise.log_likelihood(np.array([4]), PEOPLE).tolist()

    @pytest.mark.parametrize("value", range(-3, 9))
    def test_limits_are_the_prior_and_the_true_count(self, value: int) -> None:
        """Theorem B.1. With little noise the published value is the true count, which lies in 0 … m."""
        p = np.array(0.3)
        loud, quiet = NoiseDistribution("laplace", 1e12), NoiseDistribution("laplace", 1e-3)
        assert float(noisy_posterior(loud.log_likelihood(np.array(value), PEOPLE), p)) == pytest.approx(0.3, abs=1e-9)
        count = min(max(value, 0), PEOPLE)
        exact = float(noisy_posterior(quiet.log_likelihood(np.array(count), PEOPLE), p))
        assert exact == pytest.approx(count / PEOPLE, abs=1e-12)

    def test_a_single_value_may_lead_past_both_limits(self) -> None:
        """p = c/m = .25 and y = 12 at ε = 1: .457, so the print's claim for single y does not hold."""
        found = noisy_posterior(NoiseDistribution("laplace", 1.0).log_likelihood(np.array(12), 20), np.array(0.25))
        assert float(found) == pytest.approx(0.457, abs=5e-4)

    def test_nobody_to_look_for_is_refused(self) -> None:
        with pytest.raises(UsageError, match="at least one"):
            noisy_posterior(np.zeros((2, 1)), array(0.5, 0.5))

    @pytest.mark.parametrize("probability", [0.0, 1.0])
    def test_a_prior_that_is_sure_stays_so(self, probability: float) -> None:
        found = noisy_posterior(
            NoiseDistribution("laplace", 1.0).log_likelihood(np.array(2), PEOPLE), np.array(probability)
        )
        assert float(found) == probability


class TestWorstCase:
    def test_two_rooms_with_both_observed_lead_past_the_print(self) -> None:
        """Who moves changes two counts: ε = 1, p = ½ gives .881; the print's .731 is passed by an exact attacker."""
        assert float(worst_case(array(0.5), 1.0, "all")[0]) == pytest.approx(0.8808, abs=1e-4)
        assert float(worst_case(array(0.5), 1.0, "one")[0]) == pytest.approx(0.7311, abs=1e-4)
        noise = NoiseDistribution("laplace", 1.0)
        odds = (noise.log(np.array(0)) - noise.log(np.array(1))) * 2  # the victim in room 1: both counts agree
        assert 1 / (1 + math.exp(-float(odds))) == pytest.approx(0.8808, abs=1e-4)

    @pytest.mark.parametrize("value", range(-4, 6))
    def test_nobody_who_sees_one_region_is_surer(self, value: int) -> None:
        """All others are known: of m people, m - 1 are elsewhere or there, and the count tells 0 or 1."""
        noise, p = NoiseDistribution("laplace", 0.8), 0.2
        there = p * math.exp(float(noise.log(np.array(value - 1))))
        away = (1 - p) * math.exp(float(noise.log(np.array(value))))
        assert there / (there + away) <= float(worst_case(array(p), 1 / 0.8, "one")[0]) + 1e-12

    def test_sure_priors_stay(self) -> None:
        assert worst_case(array(0.0, 1.0), 800.0, "all").tolist() == [0.0, 1.0]


class TestExpectation:
    def test_over_all_counts_it_is_the_prior_again(self) -> None:
        """The mean belief, over worlds as likely as the attacker thinks them, is what it began with."""
        noise, p = NoiseDistribution("laplace", 1.5), 0.3
        log_law = noise.log_likelihood(np.arange(-80, 90), PEOPLE)
        likely = [math.comb(PEOPLE, c) * p**c * (1 - p) ** (PEOPLE - c) for c in range(PEOPLE + 1)]
        believed_of = noisy_posterior(log_law, np.full(len(log_law), p))
        mean = sum(w * float((np.exp(log_law[:, c]) * believed_of).sum()) for c, w in enumerate(likely))
        assert mean == pytest.approx(p, abs=1e-12)


class TestComposition:
    NOISE = NoiseDistribution("laplace", 1.2)

    def log(self, value: int) -> Floats:
        return self.NOISE.log_likelihood(np.array(value), PEOPLE)

    def weight(self, value: int, count: int) -> float:
        return math.exp(float(self.NOISE.log(np.array(value - count))))

    def test_an_output_about_an_independent_count_changes_nothing(self) -> None:
        """Theorem B.2: here the count of a second building, of people of its own."""
        found = noisy_posterior(self.log(3), np.array(PLACES[0]))
        elsewhere = [math.comb(3, c) * 0.4**c * 0.6 ** (3 - c) for c in range(4)]
        by_hand = believed(
            lambda counts: self.weight(3, counts[0]) * sum(w * self.weight(2, c) for c, w in enumerate(elsewhere)), 0
        )
        assert float(found) == pytest.approx(by_hand, abs=1e-12)
