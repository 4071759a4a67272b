"""The posterior of all zones, without the counts at both ends that are practically excluded.

Of the counts 0 … C that a zone may have, a noisy value leaves a few dozen; the cells of all others are 0. A posterior
contains, zone after zone, the cells between the smallest and the largest remaining count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from stream.mechanisms.exact import Ints, ordered_sum
from stream.mechanisms.filter.model import REGIMES, Cells

TAKE: Literal["wrap"] = "wrap"
"""NumPy's fastest mode of ``take``; no index is ever out of range."""


@dataclass(frozen=True)
class Posterior:
    """P of all zones, without the counts at both ends whose cells are all 0."""

    low: Ints
    """For each zone the first stored count, shape [zones]."""
    width: Ints
    """Number of stored counts, same shape; 0 for all before the first tick."""
    order: Ints
    """The zones in the order of their cells."""
    values: Cells
    """Shape [16 * copies, stored counts + 1]; the last column is 0 and stands for every count that is not stored."""

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
        """Each zone's likeliest count, the smallest of several, shape [zones]; 0 where none is stored."""
        likeliest = np.zeros_like(self.low)
        stored = self.order[self.width[self.order] > 0]
        if len(stored):
            weight, start, width = ordered_sum(self.values), self.start[stored], self.width[stored]
            most = np.maximum.reduceat(weight[:-1], start)
            is_most = np.flatnonzero(weight[:-1] == np.repeat(most, width))
            likeliest[stored] = self.low[stored] + is_most[np.searchsorted(is_most, start)] - start
        return likeliest

    def of(self, zones: Ints) -> Posterior:
        """Return the posterior of some zones alone, in the order in which they are given."""
        begins = np.repeat(self.start[zones] - starts(self.width[zones]), self.width[zones])
        columns = np.append(begins + np.arange(len(begins)), self.values.shape[1] - 1)
        values = np.take(self.values, columns, axis=1, mode=TAKE)
        return Posterior(self.low[zones], self.width[zones], np.arange(len(zones)), values)

    def dense(self, zones: Ints, capacity: int) -> Cells:
        """Return the cells of all counts 0 … capacity of some zones, shape [16, capacity + 1, copies, zones]."""
        columns = self.columns(zones, np.arange(capacity + 1)[:, None])
        cells = np.take(self.values, columns, axis=1, mode=TAKE).reshape(REGIMES, -1, *columns.shape)
        return np.ascontiguousarray(cells.swapaxes(1, 2))


def starts(width: Ints) -> Ints:
    """Return the column of each zone's first count, where zones of these widths follow each other."""
    return np.cumsum(width) - width


def nothing(zones: int, copies: int) -> Posterior:
    """Return the posterior of this number of zones before their first tick."""
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
    stored = [each[:, at : at + wide] for each, at, wide in zip(cells, first, width, strict=True)]
    values = np.concatenate([*stored, np.zeros((len(cells[0]), 1), np.float32)], axis=1)
    return Posterior(np.where(width > 0, low + first, 0), width, np.arange(len(cells)), values)


def joined(parts: Sequence[tuple[Ints, Posterior]]) -> Posterior:
    """Return one posterior from parts, each given with the indices of its zones."""
    zones = sum(len(each) for each, _ in parts)
    low, width = np.zeros(zones, np.int64), np.zeros(zones, np.int64)
    for each, part in parts:
        low[each], width[each] = part.low, part.width
    order = np.concatenate([each[part.order] for each, part in parts])
    none = parts[0][1].values[:, -1:]
    values = np.concatenate([*(part.values[:, :-1] for _, part in parts), none], axis=1)
    return Posterior(low, width, order, values)
