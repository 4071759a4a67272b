"""Privacy units of one reader in the account: epsilons added up, and beside them an epsilon at delta.

Two kinds of releases add up here. Those that pay window by window cost a unit what its values cost (``units``); what is
moved is removed here and added there. Those that pay for a day cost each day that a unit touches (``day_units``), and
what is less than a day costs a day replaced, wherever it is moved to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream.accounting.costs import Cost, Epsilon, UnitCost
from stream.accounting.day_lines import DayLines
from stream.accounting.day_units import cost_of_days
from stream.accounting.running_price import running_price
from stream.accounting.tallies import NOTHING, Tally, TallySums, all_of, pure, times
from stream.accounting.views import Run, View
from stream.errors import UsageError
from stream.policy.fields import decimal_string
from stream.records import Micros

ADDING = (
    "device_w_event", "device_w_event_moved", "person_w_event", "device_day", "device_day_moved", "person_day",
    "device_total", "person_total",
)  # fmt: skip
"""Units that add over time, and so have an epsilon at delta beside their epsilons added up."""


@dataclass(frozen=True, slots=True)
class ReaderUnits:
    """What one reader has paid when a window ends."""

    view: View
    sums: TallySums
    lines: DayLines
    reader: str
    audiences: frozenset[str]
    ticks_per_observation: int
    w: int

    def of(self, days: Iterable[int], span: Micros, devices: int, delta: Fraction) -> dict[str, UnitCost]:
        """Return unit -> cost.

        Args:
            days: those that count at this window.
            span: of w windows.
            devices: how many a person carries.
            delta: at which two days are compared that have no epsilon.
        """
        end, n = self.view.end, self.ticks_per_observation
        device = self.view.device(n, self.w, days)
        tick = Cost(device.tick, all_of([self._at(end), *(pure(run.epsilon) for run in self.view.in_force)]))
        observed = all_of([times(n, self._at(end)), *(_run(run, n) for run in self.view.in_force)])
        observation = Cost(device.observation, observed)
        recent = [tally for _, tally in self.sums.recent]
        sliding = Cost(device.sliding, all_of([*recent, *(_run(r, min(r.total, self.w)) for r in self.view.runs)]))
        now, touched = self._changed(end - 1), self._changed(end - span)
        day, day_moved = max((self._day(day) for day in days), key=lambda pair: _dearness(pair[0], delta))
        total = Cost(self.view.total, all_of([self.sums.total, *(_run(run, run.total) for run in self.view.runs)]))
        total = total.plus(self.lines.totals.get(self.reader, Cost()))
        return {
            "presence_tuple": UnitCost(tick.plus(now)),
            "tuple_moved": UnitCost(tick.twice().plus(now)),
            "observation": UnitCost(observation.twice().plus(now)),
            "observation_moved": UnitCost(observation.twice().twice().plus(now)),
            "device_w_event": UnitCost(sliding.plus(touched)),
            "device_w_event_moved": UnitCost(sliding.twice().plus(touched)),
            "person_w_event": UnitCost(sliding.plus(touched), devices),
            "device_day": UnitCost(day),
            "device_day_moved": UnitCost(day_moved),
            "person_day": UnitCost(day, devices),
            "device_total": UnitCost(total),
            "person_total": UnitCost(total, devices),
        }

    def _at(self, end: Micros) -> Tally:
        return self.sums.recent[-1][1] if self.sums.recent and self.sums.recent[-1][0] == end else NOTHING

    def _changed(self, start: Micros) -> Cost:
        """Return what it costs that the paid days with windows after ``start`` are replaced."""
        return cost_of_days(self.lines.since(start, self.audiences), 2)

    def _day(self, day: int) -> tuple[Cost, Cost]:
        """Return what one device's day costs, and the same elsewhere instead."""
        runs = (pure(run.epsilon, run.epsilons_of(day)) for run in self.view.runs)
        windows = Cost(self.view.on_day(day), all_of([self.sums.days.get(day, NOTHING), *runs]))
        paid = self.lines.of_day(day, self.audiences)
        return windows.plus(cost_of_days(paid, 1)), windows.twice().plus(cost_of_days(paid, 2))


def _run(run: Run, windows: int) -> Tally:
    return pure(run.epsilon, -(-windows // run.w))


def _dearness(cost: Cost, delta: Fraction) -> tuple[Epsilon, float]:
    return cost.pure, running_price(cost.tally, delta) if math.isinf(cost.pure) else 0.0


def written(units: Mapping[str, UnitCost], delta: Fraction, *, exact: bool) -> dict[str, Any]:
    """Return the fields of an account: unit -> epsilons added up, and ``tight`` with an epsilon at delta.

    Args:
        units: of one reader.
        delta: of the policy.
        exact: by ``composition.compose``; otherwise by ``running_price``, at most 7 % above it.
    """
    tight = {
        unit: {"epsilon": _price(cost, delta, exact=exact), "delta": float(delta)}
        for unit, cost in units.items()
        if unit in ADDING or math.isinf(cost.pure)
    }
    return {unit: decimal_string(cost.pure) for unit, cost in units.items()} | {"tight": tight}


def _price(unit: UnitCost, delta: Fraction, *, exact: bool) -> float:
    quick = running_price(unit.cost.tally, delta, unit.group, unit.pure)
    if not exact:
        return quick
    try:
        return min(quick, math.ceil(unit.composed(delta) * 1e6) / 1e6)
    except UsageError:  # too large to be laid out
        return quick
