"""The windows of an hour, which are revised together: they are held until an hour later, and then revised by all of it.

Held are the noisy values of its windows and the posterior of the mechanism's filters before the first, rounded
(``filter_memory``); what lies between is reckoned again when the hour is due, so that a snapshot does not have to hold
it. All of it is post-processing of noisy values, and no true count is among it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from stream.envelope import join_parts, split_parts
from stream.errors import DataError
from stream.mechanisms.active import Posterior
from stream.mechanisms.contract import Revisable, Values
from stream.mechanisms.filter import FilterItem, FilterState, RegimeFilter
from stream.mechanisms.filter_calendar import Slot
from stream.mechanisms.filter_memory import (
    begun_again,
    decode_rounded,
    encode_rounded,
    remembered_size,
    rounded,
)
from stream.mechanisms.nightly import FARTHEST
from stream.mechanisms.noise import Ints
from stream.records import HOUR, Micros


class Block(NamedTuple):
    """A span of windows."""

    end: Micros
    """Of its last window: its windows end after the block before, and no later than this."""
    due: Micros
    """It is revised with the first window that ends no earlier."""


def block_of_hour(end: Micros) -> Block:
    """Return the hour of a window: it is revised an hour later, when every window of it has an hour behind it."""
    hour = -(-end // HOUR) * HOUR
    return Block(hour, hour + HOUR)


class Window(NamedTuple):
    """What is held of a window."""

    end: Micros
    coverage: Fraction
    item: FilterItem
    """Its noisy values, shape [zones], and its place in the local week."""


_NOISY = "<i4"
_A_WINDOW = 64
"""Bytes that end, coverage and place in the week take."""


def window_of(end: Micros, coverage: Fraction, noisy: Ints, slot: Slot) -> Window:
    """Return a window as it is held."""
    return Window(end, coverage, FilterItem(np.clip(noisy, -FARTHEST, FARTHEST), slot))


class Passed(NamedTuple):
    """A window that has passed."""

    end: Micros
    window: Window | None
    """None where it was denied, and so has no noisy values."""
    before: Any
    """The mechanism's state before it."""
    values: Values | None = None
    """What was published of it."""


class Revised(NamedTuple):
    """A window whose values are better known than they were."""

    end: Micros
    coverage: Fraction
    values: Values
    at: Micros
    """End of the window with which it is published."""


@dataclass(frozen=True)
class Held:
    """The windows not revised yet, in order, and the posterior of each filter before the first; none without any."""

    start: tuple[Posterior | None, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class Revision:
    """Revises a mechanism's windows hour by hour, a stage of the stream."""

    mechanism: Revisable

    def initial(self) -> Held:
        """Return the state before the first window."""
        return Held((), ())

    def most_bytes(self, tick: Micros) -> int:
        """Return what is held at most between windows that are so far apart, before it is compressed."""
        zones = sum(len(each.capacities) for each in self._filters)
        windows = 2 * HOUR // tick
        return windows * (4 * zones + _A_WINDOW) + sum(remembered_size(each) for each in self._filters)

    @property
    def _filters(self) -> list[RegimeFilter]:
        return [each.filter for each in self.mechanism.nightly]

    def step(self, state: Held, item: Passed) -> tuple[Held, list[Revised]]:
        """Hold a window; revise the hours that are due with it, the earliest first."""
        now = self.mechanism.states(item.before)
        if item.window is not None:
            start = state.start if state.windows else tuple(rounded(each) for each in now)
            state = Held(start, (*state.windows, item.window))
        made: list[Revised] = []
        while state.windows and block_of_hour(state.windows[0].end).due <= item.end:
            state, revised = self._first_hour(state, item.end, now)
            made += revised
        return state, made

    def finish(self, state: Held, now: Any) -> list[Revised]:
        """Revise all that is held, by what there is, where nothing comes any more; ``now`` is the mechanism's state."""
        made: list[Revised] = []
        while state.windows:
            state, revised = self._first_hour(state, state.windows[-1].end, self.mechanism.states(now))
            made += revised
        return made

    def _first_hour(self, state: Held, at: Micros, now: tuple[FilterState, ...]) -> tuple[Held, list[Revised]]:
        last = block_of_hour(state.windows[0].end).end
        hour = tuple(takewhile(lambda window: window.end <= last, state.windows))
        initial = [each.initial() for each in self._filters]
        start = [begun_again(*each) for each in zip(state.start, now, initial, strict=True)]
        after, values = self.mechanism.smooth(start, [window.item for window in state.windows], len(hour))
        rest = state.windows[len(hour) :]
        revised = [Revised(window.end, window.coverage, made, at) for window, made in zip(hour, values, strict=True)]
        return Held(tuple(rounded(each) for each in after) if rest else (), rest), revised

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
            start = [decode_rounded(each, parts[str(place)]) for place, each in enumerate(self._filters)]
        except (KeyError, TypeError, ValueError):
            raise DataError("revision state: must list windows, their noisy values and the state before them") from None
        return Held(tuple(start), windows)
