"""The paper's own problem, sum of epsilons under an information budget, to its certified global optimum.

maximise sum_i w_i epsilon_i subject to sum_i I_i(n_i epsilon_i) <= T, 0 <= epsilon_i <= E (Lee & Smith,
"Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", section V.C). The constraint
is a sum of functions of one variable, so this is the division of T: let u_i(t) be the largest epsilon_i
with I_i <= t and maximise sum_i w_i u_i(t_i) over sum_i t_i <= T.

* Each u_i is increasing. On a grid of B cells a max-plus convolution (dynamic programme) gives the best
  division in whole cells, which is feasible. Rounding any division up to whole cells needs at most
  B + k - 1 cells, so the same programme with that many is an upper bound: the certificate.
* Where I_i is concave in epsilon (nearly always) u_i is convex and the optimum is a vertex: all attributes
  at 0 or E but one. All vertices are tried as well, and the best answer's interior parts are polished.
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

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats
from stream.accounting.leakage.information import Channel, attribute_curve

CELLS = 2000

#: Beyond this n epsilon the chance of keeping a releasable record back is below the last bit of 1.
SATURATED = 64.0

#: A budget is spent when this share of it is left.
ROUNDING = 1e-12

_CHUNK = 256

#: Doubles are ordered like their bits, so halving the bits finds the last double that fits at any scale.
HALVINGS = 64


def halfway(low: Floats, high: Floats) -> Floats:
    """Return the doubles half way, by bits, between two arrays of doubles that are 0 or more."""
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
    divided, upper = _divide(curves, left)
    epsilon[sorted(rest)] = divided
    return epsilon, math.inf if open_ended else upper


def _curve(model: Channel, i: int, queries: int, weight: float, *, budget: float, cap: float) -> Curve:
    whole = Curve(model, i, queries, weight, min(cap, SATURATED / queries))
    if whole.top < cap < math.inf and float(whole.information(np.array(whole.top))) <= budget:
        return Curve(model, i, queries, weight, cap)
    return Curve(model, i, queries, weight, float(whole.inverse(np.array(budget))[1]))


def _divide(curves: list[Curve], budget: float) -> tuple[Floats, float]:
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
    """Return the best division of ``cells`` cells, at most CELLS to one, and its value."""
    value, choices = np.zeros(cells + 1), []
    for gain in gains:
        reach = len(gain) - 1
        padded = np.concatenate([np.full(reach, -math.inf), value])
        trial = np.lib.stride_tricks.sliding_window_view(padded, reach + 1) + gain[::-1]
        position = trial.argmax(axis=1)
        value = np.take_along_axis(trial, position[:, None], axis=1)[:, 0]
        choices.append(reach - position)
    left, shares = cells, []
    for taken in reversed(choices):
        shares.append(int(taken[left]))
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
    """Return the best of ``points`` once what is ``left`` at each is given to attribute j."""
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
    """Return a point that is no worse: slack handed out, interior pairs divided as well as they can be."""
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


def _share(curves: list[Curve], point: Floats, spent: Floats, budget: float, who: list[int]) -> None:
    """Divide what the others leave among one or two attributes, in place, if that is worth more."""
    left = max(0.0, budget - math.fsum(np.delete(spent, who)))
    first, last = curves[who[0]], curves[who[-1]]
    low, high = (left, left) if len(who) == 1 else (0.0, left)
    for _ in range(4):
        parts = np.linspace(low, high, 1 if len(who) == 1 else 65)
        gives = [first.inverse(parts)[0]] + [last.inverse(left - parts)[0]] * (len(who) - 1)
        sums = np.sum([curves[i].weight * e for i, e in zip(who, gives, strict=True)], axis=0)
        at = int(np.argmax(sums))
        if sums[at] > sum(curves[i].weight * point[i] for i in who):
            point[who] = [e[at] for e in gives]
            spent[who] = [float(curves[i].information(point[i])) for i in who]
        step = (high - low) / 64
        low, high = max(0.0, parts[at] - 2 * step), min(left, parts[at] + 2 * step)
