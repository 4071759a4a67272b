"""Closed forms of the papers that special cases of the product must equal.

Lee and Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy": an attribute's record is
released with probability 1 - e^-epsilon when it is not sensitive and never when it is, so withholding is evidence
for "sensitive". delta_1 = Pr(X_i = 0 given X_j = 0), delta_2 = Pr(X_i = 0 given X_j = 1); all factors are on the odds
sensitive : not sensitive.

Li, Ren, Yang, Yang, "Impact of Prior Knowledge and Data Correlation on Privacy Leakage: A Unified Analysis"
(arXiv 1906.02606), Theorem 3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.information import attribute_information
from stream.accounting.leakage.prior import Tuples, edge_values


def suppression_factor(epsilon: float, queries: int = 1) -> float:
    """Return e^(n epsilon): what n withheld queries of r_i make of the odds of X_i (Theorem 1, (2))."""
    return math.exp(queries * epsilon)


def dependent_suppression_factor(delta_1: float, delta_2: float, epsilon: float, queries: int = 1) -> float:
    """Return f_1: what n withheld queries of r_i make of the odds of X_j (Theorem 2, Corollary 1)."""
    grown = math.expm1(queries * epsilon)
    return (delta_1 * grown + 1) / (delta_2 * grown + 1)


def dependent_release_factor(delta_1: float, delta_2: float) -> float:
    """Return f_2: what a release of r_i makes of the odds of X_j, whatever epsilon_i is (Theorem 3)."""
    return (1 - delta_1) / (1 - delta_2)


def edge_value(model: Tuples, target: int, removed: int) -> float:
    """Return d*: the edge that makes the leakage to one who knew all the rest largest when x_removed is forgotten."""
    values = model.values[target]
    pairs = np.array([high - low for high in values for low in values if high > low]) / model.scale
    edges = edge_values(model, target, removed)
    return float(edges.flat[int(np.nanargmax(np.abs(pairs + edges)))])


def increment_ratio(model: Tuples, target: int, removed: int) -> float:
    """Return k = lambda d* / Delta f_removed, in [-1, 1] (Theorem 3)."""
    return edge_value(model, target, removed) * model.scale / float(np.ptp(model.values[removed]))


def limit_information(joint: NDArray[Any]) -> NDArray[Any]:
    """Return I_i at infinite epsilon, H(X_i) + sum_j I(X_i; X_j), in nats."""
    return attribute_information(joint, np.full(joint.ndim, math.inf), np.ones(joint.ndim, dtype=np.int64))
