"""What the service computes from the index for one audience and site.

* Days: published and withheld attributes, and what each day's releases have cost.
* Usual values: mean and deviation by node, class of day and time of day, computed from released values only.
* The newest window of each release, with the usual value and the probability that a room is empty.
"""

from __future__ import annotations

import threading
from datetime import date
from fractions import Fraction
from typing import Any, NamedTuple, NotRequired, TypedDict

import duckdb
import orjson
from cramjam import zstd

from connectors.records.bands import likely_empty
from connectors.records.decoding import flat_levels
from connectors.serve.history.index import Index
from connectors.serve.history.local_clock import DAY_CLASSES, DayClass, SiteClock, class_of, date_of
from connectors.serve.history.rows import COLUMNS, RowsQuery, clip_span, local_offset, page, resolve_query
from stream.policy.fields import NANO, decimal_string
from stream.records import DAY, EPOCH, MINUTE, JsonObject, Micros
from stream.schemas import parse_record, parse_time, rfc3339


class AttributeRow(TypedDict):
    """An attribute of a zone's day."""

    day: str
    zone: str
    attribute: str
    release: str
    released: bool
    reason: str | None
    value: NotRequired[str | float | None]
    """Only if it is published; None for an empty zone."""


class SpendRow(TypedDict):
    """The windows and the cost of one release on one day."""

    day: str
    release: str
    windows: int
    denied: int
    spend: str
    """Decimal number of epsilons."""


_WITHIN = " AND ($3 IS NULL OR day >= $3) AND ($4 IS NULL OR day <= $4)"


def attribute_rows(
    index: Index, audience: str, site: str, first_day: str | None, last_day: str | None
) -> list[AttributeRow]:
    """Return the attributes of some local days, both ends included."""
    with index.reading() as cursor:
        rows = cursor.execute(
            "SELECT day, zone, attribute, release, released, reason, value FROM attribute"
            f" WHERE audience = $1 AND site = $2{_WITHIN} ORDER BY day, zone, attribute, release",
            [audience, site, first_day, last_day],
        ).fetchall()
    found: list[AttributeRow] = []
    for day, zone, attribute, release, released, reason, value in rows:
        row = AttributeRow(
            day=day, zone=zone, attribute=attribute, release=release, released=released, reason=reason
        )  # fmt: skip
        if value is not None:
            row["value"] = orjson.loads(value)
        found.append(row)
    return found


def spend_rows(
    index: Index, clock: SiteClock, of: tuple[str, str], first_day: str | None, last_day: str | None
) -> list[SpendRow]:
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
        own = "release_window JOIN series USING (series) WHERE audience = $1 AND site = $2 AND revision = ''"
        summed = "release, count(*) FILTER (released), count(*) FILTER (NOT released), sum(nano)"
        rows = cursor.execute(
            f"SELECT start // {DAY} AS day, {summed} FROM {own} AND NOT by_day"
            " AND ($3 IS NULL OR day >= $3) AND ($4 IS NULL OR day <= $4) GROUP BY day, release ORDER BY day, release",
            [audience, site, start, end],
        ).fetchall()
        ((first, last),) = cursor.execute(f"SELECT min(start), max(finish) FROM {own} AND by_day", of).fetchall()
        for number, day_start, day_end in () if first is None else clock.privacy_days(first, last):
            if (start is None or number >= start) and (end is None or number <= end):
                rows += cursor.execute(
                    f"SELECT $3, {summed} FROM {own} AND by_day AND finish > $4 AND finish <= $5 GROUP BY release",
                    [audience, site, number, day_start, day_end],
                ).fetchall()
        rows += cursor.execute(
            "SELECT date_diff('day', DATE '1970-01-01', day::DATE), release, count(*) FILTER (reason IS NULL),"
            " count(*) FILTER (reason IS NOT NULL), sum(nano) FROM attribute"
            f" WHERE audience = $1 AND site = $2{_WITHIN} GROUP BY day, release ORDER BY day, release",
            [audience, site, first_day, last_day],
        ).fetchall()
    return [
        SpendRow(day=date_of(day), release=release, windows=windows, denied=denied, spend=_spend(nano))
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


class UsualTable(TypedDict):
    """The usual values of a release."""

    nodes: Table
    slot_seconds: int


UsualValue = TypedDict("UsualValue", {"mean": float, "deviation": float, "n": int, "class": DayClass})
"""The usual value of one window: the moments of its slot, and the class of its day."""


class NewestWindow(TypedDict):
    """The newest window of a site, of any release."""

    window_end: str
    coverage: float
    denied: bool


class LatestRows(TypedDict):
    """The newest window of each release."""

    rows: list[JsonObject]
    """JSON: ``release``, the ``COLUMNS`` of rows, ``usual`` and ``likely_empty``."""
    feed: NewestWindow | None


class Usual:
    """The usual values of each release, computed once a day and again after a late record is added."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._cache: dict[tuple[str, str, str], tuple[tuple[int, ...], Table]] = {}
        self._lock = threading.Lock()

    def table(self, clock: SiteClock, audience: str, release: str, site: str) -> UsualTable:
        """Return the usual values of a release at a site."""
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

    def at(self, clock: SiteClock, of: Table, node: str, start: Micros) -> UsualValue | None:
        """Return the usual value at a node for the window that starts at an instant; None if nothing is known."""
        local = clock.local(start)
        day = class_of(local // DAY)
        slots = of.get(node, {}).get(day)
        moments = slots[local % DAY // SLOT] if slots else None
        if moments is None:
            return None
        return {"mean": moments.mean, "deviation": moments.deviation, "n": moments.n, "class": day}


def _table(cursor: duckdb.DuckDBPyConnection, seen: str, offset: str) -> Table:
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


class Forecast(TypedDict):
    """What is forecast for some hours, from released values."""

    made_at: str | None
    """End of the last window that it is made from; None before the first record."""
    start: list[str]
    """Starts of hours, ascending."""
    nodes: dict[str, dict[str, list[int | None]]]
    """Node -> ``usual``, ``value``, ``low`` and ``high`` of each hour; None where nothing is known."""


_A_DAY_OF_RECORDS = 27
_PARTS = {"usual": "usual", "value": "forecast", "low": "low", "high": "high"}


def forecast_hours(index: Index, audience: str, release: str, site: str) -> Forecast:
    """Return the rest of the day from the newest record of a forecast, then later days from their last record."""
    with index.reading() as cursor:
        found = cursor.execute(
            "SELECT body FROM record WHERE audience = ? AND starts_with(id, ?) ORDER BY finish DESC, seq DESC LIMIT ?",
            [audience, f"{site}/{release}/{audience}/", _A_DAY_OF_RECORDS],
        ).fetchall()
    answer = Forecast(made_at=None, start=[], nodes={})
    for (body,) in found:
        record = parse_record(bytes(zstd.decompress(body)))
        if "forecast" in record:
            answer["made_at"] = answer["made_at"] or record["window_end"]
            _append(answer, record)
    return answer


def _append(answer: Forecast, record: JsonObject) -> None:
    """Append the hours of a record that are later than all before."""
    last = answer["start"][-1] if answer["start"] else ""
    later = [place for place, start in enumerate(record["hours"]) if start > last]
    answer["start"] += [record["hours"][place] for place in later]
    for name, part in _PARTS.items():
        for node, hours in flat_levels(record[part]).items():
            answer["nodes"].setdefault(node, {}).setdefault(name, []).extend(hours[place] for place in later)


_VALUE, _HALF_WIDTH, _KIND = (COLUMNS.index(name) for name in ("value", "half_width", "kind"))
_MOST_NODES = 100_000


def latest_rows(index: Index, usual: Usual, clock: SiteClock, audience: str, site: str) -> LatestRows:
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
    rows: list[JsonObject] = []
    for release, finish in newest:
        query = RowsQuery(audience, release, site, "5min", start=finish - 1, end=finish, limit=_MOST_NODES)
        table = usual.of(clock, audience, release, site)
        for row in page(index, clock, query).rows:
            start, node = parse_time(row[0]), row[2]
            rows.append({"release": release} | dict(zip(COLUMNS, row, strict=True)) | {
                "usual": usual.at(clock, table, node, start), "likely_empty": _likely_empty(row),
            })  # fmt: skip
    return {"rows": rows, "feed": None if end is None or feed is None else _newest_window(end, *feed)}


def newest_end(index: Index, audience: str, site: str) -> Micros | None:
    """Return the end of the newest window that was released or denied; None before the first."""
    query = (
        "SELECT max(finish) FROM release_window JOIN series USING (series)"
        " WHERE audience = ? AND site = ? AND revision = ''"
    )
    with index.reading() as cursor:
        ((end,),) = cursor.execute(query, [audience, site]).fetchall()
    return None if end is None else int(end)


def _likely_empty(row: list[Any]) -> float | None:
    if row[_VALUE] is None or row[_HALF_WIDTH] is None:
        return None
    return likely_empty(row[_VALUE], row[_HALF_WIDTH], row[_KIND])


def _newest_window(finish: int, coverage: float, denied: bool) -> NewestWindow:
    return {"window_end": rfc3339(finish), "coverage": coverage, "denied": denied}
