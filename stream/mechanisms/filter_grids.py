"""The grids 0 … C of all zones of a filter: where each count lies in arrays of them all, and how counts move there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stream.errors import DataError
from stream.mechanisms.active import TAKE, Chunk
from stream.mechanisms.exact import Real
from stream.mechanisms.filter_model import REGIMES, Cells, as_factors, kernels
from stream.mechanisms.noise import Ints


class Grids:
    """The grids of zones, by their capacities.

    In an array of all zones' counts lie the capacities one after the other, ascending, of each its counts 0 … C and
    of each count its zones; at the very end one place for what is on no grid.
    """

    def __init__(self, capacities: tuple[int, ...]) -> None:
        self.capacities: Ints = np.array(capacities)
        self.families: list[tuple[int, Ints]] = [
            (int(capacity), np.flatnonzero(self.capacities == capacity)) for capacity in np.unique(self.capacities)
        ]
        """(capacity, the zones that have it), ascending."""
        self._first, self._stride = np.zeros_like(self.capacities), np.zeros_like(self.capacities)
        begin = 0
        for capacity, zones in self.families:
            self._first[zones], self._stride[zones] = begin + np.arange(len(zones)), len(zones)
            begin += (capacity + 1) * len(zones)
        self._size = begin

    def refuse_windows(self, low: Ints, width: Ints) -> None:
        """Raise DataError where windows are not within the grids."""
        if (low < 0).any() or (width < 0).any() or (low + width > self.capacities + 1).any():
            raise DataError("filter state: windows must lie within the grids of the configuration")

    def places(self, chunk: Chunk) -> Ints:
        """Return where the counts of a chunk lie, shape [widest, zones]; the very end for those beyond its windows."""
        place = self._first[chunk.zones] + self._stride[chunk.zones] * chunk.counts
        return np.where(chunk.is_inside, place, self._size)

    def zeros(self, kind: type[Real]) -> NDArray[Real]:
        """Return a number for every count of every zone."""
        return np.zeros(self._size + 1, kind)

    def parts(self, values: NDArray[Real]) -> Iterator[NDArray[Real]]:
        """Yield, of an array of all zones' counts, each capacity's part, shape [C+1, zones]."""
        begin = 0
        for capacity, zones in self.families:
            end = begin + (capacity + 1) * len(zones)
            yield values[begin:end].reshape(capacity + 1, len(zones))
            begin = end

    @cached_property
    def _factors(self) -> tuple[Cells, Cells]:
        kernel = kernels(int(self.capacities.max()))
        return as_factors(kernel.up), as_factors(kernel.down)

    @cached_property
    def _norms(self) -> tuple[Cells, Ints]:
        """v of all capacities one after the other, and where each zone's capacity begins."""
        norms = [kernels(capacity).norm.astype(np.float32) for capacity, _ in self.families]
        first, begin = np.zeros_like(self.capacities), 0
        for capacity, zones in self.families:
            first[zones] = begin
            begin += capacity + 1
        return np.concatenate([*norms, np.zeros((REGIMES, 1), np.float32)], axis=1), first

    def kernels(self, chunk: Chunk) -> tuple[Cells, Cells, Cells]:
        """Return v, u and d of a chunk's counts, shape [16, 1, widest, zones]; v is 0 beyond its windows.

        Where all windows begin at 0, u and d are those of one zone for all.
        """
        norms, first = self._norms
        norm_at = np.where(chunk.is_inside, first[chunk.zones] + chunk.counts, norms.shape[1] - 1)
        counts = chunk.counts if chunk.low.any() else chunk.counts[:, :1]
        up, down = (_at(table, np.minimum(counts, table.shape[1] - 1)) for table in self._factors)
        return _at(norms, norm_at), up, down


def _at(table: Cells, places: Ints) -> Cells:
    return np.take(table, places, axis=1, mode=TAKE)[:, None]
