"""The newest window of everything that an audience is given of a site."""

from __future__ import annotations

from typing import Any

from connectors.serve.bands import likely_empty
from connectors.serve.contract import RowsQuery
from connectors.serve.index import Index
from connectors.serve.local_clock import SiteClock
from connectors.serve.series import COLUMNS, page
from connectors.serve.usual import Usual
from stream.records import Micros
from stream.schemas import parse_time, rfc3339

_VALUE, _HALF_WIDTH, _KIND = (COLUMNS.index(name) for name in ("value", "half_width", "kind"))
_MOST_NODES = 100_000


def latest_rows(index: Index, usual: Usual, clock: SiteClock, audience: str, site: str) -> dict[str, Any]:
    """Return rows of the newest window of each release, with what is usual then and whether rooms are likely empty."""
    with index.reading() as cursor:
        newest = cursor.execute(
            "SELECT release, max(finish) FROM told JOIN series USING (series)"
            " WHERE audience = ? AND site = ? AND revision = '' GROUP BY release ORDER BY release",
            [audience, site],
        ).fetchall()
        end = max((finish for _, finish in newest), default=None)
        feed = cursor.execute(
            "SELECT max(coverage), bool_and(NOT released) FROM told JOIN series USING (series)"
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
    """Return when the newest window ended of which anything was released or denied; None before the first."""
    query = "SELECT max(finish) FROM told JOIN series USING (series) WHERE audience = ? AND site = ? AND revision = ''"
    with index.reading() as cursor:
        ((end,),) = cursor.execute(query, [audience, site]).fetchall()
    return None if end is None else int(end)


def _empty(row: list[Any]) -> float | None:
    if row[_VALUE] is None or row[_HALF_WIDTH] is None:
        return None
    return likely_empty(row[_VALUE], row[_HALF_WIDTH], row[_KIND])


def _feed(finish: int, coverage: float, denied: bool) -> dict[str, Any]:
    return {"window_end": rfc3339(finish), "coverage": coverage, "denied": denied}
