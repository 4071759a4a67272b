"""The release guard: no outcome may raise the odds of any attribute above a cap.

A released r_i reveals of X_j an amount that does not depend on epsilon_i (Lee & Smith, Theorem 3). A factor
above the cap can therefore be prevented only by not querying. Two rules decide this, both without reading
any record that has not been published:

* static: from the joint distribution (and the epsilons) alone, before any query;
* adaptive: before each query, from the outcomes already public. A query is allowed only if neither
  of its answers would exceed the cap, so the decision itself reveals nothing. A blocked query is no
  evidence and is not counted.

Both need a *declared* joint distribution. With one learnt from people's days the decisions would reveal
information about those days.

| symbol | here      | meaning                                                                  |
|--------|-----------|--------------------------------------------------------------------------|
| cap    | ``cap``   | largest allowed ln factor: F_j <= e^cap for every attribute j            |
| F_j    |           | posterior over prior odds, sensitive : not (``dependence``)              |

**Patterns of outcomes.** ``pattern_factors`` computes the factors of all patterns together.

A pattern contains for each attribute whether all its queries were withheld (0) or at least one was released
(1). The number of releases makes no further difference: one release fixes X_a = 1, and the coins of its
other queries cancel from the ratio. So 2^k patterns cover every outcome, and contracting the joint
distribution axis by axis with [[1, w_a], [0, 1 - w_a]] gives all of them in O(k^2 2^k).

The worst factor over the possible patterns is the true "epsilon-freedom" of an attribute
(Lee & Smith, Definition 1) when records are dependent. It grows with every epsilon and with every
queried attribute (each outcome of fewer queries is a mixture of outcomes of more). The release guard relies on
this.

| symbol    | here     | meaning                                                             |
|-----------|----------|---------------------------------------------------------------------|
| w_a       |          | e^(-n_a epsilon_a): all n_a queries withheld though not sensitive   |
| m_a       |          | 0: all withheld, 1: some released                                   |
| rows[a]   | ``rows`` | ln Pr(m_a given x_a), shape (2, 2): row m_a, column x_a             |
| F_j(m)    |          | factor on the odds sensitive : not sensitive of attribute j         |

**Values as outcomes.** ``log_outcome_factors`` covers days on which a value is shown.

A query of attribute a has one of 1 + v_a outcomes: withheld, or shown with one of the v_a classes
of values that are not sensitive. A shown class contains more information than "not sensitive", so its factor on another
attribute can be larger than that of a pattern, which is the case of one such class.
After Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", with
Pr(r_i = v given x_j) in place of Pr(M_i = 1 given x_j).

| symbol      | here           | meaning                                                             |
|-------------|----------------|---------------------------------------------------------------------|
| P(x)        | ``joint``      | an axis per attribute, over its classes                             |
|             | ``sensitive``  | per attribute a mask over its classes                               |
| Pr(o given x) | ``rows[a]``  | ln, shape (outcomes of a, classes of a); one row of 0: not queried  |
| F_j(o)      |                | factor on the odds sensitive : not sensitive of attribute j         |
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import CERTAIN, exp, log, log_evidence, log_factors
from stream.accounting.leakage.entries import Floats, number, spent
from stream.errors import UsageError

# Patterns of withheld and released.


def presence_rows(epsilon: Floats, queries: NDArray[np.int64]) -> list[Floats]:
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
    return exp(log_pattern_factors(joint, presence_rows(epsilon, queries)))


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
    return exp(log_worst_factors(joint, presence_rows(epsilon, queries)))


# Outcomes with shown values.

Mask = NDArray[np.bool_]


def no_evidence(sensitive: Mask) -> Floats:
    """Return the row of an attribute that is not queried: no evidence."""
    return np.zeros((1, len(sensitive)))


def value_rows(sensitive: Mask, epsilon: float) -> Floats:
    """Return ln Pr(outcome given class), shape (1 + classes that may be shown, classes).

    Row 0: withheld; the others: shown with each class that is not sensitive, in order.
    """
    withheld = np.where(sensitive, 0.0, -epsilon)
    if epsilon == 0.0:
        return withheld[None]
    shown = [class_shown(sensitive, int(place), epsilon) for place in np.flatnonzero(~sensitive)]
    return np.array([withheld, *shown])


def class_shown(sensitive: Mask, place: int, epsilon: float) -> Floats:
    """Return ln Pr(shown with class ``place`` given each class)."""
    return np.where(np.arange(len(sensitive)) == place, math.log(-math.expm1(-epsilon)), -math.inf)


def log_outcome_factors(joint: Floats, rows: Sequence[Floats], sensitive: Sequence[Mask]) -> Floats:
    """Return ln F_j(o), shape (k,) + outcomes of each attribute; NaN marks outcomes that cannot happen."""
    return np.array([_value_target(log(joint), rows, sensitive, j) for j in range(joint.ndim)])


def _value_target(prior: Floats, rows: Sequence[Floats], sensitive: Sequence[Mask], j: int) -> Floats:
    split = [_only(prior, mask, j) for mask in (sensitive[j], ~sensitive[j])]
    before = [float(np.logaddexp.reduce(part.ravel())) for part in split]
    hidden, public = (_contracted(part, rows) for part in split)
    possible = ~(np.isneginf(hidden) & np.isneginf(public))
    if -math.inf in before:
        return np.where(possible, CERTAIN, math.nan)
    with np.errstate(invalid="ignore"):
        return np.asarray(hidden - public - (before[0] - before[1]), dtype=np.float64)


def _only(values: Floats, mask: Mask, axis: int) -> Floats:
    shape = [1] * values.ndim
    shape[axis] = -1
    return np.where(mask.reshape(shape), values, -math.inf)


def _contracted(values: Floats, rows: Sequence[Floats]) -> Floats:
    for axis, row in enumerate(rows):
        by_class = np.moveaxis(values, axis, 0)
        outcomes = [
            np.logaddexp.reduce(by_class + likelihood.reshape(-1, *[1] * (values.ndim - 1)), axis=0)
            for likelihood in row
        ]
        values = np.stack(outcomes, axis=axis)
    return values


def log_worst_outcomes(joint: Floats, rows: Sequence[Floats], sensitive: Sequence[Mask]) -> Floats:
    """Return the largest ln F_j over the outcomes that can happen, shape (k,).

    Infinite for every attribute when no outcome can: the evidence then contradicts the model, which bounds nothing.
    """
    table = log_outcome_factors(joint, rows, sensitive).reshape(joint.ndim, -1)
    if np.isnan(table).all():
        return np.full(joint.ndim, math.inf)
    return np.asarray(np.nanmax(table, axis=1), dtype=np.float64)


ROUNDING = 1e-12
"""Tolerance for rounding of a sum of logarithms: a factor that equals the cap mathematically passes."""

_UNASKED = np.array([[0.0, 0.0], [-math.inf, -math.inf]])
_VANISHING = np.array([[0.0, 0.0], [-math.inf, 0.0]])


def releasable(joint: Floats, cap: float, order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the attributes that may be queried at all, whatever their epsilon: the static rule.

    In the limit of vanishing epsilons withholding reveals nothing and a release of a set A multiplies the odds
    of X_j by Pr(X_A = 1 | X_j = 0) / Pr(X_A = 1 | X_j = 1). An attribute joins, in the given order, if no
    such set among those already in and itself exceeds e^cap. For every attribute left out, every positive
    epsilon together with those of the accepted attributes would exceed the cap.

    Args:
        joint: shape (2,)*k.
        cap: largest allowed ln factor, >= 0.
        order: attributes by priority; by default in their order.

    Returns:
        Attributes in ascending order; a set that cannot be extended.

    Raises:
        UsageError: cap is negative, or order is not a permutation of the attributes.
    """
    return _grow(joint, [_VANISHING] * joint.ndim, cap, order)


def permitted(
    joint: Floats,
    epsilon: Floats,
    queries: NDArray[np.int64],
    cap: float,
    order: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Return the attributes that may be queried this often with no outcome above the cap.

    Uses the static rule with the epsilons of the policy. Fewer queried attributes, or a smaller epsilon,
    never raise the worst factor, so growing a set in order of priority ends in one that cannot be
    extended.

    Raises:
        UsageError: as ``releasable``.
    """
    return _grow(joint, presence_rows(epsilon, queries), cap, order)


def _grow(joint: Floats, rows: Sequence[Floats], cap: float, order: Sequence[int] | None) -> tuple[int, ...]:
    number(cap, "cap", low=0.0)
    priority = list(range(joint.ndim)) if order is None else list(order)
    if sorted(priority) != list(range(joint.ndim)):
        raise UsageError(f"order must name each of the {joint.ndim} attributes once, got {priority!r}")
    chosen: list[int] = []
    current = [_UNASKED] * joint.ndim
    for attribute in priority:
        trial = [rows[a] if a == attribute else row for a, row in enumerate(current)]
        if log_worst_factors(joint, trial).max() <= cap + ROUNDING:
            chosen.append(attribute)
            current = trial
    return tuple(sorted(chosen))


def may_query(
    joint: Floats,
    epsilon: Floats,
    queries: NDArray[np.int64],
    released: NDArray[np.int64],
    *,
    attribute: int,
    cap: float,
) -> bool:
    """Return whether one more query of ``attribute`` keeps every factor at most e^cap: the adaptive rule.

    Args:
        joint: shape (2,)*k, declared.
        epsilon: per attribute, shape (k,).
        queries: per attribute how often it was queried so far; blocked rounds do not count, shape (k,).
        released: per attribute how many of those were released, shape (k,); public outcomes only.
        attribute: the attribute to query next.
        cap: largest allowed ln factor, >= 0.

    Raises:
        UsageError: cap is negative, or the outcomes so far cannot happen.
    """
    number(cap, "cap", low=0.0)
    so_far = log_evidence(epsilon, queries, released)
    log_factors(joint, so_far)
    next_row = presence_rows(epsilon, np.ones_like(queries))[attribute]
    return all(_within(joint, _with(so_far, attribute, next_row[m]), cap) for m in (0, 1))


def _with(evidence: Sequence[Floats], attribute: int, row: Floats) -> list[Floats]:
    return [old + row if a == attribute else old for a, old in enumerate(evidence)]


def _within(joint: Floats, evidence: Sequence[Floats], cap: float) -> bool:
    try:
        after = log_factors(joint, evidence)
    except UsageError:
        return True  # this answer cannot occur
    return bool(after.max() <= cap + ROUNDING)
