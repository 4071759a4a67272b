"""The status of each site, read without any key; no true count."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from stream.accounting.ledger import BudgetView
from stream.engine.snapshot import open_snapshot, sensing_status
from stream.policy.counts import CountRelease
from stream.release.budgets import Budgets
from stream.release.state import decode_release_state
from stream.release.validation import Policy
from stream.schemas import rfc3339


class SiteStatus(TypedDict):
    """The progress of one site."""

    watermark: str | None
    last_window: str | None
    ledger_entries: int
    closed: bool
    """Whether it is suspended."""
    releases_left_today: NotRequired[dict[str, int | None]]
    """By release and audience; None without a budget. Only with a policy that has the site."""


class Status(TypedDict):
    """The progress that one state records."""

    next: int
    policy_version: str
    sites: dict[str, SiteStatus]


def describe(snapshot: bytes, policy: Policy | None) -> Status:
    """Return position, policy version and, per site, watermark, last window, ledger and releases left today."""
    head, sites = open_snapshot(snapshot)
    return {
        "next": head.next_offset,
        "policy_version": head.policy,
        "sites": {site: _site(site, stages, policy) for site, stages in sites.items()},
    }


def _site(site: str, stages: dict[str, bytes], policy: Policy | None) -> SiteStatus:
    sensing, (release, _) = sensing_status(stages), decode_release_state(stages["release"])
    status: SiteStatus = {
        "watermark": None if sensing.watermark is None else rfc3339(sensing.watermark),
        "last_window": None if sensing.last_window is None else rfc3339(sensing.last_window),
        "ledger_entries": release.ledger.sequence,
        "closed": sensing.suspended,
    }
    if policy is not None and site in policy.site:
        status["releases_left_today"] = _left(policy, site, release.ledger.budgets, release.key_day)
    return status


def _left(policy: Policy, site: str, spending: BudgetView, key_day: int) -> dict[str, int | None]:
    budgets = Budgets(policy, site)
    return {
        f"{release.name}/{audience}": budgets.windows_left(spending, release, audience, key_day)
        for release in policy.release
        if isinstance(release, CountRelease)
        for audience in release.epsilon
    }
