"""The interface of count mechanisms: input, output and parameters. It imports no mechanism.

A mechanism receives its noise instead of drawing it, because all audiences of a release share one noise chain. A
mechanism that declares ``own_noise`` draws its own from ``TickInput.key``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.operators import Operator
from stream.schemas import HalfWidthKind


class WeekSlot(NamedTuple):
    """A tick's place in the local week."""

    half_hour: int
    """0 … 47."""
    hour: int
    """0 … 23."""
    weekend: bool
    day: int = 0
    """Number of its day: the filter learns from whole days."""


class RevisedDay(NamedTuple):
    """The revised values of some zones on a day that is over."""

    day: int
    zones: Ints
    """Their positions among the filter's zones."""
    median: Ints
    """Shape [windows of the day, zones]."""
    half_width: Ints
    """Likewise; see ``filter.smoothing.median_and_band``."""
    is_last: bool
    """Whether this is the last part of the zones."""


class TickInput(NamedTuple):
    """A mechanism's input for one window."""

    counts: Ints
    """True counts in registry order; restricted."""
    noise: Ints
    """The noise chain's noise for the mechanism's ``noise``."""
    key: bytes
    """Secret of the key day of the window's start."""
    context: Context
    slot: WeekSlot
    """The window's end in the site's local week."""
    position: int = 0
    """Number of the tick in its privacy day, from 0, by the clock; only mechanisms of changes read it."""


class Ratio(NamedTuple):
    """Exact values ``numerator / denominator``, denominators positive; shape [zones]."""

    numerator: Ints
    denominator: Ints


def whole(values: Ints) -> Ratio:
    """Return integers as exact values."""
    return Ratio(values, np.ones_like(values))


class Groups(NamedTuple):
    """The last group of every zone's partition, as noisy values."""

    size: Ints
    """Shape [zones], at least 1."""
    noisy: Ints
    """Shape [zones, longest]; zone z has ``size[z]`` values in time order, the rest is 0."""


class ErrorMoments(NamedTuple):
    """The distribution of count − value before rounding, given the released values; each of shape [zones]."""

    mean: Floats
    deviation: Floats


class SumBand(Protocol):
    """Half-widths of plain sums over zones, where the errors are not independent noise alone."""

    def half_width(self, members: Sequence[int]) -> int:
        """Return the 95 % half-width of the sum over some zones, given by their positions."""


class Values(NamedTuple):
    """The publishable output for one window, shape [zones]."""

    values: Ints
    half_width: Ints
    """95 % half-width of each value, of the mechanism's ``half_width_kind``."""
    exact: Ratio
    """The values before rounding and clamping; sums over zones are computed from them."""
    groups: Groups | None = None
    """PeGaSus' last groups, as noisy values; its window sums are computed from them."""
    noise: NoiseParameter | None = None
    """The noise in these values, where it differs from the mechanism's in some windows."""
    noisy: Ints | None = None
    """Counts with noise, of filters and groups, shape of ``values``: the input of these values."""
    errors: ErrorMoments | None = None
    """The errors of smoothed values; the bands of sums over zones follow from them."""
    sums: SumBand | None = None
    """Half-widths of sums over zones, if they do not follow from the noise alone."""
    histories: Sequence[RevisedDay] = ()
    """Revised parts of past days that become known with this window, for mechanisms with revisions; by node."""


def noisy_of(values: Values) -> Ints:
    """Return the noisy values of a mechanism whose values may be revised; UsageError where it has none."""
    if values.noisy is None:
        raise UsageError("mechanism must return noisy values if its values are revised")
    return values.noisy


class CountMechanism(Operator[Any, TickInput, Values], Protocol):
    """One mechanism at one epsilon, or one variance."""

    @property
    def noise(self) -> NoiseParameter:
        """The noise on the counts."""

    @property
    def half_width_kind(self) -> HalfWidthKind:
        """``noise``: of the noise alone; ``posterior``: likely given the released values, not guaranteed."""

    def pause(self, state: Any) -> Any:
        """Return the state after a window that is not released, or at the start of the next key day."""


class Parameters(NamedTuple):
    """Parameters for making a mechanism; each mechanism reads what it needs."""

    noise: NoiseParameter
    """The budget of one window, or of any ``windows`` consecutive ones: an ε, or the σ² that was paid for."""
    max_counts: tuple[int, ...]
    """Largest count of each zone, in registry order, one per zone."""
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
        """Number of zones, or states, that are counted."""
        return len(self.max_counts)
