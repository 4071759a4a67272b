"""Beliefs of an attacker about where a person is, by Bayes' rule.

**Beliefs from counts.**

    symbol   here               meaning
    m        len - 1            people sought, known to the attacker; all alike, each in zone l with p_l
    p_l      probability        prior of the observed region
    c_l      counts             true count of a zone
    z        last axis          possible true counts, 0 … m
    y                           the published noisy count
    f(y|z)   log_likelihood     ln of the noise density, up to a term that is the same for all z
    b(z)     log_binomial       Pr[z of m are there] = C(m, z) p^z (1-p)^(m-z)
    ε        epsilon            of the mechanism, for one person more or less in one count

Ghayyur (2022), chapter 4 and appendix B. Three things differ from the print, each because the print contradicts Bayes'
rule: the sums of (4.4) begin at z = 0; the worst case with all regions observed has 2ε, since a person who moves
changes two counts (the print's ε holds for one region); posteriors of single y need not lie between prior and c/m, only
their limits do.

**The prior**: where an average person is at this time of day, before any count of the day is read.

    symbol   here        meaning
    t        span        a span of the day, such as 10 minutes
    l        zone        column
    m_l^t    recorded    people recorded in zone l at span t, added up over the days of training
    p_l^t    the result  m_l^t / Σ_l m_l^t

Ghayyur (2022), section 4.5.1. This attacker does not distinguish people: there is one row per span, for any victim.
Zones that the attacker sees are *open*: the people there are known, so the victim is not among them, and the other
zones' probabilities are scaled up to 1 (section 4.5.2).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError

# The prior.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

OPEN_KINDS: Mapping[str, tuple[str, ...]] = {
    "external": (),
    "student": ("classroom", "open"),
    "admin": ("open", "corridor"),
}
"""Attacker -> kinds of zones that it sees: none; those open to students; those with cameras (section 4.6.2)."""


def opened(kinds: Collection[str], seen: Collection[str]) -> Flags:
    """Return which zones are open: those of the kinds that an attacker sees.

    Args:
        kinds: of each zone, in registry order.
        seen: kinds that the attacker sees; a kind of no zone opens nothing.
    """
    return np.array([kind in seen for kind in kinds], dtype=bool)


def check_closed(is_open: Flags) -> None:
    """Raise UsageError where all zones are open, so that no person can be sought."""
    if is_open.all():
        raise UsageError("at least one zone must be closed; no person is sought in open ones")


def opened_for(people: Ints, order: Ints, share: float) -> Flags:
    """Return the fewest first zones of an order, open ones, that contained this share of people (δ in 4.6.1).

    At least one zone stays closed, so that a person can be sought.

    Args:
        people: recorded in each zone, shape [zones].
        order: in which zones are opened, each once.
        share: δ, in [0, 1].
    """
    so_far = np.cumsum(people[order]) - people[order]
    is_open = np.zeros(len(people), dtype=bool)
    is_open[order[(so_far < share * people.sum()) & (np.arange(len(order)) < len(order) - 1)]] = True
    return is_open


def by_span(counts: Ints, spans: Ints, number: int) -> Ints:
    """Return people recorded at each span of a day, added up over windows.

    Args:
        counts: true counts, shape [windows, zones].
        spans: the span of each window, in [0, number), shape [windows].
        number: how many spans a day has.
    """
    recorded = np.zeros((number, counts.shape[1]), dtype=np.int64)
    np.add.at(recorded, spans, counts)
    return recorded


def prior(recorded: Ints) -> Floats:
    """Return p_l^t, rows sum to 1; all zones alike for a span without any recorded people.

    Args:
        recorded: m_l^t, at least 0, shape [spans, zones], of at least one zone.

    Raises:
        UsageError: there is no zone, or a negative number.
    """
    if recorded.ndim != 2 or recorded.shape[1] == 0 or recorded.min(initial=0) < 0:
        raise UsageError("recorded must be numbers of people of at least 0, shape [spans, at least one zone]")
    return _shares(recorded.astype(np.float64))


def closed_prior(known: Floats, is_open: Flags) -> Floats:
    """Return the prior of a person who is in no open zone: 0 there, the others scaled to 1.

    Args:
        known: a prior, shape [spans, zones].
        is_open: which zones the attacker sees, shape [zones].

    Raises:
        UsageError: all zones are open, so that no person can be sought.
    """
    check_closed(is_open)
    return _shares(np.where(is_open, 0.0, known), ~is_open)


def _shares(weights: Floats, among: Flags | None = None) -> Floats:
    total = weights.sum(axis=1, keepdims=True)
    alike = np.ones(weights.shape[1]) if among is None else among.astype(np.float64)
    return np.where(total > 0, weights / np.where(total > 0, total, 1.0), alike / alike.sum())


# The posterior.

Observed = Literal["one", "all"]
"""Whether the attacker sees one region's count, or those of all regions."""
CHANGED: dict[Observed, int] = {"one": 1, "all": 2}
"""Number of observed counts that change when a person is elsewhere."""


def from_true_counts(counts: Ints, is_open: Flags) -> Floats:
    """Return Pr[in zone l | true counts] (4.3): c_l / Σ_closed c, whatever the prior; 0 in open zones.

    Args:
        counts: true counts, shape [..., zones].
        is_open: zones into which the attacker sees, shape [zones].

    Returns:
        Rows that sum to 1; rows of zeros where no person is in a closed zone.
    """
    closed = np.where(is_open, 0, counts).astype(np.float64)
    total = closed.sum(axis=-1, keepdims=True)
    return np.asarray(closed / np.where(total > 0, total, 1.0))


def worst_case(probability: Floats, epsilon: float, observed: Observed) -> Floats:
    """Return the largest belief of an attacker who knows where all others are: 1 / (1 + e^(-kε) (1-p)/p).

    k = 1 where one region is observed (the thesis prints this form for all), k = 2 where all are.

    Args:
        probability: prior p in [0, 1], any shape.
        epsilon: at least 0.
        observed: ``one`` region's count, or ``all``.
    """
    odds_against = (1.0 - probability) * math.exp(-CHANGED[observed] * epsilon)
    return np.asarray(probability / np.where(probability > 0, probability + odds_against, 1.0))


def log_binomial(people: int, probability: Floats) -> Floats:
    """Return ln b(z) for z = 0 … people, a new last axis; -inf for impossible z."""
    from scipy.special import gammaln, xlog1py, xlogy  # noqa: PLC0415  (slow to import; most commands do not need it)

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
        UsageError: no person is sought (m = 0).
    """
    people = log_likelihood.shape[-1] - 1
    if people < 1:
        raise UsageError("people sought must be at least one")
    weight = _weights(log_likelihood, probability)
    return np.asarray((weight * (np.arange(people + 1) / people)).sum(axis=-1))


def _weights(log_likelihood: Floats, probability: Floats) -> Floats:
    """Return Pr[z | y]: rows sum to 1."""
    joint = log_likelihood + log_binomial(log_likelihood.shape[-1] - 1, probability)
    joint = np.exp(joint - joint.max(axis=-1, keepdims=True))
    return np.asarray(joint / joint.sum(axis=-1, keepdims=True))
