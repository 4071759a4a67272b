"""What releases that are paid by the day have cost: each privacy day of each once, whatever windows it has had.

A unit smaller than a day is priced as each day that it touches replaced (``day_units``), so it costs no more in two
windows of a day than in one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from stream.accounting.costs import Cost
from stream.accounting.day_units import cost_of, finest
from stream.accounting.tallies import decode_tally, encode_tally
from stream.accounting.views import Readers
from stream.records import DAY, PURE, CountCharge, DayTerms, Micros

KEPT: Micros = 3 * DAY
"""A privacy day has no further window so long after one of its windows."""


class Line(NamedTuple):
    """What one price buys: one run of the counters through one day of a release."""

    release: str
    attempt: int
    day: int


@dataclass(frozen=True, slots=True)
class Paid:
    """A day that was paid for."""

    terms: Mapping[str, DayTerms]
    """By audience."""
    end: Micros
    """Of its last window so far."""

    def and_these(self, terms: Mapping[str, DayTerms]) -> Mapping[str, DayTerms]:
        """Return the terms with further ones: runs are charged one after another, a day's noise once."""
        before = {who: self.terms[who].ticks for who, each in terms.items() if each.noise == PURE and who in self.terms}
        return {
            **self.terms,
            **{who: each._replace(ticks=each.ticks + before.get(who, 0)) for who, each in terms.items()},
        }

    def to(self, audiences: frozenset[str]) -> DayTerms | None:
        """Return what these readers know together: what the one with the least noise knows."""
        own = [terms for audience, terms in sorted(self.terms.items()) if audience in audiences]
        return finest(own) if own else None


@dataclass(slots=True)
class DayLines:
    """The latest days that were paid for, and what all days together have cost each reader."""

    held: dict[Line, Paid] = field(default_factory=dict)
    totals: dict[str, Cost] = field(default_factory=dict)

    def pay(self, charges: Iterable[CountCharge], end: Micros, readers: Readers) -> None:
        """Take the charges of a window that ends at ``end``; those of a day that was paid before cost nothing more.

        Where readers know more of a day than they did (another audience, finer noise) they pay for it anew.
        """
        paid: dict[Line, dict[str, DayTerms]] = {}
        for charge in charges:
            if charge.terms is not None and (charge.epsilon > 0 or charge.terms.noise == PURE):
                line = Line(charge.release, charge.attempt, charge.terms.day)
                paid.setdefault(line, {})[charge.audience] = charge.terms
        for line, terms in paid.items():
            before = self.held.get(line, Paid({}, end))
            after = Paid(before.and_these(terms), max(end, before.end))
            self.held[line] = after
            for reader, audiences in readers.items():
                known = after.to(audiences)
                more = None if known is None else _beyond(known, before.to(audiences))
                if more is not None:
                    self.totals[reader] = self.totals.get(reader, Cost()).plus(cost_of(more, 1))

    def so_far(self, charge: CountCharge) -> DayTerms | None:
        """Return what the day of a charge has come to for its audience; None where nothing was charged yet."""
        assert charge.terms is not None  # noqa: S101
        held = self.held.get(Line(charge.release, charge.attempt, charge.terms.day))
        return None if held is None else held.terms.get(charge.audience)

    def forget(self, end: Micros, span: Micros) -> None:
        """Let go of days whose windows lie further back than any unit reaches; ``span`` is that of w windows."""
        self.held = {line: paid for line, paid in self.held.items() if paid.end > end - max(span, KEPT)}

    def since(self, start: Micros, audiences: frozenset[str]) -> list[DayTerms]:
        """Return what readers know of each day that had a window after ``start``."""
        return list(self._terms(audiences, (paid for paid in self.held.values() if paid.end > start)))

    def of_day(self, day: int, audiences: frozenset[str]) -> list[DayTerms]:
        """Return what readers know of one privacy day, by each release and attempt."""
        return list(self._terms(audiences, (paid for line, paid in self.held.items() if line.day == day)))

    @staticmethod
    def _terms(audiences: frozenset[str], days: Iterable[Paid]) -> Iterator[DayTerms]:
        for paid in days:
            if (terms := paid.to(audiences)) is not None:
                yield terms


def _beyond(known: DayTerms, before: DayTerms | None) -> DayTerms | None:
    """Return what readers pay for who knew ``before`` and know more now; None where they know no more."""
    if known == before:
        return None
    if before is not None and known.noise == PURE:
        return known._replace(ticks=known.ticks - before.ticks)
    return known


def encode_lines(lines: DayLines) -> dict[str, Any]:
    """Return the JSON form."""
    held = [
        [*line, paid.end, {who: _written(terms) for who, terms in sorted(paid.terms.items())}]
        for line, paid in sorted(lines.held.items())
    ]
    totals = {reader: [str(cost.pure), encode_tally(cost.tally)] for reader, cost in sorted(lines.totals.items())}
    return {"held": held, "totals": totals}


def decode_lines(data: Mapping[str, Any]) -> DayLines:
    """Return the lines of their JSON form."""
    held = {
        Line(release, attempt, day): Paid({who: _read(terms) for who, terms in by_audience.items()}, end)
        for release, attempt, day, end, by_audience in data["held"]
    }
    totals = {
        reader: Cost(float(pure) if pure == "inf" else Fraction(pure), decode_tally(tally))
        for reader, (pure, tally) in data["totals"].items()
    }
    return DayLines(held, totals)


def _written(terms: DayTerms) -> list[Any]:
    return [terms.day, terms.noise, [str(each) for each in terms.parameters], terms.ticks]


def _read(data: list[Any]) -> DayTerms:
    day, noise, parameters, ticks = data
    return DayTerms(day, noise, tuple(Fraction(each) for each in parameters), ticks)
