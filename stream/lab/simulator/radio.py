"""Radio events: associations of visits, and what is heard of departures.

A present device re-associates after random gaps even when it does not move, mostly at the access point of its
zone, sometimes at a neighbour (ping-pong). ``Heard`` says how often. The published totals imply every few minutes;
people who sit still may be heard far less often, since a controller reports a client when it joins, roams and leaves.
A device that is heard seldom and roams to a neighbour comes back within minutes, as it has not moved.

Some devices disassociate when they leave. The controller deauthenticates most others when they have been silent for
its idle timeout. Of a few departures nothing is heard. The shares are choices, not measurements.

Always-on machines (printers, wall displays) are heard by a controller every few minutes. A controller forgets a client
that is silent for its idle timeout, 300 s by default, and a machine that is polled, or polls, associates again with its
next frame. Such machines are therefore present at every tick, day and night. The other static devices sleep, or keep
their association alive, and are heard as rarely as the published totals imply for all of them. The delay of the next
frame is a choice, not a measurement.
"""

from __future__ import annotations

from enum import StrEnum
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


class Heard(StrEnum):
    """How often a device that stays is heard."""

    OFTEN = "often"
    """Every few minutes, as the published totals imply."""
    SELDOM = "seldom"
    """About every half hour."""
    ROAMS = "roams"
    """Only when it roams, about every two hours; not at all while it stays at its access point."""


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
SITTING = {
    Heard.SELDOM: GapDistribution(1.0, (1.0, 0.0, 0.0), (1800.0, 1.0, 1.0), (0.6, 0.0, 0.0)),
    Heard.ROAMS: GapDistribution(1.0, (1.0, 0.0, 0.0), (7200.0, 1.0, 1.0), (0.6, 0.0, 0.0)),
}
AWAY = (30.0, 150.0)
"""Seconds after which a device that is heard seldom, and has roamed without moving, is back; uniform."""
ROAMING = Loyalty(0.72, 0.22)
FIXED = Loyalty(0.78, 0.22)
SETTLED = Loyalty(0.98, 0.02)
LOYALTIES = {
    manner: FIXED if manner == Manner.STATIC else SETTLED if manner in (Manner.OWNER, Manner.GUEST) else ROAMING
    for manner in Manner
}
NEIGHBOURS = Loyalty(0.0, 0.9)
"""Of a device that is heard only when it roams."""


class Events(NamedTuple):
    """Association events, one row each."""

    time: Ints
    """UTC microseconds."""
    device: Ints
    access_point: Ints


def events(visits: Visits, people: Population, place: Building, rng: Draws, heard: Heard = Heard.OFTEN) -> Events:
    """Return the events of all visits, ordered by time (equal times by device).

    The first event of a visit is at its start and at its own zone; the others follow by the gap law as long
    as the visit lasts.
    """
    laws = _GapDistributions(heard)
    rows, clock, at = np.arange(len(visits.start)), visits.start.copy(), visits.zone
    waves, times, points = [rows], [clock], [at]
    while len(rows):
        gap = laws.gaps(visits.manner[rows], rng)
        away = np.zeros(len(rows), bool) if heard is Heard.OFTEN else at != visits.zone[rows]
        gap[away] = rng.uniform(*AWAY, int(away.sum()))
        clock = clock + np.round(gap * SECOND).astype(np.int64)
        kept = clock < visits.end[rows]
        rows, clock, away = rows[kept], clock[kept], away[kept]
        at = np.where(away, visits.zone[rows], _draw_access_points(visits, rows, people, place, rng, heard))
        waves.append(rows)
        times.append(clock)
        points.append(at)
    return ordered(np.concatenate(times), visits.device[np.concatenate(waves)], np.concatenate(points))


def ordered(time: Ints, device: Ints, access_point: Ints) -> Events:
    """Return events by time; equal times by device."""
    order = np.lexsort((device, time))
    return Events(time[order], device[order], access_point[order])


class _GapDistributions:
    """The gap laws as arrays by manner."""

    def __init__(self, heard: Heard) -> None:
        laws = [GAPS[manner] if manner == Manner.STATIC else SITTING.get(heard, GAPS[manner]) for manner in Manner]
        self.edges = np.cumsum([law.weights for law in laws], axis=1).T
        self.medians = np.array([law.medians for law in laws]) * np.array([[law.scale] for law in laws])
        self.sigmas = np.array([law.sigmas for law in laws])

    def gaps(self, manner: Ints, rng: Draws) -> Floats:
        """Draw one gap in seconds for each row."""
        luck = rng.random(len(manner))
        part = (luck > self.edges[0, manner]).astype(np.int64) + (luck > self.edges[1, manner])
        spread = np.exp(self.sigmas[manner, part] * rng.standard_normal(len(manner)))
        gap: Floats = np.maximum(SHORTEST_GAP, self.medians[manner, part] * spread)
        return gap


def _draw_access_points(
    visits: Visits, rows: Ints, people: Population, place: Building, rng: Draws, heard: Heard
) -> Ints:
    """Draw the access point of one later event of each visit."""
    roams = heard is Heard.ROAMS
    table = np.array([NEIGHBOURS if roams and manner != Manner.STATIC else LOYALTIES[manner] for manner in Manner])
    device, loyalty = visits.device[rows], table[visits.manner[rows]]
    luck = rng.random(len(rows))
    haunt = people.homes[device, (rng.random(len(rows)) * people.home_count[device]).astype(np.int64)]
    anywhere = weighted(rng, place.popularity, len(rows))
    own, near = loyalty[:, 0], loyalty[:, 0] + loyalty[:, 1]
    return np.where(luck < own, visits.zone[rows], np.where(luck < near, haunt, anywhere))


IDLE_TIMEOUT = 300.0
"""Seconds of silence after which a controller forgets a client."""

# Departures.

DISASSOCIATES, UNHEARD = 0.35, 0.05
"""Shares of the departures that a device announces, and that nothing is heard of."""


def departures(heard: Events, visits: Visits, end: int, rng: Draws) -> Events:
    """Return the disassociations and deauthentications, each at the access point where the device was heard last.

    Args:
        heard: the events, ordered by time.
        visits: the stays.
        end: the run's end; devices that stay until then do not leave.
        rng: of the draws.
    """
    order = np.lexsort((heard.time, heard.device))
    device, time = heard.device[order], heard.time[order]
    luck = rng.random(len(visits.end))
    rows = np.flatnonzero((luck >= UNHEARD) & (visits.end < end))
    moment = visits.end[rows] + np.where(luck[rows] < UNHEARD + DISASSOCIATES, 0, round(IDLE_TIMEOUT * SECOND))
    keys = np.rec.fromarrays((device, time))
    last = np.searchsorted(keys, np.rec.fromarrays((visits.device[rows], moment), dtype=keys.dtype), "right") - 1
    gone = (device[last] == visits.device[rows]) & (time[last] < visits.end[rows]) & (moment < end)
    return ordered(moment[gone], visits.device[rows][gone], heard.access_point[order][last[gone]])


# Always-on machines.

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
