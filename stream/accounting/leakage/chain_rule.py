"""The paper's chain rule for prior differential privacy: fast, layer by layer, and a heuristic.

Li, Ren, Yang, Yang, "Impact of Prior Knowledge and Data Correlation on Privacy Leakage: A Unified Analysis"
(arXiv 1906.02606), Theorems 2, 4, 5, Algorithms 1 and 2. Nodes are adversaries A(i, K); the first layer
knows all but x_i and learns Delta f_i / lambda; forgetting x_j moves a value l to |l + d|, d the edge value.

The rule is exact when one tuple is forgotten and all are binary. Beyond that it is *not a bound*: it was
seen to fall below the exact leakage for about one in eight random distributions of three binary tuples, and
where known tuples settle the target an edge has no possible pair and moves nothing.
Use ``stream.accounting.leakage.prior.exact_leakages`` for any promise.

An edge value is kept for each pair x_i > x_i', as the impact (9) is defined for one; both tails of the noise
are looked at (r to plus and to minus infinity), since either can show more.

| symbol       | here             | meaning                                                              |
|--------------|------------------|----------------------------------------------------------------------|
| d_ij|K       | ``edge_values``  | ln E[e^(x_j/lambda) given x_i, x_K] / E[... given x_i', x_K], (9), (10)|
| m            | ``keep``         | nodes kept per layer in Algorithm 2                                  |
"""

from __future__ import annotations

import numpy as np

from stream.accounting.leakage.dependence import log
from stream.accounting.leakage.entries import Floats, whole
from stream.accounting.leakage.prior import Adversary, Tuples

Node = tuple[int, tuple[int, ...]]


def full_search(model: Tuples) -> list[Adversary]:
    """Return all adversaries with their chain-rule values (Algorithm 1): heuristic, exponential in n."""
    return _search(model, None)


def fast_search(model: Tuples, keep: int) -> list[Adversary]:
    """Return the adversaries that Algorithm 2 visits and keeps, ``keep`` >= 1 per layer: heuristic.

    Raises:
        UsageError: keep is not a whole number >= 1.
    """
    return _search(model, whole(keep, "keep", low=1))


def _search(model: Tuples, keep: int | None) -> list[Adversary]:
    n = model.joint.ndim
    layer = _largest({_strongest(i, n): _first_layer(model, i) for i in range(n)}, keep)
    found = dict(layer)
    for _ in range(n - 1):
        layer = _largest(_next_layer(model, layer), keep)
        found.update(layer)
    order = sorted(found, key=lambda node: (node[0], len(node[1]), node[1]))
    return [Adversary(i, knows, _value(found[i, knows])) for i, knows in order]


def _strongest(target: int, n: int) -> Node:
    return target, tuple(a for a in range(n) if a != target)


def _first_layer(model: Tuples, target: int) -> Floats:
    """Return (x_i - x_i') / lambda for every pair x_i > x_i' (Theorem 4), shape (pairs,)."""
    high, low = _pairs(model, target)
    return np.asarray((model.values[target][high] - model.values[target][low]) / model.scale, dtype=np.float64)


def _pairs(model: Tuples, target: int) -> tuple[np.ndarray, np.ndarray]:
    values = model.values[target]
    high, low = np.nonzero(values[:, None] > values[None, :])
    return high, low


def _value(pairs: Floats) -> float:
    return float(pairs.max(initial=0.0))


def _largest(layer: dict[Node, Floats], keep: int | None) -> dict[Node, Floats]:
    ranked = sorted(layer, key=lambda node: (-_value(layer[node]), node))
    return {node: layer[node] for node in ranked[:keep]}


def _next_layer(model: Tuples, layer: dict[Node, Floats]) -> dict[Node, Floats]:
    """Forget one tuple in every way; of several paths to a node keep the smallest (Algorithm 1, line 10)."""
    found: dict[Node, Floats] = {}
    for (target, knows), pairs in layer.items():
        for removed in knows:
            node = target, tuple(a for a in knows if a != removed)
            value = _forget(model, target, removed, node[1], pairs)
            if node not in found or _value(value) < _value(found[node]):
                found[node] = value
    return found


def _forget(model: Tuples, target: int, removed: int, knows: tuple[int, ...], pairs: Floats) -> Floats:
    """Return max |l + d| over (10) for every pair (Theorem 2); l where the pair is impossible."""
    moved = np.abs(pairs + edge_values(model, target, removed, knows))
    best = np.max(np.where(np.isnan(moved), -np.inf, moved), axis=(0, 1))
    return np.where(np.isneginf(best), pairs, best)


def edge_values(model: Tuples, target: int, removed: int, knows: tuple[int, ...] = ()) -> Floats:
    """Return the impacts of x_removed on x_target, (10): shape (2 tails, values of K, pairs x_i > x_i').

    The first tail is (9), the second its mirror image for r to minus infinity with the sign that makes
    both add to (x_i - x_i') / lambda. NaN where a value has probability 0. ``knows`` leaves out ``removed``.
    """
    rest = tuple(a for a in range(model.joint.ndim) if a not in (target, removed, *knows))
    table = model.joint.sum(axis=rest, keepdims=True)
    table = np.transpose(table, [*knows, target, removed, *rest])
    table = table.reshape(-1, len(model.values[target]), len(model.values[removed]))
    high, low = _pairs(model, target)
    tails = []
    for sign in (1.0, -1.0):
        moment = _log_moments(table, sign * model.values[removed] / model.scale)
        tails.append(sign * (moment[:, high] - moment[:, low]))
    return np.array(tails)


def _log_moments(table: Floats, exponent: Floats) -> Floats:
    """Return ln E[e^exponent given the first two axes]; NaN where they have probability 0."""
    mass = table.sum(axis=2)
    moments = np.logaddexp.reduce(log(table) + exponent, axis=2)
    return np.where(mass > 0, moments - log(np.where(mass > 0, mass, 1.0)), np.nan)
