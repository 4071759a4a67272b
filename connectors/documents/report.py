"""The monthly report: statements and drawings in a template's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from babel.dates import format_date, get_day_names, get_month_names

from connectors.documents import charts
from connectors.documents.month import (
    BUILDING,
    FULL,
    SURE,
    WEEK_HOURS,
    Band,
    LocalTimes,
    MonthReader,
    Room,
    Values,
    change,
    days,
    drawn_means,
    extreme,
    rooms,
    week,
)
from connectors.documents.page import printable
from connectors.documents.template import Figure, Row, Template, Value, one_line, without_figures
from stream.records import SECOND

SHARE = 0.5
"""Default share of a capacity that a quiet room never exceeds."""
OFTEN = 10.0
"""Hours from which a room was often full."""
MOST_NAMED = 3
"""Days or hours that are named where one of several is the extreme."""
MOST_ROOMS = 12
"""Rooms of a list, so that the report prints to two sheets."""
_STYLE = """
@media print { h1 { font-size: 16pt } h2 { margin: 1rem 0 .2rem; break-before: auto } h3 { margin: .6rem 0 .1rem }
  figure { margin: .3rem 0 } table { font-size: 9pt } td, th { padding: .12rem .5rem } }
"""


class Report(NamedTuple):
    """A month's report."""

    name: str
    """Of its file: site and month."""
    title: str
    markdown: str
    """Its words and tables, without drawings."""
    page: str
    """All of it, as a printable HTML page."""


def report_languages() -> list[str]:
    """Return the languages in which a report can be written."""
    return sorted(path.name.split(".")[1] for path in Path(__file__).parent.glob("report.*.md"))


def report_template(language: str) -> Template:
    """Return the words of a report in a language."""
    return Template.read(Path(__file__).parent / f"report.{language}.md")


def month_report(reader: MonthReader, audience: str, *, language: str = "en", share: float = SHARE) -> Report:
    """Return the report of a month.

    Args:
        reader: has read the records of the month and of the one before.
        audience: whose records they are.
        language: one of ``report_languages``.
        share: of a capacity; rooms that were never above it are listed.
    """
    made = _Made(reader, audience, report_template(language), share)
    markdown = made.template.fill(made.tables())
    title = f"{one_line(reader.site['name'])}, {made.month_name} {reader.month.year}"
    head = dict(made.template.head) | {"title": title}
    name = f"{reader.site['site']}-{reader.month}"
    return Report(name, title, without_figures(markdown), printable(markdown, head, made.drawings(), _STYLE))


class _Made:
    """The facts of one report."""

    def __init__(self, reader: MonthReader, audience: str, template: Template, share: float) -> None:
        self._site, self._audience, self._month, self._timezone = reader.site, audience, reader.month, reader.timezone
        self.template, self._share, self._tick = template, share, reader.site["tick_seconds"] * SECOND
        self._values, old = reader.values(), reader.values(before=True)
        self._building = self._values.get(BUILDING)
        before = old.get(BUILDING)
        same = self._building is not None and before is not None and before.release == self._building.release
        self._before = before if same else None
        named = get_day_names("abbreviated", "stand-alone", template.locale)
        self._weekdays = [named[day] for day in range(7)]
        self.month_name = get_month_names("wide", "stand-alone", template.locale)[reader.month.month]

    # --- words of times ----------------------------------------------------------------------------------

    def _day(self, day: date) -> str:
        return format_date(day, self.template.head["day"], self.template.locale)

    def _hour(self, hour: int) -> str:
        weekday, start = divmod(hour, 24)
        return self.template.text(
            "hour", {"weekday": self._weekdays[weekday], "hour": str(start), "next": str(start + 1)}
        )

    # --- tables ------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, list[Row]]:
        """Return all tables of the template."""
        first, end = self._month.span(self._timezone)
        longest = max((len(of.start) for of in self._values.values()), default=0)
        facts = {
            "site": self._site["name"], "month": self.month_name, "year": str(self._month.year),
            "audience": self._audience, "sure": Figure(f"{100 * SURE:g}"), "released": str(longest),
            "windows": str((end - first) // self._tick),
        }  # fmt: skip
        known = self._building is not None and self._building.known
        rooms = self._rooms()
        return {
            "report": [Row("report", facts)],
            "building": _once(self._building is not None),
            "unproven": _once(self._building is not None and not known),
            "rules": [Row("full", {"full": Figure(f"{100 * FULL:g}")})] if rooms["rooms"] else [],
            **self._days(), **self._hours(), **self._change(), **rooms,
        }  # fmt: skip

    def _days(self) -> dict[str, list[Row]]:
        bands = {} if self._building is None else self._known(self._daily(self._building))
        return {
            **_extreme(bands, "busiest", "day", self._day, highest=True),
            **_extreme(bands, "quietest", "day", self._day, highest=False),
        }

    def _daily(self, values: Values) -> dict[date, Band | None]:
        return days(values, self._month, self._timezone, self._tick)

    @staticmethod
    def _known(bands: Mapping[Any, Band | None]) -> dict[Any, Band]:
        return {key: band for key, band in bands.items() if band is not None}

    def _hours(self) -> dict[str, list[Row]]:
        bands = {} if self._building is None else dict(enumerate(week(self._building, self._timezone)))
        return _extreme(self._known(bands), "peak", "hour", self._hour, highest=True)

    def _change(self) -> dict[str, list[Row]]:
        months = self._month, self._month.before
        found = None
        if self._building is not None:
            found = change(self._building, self._before, months, self._timezone, self._tick)
        rows: dict[str, list[Row]] = {"change": [], "change_less": [], "change_open": [], "compared": []}
        if found is not None:
            base = max(found.before, 1.0)
            row = Row("workdays", {
                "now": _whole(found.now), "before": _whole(found.before), "low": Figure(f"{found.low:+.1f}"),
                "high": Figure(f"{found.high:+.1f}"), "share": _whole(100 * abs(found.now - found.before) / base),
            })  # fmt: skip
            kind = "change" if found.low > 0 else "change_less" if found.high < 0 else "change_open"
            rows |= {kind: [row], "compared": [row]}
        return rows

    def _rooms(self) -> dict[str, list[Row]]:
        capacities = {zone["zone"]: zone["capacity"] for zone in self._site["zones"]}
        names = {zone["zone"]: zone["metadata"].get("name", zone["zone"]) for zone in self._site["zones"]}
        found = rooms(self._values, capacities, self._tick)
        low = sorted(
            (r for r in found if r.most is not None and r.most <= self._share * r.capacity),
            key=lambda r: (r.most or 0) / r.capacity,
        )
        full = sorted((r for r in found if r.full_at_least >= OFTEN), key=lambda r: -r.full_at_least)
        said = {*low, *full}
        silent = sum(
            r not in said and r.full_at_least == 0 and r.full_at_most != 0 for r in found if r.most is not None
        )
        none = {"limit": Figure(f"{100 * self._share:g}"), "often": Figure(f"{OFTEN:g}")}
        return {
            "rooms": _once(bool(found)),
            "low": [Row(r.zone, _room(r, names)) for r in low[:MOST_ROOMS]],
            "low_more": _more(low), "low_none": [Row("low", none)] if found and not low else [],
            "full": [Row(r.zone, _full(r, names)) for r in full[:MOST_ROOMS]],
            "full_more": _more(full), "full_none": [Row("full", none)] if found and not full else [],
            "noisy_rooms": _number(silent), "bounded": _number(sum(r.most is None for r in found)),
        }  # fmt: skip

    # --- drawings ----------------------------------------------------------------------------------------

    def drawings(self) -> dict[str, str]:
        """Return the drawings, by name."""
        words, building = self.template.head, self._building
        if building is None:
            return {"days": "", "week": "", "change": ""}
        local = LocalTimes(self._timezone, building.start)
        means = drawn_means(building, local.days)
        by_day = self._daily(building)
        bands = [by_day[day] or (Band(*3 * (means[day],)) if day in means else None) for day in self._month.days]
        hours = drawn_means(building, local.hours)
        return {
            "days": charts.bars(words["days_chart"], [str(day.day) for day in self._month.days], bands),
            "week": charts.week(words["week_chart"], self._weekdays, [hours.get(at) for at in range(WEEK_HOURS)]),
            "change": charts.two_days(words["change_chart"], self._workday(building), self._workday(self._before)),
        }

    def _workday(self, values: Values | None) -> list[float | None]:
        if values is None:
            return [None] * 24
        local = LocalTimes(self._timezone, values.start)
        means = drawn_means(values, [hour % 24 if hour < 5 * 24 else None for hour in local.hours])
        return [means.get(hour) for hour in range(24)]


def _once(condition: bool) -> list[Row]:
    return [Row("so", {})] if condition else []


def _number(number: int) -> list[Row]:
    return [Row("number", {"number": str(number)})] if number else []


def _more(listed: Sequence[Room]) -> list[Row]:
    return _number(max(0, len(listed) - MOST_ROOMS))


def _extreme(
    bands: Mapping[Any, Band], table: str, field: str, called: Callable[[Any], str], *, highest: bool
) -> dict[str, list[Row]]:  # fmt: skip
    keys = extreme(bands, highest=highest)
    one, several = list[Row](), list[Row]()
    if len(keys) == 1:
        band = bands[keys[0]]
        one = [Row(table, {field: called(keys[0]), "mean": _whole(band.mean), "low": _down(band.low),
                           "high": _up(band.high)})]  # fmt: skip
    elif keys:
        named = "; ".join(called(key) for key in keys[:MOST_NAMED])
        several = [Row(table, {f"{field}s": named, "number": str(len(keys))})]
    return {table: one, f"{table}_several": several}


def _room(room: Room, names: Mapping[str, str]) -> dict[str, Value]:
    most = room.most or 0
    return {"zone": names[room.zone], "capacity": str(room.capacity), "most": str(most),
            "share": _up(100 * most / room.capacity)}  # fmt: skip


def _full(room: Room, names: Mapping[str, str]) -> dict[str, Value]:
    most = "–" if room.full_at_most is None else Figure(f"{room.full_at_most:.1f} h")
    least = Figure(f"{room.full_at_least:.1f}")
    return {"zone": names[room.zone], "capacity": str(room.capacity), "least": least, "most": most}


def _whole(value: float) -> str:
    return f"{max(0.0, value):.0f}"


def _down(value: float) -> str:
    return str(int(value))


def _up(value: float) -> str:
    return str(-int(-value // 1))
