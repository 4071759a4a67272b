"""Beliefs of attackers about a person's location: prior, noise, single ticks and tracking; exact by Bayes' rule.

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

**Tracking**: an attacker who follows one person from tick to tick, and knows mobility and noise.

    symbol     here            meaning
    x_t        state           where the person is at tick t: 0 outside, else a zone
    P[a, b]    forward         Pr(x_t = b | x_{t-1} = a), rows sum to 1
    π          initial         Pr(x_0)
    L_t(x)     log_likelihood  ln Pr(all counts of tick t | x_t = x), up to a constant a tick
    BPL(t)     bounds          backward temporal leakage (Cao et al. 2017) of the ticks up to t

The forward filter is Bayes' rule: Pr(x_t | y_1 … y_t) ∝ L_t(x_t) Σ_a Pr(a | y_1 … y_{t-1}) P[a, x_t].

Two attackers have such knowledge. One assumes all people to be alike and has the same belief about all; the
other knows where each of the others is, and is the adversary of differential privacy. The account's temporal bound
is about the second: its belief about x_t has odds of at most e^BPL(t) times the odds before any
count. Here BPL counts 2ε per tick, as being elsewhere changes two counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.temporal import loss, reversed_in_time
from stream.errors import UsageError
from stream.records import NoiseKind

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


# Noise as an attacker uses it: ln f(y|z), exact, from the noise fields of a record.
#
# kind       f(d), d = y - z                                       scale
# laplace    tanh(ε/2) e^(-ε|d|)                                   1/ε
# gaussian   e^(-d²/2σ²) / Σ_k e^(-k²/2σ²)                         σ
# several    of the sum of n draws: negative binomial minus negative binomial, or n σ² for σ² (a factor near 1)


class NoiseDistribution(NamedTuple):
    """The distribution of the noise in one published count."""

    kind: NoiseKind
    scale: float
    """The records' ``noise_scale``: 1/ε of Laplace noise, σ of Gaussian noise; positive."""

    def log(self, difference: Ints) -> Floats:
        """Return ln f(d) for whole numbers d, any shape; always finite."""
        if self.kind == "gaussian":
            variance = self.scale**2
            return np.asarray(-(difference.astype(np.float64) ** 2) / (2 * variance) - _log_total(variance))
        epsilon = 1 / self.scale
        return np.asarray(math.log(math.tanh(epsilon / 2)) - epsilon * np.abs(difference))

    def log_likelihood(self, values: Ints, people: int, known: Ints | int = 0) -> Floats:
        """Return ln f(y | known + z) for z = 0 … people, a new last axis.

        Args:
            values: published counts y, any shape.
            people: m, who may be there in addition to the known ones.
            known: people that the attacker knows to be there, the shape of ``values`` or a number.
        """
        return self.log((values - known)[..., None] - np.arange(people + 1))


@lru_cache(maxsize=64)
def _log_total(variance: float) -> float:
    """Return ln Σ_k e^(-k²/2σ²)."""
    reach = math.ceil(40 * math.sqrt(variance)) + 1
    return math.log(2 * float(np.exp(-(np.arange(1, reach) ** 2) / (2 * variance)).sum()) + 1)


class LearntDistribution(NamedTuple):
    """A noise distribution learnt from pairs of true count and published value: Gaussian kernels for each count.

    Ghayyur (2022), section 4.5.2: one kernel density estimate for each true count, with a width relative to the
    standard deviation of the values published for it (equal to SciPy's ``gaussian_kde`` to the digit). Where all values
    were equal, or there was only one, the width is relative to the standard deviation of y - z over all counts, at
    least half a person's. An unseen count has the noise of the nearest seen one.
    """

    table: Floats
    """ln density by value and count, shape [values, counts 0 …]."""
    first: int
    """The value of the first row."""

    def log_likelihood(self, values: Ints, people: int, known: Ints | int = 0) -> Floats:
        """Return ln f(y | known + z) for z = 0 … people, a new last axis; beyond the table the values at its ends."""
        row = np.clip(values - self.first, 0, len(self.table) - 1)
        columns = (np.zeros_like(values) + known)[..., None] + np.arange(people + 1)
        return np.asarray(self.table[row[..., None], np.minimum(columns, self.table.shape[1] - 1)])


def scott(pairs: int) -> float:
    """Return SciPy's own width in one dimension, n^(-1/5)."""
    return float(pairs ** (-1 / 5))


def learn(
    counts: Ints, values: Ints, width: float | None, values_from: int, values_to: int, most: int
) -> LearntDistribution:
    """Learn the distribution from training pairs.

    Args:
        counts: true counts, at least one, shape [pairs].
        values: the values published for them, shape [pairs].
        width: of a kernel, in standard deviations; None: n^(-1/5) for n pairs of a count.
        values_from: smallest value of the table.
        values_to: largest value.
        most: largest count of the table.

    Raises:
        UsageError: there is no pair.
    """
    if len(counts) == 0:
        raise UsageError("pairs to learn from must be at least one")
    overall = max(0.5, float(np.std(values - counts)))
    seen = np.unique(counts)
    points = np.arange(values_from, values_to + 1)
    columns: list[Floats] = []
    for count in range(most + 1):
        nearest = int(seen[np.argmin(np.abs(seen - count))])
        columns.append(_density(points - (count - nearest), values[counts == nearest], width, overall))
    return LearntDistribution(np.stack(columns, axis=1), values_from)


def _density(at: Ints, values: Ints, width: float | None, overall: float) -> Floats:
    """Return ln of one count's density at the values ``at``."""
    pairs = len(values)
    spread = float(np.std(values, ddof=1)) if pairs > 1 else 0.0
    kernel = (scott(pairs) if width is None else width) * (spread or overall)
    points, times = np.unique(values, return_counts=True)
    exponents = -(((at[:, None] - points) / kernel) ** 2) / 2 + np.log(times / pairs)
    largest = exponents.max(axis=1)
    total = np.exp(exponents - largest[:, None]).sum(axis=1)
    return np.asarray(largest + np.log(total) - math.log(kernel * math.sqrt(2 * math.pi)))


Observed = Literal["one", "all"]
"""Whether the attacker sees one region's count, or those of all regions."""
CHANGED: dict[Observed, int] = {"one": 1, "all": 2}
"""Number of observed counts that change when a person is elsewhere."""

_CERTAIN = 1e308
"""Ratios from this on count as infinite, without the indeterminate infinity times 0."""


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


# Tracking.

OUTSIDE = 0
"""The state of a person in no zone."""
_SAME = 1e-12


class Mobility(NamedTuple):
    """People's mobility as an attacker knows it; personal data where it is learnt from people's paths."""

    initial: Floats
    """π, shape [states]."""
    forward: Floats
    """P, shape [states, states]."""


def filtered_beliefs(known: Mobility, log_likelihood: Floats) -> Floats:
    """Return Pr(x_t | counts up to t), shape [..., ticks, states].

    Args:
        known: of as many states.
        log_likelihood: ln L_t(x), shape [..., ticks, states], finite, up to a constant a tick.

    Raises:
        UsageError: numbers of states differ.
    """
    states = len(known.initial)
    if log_likelihood.shape[-1] != states or known.forward.shape != (states, states):
        raise UsageError(f"states must be {states} in all of a model, got {log_likelihood.shape[-1]} in the likelihood")
    beliefs = np.empty(log_likelihood.shape)
    ahead = np.broadcast_to(known.initial, beliefs[..., 0, :].shape)
    for tick in range(log_likelihood.shape[-2]):
        now = log_likelihood[..., tick, :]
        joint = ahead * np.exp(now - now.max(axis=-1, keepdims=True))
        beliefs[..., tick, :] = joint / joint.sum(axis=-1, keepdims=True)
        ahead = beliefs[..., tick, :] @ known.forward
    return beliefs


def unobserved(known: Mobility, ticks: int) -> Floats:
    """Return Pr(x_t) before any count, shape [ticks, states]."""
    return filtered_beliefs(known, np.zeros((ticks, len(known.initial))))


def collectively(known: Mobility, law: NoiseDistribution, values: Ints, released: Flags, people: int) -> Floats:
    """Return Pr(x_t | counts up to t) for an attacker who assumes that all people are alike, shape [ticks, states].

    Each tick is (4.4) for every zone. The prior is the belief of the previous tick moved by the mobility model: a
    mean-field filter, as zones are read one by one.

    Args:
        known: mobility of each person.
        law: of the noise in each count.
        values: counts with noise, shape [ticks, zones].
        released: ticks that have values, shape [ticks].
        people: number of people, inside and outside, at least 1.
    """
    beliefs, ahead = np.empty((len(values), len(known.initial))), known.initial
    for tick, shown in enumerate(released.tolist()):
        if shown:
            inside = noisy_posterior(law.log_likelihood(values[tick], people), np.minimum(ahead[1:], 1.0))
            ahead = np.concatenate([[max(0.0, 1.0 - float(inside.sum()))], inside])
        beliefs[tick] = ahead / ahead.sum()
        ahead = beliefs[tick] @ known.forward
    return beliefs


def knowing_others(law: NoiseDistribution, values: Ints, others: Ints) -> Floats:
    """Return ln L_t(x) for an attacker who knows where all others are, shape [..., ticks, states].

    Args:
        law: of the noise in each count.
        values: counts with noise, shape [ticks, zones].
        others: true counts without the victim, shape [..., ticks, zones].
    """
    rest = values - others
    log_ratio = law.log(rest - 1) - law.log(rest)
    return np.concatenate([np.zeros((*log_ratio.shape[:-1], 1)), log_ratio], axis=-1)


def bounds(known: Mobility, epsilon: float, ticks: int) -> Floats:
    """Return BPL(t) in nats at an epsilon per tick for one added or removed person in one count, shape [ticks].

    The chain is reversed at each tick by its distribution at that tick.
    """
    before, spend = unobserved(known, ticks), CHANGED["all"] * epsilon
    found, at = [spend], None
    for marginal in before[:-1]:
        if at is None or np.abs(marginal - at).max() > _SAME:  # a stationary chain is reversed once
            carry, at = loss(reversed_in_time(known.forward, marginal)), marginal
        found.append(carry(found[-1]) + spend)
    return np.array(found)


def most_believed(prior: Floats, leakage: Floats) -> Floats:
    """Return the largest belief that odds of e^leakage allow: 1 / (1 + e^-leakage (1-p)/p).

    Args:
        prior: p, shape [ticks, …].
        leakage: nats, shape [ticks].
    """
    shrunk = np.exp(-leakage).reshape(-1, *[1] * (prior.ndim - 1))
    return np.asarray(prior / np.where(prior > 0, prior + shrunk * (1 - prior), 1.0))
