"""The filter's calendar: what earlier days predict for this hour.

It learns once per day, from a day's counts as they are known when the day is over (``learning``), so it is
post-processing like the rest. For each zone it contains

    symbol               here        meaning
    H_g[r, b], H_all     history     decayed posterior by hour and bin of counts; g weekday or weekend
    num_g[s], den_g[s]   level       decayed mean of the estimates of a half hour
    bn_g[s], bd_g[s]     error       decayed mean of their distance from that level
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Floats, exp, ln, ordered_sum, quantiles
from stream.mechanisms.filter.model import bin_edges

Weights = NDArray[np.float32]

ALL_DAYS = 2
_NEIGHBOURS = ((-1, 0.25), (0, 0.5), (1, 0.25))
_LEAST_MASS = 0.02
"""Below this mass the history of an hour is not used."""
_LEAST_DAYS = 0.2
_LEAST_SHARE = 1e-7
"""History below this is stored as 0: it is negligible beside the .05/(C+1) that every count gets."""
_LEAST_WEIGHT = 1.15482242e-17
"""Smaller weights are raised to this, so that products of 32 bits keep their digits."""


@dataclass(frozen=True)
class Calendar:
    """The learnt calendar of the zones of one capacity."""

    history: NDArray[np.float32]
    """Shape [3 (weekday, weekend, all), 24, bins, zones]."""
    sums: NDArray[np.float32]
    """num, den, bn, bd: shape [4, 2 (weekday, weekend), 48, zones]."""


def empty(capacity: int, zones: int) -> Calendar:
    """Return a calendar without data."""
    bins = len(bin_edges(capacity)) - 1
    return Calendar(np.zeros((3, 24, bins, zones), np.float32), np.zeros((4, 2, 48, zones), np.float32))


def expect(calendar: Calendar, capacity: int, slot: WeekSlot, most_pull: float) -> Weights:
    """Return the weight h(z) that the calendar gives each count at ``slot``, shape [C+1, zones].

    The weight is 1 throughout for a zone without enough history. Away from the usual level it falls by a factor of e to
    ``most_pull`` per person at most, besides what the history of each bin says.
    """
    usual = _usual(calendar, slot)
    mass = ordered_sum(usual)
    if (mass <= _LEAST_MASS).all():
        return np.ones((capacity + 1, len(mass)), np.float32)
    level = _level(calendar, slot)
    is_usual = calendar.sums[1, int(slot.weekend), slot.half_hour] > _LEAST_DAYS
    pull = np.where(is_usual, np.minimum(0.2 / _usual_error(calendar, slot, level), most_pull), 0.0)
    weight = _near(level, pull, capacity)
    of_bins = exp(_log_density(usual, mass, capacity)).astype(np.float32)
    weight *= np.repeat(of_bins, np.diff(bin_edges(capacity)), axis=0)
    np.maximum(weight, _LEAST_WEIGHT, out=weight)
    weight[:, mass <= _LEAST_MASS] = 1
    return weight


def _level(calendar: Calendar, slot: WeekSlot) -> Floats:
    """Return m, the usual estimate for this half hour, 0 where there is none; [zones]."""
    num, den = calendar.sums[:2, int(slot.weekend), slot.half_hour].astype(np.float64)
    return np.asarray(np.where(den > 0, num / np.where(den > 0, den, 1.0), 0.0))


def _usual(calendar: Calendar, slot: WeekSlot) -> Floats:
    """Return hb: the history around the hour, of such days and (with a small weight) of all days; [bins, zones]."""
    total = np.zeros(calendar.history.shape[2:])
    for offset, weight in _NEIGHBOURS:
        hour = (slot.hour + offset) % 24
        such = calendar.history[int(slot.weekend), hour].astype(np.float64)
        total += weight * (such + 0.3 * calendar.history[ALL_DAYS, hour].astype(np.float64))
    return total


def _log_density(usual: Floats, mass: Floats, capacity: int) -> Floats:
    """Return .2 (L(z) - max L), L the logarithm of the smoothed share of a bin's counts; [bins, zones]."""
    widths = np.diff(bin_edges(capacity))
    log_share = ln((usual / widths[:, None] + 0.05 / (capacity + 1)) / (mass + 0.05))
    return np.asarray(0.2 * (log_share - log_share.max(axis=0)))


_STRIDE = 16
_FARTHEST = 80.0


def _near(level: Floats, pull: Floats, capacity: int) -> Weights:
    """Return e**(-pull |z - level|) of each count, [C+1, zones].

    Every sixteenth count z' has e**(-pull (z' - level)). Other counts have the value of the one before them times
    e**(-pull (z - z')), or the inverse of the value of the one after them times e**(-pull (z'' - z)): the smaller of
    both.
    """
    marks = np.arange(0, capacity + 1 + _STRIDE, _STRIDE)[:, None]
    after = exp(np.clip(-pull * (marks - level), -_FARTHEST, _FARTHEST)).astype(np.float32)
    steps = exp(-pull * np.arange(_STRIDE + 1)[:, None]).astype(np.float32)
    above = after[:-1, None] * steps[:-1]
    below = (1 / after[1:, None]) * steps[:0:-1]
    return np.asarray(np.minimum(above, below, out=above).reshape(-1, len(level))[: capacity + 1])


def _usual_error(calendar: Calendar, slot: WeekSlot, level: Floats) -> Floats:
    """Return β, the usual distance of estimates of this half hour from its level, at least ½."""
    numerator, denominator = np.zeros_like(level), np.zeros_like(level)
    for offset, weight in _NEIGHBOURS:
        half_hour = (slot.half_hour + offset) % 48
        error, count = calendar.sums[2:, int(slot.weekend), half_hour].astype(np.float64)
        numerator += weight * error
        denominator += weight * count
    return np.asarray(np.maximum(0.5, (numerator + 0.5 * (1 + np.sqrt(level))) / (denominator + 0.5)))


def learnt(calendar: Calendar, slots: Sequence[WeekSlot], history: Iterable[Floats]) -> Calendar:
    """Return the calendar after some ticks, in order; its history is rounded to eleven binary digits.

    Args:
        calendar: the calendar before.
        slots: the ticks' positions in the week.
        history: probability of each count at each tick, shape [counts, zones]: from 0 up to at most the capacity.
    """
    after = Calendar(calendar.history.copy(), calendar.sums.copy())
    for slot, weights in zip(slots, history, strict=True):
        take_in(after, slot, weights)
    return Calendar(after.history.astype(np.float16).astype(np.float32), after.sums)


def take_in(calendar: Calendar, slot: WeekSlot, weights: Floats) -> None:
    """Add one tick to the calendar in place; arguments as for :func:`learnt`."""
    (median,) = quantiles(weights, 0.5)
    known = ordered_sum(_usual(calendar, slot)) > _LEAST_MASS
    error = np.abs(median - _level(calendar, slot))
    binned = _binned(weights / ordered_sum(weights))
    for days in (int(slot.weekend), ALL_DAYS):
        mixed = 0.95 * calendar.history[days, slot.hour].astype(np.float64)
        mixed[: len(binned)] += 0.05 * binned
        calendar.history[days, slot.hour] = np.where(mixed < _LEAST_SHARE, 0.0, mixed)
    num, den, bn, bd = calendar.sums[:, int(slot.weekend), slot.half_hour].astype(np.float64)
    calendar.sums[:, int(slot.weekend), slot.half_hour] = (
        0.942 * num + 0.058 * median,
        0.942 * den + 0.058,
        np.where(known, 0.942 * bn + 0.058 * error, bn),
        np.where(known, 0.942 * bd + 0.058, bd),
    )


def _binned(weights: Floats) -> Floats:
    """Return the weights by bin, [bins, zones]; narrow bins are padded with zeros so that all are summed at once."""
    edges = bin_edges(len(weights) - 1)
    widths = np.diff(edges)
    spread = np.zeros((widths.max(), len(widths), weights.shape[1]))
    cell = np.arange(len(weights))
    spread[cell - np.repeat(edges[:-1], widths), np.repeat(np.arange(len(widths)), widths)] = weights
    return ordered_sum(spread)
