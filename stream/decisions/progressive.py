"""One run of a mechanism on counts: which are above their thresholds, and what was spent on each (restricted)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.decisions.next_step import chosen
from stream.decisions.plan import Plan, Step
from stream.mechanisms.inversion import Ints

Bools = NDArray[np.bool_]
Noise = Mapping[Fraction, Ints]
"""The noise of a chain: of every epsilon that a step may have, one number a predicate."""


class Run(NamedTuple):
    """What a run came to."""

    above: Bools
    """Per predicate; this alone is released."""
    epsilons: tuple[Fraction, ...]
    """Per predicate, ε at which it was decided, with the sensitivity; restricted."""


def run(counts: Ints, thresholds: Ints, plan: Plan, noise: Noise) -> Run:
    """Decide once, with the noise of one chain.

    Args:
        counts: one a predicate.
        thresholds: as many; positive is a count above its threshold.
        plan: what may be done.
        noise: of ``plan.all_epsilons``.
    """
    distance = counts - thresholds
    if plan.terms.mechanism in ("laplace", "tslm"):
        shift = plan.last.shift if plan.terms.mechanism == "tslm" else 0
        above = distance + noise[plan.last.epsilon] > -shift
        return Run(above, (plan.price,) * len(counts))
    return _Walk(distance, plan).to_the_end(noise)


class _Walk:
    """Steps of growing ε until everything is decided."""

    def __init__(self, distance: Ints, plan: Plan) -> None:
        self.distance, self.plan = distance, plan
        self.above = np.zeros(len(distance), dtype=bool)
        self.undecided = np.ones(len(distance), dtype=bool)
        self.epsilons = np.full(len(distance), plan.last.epsilon, dtype=object)

    def to_the_end(self, noise: Noise) -> Run:
        step = self.plan.first()
        while True:
            noisy = self.distance + noise[step.epsilon]
            if step.epsilon == self.plan.last.epsilon:
                self.above |= self.undecided & (noisy > -step.shift)
                break
            self.decide(noisy, step)
            if not self.undecided.any():
                break
            step = self.following(noisy, step)
        spent = tuple(each * self.plan.terms.sensitivity for each in self.epsilons.tolist())
        return Run(self.above, spent)

    def decide(self, noisy: Ints, step: Step) -> None:
        self.above |= self.undecided & (noisy > step.shift)
        still = self.undecided & (noisy > -step.shift) & (noisy <= step.shift)
        self.epsilons[self.undecided & ~still] = step.epsilon
        self.undecided = still

    def following(self, noisy: Ints, step: Step) -> Step:
        if self.plan.terms.mechanism == "ppwlm":
            return self.plan.following(step)
        return chosen(self.plan, step, noisy, self.undecided, self.epsilons)
