"""Prior differential privacy: what knowing some tuples reveals about another.

Li, Ren, Yang, Yang, "Impact of Prior Knowledge and Data Correlation on Privacy Leakage: A Unified Analysis"
(arXiv 1906.02606). A linear query f(x) = sum_i a_i x_i is released as r = f(x) + Laplace noise of scale
lambda. The adversary A(i, K) attacks x_i, knows x_K and the joint distribution, and not x_U. Definition 2:

    l_A(i,K) = sup over x_i, x_i', x_K, r of ln Pr(r given x_i, x_K) / Pr(r given x_i', x_K)

where only values of positive probability count; it is the gain in posterior over prior odds. Between
neighbouring attainable sums the ratio is a Moebius function of e^(2r/lambda), hence monotone, and outside
them it is constant: the supremum over all real r is reached at an attainable sum, so a search over these is
exact. The same values hold for discrete Laplace noise on integer tuples. Adding a constant to a tuple adds it
to r and changes nothing, so values are stored as differences from the smallest.

The paper's chain rule over single tuples is a heuristic (``full_search``, ``fast_search``). Its
Theorem 6 for Gaussian tuples is the closed form here: given x_i and x_K the unknown sum is normal with a mean
linear in x_i and a variance free of it, so the densities of r for two values of x_i are shifts of one.

| symbol       | here          | meaning                                                               |
|--------------|---------------|-----------------------------------------------------------------------|
| n            |               | number of tuples                                                      |
| x_i, a_i     | ``values[i]`` | a_i x_i less the smallest, for every value of tuple i, shape (d_i,)   |
| theta        | ``joint``     | joint distribution, axis i over the values of tuple i                 |
| lambda       | ``scale``     | scale of the noise, > 0                                               |
| i, K         | ``target``, ``knows`` | attacked tuple, known tuples                                  |
| U            |               | neither attacked nor known                                            |
| l_A(i,K)     | ``leakage``   | nats; 0 where x_K already determines x_i                              |
| Delta f_i    |               | max - min of ``values[i]``                                            |
| M            | ``range``     | largest difference of two values of a continuous tuple (19)           |
| Sigma        | ``covariance``| of Gaussian tuples, shape (n, n)                                      |

**The chain rule** of prior differential privacy is a fast heuristic that works layer by layer (the paper's
Theorems 2, 4, 5, Algorithms 1 and 2). Nodes are adversaries A(i, K). The first layer knows all but x_i and
learns Delta f_i / lambda. If the adversary no longer knows x_j, a value l becomes |l + d|, with edge value d.

The rule is exact if one tuple is unknown and all are binary. Otherwise it is *not a bound*: it falls below the
exact leakage for about one in eight random distributions of three binary tuples, and where known tuples
determine the target, an edge has no possible pair and changes nothing. Promises use ``exact_leakages``.

There is an edge value for each pair x_i > x_i', since the impact (9) is defined for a pair. Both tails of the
noise count (r to plus and to minus infinity), since either can reveal more.

| symbol       | here             | meaning                                                              |
|--------------|------------------|----------------------------------------------------------------------|
| d_ij|K       | ``edge_values``  | ln E[e^(x_j/lambda) given x_i, x_K] / E[... given x_i', x_K], (9), (10)|
| m            | ``keep``         | number of nodes per layer in Algorithm 2                             |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stream.accounting.leakage.dependence import log
from stream.accounting.leakage.entries import (
    Floats,
    distribution,
    integer,
    items,
    number,
    positive,
    square,
    tensor,
    vector,
)
from stream.errors import UsageError

MAX_TUPLES = 12
"""All n 2^(n-1) adversaries are computed: more tuples than this are rejected, since they would take days."""
MAX_GAUSSIAN_TUPLES = 16

MAX_CELLS = 2**16
"""Largest number of entries of a joint distribution of tuples."""

RESOLUTION = 1e-9
"""Values that differ by less than this share of the whole range of the query are lost in sums of doubles."""

_BLOCK = 2**21
"""Largest number of values processed at once."""


@dataclass(frozen=True, slots=True)
class Adversary:
    """A(i, K) and what it can learn: ``target`` i, ``knows`` K in ascending order, ``leakage`` in nats."""

    target: int
    knows: tuple[int, ...]
    leakage: float


@dataclass(frozen=True)
class Tuples:
    """Correlated tuples under a noisy linear query (symbols as in the module's table)."""

    values: tuple[Floats, ...]
    joint: Floats
    scale: float


def tuples(domains: object, joint: object, scale: object, weights: object = None) -> Tuples:
    """Return the model of tuples with these domains, joint distribution, noise scale and query weights.

    Args:
        domains: per tuple the list of its values.
        joint: lists nested by tuple, in the order of the domains; sums to 1.
        scale: lambda, positive.
        weights: a_i of the linear query; by default all 1 (a sum).

    Raises:
        UsageError: naming the entry that is missing, malformed or out of range.
    """
    axes = _domains(domains)
    table = distribution(tensor(joint, "joint", [len(a) for a in axes], low=0.0), "joint")
    a = np.ones(len(axes)) if weights is None else vector(weights, "weights", len(axes))
    values = tuple(w * x - (w * x).min() for w, x in zip(a, axes, strict=True))
    _resolved(values)
    return Tuples(values, table, positive(scale, "scale"))


def _domains(domains: object) -> list[Floats]:
    axes = [vector(d, f"domains[{i}]") for i, d in enumerate(items(domains, "domains"))]
    for i, axis in enumerate(axes):
        if len(axis) == 0 or len(np.unique(axis)) < len(axis):
            raise UsageError(f"domains[{i}] must have at least one value, all different")
    if not 1 <= len(axes) <= MAX_TUPLES:
        raise UsageError(f"domains must be of 1 to {MAX_TUPLES} tuples, got {len(axes)}")
    if math.prod(len(a) for a in axes) > MAX_CELLS:
        raise UsageError(f"domains must have at most {MAX_CELLS} combinations of values")
    return axes


def _resolved(values: tuple[Floats, ...]) -> None:
    """Reject tuples whose values lie so close, relative to the others' range, that a sum cannot separate them."""
    whole = math.fsum(float(v.max()) for v in values)
    for i, axis in enumerate(values):
        ordered = np.unique(axis)
        if len(ordered) > 1 and float(np.diff(ordered).min()) < RESOLUTION * whole:
            least = f"at least {RESOLUTION:g} of the range of the whole query ({whole:g})"
            raise UsageError(f"domains[{i}] must have values whose differences, times their weight, are {least}")


def adversaries(tuples_: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Return all n 2^(n-1) pairs (i, K), by target, then by how much is known."""
    for target in range(tuples_):
        others = [a for a in range(tuples_) if a != target]
        for size in range(tuples_):
            for knows in combinations(others, size):
                yield target, knows


def exact_leakages(model: Tuples) -> list[Adversary]:
    """Return every adversary with its exact leakage; the largest is the privacy of the release (PDP)."""
    return [Adversary(i, known, exact_leakage(model, i, known)) for i, known in adversaries(model.joint.ndim)]


def exact_leakage(model: Tuples, target: int, knows: tuple[int, ...] = ()) -> float:
    """Return l_A(target, knows) of Definition 2 in nats, in [0, (sum of all Delta f) / lambda].

    0 when no known values leave two values of the target possible.
    """
    values = model.values[target]
    mass, sums = unknown_sums(model, target, knows)
    row = mass.sum(axis=2)
    possible = (row > 0)[:, :, None]
    known = (row > 0).any(axis=1)
    conditional = log(mass) - np.where(possible, log(row)[:, :, None], 0.0)
    points = np.unique(np.add.outer(values, sums))
    step = max(1, _BLOCK // conditional[:, 0].size)
    worst = 0.0
    for start in range(0, len(points), step):
        density = _log_densities(model, values, conditional, sums, points[start : start + step])
        highest = np.where(possible, density, -math.inf).max(axis=1)
        lowest = np.where(possible, density, math.inf).min(axis=1)
        worst = max(worst, float((highest - lowest)[known].max()))
    return worst


def _log_densities(model: Tuples, values: Floats, conditional: Floats, sums: Floats, points: Floats) -> Floats:
    """Return ln Pr(r given x_K, x_i) up to a constant, shape (values of K, values of i, points)."""
    density = np.empty((len(conditional), len(values), len(points)))
    for v, value in enumerate(values):
        kernel = -np.abs(points[:, None] - (value + sums)) / model.scale
        density[:, v] = np.logaddexp.reduce(conditional[:, v, None, :] + kernel, axis=2)
    return density


def unknown_sums(model: Tuples, target: int, knows: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return Pr(x_K, x_i, sum of the unknown) as (values of K, values of i, sums) and the sums."""
    n = model.joint.ndim
    unknown = [a for a in range(n) if a != target and a not in knows]
    table = np.transpose(model.joint, [*knows, target, *unknown])
    totals = np.zeros(1)
    for a in unknown:
        totals = np.add.outer(totals, model.values[a]).ravel()
    sums, where = np.unique(totals, return_inverse=True)
    flat = table.reshape(-1, len(model.values[target]), len(totals))
    mass = np.zeros((*flat.shape[:2], len(sums)))
    for u, column in enumerate(where):
        mass[:, :, column] += flat[:, :, u]
    return mass, sums


def gaussian_leakages(covariance: object, range_: object, scale: object, weights: object = None) -> list[Adversary]:
    """Return every adversary's leakage about Gaussian tuples in closed form (Theorem 6).

    l_A(i,K) = (M_i / lambda) | a_i + sum_{j in U} a_j sigma_ij|K / sigma_ii|K |, Sigma_.|K the covariance
    given x_K (Schur complement); 0 where x_K settles x_i.

    Args:
        covariance: n lists of n numbers, symmetric, positive semidefinite.
        range_: M, one positive number, or one per tuple, each at least 0.
        scale: lambda, positive.
        weights: a_i of the linear query; by default all 1 (a sum).

    Raises:
        UsageError: naming the entry that is malformed or out of range.
    """
    sigma = _covariance(covariance)
    n, noise = len(sigma), positive(scale, "scale")
    single = isinstance(range_, int | float | str)
    widths = [positive(range_, "range")] * n if single else vector(range_, "range", n, low=0.0)
    a = np.ones(n) if weights is None else vector(weights, "weights", n)
    deviation = np.sqrt(np.diag(sigma))
    correlation = _correlation(sigma, deviation)
    found = []
    for target, knows in adversaries(n):
        pull = _pull(correlation, a * deviation, target, knows)
        per_unit = pull / deviation[target] if deviation[target] > 0 else 0.0
        found.append(Adversary(target, knows, float(widths[target] / noise * abs(per_unit))))
    return found


def _covariance(covariance: object) -> Floats:
    size = len(items(covariance, "covariance"))
    if size > MAX_GAUSSIAN_TUPLES:
        raise UsageError(f"covariance must be of 1 to {MAX_GAUSSIAN_TUPLES} tuples, got {size}")
    sigma = square(covariance, "covariance")
    for i, j in np.argwhere(~np.isclose(sigma, sigma.T, rtol=1e-9, atol=0.0)):
        raise UsageError(f"covariance[{i}][{j}] must equal covariance[{j}][{i}]")
    for i, variance in enumerate(np.diag(sigma)):
        if variance < 0:
            raise UsageError(f"covariance[{i}][{i}] must be at least 0, so that covariance is positive semidefinite")
    return sigma


def _correlation(sigma: Floats, deviation: Floats) -> Floats:
    """Return the correlations, 0 for a tuple that is certain.

    Raises:
        UsageError: the covariance is not positive semidefinite.
    """
    divisor = np.where(deviation > 0, deviation, 1.0)
    correlation = sigma / divisor[:, None] / divisor[None, :]
    certain = (deviation == 0)[:, None] | (deviation == 0)[None, :]
    for i, j in np.argwhere((np.abs(correlation) > 1.0 + 1e-9) | (certain & (sigma != 0))):
        limit = f"at most {deviation[i] * deviation[j]:g} in magnitude, so that covariance is positive semidefinite"
        raise UsageError(f"covariance[{i}][{j}] must be {limit}")
    eigenvalue = float(np.linalg.eigvalsh(correlation)[0])
    if eigenvalue < -1e-9:
        raise UsageError(f"covariance must be positive semidefinite, its correlations have eigenvalue {eigenvalue:g}")
    return np.asarray(correlation, dtype=np.float64)


def _pull(correlation: Floats, weights: Floats, target: int, knows: tuple[int, ...]) -> float:
    """Return how far the mean of the query moves per deviation of x_target, given x_K.

    ``weights`` are those of the tuples in units of their deviations; 0 where x_K determines x_target.
    """
    known = list(knows)
    gain = np.linalg.pinv(correlation[np.ix_(known, known)], hermitian=True, rcond=1e-12) if known else np.zeros((0, 0))
    column = correlation[:, target] - correlation[:, known] @ gain @ correlation[known, target]
    if column[target] <= 1e-12:
        return 0.0
    unknown = [j for j in range(len(correlation)) if j != target and j not in knows]
    return float(weights[target] + (weights[unknown] @ column[unknown]) / column[target])


def group_leakage(size: int, rho: float, p: float, epsilon: float) -> float:
    """Return what a count at ``epsilon`` reveals about one of ``size`` persons who move together, in nats.

    Each of the others is in the room with probability q1 = p + rho (1 - p) if the first is, q0 = p (1 - rho)
    if not, independently given the first. The counts for the two cases are ordered by likelihood ratio and
    the noise preserves that order, so the log ratio is monotone and its supremum lies in a tail:

        epsilon + (g - 1) max{ ln (1 - q1 + q1 e^eps) / (1 - q0 + q0 e^eps),
                               ln (1 - q0 + q0 e^-eps) / (1 - q1 + q1 e^-eps) }

    Args:
        size: g >= 1, the attacked person included.
        rho: correlation of two persons' presence, in [0, 1]; 1 gives group privacy, g epsilon.
        p: probability that a person is present, in [0, 1].
        epsilon: of the count, >= 0.

    Raises:
        UsageError: an argument is out of range.
    """
    others = integer(size, "size", low=1) - 1
    rho, p = number(rho, "rho", low=0.0, high=1.0), number(p, "p", low=0.0, high=1.0)
    epsilon = number(epsilon, "epsilon", low=0.0)
    q1, q0 = p + rho * (1.0 - p), p * (1.0 - rho)
    up = _log_moment(q1, epsilon) - _log_moment(q0, epsilon)
    down = _log_moment(q0, -epsilon) - _log_moment(q1, -epsilon)
    return epsilon + others * max(up, down)


def _log_moment(q: float, step: float) -> float:
    """Return ln(1 - q + q e^step) without leaving the range of a double."""
    return float(np.logaddexp(log(np.array(1.0 - q)), log(np.array(q)) + step))


# The paper's chain rule (heuristic).

Node = tuple[int, tuple[int, ...]]


def full_search(model: Tuples) -> list[Adversary]:
    """Return all adversaries with their chain-rule values (Algorithm 1): heuristic, exponential in n."""
    return _search(model, None)


def fast_search(model: Tuples, keep: int) -> list[Adversary]:
    """Return the adversaries that Algorithm 2 visits and keeps, ``keep`` >= 1 per layer: heuristic.

    Raises:
        UsageError: keep is not a whole number >= 1.
    """
    return _search(model, integer(keep, "keep", low=1))


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
