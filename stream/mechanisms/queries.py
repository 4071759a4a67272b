"""PeGaSus' other queries: sums over the latest windows, jumps and drops, low signal (all free).

    symbol   here        meaning
    w        windows     number of windows that a query covers, including the current one
    δ        threshold   the size at which a jump counts, or up to which a sum is low
    ĉ_t      an item     the released value of a window, before rounding and clamping
    ŝ_t      a total     the sum over [t-w+1, t]

    sliding-window sum   ŝ_t = Σ ĉ_i (WindowSum), or over PeGaSus' groups: Σ_G |G ∩ window| · statistic(c̃_i, i in G)
                         (GroupWindowSum), in which a group counts as a whole, including its part before the window
    jump, drop           |ĉ_t - ĉ_{t-w+1}| >= δ, with its sign
    low signal           ŝ_t <= δ

(Chen, Machanavajjhala, Hay, Miklau, CCS 2017: unit queries, sliding windows, event monitoring.) Each operator
reads only what a release at ε made public, so its answers cost nothing more, and its state is as
public as its input. An operator returns one answer for each item, None until w consecutive windows were released.

There are two ways to use them: inside the release stage, on the values before rounding (``Values.exact``) or
on PeGaSus' groups; and on published records alone, whose integers become ``grouper.whole`` values.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from stream.domains import Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.base import Groups, Ratio
from stream.mechanisms.exact import Ints
from stream.mechanisms.grouper import SMOOTHERS

STATISTICS = ("average", "median")
"""Statistics that may represent a group in a window sum."""


@dataclass(frozen=True, slots=True)
class QueryHistory:
    """Released values of the latest consecutive windows, oldest first, at most w; public."""

    numerator: Ints
    """Shape [zones, windows so far]."""
    denominator: Ints


@dataclass(frozen=True)
class _Windows:
    """Common part of the operators: the history, its length, its bytes."""

    zones: int
    windows: int

    def __post_init__(self) -> None:
        if self.zones < 1:
            raise UsageError(f"zones must be at least 1, got {self.zones}")
        if self.windows < 1:
            raise UsageError(f"windows must be at least 1, got {self.windows}")

    def initial(self) -> QueryHistory:
        """Return the history before the first window."""
        none = np.zeros((self.zones, 0), np.int64)
        return QueryHistory(none, none)

    def encode(self, state: QueryHistory) -> bytes:
        """Return the stable byte form: numerators, then denominators, window by window."""
        head = _HEAD.pack(_MAGIC, self.zones, self.windows, state.numerator.shape[1])
        return head + b"".join(part.T.astype("<i8").tobytes() for part in (state.numerator, state.denominator))

    def decode(self, data: bytes) -> QueryHistory:
        """Return the history of a byte form; DataError where it is not one of this operator."""
        if len(data) < _HEAD.size or _HEAD.unpack_from(data)[:3] != (_MAGIC, self.zones, self.windows):
            raise DataError("query state: header does not fit the configuration")
        stored = _HEAD.unpack_from(data)[3]
        if stored > self.windows or len(data) != _HEAD.size + 16 * stored * self.zones:
            raise DataError("query state: length does not fit the number of windows")
        values = np.frombuffer(data[_HEAD.size :], dtype="<i8").astype(np.int64).reshape(2, stored, self.zones)
        if (values[1] < 1).any():
            raise DataError("query state: denominators must be positive")
        return QueryHistory(values[0].T, values[1].T)

    def _extended(self, state: QueryHistory, value: Ratio) -> QueryHistory:
        """Return the history with one more window; the oldest is dropped when there are w."""
        first = max(0, state.numerator.shape[1] + 1 - self.windows)
        parts = zip((state.numerator, state.denominator), value, strict=True)
        return QueryHistory(*(np.column_stack([old[:, first:], new]) for old, new in parts))

    def _full(self, state: QueryHistory) -> bool:
        return bool(state.numerator.shape[1] == self.windows)


_HEAD = struct.Struct("<4sIII")
_MAGIC = Magic.QUERY


@dataclass(frozen=True)
class WindowSum(_Windows):
    """The sum of the released values of the last w windows, for every zone."""

    def step(self, state: QueryHistory, item: Ratio | None) -> tuple[QueryHistory, list[Ratio | None]]:
        """Process a window's values (None: not released); return the exact sums, shape [zones]."""
        if item is None:
            return self.initial(), [None]
        after = self._extended(state, item)
        return after, [total(after) if self._full(after) else None]


@dataclass(frozen=True)
class GroupWindowSum(_Windows):
    """PeGaSus' window sum: every window of a group counts with the whole group's statistic.

    When a group grows, its earlier windows change their value with it; so the history consists of
    groups, not of published values.
    """

    statistic: str = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistic not in STATISTICS:
            raise UsageError(f"statistic must be one of {', '.join(STATISTICS)}, got {self.statistic!r}")

    def step(self, state: QueryHistory, item: Groups | None) -> tuple[QueryHistory, list[Ratio | None]]:
        """Process the last group of every zone (None: not released); return the exact sums, shape [zones]."""
        if item is None:
            return self.initial(), [None]
        value = SMOOTHERS[self.statistic](item)
        after = self._extended(state, value)
        known = after.numerator.shape[1]
        inside = np.arange(known) >= known - item.size[:, None]
        parts = zip((after.numerator, after.denominator), value, strict=True)
        after = QueryHistory(*(np.where(inside, new[:, None], old) for old, new in parts))
        return after, [total(after) if self._full(after) else None]


@dataclass(frozen=True)
class JumpDrop(_Windows):
    """Where the value has risen or fallen by δ or more since w - 1 windows ago."""

    threshold: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.windows < 2 or self.threshold <= 0:
            raise UsageError(
                f"windows must be at least 2 and threshold positive, got {self.windows} and {self.threshold}"
            )

    def step(self, state: QueryHistory, item: Ratio | None) -> tuple[QueryHistory, list[Ints | None]]:
        """Process a window's values (None: not released); return 1 for a jump, -1 for a drop, 0 otherwise."""
        if item is None:
            return self.initial(), [None]
        after = self._extended(state, item)
        return after, [self._signs(after) if self._full(after) else None]

    def _signs(self, history: QueryHistory) -> Ints:
        top, bottom = history.numerator.astype(object), history.denominator.astype(object)
        change = top[:, -1] * bottom[:, 0] - top[:, 0] * bottom[:, -1]
        change = change * self.threshold.denominator
        least = bottom[:, 0] * bottom[:, -1] * self.threshold.numerator
        return np.asarray((change >= least).astype(np.int64) - (change <= -least).astype(np.int64))


@dataclass(frozen=True)
class LowSignal:
    """Where the sum over the last w windows is δ or less."""

    sums: WindowSum | GroupWindowSum
    """The compared sum; state and items are those of this operator."""
    threshold: Fraction

    def initial(self) -> QueryHistory:
        """Return the history before the first window."""
        return self.sums.initial()

    def step(self, state: QueryHistory, item: Any) -> tuple[QueryHistory, list[Ints | None]]:
        """Process the sum's input; return 1 where the signal is low, else 0."""
        after, [sums] = self.sums.step(state, item)
        if sums is None:
            return after, [None]
        most = sums.denominator * self.threshold.numerator
        return after, [np.asarray(sums.numerator * self.threshold.denominator <= most).astype(np.int64)]

    def encode(self, state: QueryHistory) -> bytes:
        """Return the history's bytes."""
        return self.sums.encode(state)

    def decode(self, data: bytes) -> QueryHistory:
        """Return the history."""
        return self.sums.decode(data)


def total(history: QueryHistory) -> Ratio:
    """Return the exact sums over all windows of a history: unbounded integers over each zone's common denominator."""
    bottom = history.denominator.astype(object)
    common = np.lcm.reduce(bottom, axis=1)
    return Ratio((history.numerator.astype(object) * (common[:, None] // bottom)).sum(axis=1), common)


def rounded(value: Ratio, *, negative: bool = False) -> Ints:
    """Return the integers to publish: rounded half to even, and at least 0 unless ``negative``."""
    pairs = zip(value.numerator, value.denominator, strict=True)
    whole = [round(Fraction(int(top), int(bottom))) for top, bottom in pairs]
    return np.array(whole if negative else [max(0, number) for number in whole], dtype=np.int64)
