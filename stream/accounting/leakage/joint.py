"""The joint distribution of dependent attributes: declared, or learnt from a restricted history.

A declared distribution is public. A learnt one is personal data: from two published factors its
conditional probabilities can be solved for exactly, so nothing computed from it may leave a restricted
report.

Learning adds a pseudo-count to every pattern, so that no pattern that merely was not seen becomes
impossible (an impossible pattern makes factors infinite or hides them). Whether dependencies have changed
is asked of every parity X_S = (sum of x_a over a in S) mod 2: the parities of all non-empty sets S of
attributes determine the whole joint distribution (Walsh-Hadamard transform), single attributes and pairs
among them with all the data behind them. Each parity is compared between two histories by the exact
hypergeometric test, so the chance of a false alarm has a bound that needs no large numbers.

| symbol    | here           | meaning                                                                 |
|-----------|----------------|-------------------------------------------------------------------------|
| P(x)      | ``Joint``      | shape (2,)*k, index 0 = sensitive; sums to 1                            |
| n_x       | ``counts``     | shape (2,)*k, how many records showed pattern x                         |
| alpha     | ``pseudo``     | pseudo-count of each pattern, > 0; 1/2 is Jeffreys' choice              |
| S         |                | a non-empty set of attributes; 2^k - 1 of them                          |
| p-value   |                | two-sided, 2^k - 1 times the smallest (Bonferroni), at most 1           |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats, distribution, number, positive, shown
from stream.errors import UsageError

Joint = Floats
Counts = NDArray[np.int64]

#: 2^k numbers, k times: more attributes than this are refused rather than left to exhaust the memory.
MAX_ATTRIBUTES = 16


def declared(patterns: object) -> Joint:
    """Return the joint distribution written as ``{"00": 0.3, ...}``: a digit per attribute, 0 = sensitive.

    Patterns that are left out have probability 0.

    Raises:
        UsageError: naming the entry: a key that is not a pattern, a probability outside [0, 1], a sum
            that is not 1.
    """
    if not isinstance(patterns, Mapping) or not patterns:
        raise UsageError(f"joint must be an object of patterns and their probabilities, got {shown(patterns)}")
    size = len(str(next(iter(patterns))))
    joint = np.zeros((2,) * _attributes(size))
    for key, value in patterns.items():
        joint[_index(str(key), size)] = number(value, f'joint["{key}"]', low=0.0, high=1.0)
    return distribution(joint, "joint")


def _attributes(size: int) -> int:
    if not 1 <= size <= MAX_ATTRIBUTES:
        raise UsageError(f"joint must be of 1 to {MAX_ATTRIBUTES} attributes, got {size}")
    return size


def _index(pattern: str, size: int) -> tuple[int, ...]:
    if len(pattern) != size or not set(pattern) <= {"0", "1"}:
        raise UsageError(f'joint["{shown(pattern)[1:-1]}"] must be a pattern of {size} digits 0 or 1')
    return tuple(int(digit) for digit in pattern)


def count_patterns(records: Iterable[Iterable[int]], attributes: int) -> Counts:
    """Return how often each pattern occurs; a record is one digit per attribute, 0 = sensitive."""
    counts = np.zeros((2,) * _attributes(attributes), dtype=np.int64)
    for record in records:
        counts[tuple(record)] += 1
    return counts


def learn(counts: Counts, pseudo: float = 0.5) -> Joint:
    """Return (n_x + alpha) / (n + alpha 2^k), the posterior mean under a symmetric Dirichlet prior.

    Raises:
        UsageError: the pseudo-count is not positive.
    """
    weights = counts + positive(pseudo, "pseudo")
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def change_p_value(before: Counts, after: Counts) -> float:
    """Return a bound on the chance of a difference like this when nothing has changed, in [0, 1].

    Exact conditional test of each of the 2^k - 1 parities, two-sided, Bonferroni-corrected. Records are
    taken as independent draws.
    """
    odd_before, odd_after = _odd(before), _odd(after)
    total, drawn = int(before.sum() + after.sum()), int(after.sum())
    marked = odd_before + odd_after
    from scipy.stats import hypergeom  # noqa: PLC0415  (takes a second to load, and is needed here alone)

    low = hypergeom.cdf(odd_after, total, marked, drawn)
    high = hypergeom.sf(odd_after - 1, total, marked, drawn)
    smallest = float(np.minimum(low, high).min())
    return min(1.0, 2.0 * len(marked) * smallest)


def _odd(counts: Counts) -> Counts:
    """Return how many records have odd parity, for every non-empty set of attributes."""
    spectrum = counts.astype(np.int64)
    for axis in range(counts.ndim):
        even, odd = spectrum.take(0, axis=axis), spectrum.take(1, axis=axis)
        spectrum = np.stack([even + odd, even - odd], axis=axis)
    return np.asarray((counts.sum() - spectrum.ravel()[1:]) // 2, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Revision:
    """What a re-estimation decided.

    ``counts`` is the history now in force, ``changed`` whether the older one was dropped, ``p_value`` the
    bound that led to it.
    """

    counts: Counts
    changed: bool
    p_value: float


def revise(in_force: Counts, recent: Counts, *, false_alarm: float = 1e-3) -> Revision:
    """Return the history to learn from after ``recent`` records: both together, or only the recent ones.

    The older records are dropped when dependency information has significantly changed, that is when the
    p-value is at most ``false_alarm``. Call it at fixed numbers of records, not when the data look new.

    Raises:
        UsageError: the histories have different attributes, or false_alarm is outside [0, 1].
    """
    number(false_alarm, "false_alarm", low=0.0, high=1.0)
    if in_force.shape != recent.shape:
        raise UsageError(f"recent must have {in_force.ndim} attributes like the history in force, got {recent.ndim}")
    p_value = change_p_value(in_force, recent)
    changed = p_value <= false_alarm
    return Revision(recent if changed else in_force + recent, changed, p_value)
