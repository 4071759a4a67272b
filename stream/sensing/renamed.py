"""What would be counted if each device got a new name every so often and each name counted as a device of its own.

The technique is called TTL in Ghayyur (2022), section 4.2.2: names are salted anew, so that a device whose name is
changed while it is present counts under both names until the earlier one is no longer valid. It adds no noise and
promises nothing; it stands here to be compared with what does. Salts change on a grid of time, for all devices at once.
``pseudonym.ttl`` of a policy has the same grid, but ends the earlier name, so that nobody counts twice there.

    symbol  here        meaning
    V       validity    how long an observation holds
    T       life        time to live of a salt
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.records import Micros

Ints = NDArray[np.int64]


class Sightings(NamedTuple):
    """Who was seen where and when, as columns of one length; restricted."""

    time: Ints
    """Microseconds."""
    device: Ints
    """Any number that tells devices apart."""
    zone: Ints
    """Index in the registry; -1 where the device leaves."""


def counts_under_names(seen: Sightings, ticks: Ints, zones: int, validity: Micros, life: Micros | None) -> Ints:
    """Return names present in each zone at each tick; with ``life`` None devices, as ``Sense`` counts them.

    Args:
        seen: sightings in any order; of one device and time the last row wins.
        ticks: instants at which is counted, ascending.
        zones: how many there are.
        validity: V, microseconds.
        life: T, microseconds, or None where names are never changed.

    Returns:
        Counts, shape [ticks, zones].
    """
    order = np.lexsort((np.arange(len(seen.time)), seen.time, seen.device))
    time, device, zone = (column[order] for column in seen)
    salt = np.zeros_like(time) if life is None else time // life
    same = (device[1:] == device[:-1]) & (salt[1:] == salt[:-1])
    end = time + validity
    end[:-1] = np.where(same, np.minimum(end[:-1], time[1:]), end[:-1])
    stays = zone >= 0
    changes = np.zeros((len(ticks) + 1, zones), dtype=np.int64)
    np.add.at(changes, (np.searchsorted(ticks, time[stays]), zone[stays]), 1)
    np.add.at(changes, (np.searchsorted(ticks, end[stays]), zone[stays]), -1)
    return np.asarray(np.cumsum(changes, axis=0)[:-1])
