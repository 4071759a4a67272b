"""What the service computes from the index for one audience and site.

* Days: published and withheld attributes, and what each day's releases have cost.
* Usual values: mean and deviation by node, class of day and time of day, computed from released values only.
* The newest window of each release, with the usual value and the probability that a room is empty.
"""

from __future__ import annotations

import threading
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple

import orjson

from connectors.serve.history.bands import likely_empty
from connectors.serve.history.index import Index
from connectors.serve.history.local_clock import DAY_CLASSES, DayClass, SiteClock, class_of, date_of
from connectors.serve.history.rows import COLUMNS, RowsQuery, clip_span, local_offset, page, resolve_query
from stream.policy.fields import NANO, decimal_string
from stream.records import DAY, EPOCH, MINUTE, Micros
from stream.schemas import parse_time, rfc3339

_WITHIN = " AND ($3 IS NULL OR day >= $3) AND ($4 IS NULL OR day <= $4)"


def attribute_rows(
    index: Index, audience: str, site: str, first_day: str | None, last_day: str | None
) -> list[dict[str, Any]]:
    """Return the attributes of some local days. Only published ones have a ``value``; it is null for an empty zone."""
    with index.reading() as cursor:
        rows = cursor.execute(
            "SELECT day, zone, attribute, release, released, reason, value FROM attribute"
            f" WHERE audience = $1 AND site = $2{_WITHIN} ORDER BY day, zone, attribute, release",
            [audience, site, first_day, last_day],
        ).fetchall()
    names = ("day", "zone", "attribute", "release", "released", "reason")
    return [
        dict(zip(names, row, strict=True)) | ({} if shown is None else {"value": orjson.loads(shown)})
        for *row, shown in rows
    ]


def spend_rows(
    index: Index, clock: SiteClock, of: tuple[str, str], first_day: str | None, last_day: str | None
) -> list[dict[str, Any]]:
    """Return windows, denials and spend of each day and release, summed from the audience's own records.

    A day is a privacy day if the release is charged by privacy days, a local day for attributes, and the UTC day of
    the window's start for all other releases.

    Args:
        index: the index of released records.
        clock: the site's clock.
        of: audience and site.
        first_day: ISO date; None: from the first day.
        last_day: ISO date; None: to the last day.
    """
    audience, site = of
    start, end = (None if day is None else _number(day) for day in (first_day, last_day))
    with index.reading() as cursor:
        held = "release_window JOIN series USING (series) WHERE audience = $1 AND site = $2 AND revision = ''"
        summed = "release, count(*) FILTER (released), count(*) FILTER (NOT released), sum(nano)"
        rows = cursor.execute(
            f"SELECT start // {DAY} AS day, {summed} FROM {held} AND NOT by_day"
            " AND ($3 IS NULL OR day >= $3) AND ($4 IS NULL OR day <= $4) GROUP BY day, release ORDER BY day, release",
            [audience, site, start, end],
        ).fetchall()
        ((first, last),) = cursor.execute(f"SELECT min(start), max(finish) FROM {held} AND by_day", of).fetchall()
        for number, day_start, day_end in () if first is None else clock.privacy_days(first, last):
            if (start is None or number >= start) and (end is None or number <= end):
                rows += cursor.execute(
                    f"SELECT $3, {summed} FROM {held} AND by_day AND finish > $4 AND finish <= $5 GROUP BY release",
                    [audience, site, number, day_start, day_end],
                ).fetchall()
        rows += cursor.execute(
            "SELECT date_diff('day', DATE '1970-01-01', day::DATE), release, count(*) FILTER (reason IS NULL),"
            " count(*) FILTER (reason IS NOT NULL), sum(nano) FROM attribute"
            f" WHERE audience = $1 AND site = $2{_WITHIN} GROUP BY day, release ORDER BY day, release",
            [audience, site, first_day, last_day],
        ).fetchall()
    return [
        {"day": date_of(day), "release": release, "windows": windows, "denied": denied, "spend": _spend(nano)}
        for day, release, windows, denied, nano in sorted(rows)
    ]


def _number(day: str) -> int:
    return (date.fromisoformat(day) - EPOCH.date()).days


def _spend(nano: int) -> str:
    return decimal_string(Fraction(int(nano), NANO))


SLOT = 15 * MINUTE
SLOTS = DAY // SLOT
DAYS = 56
"""The number of recent local days from which usual values are computed."""
_THURSDAY = 3
"""Days from Monday to 1 January 1970."""


class Moments(NamedTuple):
    """Moments of the released values of one slot."""

    mean: float
    """At least 0, as counts are, even if noise made the mean of the values negative."""
    deviation: float
    n: int
    """The number of windows."""


Table = dict[str, dict[DayClass, list[Moments | None]]]
"""Node -> class of day -> one entry per slot of the local day; None if nothing was released."""


class Usual:
    """The usual values of each release, computed once a day and again after a late record is added."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._cache: dict[tuple[str, str, str], tuple[tuple[int, ...], Table]] = {}
        self._lock = threading.Lock()

    def table(self, clock: SiteClock, audience: str, release: str, site: str) -> dict[str, Any]:
        """Return the usual values as JSON."""
        return {"nodes": self.of(clock, audience, release, site), "slot_seconds": SLOT // 1_000_000}

    def of(self, clock: SiteClock, audience: str, release: str, site: str) -> Table:
        """Return the values that were usual before the local day of the newest window."""
        query = RowsQuery(audience, release, site, "5min")
        with self._index.reading() as cursor:
            what = resolve_query(cursor, query)
            start, end = clip_span(cursor, what.first, 0, None)
            if not what.first or start >= end:
                return {}
            today = clock.local(end - 1) // DAY
            until = clock.day_span(today)[0]
            since = max(start, clock.day_span(today - DAYS)[0])
            seen = f"series IN ({', '.join(map(str, what.first))}) AND start >= {since} AND start < {until}"
            [(count,)] = cursor.execute(f"SELECT count(*) FROM release_window WHERE {seen}").fetchall()
            of, made_of = (audience, release, site), (today, count)
            with self._lock:
                if of not in self._cache or self._cache[of][0] != made_of:
                    self._cache[of] = made_of, _table(cursor, seen, local_offset(clock, since, until))
                return self._cache[of][1]

    def at(self, clock: SiteClock, of: Table, node: str, start: Micros) -> dict[str, Any] | None:
        """Return the usual value at a node for the window that starts at an instant; None if nothing is known."""
        local = clock.local(start)
        day = class_of(local // DAY)
        slots = of.get(node, {}).get(day)
        moments = slots[local % DAY // SLOT] if slots else None
        return None if moments is None else moments._asdict() | {"class": day}


def _table(cursor: Any, seen: str, offset: str) -> Table:
    rows = cursor.execute(
        f"SELECT name, greatest(0, (local // {DAY} + {_THURSDAY}) % 7 - 4) AS day, local % {DAY} // {SLOT} AS slot,"
        f" avg(value), stddev_pop(value), count(*) FROM (SELECT node, value, start + {offset} AS local FROM cell"
        f" WHERE {seen}) JOIN node USING (node) GROUP BY name, day, slot ORDER BY name, day, slot"
    ).fetchall()
    table: Table = {}
    for name, day, slot, mean, deviation, n in rows:
        of = table.setdefault(name, {})
        moments = Moments(max(0.0, round(mean, 4)), round(deviation, 4), n)
        of.setdefault(DAY_CLASSES[day], [None] * SLOTS)[slot] = moments
    return table


_VALUE, _HALF_WIDTH, _KIND = (COLUMNS.index(name) for name in ("value", "half_width", "kind"))
_MOST_NODES = 100_000


def latest_rows(index: Index, usual: Usual, clock: SiteClock, audience: str, site: str) -> dict[str, Any]:
    """Return the newest window's rows of each release, with usual values and the probability that a room is empty."""
    with index.reading() as cursor:
        newest = cursor.execute(
            "SELECT release, max(finish) FROM release_window JOIN series USING (series)"
            " WHERE audience = ? AND site = ? AND revision = '' GROUP BY release ORDER BY release",
            [audience, site],
        ).fetchall()
        end = max((finish for _, finish in newest), default=None)
        feed = cursor.execute(
            "SELECT max(coverage), bool_and(NOT released) FROM release_window JOIN series USING (series)"
            " WHERE audience = ? AND site = ? AND revision = '' AND finish = ?",
            [audience, site, end],
        ).fetchone()
    rows: list[dict[str, Any]] = []
    for release, finish in newest:
        query = RowsQuery(audience, release, site, "5min", start=finish - 1, end=finish, limit=_MOST_NODES)
        table = usual.of(clock, audience, release, site)
        for row in page(index, clock, query).rows:
            start, node = parse_time(row[0]), row[2]
            rows.append({"release": release} | dict(zip(COLUMNS, row, strict=True)) | {
                "usual": usual.at(clock, table, node, start), "likely_empty": _empty(row),
            })  # fmt: skip
    return {"rows": rows, "feed": None if end is None or feed is None else _feed(end, *feed)}


def newest_end(index: Index, audience: str, site: str) -> Micros | None:
    """Return the end of the newest window that was released or denied; None before the first."""
    query = (
        "SELECT max(finish) FROM release_window JOIN series USING (series)"
        " WHERE audience = ? AND site = ? AND revision = ''"
    )
    with index.reading() as cursor:
        ((end,),) = cursor.execute(query, [audience, site]).fetchall()
    return None if end is None else int(end)


def _empty(row: list[Any]) -> float | None:
    if row[_VALUE] is None or row[_HALF_WIDTH] is None:
        return None
    return likely_empty(row[_VALUE], row[_HALF_WIDTH], row[_KIND])


def _feed(finish: int, coverage: float, denied: bool) -> dict[str, Any]:
    return {"window_end": rfc3339(finish), "coverage": coverage, "denied": denied}
