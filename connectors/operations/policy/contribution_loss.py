"""What a contribution bound hides on a tried day, as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import NotRequired, TypedDict
from zoneinfo import ZoneInfo

from connectors.operations.policy.guarantees import spaced
from stream.lab.simulator.events import DAY_SHOWN, simulate
from stream.pipeline import definition_of
from stream.policy.counts import CountRelease
from stream.policy.thresholds import ThresholdRelease
from stream.records import EPOCH
from stream.release.validation import Policy
from stream.sensing.contribution import ContributionBound
from stream.sensing.device_days import DeviceDays

Stays = Mapping[str, DeviceDays]
"""Site -> presence of devices at the ticks of a tried day."""


class Loss(TypedDict):
    """What a contribution bound hides at a site."""

    site: str
    bounded_to: str
    at: str | None
    """Local time at which it hides most; None if it hides nobody."""
    hidden: float
    """Share of those present then."""
    unit: NotRequired[str]
    """``login`` where logins count; of devices there is none."""


_NOBODY = "Site {site}: after {bound} of a day a {unit} is not counted; on the tried day this hides no {unit}."
_HIDDEN = (
    "Site {site}: after {bound} of a day a {unit} is not counted; at {at} this hides {share} of the {unit}s of the "
    "tried day."
)


def bounded_sites(policy: Policy) -> list[str]:
    """Return the sites at which a release counts each device for a part of the day only."""
    bounded = [
        release for release in policy.release
        if (isinstance(release, CountRelease) and release.by_day and not release.by_changes)
        or (isinstance(release, ThresholdRelease) and release.counts is None)
    ]  # fmt: skip
    return [
        name for name, site in policy.site.items()
        if site.bounded_to is not None and any(policy.zones_of(release, name) for release in bounded)
    ]  # fmt: skip


def losses(policy: Policy, stays: Stays) -> list[Loss]:
    """Return, for each bounded site, the bound, when it hides most devices of the tried day, and which share of
    them."""
    found = []
    for name in bounded_sites(policy):
        site = policy.site[name]
        hidden = stays[name].most_hidden(site.contribution_ticks)
        row: Loss = {"site": name, "bounded_to": site.bounded_to or "", "at": None, "hidden": 0.0}
        if site.counts_logins:
            row["unit"] = "login"
        if hidden is not None:
            local = (EPOCH + timedelta(microseconds=hidden.tick)).astimezone(ZoneInfo(site.timezone))
            row["at"], row["hidden"] = f"{local:%H:%M}", round(float(hidden.share), 4)
        found.append(row)
    return found


def loss_sentence(loss: Loss) -> str:
    """Return one of ``losses`` as a sentence."""
    site, bound, unit = loss["site"], spaced(loss["bounded_to"]), loss.get("unit", "device")
    if loss["at"] is None:
        return _NOBODY.format(site=site, bound=bound, unit=unit)
    return _HIDDEN.format(site=site, bound=bound, unit=unit, at=loss["at"], share=_share(loss["hidden"]))


def _share(hidden: float) -> str:
    if hidden < 0.01:
        return "less than 1 %"
    return f"about {100 * hidden:.0f} %" if hidden < 0.99 else "nearly all"


def simulated_stays(policy: Policy) -> dict[str, DeviceDays]:
    """Return who is there when on the simulated day, of each site that has bounded releases."""
    return {
        site: _simulated_stays(definition, sessions=policy.site[site].has_sessions)
        for site, definition in _bounds(policy)
    }


@lru_cache(maxsize=4)
def _simulated_stays(definition: ContributionBound, *, sessions: bool) -> DeviceDays:
    simulation = simulate(replace(DAY_SHOWN, timezone=definition.timezone))
    stays = DeviceDays(definition)
    if sessions:  # its controller reports who leaves
        visits = simulation.visits
        columns = zip(visits.device.tolist(), visits.start.tolist(), visits.end.tolist(), strict=True)
        stays.add_stays((simulation.devices[device], start, end) for device, start, end in columns)
        return stays
    stays.add(
        (simulation.devices[at], time)
        for at, time in zip(simulation.device.tolist(), simulation.time.tolist(), strict=True)
    )
    return stays


def stays_of(policy: Policy) -> dict[str, DeviceDays]:
    """Return, of each site that has bounded releases, who is there when: nobody yet."""
    return {site: DeviceDays(definition) for site, definition in _bounds(policy)}


def _bounds(policy: Policy) -> Iterator[tuple[str, ContributionBound]]:
    for name in bounded_sites(policy):
        definition = definition_of(policy.site[name])
        if definition is not None:
            yield name, definition
