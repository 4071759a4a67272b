"""STUB. Two operators: the sums of a day's changes (exact, restricted, one a level and release), and the mechanism.

1. ``ChangeSums.step`` runs for EVERY window of a privacy day, before the budget gate, also where all audiences are
   denied; it returns C'd, and one state serves all audiences. Its state is exact counts (restricted).
2. ``Changes`` (a CountMechanism, one an audience and level, ``own_noise``) takes C'd as ``TickInput.counts`` and the
   position as ``TickInput.position``; it draws the chain of all audiences itself, keeps only released values and
   publishes. ``pause`` where the audience is denied. It takes day and position from the item and starts a day anew
   where ``slot.day`` changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from stream.mechanisms.base import TickInput, Values
from stream.mechanisms.changes.factor import Factor
from stream.mechanisms.noise import Ints
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.schemas import HalfWidthKind


class DayTick(NamedTuple):
    """The bounded counts of a level's nodes at one tick of a privacy day."""

    day: int
    """Number of the privacy day (``WeekSlot.day``)."""
    position: int
    """Ticks of the day before this one, by the clock: 0 for the first, also where earlier windows are missing."""
    counts: Ints
    """Shape [nodes]; restricted."""


@dataclass(frozen=True)
class ChangeSums:
    """An operator: DayTick -> C'd at this tick, shape [nodes], restricted."""

    factor: Factor
    nodes: int

    def initial(self) -> Any:
        """Return the state before the first tick."""

    def step(self, state: Any, item: DayTick) -> tuple[Any, list[Ints]]:
        """Return the sums of this tick. UsageError for a position beyond the factor's ticks or out of order."""
        raise NotImplementedError

    def encode(self, state: Any) -> bytes:
        """Return the stable byte form; restricted."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        """Return the state of a byte form."""
        raise NotImplementedError


@dataclass(frozen=True)
class Changes:
    """A CountMechanism of one level for one audience."""

    factor: Factor
    variance: Fraction
    """sigma'² of this audience."""
    variances: tuple[Fraction, ...]
    """Of all audiences of the release, at this level."""
    max_counts: tuple[int, ...]
    calendar: bool = True
    half_width_kind: HalfWidthKind = "posterior"

    @property
    def noise(self) -> NoiseParameter:
        """Gaussian, of the largest variance that a noisy count has within a day, in devices²."""
        raise NotImplementedError

    def initial(self) -> Any:
        """Return the state before the first tick."""

    def step(self, state: Any, item: TickInput) -> tuple[Any, list[Values]]:
        """Draw the noise, reconstruct, filter. ``Values.noisy`` is the noisy count y, rounded."""
        raise NotImplementedError

    def pause(self, state: Any) -> Any:
        """Return the state unchanged: it contains no true count."""
        return state

    def encode(self, state: Any) -> bytes:
        """Return the stable byte form."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        """Return the state of a byte form."""
        raise NotImplementedError


def check_chain(variances: Sequence[Fraction]) -> None:
    """Raise UsageError where the variances of audiences are too close for a chain of known law."""
    raise NotImplementedError
