"""Releases of counts: the three mechanisms behind one face, as a stage of the stream and in one batch.

    laplace   counts with discrete Laplace noise, not clamped: it may be negative, and its mean is right
    pegasus   0.8 ε on the noise, 0.2 ε on the grouper, then a smoother; rounded and never negative
    filter    ε on the noise, then the regime-switching filter; never negative

A mechanism is handed its noise instead of drawing it, because all audiences of a release share one chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from stream.errors import DataError, UsageError
from stream.mechanisms.chain import chain
from stream.mechanisms.filter import FilterItem, FilterState, RegimeFilter
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.labels import Context, counts_digest
from stream.mechanisms.noise import Ints, check_epsilon, half_width_95
from stream.mechanisms.pegasus import Grouper, GrouperState, GroupItem, Groups, perturber_epsilon
from stream.mechanisms.smoothers import SMOOTHERS, Ratio, publishable, whole
from stream.operators import Operator
from stream.records import DAY, MINUTE, Micros


class Tick(NamedTuple):
    """What one window brings to a mechanism."""

    counts: Ints
    """True counts in registry order; restricted."""
    noise: Ints
    """The chain's noise at the mechanism's ``noise_epsilon``."""
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
    noise_epsilon: Fraction | None = None
    """ε of the noise in these values, where that is not the mechanism's in every window."""


class CountMechanism(Operator[Any, Tick, Values], Protocol):
    """One mechanism at one epsilon."""

    @property
    def noise_epsilon(self) -> Fraction:
        """The part of ε that the noise on the counts spends."""

    @property
    def half_width_kind(self) -> str:
        """``noise``: of the noise alone; ``posterior``: the filter's 1-99 % range, not guaranteed."""

    def pause(self, state: Any) -> Any:
        """Return the state to go on with after a window that is not released, or into the next key day."""


@dataclass(frozen=True)
class Laplace:
    """Counts plus noise. Its state is None."""

    zones: int
    epsilon: Fraction
    half_width_kind: str = "noise"

    @property
    def noise_epsilon(self) -> Fraction:
        """All of ε."""
        return self.epsilon

    def initial(self) -> None:
        """Return None."""

    def step(self, state: None, item: Tick) -> tuple[None, list[Values]]:
        """Add the noise."""
        noisy = item.counts + item.noise
        return None, [Values(noisy, np.full(self.zones, half_width_95(self.epsilon)), whole(noisy))]

    def pause(self, state: None) -> None:
        """Return None."""

    def encode(self, state: None) -> bytes:
        """Return no bytes."""
        return b""

    def decode(self, data: bytes) -> None:
        """Return None; DataError where there are bytes."""
        if data:
            raise DataError("laplace state: must be empty")


@dataclass(frozen=True)
class Pegasus:
    """PeGaSus: noise, an own grouper for this epsilon, a smoother."""

    zones: int
    epsilon: Fraction
    smoother: str = "median"
    half_width_kind: str = "noise"

    @cached_property
    def grouper(self) -> Grouper:
        """The grouper, which spends the rest of ε."""
        return Grouper(self.zones, self.epsilon)

    @property
    def noise_epsilon(self) -> Fraction:
        """The perturber's 0.8 ε."""
        return perturber_epsilon(self.epsilon)

    def initial(self) -> GrouperState:
        """Return the state in which no group is open."""
        return self.grouper.initial()

    def step(self, state: GrouperState, item: Tick) -> tuple[GrouperState, list[Values]]:
        """Add the noise, find each zone's group, smooth over it."""
        rho, nu = self.grouper.draw(item.key, item.context, state, item.counts)
        grouped = GroupItem(item.counts, item.counts + item.noise, rho, nu)
        after, [groups] = self.grouper.step(state, grouped)
        width = np.full(self.zones, half_width_95(self.noise_epsilon))
        smoothed = SMOOTHERS[self.smoother](groups)
        return after, [Values(publishable(smoothed), width, smoothed, groups)]

    def pause(self, state: GrouperState) -> GrouperState:
        """Return the state with all groups closed."""
        return self.grouper.close_all(state)

    def encode(self, state: GrouperState) -> bytes:
        """Return the grouper's bytes."""
        return self.grouper.encode(state)

    def decode(self, data: bytes) -> GrouperState:
        """Return the grouper's state."""
        return self.grouper.decode(data)


@dataclass(frozen=True)
class Filtered:
    """Noise, then the regime-switching filter."""

    filter: RegimeFilter
    half_width_kind: str = "posterior"

    @property
    def noise_epsilon(self) -> Fraction:
        """All of ε."""
        return self.filter.epsilon

    def initial(self) -> FilterState:
        """Return the filter's initial state."""
        return self.filter.initial()

    def step(self, state: FilterState, item: Tick) -> tuple[FilterState, list[Values]]:
        """Add the noise, filter it."""
        after, [estimate] = self.filter.step(state, FilterItem(item.counts + item.noise, item.slot))
        return after, [Values(estimate.median, estimate.half_width, whole(estimate.median))]

    def pause(self, state: FilterState) -> FilterState:
        """Return the state as it is: it never read a true count."""
        return state

    def encode(self, state: FilterState) -> bytes:
        """Return the filter's bytes."""
        return self.filter.encode(state)

    def decode(self, data: bytes) -> FilterState:
        """Return the filter's state."""
        return self.filter.decode(data)


def count_mechanism(
    name: str,
    *,
    epsilon: Fraction,
    max_counts: Sequence[int],
    smoother: str = "median",
    calendar: bool = True,
) -> CountMechanism:
    """Return the mechanism called ``name``, over as many zones as ``max_counts`` has entries.

    Raises:
        UsageError: unknown mechanism or smoother, or an epsilon that it cannot work with.
    """
    check_epsilon(epsilon)
    if smoother not in SMOOTHERS:
        raise UsageError(f"smoother must be one of {', '.join(SMOOTHERS)}, got {smoother!r}")
    if name == "laplace":
        return Laplace(len(max_counts), epsilon)
    if name == "pegasus":
        mechanism = Pegasus(len(max_counts), epsilon, smoother)
        mechanism.initial()
        return mechanism
    if name == "filter":
        return Filtered(RegimeFilter(tuple(max_counts), epsilon, calendar))
    raise UsageError(f"mechanism must be one of laplace, pegasus, filter, got {name!r}")


@dataclass(frozen=True)
class Naming:
    """Whose counts are released, and which key and which place in the week each window has."""

    site: str
    release: str
    zones: tuple[str, ...]
    day_key: Callable[[int], bytes]
    """Secret of a key day, given as days since 1970-01-01."""
    slot: Callable[[Micros], Slot]
    """Place of a window's end in the site's local week."""
    window: Micros = 5 * MINUTE
    attempt: int = 1

    def tick(self, mechanism: CountMechanism, end: Micros, counts: Ints) -> Tick:
        """Return the tick of one window for a release that has a single audience."""
        context = Context(self.site, self.release, end, self.attempt, self.zones)
        key, epsilon = self.day_key(self.day(end)), mechanism.noise_epsilon
        noise = chain(key, context, counts_digest(counts), [epsilon], len(self.zones))[epsilon]
        return Tick(counts, noise, key, context, self.slot(end))

    def day(self, end: Micros) -> int:
        """Return the key day of a window: the UTC day in which it starts."""
        return (end - self.window) // DAY


def release_counts(
    mechanism: CountMechanism,
    naming: Naming,
    times: Ints,
    counts: Ints,
    progress: Callable[[int], None] | None = None,
) -> tuple[Ints, Ints]:
    """Return (values, half widths) of a whole table of counts, the same that the stream form gives.

    Args:
        mechanism: from :func:`count_mechanism`, over ``len(naming.zones)`` zones.
        naming: labels, keys and calendar.
        times: ends of the windows, strictly ascending microseconds, shape [T].
        counts: shape [T, zones], at least 0.
        progress: told how many windows are done.

    Raises:
        UsageError: shapes do not fit, times do not ascend, or a count is negative.
    """
    _check(naming, times, counts)
    values, widths = np.zeros_like(counts), np.zeros_like(counts)
    state, day = mechanism.initial(), None
    for row, end in enumerate(int(time) for time in times):
        if day != naming.day(end):
            state, day = mechanism.pause(state), naming.day(end)
        state, [(values[row], widths[row], *_)] = mechanism.step(state, naming.tick(mechanism, end, counts[row]))
        if progress is not None:
            progress(row + 1)
    return values, widths


def _check(naming: Naming, times: Ints, counts: Ints) -> None:
    if counts.shape != (len(times), len(naming.zones)):
        raise UsageError(f"counts must have the shape {(len(times), len(naming.zones))}, got {counts.shape}")
    if counts.dtype != np.int64 or (counts < 0).any():
        raise UsageError("counts must be 64-bit integers of at least 0")
    if (np.diff(times) <= 0).any():
        raise UsageError("times must be strictly ascending")
