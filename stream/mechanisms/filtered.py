"""Noise, then the regime-switching filter; never negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream.mechanisms.contract import Parameters, TickInput, Values
from stream.mechanisms.filter import Estimate, FilterItem, FilterState, RegimeFilter
from stream.mechanisms.parameter import NoiseParameter
from stream.mechanisms.revision import smooth
from stream.mechanisms.smoothers import whole
from stream.schemas import HalfWidthKind


@dataclass(frozen=True)
class Filtered:
    """Noise, then the regime-switching filter."""

    filter: RegimeFilter
    half_width_kind: HalfWidthKind = "posterior"

    @property
    def noise(self) -> NoiseParameter:
        """The noise that the filter reckons with."""
        return self.filter.noise

    def initial(self) -> FilterState:
        """Return the filter's initial state."""
        return self.filter.initial()

    def step(self, state: FilterState, item: TickInput) -> tuple[FilterState, list[Values]]:
        """Add the noise, filter it."""
        noisy = item.counts + item.noise
        after, [estimate] = self.filter.step(state, FilterItem(noisy, item.slot))
        return after, [_values(estimate)._replace(noisy=noisy)]

    @property
    def filters(self) -> tuple[RegimeFilter, ...]:
        """The filter, alone."""
        return (self.filter,)

    def states(self, state: FilterState) -> tuple[FilterState, ...]:
        """Return the filter's state, alone."""
        return (state,)

    def smooth(
        self, states: Sequence[FilterState], items: Sequence[FilterItem], final: int
    ) -> tuple[tuple[FilterState, ...], list[Values]]:
        """Revise the first windows by all of them."""
        (state,) = states
        after, estimates = smooth(self.filter, state, items, final)
        return (after,), [_values(estimate) for estimate in estimates]

    def pause(self, state: FilterState) -> FilterState:
        """Return the state as it is: it never read a true count."""
        return state

    def encode(self, state: FilterState) -> bytes:
        """Return the filter's bytes."""
        return self.filter.encode(state)

    def decode(self, data: bytes) -> FilterState:
        """Return the filter's state."""
        return self.filter.decode(data)


def _values(estimate: Estimate) -> Values:
    return Values(estimate.median, estimate.half_width, whole(estimate.median))


def filtered(parameters: Parameters) -> Filtered:
    """Return the mechanism for these parameters."""
    return Filtered(RegimeFilter(parameters.max_counts, parameters.noise, parameters.calendar))
