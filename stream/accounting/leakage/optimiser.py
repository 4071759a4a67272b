"""Choosing epsilons from a leakage target, to the global optimum, with a bound that proves it.

Both problems share the constraint of Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided
Differential Privacy", section V.C: sum_i I_i(n_i epsilon_i) <= T, 0 <= epsilon_i <= E.

* ``releases`` (recommended): maximise the expected number of released records, sum_i w_i pi_i p_i. Linear
  over a convex set, since I_i is convex in p_i. The conditions of Karush, Kuhn and Tucker are
  dI_i/dp_i = w_i pi_i / lambda; p_i is bisected inside, lambda outside, and what rounding leaves of the budget
  is divided along the line between the last two answers. The Lagrangian at the last lambda is an upper bound;
  so is T max_i w_i pi_i / I_i'(0), since a convex I_i lies above its tangent at 0. The smaller one is reported.
* ``epsilon`` (the paper's): maximise sum_i w_i epsilon_i, in ``stream.accounting.leakage.epsilon_sum``. It is
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

from stream.accounting.leakage.entries import Floats, positive
from stream.accounting.leakage.epsilon_sum import HALVINGS, halfway, maximise_epsilon
from stream.accounting.leakage.information import (
    Channel,
    attribute_curve,
    channel,
    information_slopes,
    probability,
)
from stream.errors import UsageError

Objective = Literal["releases", "epsilon"]


@dataclass(frozen=True)
class Optimum:
    """A certified choice.

    ``epsilon``: per query of each attribute, shape (k,). ``objective``: its value; ``upper_bound``: no
    feasible choice is worth more. ``leakage``: I_i in nats, shape (k,), summing to at most the budget.
    ``releases``: pi_i p_i, the expected number of records of each attribute that are released, shape (k,),
    whatever the objective and the weights were.
    """

    epsilon: Floats
    objective: float
    upper_bound: float
    leakage: Floats
    releases: Floats

    @property
    def leakage_total(self) -> float:
        """Return sum_i I_i in nats."""
        return math.fsum(self.leakage)

    @property
    def expected_releases(self) -> float:
        """Return sum_i pi_i p_i: how many records are released, on average."""
        return math.fsum(self.releases)


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
    wanted = weights > 0
    releases = model.release * p
    worth = releases if objective == "releases" else epsilon
    value = math.fsum(weights[wanted] * worth[wanted])
    leakage = np.array([float(attribute_curve(model, i, p[i])) for i in range(model.attributes)])
    return Optimum(epsilon, value, max(upper, value), leakage, releases)


def _maximise_releases(
    model: Channel, queries: NDArray[np.int64], weights: Floats, budget: float, cap: float
) -> tuple[Floats, float]:
    gain = weights * model.release
    most = np.where(gain > 0, probability(np.full(len(gain), cap), queries), 0.0)
    full = np.where(gain > 0, cap, 0.0)
    if _total(model, most) <= budget:
        return full, float(gain @ most)
    slopes = information_slopes(model, np.zeros(len(gain)))
    dear = (gain > 0) & (slopes > 0)
    best_rate = float(np.divide(gain, slopes, out=np.zeros_like(gain), where=dear).max())
    p, price = _divide(model, gain, most, budget, 2.0 * best_rate)
    epsilon = np.where(p >= most, full, -np.log1p(-np.minimum(p, _BELOW_ONE)) / queries)
    tangent = float(gain @ np.where(dear, 0.0, most)) + best_rate * budget
    return epsilon, min(tangent, _lagrangian_bound(model, gain, price, most, p) + price * budget)


_BELOW_ONE = math.nextafter(1.0, 0.0)


def _divide(model: Channel, gain: Floats, most: Floats, budget: float, choking: float) -> tuple[Floats, float]:
    """Return the p that spend the budget, and their price; at ``choking`` nothing is worth releasing."""
    low, high = 0.0, choking
    over, under = most, np.where(information_slopes(model, most) > 0, 0.0, most)
    for _ in range(HALVINGS):
        price = float(halfway(np.array(low), np.array(high)))
        p = _best_response(model, gain, price, most)
        if _total(model, p) > budget:
            low, over = price, p
        else:
            high, under = price, p
    return _along(model, under, over, budget), high


def _along(model: Channel, under: Floats, over: Floats, budget: float) -> Floats:
    """Return the last point on the way from ``under`` to ``over`` that the budget pays."""
    low, high = np.zeros(1), np.ones(1)
    for _ in range(HALVINGS):
        middle = halfway(low, high)
        fits = _total(model, _between(under, over, middle)) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return _between(under, over, low)


def _between(under: Floats, over: Floats, share: Floats) -> Floats:
    return np.asarray(np.clip(under + share * (over - under), 0.0, np.maximum(under, over)), dtype=np.float64)


def _total(model: Channel, p: Floats) -> float:
    return math.fsum(float(attribute_curve(model, i, p[i])) for i in range(model.attributes))


def _best_response(model: Channel, gain: Floats, price: float, most: Floats) -> Floats:
    """Return the p in [0, most] that maximise gain p - price I(p), each bisected on its slope."""
    low, high = np.zeros_like(most), most.copy()
    for _ in range(HALVINGS):
        middle = halfway(low, high)
        worth = gain >= price * information_slopes(model, middle)
        low, high = np.where(worth, middle, low), np.where(worth, high, middle)
    at_most = gain > price * information_slopes(model, most)
    return np.where(at_most, most, low)


def _lagrangian_bound(model: Channel, gain: Floats, price: float, most: Floats, p: Floats) -> float:
    """Return max over all p of sum (gain p - price I(p)), bounded from above by its tangents at ``p``."""
    slope = gain - price * information_slopes(model, p)
    up = np.multiply(slope, most - p, out=np.zeros_like(p), where=p < most)
    down = np.multiply(-slope, p, out=np.zeros_like(p), where=p > 0)
    return float(gain @ p) - price * _total(model, p) + float(np.maximum(np.maximum(up, down), 0.0).sum())
