"""Forecast of hourly means from released values: what is usual, corrected by the day so far, with bands.

This is post-processing. The input are means of released values by node, local day and hour, in thousandths, up to now.
All quantities are whole numbers, so that a forecast is the same on every machine.

Days have a kind: their weekday, or Sunday's for a closed day. Working days are those from Monday to Friday that are not
closed; all others form the other class. For a node, an hour h and a day D that begins a days after today:

1. **Usual value** u(D, h), from the days before today: the weighted median of the last four days of D's kind (weights
   10, 7, 5, 3) and the last ten days of D's class (2 each, added to the first).
2. **Scale** s(D, h) = u(D, h) + max u(D, ·) / 10 + 1: larger counts vary more. z = (value - u) / s.
3. **The day so far.** At the beginning of hour g, r is the mean of today's z in the four hours before g, with weights
   8, 4, 2, 1. Today's z at h is estimated as φ r. φ(g, h) is the least-squares slope of z(h) on r over past days,
   between 0 and 1, drawn to 0 by a ridge; r and z count up to 10,000 there. Later days have φ = 0.
4. **Band.** Each of the last 35 days i with a usual value was held back in turn: its usual value comes from days that
   were over a days before it, its φ from the other days. The score is |z_i - φ_i r_i|. The half-width is s times the
   ⌈0.9 (n + 1)⌉th smallest of the n scores of D's class, if there are nine, or else of all days (split conformal
   prediction with whole days as units; Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005). With
   fewer than nine there is no forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

THOUSAND = 1000
HOURS = 24
MISSING = -(10**15)
"""In place of a mean that is not known."""
AHEAD = 7
"""Days after today for which there is a forecast."""
SAME_KIND = (10, 7, 5, 3)
SAME_CLASS, CLASS_DAYS = 2, 10
LEAST_DAYS = 7
"""Days from which something is usual."""
HELD_BACK = 35
LEAST_SCORES = 9
"""So many scores have a ninth decile."""
READ = len(SAME_KIND) + CLASS_DAYS
RECENT = (8, 4, 2, 1)
RIDGE = 2
"""Of φ, in days with a mean square of r."""
FITTED = 10**7
"""Thousandths up to which r and z enter the slope, so that sums of their products fit 64 bits."""
MEMORY = 7 * len(SAME_KIND) + HELD_BACK + AHEAD
"""Days before today that a forecast reads."""
SUNDAY, SATURDAY = 6, 5


class Hours(NamedTuple):
    """Forecast of some hours at each node: whole counts, shape [nodes, hours]; ``MISSING`` where nothing is known."""

    usual: Ints
    value: Ints
    low: Ints
    high: Ints


class Forecast:
    """What can be said on a day, from the means of the days before it.

    Args:
        means: thousandths, shape [days, nodes, 24], with ``MISSING``; consecutive days, the last one is today.
        kinds: 0 (Monday) to 6, of the same days and of the next seven.
    """

    def __init__(self, means: Ints, kinds: Ints) -> None:
        self._means, self._kinds, self._today = means, kinds, len(means) - 1
        self._working = kinds < SATURDAY
        self._past = list(range(max(0, self._today - HELD_BACK), self._today))

    def day(self, ahead: int) -> Hours:
        """Return the 24 hours of a whole later day, 1 to 7 days ahead."""
        day = self._today + ahead
        [usual] = self._usual([day], [self._today])
        past = self._residuals(ahead)
        scores = np.where(past == MISSING, MISSING, np.abs(past))
        return _hours(usual, np.zeros_like(usual), _scale(usual), _decile(scores, self._of_class(day)))

    def rest_of_today(self, hour: int) -> Hours:
        """Return the hours of today from ``hour`` on (0 to 23), given the hours before it."""
        [usual] = self._usual([self._today], [self._today])
        scale, past = _scale(usual), self._residuals(0)
        today = _residual(self._means[self._today], usual, scale)
        recent, so_far = _recent(past, hour), _recent(today[None], hour)[0]
        later = past[:, :, hour:]
        known = (later != MISSING) & (recent != MISSING)[:, :, None]
        r = np.where(known, recent[:, :, None], 0)
        fitted, z = (np.clip(each, -FITTED, FITTED) for each in (r, np.where(known, later, 0)))
        product, square = fitted * z, fitted * fitted
        ridge = RIDGE * (square.sum(0) // np.maximum(1, known.sum(0)))
        slope = _slope(product.sum(0), square.sum(0) + ridge)
        without = _slope(product.sum(0) - product, square.sum(0) - square + ridge)
        scores = np.where(later == MISSING, MISSING, np.abs(later - without * r // THOUSAND))
        shift = slope * np.where(so_far == MISSING, 0, so_far)[:, None] // THOUSAND
        return _hours(usual[:, hour:], shift, scale[:, hour:], _decile(scores, self._of_class(self._today)))

    def _of_class(self, day: int) -> Flags:
        same: Flags = self._working[self._past] == self._working[day]
        return same

    def _residuals(self, ahead: int) -> Ints:
        """Return z of the days that were held back, shape [days, nodes, 24]."""
        usual = self._usual(self._past, [max(0, day - ahead) for day in self._past])
        return _residual(self._means[self._past], usual, _scale(usual))

    def _usual(self, days: Sequence[int], known: Sequence[int]) -> Ints:
        """Return what is usual on some days, each from so many of the first days; shape [days, nodes, 24]."""
        read = [self._read(day, first) for day, first in zip(days, known, strict=True)]
        chosen, weights = (np.array(part, np.int64).reshape(len(read), READ) for part in zip(*read, strict=True))
        recorded = np.concatenate([np.zeros((1, *self._means.shape[1:]), np.int64), (self._means != MISSING).cumsum(0)])
        median = _weighted_median(self._means[chosen], weights)
        return np.where(recorded[list(known)] >= LEAST_DAYS, median, MISSING)

    def _read(self, day: int, known: int) -> tuple[list[int], list[int]]:
        """Return the days that a usual value is read from, and their weights; days of weight 0 fill up the lists."""
        kind = np.flatnonzero(self._kinds[:known] == self._kinds[day])[::-1][: len(SAME_KIND)].tolist()
        same = np.flatnonzero(self._working[:known] == self._working[day])[::-1][:CLASS_DAYS].tolist()
        filled = READ - len(kind) - len(same)
        return [*kind, *same, *[0] * filled], [*SAME_KIND[: len(kind)], *[SAME_CLASS] * len(same), *[0] * filled]


def _weighted_median(values: Ints, weights: Ints) -> Ints:
    """Return the least value at which half of the weight is reached, at least 0.

    ``values`` has the shape [medians, days, nodes, 24], ``weights`` [medians, days].
    """
    order = np.argsort(values, axis=1, kind="stable")
    ascending = np.take_along_axis(values, order, 1)
    weight = np.where(ascending == MISSING, 0, np.take_along_axis(weights[:, :, None, None], order, 1))
    reached = weight.cumsum(1)
    place = (2 * reached >= np.maximum(1, reached[:, -1:])).argmax(1)
    found: Ints = np.take_along_axis(ascending, place[:, None], 1)[:, 0]
    return np.where(reached[:, -1] > 0, np.maximum(0, found), MISSING)


def _scale(usual: Ints) -> Ints:
    """Return s; where nothing is usual, a number of no meaning."""
    known = np.maximum(usual, 0)
    scale: Ints = known + known.max(-1, keepdims=True) // 10 + THOUSAND
    return scale


def _residual(values: Ints, usual: Ints, scale: Ints) -> Ints:
    """Return z in thousandths."""
    known = (values != MISSING) & (usual != MISSING)
    return np.where(known, np.where(known, values - usual, 0) * THOUSAND // scale, MISSING)


def _recent(residuals: Ints, hour: int) -> Ints:
    """Return r of each day and node at the beginning of an hour."""
    total, weight = (np.zeros(residuals.shape[:2], np.int64) for _ in range(2))
    for back, share in enumerate(RECENT[:hour], 1):
        here = residuals[:, :, hour - back]
        total += share * np.where(here == MISSING, 0, here)
        weight += share * (here != MISSING)
    return np.where(weight > 0, total // np.maximum(1, weight), MISSING)


def _slope(product: Ints, square: Ints) -> Ints:
    """Return a slope between 0 and 1, in thousandths."""
    return np.clip(product * THOUSAND // np.maximum(1, square), 0, THOUSAND)


def _decile(scores: Ints, of_class: Flags) -> Ints:
    """Return the ninth decile of the scores at each node and hour, of one class of days, or else of all days."""
    own, every = (_ninth_decile(chosen) for chosen in (scores[of_class], scores))
    return np.where(own == MISSING, every, own)


def _ninth_decile(scores: Ints) -> Ints:
    if len(scores) < LEAST_SCORES:
        return np.full(scores.shape[1:], MISSING)
    number = (scores != MISSING).sum(0)
    rank = -(-9 * (number + 1) // 10)
    ascending = np.sort(np.where(scores == MISSING, -MISSING, scores), axis=0)
    found = np.take_along_axis(ascending, np.minimum(rank, len(scores))[None] - 1, 0)[0]
    return np.where(number >= LEAST_SCORES, found, MISSING)


def _hours(usual: Ints, shift: Ints, scale: Ints, widths: Ints) -> Hours:
    """Return whole counts from thousandths; the ends of bands are rounded outwards."""
    known = (usual != MISSING) & (widths != MISSING)
    value = np.maximum(0, usual + shift * scale // THOUSAND)
    half = np.where(known, widths, 0) * scale // THOUSAND + 1
    half_up = THOUSAND // 2
    parts = (
        (usual + half_up) // THOUSAND, (value + half_up) // THOUSAND,
        np.maximum(0, value - half) // THOUSAND, -(-(value + half) // THOUSAND),
    )  # fmt: skip
    return Hours(*(np.where(known, part, MISSING) for part in parts))
