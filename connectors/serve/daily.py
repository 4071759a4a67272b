"""What is said of days: attributes shown and withheld, and what each day's releases have cost."""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import Any

import orjson

from connectors.serve.index import Index
from connectors.serve.local_clock import SiteClock, date_of
from stream.policy.fields import NANO, decimal_string
from stream.records import DAY, EPOCH

_WITHIN = " AND ($3 IS NULL OR day >= $3) AND ($4 IS NULL OR day <= $4)"


def attribute_rows(
    index: Index, audience: str, site: str, first_day: str | None, last_day: str | None
) -> list[dict[str, Any]]:
    """Return the attributes of some local days; ``value`` only of those that are shown, null for an empty zone."""
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

    Days are the site's privacy days where a release is paid by these, its local days for attributes, and UTC days of
    the windows' starts for all others.

    Args:
        index: where the records are.
        clock: the site's.
        of: audience and site.
        first_day: ISO date; None: from the first.
        last_day: likewise, to the last.
    """
    audience, site = of
    start, end = (None if day is None else _number(day) for day in (first_day, last_day))
    with index.reading() as cursor:
        held = "told JOIN series USING (series) WHERE audience = $1 AND site = $2 AND revision = ''"
        summed = "release, count(*) FILTER (released), count(*) FILTER (NOT released), sum(nano)"
        rows = cursor.execute(
            f"SELECT start // {DAY} AS day, {summed} FROM {held} AND NOT by_day"
            " AND ($3 IS NULL OR day >= $3) AND ($4 IS NULL OR day <= $4) GROUP BY day, release",
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
            f" WHERE audience = $1 AND site = $2{_WITHIN} GROUP BY day, release",
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
