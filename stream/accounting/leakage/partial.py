"""Partial knowledge: the factor when only some pairwise conditionals are known.

Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", leave this to
future work. An adversary (or a policy) that knows only conditionals Pr(X_i = 0 given X_j) for some pairs
is compatible with many joint distributions; the factor on the odds of the target then lies between a
smallest and a largest value, and both are reached.

With q_v the distribution of all attributes given that the target is v, the factor is
F = E_{q_0}[l] / E_{q_1}[l], l the likelihood of the outcomes. What is known is linear in (q_0, q_1). A ratio
of linear forms over a polytope becomes a linear program by scaling so that the denominator is 1 (Charnes and
Cooper, "Programming with linear fractional functionals", 1962): maximise, minimise t E_{q_0}[l] over
(t q_0, t q_1, t) with t E_{q_1}[l] = 1.

| symbol       | here           | meaning                                                             |
|--------------|----------------|---------------------------------------------------------------------|
| j            | ``target``     | the attribute whose odds are asked for                              |
| delta^(ab)   | ``conditionals[a, b]`` | (Pr(X_a=0 given X_b=0), Pr(X_a=0 given X_b=1))              |
| Pr(X_j = 0)  | ``prior``      | the target's own prior; needed for pairs that leave the target out  |
| q_0, q_1, t  |                | the unknowns: 2^k numbers in all and their scale                    |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from stream.accounting.leakage.dependence import log_evidence
from stream.accounting.leakage.entries import Floats, number, vector, whole
from stream.accounting.leakage.exclusion import suppression_factor
from stream.errors import TacetError, UsageError

Conditionals = Mapping[tuple[int, int], tuple[float, float]]

#: The solver drops coefficients below 1e-9; a likelihood that small would turn a bound into a guess.
SMALLEST = 1e-8

_OPTIMAL, _INFEASIBLE, _UNBOUNDED = 0, 2, 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest and largest factor over every joint distribution that fits; ``upper`` may be infinite."""

    lower: float
    upper: float


def factor_bounds(
    conditionals: Conditionals,
    epsilon: Floats,
    queries: NDArray[np.int64],
    released: NDArray[np.int64],
    *,
    target: int,
    prior: float | None = None,
) -> Bounds:
    """Return the range of F_target over all joint distributions with these conditionals.

    Args:
        conditionals: for pairs (a, b), a != b: Pr(X_a = 0) given X_b = 0 and given X_b = 1.
        epsilon: per attribute, shape (k,), finite.
        queries: per attribute how often asked, shape (k,).
        released: per attribute how many of those were released, shape (k,).
        target: the attribute j.
        prior: Pr(X_j = 0), strictly between 0 and 1; only pairs without the target need it.

    Returns:
        Bounds, as accurate as the linear program's solution (about 1e-7 relative).

    Raises:
        UsageError: an entry is out of range, no joint distribution has these conditionals, or the outcomes
            cannot happen under any that has.
    """
    k = len(epsilon)
    whole(target, "target", high=k - 1)
    if released[target]:
        return Bounds(0.0, 0.0)
    known = _known(conditionals, k, target, prior)
    sensitive = np.indices((2,) * k)[target].ravel() == 0
    likelihood = _likelihood(epsilon, queries, released, target).ravel()
    own = suppression_factor(float(epsilon[target]), int(queries[target]))
    ratio = _ratio_bounds(_Polytope(known, sensitive), likelihood)
    return Bounds(own * ratio.lower, own * ratio.upper)


def _known(conditionals: Conditionals, k: int, target: int, prior: float | None) -> Floats:
    """Return the rows A with A (q_0, q_1) = 0 over the flattened pair of distributions."""
    states = np.stack(np.unravel_index(np.arange(2**k), (2,) * k))
    split = np.ones(2**k)
    if prior is not None:
        share = number(prior, "prior", low=0.0, high=1.0, any_size=True)
        if share in (0.0, 1.0):
            raise UsageError(f"prior must lie strictly between 0 and 1, got {share}")
        split = np.where(states[target] == 0, share, 1.0 - share)
    rows: list[Floats] = []
    for (a, b), entry in conditionals.items():
        where = f"conditionals[{a}, {b}]"
        delta = vector(entry, where, 2, low=0.0, high=1.0)
        if a == b or not (0 <= a < k and 0 <= b < k):
            raise UsageError(f"{where} must name two of the {k} attributes")
        if prior is None and b != target:
            raise UsageError(f"{where} needs the prior of attribute {target}: it is not given that attribute")
        rows.extend(split * (states[b] == y) * ((states[a] == 0) - delta[y]) for y in (0, 1))
    return np.array(rows).reshape(len(rows), 2**k)


def _likelihood(epsilon: Floats, queries: NDArray[np.int64], released: NDArray[np.int64], target: int) -> Floats:
    """Return the likelihood of the other attributes' outcomes for each state, largest value 1."""
    evidence = log_evidence(epsilon, queries, released)
    total = np.zeros((2,) * len(epsilon))
    for a, row in enumerate(evidence):
        if a != target:
            shape = [1] * len(epsilon)
            shape[a] = 2
            total = total + row.reshape(shape)
    scaled = np.asarray(np.exp(total - total.max()), dtype=np.float64)
    if scaled[scaled > 0].min() < SMALLEST:
        raise UsageError("epsilon x queries of the other attributes must not add up to more than 18")
    return scaled


@dataclass(frozen=True, slots=True)
class _Polytope:
    """All (q_0, q_1) that fit: ``known`` @ q = 0, and q_0, q_1 (told apart by ``sensitive``) sum to one."""

    known: Floats
    sensitive: NDArray[np.bool_]

    def scaled(self) -> Floats:
        """Return rows over (t q, t) that must be 0."""
        sums = np.array([np.append(side * 1.0, -1.0) for side in (self.sensitive, ~self.sensitive)])
        return np.vstack([np.column_stack([self.known, np.zeros(len(self.known))]), sums])


def _ratio_bounds(polytope: _Polytope, likelihood: Floats) -> Bounds:
    above = np.append(np.where(polytope.sensitive, likelihood, 0.0), 0.0)
    below = np.append(np.where(polytope.sensitive, 0.0, likelihood), 0.0)
    scale = np.append(np.zeros(len(likelihood)), 1.0)
    highest = _largest(above, polytope, scale)
    if highest is None:
        raise UsageError("conditionals fit no joint distribution")
    upper = _largest(above, polytope, below)
    if upper is None:  # the outcome never comes with a target that is not sensitive
        if highest <= 0.0:
            raise UsageError("released: this outcome cannot happen with these conditionals")
        return Bounds(math.inf, math.inf)
    lower = _largest(-above, polytope, below)
    return Bounds(max(0.0, -lower) if lower is not None else 0.0, upper)


def _largest(objective: Floats, polytope: _Polytope, unit: Floats) -> float | None:
    """Return max objective @ y over y >= 0 in the scaled polytope with unit @ y = 1; None: no such y."""
    rows = polytope.scaled()
    equal = np.vstack([rows, unit])
    right = np.append(np.zeros(len(rows)), 1.0)
    for presolve in (True, False):
        answer = linprog(-objective, A_eq=equal, b_eq=right, options={"presolve": presolve})
        if answer.status == _OPTIMAL:
            return -float(answer.fun or 0.0)
        if answer.status == _UNBOUNDED:
            return math.inf
        if answer.status == _INFEASIBLE:
            return None
    raise TacetError(f"the linear program stopped without an answer (status {answer.status})")
