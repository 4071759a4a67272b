"""The thesis' experiments with threshold decisions (chapter 5, A.1.5, 6.5), simulated.

| figure | query | varied | of |
|---|---|---|---|
| 5.5 | Q1 to Q4, high to low | -- | distances from the thresholds |
| 5.6, 5.7 | Q1 to Q4, high to low | mechanism | achieved ε, min-entropy; misses, false alarms |
| 5.8 | Q3 low | α; beside it β | all four |
| A.2 | Q3 low | ε of the first step; steps | achieved ε, min-entropy |
| A.3 | Q3 medium | mechanism | ε by predicate |

Every run has noise of its own, keyed by the seed. A query whose cost exceeds ε_max would be denied; it is run and
marked, because the thesis shows what it would have spent.

Section 6.5 has queries of two tables, conjunctions and disjunctions of "many trips" and "dear trips". For each day of a
simulated March they are evaluated for 34 regions: were there more trips than c_1, and was the mean fare above c_2?
Three regions in ten are above each threshold. α is 5 % of the range of the compared quantity. A mean is compared by its
deviations (``connectors/tables/decisions.py``), so its α is multiplied by the region's number of trips, which is
assumed to be known, and the change by one trip, up to a fare of 100 $, is charged. The thesis omits that (``printed``:
its ε for the same two α).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np

from stream.decisions.compound import Join, Leaf, Split, betas_of, decide_tree, price_of_tree, truth_of
from stream.decisions.plan import DecisionTerms, Form, Mechanism
from stream.decisions.progressive import Run, Table, decide, price_of, rates
from stream.domains import Domain
from stream.lab.simulator.threshold_tables import QUERIES, Ints, Query, aggregates, rides
from stream.records import JsonObject

Level = Literal["high", "medium", "low"]
LEVELS: dict[Level, Fraction] = {"high": Fraction(1), "medium": Fraction(4, 5), "low": Fraction(3, 5)}
MECHANISMS: tuple[Mechanism, ...] = ("laplace", "tslm", "ppwlm", "dppwlm")
PROGRESSIVE: tuple[Mechanism, ...] = ("ppwlm", "dppwlm")
EPSILON_MAX = Fraction(4)


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure; the defaults are the thesis'."""

    query: Query
    level: Level
    mechanism: Mechanism
    alpha: Fraction = Fraction(1)
    beta: Fraction = Fraction(1, 20)
    epsilon_first: Fraction = Fraction(1, 100_000)
    steps: int = 4

    def terms(self, form: Form) -> DecisionTerms:
        """Return the parameters of the decision."""
        return DecisionTerms(self.mechanism, self.beta, self.epsilon_first, self.steps, form=form)


@dataclass(frozen=True, slots=True)
class Extent:
    """Which points are run, and how often."""

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
        """The key of noise; it is not secret."""
        return sha256(Domain.EVALUATED_DECISIONS + b"%d" % self.seed).digest()


class Result(NamedTuple):
    """The result of a setting, over all runs."""

    setting: Setting
    epsilon: float
    """That is charged."""
    ex_post: float
    min_entropy: float
    """Divided by ln k, as the thesis plots it."""
    fnr: float | None
    fpr: float | None
    runs: int

    def row(self, figure: str) -> JsonObject:
        """Return the result as JSON."""
        settings = {name: getattr(self.setting, name) for name in Setting.__slots__}
        settings = {name: float(value) if isinstance(value, Fraction) else value for name, value in settings.items()}
        found = {name: getattr(self, name) for name in self._fields[1:]}
        return {"figure": figure} | settings | found | {"denied": self.epsilon > EPSILON_MAX}


def distances(query: Query, level: Level, seed: int) -> list[int]:
    """Return the distance of each count from its threshold, ascending (5.5)."""
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
    """Return the same extent with fewer points per curve."""
    return replace(extent, alphas=(1, 10, 100, 200), betas=(1, 5, 10), steps=(2, 4, 8), days=(1, 8, 12, 16, 24))


def results(extent: Extent, tick: Callable[[int], object] = lambda done: None) -> dict[str, list[Result]]:
    """Run every setting, each once however many figures show it.

    Args:
        extent: which points are run.
        tick: called after each setting, with the number of completed ones.
    """
    known: dict[Setting, Result] = {}
    for setting in every(extent):
        known[setting] = result_of(setting, extent)
        tick(len(known))
    return {figure: [known[each] for each in points] for figure, points in settings(extent).items()}


def every(extent: Extent) -> list[Setting]:
    """Return all settings without duplicates."""
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
    """Return the ε at which each predicate of Q3 medium was decided, as mean over a few runs for each rank (A.3)."""
    found: dict[Mechanism, list[float]] = {}
    for mechanism in MECHANISMS[1:]:
        made = runs_of(Setting("Q3", "medium", mechanism), extent, min(extent.runs, 10))
        ranked = np.sort([[float(each) for each in run.epsilons] for run in made], axis=1)
        found[mechanism] = ranked.mean(axis=0).tolist()
    return found


Kind = Literal["and", "or"]
FIGURES: dict[str, Kind] = {"6.3": "and", "6.4": "or"}
SPLITS: tuple[Split, ...] = ("naive", "thesis", "optimal")
BETA = Fraction(5, 1000)
DEAREST = 10_000
"""Cents; of a fare that is dearer, this."""
_ABOVE = 10
"""Regions above a threshold: three in ten of 34."""
_REACH = Fraction(1, 20)


class Day(NamedTuple):
    """The two tables of a day, and their costs by the thesis' formulas."""

    tables: dict[str, Table]
    leaves: tuple[Leaf, Leaf]
    printed: tuple[Leaf, Leaf]


@dataclass(frozen=True, slots=True)
class DayResult:
    """The result of one day's query, over all runs."""

    day: int
    kind: Kind
    split: Split
    epsilon: float
    printed: float
    """What the thesis' formula has for it."""
    fnr: float | None
    fpr: float | None
    runs: int

    def row(self, figure: str) -> JsonObject:
        """Return the result as JSON."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "kind"}
        return {"figure": figure, **found, "denied": self.epsilon > EPSILON_MAX}


def day_of(day: int, seed: int) -> Day:
    """Return the tables of a day."""
    drawn = rides(day, seed)
    fares = [np.minimum(each, DEAREST) for each in drawn.fares]
    means = np.array([round(each.mean()) for each in fares])
    many, dear = _threshold(drawn.trips), _threshold(means)
    deviations = np.array([int(each.sum()) - dear * len(each) for each in fares])
    names = tuple(f"region {region}" for region in range(1, len(fares) + 1))
    alphas = _alpha(drawn.trips), _alpha(means)
    by_trips = tuple(alphas[1] * trips for trips in drawn.trips.tolist())
    flat = (alphas[0],) * len(names)
    tables = {
        "trips": Table(names, drawn.trips, np.full(len(names), many), flat),
        "fares": Table(names, deviations, np.zeros(len(names), dtype=np.int64), by_trips),
    }
    leaves = Leaf("trips", flat), Leaf("fares", by_trips, max(dear, DEAREST - dear))
    printed = Leaf("trips", (alphas[0],)), Leaf("fares", (alphas[1] / 100,))  # in dollars, like the thesis' fares
    return Day(tables, leaves, printed)


def _threshold(values: Ints) -> int:
    return int(np.sort(values)[-_ABOVE - 1])


def _alpha(values: Ints) -> Fraction:
    return _REACH * int(values.max() - values.min())


def day_results(extent: Extent, tick: Callable[[int], object] = lambda done: None) -> dict[str, list[DayResult]]:
    """Run every day's queries, with each split of β.

    Args:
        extent: which points are run.
        tick: called after each day, with the number of completed ones.
    """
    found: dict[str, list[DayResult]] = {figure: [] for figure in FIGURES}
    for done, day in enumerate(extent.days, 1):
        tables = day_of(day, extent.seed)
        for figure, kind in FIGURES.items():
            found[figure] += _results(day, tables, kind, extent)
        tick(done)
    return found


def _results(day: int, of: Day, kind: Kind, extent: Extent) -> Iterator[DayResult]:
    tree, printed = Join(kind, of.leaves), Join(kind, of.printed)
    terms, as_printed = DecisionTerms("tslm", BETA), DecisionTerms("tslm", BETA, form="thesis")
    for split in SPLITS:
        betas = betas_of(tree, terms, split)
        price = price_of_tree(tree, terms, betas)
        in_thesis = price_of_tree(printed, as_printed, betas_of(printed, as_printed, split))
        runs = [decide_tree(tree, of.tables, terms, betas, extent.key, run) for run in range(1, extent.runs + 1)]
        measured = rates(truth_of(tree, of.tables), runs)
        yield DayResult(day, kind, split, float(price), float(in_thesis), measured.fnr, measured.fpr, measured.runs)
