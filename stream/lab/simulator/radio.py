"""Radio events: the association events of visits, and the access point of each.

A present device re-associates after random gaps even when it does not move, mostly at the access point of its
zone, sometimes at a neighbour (ping-pong).

Always-on machines (printers, wall displays) are heard by a controller every few minutes. A controller forgets a client
that is silent for its idle timeout, 300 s by default, and a machine that is polled, or polls, associates again with its
next frame. Such machines are therefore present at every tick, day and night. The other static devices sleep, or keep
their association alive, and are heard as rarely as the published totals imply for all of them. The delay of the next
frame is a choice, not a measurement.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.lab.simulator.building import Building, Draws
from stream.lab.simulator.visits import Manner, Population, Visits, weighted
from stream.records import SECOND

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SHORTEST_GAP = 2.0


class GapDistribution(NamedTuple):
    """A mixture of log-normal gaps: weights, medians in seconds (times ``scale``), sigmas."""

    scale: float
    weights: tuple[float, float, float]
    medians: tuple[float, float, float]
    sigmas: tuple[float, float, float]


class Loyalty(NamedTuple):
    """Probabilities that a later event is heard at the visit's zone, or at a haunt of the device; else anywhere."""

    own: float
    haunt: float


def _public(scale: float) -> GapDistribution:
    return GapDistribution(scale, (0.40, 0.50, 0.10), (40.0, 330.0, 1500.0), (1.0, 0.85, 0.6))


IN_OFFICE = GapDistribution(1.0, (0.25, 0.75, 0.0), (60.0, 270.0, 1.0), (0.8, 0.5, 0.0))
GAPS = {
    Manner.PASSER_BY: _public(1.00),
    Manner.OCCASIONAL: _public(1.05),
    Manner.ATTENDEE: _public(0.95),
    Manner.RESIDENT: _public(0.95),
    Manner.STATIC: _public(8.2),
    Manner.OWNER: IN_OFFICE,
    Manner.GUEST: IN_OFFICE,
}
ROAMING = Loyalty(0.72, 0.22)
FIXED = Loyalty(0.78, 0.22)
SETTLED = Loyalty(0.98, 0.02)
LOYALTIES = {
    manner: FIXED if manner == Manner.STATIC else SETTLED if manner in (Manner.OWNER, Manner.GUEST) else ROAMING
    for manner in Manner
}


class Events(NamedTuple):
    """Association events, one row each."""

    time: Ints
    """UTC microseconds."""
    device: Ints
    access_point: Ints


def events(visits: Visits, people: Population, place: Building, rng: Draws) -> Events:
    """Return the events of all visits, ordered by time (equal times by device).

    The first event of a visit is at its start and at its own zone; the others follow by the gap law as long
    as the visit lasts.
    """
    laws = _GapDistributions()
    rows, clock = np.arange(len(visits.start)), visits.start.copy()
    waves, times, heard = [rows], [clock], [visits.zone]
    while len(rows):
        gap = laws.gaps(visits.manner[rows], rng)
        clock = clock + np.round(gap * SECOND).astype(np.int64)
        kept = clock < visits.end[rows]
        rows, clock = rows[kept], clock[kept]
        waves.append(rows)
        times.append(clock)
        heard.append(_draw_access_points(visits, rows, people, place, rng))
    return ordered(np.concatenate(times), visits.device[np.concatenate(waves)], np.concatenate(heard))


def ordered(time: Ints, device: Ints, access_point: Ints) -> Events:
    """Return events by time; equal times by device."""
    order = np.lexsort((device, time))
    return Events(time[order], device[order], access_point[order])


class _GapDistributions:
    """The gap laws as arrays, one row per manner."""

    def __init__(self) -> None:
        laws = [GAPS[manner] for manner in Manner]
        self.edges = np.cumsum([law.weights for law in laws], axis=1)
        self.medians = np.array([law.medians for law in laws]) * np.array([[law.scale] for law in laws])
        self.sigmas = np.array([law.sigmas for law in laws])

    def gaps(self, manner: Ints, rng: Draws) -> Floats:
        """Draw one gap in seconds for each row."""
        part = (rng.random(len(manner))[:, None] > self.edges[manner][:, :2]).sum(axis=1)
        spread = np.exp(self.sigmas[manner, part] * rng.standard_normal(len(manner)))
        gap: Floats = np.maximum(SHORTEST_GAP, self.medians[manner, part] * spread)
        return gap


def _draw_access_points(visits: Visits, rows: Ints, people: Population, place: Building, rng: Draws) -> Ints:
    """Draw the access point of one later event of each visit."""
    table = np.array([LOYALTIES[manner] for manner in Manner])
    device, loyalty = visits.device[rows], table[visits.manner[rows]]
    luck = rng.random(len(rows))
    haunt = people.homes[device, (rng.random(len(rows)) * people.home_count[device]).astype(np.int64)]
    anywhere = weighted(rng, place.popularity, len(rows))
    own, near = loyalty[:, 0], loyalty[:, 0] + loyalty[:, 1]
    return np.where(luck < own, visits.zone[rows], np.where(luck < near, haunt, anywhere))


# Always-on machines.

IDLE_TIMEOUT = 300.0
"""Seconds of silence after which a controller forgets a client."""
NEXT_FRAME = 240.0
"""Upper bound of the uniform delay in seconds until the machine's next frame; in total below ten minutes."""


def reassociations(stays: Visits, rng: Draws) -> Events:
    """Return the events of machines during their stays, each at the machine's own zone, ordered by time.

    The gap before each is 300 to 540 s, independent of the machine's other events.
    """
    rows, clock = np.arange(len(stays.start)), stays.start
    waves, times = [rows[:0]], [clock[:0]]
    while len(rows):
        gap = IDLE_TIMEOUT + NEXT_FRAME * rng.random(len(rows))
        clock = clock + np.round(gap * SECOND).astype(np.int64)
        kept = clock < stays.end[rows]
        rows, clock = rows[kept], clock[kept]
        waves.append(rows)
        times.append(clock)
    made = np.concatenate(waves)
    return ordered(np.concatenate(times), stays.device[made], stays.zone[made])
