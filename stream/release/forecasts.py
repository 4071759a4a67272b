"""Forecasts of the published records of a count release: the rest of the day, and once a day the next seven days.

This is post-processing: ``ForecastStream`` receives bytes of published records, and nothing else about a window. So a
forecast costs nothing, has no ledger entry, and is a function of what its audience has already received.

A record follows each window at whose end another local hour has begun; which ones these are depends on the clock alone.
The record at which another day has begun also has the hours of the next seven days.

**State** (``ForecastState``): sums of released values in the current local hour, and the hourly means of the last
``MEMORY`` days. An hour has a mean if at least half of its windows were released.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import orjson

from stream.errors import DataError
from stream.mechanisms.forecast import AHEAD, HOURS, MEMORY, MISSING, SUNDAY, THOUSAND, Forecast, Hours
from stream.policy import forecasts as policy_forecasts
from stream.policy.document import PolicyDocument
from stream.records import EPOCH, HOUR, JsonObject, Micros, Published, ReleaseId
from stream.schemas import ForecastRecord, HourlyLevels, parse_record, private_topic, rfc3339

BAND = 0.9
"""Probability of a band: the share of hours of days that were held back whose mean it contains."""
LEAST_SHARE = 2
"""An hour has a mean if it has a window for at least one in so many ticks."""
NO_HISTORY = "history"
"""Reason for a record without a forecast: too few days were released."""


@dataclass(slots=True)
class ForecastState:
    """Sums of released values of a local hour, and hourly means of the days before."""

    hour: int = -1
    """Number of the local hour since 1970."""
    windows: int = 0
    sums: dict[str, int] = field(default_factory=dict)
    days: dict[int, dict[str, list[int | None]]] = field(default_factory=dict)
    """Number of a local day -> node -> mean of each of its 24 hours, in thousandths."""


class ForecastStream:
    """The forecast of one release for one audience at a site."""

    def __init__(
        self, terms: policy_forecasts.Forecast, nodes: tuple[str, ...], timezone: str, tick: Micros
    ) -> None:  # fmt: skip
        self.release, self.audience = terms.release, terms.audience
        """The count release, and its audience."""
        self.name = terms.release_name
        self.state_name = f"{self.name}/{self.audience}"
        self._nodes, self._timezone, self._tick = nodes, ZoneInfo(timezone), tick
        self._closed = frozenset(_day_number(date.fromisoformat(day)) for day in terms.closed)

    def is_due(self, end: Micros) -> bool:
        """Whether a record follows the window that ends at an instant."""
        return self._hour(end) != self._hour(end - self._tick)

    # --- the operator of the state ----------------------------------------------------------------

    def initial(self) -> ForecastState:
        """Return the state before the first window."""
        return ForecastState()

    def step(self, state: ForecastState, item: Published) -> tuple[ForecastState, list[Published]]:
        """Return the next state, and a forecast if one is due after a published record of counts."""
        record = parse_record(item.value)
        hour = self._hour(item.time - 1)
        if hour > state.hour:
            state = self._next_hour(state, hour)
        counts = _released(record, self._nodes) if hour == state.hour else {}
        if counts:
            state.windows += 1
            for node, value in counts.items():
                state.sums[node] = state.sums.get(node, 0) + value
        if not self.is_due(item.time):
            return state, []
        if self._hour(item.time) > state.hour:
            state = self._next_hour(state, self._hour(item.time))
        found = self._record(record, state, item.time)
        return state, [
            Published(private_topic(self.audience, self.name), item.key, found.to_bytes(), item.time, found.release_id)
        ]

    def encode(self, state: ForecastState) -> bytes:
        """Return the state's bytes: JSON."""
        days = [[day, sorted(nodes.items())] for day, nodes in sorted(state.days.items())]
        return orjson.dumps([state.hour, state.windows, sorted(state.sums.items()), days])

    def decode(self, data: bytes) -> ForecastState:
        """Return the state of a byte form; DataError if it is none."""
        try:
            hour, windows, sums, days = orjson.loads(data)
            return ForecastState(
                int(hour), int(windows), {str(node): int(total) for node, total in sums},
                {int(day): {str(node): _day_of(means) for node, means in nodes} for day, nodes in days},
            )  # fmt: skip
        except (ValueError, TypeError):
            raise DataError("forecast state: must be an hour, its windows and sums, and days of 24 means") from None

    # --- hours and days ---------------------------------------------------------------------------

    def _local(self, instant: Micros) -> datetime:
        return (EPOCH + timedelta(microseconds=instant)).astimezone(self._timezone)

    def _hour(self, instant: Micros) -> int:
        local = self._local(instant)
        return _day_number(local.date()) * HOURS + local.hour

    def _next_hour(self, state: ForecastState, hour: int) -> ForecastState:
        """Return the state of a new hour; the mean of the last one is known if it had enough windows."""
        day, of_day = divmod(state.hour, HOURS)
        if state.windows * LEAST_SHARE * self._tick >= HOUR:
            means = state.days.setdefault(day, {})
            for node, total in state.sums.items():
                means.setdefault(node, [None] * HOURS)[of_day] = total * THOUSAND // state.windows
        first = hour // HOURS - MEMORY
        return ForecastState(hour, 0, {}, {each: means for each, means in state.days.items() if each >= first})

    def _kind(self, day: int) -> int:
        return SUNDAY if day in self._closed else (EPOCH.date() + timedelta(days=day)).weekday()

    # --- records ----------------------------------------------------------------------------------

    def _record(self, record: JsonObject, state: ForecastState, end: Micros) -> ForecastRecord:
        hours, parts = self._forecast(state)
        known = bool((parts.value != MISSING).any())
        identity = ReleaseId.parse(record["release_id"])._replace(release=self.name)
        return ForecastRecord(
            release_id=str(identity),
            site=record["site"],
            audience=record["audience"],
            release=self.name,
            window_start=record["window_start"],
            window_end=record["window_end"],
            values=None,
            hours=[rfc3339(start) for start in hours],
            forecast=_levels(self._nodes, parts.value),
            low=_levels(self._nodes, parts.low),
            high=_levels(self._nodes, parts.high),
            usual=_levels(self._nodes, parts.usual),
            released=known,
            reason=None if known else NO_HISTORY,
            band=BAND,
            of=record["release_id"],
            mechanism=f"{record['mechanism']}/forecast",
            epsilon=record["epsilon"],
            spend="0",
            coverage=record["coverage"],
            policy_version=record["policy_version"],
            laboratory=record["laboratory"],
        )

    def _forecast(self, state: ForecastState) -> tuple[list[Micros], Hours]:
        """Return the starts of the hours of a forecast, and what it says of each."""
        today, hour = divmod(state.hour, HOURS)
        first = today - MEMORY
        means = np.full((MEMORY + 1, len(self._nodes), HOURS), MISSING, np.int64)
        for day, nodes in state.days.items():
            for place, node in enumerate(self._nodes):
                if node in nodes and first <= day <= today:
                    means[day - first, place] = [MISSING if mean is None else mean for mean in nodes[node]]
        kinds = np.array([self._kind(day) for day in range(first, today + AHEAD + 1)])
        forecast = Forecast(means, kinds)
        parts = [(today, hour, forecast.rest_of_today(hour))]
        if hour == 0:
            parts += [(today + ahead, 0, forecast.day(ahead)) for ahead in range(1, AHEAD + 1)]
        starts = [self._start(day, each) for day, since, _ in parts for each in range(since, HOURS)]
        chosen = [place for place, start in enumerate(starts) if start is not None]
        columns = zip(*(part for *_, part in parts), strict=True)
        joined = (np.concatenate(column, axis=1)[:, chosen] for column in columns)
        return [start for start in starts if start is not None], Hours(*joined)

    def _start(self, day: int, hour: int) -> Micros | None:
        """Return when a local hour begins; None if the clock skips it."""
        moment = datetime.combine(EPOCH.date() + timedelta(days=day), time(hour), self._timezone)
        start = (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        return start if self._hour(start) == day * HOURS + hour else None


def _day_number(day: date) -> int:
    return (day - EPOCH.date()).days


def _day_of(means: list[Any]) -> list[int | None]:
    if len(means) != HOURS:
        raise ValueError
    return [None if mean is None else int(mean) for mean in means]


def _released(record: JsonObject, nodes: tuple[str, ...]) -> dict[str, int]:
    """Return the released values of floors and building; nothing for a denied window."""
    levels = record.get("levels") or {}
    floors = levels.get("floor", {})
    values = {f"floor:{name}": value for name, value in floors.items()}
    values |= {"building": levels["building"]} if "building" in levels else {}
    return {node: values[node] for node in nodes if node in values}


def _levels(nodes: tuple[str, ...], numbers: Any) -> HourlyLevels:
    listed = {
        node: [None if number == MISSING else number for number in row]
        for node, row in zip(nodes, numbers.tolist(), strict=True)
    }
    floors = {node.removeprefix("floor:"): row for node, row in listed.items() if node != "building"}
    levels: HourlyLevels = {"floor": floors} if floors else {}
    return levels | ({"building": listed["building"]} if "building" in listed else {})


def forecast_streams(policy: PolicyDocument, site: str) -> Iterator[ForecastStream]:
    """Yield the forecasts of a site."""
    place, releases = policy.site[site], {release.name: release for release in policy.release}
    for each in policy.forecast:
        release = releases[each.release]
        if each.site == site and release.query == "count":
            nodes = policy_forecasts.forecast_nodes(place, release)
            yield ForecastStream(each, nodes, place.timezone, place.tick)
