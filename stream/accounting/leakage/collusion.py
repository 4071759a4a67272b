"""Colluding applications: what is learnt when outcomes, audiences and kinds of release are put together.

Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", Theorem 4, is
exact for two attributes. Carrying its product on to a third is not: it needs the other attributes to be
independent given X_j. ``pairwise_factors`` offers that product under its own name; it can be too small
without limit (X_3 = X_1 xor X_2: product 1, truth cosh epsilon, and infinite after two releases) and too
large (copies). The exact factor is ``dependence.factors``.

| symbol     | here                 | meaning                                                           |
|------------|----------------------|-------------------------------------------------------------------|
| f_1        |                      | factor on the odds of X_j when r_i is withheld (Theorem 2, Corollary 1)|
| f_2        |                      | factor on the odds of X_j when r_i is released (Theorem 3)         |
| e^epsilon_j|                      | Theorem 1: r_j itself was withheld                                |
| epsilon    | ``epsilon``          | per attribute, shape (k,)                                         |
| n, u       | ``queries``, ``released`` | per attribute, how often asked and how many of those released|
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import deltas, log
from stream.accounting.leakage.entries import Floats
from stream.accounting.leakage.odds import (
    exp_or_inf,
    spent,
)
from stream.errors import UsageError


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
