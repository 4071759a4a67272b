"""Runs of equal charges: windows at equal distances that cost the same.

A sliding budget looks back over w windows, and a future policy may have the longest w. The spending of an account is
therefore stored as runs (``ChargeRun``). A release that pays for every window is one run, however long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from stream.accounting.units import Cells, Day
from stream.records import Micros

Value = TypeVar("Value")


class ChargeRun(NamedTuple, Generic[Value]):
    """Windows that end at ``first``, ``first`` + ``step`` and so on, ``windows`` of them, each charged the same."""

    first: Micros
    step: Micros
    windows: int
    charge: Value

    @property
    def last(self) -> Micros:
        """End of the last window."""
        return self.first + self.step * (self.windows - 1)

    def without_last(self) -> ChargeRun[Value] | None:
        """Return all windows but the last; None where there is only one."""
        if self.windows == 1:
            return None
        return self._replace(step=self.step if self.windows > 2 else 0, windows=self.windows - 1)

    def through(self, end: Micros) -> int:
        """Return how many of the windows end at ``end`` or earlier."""
        if end < self.first:
            return 0
        return self.windows if end >= self.last else (end - self.first) // self.step + 1

    def since(self, end: Micros) -> ChargeRun[Value] | None:
        """Return the windows that end after ``end``; None where there are none."""
        passed = self.through(end)
        if not passed:
            return self
        if passed == self.windows:
            return None
        return self._replace(first=self.first + passed * self.step, windows=self.windows - passed)


def add_window(runs: list[ChargeRun[Value]], end: Micros, charge: Value) -> None:
    """Add, in place, the charge of a window: to the last run if it continues that, otherwise as a run of its own."""
    if runs:
        latest = runs[-1]
        step = latest.step if latest.windows > 1 else end - latest.first
        if charge == latest.charge and step > 0 and end == latest.last + step:
            runs[-1] = latest._replace(step=step, windows=latest.windows + 1)
            return
    runs.append(ChargeRun(end, 0, 1, charge))


def runs_after(runs: Iterable[ChargeRun[Value]], end: Micros) -> list[ChargeRun[Value]]:
    """Return the rest of the runs without the windows that end at ``end`` or earlier."""
    return [left for spell in runs if (left := spell.since(end)) is not None]


def windows_within(runs: Iterable[ChargeRun[Value]], first: Micros, last: Micros) -> Iterator[tuple[Micros, Value]]:
    """Yield (end, charge) of every window that ends at ``first``, at ``last`` or between them."""
    for spell in runs_after(runs, first - 1):
        for number in range(spell.windows):
            end = spell.first + number * spell.step
            if end > last:
                break
            yield end, spell.charge


@dataclass(frozen=True, slots=True)
class LatestCharges(Generic[Value]):
    """The charges of a site's latest windows, from which the account adds up any day, under any definition.

    Days are not added up as windows come. A site may redefine its days, and the account then needs the sum of a day
    some of whose windows have already passed.
    """

    runs: tuple[ChargeRun[tuple[Micros, Value]], ...] = ()
    """For each window the time for which an observation counted, and the charge."""

    def at(self, end: Micros) -> Value | None:
        """Return the charge of a window, if it is the latest charged window."""
        return self.runs[-1].charge[1] if self.runs and self.runs[-1].last == end else None

    def and_window(self, end: Micros, charge: Value, reach: Micros) -> LatestCharges[Value]:
        """Return the charges with those of the latest window, in place of its earlier charges.

        Args:
            end: of the window.
            charge: the sum of its charges.
            reach: how long one observation counts, in whole ticks.
        """
        runs = list(self.runs)
        if runs and runs[-1].last == end:
            runs[-1:] = [before for before in [runs[-1].without_last()] if before is not None]
        add_window(runs, end, (reach, charge))
        return LatestCharges(tuple(runs))

    def after(self, end: Micros) -> LatestCharges[Value]:
        """Return the charges of windows that end after ``end``."""
        return LatestCharges(tuple(runs_after(self.runs, end)))

    def windows(self) -> Iterator[tuple[Micros, tuple[Micros, Value]]]:
        """Yield (end, (reach, charge)) of every window, in order."""
        for run in self.runs:
            for number in range(run.windows):
                yield run.first + number * run.step, run.charge

    def each(self, start: Micros) -> Iterator[tuple[Value, int]]:
        """Yield charges, with the number of windows that end after ``start`` and have them."""
        for run in self.runs:
            if (number := run.windows - run.through(start)) > 0:
                yield run.charge[1], number

    def of_day(self, day: Day) -> Iterator[tuple[Value, Cells]]:
        """Yield charges, with the number of counts of one device's day that have them."""
        for run in self.runs:
            reach, charge = run.charge
            before = run.through(day.start)
            cells = Cells(run.through(day.end + reach) - before, run.through(day.start + reach) - before)
            if cells.less:
                yield charge, cells

    def encoded(self, write: Callable[[Value], Any]) -> list[list[Any]]:
        """Return the JSON form."""
        return [[run.first, run.step, run.windows, run.charge[0], write(run.charge[1])] for run in self.runs]

    @classmethod
    def decoded(cls, rows: Iterable[list[Any]], read: Callable[[Any], Value]) -> LatestCharges[Value]:
        """Return the charges of their JSON form."""
        return cls(tuple(ChargeRun(first, step, n, (reach, read(charge))) for first, step, n, reach, charge in rows))
