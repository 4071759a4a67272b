"""Where a site stands: read from a snapshot, without any key, and without a true count in it."""

from __future__ import annotations

from typing import Any

import orjson

from stream.accounting.ledger import LedgerState, decode_ledger
from stream.policy.document import CountRelease, Policy
from stream.release.budgets import Budgets
from stream.runners.snapshot import is_shut, open_snapshot, upgraded
from stream.schemas import rfc3339, split_parts


def describe(snapshot: bytes, policy: Policy | None) -> dict[str, Any]:
    """Return position, policy version and, per site, watermark, last window, ledger and releases left today."""
    head, sites = open_snapshot(upgraded(snapshot))
    return {
        "next": head["next"],
        "policy_version": head["policy"],
        "sites": {site: _site(site, stages, policy) for site, stages in sites.items()},
    }


def _site(site: str, stages: dict[str, bytes], policy: Policy | None) -> dict[str, Any]:
    sense, (release, _) = orjson.loads(stages["sense"]), split_parts(stages["release"])
    watermark, closed = sense["clock"][1], sense["ticks"][1]
    ledger = release["ledger"]
    status: dict[str, Any] = {
        "watermark": None if watermark is None else rfc3339(watermark),
        "last_window": None if closed is None else rfc3339(closed),
        "ledger_entries": ledger["sequence"],
        "closed": is_shut(sense),
    }
    if policy is not None and site in policy.site:
        status["releases_left_today"] = _left(policy, site, decode_ledger(ledger), release["day"])
    return status


def _left(policy: Policy, site: str, ledger: LedgerState, day: int) -> dict[str, int | None]:
    budgets = Budgets.of(policy, site)
    return {
        f"{release.name}/{audience}": budgets.left(ledger, release, audience, day)
        for release in policy.release
        if isinstance(release, CountRelease)
        for audience in release.epsilon
    }
