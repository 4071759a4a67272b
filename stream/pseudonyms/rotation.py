"""Counts under rotating pseudonyms: each name counts as a device.

Ghayyur (2022), section 4.2.2, calls the technique TTL. Names are salted again, so that a device whose name changes
while it is present counts under both names until the earlier one is no longer valid. The technique adds no noise and
gives no guarantee; it exists here for comparison with mechanisms that do. There are two rules for when names change:

    grid    salts change on a grid of time, for all devices at once (4.2.2: periodically)
    first   a name is valid from the first observation that has it; the first observation more than T later gets a new
            name (4.6.2: not for all users at once, but by the time when each has connected)

``pseudonym.ttl`` of a policy uses the grid, but ends the earlier name, so that no device counts twice there.

    symbol  here        meaning
    V       validity    how long an observation holds
    T       life        time to live of a salt
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.records import Micros

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
EpochAlignment = Literal["grid", "first"]


class Sightings(NamedTuple):
    """Which device was seen where and when, as columns of one length; restricted."""

    time: Ints
    """Microseconds."""
    device: Ints
    """A number that identifies the device."""
    zone: Ints
    """Index in the registry; -1 where the device leaves."""

    def since(self, instant: Micros) -> Sightings:
        """Return the sightings from an instant on."""
        late = self.time >= instant
        return Sightings(*(column[late] for column in self))


def counts_under_names(
    seen: Sightings, ticks: Ints, zones: int, validity: Micros, life: Micros | None, turn: EpochAlignment = "grid"
) -> Ints:
    """Return the number of names present in each zone at each tick; with ``life`` None that of devices.

    Devices are counted as ``OccupancyOperator`` counts them.

    Args:
        seen: sightings in any order; the last row of one device and time counts.
        ticks: the instants of the counts, ascending.
        zones: the number of zones.
        validity: V, microseconds.
        life: T, microseconds, or None if names never change.
        turn: the rule for when names change.

    Returns:
        Counts, shape [ticks, zones].

    Raises:
        UsageError: a life of 0 or less.
    """
    if life is not None and life <= 0:
        raise UsageError(f"life of a name must be above 0, got {life}")
    order = np.lexsort((np.arange(len(seen.time)), seen.time, seen.device))
    rows = Sightings(*(column[order] for column in seen))
    same = _same_name(rows, life, turn)
    end = rows.time + validity
    end[:-1] = np.where(same, np.minimum(end[:-1], rows.time[1:]), end[:-1])
    stays = rows.zone >= 0
    changes = np.zeros((len(ticks) + 1, zones), dtype=np.int64)
    np.add.at(changes, (np.searchsorted(ticks, rows.time[stays]), rows.zone[stays]), 1)
    np.add.at(changes, (np.searchsorted(ticks, end[stays]), rows.zone[stays]), -1)
    return np.asarray(np.cumsum(changes, axis=0)[:-1])


def _same_name(rows: Sightings, life: Micros | None, turn: EpochAlignment) -> Flags:
    """Return for each row but the first whether it has the name of the row before; rows are by device and time."""
    same: Flags = rows.device[1:] == rows.device[:-1]
    if life is None:
        return same
    if turn == "grid":
        salt = rows.time // life
        return np.asarray(same & (salt[1:] == salt[:-1]))
    continues = np.append(np.zeros(min(1, len(rows.time)), dtype=np.bool_), same)
    first_rows = np.flatnonzero(~continues)
    ends = np.append(first_rows[1:], len(continues))[: len(first_rows)]  # after each device's last row
    while len(first_rows):  # all devices' first names, then all second ones, and so on
        continues[first_rows] = False
        nexts = _first_after(rows.time, first_rows, ends, rows.time[first_rows] + life)
        first_rows, ends = nexts[nexts < ends], ends[nexts < ends]
    return continues[1:]


def _first_after(time: Ints, begin: Ints, end: Ints, limit: Ints) -> Ints:
    """Return for each range begin … end the first row whose time is above its limit; ``end`` if none is."""
    low, high = begin.copy(), end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        above = time[np.minimum(middle, len(time) - 1)] > limit
        searching = low < high
        high = np.where(searching & above, middle, high)
        low = np.where(searching & ~above, middle + 1, low)
    return low
