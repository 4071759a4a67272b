"""Every outcome of a day when what is shown is a value, and the worst that any of them does.

A question about attribute a ends in one of 1 + v_a outcomes: withheld, or shown with one of the v_a classes
of values that are not sensitive. A shown class says more than "not sensitive", so its factor on another
attribute can be larger than that of ``stream.accounting.leakage.patterns``, which is the case of one such class.
After Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", with
Pr(r_i = v given x_j) in place of Pr(M_i = 1 given x_j).

| symbol      | here           | meaning                                                             |
|-------------|----------------|---------------------------------------------------------------------|
| P(x)        | ``joint``      | an axis per attribute, over its classes                             |
|             | ``sensitive``  | per attribute a mask over its classes                               |
| Pr(o given x) | ``rows[a]``  | ln, shape (outcomes of a, classes of a); one row of 0: not asked    |
| F_j(o)      |                | factor on the odds sensitive : not sensitive of attribute j         |
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import CERTAIN, log
from stream.accounting.leakage.entries import Floats

Mask = NDArray[np.bool_]


def unasked(sensitive: Mask) -> Floats:
    """Return the row of an attribute that is not asked: evidence for nothing."""
    return np.zeros((1, len(sensitive)))


def asked(sensitive: Mask, epsilon: float) -> Floats:
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
    return np.array([_target(log(joint), rows, sensitive, j) for j in range(joint.ndim)])


def _target(prior: Floats, rows: Sequence[Floats], sensitive: Sequence[Mask], j: int) -> Floats:
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

    Infinite for every attribute when none can: the evidence then contradicts the model, which bounds nothing.
    """
    table = log_outcome_factors(joint, rows, sensitive).reshape(joint.ndim, -1)
    if np.isnan(table).all():
        return np.full(joint.ndim, math.inf)
    return np.asarray(np.nanmax(table, axis=1), dtype=np.float64)
