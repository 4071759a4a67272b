"""The filter mechanism: noise, then the regime-switching filter with daily learning; values are never negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from stream.mechanisms.base import CountMechanism, Parameters, RevisedDay, TickInput, Values, whole
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter.learning import LearningFilter, LearningState
from stream.mechanisms.filter.residuals import FilteredSums
from stream.mechanisms.filter.smoothing import smooth
from stream.mechanisms.filter.state import FilterState
from stream.mechanisms.filter.step import FilterItem, RegimeFilter
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.schemas import HalfWidthKind

# The interface of mechanisms whose values can be revised when later windows are known.


@runtime_checkable
class DayRevisable(CountMechanism, Protocol):
    """A mechanism that can improve a day's values when the day is over: it returns ``Values.histories``."""

    @property
    def nodes(self) -> int:
        """Number of nodes, of all levels."""

    def rest(self, state: Any) -> list[RevisedDay]:
        """Return the remaining revised parts of days, including the current one, where no further window comes."""

    def values_of(self, median: Ints, half_width: Ints) -> Values:
        """Return the publishable values of a window with these medians and half-widths of its nodes."""


@runtime_checkable
class Revisable(DayRevisable, Protocol):
    """A mechanism of filters, which can improve a window's values when later windows are known.

    ``step`` and ``prepare`` leave the former state unchanged, unlike those of other operators: revisions read it.
    """

    @property
    def filters(self) -> tuple[LearningFilter, ...]:
        """Its filters."""

    def states(self, state: Any) -> tuple[FilterState, ...]:
        """Return the state of each filter."""

    def prepare(self, state: Any) -> Any:
        """Return a state of equal meaning and bytes, in which one more piece of the next window's work is done.

        Returns the same state where there is no such work.
        """

    def smooth(
        self, states: Sequence[FilterState], items: Sequence[FilterItem], final: int
    ) -> tuple[tuple[FilterState, ...], list[Values]]:
        """Return revised values of the first windows of a stream, given all of it.

        Args:
            states: of each filter, before the first window.
            items: the noisy values of each window (``Values.noisy``), in order, at least one.
            final: number of windows to revise, from the first on.

        Returns:
            The filters' states after these windows, and the publishable values of each.
        """


@dataclass(frozen=True)
class Filtered:
    """Noise, then the regime-switching filter."""

    filter: LearningFilter
    half_width_kind: HalfWidthKind = "posterior"

    @property
    def noise(self) -> NoiseParameter:
        """The noise that the filter assumes."""
        return self.filter.filter.noise

    def initial(self) -> LearningState:
        """Return the filter's initial state."""
        return self.filter.initial()

    def step(self, state: LearningState, item: TickInput) -> tuple[LearningState, list[Values]]:
        """Add the noise, filter it."""
        noisy = item.counts + item.noise
        after, [output] = self.filter.step(state, FilterItem(noisy, item.slot))
        sums = FilteredSums(output.estimate.half_width, after.residuals, self.noise)
        return after, [self.values_of(*output.estimate)._replace(noisy=noisy, sums=sums, histories=output.histories)]

    @property
    def nodes(self) -> int:
        """Number of zones."""
        return len(self.filter.filter.capacities)

    @property
    def filters(self) -> tuple[LearningFilter, ...]:
        """The filter, as the only element."""
        return (self.filter,)

    def states(self, state: LearningState) -> tuple[FilterState, ...]:
        """Return the filter's state, as the only element."""
        return (state.filter,)

    def prepare(self, state: LearningState) -> LearningState:
        """Return the state with more of the next window's work done."""
        return self.filter.prepare(state)

    def rest(self, state: LearningState) -> list[RevisedDay]:
        """Return the remaining revised parts of days."""
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

    def pause(self, state: LearningState) -> LearningState:
        """Return the state unchanged: it contains no true count."""
        return state

    def encode(self, state: LearningState) -> bytes:
        """Return the filter's bytes."""
        return self.filter.encode(state)

    def decode(self, data: bytes) -> LearningState:
        """Return the filter's state."""
        return self.filter.decode(data)


def filtered(parameters: Parameters) -> Filtered:
    """Return the mechanism for these parameters."""
    return Filtered(LearningFilter(RegimeFilter(parameters.max_counts, parameters.noise, parameters.calendar)))
