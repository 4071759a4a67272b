"""How much of a building's heat map is left when it is drawn from released values in place of true counts.

Truth and release are coloured by the same μ and σ, so that only values decide what is lost. The utility of a place at a
time is 1 - |Δcolour| / 9: all of it where the colours agree, none where they are the two ends. Utilities are averaged
over time and space (Ghayyur, thesis, 4.6.2, which scores colours by their distance). They are restricted.
"""

from __future__ import annotations

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.colours import COLOURS, Floats, Ints, Usual, colours, usual_of

LARGEST_COUNT = 1_000_000
"""Of a count that may be usual, in either direction: noise may have made it negative."""
MOST_TIMES = 3_000
"""Of how many times of the past at most something is usual; with counts so large their sums fit 63 bits."""


def usual_in(past: Ints) -> Usual:
    """Return what was usual, of each place.

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
    """Return by how many colours truth and release differ."""
    if np.shape(truth) != np.shape(released):
        raise UsageError(f"truth and release must have one shape, got {np.shape(truth)} and {np.shape(released)}")
    apart: Ints = np.abs(colours(truth, usual) - colours(released, usual))
    return apart
