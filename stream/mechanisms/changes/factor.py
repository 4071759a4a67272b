"""STUB of the interface; see the functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.records import HOUR, Micros

Ints = NDArray[np.int64]

LONGEST_DAY: Micros = 25 * HOUR
"""Longest privacy day that a factor covers. A tick at a position beyond it must be denied."""
MOST_VISITS = 8


@dataclass(frozen=True, slots=True)
class Factor:
    """C' of a number of visits and a tick length."""

    visits: int
    ticks: int
    """T: positions are 0 to T - 1."""


def factor_of(visits: int, tick: Micros) -> Factor:
    """Return the factor for ``visits`` (1 to 8) a day and a tick length; any tick that a site may have.

    Raises:
        UsageError: visits out of range.
    """
    return Factor(visits, int(LONGEST_DAY // tick))
