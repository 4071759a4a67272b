"""The thesis' experiments with questions of two tables (6.5): all, and any, of "many trips" and "dear trips".

Of every day of a simulated March, 34 regions are asked about: whether there were more trips than c_1, and whether the
mean fare was above c_2, with thresholds that three regions in ten are above, each. α is 5 % of the range of what is
compared. A mean is compared by its deviations (``connectors/files/measures.py``), so that its α is that times the trips
of the region, which are taken for known here, and what one trip changes is paid for, up to a fare of 100 $. The thesis
leaves that out (``printed``: its ε for the same two α).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np

from connectors.experiments.decisions import EPSILON_MAX, Extent
from stream.decisions.compound import Join, Leaf, Split, betas_of, decide_tree, price_of_tree, truth_of
from stream.decisions.deciding import Table
from stream.decisions.plan import Terms
from stream.decisions.rates import rates
from stream.simulator.threshold_tables import Ints, rides

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
    """The two tables of a day, and what they would cost by the thesis' formulas."""

    tables: dict[str, Table]
    leaves: tuple[Leaf, Leaf]
    printed: tuple[Leaf, Leaf]


@dataclass(frozen=True, slots=True)
class DayResult:
    """What one day's question came to, over all runs."""

    day: int
    kind: Kind
    split: Split
    epsilon: float
    printed: float
    """What the thesis' formula has for it."""
    fnr: float | None
    fpr: float | None
    runs: int

    def row(self, figure: str) -> dict[str, Any]:
        """Return it as JSON."""
        found = {name: getattr(self, name) for name in self.__slots__ if name != "kind"}
        return {"figure": figure, **found, "denied": self.epsilon > EPSILON_MAX}


def day_of(day: int, seed: int) -> Day:
    """Return the tables of a day."""
    drawn = rides(day, seed)
    held = [np.minimum(each, DEAREST) for each in drawn.fares]
    means = np.array([round(each.mean()) for each in held])
    many, dear = _threshold(drawn.trips), _threshold(means)
    deviations = np.array([int(each.sum()) - dear * len(each) for each in held])
    names = tuple(f"region {region}" for region in range(1, len(held) + 1))
    alphas = _alpha(drawn.trips), _alpha(means)
    by_trips = tuple(alphas[1] * trips for trips in drawn.trips.tolist())
    flat = (alphas[0],) * len(names)
    tables = {
        "trips": Table(names, drawn.trips, np.full(len(names), many), flat),
        "fares": Table(names, deviations, np.zeros(len(names), dtype=np.int64), by_trips),
    }
    leaves = Leaf("trips", flat), Leaf("fares", by_trips, max(dear, DEAREST - dear))
    printed = Leaf("trips", (alphas[0],)), Leaf("fares", (alphas[1] / 100,))  # in dollars, as the thesis' fares are
    return Day(tables, leaves, printed)


def _threshold(values: Ints) -> int:
    return int(np.sort(values)[-_ABOVE - 1])


def _alpha(values: Ints) -> Fraction:
    return _REACH * int(values.max() - values.min())


def day_results(extent: Extent, tick: Callable[[int], object] = lambda done: None) -> dict[str, list[DayResult]]:
    """Run every day's questions, with each split of β.

    Args:
        extent: what is tried.
        tick: called after each day, with how many are done.
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
    terms, as_printed = Terms("tslm", BETA), Terms("tslm", BETA, form="thesis")
    for split in SPLITS:
        betas = betas_of(tree, terms, split)
        price = price_of_tree(tree, terms, betas)
        in_thesis = price_of_tree(printed, as_printed, betas_of(printed, as_printed, split))
        runs = [decide_tree(tree, of.tables, terms, betas, extent.key, run) for run in range(1, extent.runs + 1)]
        came = rates(truth_of(tree, of.tables), runs)
        yield DayResult(day, kind, split, float(price), float(in_thesis), came.fnr, came.fpr, came.runs)
