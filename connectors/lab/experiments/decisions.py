"""The thesis' experiments with threshold decisions (chapter 5, A.1.5) on simulated tables of their shapes.

| figure | query | varied | of |
|---|---|---|---|
| 5.5 | Q1 to Q4, high to low | -- | distances from the thresholds |
| 5.6, 5.7 | Q1 to Q4, high to low | mechanism | achieved ε, min-entropy; misses, false alarms |
| 5.8 | Q3 low | α; beside it β | all four |
| A.2 | Q3 low | ε of the first step; steps | achieved ε, min-entropy |
| A.3 | Q3 medium | mechanism | ε by predicate |

Every run has noise of its own, keyed by the seed. What costs more than ε_max would be denied and is run all the same,
marked, as the thesis shows what it would have spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import numpy as np

from stream.decisions.deciding import Table, decide, price_of
from stream.decisions.plan import Form, Mechanism, Terms
from stream.decisions.progressive import Run
from stream.decisions.rates import rates
from stream.simulator.threshold_tables import QUERIES, Query, aggregates

Level = Literal["high", "medium", "low"]
LEVELS: dict[Level, Fraction] = {"high": Fraction(1), "medium": Fraction(4, 5), "low": Fraction(3, 5)}
MECHANISMS: tuple[Mechanism, ...] = ("laplace", "tslm", "ppwlm", "dppwlm")
PROGRESSIVE: tuple[Mechanism, ...] = ("ppwlm", "dppwlm")
EPSILON_MAX = Fraction(4)


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure; the thesis' defaults."""

    query: Query
    level: Level
    mechanism: Mechanism
    alpha: Fraction = Fraction(1)
    beta: Fraction = Fraction(1, 20)
    epsilon_first: Fraction = Fraction(1, 100_000)
    steps: int = 4

    def terms(self, form: Form) -> Terms:
        """Return how it is decided."""
        return Terms(self.mechanism, self.beta, self.epsilon_first, self.steps, form=form)


@dataclass(frozen=True, slots=True)
class Extent:
    """What is tried."""

    runs: int
    seed: int
    form: Form
    alphas: tuple[int, ...] = (1, *range(10, 201, 10))
    betas: tuple[int, ...] = tuple(range(1, 11))
    """In hundredths."""
    steps: tuple[int, ...] = (2, 4, 6, 8, 10, 12)
    queries: tuple[Query, ...] = QUERIES
    """Of 5.6 and 5.7."""
    days: tuple[int, ...] = tuple(range(1, 32))
    """Of March, of chapter 6."""

    @property
    def key(self) -> bytes:
        """What draws the noise; nothing here is secret."""
        return sha256(b"tacet evaluate decisions %d" % self.seed).digest()


class Result(NamedTuple):
    """What a setting came to, over all runs."""

    setting: Setting
    epsilon: float
    """That is charged."""
    ex_post: float
    min_entropy: float
    """Divided by ln k, as the thesis plots it."""
    fnr: float | None
    fpr: float | None
    runs: int

    def row(self, figure: str) -> dict[str, Any]:
        """Return it as JSON."""
        asked = {name: getattr(self.setting, name) for name in Setting.__slots__}
        asked = {name: float(value) if isinstance(value, Fraction) else value for name, value in asked.items()}
        found = {name: getattr(self, name) for name in self._fields[1:]}
        return {"figure": figure} | asked | found | {"denied": self.epsilon > EPSILON_MAX}


def distances(query: Query, level: Level, seed: int) -> list[int]:
    """Return how far each count is from its threshold, ascending (5.5)."""
    table = table_of(query, level, Fraction(1), seed)
    return sorted(np.abs(table.counts - table.thresholds).tolist())


@lru_cache(maxsize=32)
def table_of(query: Query, level: Level, alpha: Fraction, seed: int) -> Table:
    """Return a query's table with its thresholds at a level."""
    drawn = aggregates(query, seed)
    limits = np.array([int(each * LEVELS[level]) for each in drawn.limits.tolist()])
    return Table(drawn.cells, drawn.counts, limits, (alpha,) * len(drawn.cells))


def settings(extent: Extent) -> dict[str, list[Setting]]:
    """Return the points of each figure."""
    low = Setting("Q3", "low", "dppwlm")
    firsts = [Fraction(1, 10**power) for power in range(5, 0, -1)]
    return {
        "5.6": [Setting(query, level, each) for query in extent.queries for level in LEVELS for each in MECHANISMS],
        "5.8": [replace(low, mechanism=each, alpha=Fraction(a)) for each in MECHANISMS for a in extent.alphas],
        "beta": [replace(low, mechanism=each, beta=Fraction(b, 100)) for each in MECHANISMS for b in extent.betas],
        "A.2 first": [replace(low, mechanism=each, epsilon_first=first) for each in PROGRESSIVE for first in firsts],
        "A.2 steps": [replace(low, mechanism=each, steps=m) for each in PROGRESSIVE for m in extent.steps],
    }


def quick(extent: Extent) -> Extent:
    """Return the same with fewer points of each curve."""
    return replace(extent, alphas=(1, 10, 100, 200), betas=(1, 5, 10), steps=(2, 4, 8), days=(1, 8, 12, 16, 24))


def results(extent: Extent, tick: Callable[[int], object] = lambda done: None) -> dict[str, list[Result]]:
    """Run every setting, each once however many figures show it.

    Args:
        extent: what is tried.
        tick: called after each setting, with how many are done.
    """
    known: dict[Setting, Result] = {}
    for setting in every(extent):
        known[setting] = result_of(setting, extent)
        tick(len(known))
    return {figure: [known[each] for each in points] for figure, points in settings(extent).items()}


def every(extent: Extent) -> list[Setting]:
    """Return all settings, none twice."""
    return list(dict.fromkeys(each for points in settings(extent).values() for each in points))


def result_of(setting: Setting, extent: Extent) -> Result:
    """Run one setting."""
    table, terms = table_of(setting.query, setting.level, setting.alpha, extent.seed), setting.terms(extent.form)
    made = runs_of(setting, extent, extent.runs)
    found = rates(table.truth, made)
    whole = float(np.log(len(table.predicates)))
    price = float(price_of(table.alphas, terms))
    return Result(setting, price, found.ex_post, found.min_entropy / whole, found.fnr, found.fpr, found.runs)


def runs_of(setting: Setting, extent: Extent, runs: int) -> list[Run]:
    """Return the first runs of a setting."""
    table, terms = table_of(setting.query, setting.level, setting.alpha, extent.seed), setting.terms(extent.form)
    return [decide(table, terms, extent.key, attempt) for attempt in range(1, runs + 1)]


def by_predicate(extent: Extent) -> dict[Mechanism, list[float]]:
    """Return the ε at which each predicate of Q3 medium was decided, mean over a few runs of each rank (A.3)."""
    found: dict[Mechanism, list[float]] = {}
    for mechanism in MECHANISMS[1:]:
        made = runs_of(Setting("Q3", "medium", mechanism), extent, min(extent.runs, 10))
        ranked = np.sort([[float(each) for each in run.epsilons] for run in made], axis=1)
        found[mechanism] = ranked.mean(axis=0).tolist()
    return found
