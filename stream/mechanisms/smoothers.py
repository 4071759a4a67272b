"""PeGaSus' smoothers: one value for a tick from the noisy values of its group (post-processing, free).

    average       mean of the group
    median        median of the group, the mean of the middle two where their number is even
    james-stein   (c̃_t - mean) / |G| + mean

They read the perturber's values, never smoothed ones. Values stay exact fractions until :func:`publishable`
rounds them, so no tie is ever decided by a rounding error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stream.mechanisms.grouper import Groups
from stream.mechanisms.noise import Ints


class Ratio(NamedTuple):
    """Exact values ``numerator / denominator``, denominators positive; shape [zones]."""

    numerator: Ints
    denominator: Ints


def whole(values: Ints) -> Ratio:
    """Return integers as exact values."""
    return Ratio(values, np.ones_like(values))


Smoother = Callable[[Groups], Ratio]


def average(groups: Groups) -> Ratio:
    """Return the mean of each group."""
    return Ratio(groups.noisy.sum(axis=1), groups.size)


def median(groups: Groups) -> Ratio:
    """Return the median of each group."""
    padding = np.arange(groups.noisy.shape[1]) >= groups.size[:, None]
    ordered = np.sort(np.where(padding, np.iinfo(np.int64).max, groups.noisy), axis=1)
    low = np.take_along_axis(ordered, (groups.size[:, None] - 1) // 2, axis=1)
    high = np.take_along_axis(ordered, groups.size[:, None] // 2, axis=1)
    return Ratio((low + high)[:, 0], np.full_like(groups.size, 2))


def james_stein(groups: Groups) -> Ratio:
    """Return the last value of each group, shrunk towards the group's mean."""
    n, total = groups.size, groups.noisy.sum(axis=1)
    last = np.take_along_axis(groups.noisy, n[:, None] - 1, axis=1)[:, 0]
    return Ratio(n * last - total + n * total, n * n)


SMOOTHERS: dict[str, Smoother] = {"average": average, "median": median, "james-stein": james_stein}


def publishable(value: Ratio) -> Ints:
    """Return the integers to publish: rounded, half to even, and only then clamped at 0."""
    quotient, rest = np.divmod(value.numerator, value.denominator)
    up = (2 * rest > value.denominator) | ((2 * rest == value.denominator) & (quotient % 2 == 1))
    return np.asarray(np.maximum(quotient + up, 0))
