"""Tracking: an attacker who follows one person from tick to tick.

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

from typing import NamedTuple

import numpy as np

from stream.accounting.leakage.temporal import loss, reversed_in_time
from stream.errors import UsageError
from stream.lab.attackers.beliefs import CHANGED, Flags, Floats, Ints, noisy_posterior
from stream.lab.attackers.likelihoods import NoiseDistribution

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
