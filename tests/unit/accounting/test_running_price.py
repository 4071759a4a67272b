"""The price a running stream can afford: never below the exact one, at most 7 % above it, quick to ask again."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from stream.accounting.composition import (
    DIGITS,
    EpsilonEvent,
    Gaussian,
    Laplace,
    Noise,
    compose,
    merged_noises,
    pure_cost,
    rounded_up,
    running_price,
)

ABOVE = 1.07
DELTAS = [Fraction(1, 10**4), Fraction(1, 10**6), Fraction(1, 10**9)]


def both(releases: list[Noise], delta: Fraction, group: int = 1) -> tuple[float, float]:
    """Return the running price and the exact one."""
    runs = merged_noises(releases)
    tally = {replace(run, times=1): run.times for run in runs}
    most = pure_cost(runs, group)
    bound = Fraction(most) if most.is_finite() else math.inf
    return running_price(tally, delta, group, bound), compose(runs, delta, group).approximate


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("times", [1, 2, 12, 13, 65, 96, 292, 2017, 8640])
def test_one_noise_costs_the_exact_price_to_within_seven_percent(delta: Fraction, group: int, times: int) -> None:
    kinds: list[Noise] = [
        *(Laplace(Decimal(epsilon), times) for epsilon in ("0.001", "0.1", "0.5", "2")),
        *(Gaussian(Fraction(variance), times) for variance in ("0.5", "9", "478", "10000")),
    ]
    for noise in kinds:
        quick, exact = both([noise], delta, group)
        assert exact - 1e-6 <= quick <= ABOVE * exact + 1e-6, noise


@pytest.mark.parametrize("seed", range(4))
def test_mixtures_cost_the_exact_price_to_within_seven_percent(seed: int) -> None:
    """Seeded. What is taken as exact is itself up to 0.2 % above."""
    draw = random.Random(40_000 + seed)
    for _ in range(25):
        releases: list[Noise] = [
            Laplace(Decimal(draw.randint(1, 200)) / 100, draw.randint(1, 400))
            if draw.random() < 0.5
            else Gaussian(Fraction(draw.randint(25, 100_000), 100), draw.randint(1, 400))
            for _ in range(draw.randint(2, 4))
        ]
        if draw.random() < 0.3:
            releases.append(EpsilonEvent(Decimal("0.1"), draw.randint(1, 50)))
        quick, exact = both(releases, DELTAS[1], draw.choice([1, 2, 3]))
        assert exact / 1.002 <= quick <= ABOVE * exact, releases


def test_a_count_is_rounded_up_by_at_most_a_thirty_second() -> None:
    for times in [*range(1, 3000), 10**6 + 1, 10**12 + 1]:
        assert times <= rounded_up(times) <= times * (1 + 2.0 ** (1 - DIGITS)) + 1e-9
        assert rounded_up(rounded_up(times)) == rounded_up(times)
    assert [rounded_up(times) for times in (1, 63, 64, 65, 292)] == [1, 63, 64, 66, 296]


def test_nothing_costs_nothing_and_what_is_pure_is_added_up() -> None:
    assert running_price({}, DELTAS[1]) == 0.0
    assert running_price({EpsilonEvent(Decimal("0.1")): 7}, DELTAS[1]) == 0.7
    assert running_price({EpsilonEvent(Decimal("0.1")): 7}, DELTAS[1], 3, Fraction("2.1")) == 2.1


def test_different_noises_that_delta_alone_hides_cost_nothing() -> None:
    assert running_price({Laplace(Decimal("0.005")): 1, Laplace(Decimal("0.004")): 1}, Fraction(1, 100)) == 0.0


def test_epsilons_of_any_size_are_added_up_exactly() -> None:
    """Of 18 digits each, from 1e-18 to 1e12, and as many of them as a stream of years has."""
    epsilons = {Decimal("1e-18"): 10**6, Decimal("123456789012.345678"): 8640, Decimal("0.1"): 10**6}
    exact = 3 * sum((Fraction(epsilon) * times for epsilon, times in epsilons.items()), Fraction(0))
    tally: dict[Noise, int] = {EpsilonEvent(epsilon): times for epsilon, times in epsilons.items()}
    assert running_price(tally, DELTAS[1], 3) == math.ceil(float(exact) * 1e6 * (1 - 1e-12)) / 1e6


@pytest.mark.parametrize("noise", [Gaussian(Fraction(10**9)), Laplace(Decimal("0.001"))])
def test_sums_too_large_to_be_laid_out_cost_more_and_never_fail(noise: Noise) -> None:
    """Concentrated privacy: rho + 2 sqrt(rho ln(1/delta)), which the analytic formula does not exceed."""
    times = 2**27
    found = running_price({noise: times}, DELTAS[1], 3)
    rho = 9 * times * (1 / (2 * 10**9) if isinstance(noise, Gaussian) else 0.5e-6)
    assert found == pytest.approx(rho + 2 * math.sqrt(rho * math.log(10**6)), rel=1e-6)


@pytest.mark.pinned
def test_prices_are_the_same_bits_everywhere() -> None:
    tally: dict[Noise, int] = {
        Laplace(Decimal("0.08")): 290,
        Gaussian(Fraction(478)): 192,
        EpsilonEvent(Decimal("0.02")): 290,
    }
    found = [running_price(tally, delta, group) for delta in DELTAS for group in (1, 3)]
    assert found == [12.060343, 42.716113, 13.65923, 47.232269, 15.559651, 52.632971]
