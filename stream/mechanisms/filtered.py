"""Noise, then the regime-switching filter, which learns at night; never negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stream.mechanisms.contract import Parameters, TickInput, Values
from stream.mechanisms.filter import FilterItem, FilterState, RegimeFilter
from stream.mechanisms.nightly import History, NightlyFilter, NightlyState
from stream.mechanisms.noise import Ints
from stream.mechanisms.parameter import NoiseParameter
from stream.mechanisms.revision import smooth
from stream.mechanisms.smoothers import whole
from stream.schemas import HalfWidthKind


@dataclass(frozen=True)
class Filtered:
    """Noise, then the regime-switching filter."""

    filter: NightlyFilter
    half_width_kind: HalfWidthKind = "posterior"

    @property
    def noise(self) -> NoiseParameter:
        """The noise that the filter reckons with."""
        return self.filter.filter.noise

    def initial(self) -> NightlyState:
        """Return the filter's initial state."""
        return self.filter.initial()

    def step(self, state: NightlyState, item: TickInput) -> tuple[NightlyState, list[Values]]:
        """Add the noise, filter it."""
        noisy = item.counts + item.noise
        after, [told] = self.filter.step(state, FilterItem(noisy, item.slot))
        return after, [self.values_of(*told.estimate)._replace(noisy=noisy, histories=told.histories)]

    @property
    def nightly(self) -> tuple[NightlyFilter, ...]:
        """The filter, alone."""
        return (self.filter,)

    def states(self, state: NightlyState) -> tuple[FilterState, ...]:
        """Return the filter's state, alone."""
        return (state.filter,)

    def prepare(self, state: NightlyState) -> NightlyState:
        """Return the state with more done of what the next window would wait for."""
        return self.filter.prepare(state)

    def rest(self, state: NightlyState) -> list[History]:
        """Return what of days is not told yet."""
        return self.filter.rest(state)

    def values_of(self, median: Ints, half_width: Ints) -> Values:
        """Return medians as values."""
        return Values(median, half_width, whole(median))

    def smooth(
        self, states: Sequence[FilterState], items: Sequence[FilterItem], final: int
    ) -> tuple[tuple[FilterState, ...], list[Values]]:
        """Revise the first windows by all of them."""
        (state,) = states
        after, estimates = smooth(self.filter.filter, state, items, final)
        return (after,), [self.values_of(*estimate) for estimate in estimates]

    def pause(self, state: NightlyState) -> NightlyState:
        """Return the state as it is: it never read a true count."""
        return state

    def encode(self, state: NightlyState) -> bytes:
        """Return the filter's bytes."""
        return self.filter.encode(state)

    def decode(self, data: bytes) -> NightlyState:
        """Return the filter's state."""
        return self.filter.decode(data)


def filtered(parameters: Parameters) -> Filtered:
    """Return the mechanism for these parameters."""
    return Filtered(NightlyFilter(RegimeFilter(parameters.max_counts, parameters.noise, parameters.calendar)))
