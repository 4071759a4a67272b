"""The choice of epsilons for a leakage target, with a proof of optimality.

Both problems share the constraint of Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided
Differential Privacy", section V.C: sum_i I_i(n_i epsilon_i) <= T, 0 <= epsilon_i <= E.

* ``releases`` (recommended): maximise the expected number of released records, sum_i w_i pi_i p_i. This is
  linear over a convex set, since I_i is convex in p_i. The Karush-Kuhn-Tucker conditions are
  dI_i/dp_i = w_i pi_i / lambda. An inner bisection finds p_i, an outer one lambda. The budget that rounding
  leaves is divided along the line between the last two answers. The Lagrangian at the last lambda is an upper
  bound; so is T max_i w_i pi_i / I_i'(0), since a convex I_i lies above its tangent at 0. The smaller one is
  reported.
* ``epsilon`` (the paper's): maximise sum_i w_i epsilon_i (``maximise_epsilon``). The problem is degenerate: where
  I_i is concave in epsilon, the optimum gives everything to one attribute.

| symbol    | here           | meaning                                                                |
|-----------|----------------|------------------------------------------------------------------------|
| T         | ``budget``     | bound on the total information, nats, > 0                              |
| E         | ``cap``        | largest epsilon of one query, > 0, may be infinite                     |
| w_i       | ``weights``    | weight of attribute i, >= 0                                            |
| n_i       | ``queries``    | how often attribute i is queried, >= 1                                 |
| p_i       | ``p``          | 1 - e^(-n_i epsilon_i): the record is released at least once           |
| pi_i      |                | Pr(X_i = 1); pi_i p_i is the chance that the record is released        |
| lambda    | ``price``      | expected releases given up per nat saved                               |

A record counts once as released, however often it is queried.

**The paper's problem**, the sum of epsilons under an information budget:
maximise sum_i w_i epsilon_i subject to sum_i I_i(n_i epsilon_i) <= T, 0 <= epsilon_i <= E. The constraint is a
sum of functions of one variable, so the problem is to divide T: let u_i(t) be the largest epsilon_i with
I_i <= t, and maximise sum_i w_i u_i(t_i) over sum_i t_i <= T.

* Each u_i is increasing. On a grid of B cells a max-plus convolution (dynamic programme) gives the best
  division in whole cells, which is feasible. Rounding any division up to whole cells needs at most
  B + k - 1 cells, so the same programme with that many is an upper bound: the certificate.
* Where I_i is concave in epsilon (nearly always) u_i is convex and the optimum is a vertex: all attributes
  at 0 or E but one. All vertices are tried as well, and the interior parts of the best answer are refined.
* Without a cap the optimum is infinite as soon as T >= min_i I_i(infinity).

| symbol  | here         | meaning                                                                  |
|---------|--------------|--------------------------------------------------------------------------|
| T       | ``budget``   | nats, > 0                                                                |
| B       | ``CELLS``    | cells of the budget grid                                                 |
| u_i     | ``inverse``  | the inverse of I_i, in units of epsilon                                  |
| E       | ``cap``      | largest epsilon, may be infinite                                         |
| k       |              | number of attributes                                                     |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats, positive
from stream.accounting.leakage.information import Channel, attribute_curve, channel, information_slopes, probability
from stream.errors import UsageError

# The paper's problem: the sum of epsilons.

CELLS = 2000

SATURATED = 64.0
"""Beyond this n epsilon the probability of withholding a releasable record is below the last bit of 1."""

ROUNDING = 1e-12
"""A budget counts as spent when at most this share of it is left."""

_CHUNK = 256

HALVINGS = 64
"""Doubles are ordered like their bits, so bisecting the bits finds the last double that fits at any scale."""


PARTS = 8
"""Parts into which a bracket is cut where one evaluation of many points costs little more than that of one."""


def halfway(low: Floats, high: Floats) -> Floats:
    """Return the midpoint, by bits, between two arrays of doubles that are 0 or more."""
    bits = [np.asarray(end, dtype=np.float64).view(np.int64) for end in (low, high)]
    return np.asarray((bits[0] + (bits[1] - bits[0]) // 2).view(np.float64), dtype=np.float64)


@dataclass(frozen=True)
class Curve:
    """I_i as a function of epsilon_i, with its weight and its end: ``top`` <= E, I_i(top) <= T."""

    model: Channel
    attribute: int
    queries: int
    weight: float
    top: float

    def information(self, epsilon: Floats) -> Floats:
        """Return I_i(n_i epsilon) in nats, same shape as ``epsilon``."""
        return attribute_curve(self.model, self.attribute, -np.expm1(-self.queries * np.asarray(epsilon)))

    def inverse(self, information: Floats) -> tuple[Floats, Floats]:
        """Return brackets (low, high) of the largest epsilon <= top with I_i <= ``information``."""
        low, high = np.zeros_like(information), np.full_like(information, self.top)
        for _ in range(HALVINGS):
            middle = halfway(low, high)
            fits = self.information(middle) <= information
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        whole = float(self.information(np.array(self.top))) <= information
        paid = np.where(information > 0.0, low, 0.0)
        return np.where(whole, self.top, paid), np.where(whole, self.top, high)


def maximise_epsilon(
    model: Channel, queries: NDArray[np.int64], weights: Floats, *, budget: float, cap: float
) -> tuple[Floats, float]:
    """Return the best epsilons, shape (k,), and an upper bound on the objective.

    Attributes of weight 0 get 0. Without a cap, attributes whose whole I_i(infinity) fits get infinity,
    smallest first, and the rest of the budget is divided among the others.
    """
    epsilon = np.zeros(model.attributes)
    left, open_ended, rest = budget, False, []
    limits = [float(attribute_curve(model, i, np.array(1.0))) for i in range(model.attributes)]
    for i in sorted(np.flatnonzero(weights > 0), key=lambda i: limits[i]):
        if math.isinf(cap) and limits[i] <= left:
            epsilon[i], left, open_ended = math.inf, left - limits[i], True
        else:
            rest.append(int(i))
    if not rest or left <= 0.0:
        return epsilon, math.inf if open_ended else 0.0
    curves = [_curve(model, i, int(queries[i]), float(weights[i]), budget=left, cap=cap) for i in sorted(rest)]
    divided, upper = _divide_sum(curves, left)
    epsilon[sorted(rest)] = divided
    return epsilon, math.inf if open_ended else upper


def _curve(model: Channel, i: int, queries: int, weight: float, *, budget: float, cap: float) -> Curve:
    whole = Curve(model, i, queries, weight, min(cap, SATURATED / queries))
    if whole.top < cap < math.inf and float(whole.information(np.array(whole.top))) <= budget:
        return Curve(model, i, queries, weight, cap)
    return Curve(model, i, queries, weight, float(whole.inverse(np.array(budget))[1]))


def _divide_sum(curves: list[Curve], budget: float) -> tuple[Floats, float]:
    """Return the best epsilons of these curves and an upper bound."""
    cells: Floats = np.arange(CELLS + 1, dtype=np.float64) * (budget / CELLS)
    brackets = [curve.inverse(cells) for curve in curves]
    worth = np.array([c.weight for c in curves])
    shares, _ = _convolve([c.weight * low for c, (low, _) in zip(curves, brackets, strict=True)], CELLS)
    candidates = [np.array([low[s] for s, (low, _) in zip(shares, brackets, strict=True)])]
    candidates += _vertices(curves, budget)
    best = max(candidates, key=lambda e: float(worth @ e))
    _, upper = _convolve(
        [c.weight * high for c, (_, high) in zip(curves, brackets, strict=True)], CELLS + len(curves) - 1
    )
    return _polish(curves, best, budget), upper


def _convolve(gains: list[Floats], cells: int) -> tuple[list[int], float]:
    """Return the best division of ``cells`` cells, with at most CELLS to one curve, and its value."""
    value, choices = np.zeros(cells + 1), []
    for gain in gains:
        reach = len(gain) - 1
        padded = np.concatenate([np.full(reach, -math.inf), value])
        trial = np.lib.stride_tricks.sliding_window_view(padded, reach + 1) + gain[::-1]
        position = trial.argmax(axis=1)
        value = np.take_along_axis(trial, position[:, None], axis=1)[:, 0]
        choices.append(reach - position)
    left, shares = cells, []
    for chosen in reversed(choices):
        shares.append(int(chosen[left]))
        left -= shares[-1]
    return shares[::-1], float(value[cells])


def _vertices(curves: list[Curve], budget: float) -> list[Floats]:
    """Return, for each attribute, the best point with every other attribute at 0 or its top."""
    k = len(curves)
    tops = np.array([c.top for c in curves])
    full = np.array([float(c.information(np.array(c.top))) for c in curves])
    inside = (np.arange(2**k)[:, None] >> np.arange(k)) & 1
    left = budget - inside @ full
    found = []
    for j in range(k):
        usable = (left >= 0) & (inside[:, j] == 0)
        found.append(_best_vertex(curves, j, inside[usable] * tops, left[usable]))
    return found


def _best_vertex(curves: list[Curve], j: int, points: Floats, left: Floats) -> Floats:
    """Return the best of ``points`` after the budget ``left`` at each goes to attribute j."""
    worth = np.array([c.weight for c in curves])
    before = points @ worth
    order = np.argsort(-before)
    best: Floats = points[order[0]]
    value = -math.inf
    for start in range(0, len(order), _CHUNK):
        chunk = order[start : start + _CHUNK]
        if before[chunk[0]] + worth[j] * curves[j].top <= value:
            break
        trial = points[chunk]
        trial[:, j] = curves[j].inverse(left[chunk])[0]
        winner = int((trial @ worth).argmax())
        if float(trial[winner] @ worth) > value:
            best, value = trial[winner], float(trial[winner] @ worth)
    return best


def _polish(curves: list[Curve], point: Floats, budget: float) -> Floats:
    """Return a point that is at least as good: slack distributed, interior pairs divided optimally."""
    point = point.copy()
    spent = _spent(curves, point)
    for i in range(len(curves)):
        if budget - math.fsum(spent) > ROUNDING * budget:
            _share(curves, point, spent, budget, [i])
    interior = [i for i, c in enumerate(curves) if 0 < point[i] < c.top]
    for _ in range(2 * (len(interior) > 1)):
        for i, j in combinations(interior, 2):
            _share(curves, point, spent, budget, [i, j])
    return point


def _spent(curves: list[Curve], point: Floats) -> Floats:
    return np.array([float(c.information(e)) for c, e in zip(curves, point, strict=True)])


def _share(curves: list[Curve], point: Floats, spent: Floats, budget: float, attributes: list[int]) -> None:
    """Divide the rest of the budget among one or two attributes, in place, if that raises the objective."""
    left = max(0.0, budget - math.fsum(np.delete(spent, attributes)))
    first, last = curves[attributes[0]], curves[attributes[-1]]
    low, high = (left, left) if len(attributes) == 1 else (0.0, left)
    for _ in range(4):
        parts = np.linspace(low, high, 1 if len(attributes) == 1 else 65)
        gives = [first.inverse(parts)[0]] + [last.inverse(left - parts)[0]] * (len(attributes) - 1)
        sums = np.sum([curves[i].weight * e for i, e in zip(attributes, gives, strict=True)], axis=0)
        at = int(np.argmax(sums))
        if sums[at] > sum(curves[i].weight * point[i] for i in attributes):
            point[attributes] = [e[at] for e in gives]
            spent[attributes] = [float(curves[i].information(point[i])) for i in attributes]
        step = (high - low) / 64
        low, high = max(0.0, parts[at] - 2 * step), min(left, parts[at] + 2 * step)


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
    """Return the p that spend the budget, and their price; at the price ``choking`` no release is worth its cost."""
    low, high = 0.0, choking
    over, under = most, np.where(information_slopes(model, most) > 0, 0.0, most)
    for _ in range(HALVINGS):
        price = float(halfway(np.array(low), np.array(high)))
        p = _best_response(model, gain, price, (under, over), most)
        if _total(model, p) > budget:
            low, over = price, p
        else:
            high, under = price, p
    return _along(model, under, over, budget), high


def _along(model: Channel, under: Floats, over: Floats, budget: float) -> Floats:
    """Return the last point on the line from ``under`` to ``over`` that the budget allows."""
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


def _best_response(model: Channel, gain: Floats, price: float, between: tuple[Floats, Floats], most: Floats) -> Floats:
    """Return the p in [0, most] that maximise gain p - price I(p), each searched on its slope.

    The search is between the answers at a higher and at a lower price. It cuts by bits, like ``halfway``, but into
    ``PARTS`` at once: a slope of a few numbers takes hardly longer than one of one.
    """
    low, high = (end.astype(np.float64).view(np.int64) for end in between)
    cuts = np.arange(1, PARTS)[:, None]
    while (high - low > 1).any():
        step = -((low - high) // PARTS)
        middle = np.minimum(low + step * cuts, high)
        worth = gain >= price * information_slopes(model, middle.view(np.float64))
        low = np.minimum(low + step * np.logical_and.accumulate(worth).sum(axis=0), high)
        high = np.minimum(low + step, high)
    at_most = gain > price * information_slopes(model, most)
    return np.where(at_most, most, low.view(np.float64))


def _lagrangian_bound(model: Channel, gain: Floats, price: float, most: Floats, p: Floats) -> float:
    """Return max over all p of sum (gain p - price I(p)), bounded from above by its tangents at ``p``."""
    slope = gain - price * information_slopes(model, p)
    up = np.multiply(slope, most - p, out=np.zeros_like(p), where=p < most)
    down = np.multiply(-slope, p, out=np.zeros_like(p), where=p > 0)
    return float(gain @ p) - price * _total(model, p) + float(np.maximum(np.maximum(up, down), 0.0).sum())
