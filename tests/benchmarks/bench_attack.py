"""What an attacker's beliefs cost, beside Table 4.1 of the thesis: 64 zones, 88 days of history and the one attacked.

CPU of one process. The building is the simulated one, of the thesis' published size (36,436 devices, 3.9 million
events); spans are by UTC. ``--quick`` takes ten days. As in the thesis, making the tables of who is where is not
counted: preprocessing turns 88 days of counts into a prior, training is one kernel density estimate a true count.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import numpy as np

from connectors.lab.attacks.published import Nodes, PublishedDay
from connectors.lab.attacks.study import Scene, beliefs, pairs
from stream.lab.attackers.beliefs import Floats, Ints, by_span, prior, worst_case
from stream.lab.attackers.likelihoods import LearntDistribution, NoiseDistribution, learn
from stream.lab.attackers.localised import found_by_confidence
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.mechanisms.noise import discrete_laplace
from stream.pseudonyms.rotation import Sightings, counts_under_names
from stream.records import DAY, MINUTE
from tests.benchmarks.shared import Figure, cpu, quick, tell

T = TypeVar("T")
DAYS = 10 if quick() else 89
SPANS, EPSILON = 144, Fraction(1)
PRINTED = {"preprocess": 4.0, "bound": 0.6, "known": 5.4, "train": 6.9, "learnt": 7.3}
"""Seconds, Table 4.1."""


def main() -> None:
    run = simulate(SimulatorConfig(days=DAYS, seed=1))
    ticks = np.arange(run.start, run.end, 5 * MINUTE)[: DAYS * 2 * SPANS]
    seen = Sightings(run.time, run.device, run.access_point)
    counts = counts_under_names(seen, ticks, 64, 10 * MINUTE, None)
    spans = (ticks - run.start) % DAY // (10 * MINUTE)
    size = f"{len(run.devices):,} devices, {len(run.time):,} events, {DAYS} days"
    tell([*measured(counts, spans), Figure("devices", len(run.devices), "devices", detail=size, aside=True)])


def measured(counts: Ints, spans: Ints) -> list[Figure]:
    """Time each step on the counts of all days; the last is attacked at the last tick of each span."""
    last = 2 * SPANS
    known, preprocess = timed(lambda: prior(by_span(counts[:-last], spans[:-last], SPANS)))
    nodes = Nodes(tuple(("zone", str(zone)) for zone in range(64)), np.eye(64, dtype=bool))
    noise = discrete_laplace(b"k" * 32, b"bench", EPSILON, counts.size).reshape(counts.shape)
    everywhere = np.ones(len(counts), dtype=bool)
    reported = PublishedDay(counts + noise, everywhere, None)
    at = np.arange(len(counts) - last + 1, len(counts), 2)
    scene = Scene(counts[at], counts[at], known, np.zeros(64, dtype=bool))
    now = PublishedDay(reported.values[at], everywhere[at], None)
    truth, values = pairs(PublishedDay(reported.values[:-last], everywhere[:-last], None), nodes, counts[:-last])
    bound, bound_seconds = timed(lambda: worst_case(scene.closed, float(EPSILON), "all"))
    exact, exact_seconds = timed(lambda: beliefs(now, nodes, (NoiseDistribution("laplace", 1.0),) * 64, scene))
    law, train = timed(lambda: trained(truth, values, now.values, int(scene.counts.sum(axis=1).max())))
    learnt, learnt_seconds = timed(lambda: beliefs(now, nodes, law, scene))
    return [
        figure("preprocess", preprocess, "preprocess"),
        figure("worst case", bound_seconds, "bound", bound, scene),
        figure("exact law", exact_seconds, "known", exact, scene),
        figure("learnt law, training", train, "train"),
        figure("learnt law", learnt_seconds, "learnt", learnt, scene),
    ]


def trained(truth: Ints, values: Ints, asked: Ints, most: int) -> LearntDistribution:
    return learn(truth, values, None, int(asked.min()), int(asked.max()), most)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    made: list[T] = []
    seconds = cpu(lambda: made.append(work()))
    return made[0], seconds


def figure(
    name: str, seconds: float, printed: str, believed: Floats | None = None, scene: Scene | None = None
) -> Figure:
    """Tell a time beside the thesis', and how many people the beliefs are about."""
    goal = PRINTED[printed]
    note = f"the thesis: {goal} s"
    if believed is not None and scene is not None:
        sure = found_by_confidence(believed, scene.closed, scene.counts, scene.is_open).sum()
        note += f"; {sure / SPANS:.0f} of {scene.counts.sum() / SPANS:.0f} people a span surer than by the prior"
    return Figure(name, seconds, "s", f"<= {goal}", seconds <= goal, detail=note)


if __name__ == "__main__":
    main()
