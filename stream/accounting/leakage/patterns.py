"""Every pattern of withheld and released at once, and the worst that any of them does.

A pattern says for each attribute whether all its queries were withheld (0) or at least one was released
(1). How many were released makes no further difference: one release fixes X_a = 1, and the coins of its
other queries cancel from the ratio. So 2^k patterns cover every outcome, and contracting the joint
distribution axis by axis with [[1, w_a], [0, 1 - w_a]] gives all of them in O(k^2 2^k).

The worst factor over the patterns that can happen is the honest "epsilon-freedom" of an attribute
(Lee & Smith, Definition 1) when records are dependent. It grows with every epsilon and with every
attribute that is asked (each outcome of less is a mixture of outcomes of more), which is what the release
guard relies on.

| symbol    | here     | meaning                                                             |
|-----------|----------|---------------------------------------------------------------------|
| w_a       |          | e^(-n_a epsilon_a): all n_a queries withheld though not sensitive   |
| m_a       |          | 0: all withheld, 1: some released                                   |
| rows[a]   | ``rows`` | ln Pr(m_a given x_a), shape (2, 2): row m_a, column x_a             |
| F_j(m)    |          | factor on the odds sensitive : not sensitive of attribute j         |
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import CERTAIN, exp, log
from stream.accounting.leakage.entries import Floats
from stream.accounting.leakage.odds import spent


def asked(epsilon: Floats, queries: NDArray[np.int64]) -> list[Floats]:
    """Return the rows ln [[1, w_a], [0, 1 - w_a]] of OSDPRR: all withheld, some released."""
    totals = [spent(float(e), int(n)) for e, n in zip(epsilon, queries, strict=True)]
    return [np.array([[0.0, -t], [-math.inf, _log_release(t)]]) for t in totals]


def _log_release(total: float) -> float:
    return math.log(-math.expm1(-total)) if total > 0 else -math.inf


def log_pattern_factors(joint: Floats, rows: Sequence[Floats]) -> Floats:
    """Return ln F_j(m) of every attribute and pattern, shape (k,) + (2,)*k.

    Index (j, m_1, ..., m_k). NaN marks patterns that cannot happen.
    """
    return np.array([_target(log(joint), rows, j) for j in range(joint.ndim)])


def pattern_factors(joint: Floats, epsilon: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return F_j(m) of every attribute and pattern, shape (k,) + (2,)*k; NaN: cannot happen."""
    return exp(log_pattern_factors(joint, asked(epsilon, queries)))


def _target(prior: Floats, rows: Sequence[Floats], j: int) -> Floats:
    seen = prior
    for axis, row in enumerate(rows):
        if axis != j:
            seen = _contract(seen, row, axis)
    by_value = np.moveaxis(seen, j, 0)
    sensitive, public = (_outcomes(by_value[x], rows[j][:, x], j) for x in (0, 1))
    before = [float(np.logaddexp.reduce(np.moveaxis(prior, j, 0)[x].ravel())) for x in (0, 1)]
    possible = ~(np.isneginf(sensitive) & np.isneginf(public))
    if -math.inf in before:
        return np.where(possible, CERTAIN, math.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(sensitive - public - (before[0] - before[1]), dtype=np.float64)


def _contract(values: Floats, row: Floats, axis: int) -> Floats:
    by_value = np.moveaxis(values, axis, 0)
    outcomes = [np.logaddexp(by_value[0] + row[m, 0], by_value[1] + row[m, 1]) for m in (0, 1)]
    return np.stack(outcomes, axis=axis)


def _outcomes(values: Floats, likelihood: Floats, axis: int) -> Floats:
    return np.stack([values + likelihood[m] for m in (0, 1)], axis=axis)


def log_worst_factors(joint: Floats, rows: Sequence[Floats]) -> Floats:
    """Return the largest ln F_j(m) over the patterns that can happen, shape (k,)."""
    table = log_pattern_factors(joint, rows).reshape(joint.ndim, -1)
    return np.asarray(np.nanmax(table, axis=1), dtype=np.float64)


def worst_factors(joint: Floats, epsilon: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return the largest factor of each attribute over all reachable outcomes of these queries, shape (k,).

    Infinite when some outcome proves that the attribute is sensitive.
    """
    return exp(log_worst_factors(joint, asked(epsilon, queries)))
