"""Released records of months with known true counts: plain noise on zones, floors and building."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.documents.month import Month
from connectors.storage.site_metadata import SiteMetadata
from stream.records import EPOCH, SECOND, Micros
from stream.schemas import rfc3339

Ints = NDArray[np.int64]
SITE: SiteMetadata = {
    "v": 1, "site": "dbh", "name": "Library", "timezone": "Europe/Berlin", "tick_seconds": 1800,
    "zones": [
        {"zone": "hall", "floor": "1", "kind": "hall", "capacity": 120, "metadata": {"name": "Great hall"}},
        {"zone": "201", "floor": "2", "kind": "room", "capacity": 60, "metadata": {}},
        {"zone": "202", "floor": "2", "kind": "room", "capacity": 40, "metadata": {}},
    ],
}  # fmt: skip
ZONES = tuple(zone["zone"] for zone in SITE["zones"])


def starts(month: Month, site: SiteMetadata = SITE) -> list[Micros]:
    """Return the starts of a month's windows."""
    from zoneinfo import ZoneInfo

    first, end = month.span(ZoneInfo(site["timezone"]))
    return list(range(first, end, site["tick_seconds"] * SECOND))


def noise(random: np.random.Generator, scale: float, size: tuple[int, ...]) -> Ints:
    """Return discrete Laplace noise of a scale: the difference of two geometric variables."""
    p = 1 - np.exp(-1 / scale)
    return np.asarray(random.geometric(p, size) - random.geometric(p, size), np.int64)


def bodies(
    month: Month, truth: Mapping[str, Callable[[Micros], int]] | Mapping[str, Ints], *, seed: int = 1,
    scale: float = 1.0, site: SiteMetadata = SITE, coverage: Callable[[Micros], float] = lambda _: 1.0,
    more: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the records of ``laplace`` on zones and building, whose true counts are given by window."""
    random = np.random.default_rng(seed)
    times, names = starts(month, site), list(truth)
    drawn = noise(random, scale, (len(times), len(names)))
    tick = site["tick_seconds"] * SECOND
    width = next(k for k in range(1, 10_000) if 2 * np.exp(-(k + 1) / scale) / (1 + np.exp(-1 / scale)) <= 0.05)
    for place, start in enumerate(times):
        given = {name: of(start) if callable(of) else int(of[place]) for name, of in truth.items()}
        values = {name: given[name] + int(drawn[place, at]) for at, name in enumerate(names)}
        end = rfc3339(start + tick)
        yield {
            "v": 1, "release_id": f"dbh/occupancy/facilities/{end}", "site": "dbh", "audience": "facilities",
            "release": "occupancy", "window_start": rfc3339(start), "window_end": end, "values": values,
            "levels": {"building": sum(values.values())}, "released": True, "reason": None, "mechanism": "laplace",
            "epsilon": str(1 / scale), "spend": str(1 / scale), "noise_scale": dict.fromkeys(names, scale),
            "half_width_95": dict.fromkeys(names, width), "half_width_kind": "noise",
            "levels_half_width_95": {"building": 2 * width}, "coverage": coverage(start), "policy_version": "p",
            "laboratory": True, **(more or {}),
        }  # fmt: skip


def office_day(most: int) -> Callable[[Micros], int]:
    """Return a count that follows office hours in Berlin, fewer on Fridays, none at weekends."""
    from datetime import timedelta
    from zoneinfo import ZoneInfo

    def count(start: Micros) -> int:
        time = (EPOCH + timedelta(microseconds=start)).astimezone(ZoneInfo("Europe/Berlin"))
        if time.weekday() >= 5:
            return 0
        shape = max(0.0, 1 - abs(time.hour + time.minute / 60 - 13) / 6)
        return round(most * shape * (0.7 if time.weekday() == 4 else 1.2 if time.weekday() == 1 else 1.0))

    return count
