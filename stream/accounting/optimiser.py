"""Choosing epsilons from a leakage target, to the global optimum, with a bound that proves it.

Both problems share the constraint of Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided
Differential Privacy", section V.C: sum_i I_i(n_i epsilon_i) <= T, 0 <= epsilon_i <= E.

* ``releases`` (recommended): maximise the expected number of released records, sum_i w_i pi_i p_i. Linear
  over a convex set, since I_i is convex in p_i. The conditions of Karush, Kuhn and Tucker are
  dI_i/dp_i = w_i pi_i / lambda; p_i is bisected inside, lambda outside, and the Lagrangian at the last
  lambda is the upper bound.
* ``epsilon`` (the paper's): maximise sum_i w_i epsilon_i, in ``stream.accounting.epsilon_sum``. It is
  degenerate: where I_i is concave in epsilon the optimum gives everything to one attribute.

| symbol    | here           | meaning                                                                |
|-----------|----------------|------------------------------------------------------------------------|
| T         | ``budget``     | bound on the total information, nats, > 0                              |
| E         | ``cap``        | largest epsilon of one query, > 0, may be infinite                     |
| w_i       | ``weights``    | worth of attribute i, >= 0                                             |
| n_i       | ``queries``    | how often attribute i is asked, >= 1                                   |
| p_i       | ``p``          | 1 - e^(-n_i epsilon_i): the record is released at least once           |
| pi_i      |                | Pr(X_i = 1); pi_i p_i is the chance that the record is released        |
| lambda    | ``price``      | expected releases given up per nat saved                               |

A record counts once as released, however often it is asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream.accounting.entries import Floats, positive
from stream.accounting.epsilon_sum import maximise_epsilon
from stream.accounting.information import (
    Channel,
    attribute_curve,
    channel,
    information_slopes,
    probability,
)
from stream.errors import UsageError

Objective = Literal["releases", "epsilon"]

_STEPS = 100


@dataclass(frozen=True)
class Optimum:
    """A certified choice.

    ``epsilon``: per query of each attribute, shape (k,). ``objective``: its value; ``upper_bound``: no
    feasible choice is worth more. ``leakage``: I_i in nats, shape (k,), summing to at most the budget.
    ``expected_releases``: sum_i w_i pi_i p_i of this choice, whatever the objective was.
    """

    epsilon: Floats
    objective: float
    upper_bound: float
    leakage: Floats
    expected_releases: float

    @property
    def leakage_total(self) -> float:
        """Return sum_i I_i in nats."""
        return math.fsum(self.leakage)


def optimise(
    joint: Floats,
    queries: NDArray[np.int64],
    weights: Floats,
    *,
    budget: float,
    objective: Objective = "releases",
    cap: float = math.inf,
) -> Optimum:
    """Return the epsilons that give most within the budget, and a bound on what any could give.

    Args:
        joint: shape (2,)*k.
        queries: shape (k,), each at least 1.
        weights: shape (k,), each at least 0.
        budget: T in nats, positive.
        objective: ``releases`` or ``epsilon``.
        cap: largest epsilon of one query, positive, may be infinite.

    Raises:
        UsageError: an argument is out of range.
    """
    positive(budget, "budget")
    positive(cap, "cap", finite=False)
    if objective not in ("releases", "epsilon"):
        raise UsageError(f'objective must be "releases" or "epsilon", got {objective!r}')
    for name, values, least in (("queries", queries, 1), ("weights", weights, 0)):
        for i, value in enumerate(values):
            if value < least:
                raise UsageError(f"{name}[{i}] must be at least {least}, got {value}")
    model = channel(joint)
    if objective == "releases":
        epsilon, upper = _maximise_releases(model, queries, weights, budget, cap)
    else:
        epsilon, upper = maximise_epsilon(model, queries, weights, budget=budget, cap=cap)
    return _report(model, queries, weights, epsilon, objective=objective, upper=upper)


def _report(
    model: Channel,
    queries: NDArray[np.int64],
    weights: Floats,
    epsilon: Floats,
    *,
    objective: Objective,
    upper: float,
) -> Optimum:
    p = probability(epsilon, queries)
    releases = float(weights @ (model.release * p))
    wanted = weights > 0
    value = releases if objective == "releases" else math.fsum(weights[wanted] * epsilon[wanted])
    leakage = np.array([float(attribute_curve(model, i, p[i])) for i in range(model.attributes)])
    return Optimum(epsilon, value, max(upper, value), leakage, releases)


def _maximise_releases(
    model: Channel, queries: NDArray[np.int64], weights: Floats, budget: float, cap: float
) -> tuple[Floats, float]:
    gain = weights * model.release
    most = np.where(gain > 0, probability(np.full(len(gain), cap), queries), 0.0)
    if _total(model, most) <= budget:
        return np.where(gain > 0, cap, 0.0), float(gain @ most)
    low, high = 0.0, _choking_price(model, gain)
    for _ in range(_STEPS):
        price = (low + high) / 2
        if _total(model, _best_response(model, gain, price, most)) > budget:
            low = price
        else:
            high = price
    p = _best_response(model, gain, high, most)
    epsilon = np.where(p >= most, np.where(gain > 0, cap, 0.0), -np.log1p(-np.minimum(p, _BELOW_ONE)) / queries)
    return epsilon, _lagrangian_bound(model, gain, high, most, p) + high * budget


_BELOW_ONE = math.nextafter(1.0, 0.0)


def _total(model: Channel, p: Floats) -> float:
    return math.fsum(float(attribute_curve(model, i, p[i])) for i in range(model.attributes))


def _choking_price(model: Channel, gain: Floats) -> float:
    """Return a price at which nothing is worth releasing (apart from what gives nothing away)."""
    slopes = information_slopes(model, np.zeros(len(gain)))
    return 2.0 * max((float(g / s) for g, s in zip(gain, slopes, strict=True) if s > 0), default=1.0)


def _best_response(model: Channel, gain: Floats, price: float, most: Floats) -> Floats:
    """Return the p in [0, most] that maximise gain p - price I(p), each bisected on its slope."""
    low, high = np.zeros_like(most), most.copy()
    for _ in range(60):
        middle = (low + high) / 2
        worth = gain >= price * information_slopes(model, middle)
        low, high = np.where(worth, middle, low), np.where(worth, high, middle)
    with np.errstate(invalid="ignore"):
        at_most = gain > price * information_slopes(model, most)
    return np.where(at_most, most, low)


def _lagrangian_bound(model: Channel, gain: Floats, price: float, most: Floats, p: Floats) -> float:
    """Return max over all p of sum (gain p - price I(p)), bounded from above by its tangents at ``p``."""
    slope = gain - price * information_slopes(model, p)
    slack = np.maximum(np.where(p < most, slope * (most - p), 0.0), -slope * p)
    return float(gain @ p) - price * _total(model, p) + float(np.maximum(slack, 0.0).sum())
