"""Released records of a made-up site, as audiences are given them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.history.rows import RowsQuery
from stream.records import MINUTE, Micros
from stream.schemas import AttributeRecord, CountRecord, parse_time, rfc3339

TICK = 5 * MINUTE
MONDAY = parse_time("2026-03-02T00:00:00Z")
CLOCKS = {"dbh": SiteClock("UTC"), "la": SiteClock("America/Los_Angeles", "04:00")}


def history() -> ReleaseHistory:
    return ReleaseHistory(None, CLOCKS)


def window(
    end: Micros, values: Mapping[str, int] | None, *, site: str = "dbh", release: str = "occupancy",
    audience: str = "public", mechanism: str = "laplace", half_width: float = 3.0, scale: float = 1.0,
    kind: str = "noise", more: Mapping[str, Any] | None = None,
) -> bytes:  # fmt: skip
    """Return a record of counts; denied where there are no values."""
    names = values or {"2011": 0, "2065": 0}
    return orjson.dumps(orjson.loads(CountRecord.model_validate({
        "release_id": f"{site}/{release}/{audience}/{rfc3339(end)}", "site": site, "audience": audience,
        "release": release, "window_start": rfc3339(end - TICK), "window_end": rfc3339(end), "values": values,
        "released": values is not None, "reason": None if values is not None else "budget", "mechanism": mechanism,
        "epsilon": "1", "spend": "1" if values is not None else "0", "noise_scale": dict.fromkeys(names, scale),
        "half_width_95": None if values is None else dict.fromkeys(names, half_width), "half_width_kind": kind,
        "coverage": 1.0, "policy_version": "p", "laboratory": True, **(more or {}),
    }).to_bytes()) | dict(more or {}))  # fmt: skip


def revised(end: Micros, values: Mapping[str, int], span: str = "1h", half_width: float = 1.0) -> bytes:
    """Return the revised record of a window, which came with the one an hour later."""
    first = f"dbh/occupancy/public/{rfc3339(end)}"
    return window(end, values, mechanism="filter", kind="posterior", half_width=half_width, more={
        "release_id": f"dbh/occupancy-revised/public/{rfc3339(end)}/{span}", "release": "occupancy-revised",
        "revises": first, "lag": 12, "spend": "0",
    })  # fmt: skip


def attribute(day: str, zone: str, *, released: bool, reason: str | None = None, **shown: Any) -> bytes:
    """Return a record of an arrival."""
    end = parse_time(f"{day}T00:00:00Z") + 288 * TICK
    return AttributeRecord.model_validate({
        "release_id": f"dbh/office-day/public/{day}/{zone}/arrival", "site": "dbh", "audience": "public",
        "release": "office-day", "window_start": rfc3339(end - TICK), "window_end": rfc3339(end), "day": day,
        "zone": zone, "attribute": "arrival", "released": released, "reason": reason, "mechanism": "osdprr",
        "epsilon": "0.2", "spend": "0" if reason else "0.2", "coverage": 1.0, "policy_version": "p",
        "laboratory": True, **shown,
    }).to_bytes()  # fmt: skip


def asked(granularity: Any = "5min", **more: Any) -> RowsQuery:
    given: dict[str, Any] = {"audience": "public", "release": "occupancy", "site": "dbh"} | more
    return RowsQuery(granularity=granularity, **given)


def named(rows: Any) -> list[dict[str, Any]]:
    return [dict(zip(rows.columns, row, strict=True)) for row in rows.rows]
