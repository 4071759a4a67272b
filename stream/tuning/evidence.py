"""Whether runs reach a utility more often than not, and how sure that is after any number of them.

A run either reaches the utility or not; runs are independent and alike, as each has noise of its own. Of n runs k
reached it. Against "with probability 1/2 at most" one bets with the likelihood ratio of a larger probability, all
larger ones being equally likely:

    M = 2 ∫ p^k (1-p)^(n-k) dp / 2^-n,  p from 1/2 to 1
      = Σ C(n+1, j) / ((n+1) C(n, k)),  j from 0 to k

Whatever the probability is, if it is 1/2 at most, M has no mean above 1 and never exceeds 1/α but with probability α
(Ville, 1939), however long one looks and whenever one stops. Nothing is assumed of the law of a run's utility. All of
it is arithmetic of whole numbers. "With probability 1/2 at least" is refuted alike, by the runs that did not reach it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Literal

from stream.errors import UsageError

Verdict = Literal["reached", "missed", "open"]
"""The utility is reached more often than not, it is not, or runs have not told yet."""


@lru_cache(maxsize=65_536)
def verdict(reached: int, runs: int, error: Fraction) -> Verdict:
    """Return what runs have shown; wrong with probability ``error`` at most, whenever it is asked.

    Args:
        reached: runs that reached the utility, 0 to ``runs``.
        runs: how many there were.
        error: above 0, below 1.

    Raises:
        UsageError: a number is out of range.
    """
    if not 0 <= reached <= runs or not 0 < error < 1:
        raise UsageError(f"verdict must be on 0 to all runs, wrong in part of them, got {reached} of {runs}, {error}")
    if wealth(reached, runs) * error >= 1:
        return "reached"
    return "missed" if wealth(runs - reached, runs) * error >= 1 else "open"


def wealth(reached: int, runs: int) -> Fraction:
    """Return M: what a bet of 1 against "at most every second run reaches it" has become."""
    below = sum(comb(runs + 1, each) for each in range(reached + 1))
    return Fraction(below, (runs + 1) * comb(runs, reached))


def fewest_runs(error: Fraction) -> int:
    """Return after how many runs, all alike, there is a verdict."""
    runs = 1
    while verdict(runs, runs, error) == "open":
        runs += 1
    return runs
