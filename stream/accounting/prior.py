"""Prior differential privacy: what an adversary who knows some tuples learns about another from a sum.

Li, Ren, Yang, Yang, "Impact of Prior Knowledge and Data Correlation on Privacy Leakage: A Unified Analysis"
(arXiv 1906.02606). A linear query f(x) = sum_i a_i x_i is released as r = f(x) + Laplace noise of scale
lambda. The adversary A(i, K) attacks x_i, knows x_K and the joint distribution, and not x_U. Definition 2:

    l_A(i,K) = sup over x_i, x_i', x_K, r of ln Pr(r given x_i, x_K) / Pr(r given x_i', x_K)

where only values of positive probability count; it is the gain in posterior over prior odds. Between
neighbouring attainable sums the ratio is a Moebius function of e^(2r/lambda), hence monotone, and outside
them it is constant: the supremum over all real r is reached at an attainable sum, so looking there is
exact. The same values hold for discrete Laplace noise on integer tuples.

The paper's chain rule over single tuples is a heuristic and lives in ``stream.accounting.chain``. Its
Theorem 6 for Gaussian tuples is the closed form here: given x_i and x_K the unknown sum is normal with a mean
linear in x_i and a variance free of it, so the densities of r for two values of x_i are shifts of one.

| symbol       | here          | meaning                                                               |
|--------------|---------------|-----------------------------------------------------------------------|
| n            |               | number of tuples                                                      |
| x_i, a_i     | ``values[i]`` | a_i x_i for every value of tuple i, shape (d_i,)                      |
| theta        | ``joint``     | joint distribution, axis i over the values of tuple i                 |
| lambda       | ``scale``     | scale of the noise, > 0                                               |
| i, K         | ``target``, ``knows`` | attacked tuple, known tuples                                  |
| U            |               | neither attacked nor known                                            |
| l_A(i,K)     | ``leakage``   | nats; 0 where x_K already settles x_i                                 |
| Delta f_i    |               | max - min of ``values[i]``                                            |
| M            | ``range``     | largest difference of two values of a continuous tuple (19)           |
| Sigma        | ``covariance``| of Gaussian tuples, shape (n, n)                                      |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from stream.accounting.dependence import log
from stream.accounting.entries import (
    Floats,
    distribution,
    items,
    number,
    positive,
    square,
    tensor,
    vector,
    whole,
)
from stream.errors import UsageError


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
    axes = [vector(d, f"domains[{i}]") for i, d in enumerate(items(domains, "domains"))]
    for i, axis in enumerate(axes):
        if len(axis) == 0 or len(np.unique(axis)) < len(axis):
            raise UsageError(f"domains[{i}] must be values that differ, at least one")
    if not axes:
        raise UsageError("domains must not be empty")
    table = distribution(tensor(joint, "joint", [len(a) for a in axes], low=0.0), "joint")
    a = np.ones(len(axes)) if weights is None else vector(weights, "weights", len(axes))
    return Tuples(tuple(w * x for w, x in zip(a, axes, strict=True)), table, positive(scale, "scale"))


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
    points = np.unique(np.add.outer(values, sums))
    density = np.empty((len(mass), len(values), len(points)))
    for v, value in enumerate(values):
        kernel = -np.abs(points[:, None] - (value + sums)) / model.scale
        density[:, v] = np.logaddexp.reduce(log(mass[:, v])[:, None, :] + kernel, axis=2)
    possible = (row > 0)[:, :, None]
    conditional = density - np.where(possible, log(row)[:, :, None], 0.0)
    highest = np.where(possible, conditional, -math.inf).max(axis=1)
    lowest = np.where(possible, conditional, math.inf).min(axis=1)
    return max(0.0, float((highest - lowest).max()))


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
        range_: M, one number or one per tuple, positive.
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
    found = []
    for target, knows in adversaries(n):
        pull = _pull(sigma, a, target, knows)
        found.append(Adversary(target, knows, float(widths[target] / noise * abs(pull))))
    return found


def _covariance(covariance: object) -> Floats:
    sigma = square(covariance, "covariance")
    for i, j in np.argwhere(~np.isclose(sigma, sigma.T, rtol=1e-9, atol=0.0)):
        raise UsageError(f"covariance[{i}][{j}] must equal covariance[{j}][{i}]")
    eigenvalues = np.linalg.eigvalsh(sigma)
    if eigenvalues[0] < -1e-9 * max(1.0, eigenvalues[-1]):
        raise UsageError(f"covariance must be positive semidefinite, has eigenvalue {eigenvalues[0]:g}")
    return sigma


def _pull(sigma: Floats, weights: Floats, target: int, knows: tuple[int, ...]) -> float:
    """Return how far the mean of the query moves per unit of x_target, given x_K."""
    known = list(knows)
    gain = np.linalg.pinv(sigma[np.ix_(known, known)], hermitian=True) if known else np.zeros((0, 0))
    column = sigma[:, target] - sigma[:, known] @ gain @ sigma[known, target]
    if column[target] <= 1e-12 * max(sigma[target, target], 1e-300):
        return 0.0
    unknown = [j for j in range(len(sigma)) if j != target and j not in knows]
    return float(weights[target] + (weights[unknown] @ column[unknown]) / column[target])


def group_leakage(size: int, rho: float, p: float, epsilon: float) -> float:
    """Return what a count at ``epsilon`` tells about one of ``size`` persons who move together, in nats.

    Each of the others is in the room with probability q1 = p + rho (1 - p) if the first is, q0 = p (1 - rho)
    if not, independently given the first. The counts for the two cases are ordered by likelihood ratio and
    the noise keeps that order, so the log ratio is monotone and its supremum lies in a tail:

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
    others = whole(size, "size", low=1) - 1
    rho, p = number(rho, "rho", low=0.0, high=1.0), number(p, "p", low=0.0, high=1.0)
    epsilon = number(epsilon, "epsilon", low=0.0)
    q1, q0 = p + rho * (1.0 - p), p * (1.0 - rho)
    up = _log_moment(q1, epsilon) - _log_moment(q0, epsilon)
    down = _log_moment(q0, -epsilon) - _log_moment(q1, -epsilon)
    return epsilon + others * max(up, down)


def _log_moment(q: float, step: float) -> float:
    """Return ln(1 - q + q e^step) without leaving the range of a double."""
    return float(np.logaddexp(log(np.array(1.0 - q)), log(np.array(q)) + step))
