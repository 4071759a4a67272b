"""The release guard: no outcome may raise the odds of any attribute above a cap.

Once r_i is out, what it says about X_j does not depend on epsilon_i (Lee & Smith, Theorem 3). A factor
above the cap can therefore only be prevented by not asking. Two rules decide that, both without looking at
any record that has not been published:

* static: from the joint distribution (and the epsilons) alone, before anything is asked;
* adaptive: before each question, from the outcomes already public. A question is allowed only if neither
  of its answers would break the cap, so the decision itself says nothing new. A blocked round is evidence
  for nothing: it is not counted among the queries.

Both need a *declared* joint distribution. With one learnt from people's days the decisions would tell
about those days.

| symbol | here      | meaning                                                                  |
|--------|-----------|--------------------------------------------------------------------------|
| cap    | ``cap``   | largest allowed ln factor: F_j <= e^cap for every attribute j            |
| F_j    |           | posterior over prior odds, sensitive : not (``dependence``, ``patterns``)|
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import log_evidence, log_factors
from stream.accounting.leakage.entries import Floats, number
from stream.accounting.leakage.patterns import asked, log_worst_factors
from stream.errors import UsageError

#: Rounding of a sum of logarithms: a factor that equals the cap on paper passes.
ROUNDING = 1e-12

_UNASKED = np.array([[0.0, 0.0], [-math.inf, -math.inf]])
_VANISHING = np.array([[0.0, 0.0], [-math.inf, 0.0]])


def releasable(joint: Floats, cap: float, order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the attributes that may be asked at all, whatever their epsilon: the static rule.

    In the limit of vanishing epsilons withholding says nothing and a release of a set A multiplies the odds
    of X_j by Pr(X_A = 1 | X_j = 0) / Pr(X_A = 1 | X_j = 1). An attribute joins, in the given order, if no
    such set among those already in and itself exceeds e^cap. For every attribute left out, every positive
    epsilon beside the ones that are in would break the cap.

    Args:
        joint: shape (2,)*k.
        cap: largest allowed ln factor, >= 0.
        order: attributes by priority; by default as they stand.

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
    """Return the attributes that may be asked these queries with no outcome above the cap.

    The static rule with the epsilons of the policy. Asking fewer attributes, or at a smaller epsilon,
    never raises the worst factor, so growing a set in order of priority ends in one that cannot be
    extended.

    Raises:
        UsageError: as ``releasable``.
    """
    return _grow(joint, asked(epsilon, queries), cap, order)


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


def may_ask(
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
        queries: per attribute how often it was asked so far; blocked rounds do not count, shape (k,).
        released: per attribute how many of those were released, shape (k,); public outcomes only.
        attribute: the one to be asked next.
        cap: largest allowed ln factor, >= 0.

    Raises:
        UsageError: cap is negative, or the outcomes so far cannot happen.
    """
    number(cap, "cap", low=0.0)
    so_far = log_evidence(epsilon, queries, released)
    log_factors(joint, so_far)
    next_row = asked(epsilon, np.ones_like(queries))[attribute]
    return all(_within(joint, _with(so_far, attribute, next_row[m]), cap) for m in (0, 1))


def _with(evidence: Sequence[Floats], attribute: int, row: Floats) -> list[Floats]:
    return [old + row if a == attribute else old for a, old in enumerate(evidence)]


def _within(joint: Floats, evidence: Sequence[Floats], cap: float) -> bool:
    try:
        after = log_factors(joint, evidence)
    except UsageError:
        return True  # this answer cannot come
    return bool(after.max() <= cap + ROUNDING)
