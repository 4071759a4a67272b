"""Where a posterior is: of each zone the counts that are not out of the question, and their cells side by side.

Of the counts 0 … C that a zone may have, a noisy value leaves a few dozen; the cells of all others are 0. A posterior
holds, zone after zone, the cells between the least and the largest count that is left, and a tick of the filter works
on those and on what they can reach (``windows``). Zones whose windows are of like width are worked on together, side
by side, and filled up with cells that weigh nothing: no zone's result depends on which others are beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import ordered_sum
from stream.mechanisms.filter_model import REGIMES, Cells, sight
from stream.mechanisms.noise import Ints
from stream.mechanisms.parameter import NoiseParameter

TAKE: Literal["wrap"] = "wrap"
"""How NumPy takes numbers fastest; no place is ever beyond an end."""
MARGIN = 4
"""Counts by which a window is wider than the cells it comes from, on both sides."""
SIDE_BY_SIDE = 1 << 15
"""Counts, over all its zones, that a chunk has at most: what is worked on together should stay near the processor."""


@dataclass(frozen=True)
class Posterior:
    """P of all zones, without the counts at both ends of which every cell is 0."""

    low: Ints
    """Of each zone the first count that is held, shape [zones]."""
    width: Ints
    """How many counts are held, likewise; 0 for all before the first tick."""
    order: Ints
    """The zones in the order in which their cells lie."""
    values: Cells
    """Shape [16 * copies, counts held + 1]; the last column is 0 and stands for every count that is not held."""

    @cached_property
    def start(self) -> Ints:
        """The column of each zone's first count, shape [zones]."""
        start = np.empty_like(self.width)
        start[self.order] = np.cumsum(self.width[self.order]) - self.width[self.order]
        return start

    def columns(self, zones: Ints, counts: Ints) -> Ints:
        """Return the columns of some counts of some zones, shape [..., zones]."""
        place = counts - self.low[zones]
        is_held = (place >= 0) & (place < self.width[zones])
        return np.where(is_held, self.start[zones] + place, self.values.shape[1] - 1)

    @cached_property
    def likeliest(self) -> Ints:
        """Each zone's likeliest count, the least of several, shape [zones]; 0 where none is held."""
        likeliest = np.zeros_like(self.low)
        held = self.order[self.width[self.order] > 0]
        if len(held):
            weight, start, width = ordered_sum(self.values), self.start[held], self.width[held]
            most = np.maximum.reduceat(weight[:-1], start)
            is_most = np.flatnonzero(weight[:-1] == np.repeat(most, width))
            likeliest[held] = self.low[held] + is_most[np.searchsorted(is_most, start)] - start
        return likeliest

    def of(self, zones: Ints) -> Posterior:
        """Return the posterior of some zones alone, in the order in which they are given."""
        begins = np.repeat(self.start[zones] - _starts(self.width[zones]), self.width[zones])
        columns = np.append(begins + np.arange(len(begins)), self.values.shape[1] - 1)
        values = np.take(self.values, columns, axis=1, mode=TAKE)
        return Posterior(self.low[zones], self.width[zones], np.arange(len(zones)), values)

    def dense(self, zones: Ints, capacity: int) -> Cells:
        """Return the cells of all counts 0 … capacity of some zones, shape [16, capacity + 1, copies, zones]."""
        columns = self.columns(zones, np.arange(capacity + 1)[:, None])
        cells = np.take(self.values, columns, axis=1, mode=TAKE).reshape(REGIMES, -1, *columns.shape)
        return np.ascontiguousarray(cells.swapaxes(1, 2))


def _starts(width: Ints) -> Ints:
    return np.cumsum(width) - width


def nothing(zones: int, copies: int) -> Posterior:
    """Return the posterior of so many zones before their first tick."""
    none = np.zeros(zones, np.int64)
    return Posterior(none, none, np.arange(zones), np.zeros((REGIMES * copies, 1), np.float32))


def trimmed(low: Ints, cells: Sequence[Cells]) -> Posterior:
    """Return the posterior of cells of counts, without those at both ends that are 0, in the order of the zones.

    Args:
        low: the count of each zone's first cells.
        cells: of each zone, shape [16 * copies, counts].
    """
    spans = [np.flatnonzero(each.any(axis=0)) for each in cells]
    first = np.array([span[0] if len(span) else 0 for span in spans])
    width = np.array([span[-1] + 1 - span[0] if len(span) else 0 for span in spans])
    held = [each[:, at : at + wide] for each, at, wide in zip(cells, first, width, strict=True)]
    values = np.concatenate([*held, np.zeros((len(cells[0]), 1), np.float32)], axis=1)
    return Posterior(np.where(width > 0, low + first, 0), width, np.arange(len(cells)), values)


def joined(parts: Sequence[tuple[Ints, Posterior]]) -> Posterior:
    """Return one posterior of parts; each with the zones, of all, that it is about."""
    zones = sum(len(each) for each, _ in parts)
    low, width = np.zeros(zones, np.int64), np.zeros(zones, np.int64)
    for each, part in parts:
        low[each], width[each] = part.low, part.width
    order = np.concatenate([each[part.order] for each, part in parts])
    none = parts[0][1].values[:, -1:]
    values = np.concatenate([*(part.values[:, :-1] for _, part in parts), none], axis=1)
    return Posterior(low, width, order, values)


class Windows(NamedTuple):
    """The counts that a tick works on."""

    low: Ints
    """The first, of each zone."""
    width: Ints


def windows(held: Posterior, capacities: Ints, noisy: Ints, noise: NoiseParameter) -> Windows:
    """Return the counts that a tick has to look at to weigh a posterior by noisy values.

    These are the counts that are held, for what is there moves, and beside them those that may come to weigh something.
    Beyond the counts held a posterior falls by a factor a count. A noisy value that lies v counts above the likeliest
    one takes a window to where it falls below the same share again: no farther than 2 v. Calendar and regimes change
    little from tick to tick, and what they change is within ``MARGIN``. Counts that the value makes e**-32 times less
    likely than its own are not looked for at all (``sight``).
    """
    seen_low, seen_high = sight(noise, capacities, noisy)
    beyond = np.clip(noisy, 0, capacities) - held.likeliest
    low, high = held.low, held.low + held.width
    down = np.maximum(low - MARGIN - 2 * np.maximum(-beyond, 0), seen_low)
    up = np.minimum(high + MARGIN + 2 * np.maximum(beyond, 0), seen_high)
    is_new = held.width == 0
    first = np.where(is_new, seen_low, np.minimum(low, down))
    last = np.where(is_new, seen_high, np.maximum(high, up))
    return Windows(first, last - first)


class Chunk(NamedTuple):
    """Zones whose windows are worked on side by side."""

    zones: Ints
    low: Ints
    width: Ints
    counts: Ints
    """Shape [widest, zones]: the counts of each window, going on beyond its end."""
    is_inside: NDArray[np.bool_]
    """Likewise: whether they are within it."""


def chunks(asked: Windows) -> Iterator[Chunk]:
    """Yield all zones: first those whose windows begin at 0, and of either those with narrow windows first."""
    order = np.lexsort((asked.width, asked.low > 0))
    widths, begin = asked.width[order], 0
    while begin < len(order):
        fits = widths[begin:] * np.arange(1, len(order) - begin + 1) <= SIDE_BY_SIDE
        alike = (asked.low[order[begin:]] > 0) == (asked.low[order[begin]] > 0)
        end = begin + max(1, int(np.argmin(np.append(fits & alike, [False]))))
        zones = order[begin:end]
        low, width = asked.low[zones], asked.width[zones]
        places = np.arange(width.max())[:, None]
        yield Chunk(zones, low, width, low + places, places < width)
        begin = end


def kept(chunk: Chunk, cells: Cells, is_kept: NDArray[np.bool_]) -> Posterior:
    """Return the posterior of a chunk's cells between the first and the last count of each zone that is kept.

    Args:
        chunk: the zones.
        cells: shape [16, copies, widest, zones].
        is_kept: shape [widest, zones].
    """
    widest, zones = is_kept.shape
    first = is_kept.argmax(axis=0)
    width = np.where(is_kept.any(axis=0), widest - is_kept[::-1].argmax(axis=0) - first, 0)
    place = np.arange(width.sum()) - np.repeat(_starts(width), width)
    source = (np.repeat(first, width) + place) * zones + np.repeat(np.arange(zones), width)
    flat = cells.reshape(-1, widest * zones)
    values = np.zeros((len(flat), len(source) + 1), np.float32)
    values[:, :-1] = np.take(flat, source, axis=1, mode=TAKE)
    return Posterior(chunk.low + first, width, np.arange(zones), values)
