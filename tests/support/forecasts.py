"""Policies with forecasts, and released records of many days, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from stream.records import DAY, HOUR, Micros, Published
from stream.release.forecasts import ForecastState, ForecastStream, forecast_streams
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time, private_topic, rfc3339
from tests.support.people_models import HALLS
from tests.support.small_building import SITE, policy_text

MONDAY = parse_time("2026-01-05T00:00:00-08:00")
"""Local midnight of the small building."""
TABLE = f"""
[forecast]
site = "{SITE}"
release = "halls"
audience = "facilities"
"""


def with_forecast(releases: str = HALLS, *, table: str = TABLE, closed: str = "", **text: Any) -> Policy:
    """Return the policy of the small building with a forecast; ``closed`` is what its file of closed days says."""
    return load_policy(policy_text(releases, **text) + table, read=lambda _: closed)


def stream_of(table: str = TABLE, closed: str = "") -> ForecastStream:
    """Return the small building's forecast; its windows are 15 minutes long."""
    [stream] = forecast_streams(with_forecast(table=table, closed=closed), SITE)
    return stream


def given(end: Micros, building: int | None, tick: Micros, **more: Any) -> Published:
    """Return a published record of counts: the building, and the same on floor 1."""
    levels = {} if building is None else {"levels": {"floor": {"1": building}, "building": building}}
    record: dict[str, Any] = {
        "v": 1, "release_id": f"{SITE}/halls/facilities/{rfc3339(end)}", "site": SITE, "audience": "facilities",
        "release": "halls", "window_start": rfc3339(end - tick), "window_end": rfc3339(end),
        "values": None if building is None else {"a": 0}, "released": building is not None,
        "reason": "budget" if building is None else None, "mechanism": "laplace", "epsilon": "1", "spend": "1",
        "coverage": 1.0, "policy_version": "0" * 16, "laboratory": True,
    } | levels | more  # fmt: skip
    return Published(private_topic("facilities", "halls"), SITE, orjson.dumps(record), end, record["release_id"])


def history(days: int, count: Callable[[int, int], int]) -> ForecastState:
    """Return the state after whole days from Monday, 5 January, with hourly counts of a day (0 is that Monday)."""
    first = (MONDAY - 8 * HOUR) // DAY
    means = {first + day: [1000 * count(day, hour) for hour in range(24)] for day in range(days)}
    return ForecastState(
        24 * (first + days) - 1, 0, {},
        {day: {"building": [*hours], "floor:1": [*hours]} for day, hours in means.items()},
    )  # fmt: skip


def fed(
    stream: ForecastStream, count: Callable[[int, int], int | None], hours: range, state: ForecastState | None = None
) -> tuple[ForecastState, list[dict[str, Any]]]:
    """Pass hours since Monday, 5 January, through a stream, one window in each quarter; None is denied."""
    state, found = state or stream.initial(), list[dict[str, Any]]()
    for number in hours:
        for quarter in range(1, 5):
            end = MONDAY + number * HOUR + quarter * HOUR // 4
            state, made = stream.step(state, given(end, count(*divmod(number, 24)), HOUR // 4))
            found += [orjson.loads(each.value) for each in made]
    return state, found


def after(stream: ForecastStream, days: int, count: Callable[[int, int], int], hours: int = 0) -> list[dict[str, Any]]:
    """Return the forecasts at the end of some days and of each hour of the next one."""
    last = range(24 * days - 1, 24 * days + hours)
    before = history(days, count)
    for node in before.days[max(before.days)].values():
        node[-1] = None  # comes with the first hour that is fed
    before.hour -= 1
    return fed(stream, count, last, before)[1]
