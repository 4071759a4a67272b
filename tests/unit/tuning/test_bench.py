"""Mechanisms on their bench: the epsilon that closed forms give is found, prices, and one draw for each run."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import sinh

import numpy as np
import pytest

from stream.accounting.calibration import calibrate
from stream.errors import UsageError
from stream.lab.tuning.bench import DECADE, EPSILONS, TTLS, NoiseBench, TtlBench, TuningTerms, Unit, payable, prepared
from stream.lab.tuning.search import Rules, search
from stream.lab.tuning.utility import Site, World, world_of
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise_parameters import gaussian_noise, laplace_noise
from stream.pseudonyms.rotation import Sightings
from stream.records import DAY, MINUTE, SECOND

TICK = 5 * MINUTE
MEAN = 100
START = 17_000 * DAY


def world(counts: Ints) -> World:
    site = Site("dbh", "UTC", tuple(f"z{n}" for n in range(counts.shape[1])), (500,) * counts.shape[1], TICK)
    return world_of(site, START + TICK * np.arange(1, len(counts) + 1, dtype=np.int64), counts, 1)


def key(day: int) -> bytes:
    return day.to_bytes(32, "big")


def terms(mechanism: str, unit: Unit = "window", ticks: int = 72) -> TuningTerms:
    return TuningTerms(mechanism, unit, TICK, 2, ticks)


def steady(mechanism: str = "laplace", unit: Unit = "window") -> NoiseBench:
    """Return a building in which always a hundred are, in two zones."""
    counts = np.full((288, 2), MEAN // 2, dtype=np.int64)
    return NoiseBench(prepared(world(counts), "building", ["all"]), terms(mechanism, unit), key)


# --- the known epsilon -----------------------------------------------------------------------------------------------


def utility_under_laplace(epsilon: float) -> float:
    """Return 1 - E|noise| / mean count: E|noise| of the discrete Laplace law is 1 / sinh(epsilon)."""
    return 1 - 1 / (MEAN * sinh(epsilon))


def test_the_epsilon_of_the_closed_form_is_found() -> None:
    """The target lies between two candidates; verdicts are wrong with probability 1e-6 at most, whatever the key."""
    bench, below, above = steady(), Fraction("0.43"), Fraction("0.56")
    tried: Sequence[Fraction] = EPSILONS[4 * DECADE :: 3][:8]
    assert tried.index(above) == tried.index(below) + 1
    target = utility_under_laplace(float(below * above) ** 0.5)

    def run(place: int, number: int) -> float:
        return bench.measures(bench.candidates.index(tried[place]), number)["all"].utility

    found = search(len(tried), run, Rules(target, Fraction(1, 10**6), stride=4))
    assert found.place is not None
    assert tried[found.place] == above
    assert found.next_below is not None
    assert tried[found.next_below] == below


def test_the_mean_of_runs_is_that_of_the_closed_form() -> None:
    """Of 20 runs of 288 errors each: beyond six standard deviations with probability below 1e-6."""
    bench, epsilon = steady(), 0.3
    place = bench.candidates.index(Fraction("0.3"))
    mean = np.mean([bench.measures(place, run)["all"].utility for run in range(20)])
    deviation = 1 / epsilon / MEAN / np.sqrt(20 * 288)
    assert abs(mean - utility_under_laplace(epsilon)) < 6 * deviation


# --- runs ------------------------------------------------------------------------------------------------------------


def test_each_run_has_noise_of_its_own_and_the_same_again() -> None:
    first, second = steady(), steady()
    runs = [first.measures(100, run)["all"] for run in range(4)]
    assert len({each.utility for each in runs}) == 4
    assert [second.measures(100, run)["all"] for run in reversed(range(4))] == runs[::-1]


def test_a_run_is_made_once_for_all_periods_and_utilities() -> None:
    made: list[None] = []
    bench = steady()
    bench.after_draw = lambda: made.append(None)
    for _ in range(3):
        bench.measures(100, 0)
    assert len(made) == 1


def test_the_building_is_counted_as_one_with_noise_once() -> None:
    """Its error is that of one draw, not of one for each of a hundred zones, which is some ten times as large."""
    counts = np.ones((288, 100), dtype=np.int64)
    bench = NoiseBench(prepared(world(counts), "building", ["all"]), terms("laplace"), key)
    error = 1 - bench.measures(bench.candidates.index(Fraction("0.3")), 0)["all"].utility
    assert error == pytest.approx(1 / sinh(0.3) / 100, rel=0.5)


# --- names that live for so long -------------------------------------------------------------------------------------


def test_short_lives_count_devices_twice_and_long_ones_once() -> None:
    minutes = np.arange(0, 24 * 60, 4, dtype=np.int64)
    zeros = np.zeros(len(minutes), dtype=np.int64)
    seen = Sightings(START + minutes * MINUTE, zeros, zeros)
    one = world(np.ones((288, 1), dtype=np.int64))
    bench = TtlBench(prepared(one, "building", ["all"]), seen, 10 * MINUTE, 1)
    utilities = [bench.measures(place, 0)["all"].utility for place in range(len(TTLS))]
    assert utilities[0] < -0.4
    assert utilities[-1] == 1
    found = search(len(TTLS), lambda place, _: utilities[place], Rules(0.9, Fraction(1, 2), stride=1, chance=False))
    assert found.place is not None
    assert 30 * MINUTE <= TTLS[found.place] <= 3 * 60 * MINUTE


# --- prices ----------------------------------------------------------------------------------------------------------


def test_candidates_ascend_a_tenth_or_so_apart() -> None:
    assert (EPSILONS[0], EPSILONS[-1], len(EPSILONS)) == (Fraction(1, 100_000), Fraction(100), 169)
    ratios = [float(after / before) for before, after in pairwise(EPSILONS)]
    assert min(ratios) > 1.06
    assert max(ratios) < 1.16
    assert (TTLS[0], TTLS[-1]) == (SECOND, DAY)
    assert all(before < after for before, after in pairwise(TTLS))


def test_a_window_s_epsilon_is_the_noise_s() -> None:
    assert terms("laplace").noise(Fraction("0.3")) == laplace_noise(Fraction("0.3"))
    assert terms("laplace").of_day(Fraction("0.3")) == Fraction("0.3") * (288 + 4)


def test_a_day_s_epsilon_buys_gaussian_noise_for_the_windows_in_which_a_device_counts() -> None:
    paid = terms("filter", "device_day")
    assert paid.bounded
    assert paid.noise(Fraction(2)) == gaussian_noise(calibrate(Fraction(2), Fraction(1, 10**6), 72)[0])
    assert paid.of_day(Fraction(2)) == 2


def test_a_day_of_a_mechanism_without_a_proof_for_it_is_shared_among_all_the_windows_it_may_change() -> None:
    paid = terms("pegasus", "device_day")
    assert not paid.bounded
    assert paid.noise(Fraction(292)) == laplace_noise(Fraction(1))
    assert paid.of_day(Fraction(292)) == 292


def test_epsilons_that_buy_no_noise_are_no_candidates() -> None:
    assert payable(terms("laplace").noise) == EPSILONS
    assert payable(terms("pegasus").noise)[0] == Fraction("0.000051")
    assert payable(terms("filter", "device_day").noise)[0] >= Fraction("0.01")


def test_epsilons_that_ask_for_less_noise_than_is_supported_are_no_candidates() -> None:
    assert payable(terms("filter", "device_day", ticks=1).noise)[-1] == 47
    assert payable(terms("filter", "device_day").noise)[-1] == 100


def test_where_no_epsilon_buys_noise_nothing_is_tried() -> None:
    def never(_: Fraction) -> None:
        raise UsageError("never")

    with pytest.raises(UsageError, match="none from"):
        payable(never)
