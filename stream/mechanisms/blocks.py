"""Windows that are revised together: a block of them is held until it is due, and then revised by all that is known.

Held are the noisy values of its windows and the state of the mechanism's filters before the first, rounded
(``filter_memory``); what lies between is reckoned again when the block is due, so that a snapshot does not have to hold
it. All of it is post-processing of noisy values, and no true count is among it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from stream.envelope import join_parts, split_parts
from stream.errors import DataError
from stream.mechanisms.contract import Revisable, Values
from stream.mechanisms.filter import FilterItem, FilterState
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.filter_memory import decode_rounded, encode_rounded, remembered_size, rounded
from stream.mechanisms.noise import Ints
from stream.policy.privacy_day import PrivacyDays
from stream.records import HOUR, Micros


class Block(NamedTuple):
    """A span of windows."""

    end: Micros
    """Of its last window: its windows end after the block before, and no later than this."""
    due: Micros
    """It is revised with the first window that ends no earlier."""


BlockOf = Callable[[Micros], Block]
"""The block of a window, given by its end."""


def block_of_hour(end: Micros) -> Block:
    """Return the hour of a window: it is revised an hour later, when every window of it has an hour behind it."""
    hour = -(-end // HOUR) * HOUR
    return Block(hour, hour + HOUR)


def blocks_of_days(days: PrivacyDays) -> BlockOf:
    """Return what says of a window in which of these days it is: a day is revised when it is over."""

    def block_of_day(end: Micros) -> Block:
        day = days.at(end)
        return Block(day.end, day.end)

    return block_of_day


class Window(NamedTuple):
    """What is held of a window."""

    end: Micros
    coverage: Fraction
    item: FilterItem
    """Its noisy values, shape [zones], and its place in the local week."""


_FARTHEST = 1 << 30
_NOISY = "<i4"
"""Noisy values are held within 2**30: the filter takes one that is farther away for one at this distance."""
_A_WINDOW = 64
"""Bytes that end, coverage and place in the week take."""


def window_of(end: Micros, coverage: Fraction, noisy: Ints, slot: Slot) -> Window:
    """Return a window as it is held."""
    return Window(end, coverage, FilterItem(np.clip(noisy, -_FARTHEST, _FARTHEST), slot))


class Passed(NamedTuple):
    """A window that has passed."""

    end: Micros
    window: Window | None
    """None where it was denied, and so has no noisy values."""
    before: Any
    """The mechanism's state before it; unread where it was denied, or where windows before it are held."""


class Revised(NamedTuple):
    """A window whose values are better known than they were."""

    window: Window
    values: Values
    at: Micros
    """End of the window with which it is published."""


@dataclass(frozen=True)
class Held:
    """The windows not revised yet, in order, and the state of each filter before the first; none without any."""

    start: tuple[FilterState, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class Revision:
    """Revises a mechanism's windows block by block, a stage of the stream."""

    mechanism: Revisable
    block_of: BlockOf

    def initial(self) -> Held:
        """Return the state before the first window."""
        return Held((), ())

    def most_bytes(self, windows: int) -> int:
        """Return what at most so many windows take in a snapshot, before it is compressed."""
        zones = sum(len(each.capacities) for each in self.mechanism.filters)
        return windows * (4 * zones + _A_WINDOW) + sum(remembered_size(each) for each in self.mechanism.filters)

    def step(self, state: Held, item: Passed) -> tuple[Held, list[Revised]]:
        """Hold a window; revise the blocks that are due with it, the earliest first."""
        if item.window is not None:
            start = state.start or self._remembered(self.mechanism.states(item.before))
            state = Held(start, (*state.windows, item.window))
        made: list[Revised] = []
        while state.windows and self.block_of(state.windows[0].end).due <= item.end:
            state, revised = self._first_block(state, item.end)
            made += revised
        return state, made

    def finish(self, state: Held) -> list[Revised]:
        """Revise all that is held, by what there is, where nothing comes any more."""
        made: list[Revised] = []
        while state.windows:
            state, revised = self._first_block(state, state.windows[-1].end)
            made += revised
        return made

    def _first_block(self, state: Held, at: Micros) -> tuple[Held, list[Revised]]:
        last = self.block_of(state.windows[0].end).end
        block = tuple(takewhile(lambda window: window.end <= last, state.windows))
        after, values = self.mechanism.smooth(state.start, [window.item for window in state.windows], len(block))
        rest = state.windows[len(block) :]
        revised = [Revised(window, made, at) for window, made in zip(block, values, strict=True)]
        return Held(self._remembered(after) if rest else (), rest), revised

    def _remembered(self, states: tuple[FilterState, ...]) -> tuple[FilterState, ...]:
        return tuple(rounded(state) for state in states)

    def encode(self, state: Held) -> bytes:
        """Return the stable byte form: of each window its end, coverage and place in the week; noisy values; states."""
        windows = [[window.end, str(window.coverage), *window.item.slot] for window in state.windows]
        noisy = b"".join(window.item.noisy.astype(_NOISY).tobytes() for window in state.windows)
        states = {str(place): encode_rounded(each) for place, each in enumerate(state.start)}
        return join_parts({"windows": windows}, {"noisy": noisy} | states)

    def decode(self, data: bytes) -> Held:
        """Return the state of a byte form; DataError where it is not one of this stage."""
        head, parts = split_parts(data)
        try:
            rows, noisy = head["windows"], np.frombuffer(parts["noisy"], dtype=_NOISY).astype(np.int64)
            if not rows:
                return self.initial()
            windows = tuple(
                Window(end, Fraction(coverage), FilterItem(values, Slot(*slot)))
                for (end, coverage, *slot), values in zip(rows, noisy.reshape(len(rows), -1), strict=True)
            )
            start = [decode_rounded(each, parts[str(place)]) for place, each in enumerate(self.mechanism.filters)]
        except (KeyError, TypeError, ValueError):
            raise DataError("revision state: must list windows, their noisy values and the state before them") from None
        return Held(tuple(start), windows)
