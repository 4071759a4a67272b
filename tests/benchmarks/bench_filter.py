"""A tick of the filter beside one that looks at every count, its bytes beside those of all cells, and its nights.

CPU of one process. Zones of the simulated building, whose largest counts go up to 2,220, and 10,000 zones of 60; a
window of two audiences takes two ticks. Both run in turn on the same noisy values, and must agree.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from unittest.mock import patch

import numpy as np
from cramjam import zstd

from stream.mechanisms.base import WeekSlot
from stream.mechanisms.exact import Ints
from stream.mechanisms.filter import step as filter_
from stream.mechanisms.filter.learning import BEFORE as BEFORE_DAY
from stream.mechanisms.filter.learning import PARTS, WHOLE_DAY, LearningFilter, LearningState
from stream.mechanisms.filter.posterior import Posterior
from stream.mechanisms.filter.smoothing import smooth
from stream.mechanisms.filter.state import FilterState
from stream.mechanisms.filter.step import Estimate, FilterItem, RegimeFilter
from stream.mechanisms.filter.support import CountRanges
from stream.mechanisms.noise import discrete_laplace
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from tests.benchmarks.shared import Figure, cpu, policy, quick, simulations, tell

GOAL = 3.0
TICKS = 3 if quick() else 4
"""The least of so many counts: the rest is other processes' doing. Two before them make the state sparse."""
BEFORE = 2
SLOT = WeekSlot(20, 10, False)
HOUR = 12
"""Windows of an hour."""


def main() -> None:
    zones = policy(simulations(1000), "filter").site["site0"].zones
    mixed = tuple(zone.largest for zone in zones)
    figures: list[Figure] = []
    for epsilon in ("1", "0.1"):
        title = f"1,000 zones to {max(mixed):,}, epsilon {epsilon}"
        figures += measure(title, mixed, Fraction(epsilon)) + learning(title, mixed, Fraction(epsilon))
        figures.append(revising(title, mixed, Fraction(epsilon)))
    tell(figures + measure("10,000 zones to 60, epsilon 0.1", (60,) * 10_000, Fraction("0.1"), GOAL))


def all_counts(held: Posterior, capacities: Ints, noisy: Ints, noise: NoiseParameter) -> CountRanges:
    """Ask for every count of every zone."""
    return CountRanges(np.zeros_like(capacities), capacities + 1)


@contextmanager
def everywhere() -> Iterator[None]:
    """Let filters look at every count."""
    with patch.object(filter_, "count_ranges", all_counts):
        yield


def measure(title: str, capacities: tuple[int, ...], epsilon: Fraction, goal: float | None = None) -> list[Figure]:
    """Run both over some ticks of a building in which one in twenty is there."""
    stage = RegimeFilter(capacities, laplace_noise(epsilon))
    truth = np.random.default_rng(1).binomial(capacities, 0.05)
    state = stage.initial()
    fast: list[float] = []
    slow: list[float] = []
    for tick in range(BEFORE + TICKS):
        noisy = truth + discrete_laplace(b"k" * 32, b"tick %d" % tick, epsilon, len(capacities))
        (after, estimate), seconds = timed(stage, state, noisy)
        with everywhere():
            (_, expected), slow_seconds = timed(stage, state, noisy)
        assert np.array_equal(estimate.median, expected.median)
        assert np.array_equal(estimate.half_width, expected.half_width)
        fast.append(seconds)
        slow.append(slow_seconds)
        state = after
    step, slow_step = min(fast[BEFORE:]), min(slow[BEFORE:])
    met = goal is None or step < goal
    held = float(state.posterior.width.mean())
    return [
        Figure(f"{title}: a tick", step * 1e3, "ms", f"< {goal:g} s" if goal else "", met),
        Figure(
            f"{title}: all counts / windows",
            slow_step / step,
            "times",
            detail=f"{held:.0f} counts a zone are held",
            aside=True,
        ),
        *bytes_of(title, stage, state),
    ]


def learning(title: str, capacities: tuple[int, ...], epsilon: Fraction) -> list[Figure]:
    """Learn on some parts of the zones of a building in which one in twenty is there at noon."""
    stage = LearningFilter(RegimeFilter(capacities, laplace_noise(epsilon)))
    random = np.random.default_rng(1)
    log: list[FilterItem] = []
    for tick in range(BEFORE_DAY + WHOLE_DAY):
        day, place = divmod(tick + WHOLE_DAY - BEFORE_DAY, WHOLE_DAY)
        there = random.binomial(capacities, 0.05 * max(0.02, np.sin(np.pi * (place - 96) / 128)))
        noise = discrete_laplace(b"k" * 32, b"night %d" % tick, epsilon, len(capacities))
        log.append(FilterItem(there + noise, WeekSlot(place // 6, place // 12, False, day)))
    state = LearningState(stage.filter.initial(), tuple(log), 0, stage.filter.form.nothing_learnt())
    tried = [0, PARTS - 1] if quick() else [0, PARTS // 3, 2 * PARTS // 3, PARTS - 1]
    costs = [cpu(partial(stage.next_part, replace(state, part=part), 0)) for part in tried]
    return [
        Figure(f"{title}: learning on one of {PARTS} parts", float(np.mean(costs)) * 1e3, "ms", aside=True),
        Figure(f"{title}: on the dearest of those tried", max(costs) * 1e3, "ms"),
    ]


def revising(title: str, capacities: tuple[int, ...], epsilon: Fraction) -> Figure:
    """Revise an hour by itself and the hour behind it, as ``revise = "1h"`` does with one window of each hour."""
    stage, law = RegimeFilter(capacities, laplace_noise(epsilon)), laplace_noise(epsilon)
    truth = np.random.default_rng(1).binomial(capacities, 0.05)
    drawn = [discrete_laplace(b"k" * 32, b"hour %d" % tick, law.epsilon, len(capacities)) for tick in range(2 * HOUR)]
    items = [FilterItem(truth + noise, SLOT) for noise in drawn]
    return Figure(f"{title}: revising an hour", cpu(lambda: smooth(stage, stage.initial(), items, HOUR)), "s")


def timed(stage: RegimeFilter, state: FilterState, noisy: Ints) -> tuple[tuple[FilterState, Estimate], float]:
    """Return the state after a tick and its estimate, and the CPU seconds that it took."""
    done: list[tuple[FilterState, Estimate]] = []

    def step() -> None:
        after, [estimate] = stage.step(state, FilterItem(noisy, SLOT))
        done.append((after, estimate))

    gc.collect()
    seconds = cpu(step)
    return done[0], seconds


def bytes_of(title: str, stage: RegimeFilter, state: FilterState) -> list[Figure]:
    """Measure what a snapshot makes of the state: the bytes, one copy of them among others, compressed."""

    def all_cells() -> bytes:
        return b"".join(cells.tobytes() for cells in stage.dense(state))

    packed = min(cpu(lambda: sealed(stage.encode(state))) for _ in range(TICKS))
    before = min(cpu(lambda: sealed(all_cells())) for _ in range(TICKS))
    smaller = len(sealed(all_cells())) / len(sealed(stage.encode(state)))
    return [
        Figure(f"{title}: its bytes, compressed", packed * 1e3, "ms", aside=True),
        Figure(
            f"{title}: all cells / its bytes",
            before / packed,
            "times",
            detail=f"{smaller:.2f} times smaller",
            aside=True,
        ),
    ]


def sealed(data: bytes) -> bytes:
    return bytes(zstd.compress(b"".join((b"head", data)), level=1))


if __name__ == "__main__":
    main()
