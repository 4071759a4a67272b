"""What would be counted if each device got a new name every so often and each name counted as a device of its own.

The technique is called TTL in Ghayyur (2022), section 4.2.2: names are salted anew, so that a device whose name is
changed while it is present counts under both names until the earlier one is no longer valid. It adds no noise and
promises nothing; it stands here to be compared with what does. When names turn over is said in two ways:

    grid    salts change on a grid of time, for all devices at once (4.2.2: periodically)
    first   a name lives from the observation that first bears it; the first one more than T behind that bears a new
            name (4.6.2: not for all users at once, but by the time when each has connected)

``pseudonym.ttl`` of a policy has the grid, but ends the earlier name, so that nobody counts twice there.

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
Turn = Literal["grid", "first"]


class Sightings(NamedTuple):
    """Who was seen where and when, as columns of one length; restricted."""

    time: Ints
    """Microseconds."""
    device: Ints
    """Any number that tells devices apart."""
    zone: Ints
    """Index in the registry; -1 where the device leaves."""

    def since(self, instant: Micros) -> Sightings:
        """Return those from an instant on."""
        late = self.time >= instant
        return Sightings(*(column[late] for column in self))


def counts_under_names(
    seen: Sightings, ticks: Ints, zones: int, validity: Micros, life: Micros | None, turn: Turn = "grid"
) -> Ints:
    """Return names present in each zone at each tick; with ``life`` None devices, as ``Sense`` counts them.

    Args:
        seen: sightings in any order; of one device and time the last row wins.
        ticks: instants at which is counted, ascending.
        zones: how many there are.
        validity: V, microseconds.
        life: T, microseconds, or None where names are never changed.
        turn: when names turn over.

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


def _same_name(rows: Sightings, life: Micros | None, turn: Turn) -> Flags:
    """Return for each row but the first whether it bears the name of the row before it; rows are by device and time."""
    same: Flags = rows.device[1:] == rows.device[:-1]
    if life is None:
        return same
    if turn == "grid":
        salt = rows.time // life
        return np.asarray(same & (salt[1:] == salt[:-1]))
    bears = np.append(np.zeros(min(1, len(rows.time)), dtype=np.bool_), same)
    born = np.flatnonzero(~bears)
    ends = np.append(born[1:], len(bears))[: len(born)]  # behind each device's last row
    while len(born):  # all devices' first names, then all second ones, and so on
        bears[born] = False
        nexts = _first_after(rows.time, born, ends, rows.time[born] + life)
        born, ends = nexts[nexts < ends], ends[nexts < ends]
    return bears[1:]


def _first_after(time: Ints, begin: Ints, end: Ints, limit: Ints) -> Ints:
    """Return of each stretch begin … end the first row whose time is above its limit; ``end`` where none is."""
    low, high = begin.copy(), end.copy()
    while (low < high).any():
        middle = (low + high) // 2
        above = time[np.minimum(middle, len(time) - 1)] > limit
        searching = low < high
        high = np.where(searching & above, middle, high)
        low = np.where(searching & ~above, middle + 1, low)
    return low
