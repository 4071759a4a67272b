"""What many releases cost together: never below the exact composition, at most half a percent above it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest

from stream.accounting.composition import EpsilonEvent, Gaussian, Laplace, Noise, Price, compose, merged_noises
from stream.errors import UsageError
from tests.unit.accounting.exact_delta import exact_delta, laplace_outcomes, outcomes, size

DELTA = 1e-6
ABOVE = 1.005
MIXES = 500


def laplace(epsilon: str, times: int) -> Laplace:
    return Laplace(Decimal(epsilon), times)


def gaussian(sigma: str, times: int) -> Gaussian:
    return Gaussian(Fraction(sigma) ** 2, times)


def binomial_delta(epsilon: float, each: float, times: int) -> float:
    """Return delta(epsilon) of ``times`` losses of +each or -each, in closed form."""
    p = 1 / (1 + math.exp(-each))
    return math.fsum(
        math.comb(times, k) * p**k * (1 - p) ** (times - k) * max(0.0, -math.expm1(epsilon - (2 * k - times) * each))
        for k in range(times + 1)
    )


def normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def analytic_delta(epsilon: float, mu: float) -> float:
    """Return delta(epsilon) of continuous Gaussian noise (Balle, Wang 2018)."""
    return normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("epsilon", "prices"),
    [
        ("0.05", (2.167, 2.458, 4.062)),
        ("0.1", (4.667, 5.327, 9.009)),
        ("0.5", (32.386, 37.924, 73.207)),
        ("1", (80.351, 96.632, 201.952)),
    ],
)
def test_equal_laplace_releases_cost_their_binomial_composition(epsilon: str, prices: tuple[float, ...]) -> None:
    for times, price in zip((96, 120, 292), prices, strict=True):
        found = compose([laplace(epsilon, times)], DELTA)
        assert found.approximate == pytest.approx(price, abs=6e-4)
        assert found.pure == times * Decimal(epsilon)
        assert binomial_delta(found.approximate, float(epsilon), times) <= DELTA
        assert binomial_delta(found.approximate / 1.00001, float(epsilon), times) > DELTA


@pytest.mark.parametrize("times", [1, 2, 3, 10, 1000, 100_000])
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-2])
def test_a_price_is_never_more_than_the_sum_of_epsilons(times: int, delta: float) -> None:
    found = compose([laplace("0.3", times)], delta)
    assert 0 < found.approximate <= float(found.pure)
    assert found.delta == delta


@pytest.mark.parametrize(("sigma", "times"), [("3", 1000), ("3", 96), ("21.854", 96), ("38.114", 292), ("500", 292)])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-4])
def test_many_gaussian_releases_cost_what_the_analytic_formula_says(sigma: str, times: int, delta: float) -> None:
    found = compose([gaussian(sigma, times)], delta).approximate
    mu = math.sqrt(times) / float(sigma)
    assert analytic_delta(found / ABOVE, mu) > delta > analytic_delta(found * ABOVE, mu)


def test_a_gaussian_day_replaced_costs_two_days_of_cells_and_three_devices_nine_times_the_variance() -> None:
    day = gaussian("21.854", 96)
    assert compose([day], DELTA).approximate == pytest.approx(2.0, rel=1e-4)
    assert compose([gaussian("21.854", 192)], DELTA).approximate == pytest.approx(2.93, abs=5e-3)
    assert compose([day], DELTA, group=3).approximate == pytest.approx(6.872, abs=5e-3)
    assert compose([day], DELTA).pure == Decimal("Infinity")


def mix(draw: random.Random) -> tuple[list[Noise], int]:
    """Return one to four runs of noises and a group, of a size that can be laid out outcome by outcome."""
    while True:
        group = draw.choice([1, 1, 1, 2, 3])
        releases: list[Noise] = []
        for _ in range(draw.randint(1, 4)):
            if draw.random() < 0.5:
                releases.append(Laplace(Decimal(draw.randint(2, 300)) / 100, draw.randint(1, 30)))
            else:
                releases.append(Gaussian(Fraction(draw.randint(25, 3000), 100), draw.randint(1, 12)))
        if draw.random() < 0.2:
            releases.append(EpsilonEvent(Decimal(draw.randint(1, 50)) / 100, draw.randint(1, 3)))
        if size([outcomes(each, group) for each in releases if not isinstance(each, EpsilonEvent)]) < 300_000:
            return releases, group


@pytest.mark.parametrize("part", range(10))
def test_five_hundred_random_mixes_cost_their_exact_composition_and_at_most_half_a_percent_more(part: int) -> None:
    """Seeded, so nothing here is left to chance; the exact delta at a price decides on which side the price lies."""
    draw = random.Random(20_000 + part)
    for _ in range(MIXES // 10):
        releases, group = mix(draw)
        delta = 10 ** -draw.uniform(2, 9)
        price = compose(releases, delta, group)
        worst = group * sum(float(each.epsilon) * each.times for each in releases if isinstance(each, EpsilonEvent))
        runs = [outcomes(each, group) for each in releases if not isinstance(each, EpsilonEvent)]
        above = price.approximate - worst
        assert exact_delta(runs, above) <= delta * (1 + 1e-9), (releases, group, delta)
        assert above < 1e-3 or exact_delta(runs, price.approximate / ABOVE - worst) >= delta, (releases, group, delta)


@pytest.mark.parametrize("group", [1, 2, 3, 7])
def test_a_group_shifts_laplace_noise_and_costs_the_law_of_that_shift(group: int) -> None:
    found = compose([laplace("0.2", 25)], DELTA, group)
    runs = [laplace_outcomes(0.2, 25, group)]
    assert exact_delta(runs, found.approximate) <= DELTA < exact_delta(runs, found.approximate / 1.0001)
    assert found.approximate <= found.pure == group * Decimal("5.0")


def test_what_is_pure_counts_at_its_worst_case_beside_what_is_composed() -> None:
    noisy: list[Noise] = [laplace("0.1", 292)]
    pure = EpsilonEvent(Decimal("0.02"), 100)
    alone, both = compose(noisy, DELTA), compose([*noisy, pure], DELTA)
    assert both.approximate == pytest.approx(alone.approximate + 2)
    assert both.pure == alone.pure + 2
    assert compose([pure], DELTA, group=3) == Price(Decimal("6.00"), 6.0, DELTA)


def test_nothing_costs_nothing() -> None:
    assert compose([], DELTA) == Price(Decimal(0), 0.0, DELTA)


def test_equal_noises_are_one_run_whatever_their_order_and_number_form() -> None:
    parts: list[Noise] = [laplace("0.1", 40), gaussian("5", 3), laplace("0.10", 56), gaussian("5.0", 2)]
    whole = compose([gaussian("5", 5), laplace("0.1", 96)], DELTA)
    assert compose(parts, DELTA).approximate == compose(parts[::-1], DELTA).approximate == whole.approximate


def test_one_value_may_have_the_widest_noise_that_there_is() -> None:
    assert merged_noises([gaussian("200000", 1)]) == [gaussian("200000", 1)]


def test_more_releases_more_devices_and_less_delta_never_cost_less() -> None:
    some: list[Noise] = [laplace("0.1", 96), gaussian("21.854", 96)]
    price = compose(some, DELTA).approximate
    assert price > compose(some[:1], DELTA).approximate
    assert price > compose(some[1:], DELTA).approximate
    assert price < compose(some, DELTA, group=2).approximate
    assert price < compose(some, DELTA / 10).approximate


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compose([], 0.5), "delta must lie in"),
        (lambda: compose([], 1e-11), "delta must lie in"),
        (lambda: compose([], math.nan), "delta must lie in"),
        (lambda: compose([], DELTA, group=0), "group must be 1 to 100, got 0"),
        (lambda: laplace("0", 1), "epsilon must lie in"),
        (lambda: laplace("NaN", 1), "epsilon must lie in"),
        (lambda: laplace("1", 0), "times must be 1 to 1000000, got 0"),
        (lambda: EpsilonEvent(Decimal("Infinity")), "epsilon must lie in"),
        (lambda: gaussian("1", 0), "times must be 1 to 1000000, got 0"),
        (lambda: gaussian("1", 1_000_001), "times must be 1 to 1000000, got 1000001"),
        (lambda: gaussian("0.01", 1), "sigma must be at least 0.1, got 0.01"),
        (lambda: gaussian("200001", 1), "at most 200000, got 200001"),
        (
            lambda: compose([laplace(f"0.{n}", 1) for n in range(100, 165)], DELTA),
            "at most 64 different noises, got 65",
        ),
    ],
)
def test_what_is_outside_its_range_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
