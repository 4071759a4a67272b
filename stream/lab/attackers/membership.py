"""Membership inference: a lower bound on epsilon from runs.

    symbol  here       meaning
    s       score      the attacker's score of one run: larger where the device is there
    t       threshold  at and above which the attacker decides *there*; fixed on runs that are not measured
    TPR     rates      Pr[s >= t] with the device;  FPR: without it
    δ       delta      the delta of the guaranteed epsilon

(ε, δ) promises Pr[E | there] <= e^ε Pr[E | away] + δ for every event E, and the same the other way round. So
ln((TPR - δ) / FPR) <= ε, and with the rest of the outcomes ln((1 - FPR - δ) / (1 - TPR)) <= ε. Both rates are measured:
each is replaced by the end of its Clopper-Pearson interval that makes the bound smaller, at ``LEVEL`` each, divided by
the number of releases that are attacked (Bonferroni). A bound is too high with a probability of at most 4 LEVEL over
all releases: two rates, two directions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.lab.attackers.beliefs import Floats, Ints

LEVEL = 0.0005
"""Probability with which one end of one interval misses the rate: each has a confidence of 99.95 %."""


class Bound(NamedTuple):
    """The bound that runs show."""

    epsilon: float
    """Lower bound on epsilon, at least 0."""
    threshold: float
    there: float
    """Share of measured runs with the device at or above the threshold."""
    away: float
    """The same of those without it."""
    runs: int
    """Measured on each side."""

    def exceeds(self, guarantee: float) -> bool:
        """Whether the guarantee is violated, with the certainty that ``LEVEL`` implies."""
        return self.epsilon > guarantee


def rate_at_least(hits: Ints, runs: int, level: float) -> Floats:
    """Return the lower end of the Clopper-Pearson interval of a rate; 0 for no hit."""
    from scipy.special import betaincinv  # noqa: PLC0415  (slow to import; most commands do not need it)

    return np.asarray(np.where(hits > 0, betaincinv(np.maximum(hits, 1), runs - hits + 1, level), 0.0))


def rate_at_most(hits: Ints, runs: int, level: float) -> Floats:
    """Return the upper end; 1 where all runs hit."""
    return 1.0 - rate_at_least(runs - hits, runs, level)


def most_shown(runs: int, level: float = LEVEL) -> float:
    """Return the largest bound that this number of runs per side can show: all right, at 1,000 runs about 4.9."""
    sure = float(rate_at_least(np.array([runs]), runs, level)[0])
    return max(0.0, math.log(sure / (1 - sure)))


def measure(
    there: Floats, away: Floats, threshold: float, level: float, delta: float = 0.0, *, one_way: bool = False
) -> Bound:
    """Return the bound that runs show at a threshold, the better of both directions.

    Args:
        there: scores of runs with the device, at least one.
        away: scores of as many runs without it.
        threshold: fixed before these runs were looked at.
        level: probability with which each end of an interval may miss.
        delta: of the guarantee.
        one_way: only Pr[s >= t | there] is promised to be bounded by the other, as of one-sided mechanisms.

    Raises:
        UsageError: numbers of runs differ, or there is none.
    """
    if len(there) != len(away) or len(there) == 0:
        raise UsageError(f"runs with and without must be as many, at least one, got {len(there)} and {len(away)}")
    hits, false = (np.array([(scores >= threshold).sum()]) for scores in (there, away))
    shown = float(_bounds(hits, false, len(there), _Terms(level, delta, one_way))[0])
    return Bound(shown, threshold, float(hits[0]) / len(there), float(false[0]) / len(away), len(there))


def best_threshold(there: Floats, away: Floats, level: float, delta: float = 0.0, *, one_way: bool = False) -> float:
    """Return the threshold of the largest bound on runs that will not be measured; of equals the lowest."""
    candidates = np.unique(np.concatenate([there, away]))
    hits, false = (len(s) - np.searchsorted(np.sort(s), candidates) for s in (there, away))
    return float(candidates[np.argmax(_bounds(hits, false, len(there), _Terms(level, delta, one_way)))])


class _Terms(NamedTuple):
    level: float
    delta: float
    one_way: bool


def _bounds(hits: Ints, false: Ints, runs: int, terms: _Terms) -> Floats:
    """Return the larger bound of the directions that are promised, at least 0."""
    level, delta, one_way = terms
    forth = _log_ratio(rate_at_least(hits, runs, level) - delta, rate_at_most(false, runs, level))
    if one_way:
        return np.maximum(0.0, forth)
    back = _log_ratio(rate_at_least(runs - false, runs, level) - delta, rate_at_most(runs - hits, runs, level))
    return np.maximum(0.0, np.maximum(forth, back))


def _log_ratio(above: Floats, below: Floats) -> Floats:
    return np.log(np.maximum(above, 1e-300) / below)
