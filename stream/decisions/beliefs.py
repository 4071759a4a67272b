"""Beliefs about one record that a predicate-wise private answer allows.

An answer allows an interval of beliefs for each predicate:

    symbol   here        meaning
    k        len         predicates; they exclude each other and one of them holds
    ε_i      epsilons    cost of the answer for a record of predicate i
    q_i      priors      prior probability of predicate i, up to a factor
    l_i, u_i low, high   q_i e**-ε_i / Σ q e**ε  <=  p_i  <=  q_i e**ε_i / Σ q e**-ε

Lemma A.1 of Ghayyur (2022); 5.1 is its case of equal priors. As Σ p = 1, each interval shrinks to what the others
leave. Equal intervals are stored once, with their number. All of it is + - * / in a fixed order, since the next step of
a progressive mechanism, and so what it releases, depends on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.exact import exp, ln_of

_STEEPEST = 700.0
"""Exponents are limited to this: the omitted part is below 1e-300."""


class Interval(NamedTuple):
    """Predicates with the same interval of beliefs."""

    low: float
    width: float
    predicates: int
    """Number of predicates, at least 1."""
    rise: float
    """Entropy term of the upper end minus that of the lower, in nats."""


class Beliefs(NamedTuple):
    """All beliefs that an answer allows: p_i in its interval, Σ p = 1."""

    intervals: tuple[Interval, ...]
    """The intervals with positive width, each group once, by lower end and width."""
    slack: float
    """1 minus the sum of all lower ends."""
    at_low: float
    """Sum of all entropy terms at the lower ends, in nats."""


def term(p: float) -> float:
    """Return -p ln p, 0 at 0; the same on every machine."""
    return -p * ln_of(p) if p > 1e-300 else 0.0


def beliefs(epsilons: Sequence[float], priors: Sequence[float] | None = None) -> Beliefs:
    """Return the beliefs that an answer allows; the order of predicates does not matter.

    Args:
        epsilons: ε_i >= 0, at least one, finite.
        priors: q_i >= 0, as many, not all 0; by default equal.

    Raises:
        UsageError: there is no predicate, or no prior is positive.
    """
    q = [1.0] * len(epsilons) if priors is None else list(priors)
    if not any(q):
        raise UsageError("priors must not all be 0" if q else "epsilons must not be empty")
    kinds = Counter(pair for pair in zip(map(float, epsilons), q, strict=True) if pair[1] > 0)
    return _tight(_intervals(kinds))


def _intervals(kinds: Counter[tuple[float, float]]) -> list[tuple[float, float, int]]:
    """Return low, high and number of each kind (ε, q)."""
    pairs = sorted(kinds)
    e, q = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    number = [kinds[pair] for pair in pairs]
    largest, least = float(e.max()), float(e.min())
    up = fsum(n * w for n, w in zip(number, (q * exp(e - largest)).tolist(), strict=True))
    down = fsum(n * w for n, w in zip(number, (q * exp(least - e)).tolist(), strict=True))
    low = q * exp(-e - largest) / up
    high = np.minimum(1.0, q * exp(np.minimum(e + least, _STEEPEST)) / down)
    return list(zip(low.tolist(), high.tolist(), number, strict=True))


def _tight(intervals: list[tuple[float, float, int]]) -> Beliefs:
    lows = fsum(n * low for low, _, n in intervals)
    highs = fsum(n * high for _, high, n in intervals)
    groups: Counter[tuple[float, float]] = Counter()
    for low, high, n in intervals:
        bottom = max(low, 1 - (highs - high))
        top = min(high, 1 - (lows - low))
        groups[bottom, max(0.0, top - bottom)] += n
    made = [Interval(low, width, n, term(low + width) - term(low)) for (low, width), n in sorted(groups.items())]
    slack = 1 - fsum(each.predicates * each.low for each in made)
    at_low = fsum(each.predicates * term(each.low) for each in made)
    return Beliefs(tuple(each for each in made if each.width > 0), max(0.0, slack), at_low)
