"""What released counts are still good for: the utility of a run, and how it varies over time and space.

    heatmap    1 - |Δcolour| / 9 in the mean over time and zones (Ghayyur, thesis, 4.6.2)
    building   1 - mean |error| / mean count of the building, which is counted as one, day by day, in the mean over
               days; below 0 where errors are larger than counts
    tasks      what a detective's answers are worth (``stream/tuning/detective.py``)

Utilities compare released with true values, so they are restricted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stream.errors import DataError
from stream.evaluation.heatmap import usual_in, utilities
from stream.mechanisms.colours import Floats, Usual
from stream.mechanisms.noise import Ints
from stream.tuning.world import Bools, World


class Released(NamedTuple):
    """What a run released of a world's windows, in their order."""

    zones: Ints
    """Shape [windows, zones]."""
    half_widths: Ints
    """95 % half-widths of ``zones``, of the same shape; 0 where nothing was added."""


class Measured(NamedTuple):
    """The utility of a run."""

    utility: float
    """At most 1."""
    spread: float
    """Standard deviation over all times and places of what the utility is the mean of."""
    over_time: float
    """Standard deviation over times of the mean over places."""
    over_space: float
    """Standard deviation over places of the mean over times; 0 where there is one place."""


Utility = Callable[[Released], Measured]


def measured(cells: Floats) -> Measured:
    """Return the mean of utilities, shape [times, places], and how they vary."""
    return Measured(
        float(cells.mean()), float(cells.std()), float(cells.mean(axis=1).std()), float(cells.mean(axis=0).std())
    )


def heatmap_utility(world: World, asked: Bools) -> Utility:
    """Return the utility of a heat map, coloured by what is usual in the windows before those that are measured.

    Args:
        world: what is released.
        asked: which of its released windows are measured.

    Raises:
        DataError: there is no window to be measured, or some time of day was not seen twice before.
    """
    _check_asked(asked)
    usual = _usual(world)
    places = world.minutes[world.released][asked]
    by = Usual(*(np.stack([getattr(usual[minute], name) for minute in places.tolist()]) for name in Usual._fields))
    truth = world.counts[world.released][asked]

    def utility(released: Released) -> Measured:
        return measured(utilities(truth, released.zones[asked], by))

    return utility


def _usual(world: World) -> dict[int, Usual]:
    """Return what is usual at each time of day that is measured."""
    past, minutes = world.counts[: world.measured], world.minutes[: world.measured]
    found = {}
    for minute in np.unique(world.minutes[world.measured :]).tolist():
        seen = past[minutes == minute]
        if len(seen) < 2:
            raise DataError("recording must hold at least two days before the measured ones, for what is usual then")
        found[minute] = usual_in(seen)
    return found


def building_utility(world: World, asked: Bools) -> Utility:
    """Return the utility of the building's count: 1 - mean |error| / mean count of each day, in the mean over days.

    Args:
        world: what is released, of one zone that is the building (``World.as_one``).
        asked: which of its released windows are measured.

    Raises:
        DataError: there is no window to be measured, or a day on which nobody is counted in any of them.
    """
    _check_asked(asked)
    truth = world.counts[world.released][asked].sum(axis=1)
    days = world.days[world.released][asked]
    numbers = np.unique(days)
    mean = {day: float(truth[days == day].mean()) for day in numbers.tolist()}
    if min(mean.values()) == 0:
        raise DataError("recording must have somebody counted on each measured day, for a mean count above 0")
    scale = np.array([mean[day] for day in days.tolist()])

    def utility(released: Released) -> Measured:
        cells = 1 - np.abs(released.zones[asked].sum(axis=1) - truth) / scale
        by_day = float(np.mean([cells[days == day].mean() for day in numbers]))
        return measured(cells[:, None])._replace(utility=by_day)

    return utility


def _check_asked(asked: Bools) -> None:
    if not asked.any():
        raise DataError("recording must hold a window to be measured, in the hours that are asked for")
