"""The calendar of the regime-switching filter: what past days at this hour say about the next tick.

It learns from the filter's own posterior, so it is post-processing like the rest. Per zone it holds

    symbol               here        meaning
    H_g[r, b], H_all     history     decayed posterior by hour and bin of counts; g weekday or weekend
    num_g[s], den_g[s]   level       decayed mean of the estimates of a half hour
    bn_g[s], bd_g[s]     error       decayed mean of their distance from that level
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import Floats, exp, ln, ordered_sum
from stream.mechanisms.filter_model import bin_edges

Weights = NDArray[np.float32]

ALL_DAYS = 2
_NEIGHBOURS = ((-1, 0.25), (0, 0.5), (1, 0.25))
_LEAST_MASS = 0.02
"""Below this the history of an hour says nothing yet."""
_LEAST_DAYS = 0.2
_LEAST_SHARE = 1e-7
"""History below this is kept as 0: it could not be distinguished from the .05/(C+1) that every count is given."""
_LEAST_WEIGHT = 1.15482242e-17
"""Weights below it are raised to it, so that products of 32 bits keep their digits."""


class Slot(NamedTuple):
    """A tick's place in the local week."""

    half_hour: int
    """0 … 47."""
    hour: int
    """0 … 23."""
    weekend: bool


@dataclass(frozen=True)
class Calendar:
    """What the zones of one capacity have learnt."""

    history: NDArray[np.float32]
    """Shape [3 (weekday, weekend, all), 24, bins, zones]."""
    sums: NDArray[np.float32]
    """num, den, bn, bd: shape [4, 2 (weekday, weekend), 48, zones]."""


class Expectation(NamedTuple):
    """What the calendar expects of one tick; each of shape [zones]."""

    known: NDArray[np.bool_]
    """Whether there is history enough."""
    level: Floats
    """m, the usual estimate at this half hour, 0 where none."""


def empty(capacity: int, zones: int) -> Calendar:
    """Return the calendar that has seen nothing."""
    bins = len(bin_edges(capacity)) - 1
    return Calendar(np.zeros((3, 24, bins, zones), np.float32), np.zeros((4, 2, 48, zones), np.float32))


def expect(calendar: Calendar, capacity: int, slot: Slot, epsilon: float) -> tuple[Expectation, Weights]:
    """Return what is expected at ``slot``, and the weight h(z) of each count, shape [C+1, zones].

    The weight is 1 throughout for a zone without enough history.
    """
    usual = _usual(calendar, slot)
    mass = ordered_sum(usual)
    known = mass > _LEAST_MASS
    num, den = calendar.sums[:2, int(slot.weekend), slot.half_hour].astype(np.float64)
    level = np.where(den > 0, num / np.where(den > 0, den, 1.0), 0.0)
    pull = np.where(den > _LEAST_DAYS, np.minimum(0.2 / _usual_error(calendar, slot, level), epsilon), 0.0)
    weight = _near(level, pull, capacity)
    of_bins = exp(_log_density(usual, mass, capacity)).astype(np.float32)
    weight *= np.repeat(of_bins, np.diff(bin_edges(capacity)), axis=0)
    np.maximum(weight, _LEAST_WEIGHT, out=weight)
    weight[:, ~known] = 1
    return Expectation(known, level), weight


def _usual(calendar: Calendar, slot: Slot) -> Floats:
    """Return hb: the history around the hour, of such days and (a little) of all days; [bins, zones]."""
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

    Every sixteenth count z' has e**(-pull (z' - level)), and what a count has is that of the one before it times
    e**(-pull (z - z')), or the inverse of the one after it times e**(-pull (z'' - z)): the less of both.
    """
    marks = np.arange(0, capacity + 1 + _STRIDE, _STRIDE)[:, None]
    after = exp(np.clip(-pull * (marks - level), -_FARTHEST, _FARTHEST)).astype(np.float32)
    steps = exp(-pull * np.arange(_STRIDE + 1)[:, None]).astype(np.float32)
    above = after[:-1, None] * steps[:-1]
    below = (1 / after[1:, None]) * steps[:0:-1]
    return np.asarray(np.minimum(above, below, out=above).reshape(-1, len(level))[: capacity + 1])


def _usual_error(calendar: Calendar, slot: Slot, level: Floats) -> Floats:
    """Return β, how far estimates of this half hour usually are from its level, at least ½."""
    numerator, denominator = np.zeros_like(level), np.zeros_like(level)
    for offset, weight in _NEIGHBOURS:
        half_hour = (slot.half_hour + offset) % 48
        error, count = calendar.sums[2:, int(slot.weekend), half_hour].astype(np.float64)
        numerator += weight * error
        denominator += weight * count
    return np.asarray(np.maximum(0.5, (numerator + 0.5 * (1 + np.sqrt(level))) / (denominator + 0.5)))


def learn(calendar: Calendar, slot: Slot, expected: Expectation, posterior: Floats, median: Floats) -> Calendar:
    """Return the calendar after a tick.

    Args:
        calendar: what was known before.
        slot: the tick's place in the week.
        expected: what :func:`expect` said for the same tick.
        posterior: copy 0's distribution, [C+1, zones].
        median: its median, [zones].
    """
    binned = _binned(posterior)
    history, sums = calendar.history.copy(), calendar.sums.copy()
    for days in (int(slot.weekend), ALL_DAYS):
        mixed = 0.95 * history[days, slot.hour].astype(np.float64) + 0.05 * binned
        history[days, slot.hour] = np.where(mixed < _LEAST_SHARE, 0.0, mixed)
    num, den, bn, bd = sums[:, int(slot.weekend), slot.half_hour].astype(np.float64)
    error = np.abs(median - expected.level)
    sums[:, int(slot.weekend), slot.half_hour] = (
        0.942 * num + 0.058 * median,
        0.942 * den + 0.058,
        np.where(expected.known, 0.942 * bn + 0.058 * error, bn),
        np.where(expected.known, 0.942 * bd + 0.058, bd),
    )
    return Calendar(history, sums)


def _binned(posterior: Floats) -> Floats:
    """Return the posterior by bin, [bins, zones]; narrow bins are filled up with zeros to sum all at once."""
    edges = bin_edges(len(posterior) - 1)
    widths = np.diff(edges)
    spread = np.zeros((widths.max(), len(widths), posterior.shape[1]))
    cell = np.arange(len(posterior))
    spread[cell - np.repeat(edges[:-1], widths), np.repeat(np.arange(len(widths)), widths)] = posterior
    return ordered_sum(spread)
