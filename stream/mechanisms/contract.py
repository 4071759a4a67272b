"""What every count mechanism takes and gives: the interface behind which the registry's mechanisms stand.

A mechanism is handed its noise instead of drawing it, because all audiences of a release share one noise chain.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.grouper import Groups
from stream.mechanisms.labels import Context
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
