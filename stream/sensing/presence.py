"""Stays: the time that a device spent in a zone, computed from its observations.

An observation at ``t`` means that the device is present in [t, t + V), where V is the validity. The device's next
observation, if it comes within V, ends this presence at its own time. Consecutive observations in the same zone that
are at most V apart make one stay. With ``tail`` a stay ends V after its last observation, unless another observation
ended it before; without ``tail`` it ends at its last observation. Stays are half-open: the device is in the zone at
``start`` and no longer at ``end``.

If a device has several observations at the same instant, only the last one counts. A ``Departure`` ends a stay at the
place that it names, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from stream.records import Micros

END = -1
"""Place of a row that ends the device's stay."""
UNKNOWN = -2
"""Place of an access point that the site does not have."""
LEAVING = -3
"""``LEAVING`` - n is the place of a row that ends the device's stay if it is at place n."""
Stamp = tuple[str, int, int]
"""(source, session, sequence) of a batch: orders observations of the same time."""

Entry = tuple[Micros, Stamp, int, int]
"""(time, stamp, row, place or END); the greater of two entries of a device is the later one.

A place is the index of a zone, or with sessions that of an access point.
"""


def moved(place: int, now: Mapping[int, int]) -> int:
    """Return the place of a row under the present registry; of a row about a removed place, ``END``."""
    if place > LEAVING:
        return now[place]
    return END if now[LEAVING - place] == END else LEAVING - now[LEAVING - place]


Cut = Callable[[Micros], int]
"""Maps an instant to the number of its period; a stay does not cross from one period into another."""


class Departure(NamedTuple):
    """A device leaves a place."""

    place: str


Seen = str | Departure | None
"""Where a device is, or which place it leaves; None where its stay ends wherever it is."""


class OpenStay(NamedTuple):
    """A stay that a later observation may still prolong."""

    zone: str
    start: Micros
    last: Micros
    """Time of its latest observation."""


class FinishedStay(NamedTuple):
    """A finished stay of one device."""

    device: str
    zone: str
    start: Micros
    end: Micros


def extend(
    stays_open: dict[str, OpenStay],
    sightings: Mapping[tuple[str, Micros], Seen],
    validity: Micros,
    *,
    tail: bool = True,
    cut: Cut | None = None,
) -> list[FinishedStay]:
    """Add sightings to the open stays, in place; return the stays that they finished.

    Args:
        stays_open: the open stay of each device that has one.
        sightings: (device, time) -> zone, or where the device's stay ends. Every time is later
            than those added before for the same device; the mapping's own order does not matter.
        validity: V, microseconds, positive.
        tail: whether a stay lasts beyond its last observation.
        cut: periods that a stay may not cross; None for one endless period.

    Returns:
        Finished stays, by device, then by time.
    """
    finished = []
    for device, time in sorted(sightings):
        seen = sightings[device, time]
        if isinstance(seen, Departure) and (device not in stays_open or stays_open[device].zone != seen.place):
            continue
        zone = None if isinstance(seen, Departure) else seen
        stay = stays_open.pop(device, None)
        if stay is not None and _continues(stay, time, zone, validity, cut):
            stays_open[device] = stay._replace(last=time)
            continue
        if stay is not None:
            end = min(time, stay.last + validity) if tail else stay.last
            finished.append(FinishedStay(device, stay.zone, stay.start, end))
        if zone is not None:
            stays_open[device] = OpenStay(zone, time, time)
    return finished


def _continues(stay: OpenStay, time: Micros, zone: str | None, validity: Micros, cut: Cut | None) -> bool:
    if zone != stay.zone or time - stay.last > validity:
        return False
    return cut is None or cut(time) == cut(stay.last)


def expire(stays_open: dict[str, OpenStay], validity: Micros, until: Micros | None) -> list[FinishedStay]:
    """Close, in place, the stays that no observation after ``until`` can prolong; None closes all.

    Returns:
        The closed stays, each ending V after its last observation, by device.
    """
    over = [d for d, stay in stays_open.items() if until is None or stay.last + validity <= until]
    closed = []
    for device in sorted(over):
        stay = stays_open.pop(device)
        closed.append(FinishedStay(device, stay.zone, stay.start, stay.last + validity))
    return closed


def stays(
    observations: Iterable[tuple[Micros, str, str | None]],
    validity: Micros,
    *,
    tail: bool,
    cut: Cut | None = None,
) -> list[FinishedStay]:
    """Return all stays of a finished set of observations (time, device, zone), by start, then device.

    If one device has several observations at one time, the last one in order counts; otherwise order does not matter.
    A zone of None ends the device's stay.
    """
    sightings: dict[tuple[str, Micros], Seen] = {(device, time): zone for time, device, zone in observations}
    stays_open: dict[str, OpenStay] = {}
    found = extend(stays_open, sightings, validity, tail=tail, cut=cut)
    for device, stay in stays_open.items():
        end = stay.last + validity if tail else stay.last
        found.append(FinishedStay(device, stay.zone, stay.start, end))
    return sorted(found, key=lambda stay: (stay.start, stay.device))
