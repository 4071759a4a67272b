"""Dependent attributes: joint distributions, exact posterior odds, and the paper's pairwise approximation.

**Exact odds**, for any number of attributes, queries and outcomes.

The odds of X_j after all outcomes that an adversary has seen are a ratio of two sums over the joint
distribution. Given the records, the outcomes of different attributes are independent coins, so the
likelihood of the outcomes is a product with one term per attribute:

    R_j = sum_{x: x_j = 0} P(x) prod_a l_a(x_a)  /  sum_{x: x_j = 1} P(x) prod_a l_a(x_a)
    l_a(0) = 1 if u_a = 0 else 0,     l_a(1) = (1 - e^-epsilon_a)^u_a e^(-epsilon_a (n_a - u_a))

The factor is R_j over the prior odds. Theorems 1-4 and Corollary 1 of Lee & Smith ("Privacy Leakage over
Dependent Attributes in One-Sided Differential Privacy") are the cases of one and two attributes; their
product rule extended to three attributes is not exact (``pairwise_factors``). ``guard`` computes the factors
of all outcomes together.

Sums are computed in logarithms, since no double can represent the likelihood of a year of withheld queries.

| symbol    | here              | meaning                                                              |
|-----------|-------------------|----------------------------------------------------------------------|
| k         | ``joint.ndim``    | number of attributes                                                 |
| P(x)      | ``joint``         | shape (2,)*k, or one axis per attribute's values; sums to 1          |
| X_a       |                   | index 0 of axis a: sensitive, index 1: not                           |
| epsilon_a | ``epsilon``       | shape (k,), >= 0, may be infinite                                    |
| n_a, u_a  | ``queries``, ``released`` | shape (k,), number of queries, number of those released      |
| l_a(x_a)  | ``evidence[a]``   | ln of the likelihood of attribute a's outcomes for each value        |
| R_j       | ``posterior_odds``| odds sensitive : not sensitive of attribute j                        |
| F_j       | ``factors``       | R_j / (Pr(X_j = 0) / Pr(X_j = 1))                                    |

**The joint distribution** is declared, or learnt from a restricted history.

A declared distribution is public. A learnt one is personal data: from two published factors its
conditional probabilities can be solved for exactly, so nothing computed from it may leave a restricted
report.

Learning adds a pseudo-count to every pattern, so that no pattern that merely was not seen becomes
impossible (an impossible pattern makes factors infinite or hides them). The test for changed dependencies
uses every parity X_S = (sum of x_a over a in S) mod 2: the parities of all non-empty sets S of
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

**Pairwise factors.** Colluding applications combine outcomes, audiences and kinds of release.

Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", Theorem 4, is
exact for two attributes. For three or more its product is exact only if the other attributes are
independent given X_j. ``pairwise_factors`` returns that product. It can be too small without limit
(X_3 = X_1 xor X_2: product 1, exact cosh epsilon, and infinite after two releases) and too large (copies). The
exact factor is ``factors``.

| symbol     | here                 | meaning                                                           |
|------------|----------------------|-------------------------------------------------------------------|
| f_1        |                      | factor on the odds of X_j when r_i is withheld (Theorem 2, Corollary 1)|
| f_2        |                      | factor on the odds of X_j when r_i is released (Theorem 3)         |
| e^epsilon_j|                      | Theorem 1: r_j itself was withheld                                |
| epsilon    | ``epsilon``          | per attribute, shape (k,)                                         |
| n, u       | ``queries``, ``released`` | per attribute, number of queries and of those released       |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats, distribution, exp_or_inf, number, positive, shown, spent
from stream.errors import UsageError

CERTAIN = 0.0
"""An attribute whose value is certain in advance has odds 0 or infinity, which nothing changes: ln factor 0."""


def log_evidence(epsilon: Floats, queries: NDArray[np.int64], released: NDArray[np.int64]) -> list[Floats]:
    """Return per attribute (ln l_a(0), ln l_a(1)) of the outcomes; a blocked round is not counted.

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

    A condition with probability 0 has no conditional distribution; both deltas then get the other one's value.
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


# Joint distributions: declared or learnt.

Joint = Floats
Counts = NDArray[np.int64]

MAX_ATTRIBUTES = 16
"""2^k numbers, k times: more attributes than this are refused rather than left to exhaust the memory."""


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


# The paper's pairwise approximation.


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
