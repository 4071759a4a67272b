"""Utility of released values: heat map colours, and an analyst's questions.

**Heat maps** are drawn from released values instead of true counts. Truth and release are coloured by the same μ and σ,
so that only values decide the loss. The utility of a place at a time is 1 - |Δcolour| / 9: 1 where the colours agree, 0
where they are the two extremes. Utilities are averaged over time and space (Ghayyur, thesis, 4.6.2, which scores
colours by their distance). They are restricted.

**Questions.** They are the tasks of a study in which people answered them from private streams (Ghayyur, thesis,
section 3.2.1). The same function gives the truth, from exact counts, and the answer from a mechanism's values. Only
integers are compared, so that no answer depends on the machine. Counts of one place are a vector, one entry per window,
in devices. Released values may be negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.heatmap import COLOURS, Usual, colours, usual_of

# Utility of heat maps.

LARGEST_COUNT = 1_000_000
"""Largest magnitude of a count in the usual values; noise may make it negative."""
MOST_TIMES = 3_000
"""Largest number of past times for the usual values; with counts of this size their sums fit 63 bits."""


def usual_in(past: Ints) -> Usual:
    """Return the usual counts of each place.

    Args:
        past: counts at the same time of earlier days, shape [times, ...], a place each; all in all 1 to 3,000 times.

    Raises:
        UsageError: no time or too many, or a count beyond a million.
    """
    if not 1 <= len(past) <= MOST_TIMES or np.abs(past).max(initial=0) > LARGEST_COUNT:
        raise UsageError(f"usual counts must be of 1 to {MOST_TIMES} times, of at most {LARGEST_COUNT} each")
    return usual_of(len(past), past.sum(axis=0, dtype=np.int64), (past * past).sum(axis=0, dtype=np.int64))


def utilities(truth: Ints, released: Ints, usual: Usual) -> Floats:
    """Return the utility of each place and time, in [0, 1].

    Args:
        truth: true counts, shape [...] that broadcasts with ``usual``; restricted.
        released: what was released in their place, of the same shape; rounded or not.
        usual: by which both are coloured.

    Raises:
        UsageError: the shapes differ, or a number is not finite.
    """
    return 1 - _apart(truth, released, usual) / (COLOURS - 1)


def utility(truth: Ints, released: Ints, usual: Usual) -> float:
    """Return the mean utility over all places and times, in [0, 1]; see ``utilities``.

    Raises:
        UsageError: the shapes differ, a number is not finite, or there is nothing to be coloured.
    """
    apart = _apart(truth, released, usual)
    if apart.size == 0:
        raise UsageError("utility must be of at least one place and time, got none")
    return 1 - int(apart.sum()) / ((COLOURS - 1) * apart.size)


def _apart(truth: Ints, released: Ints, usual: Usual) -> Ints:
    """Return the difference of truth and release in colours."""
    if np.shape(truth) != np.shape(released):
        raise UsageError(f"truth and release must have one shape, got {np.shape(truth)} and {np.shape(released)}")
    apart: Ints = np.abs(colours(truth, usual) - colours(released, usual))
    return apart


FULL = 100
"""Points of a correct answer."""
WORTHLESS = {"above": 36, "region": 3, "stuck": 24, "event": 12}
"""Task -> error from which on an answer has no points: windows, regions before it, windows, windows."""


class Score(NamedTuple):
    """The score of an answer."""

    off: int
    """Distance from the truth, in the task's own unit, at least 0."""
    points: int
    """In [0, 100]: 100 for the truth, 0 from ``worthless`` on, linear in between."""


def score(off: int, worthless: int) -> Score:
    """Return the score of an answer.

    Args:
        off: its distance from the truth.
        worthless: distance, at least 1, from which on an answer has no points.

    Raises:
        UsageError: a distance below 0, or ``worthless`` below 1.
    """
    if off < 0 or worthless < 1:
        raise UsageError(f"score: distances must be at least 0, and 1 for worthless, got {off} and {worthless}")
    return Score(off, FULL * max(0, worthless - off) // worthless)


def windows_above(counts: Ints, limit: int) -> int:
    """Return the number of windows with more than ``limit`` devices: how often a room exceeds its capacity."""
    return int((counts > limit).sum())


def by_occupancy(regions: Mapping[str, Ints]) -> list[str]:
    """Return regions by decreasing mean count; among equals by name.

    Raises:
        UsageError: no region, or regions of unlike length, or without windows.
    """
    lengths = {len(counts) for counts in regions.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise UsageError(f"regions must have counts of the same windows, got lengths {sorted(lengths)}")
    return sorted(regions, key=lambda name: (-int(regions[name].sum()), name))


def places_off(order: Sequence[str], chosen: str) -> int:
    """Return the number of regions that are more occupied than the chosen one.

    Raises:
        UsageError: the chosen one is none of them.
    """
    if chosen not in order:
        raise UsageError(f"region must be one of {', '.join(order)}, got {chosen!r}")
    return order.index(chosen)


def stuck_from(counts: Ints, at_most: int = 0) -> int | None:
    """Return the first window from which on all counts are ``at_most`` or less, None where the last one is not.

    This is where a sensor stopped counting. For noisy values ``at_most`` is their half-width.
    """
    above = np.flatnonzero(counts > at_most)
    first = 0 if len(above) == 0 else int(above[-1]) + 1
    return None if first == len(counts) else first


def event_start(weeks: Ints, span: int) -> int:
    """Return the window of a day at which a weekly event begins: where, over all weeks, most people arrive within a
    short time.

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
