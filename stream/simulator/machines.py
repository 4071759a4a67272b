"""Machines that are always on: printers and wall displays, which a controller hears from every few minutes.

A controller forgets a client that is silent for its idle timeout, 300 s where nobody changed it, and a machine that is
polled, or polls, associates anew with its next frame. Such machines are therefore present at every tick, day and
night; the other static devices sleep, or keep their association alive, and are heard as seldom as the published totals
say of all of them. How soon the next frame comes is a choice, not a measurement.
"""

from __future__ import annotations

import numpy as np

from stream.records import SECOND
from stream.simulator.building import Draws
from stream.simulator.radio import Events, ordered
from stream.simulator.visits import Visits

IDLE_TIMEOUT = 300.0
"""Seconds of silence after which a controller forgets a client."""
NEXT_FRAME = 240.0
"""Seconds after that within which the machine's next frame comes (uniform): below ten minutes in all."""


def reassociations(stays: Visits, rng: Draws) -> Events:
    """Return the events of machines during their stays, each at the machine's own zone, ordered by time.

    The gap before each is 300 to 540 s, whatever else the machine is heard with.
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
