"""Colluding applications: what is learnt when outcomes, audiences and kinds of release are put together.

Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", Theorem 4, is
exact for two attributes. Carrying its product on to a third is not: it needs the other attributes to be
independent given X_j. ``pairwise_factors`` offers that product under its own name; it can be too small
without limit (X_3 = X_1 xor X_2: product 1, truth cosh epsilon, and infinite after two releases) and too
large (copies). The exact factor is ``dependence.factors``.

| symbol     | here                 | meaning                                                           |
|------------|----------------------|-------------------------------------------------------------------|
| f_1, f_2   |                      | Theorems 2 and 3, see ``stream.accounting.leakage.exclusion``             |
| e^epsilon_j|                      | Theorem 1: r_j itself was withheld                                |
| epsilon    | ``epsilon``          | per attribute, shape (k,)                                         |
| n, u       | ``queries``, ``released`` | per attribute, how often asked and how many of those released|
| n (ticks)  | ``ticks``            | ticks by which a record's value can differ through one device     |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import deltas, log
from stream.accounting.leakage.entries import Floats, number, positive, whole
from stream.accounting.leakage.exclusion import (
    dependent_release_factor,
    dependent_suppression_factor,
    exp_or_inf,
    spent,
    suppression_factor,
)
from stream.errors import UsageError


def colluding_factor(delta_1: float, delta_2: float, epsilon_i: float, epsilon_j: float, *, released_i: bool) -> float:
    """Return the factor on the odds of X_j when r_j was withheld and r_i was withheld or released.

    Theorem 4: f_1 e^epsilon_j or f_2 e^epsilon_j. For n queries put n epsilon for epsilon. Exact for two
    attributes.

    Raises:
        UsageError: as ``exclusion`` for its arguments.
    """
    if released_i:
        return dependent_release_factor(delta_1, delta_2) * suppression_factor(epsilon_j)
    return dependent_suppression_factor(delta_1, delta_2, epsilon_i) * suppression_factor(epsilon_j)


def pairwise_factors(joint: Floats, epsilon: Floats, queries: NDArray[np.int64], released: NDArray[np.int64]) -> Floats:
    """Return the paper's product of pairwise factors for each attribute: an approximation, not a bound.

    0 where r_j itself was released; otherwise e^(n_j epsilon_j) times one f_1 (all withheld) or f_2 (some
    released) for every other attribute. Exact for k <= 2, and when the others are independent given X_j.

    Returns:
        Array of shape (k,), in [0, inf].
    """
    return np.array([_product(joint, epsilon, queries, released, j) for j in range(joint.ndim)])


def _product(joint: Floats, epsilon: Floats, queries: NDArray[np.int64], released: NDArray[np.int64], j: int) -> float:
    if joint.take(0, axis=j).sum() == 0.0 or joint.take(1, axis=j).sum() == 0.0:
        return 1.0
    if released[j]:
        return 0.0
    logs = [spent(float(epsilon[j]), int(queries[j]))]
    for i in (i for i in range(joint.ndim) if i != j):
        total = spent(float(epsilon[i]), int(queries[i]))
        logs.append(_log_release_factor(joint, i, j) if released[i] else _log_suppression_factor(joint, i, j, total))
    return 0.0 if -math.inf in logs else exp_or_inf(math.fsum(logs))


def _log_suppression_factor(joint: Floats, i: int, j: int, total: float) -> float:
    """Return ln f_1 after withheld queries of r_i that spent ``total`` (Theorem 2, Corollary 1), in logarithms."""
    delta = np.array(deltas(joint, i, j))
    if delta[0] == delta[1]:
        return 0.0
    sensitive, public = np.logaddexp(log(delta) + log(np.array(-math.expm1(-total))), -total)
    return float(sensitive - public)


def _log_release_factor(joint: Floats, i: int, j: int) -> float:
    """Return ln f_2 (Theorem 3) from probabilities that r_i may be released, however small they are.

    Raises:
        UsageError: r_i can never be released.
    """
    pair = joint.sum(axis=tuple(a for a in range(joint.ndim) if a not in (i, j)))
    table = pair if i < j else pair.T
    if not table[1].any():
        raise UsageError(f"released[{i}] must be 0: such a record is never released")
    sensitive, public = log(table[1]) - log(table.sum(axis=0))
    return float(sensitive - public)


def coalition_epsilon(members: Iterable[Sequence[float]], *, nested: bool = True) -> Floats:
    """Return what a coalition knows of each attribute, as one epsilon per attribute.

    Args:
        members: per audience of the coalition its epsilon for each attribute; 0 where it has none.
        nested: audiences share one permanent coin per record (released to i iff u < 1 - e^-epsilon_i),
            so together they see what the largest epsilon shows. False: own coins, the epsilons add.

    Raises:
        UsageError: no member, or members with different numbers of attributes.
    """
    rows = [np.asarray(m, dtype=np.float64) for m in members]
    if not rows or any(row.shape != rows[0].shape for row in rows):
        raise UsageError("members must be audiences with one epsilon per attribute each")
    table = np.array(rows)
    return np.asarray(table.max(axis=0) if nested else table.sum(axis=0), dtype=np.float64)


def composed_factor(attribute_epsilon: float, count_epsilons: Iterable[float], *, ticks: int, devices: int) -> float:
    """Return e^(epsilon_attribute + devices ticks sum of count epsilons).

    The most that a withheld attribute together with the count releases of the same zone can raise the
    odds of a sensitive value, when the value can change by moving ``devices`` devices for ``ticks`` ticks.

    Raises:
        UsageError: an epsilon is negative, or ticks or devices is not a whole number >= 0.
    """
    own = number(attribute_epsilon, "attribute_epsilon", low=0.0, finite=False, any_size=True)
    counts = math.fsum(number(e, "count_epsilons", low=0.0, any_size=True) for e in count_epsilons)
    return exp_or_inf(own + whole(devices, "devices") * whole(ticks, "ticks") * counts)


def habit_factor(epsilon: float, days: int) -> float:
    """Return e^(days epsilon): the same sensitive habit withheld on every one of ``days`` days.

    Each day is a record of its own with a coin of its own, so a constant habit is asked n times (Lee &
    Smith, (2)).
    """
    return suppression_factor(epsilon, days)


def habit_days(epsilon: Fraction, cap: Fraction) -> int:
    """Return how many attribute days fit under ln factor <= cap, exactly: floor(cap / epsilon).

    Raises:
        UsageError: epsilon is not positive or cap is negative.
    """
    positive(epsilon, "epsilon")
    number(cap, "cap", low=0.0)
    return math.floor(Fraction(cap) / Fraction(epsilon))
