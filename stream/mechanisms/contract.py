"""What every count mechanism takes and gives: the interface behind which the registry's mechanisms stand.

A mechanism is handed its noise instead of drawing it, because all audiences of a release share one noise chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol, runtime_checkable

from stream.errors import UsageError
from stream.mechanisms.filter import FilterItem, FilterState
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.grouper import Groups
from stream.mechanisms.labels import Context
from stream.mechanisms.nightly import History, NightlyFilter
from stream.mechanisms.noise import Ints
from stream.mechanisms.parameter import NoiseParameter
from stream.mechanisms.smoothers import Ratio
from stream.operators import Operator
from stream.schemas import HalfWidthKind


class TickInput(NamedTuple):
    """What one window brings to a mechanism."""

    counts: Ints
    """True counts in registry order; restricted."""
    noise: Ints
    """The noise chain's at the mechanism's ``noise``."""
    key: bytes
    """Secret of the key day of the window's start."""
    context: Context
    slot: Slot
    """The window's end in the site's local week."""


class Values(NamedTuple):
    """What may be published of one window, shape [zones]."""

    values: Ints
    half_width: Ints
    """95 % half-width of each value, of the mechanism's ``half_width_kind``."""
    exact: Ratio
    """The values before rounding and clamping: what sums over zones are made of."""
    groups: Groups | None = None
    """PeGaSus' last groups, in noisy values: what its window sums are made of."""
    noise: NoiseParameter | None = None
    """The law of the noise in these values, where that is not the mechanism's in every window."""
    noisy: Ints | None = None
    """Counts with noise, of filters and groups, shape of ``values``: what these are made of."""
    histories: Sequence[History] = ()
    """What of days that are over is told with this window, of a mechanism whose values may be revised; by its nodes."""


def noisy_of(values: Values) -> Ints:
    """Return the noisy values of a mechanism whose values may be revised; UsageError where it gives none."""
    if values.noisy is None:
        raise UsageError("mechanism must give the noisy values that its values are made of, where these are revised")
    return values.noisy


class CountMechanism(Operator[Any, TickInput, Values], Protocol):
    """One mechanism at one epsilon, or one variance."""

    @property
    def noise(self) -> NoiseParameter:
        """The law of the noise on the counts."""

    @property
    def half_width_kind(self) -> HalfWidthKind:
        """``noise``: of the noise alone; ``posterior``: the filter's 1-99 % range, not guaranteed."""

    def pause(self, state: Any) -> Any:
        """Return the state to go on with after a window that is not released, or into the next key day."""


@runtime_checkable
class Revisable(CountMechanism, Protocol):
    """A mechanism of filters, which can say of a window more when those behind it are known."""

    @property
    def nightly(self) -> tuple[NightlyFilter, ...]:
        """Its filters."""

    def states(self, state: Any) -> tuple[FilterState, ...]:
        """Return the state of each filter."""

    def prepare(self, state: Any) -> Any:
        """Return the state, of equal meaning and bytes, in which one more piece of the next window's work is done.

        The state itself where there is no such work.
        """

    def rest(self, state: Any) -> list[History]:
        """Return what of days is not told yet, of the day at hand too, where no window comes any more."""

    def values_of(self, median: Ints, half_width: Ints) -> Values:
        """Return what may be published of a window, of which this is known of each node."""

    def smooth(
        self, states: Sequence[FilterState], items: Sequence[FilterItem], final: int
    ) -> tuple[tuple[FilterState, ...], list[Values]]:
        """Return what the first windows of a stream are estimated to have been, given all of it.

        Args:
            states: of each filter, before the first window.
            items: the noisy values of each window (``Values.noisy``), in order, at least one.
            final: how many windows from the first on are asked for.

        Returns:
            The filters' states after these windows, and what may be published of each.
        """


class Parameters(NamedTuple):
    """What a mechanism is made from; each reads what it needs."""

    noise: NoiseParameter
    """What one window may spend, or any ``windows`` one after another: an ε, or the σ² that was paid for."""
    max_counts: tuple[int, ...]
    """Largest count of each zone, in registry order: as many as there are zones."""
    smoother: str = "median"
    calendar: bool = True
    windows: int = 1
    """w: consecutive windows that epsilon pays for."""

    @property
    def epsilon(self) -> Fraction:
        """ε; UsageError where the noise has none."""
        return self.noise.epsilon

    @property
    def zones(self) -> int:
        """How many zones, or states, are counted."""
        return len(self.max_counts)
