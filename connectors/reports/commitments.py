"""Whether the ledger's commitments are to the counts that were counted, where both are still there.

A commitment is an HMAC under its day's key to what a release read. It can be checked as long as the day's key
exists and the true counts are kept, which they are for a day where the policy publishes them (restricted).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from stream.errors import AuditError, KeyFileError
from stream.keys import Keys
from stream.policy.document import CountRelease, Policy
from stream.policy.sites import Site
from stream.records import OccupancyWindow
from stream.release.late import LateReleases
from stream.schemas import parse_time

Entry = Mapping[str, Any]


def compare_commitments(
    entries: Iterable[Entry], counted: Iterable[Mapping[str, Any]], policies: Iterable[Policy], keys: Keys
) -> int:
    """Return how many commitments were compared; AuditError names the first that is to something else."""
    known = {policy.version: policy for policy in policies}
    windows = {(body["site"], body["window_end"]): body for body in counted}
    groups: dict[tuple[str, str, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        policy = known.get(entry["policy_version"])
        if policy is not None and entry["attempt"] == 1 and _of_counts(policy, entry["release"]):
            groups[entry["site"], entry["window_end"], entry["policy_version"]].append(entry)
    compared = 0
    for (site, end, version), made in groups.items():
        if (site, end) in windows:
            window = _window(known[version], site, windows[site, end])
            compared += _compare(made, window, known[version], keys)
    return compared


def _of_counts(policy: Policy, release: str) -> bool:
    return any(isinstance(each, CountRelease) and each.name == release for each in policy.release)


def _window(policy: Policy, site: str, record: Mapping[str, Any]) -> OccupancyWindow | None:
    """Return the window that was counted; None where it was counted in other zones."""
    place = policy.site.get(site)
    if place is None or {zone.id for zone in place.zones} != set(record["counts"]):
        return None
    return counted_window(place, site, record)


def counted_window(place: Site, site: str, record: Mapping[str, Any]) -> OccupancyWindow:
    """Return the window of a restricted record of true counts, which is about the zones of this site."""
    end, bounded = parse_time(record["window_end"]), record.get("bounded")
    days = place.privacy_days
    return OccupancyWindow(
        site,
        end,
        tuple(record["counts"][zone.id] for zone in place.zones),
        Fraction(1),
        None if days is None else days.at(end),
        None if bounded is None else tuple(bounded[zone.id] for zone in place.zones),
    )


def _compare(entries: Iterable[Entry], window: OccupancyWindow | None, policy: Policy, keys: Keys) -> int:
    if window is None:
        return 0
    try:
        right = LateReleases(policy, window.site, keys).commitments(window)
    except KeyFileError:
        return 0  # the day's key is gone
    compared = 0
    for entry in entries:
        if entry["release_id"] in right:
            compared += 1
            if right[entry["release_id"]] != entry["commitment"]:
                where = f"audit: site {window.site}: entry {entry['sequence']}"
                msg = f"{where} must be committed to the counts that are kept"
                raise AuditError(msg)
    return compared
