"""PeGaSus: 0.8 ε on the noise, 0.2 ε on the grouper, a smoother.

Chen, Machanavajjhala, Hay, Miklau, CCS 2017. Their proof covers noisy counts and groups together, each with its part
of ε; smoothed values are computed from both. So the noisy counts may be published beside them, and half-widths follow
from noisy counts and groups (:mod:`stream.mechanisms.group_errors`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream.mechanisms.base import ErrorMoments, Parameters, TickInput, Values
from stream.mechanisms.group_errors import group_errors
from stream.mechanisms.grouper import SMOOTHERS, Grouper, GrouperState, GroupItem, perturber_epsilon, publishable
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.schemas import HalfWidthKind


@dataclass(frozen=True)
class Pegasus:
    """PeGaSus: noise, a grouper for this epsilon, a smoother."""

    zones: int
    epsilon: Fraction
    smoother: str = "median"
    half_width_kind: HalfWidthKind = "posterior"

    @cached_property
    def grouper(self) -> Grouper:
        """The grouper, which spends the rest of ε."""
        return Grouper(self.zones, self.epsilon)

    @cached_property
    def noise(self) -> NoiseParameter:
        """The perturber's, at 0.8 ε."""
        return laplace_noise(perturber_epsilon(self.epsilon))

    def initial(self) -> GrouperState:
        """Return the state in which no group is open."""
        return self.grouper.initial()

    def step(self, state: GrouperState, item: TickInput) -> tuple[GrouperState, list[Values]]:
        """Add the noise, find each zone's group, smooth over it."""
        rho, nu = self.grouper.draw(item.key, item.context, state, item.counts)
        noisy = item.counts + item.noise
        grouped = GroupItem(item.counts, noisy, rho, nu)
        after, [groups] = self.grouper.step(state, grouped)
        smoothed = SMOOTHERS[self.smoother](groups)
        values, exact = publishable(smoothed), smoothed.numerator / smoothed.denominator
        law = group_errors(groups, exact, np.full(self.zones, self.noise.scale))
        errors = ErrorMoments(law.mean, law.deviation)
        return after, [Values(values, law.half_width(values - exact), smoothed, groups, noisy=noisy, errors=errors)]

    def pause(self, state: GrouperState) -> GrouperState:
        """Return the state with all groups closed."""
        return self.grouper.close_all(state)

    def encode(self, state: GrouperState) -> bytes:
        """Return the grouper's bytes."""
        return self.grouper.encode(state)

    def decode(self, data: bytes) -> GrouperState:
        """Return the grouper's state."""
        return self.grouper.decode(data)


def pegasus(parameters: Parameters) -> Pegasus:
    """Return the mechanism for these parameters; UsageError where its grouper cannot draw at this epsilon."""
    mechanism = Pegasus(parameters.zones, parameters.epsilon, parameters.smoother)
    mechanism.initial()
    return mechanism
