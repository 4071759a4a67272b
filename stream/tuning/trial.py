"""One run of a candidate: a mechanism's values of all windows that are released, with noise of that run's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

from stream.keys import subkey
from stream.mechanisms.contract import CountMechanism
from stream.mechanisms.counts import release_counts
from stream.mechanisms.noise import Ints
from stream.tuning.utility import Released
from stream.tuning.world import World

DayKey = Callable[[int], bytes]
"""Key day, in days since 1970-01-01 -> secret."""


def released_by(mechanism: CountMechanism, world: World, day_key: DayKey, run: int) -> Released:
    """Return what a mechanism releases of a world.

    Args:
        mechanism: over the world's zones.
        world: whose counts are released from ``begins`` on.
        day_key: secrets by key day; each run draws under a part of its own.
        run: number of the run.
    """
    naming = world.naming(lru_cache(maxsize=2)(partial(_run_key, day_key, run)), run)
    times, counts = world.times[world.released], world.counts[world.released]
    return Released(*release_counts(mechanism, naming, times, counts))


def told(counts: Ints) -> Released:
    """Return counts as they are, released without noise."""
    return Released(counts, np.zeros_like(counts))


def _run_key(day_key: DayKey, run: int, day: int) -> bytes:
    return subkey(day_key(day), f"tune/{run}")
