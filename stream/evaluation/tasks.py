"""Four questions of a building analyst, how the answer follows from counts, and what an answer is worth.

They are the tasks of a study in which people answered them from private streams (Ghayyur, thesis, section 3.2.1). The
same function gives the truth, from exact counts, and what a mechanism's values would answer; only whole numbers are
compared, so that no answer depends on the machine.

Counts of one place are a vector, a window an entry, in devices. Released values may be below zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError

Ints = NDArray[np.int64]
FULL = 100
"""Points of an answer without error."""
WORTHLESS = {"above": 36, "region": 3, "stuck": 24, "event": 12}
"""By task, from so far off on an answer is worth nothing: windows, regions before it, windows, windows."""


class Score(NamedTuple):
    """What an answer is worth."""

    off: int
    """Distance from the truth, in the task's own unit, at least 0."""
    points: int
    """In [0, 100]: all of them for the truth, none from ``worthless`` on, in proportion between."""


def score(off: int, worthless: int) -> Score:
    """Return the score of an answer.

    Args:
        off: its distance from the truth.
        worthless: distance, at least 1, from which on an answer is worth nothing.

    Raises:
        UsageError: a distance below 0, or ``worthless`` below 1.
    """
    if off < 0 or worthless < 1:
        raise UsageError(f"score: distances must be at least 0, and 1 for worthless, got {off} and {worthless}")
    return Score(off, FULL * max(0, worthless - off) // worthless)


def windows_above(counts: Ints, limit: int) -> int:
    """Return in how many windows more than ``limit`` devices are counted: how often a room is fuller than it may be."""
    return int((counts > limit).sum())


def by_occupancy(regions: Mapping[str, Ints]) -> list[str]:
    """Return regions from the most occupied on, by the mean of their counts; of equals the first by name.

    Raises:
        UsageError: no region, or regions of unlike length, or without windows.
    """
    lengths = {len(counts) for counts in regions.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(f"regions must have counts of the same windows, got lengths {sorted(lengths)}")
    return sorted(regions, key=lambda name: (-int(regions[name].sum()), name))


def places_off(order: Sequence[str], chosen: str) -> int:
    """Return how many regions are more occupied than the chosen one.

    Raises:
        UsageError: the chosen one is none of them.
    """
    if chosen not in order:
        raise UsageError(f"region must be one of {', '.join(order)}, got {chosen!r}")
    return order.index(chosen)


def stuck_from(counts: Ints, at_most: int = 0) -> int | None:
    """Return the first window from which on all counts are ``at_most`` or less, None where the last one is not.

    That is where a sensor broke which since then counts nothing. For noisy values ``at_most`` is their half-width.
    """
    above = np.flatnonzero(counts > at_most)
    first = 0 if len(above) == 0 else int(above[-1]) + 1
    return None if first == len(counts) else first


def event_start(weeks: Ints, span: int) -> int:
    """Return the window of a day at which a weekly event begins: where, over all weeks, most come within a short time.

    Args:
        weeks: counts of one place on the event's day of each week, shape [weeks, windows of a day].
        span: windows, at least 1, over which counts before and after are added up; half an hour is 6 windows of 5 min.

    Raises:
        UsageError: no week, or a day shorter than two spans.
    """
    if weeks.ndim != 2 or len(weeks) == 0 or span < 1 or weeks.shape[1] < 2 * span:
        raise UsageError(f"weeks must have the shape [weeks, at least {2 * span} windows], got {weeks.shape}")
    so_far = np.concatenate([[0], np.cumsum(weeks.sum(axis=0))])
    within = so_far[span:] - so_far[:-span]  # of the span that begins at each window
    return span + int(np.argmax(within[span:] - within[:-span]))
