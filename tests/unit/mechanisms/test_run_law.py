"""The law of a run: what it says with which probability, against sums over both noises written out."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from stream.errors import UsageError
from stream.mechanisms.run_distribution import RunDistribution

WIDE = range(-60, 61)


def mass(value: int, epsilon: float) -> float:
    """Return the probability of a discrete Laplace value."""
    a = math.exp(-epsilon)
    return (1 - a) / (1 + a) * a ** abs(value)


def written_out(epsilon: float, margins: tuple[int, ...], crosses: bool) -> float:
    """Return the probability of a transcript, summed over threshold and query noise one by one."""
    below = {
        (rho, m): math.fsum(mass(nu, epsilon / 2) for nu in WIDE if m + nu < rho) for rho in WIDE for m in set(margins)
    }
    total = 0.0
    for rho in WIDE:
        product = mass(rho, epsilon / 2)
        for place, margin in enumerate(margins):
            last = crosses and place == len(margins) - 1
            product *= 1 - below[rho, margin] if last else below[rho, margin]
        total += product
    return total


@pytest.mark.parametrize("margins", [(0,), (-3, 2), (1, -4, 0), (-2, -2, -2, 3)])
@pytest.mark.parametrize("crosses", [True, False])
def test_a_transcript_has_the_probability_that_both_noises_give_it(margins: tuple[int, ...], crosses: bool) -> None:
    law = RunDistribution(Fraction(2))
    assert law.transcript(margins, crosses=crosses) == pytest.approx(written_out(2.0, margins, crosses), abs=1e-12)


def test_all_that_a_run_can_say_has_probability_one() -> None:
    law, margins = RunDistribution(Fraction("0.7")), (-4, 3, -1, 0)
    crossing = [law.transcript(margins[: k + 1], crosses=True) for k in range(len(margins))]
    assert math.fsum([*crossing, law.transcript(margins, crosses=False)]) == pytest.approx(1, abs=1e-12)


def test_silence_at_one_margin_is_the_transcript_of_as_many_windows() -> None:
    law = RunDistribution(Fraction("0.5"))
    for windows, margin in itertools.product((1, 2, 5, 11), (-20, -1, 0, 9)):
        silent = law.transcript([margin] * windows, crosses=False)
        assert law.silence(margin, windows) == pytest.approx(silent, rel=1e-12)
        assert law.crossing(margin, windows) == pytest.approx(1 - silent, abs=1e-12)


def test_no_run_crosses_below_its_threshold_however_long_a_count_stays_beyond_it() -> None:
    law = RunDistribution(Fraction(1))
    assert law.silence(-1, 10_000) < 0.1
    assert law.least_shift(Fraction(1, 10), 10_000) == 0


@pytest.mark.parametrize("epsilon", ["0.01", "0.1", "0.5", "1", "3"])
@pytest.mark.parametrize("windows", [1, 2, 6])
def test_the_shift_is_the_least_that_keeps_the_miss(epsilon: str, windows: int) -> None:
    law, miss = RunDistribution(Fraction(epsilon)), Fraction(1, 60)
    shift = law.least_shift(miss, windows)
    assert law.silence(shift, windows) <= miss
    assert shift == 0 or law.silence(shift - 1, windows) > miss


def test_shifts_are_the_same_on_every_machine() -> None:
    """Released bytes follow from them."""
    prices = ("0.001", "0.02", "0.1", "0.5", "1", "7")
    shifts = [RunDistribution(Fraction(price)).least_shift(Fraction(1, 60), 1) for price in prices]
    assert shifts == [9188, 459, 92, 18, 9, 1]


def test_a_price_below_which_noise_drowns_everything_is_refused() -> None:
    with pytest.raises(UsageError, match=r"epsilon of a run must be at least 0\.001, got 0\.0009"):
        RunDistribution(Fraction("0.0009"))
