"""What attackers make of a candidate: how many people an external visitor, a student and an administrator find.

As in the thesis' comparison of techniques (Ghayyur, 4.6.2): a prior by ten minutes of the day from all days before,
laws of what was released learnt from days before with kernels a tenth of a standard deviation wide, and one count a
zone at the end of each ten minutes. Everybody is looked for who is truly there; all of it is restricted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from connectors.attacks.published import Nodes, Told
from connectors.attacks.study import Found, Scene, attacked, beliefs, from_prior
from connectors.tuning.recording import RecordedSite
from stream.attackers.laws import LearntLaw, learn
from stream.attackers.priors import OPEN_KINDS, Flags, Floats, by_span, opened, prior
from stream.mechanisms.noise import Ints
from stream.tuning.bench import Bench
from stream.tuning.world import Bools, Period, World

SPAN = 10
"""Minutes of a span of the day."""
LEARN_DAYS = 7
"""From so many days before laws are learnt."""
WIDTH = 0.1
"""Of a kernel, in standard deviations: with it the thesis' attackers found most."""
RUNS = 5
"""Runs that are attacked; they scatter little."""
TRAINING = 1 << 20
"""Number of the run from which laws are learnt: none that is measured."""


@dataclass(frozen=True, eq=False)
class Looking:
    """Attackers of one mechanism at one site."""

    recorded: RecordedSite
    world: World
    """What is released, without anything planted."""
    bench: Bench

    def found(self, place: int, period: Period) -> dict[str, Any] | None:
        """Return what each attacker finds at a candidate; None where there is no day before, to learn from."""
        training = self.world.before(LEARN_DAYS)
        if training is None:
            return None
        at = np.flatnonzero(self.world.measures(period) & (self.world.minutes[self.world.released] % SPAN == 0))
        runs = [self.bench.release(self.world, place, run).zones[at] for run in range(RUNS if self.bench.chance else 1)]
        law = self._law(training, place, runs)
        return {name: self._by(is_open, at, runs, law) for name, is_open in self._open().items()}

    def _open(self) -> dict[str, Flags]:
        """Return the zones into which each attacker sees, of those to whom one is closed."""
        all_of = {name: opened(self.recorded.kinds, kinds) for name, kinds in OPEN_KINDS.items()}
        return {name: is_open for name, is_open in all_of.items() if not is_open.all()}

    @cached_property
    def _people(self) -> Ints:
        """Who truly is where, in all windows of the world, shape [windows, zones]."""
        times, counts = self.recorded.counts(bounded=False)
        return counts[np.searchsorted(times, self.world.times)]

    @cached_property
    def _nodes(self) -> Nodes:
        zones = self.recorded.site.zones
        if self.world.site.zones == zones:
            return Nodes(tuple(("zone", zone) for zone in zones), np.eye(len(zones), dtype=np.bool_))
        return Nodes((("building", "building"),), np.ones((1, len(zones)), dtype=np.bool_))

    @cached_property
    def _prior(self) -> Floats:
        """By span of the day."""
        past = slice(0, self.world.begins)
        return prior(by_span(self._people[past], self.world.minutes[past] // SPAN, 24 * 60 // SPAN))

    def _law(self, training: World, place: int, runs: list[Ints]) -> LearntLaw:
        values = self.bench.release(training, place, TRAINING).zones
        truth = self._people[training.begins : len(training.times)] @ self._nodes.holds.T.astype(np.int64)
        low, high = min(int(run.min()) for run in runs), max(int(run.max()) for run in runs)
        most = int(self._people.sum(axis=1).max())
        return learn(truth.ravel(), values.ravel(), WIDTH, low, high, most)

    def _by(self, is_open: Flags, at: Ints, runs: list[Ints], law: LearntLaw) -> dict[str, Any]:
        people = self._people[self.world.released][at]
        spans = self.world.minutes[self.world.released][at] // SPAN
        scene = Scene(people, np.zeros_like(people), self._prior[spans], is_open)
        every: Bools = np.ones(len(at), dtype=np.bool_)
        believed = [beliefs(Told(values, every, None), self._nodes, law, scene) for values in runs]
        found, before = attacked("", {}, believed, scene), from_prior(scene)
        return {
            "success": found.success.share, "low": found.success.low, "high": found.success.high,
            "prior": before.success.share, "people": float(people[:, ~is_open].sum(axis=1).mean()),
            "found": _people_a_span(found),
        }  # fmt: skip


def _people_a_span(found: Found) -> list[float]:
    """Return how many are found beyond the prior at a time, by class of confidence, in the mean."""
    return [round(float(each), 4) for each in found.by_guess.mean(axis=0)]
