"""Runs of equal charges: windows at equal distances that cost the same.

A sliding budget looks back over w windows, and a future policy may have the longest w. Budgets (``ledger``) and the
account (``account_state``) therefore store their latest windows as runs. A release that pays for every window is one
run, however long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

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
    whole_or_rest = (run if run.first > end else run.since(end) for run in runs)  # most are whole
    return [left for left in whole_or_rest if left is not None]


def windows_within(runs: Iterable[ChargeRun[Value]], first: Micros, last: Micros) -> Iterator[tuple[Micros, Value]]:
    """Yield (end, charge) of every window that ends at ``first``, at ``last`` or between them."""
    for run in runs_after(runs, first - 1):
        for number in range(run.windows):
            end = run.first + number * run.step
            if end > last:
                break
            yield end, run.charge
