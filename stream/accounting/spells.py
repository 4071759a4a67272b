"""What an account has spent window by window, as spells: windows at one distance that cost the same.

A sliding budget looks back over w windows, and a policy to come may have the longest w that there is. A release that
pays for every window is one spell, however far back it is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stream.records import Micros


class Spell(NamedTuple):
    """Windows that end at ``first``, ``first`` + ``step`` and so on, ``windows`` of them, at ``nano`` each."""

    first: Micros
    step: Micros
    windows: int
    nano: int

    @property
    def last(self) -> Micros:
        """End of the last window."""
        return self.first + self.step * (self.windows - 1)

    def since(self, end: Micros) -> Spell | None:
        """Return the windows that end after ``end``; None where there are none."""
        if self.first > end:
            return self
        if self.last <= end:
            return None
        gone = (end - self.first) // self.step + 1
        return self._replace(first=self.first + gone * self.step, windows=self.windows - gone)

    def with_one(self, end: Micros, nano: int) -> Spell | None:
        """Return the spell with one more window; None where that window does not continue it."""
        step = self.step if self.windows > 1 else end - self.first
        goes_on = nano == self.nano and step > 0 and end == self.last + step
        return self._replace(step=step, windows=self.windows + 1) if goes_on else None


def add_window(spells: list[Spell], end: Micros, nano: int) -> None:
    """Add, in place, what a window has cost; windows may come in any order."""
    longer = spells[-1].with_one(end, nano) if spells else None
    if longer is None:
        spells.append(Spell(end, 0, 1, nano))
    else:
        spells[-1] = longer


def since(spells: Iterable[Spell], end: Micros) -> list[Spell]:
    """Return what is left of spells when windows that end at ``end`` or earlier are forgotten."""
    return [left for spell in spells if (left := spell.since(end)) is not None]


def windows_within(spells: Iterable[Spell], first: Micros, last: Micros) -> Iterator[tuple[Micros, int]]:
    """Yield (end, nano) of every window that ends at ``first``, at ``last`` or between them."""
    for spell in since(spells, first - 1):
        for number in range(spell.windows):
            end = spell.first + number * spell.step
            if end > last:
                break
            yield end, spell.nano
