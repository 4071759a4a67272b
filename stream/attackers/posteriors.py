"""What counts let an attacker believe of where one person is: exact, by Bayes' rule.

    symbol   here               meaning
    m        len - 1            people looked for, known to the attacker; all alike, each in zone l with p_l
    p_l      probability        of the region that is observed
    c_l      counts             true count of a zone
    z        last axis          what the true count may be, 0 … m
    y                           the count with noise, as published
    f(y|z)   log_likelihood     ln of the law of the noise, up to a term that is the same for all z
    b(z)     log_binomial       Pr[z of m are there] = C(m, z) p^z (1-p)^(m-z)
    ε        epsilon            of the mechanism, for one person more or less in one count

Ghayyur (2022), chapter 4 and appendix B. Three things differ from the print, each because the print is not Bayes' rule:
the sums of (4.4) begin at z = 0; the worst case with all regions observed has 2ε, as who moves changes two counts (the
print's ε holds for one region); posteriors of single y need not lie between prior and c/m, only their limits do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from stream.attackers.priors import Flags, Floats, Ints
from stream.errors import UsageError

Observed = Literal["one", "all"]
"""Whether the attacker sees one region's count, or those of all regions."""
CHANGED: dict[Observed, int] = {"one": 1, "all": 2}
"""How many observed counts a person changes who is elsewhere."""

_CERTAIN = 1e308
"""A ratio from which on any belief may become certainty; infinity times 0 is no number."""


def from_true_counts(counts: Ints, is_open: Flags) -> Floats:
    """Return Pr[in zone l | true counts] (4.3): c_l / Σ_closed c, whatever the prior; 0 in open zones.

    Args:
        counts: true counts, shape [..., zones].
        is_open: zones into which the attacker sees, shape [zones].

    Returns:
        Rows that sum to 1; rows of zeros where nobody is in a closed zone, and so nobody is looked for.
    """
    closed = np.where(is_open, 0, counts).astype(np.float64)
    total = closed.sum(axis=-1, keepdims=True)
    return np.asarray(closed / np.where(total > 0, total, 1.0))


def worst_case(probability: Floats, epsilon: float, observed: Observed) -> Floats:
    """Return the most that anybody may believe who knows where all others are: 1 / (1 + e^(-kε) (1-p)/p).

    k = 1 where one region is observed (the thesis prints this form for all), k = 2 where all are.

    Args:
        probability: prior p in [0, 1], any shape.
        epsilon: at least 0.
        observed: ``one`` region's count, or ``all``.
    """
    odds_against = (1.0 - probability) * math.exp(-CHANGED[observed] * epsilon)
    return np.asarray(probability / np.where(probability > 0, probability + odds_against, 1.0))


def log_binomial(people: int, probability: Floats) -> Floats:
    """Return ln b(z) for z = 0 … people, a new last axis; -inf for what cannot be."""
    from scipy.special import gammaln, xlog1py, xlogy  # noqa: PLC0415  (no verb waits for it before it is asked)

    z = np.arange(people + 1)
    ways = gammaln(people + 1) - gammaln(z + 1) - gammaln(people - z + 1)
    p = probability[..., None]
    return np.asarray(ways + xlogy(z, p) + xlog1py(people - z, -p))


def noisy_posterior(log_likelihood: Floats, probability: Floats) -> Floats:
    """Return Pr[in the region | y] (4.4): Σ (z/m) f(y|z) b(z) / Σ f(y|z) b(z), z from 0 to m.

    Args:
        log_likelihood: ln f(y|z), shape [..., m + 1] with m >= 1; finite, up to a constant.
        probability: p of the region, in [0, 1], shape [...].

    Raises:
        UsageError: nobody is looked for (m = 0).
    """
    people = log_likelihood.shape[-1] - 1
    if people < 1:
        raise UsageError("people looked for must be at least one")
    weight = _weights(log_likelihood, probability)
    return np.asarray((weight * (np.arange(people + 1) / people)).sum(axis=-1))


def _weights(log_likelihood: Floats, probability: Floats) -> Floats:
    """Return Pr[z | y]: rows sum to 1."""
    joint = log_likelihood + log_binomial(log_likelihood.shape[-1] - 1, probability)
    joint = np.exp(joint - joint.max(axis=-1, keepdims=True))
    return np.asarray(joint / joint.sum(axis=-1, keepdims=True))


def expected_posterior(log_law: Floats, probability: float, count: int) -> float:
    """Return what noise lets one believe in the mean (4.5): Σ_y Pr[in the region | y] f(y|c).

    Args:
        log_law: ln f(y|z), shape [outcomes y, m + 1]; the outcomes hold all but a negligible part of f(y|c).
        probability: p of the region.
        count: c, in [0, m].
    """
    law = np.exp(log_law[:, count])
    believed = noisy_posterior(log_law, np.full(len(log_law), probability))
    return float((law * believed).sum() / law.sum())


def together(log_likelihoods: Sequence[Floats]) -> Floats:
    """Return ln f(y_a, y_b | z) of several outputs about one count, with noise of their own (Theorem B.3).

    By Theorem B.2 outputs about counts that say nothing of this one are left out: they change nothing.
    """
    return np.asarray(np.sum(log_likelihoods, axis=0))


def largest_ratio(log_likelihood: Floats) -> float:
    """Return R of Theorem B.4: max f(y_b|z) / f(y_b|z') over what the other count may be."""
    return math.exp(float(log_likelihood.max() - log_likelihood.min()))


def ratio_of_epsilons(epsilon: float, people: int, outputs: int) -> float:
    """Return R of Corollary 1: e^(ε m (n-1)), for n outputs of ε each; infinite beyond what a float holds."""
    exponent = epsilon * people * (outputs - 1)
    return math.exp(exponent) if exponent < 709 else math.inf


def with_others(believed: Floats, ratio: float) -> Floats:
    """Return a bound where a further output depends on the count in an unknown way: min(1, R · belief) (B.4)."""
    return np.minimum(1.0, np.where(believed > 0, believed, 0.0) * min(ratio, _CERTAIN))
