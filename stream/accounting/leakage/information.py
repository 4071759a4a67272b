"""Mutual information between outcomes and attributes, and the average leakage of a choice of epsilons.

Lee & Smith, "Privacy Leakage over Dependent Attributes in One-Sided Differential Privacy", section V.C,
(21): I_i = I(X_i; M_i) + sum over j != i of I(X_j; M_i). With p = 1 - e^(-n_i epsilon_i) the outcome M_i
(was r_i released at all) is a coin with Pr(M_i = 1 given X_j = x) = p pi_x, so each term is

    I(X_j; M_i) = sum_x Pr(X_j = x) KL( p pi_x || p pi ),     KL of two coins,
                = sum_x Pr(X_j = x) [ p D(pi_x, pi) + D(1 - p pi_x, 1 - p pi) ],   D(a, b) = a ln(a/b) - a + b >= 0,

with pi_0 = 0, pi_1 = 1 for j = i. The second form has no cancellation: it is accurate to the last few bits also for
the smallest p, where an information is a difference of nearly equal numbers. Nothing else depends on epsilon_i:
the total is a sum of functions of one variable each, increasing, and convex in p (mutual information is convex
in the channel, which is linear in p). I(X_j; all M) <= sum_i I_i for every j, even under collusion. This is an
average; for the worst case see ``guard.worst_factors``.

| symbol         | here               | meaning                                                      |
|----------------|--------------------|--------------------------------------------------------------|
| pi             | ``release[i]``     | Pr(X_i = 1), shape (k,)                                      |
| pi_x - pi      | ``shift[i, j, x]`` | Pr(X_i = 1 given X_j = x) - Pr(X_i = 1), shape (k, k, 2)     |
| Pr(X_j = x)    | ``weight[j, x]``   | shape (k, 2)                                                 |
| p              | ``p``              | 1 - e^(-n epsilon): released at least once when not sensitive|
| I_i            | ``attribute_information`` | nats                                                  |
| T              | ``budget``         | bound on the sum of I_i, nats                                |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats, spent

BITS_PER_NAT = 1.0 / math.log(2.0)
"""One nat in bits."""


def bits(nats: float) -> float:
    """Return an information given in nats in bits."""
    return nats * BITS_PER_NAT


@dataclass(frozen=True)
class Channel:
    """The properties of a joint distribution that the information functions need (symbols: module docstring)."""

    release: Floats
    shift: Floats
    weight: Floats

    @property
    def attributes(self) -> int:
        """Return k."""
        return len(self.release)

    @cached_property
    def divergence(self) -> Floats:
        """D(pi_x, pi), shape (k, k, 2): what p multiplies."""
        return _divergence(self.shift, self.release[:, None, None])


def channel(joint: Floats) -> Channel:
    """Return the marginals and pairwise conditionals of a joint distribution of shape (2,)*k."""
    k = joint.ndim
    sums = [joint.sum(axis=tuple(a for a in range(k) if a != j)) for j in range(k)]
    shift = np.empty((k, k, 2))
    for i, j in np.ndindex(k, k):
        shift[i, j] = (-sums[i][1], sums[i][0]) if i == j else _shift(joint, i, j)
    return Channel(release=np.array([s[1] for s in sums]), shift=shift, weight=np.array(sums))


def _shift(joint: Floats, i: int, j: int) -> tuple[float, float]:
    """Return Pr(X_i = 1 given X_j = x) - Pr(X_i = 1) for x = 0, 1; 0 where X_j = x never happens.

    With the pair's table P it is (P_11 P_00 - P_10 P_01) / Pr(X_j = x), negative for x = 0.
    """
    others = tuple(a for a in range(joint.ndim) if a not in (i, j))
    pair = joint.sum(axis=others) if others else joint
    table = pair if i < j else pair.T
    together = float(table[1, 1] * table[0, 0] - table[1, 0] * table[0, 1])
    never, always = (float(share) for share in table.sum(axis=0))
    return (-together / never, together / always) if never > 0 and always > 0 else (0.0, 0.0)


def probability(epsilon: Floats, queries: NDArray[np.int64]) -> Floats:
    """Return p = 1 - e^(-n epsilon) of each attribute, shape (k,), in [0, 1]."""
    pairs = zip(epsilon, queries, strict=True)
    return np.array([-math.expm1(-spent(float(e), int(n))) for e, n in pairs])


def information_of(model: Channel, i: int, p: Floats) -> Floats:
    """Return I(X_j; M_i) in nats for every j and every p: shape (k,) + p.shape, j = i among them."""
    p = np.asarray(p, dtype=np.float64)
    shift = model.shift[i].reshape(model.weight.shape + (1,) * p.ndim)
    kept = (1.0 - p) + p * model.weight[i, 0]
    hits, misses = model.divergence[i].reshape(shift.shape), _divergence(-p * shift, kept)
    share = model.weight.reshape(shift.shape)
    return np.asarray((share * (p * hits + misses)).sum(axis=1), dtype=np.float64)


def _divergence(excess: Floats, base: Floats) -> Floats:
    """Return D(base + excess, base) = (base + excess) ln(1 + excess / base) - excess, at least 0.

    ``base`` >= 0, and 0 only where ``excess`` is; for a small excess / base = u the series
    base u^2 (1/2 - u/6 + u^2/12 - u^3/20 + u^4/30 - u^5/42), since the two terms are then nearly equal.
    """
    from scipy.special import rel_entr  # noqa: PLC0415  (every command would wait for what few of them use)

    empty = base <= 0.0
    u = np.minimum(np.maximum(excess / np.where(empty, 1.0, base), -1.0), 1.0)
    square = u * u
    series = base * square * (0.5 + square * (1 / 12 + square / 30) - u * (1 / 6 + square * (1 / 20 + square / 42)))
    whole = np.maximum(rel_entr(np.maximum(base + excess, 0.0), base) - excess, 0.0)
    return np.asarray(np.where(square <= _SERIES_BELOW**2, series, np.where(empty, 0.0, whole)), dtype=np.float64)


_SERIES_BELOW = 0.002


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
    """Return dI_i/dp of every attribute at its own p in [0, 1], shape (..., k) like ``p``; infinite at p = 1.

    dI_i/dp = sum_j sum_x Pr(X_j = x) pi_x ln( pi_x (1 - p pi) / (pi (1 - p pi_x)) ), in terms that do not
    cancel: D(pi_x, pi) - pi D(b_x, b) / b + ln(b_x / b) (pi - pi_x) / b, b = 1 - p pi, b_x = 1 - p pi_x; 0
    everywhere for an attribute that is certain.
    """
    at, pi = np.asarray(p, dtype=np.float64)[..., None, None], model.release[:, None, None]
    kept = (1.0 - at) + at * model.weight[:, 0, None, None]
    moving = (model.shift != 0) & (kept > 0)
    pull = np.divide(-model.shift, kept, out=np.zeros(moving.shape), where=moving)
    misses = np.divide(_divergence(-at * model.shift, kept), kept, out=np.zeros(moving.shape), where=moving)
    with np.errstate(divide="ignore"):
        odds = np.where(moving, np.log1p(np.maximum(at * pull, -1.0)) * pull, 0.0)
    terms = model.weight * (model.divergence - pi * misses + odds)
    return np.asarray(np.maximum(terms.sum(axis=(-2, -1)), 0.0), dtype=np.float64)
