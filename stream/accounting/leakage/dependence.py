"""Exact posterior odds over dependent attributes: any number of attributes, queries and outcomes.

The odds of X_j after every outcome that an adversary has seen are a ratio of two sums over the joint
distribution. Given the records, the outcomes of different attributes are independent coins, so the
likelihood of what was seen is a product with one term per attribute:

    R_j = sum_{x: x_j = 0} P(x) prod_a l_a(x_a)  /  sum_{x: x_j = 1} P(x) prod_a l_a(x_a)
    l_a(0) = 1 if u_a = 0 else 0,     l_a(1) = (1 - e^-epsilon_a)^u_a e^(-epsilon_a (n_a - u_a))

The factor is R_j over the prior odds. Theorems 1-4 and Corollary 1 of Lee & Smith ("Privacy Leakage over
Dependent Attributes in One-Sided Differential Privacy") are the cases of one and two attributes; their
product rule carried on to three attributes is not exact (``collusion.pairwise_factors``). All outcomes at
once: ``stream.accounting.leakage.patterns``.

Sums are taken in logarithms: a year of withheld queries has a likelihood that no double can hold.

| symbol    | here              | meaning                                                              |
|-----------|-------------------|----------------------------------------------------------------------|
| k         | ``joint.ndim``    | number of attributes                                                 |
| P(x)      | ``joint``         | shape (2,)*k, or one axis per attribute's values; sums to 1          |
| X_a       |                   | index 0 of axis a: sensitive, index 1: not                           |
| epsilon_a | ``epsilon``       | shape (k,), >= 0, may be infinite                                    |
| n_a, u_a  | ``queries``, ``released`` | shape (k,), how often asked, how many of those released      |
| l_a(x_a)  | ``evidence[a]``   | ln of the likelihood of attribute a's outcomes for each value        |
| R_j       | ``posterior_odds``| odds sensitive : not sensitive of attribute j                        |
| F_j       | ``factors``       | R_j / (Pr(X_j = 0) / Pr(X_j = 1))                                    |
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats
from stream.accounting.leakage.odds import spent
from stream.errors import UsageError

#: An attribute whose value is certain beforehand has odds 0 or infinity; nothing moves them: ln factor 0.
CERTAIN = 0.0


def log_evidence(epsilon: Floats, queries: NDArray[np.int64], released: NDArray[np.int64]) -> list[Floats]:
    """Return per attribute (ln l_a(0), ln l_a(1)) of the outcomes; a blocked round is simply not counted.

    Raises:
        UsageError: more releases than queries, or a release although epsilon is 0.
    """
    return [
        _log_outcome(f"released[{a}]", float(e), int(n), int(u))
        for a, (e, n, u) in enumerate(zip(epsilon, queries, released, strict=True))
    ]


def _log_outcome(where: str, epsilon: float, queries: int, released: int) -> Floats:
    if released > queries:
        raise UsageError(f"{where} must be at most its queries ({queries}), got {released}")
    if released and epsilon == 0.0:
        raise UsageError(f"{where} must be 0: at epsilon 0 nothing is released")
    withheld = -spent(epsilon, queries - released)
    coins = 0.0 if released == 0 else released * math.log(-math.expm1(-epsilon))
    return np.array([-math.inf if released else 0.0, coins + withheld])


def prior_odds(joint: Floats) -> Floats:
    """Return Pr(X_j = 0) / Pr(X_j = 1) of each attribute, shape (k,); infinite when never 1."""
    with np.errstate(divide="ignore"):
        return np.array([np.divide(*_marginal(joint, j)) for j in range(joint.ndim)])


def _marginal(joint: Floats, axis: int) -> tuple[np.float64, np.float64]:
    sums = joint.sum(axis=tuple(a for a in range(joint.ndim) if a != axis))
    return sums[0], sums[1]


def deltas(joint: Floats, i: int, j: int) -> tuple[float, float]:
    """Return delta_1^(ij) = Pr(X_i=0 | X_j=0) and delta_2^(ij) = Pr(X_i=0 | X_j=1) (Theorem 2).

    A condition that never happens has no conditional: both are then given the one that does.
    """
    others = tuple(a for a in range(joint.ndim) if a not in (i, j))
    pair = joint.sum(axis=others) if others else joint
    table = pair if i < j else pair.T
    columns = table.sum(axis=0)
    known = [float(table[0, y] / columns[y]) if columns[y] > 0 else None for y in (0, 1)]
    first, second = known
    return (
        (first if first is not None else second) or 0.0,
        (second if second is not None else first) or 0.0,
    )


def log_factors(
    joint: Floats, evidence: Sequence[Floats], sensitive: Sequence[NDArray[np.bool_]] | None = None
) -> Floats:
    """Return ln F_j of every attribute for one outcome, shape (k,), in [-inf, inf].

    Args:
        joint: the joint distribution; axis a runs over the values of attribute a.
        evidence: per attribute, ln of the likelihood of its outcomes for each of its values.
        sensitive: per attribute, which of its values are sensitive; by default index 0 of two.

    Raises:
        UsageError: the outcome cannot happen under this joint distribution.
    """
    if sensitive is None:
        sensitive = [np.array([True, False])] * joint.ndim
    prior = log(joint)
    posterior = prior + sum(_along(row, a, joint.ndim) for a, row in enumerate(evidence))
    if np.isneginf(posterior).all():
        raise UsageError("released: this outcome has probability 0 under the joint distribution")
    return np.array([_log_ratio(posterior, prior, axis, np.asarray(mask)) for axis, mask in enumerate(sensitive)])


def log(values: Floats) -> Floats:
    """Return ln values, -infinity at 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values), dtype=np.float64)


def _along(row: Floats, axis: int, ndim: int) -> Floats:
    shape = [1] * ndim
    shape[axis] = -1
    return row.reshape(shape)


def _log_ratio(posterior: Floats, prior: Floats, axis: int, mask: NDArray[np.bool_]) -> float:
    before = _log_split(prior, axis, mask)
    if -math.inf in before:
        return CERTAIN
    after = _log_split(posterior, axis, mask)
    return (after[0] - after[1]) - (before[0] - before[1])


def _log_split(values: Floats, axis: int, mask: NDArray[np.bool_]) -> tuple[float, float]:
    rows = np.moveaxis(values, axis, 0).reshape(len(mask), -1)
    sensitive, public = rows[mask].ravel(), rows[~mask].ravel()
    return float(np.logaddexp.reduce(sensitive)), float(np.logaddexp.reduce(public))


def exp(values: Floats) -> Floats:
    """Return e^values with infinity where a double cannot hold it."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(values), dtype=np.float64)


def factors(joint: Floats, epsilon: Floats, queries: NDArray[np.int64], released: NDArray[np.int64]) -> Floats:
    """Return F_j of every attribute after these outcomes, shape (k,), in [0, inf].

    F_j = 0 where r_j itself was released (it was not sensitive); infinite where the outcomes prove that
    r_j is sensitive; 1 where X_j was certain beforehand.

    Raises:
        UsageError: released > queries, or the outcome cannot happen.
    """
    return exp(log_factors(joint, log_evidence(epsilon, queries, released)))


def implications(joint: Floats, sensitive: Sequence[NDArray[np.bool_]]) -> list[tuple[int, int, int]]:
    """Return each (i, value, j) where a value of i that may be released proves that j is sensitive.

    Such a set of attributes has an infinite factor at any epsilon_i > 0 and must be refused. Only the
    support of ``joint`` matters, so declared possibilities (1 and 0) serve as well as probabilities.
    Attributes that are always sensitive prove nothing new and are left out.
    """
    found: list[tuple[int, int, int]] = []
    for i, j in ((i, j) for i in range(joint.ndim) for j in range(joint.ndim) if i != j):
        others = tuple(a for a in range(joint.ndim) if a not in (i, j))
        pair = joint.sum(axis=others) if i < j else joint.sum(axis=others).T
        if not pair[:, ~sensitive[j]].any():
            continue
        proves = pair.any(axis=1) & ~pair[:, ~sensitive[j]].any(axis=1) & ~sensitive[i]
        found.extend((i, int(v), j) for v in np.flatnonzero(proves))
    return found
