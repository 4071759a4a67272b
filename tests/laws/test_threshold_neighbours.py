"""Membership against threshold streams: the exact log-likelihood ratio of their transcripts for neighbouring days.

No test here can alarm falsely: probabilities are sums over the noise, not frequencies. Variants that are known to be
wrong (Lyu, Su, Li 2017, Figure 1, and the ways in which this one could go wrong) are put through the same attack, which
has to find each of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import pytest

from stream.mechanisms.run_distribution import RunDistribution

EPSILON = Fraction(1)
HALF = 0.5
REACH = range(-70, 71)
SLACK = 1e-9
Margins = Sequence[int]
Law = Callable[[Margins], Iterator[float]]
"""Gives the probability of each transcript of windows at these margins, always in the same order."""


def true_run(margins: Margins) -> Iterator[float]:
    """Yield what one run says: where it crosses, or nowhere."""
    law = RunDistribution(EPSILON)
    yield from (law.transcript(margins[: k + 1], crosses=True) for k in range(len(margins)))
    yield law.transcript(margins, crosses=False)


def most_told(law: Law, one: Margins, other: Margins) -> float:
    """Return the largest |log-likelihood ratio| of a transcript."""
    worst = 0.0
    for p, q in zip(law(one), law(other), strict=True):
        if max(p, q) > 1e-300:
            worst = max(worst, math.inf if min(p, q) <= 0 else abs(math.log(p / q)))
    return worst


def neighbours(windows: int, margins: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield margins, and the same with one device's day more, which is at some of the windows."""
    for base in itertools.product(margins, repeat=windows):
        for there in itertools.product((0, 1), repeat=windows):
            yield base, tuple(m + one for m, one in zip(base, there, strict=True))


def test_no_transcript_of_a_run_tells_more_than_its_price() -> None:
    dearest = ((12,) * 5 + (-20,), (13,) * 5 + (-20,))
    tried = (*neighbours(3, (-9, 6)), *neighbours(2, (-20, 0, 12)), dearest)
    worst = max(most_told(true_run, one, other) for one, other in tried)
    assert worst <= float(EPSILON) + SLACK
    assert worst > 0.97 * float(EPSILON), "the bound is reached: nothing less would be honest"


@pytest.mark.parametrize("windows", [12, 96, pytest.param(288, marks=pytest.mark.long)])
def test_a_long_silence_tells_the_threshold_noise_and_no_more(windows: int) -> None:
    silent = [(-8,) * windows, (-7,) * windows]
    p, q = (RunDistribution(EPSILON).transcript(margins, crosses=False) for margins in silent)
    assert 0 < math.log(p / q) <= HALF + SLACK
    crossed = [(*margins, margins[-1] - there) for there, margins in enumerate(silent)]
    assert most_told(true_run, *crossed) <= float(EPSILON) + SLACK


def test_a_part_of_a_day_that_is_moved_costs_up_to_twice_as_much() -> None:
    worst = 0.0
    for base in itertools.product((-8, 0, 6), repeat=3):
        here, there = ([m + n for m, n in zip(base, at, strict=True)] for at in ((1, 1, 0), (0, 0, 1)))
        worst = max(worst, most_told(true_run, here, there))
    assert float(EPSILON) < worst <= 2 * float(EPSILON) + SLACK, "changes of both signs: the price of a day replaced"


# --- variants that are wrong ------------------------------------------------------------------------------


def mass(value: int, epsilon: float) -> float:
    a = math.exp(-epsilon)
    return (1 - a) / (1 + a) * a ** abs(value)


def below(bound: int, epsilon: float) -> float:
    """Return Pr[ν < bound]."""
    a = math.exp(-epsilon)
    return a ** (1 - bound) / (1 + a) if bound <= 0 else 1 - a**bound / (1 + a)


def without_threshold_noise(margins: Margins) -> Iterator[float]:
    """ρ is 0 throughout: each silent window costs anew."""
    silent = 1.0
    for margin in margins:
        yield silent * (1 - below(-margin, HALF))
        silent *= below(-margin, HALF)
    yield silent


def without_query_noise(margins: Margins) -> Iterator[float]:
    """ν is 0 throughout (Stoddard et al. 2014)."""
    for k in range(len(margins)):
        highest = max(margins[:k], default=-(10**6))
        yield math.fsum(mass(rho, HALF) for rho in REACH if highest < rho <= margins[k])
    yield math.fsum(mass(rho, HALF) for rho in REACH if rho > max(margins))


def with_the_count(margins: Margins) -> Iterator[float]:
    """The noisy count is published with the crossing (Roth's lecture notes of 2011)."""
    for k, value in itertools.product(range(len(margins)), range(-30, 31)):
        yield math.fsum(
            mass(rho, HALF) * math.prod(below(rho - m, HALF) for m in margins[:k]) * mass(value - margins[k], HALF)
            for rho in REACH
            if value >= rho
        )


def with_noise_kept_after_a_crossing(margins: Margins) -> Iterator[float]:
    """A further run begins with the noise of the one before, of both kinds, for the price of two."""
    for output in itertools.product((False, True), repeat=len(margins)):
        rho = [r for r in REACH if all((m >= r) == crossed for m, crossed in zip(margins, output, strict=True))]
        yield math.fsum(mass(r, HALF) for r in rho)


def without_an_end(margins: Margins) -> Iterator[float]:
    """A run goes on after it has crossed, and nothing more is charged (Chen et al. 2015)."""
    for output in itertools.product((False, True), repeat=len(margins)):
        yield math.fsum(
            mass(rho, HALF)
            * math.prod(
                1 - below(rho - m, HALF) if crossed else below(rho - m, HALF)
                for m, crossed in zip(margins, output, strict=True)
            )
            for rho in REACH
        )


def with_half_the_noise(margins: Margins) -> Iterator[float]:
    """Both noises are those of twice the price."""
    law = RunDistribution(2 * EPSILON)
    yield from (law.transcript(margins[: k + 1], crosses=True) for k in range(len(margins)))
    yield law.transcript(margins, crosses=False)


WRONG: dict[str, tuple[Law, float]] = {
    "threshold noise missing": (without_threshold_noise, 1.0),
    "query noise missing": (without_query_noise, 1.0),
    "count released": (with_the_count, 1.0),
    "noise reused after a crossing": (with_noise_kept_after_a_crossing, 2.0),
    "a run without an end": (without_an_end, 1.0),
    "half the noise": (with_half_the_noise, 1.0),
}
"""Variant -> what it says, and how many runs it is charged for."""
DAYS = [
    ((-6,) * 6, (-5,) * 6),
    ((0, 0, 0, 6), (1, 1, 1, 6)),
    ((-6, -6, -6, 0), (-5, -5, -5, 0)),
    ((3, 2), (3, 3)),
    ((6, 6, 6), (7, 7, 7)),
    ((-8, -8, -8, -8, 0), (-7, -7, -7, -7, 1)),
    ((-9,) * 7, (-8,) * 7),
    ((0, 1), (1, 1)),
    ((-6,) * 6, (-5, -6, -5, -6, -5, -6)),
]


@pytest.mark.parametrize("name", WRONG)
def test_a_variant_that_is_wrong_is_found(name: str) -> None:
    law, runs = WRONG[name]
    assert max(most_told(law, one, other) for one, other in DAYS) > runs * float(EPSILON) + 0.01
    assert max(most_told(true_run, one, other) for one, other in DAYS) <= float(EPSILON) + SLACK
