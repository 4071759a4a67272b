"""Mutual information between outcomes and attributes, and what a choice of epsilons gives away on average.

Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", section V.C,
(21): I_i = I(X_i; M_i) + sum over j != i of I(X_j; M_i). With p = 1 - e^(-n_i epsilon_i) the outcome M_i
(was r_i released at all) is a coin with Pr(M_i = 1 given X_j = x) = p pi_x, so each term is

    I(X_j; M_i) = sum_x Pr(X_j = x) KL( p pi_x || p pi ),     KL of two coins,

with pi_0 = 0, pi_1 = 1 for j = i. Nothing else depends on epsilon_i: the total is a sum of functions of one
variable each, increasing, and convex in p (mutual information is convex in the channel, which is linear
in p). I(X_j; all M) <= sum_i I_i for every j, even under collusion. This is an average; the worst case is
``patterns.worst_factors``.

| symbol         | here               | meaning                                                      |
|----------------|--------------------|--------------------------------------------------------------|
| pi             | ``release[i]``     | Pr(X_i = 1), shape (k,)                                      |
| pi_x           | ``given[i, j, x]`` | Pr(X_i = 1 given X_j = x), shape (k, k, 2)                   |
| Pr(X_j = x)    | ``weight[j, x]``   | shape (k, 2)                                                 |
| p              | ``p``              | 1 - e^(-n epsilon): released at least once when not sensitive|
| I_i            | ``attribute_information`` | nats                                                  |
| T              | ``budget``         | bound on the sum of I_i, nats                                |
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from stream.accounting.dependence import deltas
from stream.accounting.entries import Floats
from stream.accounting.exclusion import spent

#: One nat in bits.
BITS_PER_NAT = 1.0 / math.log(2.0)


def bits(nats: float) -> float:
    """Return an information given in nats in bits."""
    return nats * BITS_PER_NAT


@dataclass(frozen=True)
class Channel:
    """What the information functions need of a joint distribution (the table of the module's symbols)."""

    release: Floats
    given: Floats
    weight: Floats

    @property
    def attributes(self) -> int:
        """Return k."""
        return len(self.release)


def channel(joint: Floats) -> Channel:
    """Return the marginals and pairwise conditionals of a joint distribution of shape (2,)*k."""
    k = joint.ndim
    sums = [joint.sum(axis=tuple(a for a in range(k) if a != j)) for j in range(k)]
    given = np.empty((k, k, 2))
    for i, j in np.ndindex(k, k):
        given[i, j] = (0.0, 1.0) if i == j else 1.0 - np.array(deltas(joint, i, j))
    return Channel(release=np.array([s[1] for s in sums]), given=given, weight=np.array(sums))


def probability(epsilon: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return p = 1 - e^(-n epsilon) of each attribute, shape (k,), in [0, 1]."""
    pairs = zip(epsilon, queries, strict=True)
    return np.array([-math.expm1(-spent(float(e), int(n))) for e, n in pairs])


def information_of(model: Channel, i: int, p: Floats) -> Floats:
    """Return I(X_j; M_i) in nats for every j and every p: shape (k,) + p.shape, j = i among them."""
    p = np.asarray(p, dtype=np.float64)
    hit = np.multiply.outer(model.given[i], p)
    mean = np.broadcast_to(p * model.release[i], hit.shape)
    divergence = rel_entr(hit, mean) + rel_entr(1.0 - hit, 1.0 - mean)
    share = model.weight.reshape(model.weight.shape + (1,) * p.ndim)
    terms = np.where(share > 0, share * np.where(share > 0, divergence, 0.0), 0.0)
    return np.asarray(np.maximum(0.0, terms.sum(axis=1)), dtype=np.float64)


def attribute_curve(model: Channel, i: int, p: Floats) -> Floats:
    """Return I_i in nats at every p in [0, 1], same shape as ``p``."""
    return np.asarray(information_of(model, i, p).sum(axis=0), dtype=np.float64)


def mutual_information(joint: Floats, epsilon: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return the table I(X_j; M_i) in nats at [i, j], shape (k, k); the diagonal is I(X_i; M_i)."""
    model, p = channel(joint), probability(epsilon, queries)
    return np.array([information_of(model, i, p[i]) for i in range(model.attributes)])


def attribute_information(joint: Floats, epsilon: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return I_i of (21) in nats, shape (k,); their sum bounds I(X_j; all M) for every j."""
    return np.asarray(mutual_information(joint, epsilon, queries).sum(axis=1), dtype=np.float64)


def information_slopes(model: Channel, p: Floats) -> Floats:
    """Return dI_i/dp of every attribute at its own p in [0, 1], shape (k,); infinite at p = 1.

    dI_i/dp = sum_j sum_x Pr(X_j = x) pi_x ln( pi_x (1 - p pi) / (pi (1 - p pi_x)) ); 0 everywhere for an
    attribute that is certain.
    """
    pi = model.release[:, None, None]
    weight = model.weight[None] * model.given
    moving = (weight > 0) & (pi < 1.0)
    at = np.asarray(p, dtype=np.float64)[:, None, None]
    ratio = np.divide(model.given, pi, out=np.ones_like(model.given), where=moving)
    missed = np.where(moving, 1.0 - at * pi, 1.0)
    kept = np.where(moving, 1.0 - at * model.given, 1.0)
    with np.errstate(divide="ignore"):
        terms = np.where(moving, weight * (np.log(ratio) + np.log(missed) - np.log(kept)), 0.0)
    return np.asarray(terms.sum(axis=(1, 2)), dtype=np.float64)


def limit_information(joint: Floats) -> Floats:
    """Return I_i at infinite epsilon, H(X_i) + sum_j I(X_i; X_j), in nats, shape (k,)."""
    ones = np.ones(joint.ndim, dtype=np.int64)
    return attribute_information(joint, np.full(joint.ndim, math.inf), ones)
