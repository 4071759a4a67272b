"""Membership against threshold streams: a day on which one device decides, at every tick at which it may count.

Without it a node's count lies so far from the edge of the question that alerts are rare; with it the count is one more.
All other nodes are empty. Streams that decide on counts which are paid for give away nothing that these do not, and are
not attacked again.
"""

from __future__ import annotations

from dataclasses import replace

import orjson

from connectors.attacks.canary import Worlds
from connectors.attacks.recording import Day, Recorded, laboratory
from stream.errors import DataError
from stream.policy.document import Policy
from stream.policy.threshold_release import ThresholdRelease
from stream.records import OccupancyWindow, Published
from stream.release.stage import Releases
from stream.release.threshold_stage import RunPlan
from stream.schemas import private_topic

SCORES = ("alerts", "first alert")
"""In how many windows an alert lasts; how early the first begins."""

RARE = 3
"""How far from the edge of the question the count is, in scales of its noise: one more device makes rare alerts
likelier by more than frequent ones."""


def alarm_releases(policy: Policy, site: str) -> list[ThresholdRelease]:
    """Return the threshold streams of a site that pay for runs."""
    releases = [release for release in policy.release if isinstance(release, ThresholdRelease) and not release.free]
    return [release for release in releases if policy.zones_of(release, site)]


def promised(policy: Policy, site: str, release: ThresholdRelease) -> float:
    """Return what a device's day costs at most."""
    return float(RunPlan(policy, release, site).price.day)


def deciding(policy: Policy, recorded: Recorded, day: Day, release: ThresholdRelease) -> Worlds:
    """Return both worlds: as many windows of one privacy day as the device counts in.

    Raises:
        DataError: the recording does not hold them.
    """
    plan, site = RunPlan(policy, release, recorded.name), recorded.site
    middle = day.windows[len(day.windows) // 2].privacy_day
    windows = [window for window in recorded.windows if window.privacy_day == middle]
    windows = [window for window in windows if plan.booked(window.window_end)[0]]
    if middle is None or not windows:
        raise DataError(f"the recording must hold a privacy day on which release '{release.name}' asks")
    zone = [each.id for each in site.zones].index(plan.covered[plan.members[0][0]])
    rare = plan.vector.shift + round(RARE / float(plan.vector.law.half))
    edge = max(0, plan.thresholds[0] - rare if release.alert == "above" else plan.thresholds[0] + rare - 1)
    shown = windows[: site.contribution_ticks]
    there, away = ([_only(window, zone, count) for window in shown] for count in (edge + 1, edge))
    return Worlds(there, away, zone)


def _only(window: OccupancyWindow, zone: int, count: int) -> OccupancyWindow:
    counts = tuple(count if place == zone else 0 for place in range(len(window.counts)))
    return replace(window, counts=counts, bounded=counts)


def alarm_scores(
    policy: Policy, site: str, release: ThresholdRelease, windows: list[OccupancyWindow], seed: str
) -> dict[str, tuple[float, ...]]:
    """Run a stream over windows; return each audience's scores of the node that the device is in."""
    only = policy.model_copy(update={"release": (release,)})
    stage, node = Releases(only, site, laboratory(0, seed)), RunPlan(policy, release, site).names[0]
    topics = {private_topic(audience, release.name): audience for audience in release.audiences}
    above: dict[str, list[bool]] = {audience: [] for audience in release.audiences}
    state = stage.initial()
    for window in windows:
        state, outputs = stage.step(state, window)
        for output in outputs:
            if isinstance(output, Published) and output.topic in topics:
                above[topics[output.topic]].append(bool(orjson.loads(output.value)["above"].get(node)))
    return {audience: _scored(alerts) for audience, alerts in above.items()}


def _scored(alerts: list[bool]) -> tuple[float, ...]:
    first = alerts.index(True) if True in alerts else len(alerts)
    return float(sum(alerts)), float(len(alerts) - first)
