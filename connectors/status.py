"""Where a site stands: read from a snapshot, without any key, and without a true count in it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import orjson

from stream.partition import open_snapshot
from stream.policy import NANO, CountRelease, Policy
from stream.schemas import rfc3339, split_parts


def describe(snapshot: bytes, policy: Policy | None) -> dict[str, Any]:
    """Return position, policy version and, per site, watermark, last window, ledger and releases left today."""
    head, sites = open_snapshot(snapshot)
    return {
        "next": head["next"],
        "policy_version": head["policy"],
        "sites": {site: _site(stages, policy) for site, stages in sites.items()},
    }


def _site(stages: dict[str, bytes], policy: Policy | None) -> dict[str, Any]:
    sense, (release, _) = orjson.loads(stages["sense"]), split_parts(stages["release"])
    watermark, closed = sense["clock"][1], sense["ticks"][1]
    ledger = release["ledger"]
    status: dict[str, Any] = {
        "watermark": None if watermark is None else rfc3339(watermark),
        "last_window": None if closed is None else rfc3339(closed),
        "ledger_entries": ledger["sequence"],
    }
    if policy is not None:
        status["releases_left_today"] = _left(policy, ledger["spent"], release["day"])
    return status


def _left(policy: Policy, spent: dict[str, list[tuple[int, int]]], day: int) -> dict[str, int | None]:
    left: dict[str, int | None] = {}
    for release in policy.release:
        if isinstance(release, CountRelease):
            for audience, epsilon in release.epsilon.items():
                name = f"{release.name}/{audience}"
                budget = release.daily_budget.get(audience)
                periods = dict(spent.get(name, []))
                used = Fraction(periods.get(day // release.refresh_days, 0), NANO)
                left[name] = None if budget is None else int((budget - used) / epsilon)
    return left
