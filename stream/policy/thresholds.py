"""Releases of decisions: at which nodes a count is above, or below, a threshold, window by window.

Two ways: on the noisy values of a count release of the same policy (``counts``), which cost nothing more, or by sparse
vector (``epsilon``), which is paid by the run. The latter has its proof for whole privacy days only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from stream.policy.count_release import CountRelease, Level
from stream.policy.fields import Duration, Epsilon, Frozen, Ident, Name, Spend, decimal_string, listed, refuse_repeats
from stream.policy.mechanisms import SPARSE_VECTOR
from stream.policy.queries import LARGEST_COUNT
from stream.policy.schedule import Bookings
from stream.policy.selection import Selection
from stream.policy.sites import Site, Zone
from stream.records import MINUTE, Micros

Limit = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]
BUILDING = "building"
_PAID = ("epsilon", "daily_budget", "unit", "events")
_DECIDED_ON = ("laplace", "filter", "pegasus")
"""Mechanisms whose noisy values have a known law."""


class ThresholdRelease(Frozen):
    """Which nodes are above, or below, their thresholds."""

    name: Name
    query: Literal["threshold"]
    alert: Literal["above", "below"] = "above"
    """What is alerted of: a count above its threshold, or one below it."""
    zones: Selection = Selection()
    level: Level = "zone"
    """What is counted: zones, floors (the zones selected on each), or all of them together."""
    threshold: Limit | None = None
    """The same at every node."""
    thresholds: dict[Ident, Limit] = Field(default={})
    """By node: zone, floor or ``building``."""
    of_capacity: Spend | None = None
    """As a part of each node's capacity, rounded down."""
    miss: Spend = Fraction(1, 20)
    """Probability with which an event may go without alert while it is not denied."""
    within: Duration | None = None
    """How long an event lasts that is to be seen, and the longest until it is; None: one tick."""
    hysteresis: Limit | None = None
    """An alert ends when the count is so far on the other side; None: with its cool-down."""
    cooldown: Duration = 30 * MINUTE
    """How long nothing is asked after an alert began or ended: on the clock, whatever is counted."""
    events: int = Field(default=3, ge=1, le=100, strict=True)
    """Alerts that a node may have a day; later ones are denied."""
    schedule: Bookings = ()
    """When zones are booked: nothing is asked at other times; without any, always."""
    unit: Literal["device_day", "run"] = "device_day"
    """What epsilon pays for: all that a device's privacy day can cost, or one run."""
    epsilon: dict[Name, Epsilon] = Field(default={})
    daily_budget: dict[Name, Spend] = Field(default={})
    """What runs may cost of a privacy day, with ``unit = "run"``; what it cannot pay is not opened."""
    counts: Name | None = None
    """Count release on whose noisy values is decided, for nothing."""
    audience: Annotated[tuple[Name, ...], BeforeValidator(listed)] = ()
    """Who is told, with ``counts``: some of its audiences."""

    @property
    def mechanism(self) -> str:
        """The name that records and books bear."""
        return SPARSE_VECTOR

    @property
    def audiences(self) -> tuple[str, ...]:
        """Who is told, sorted."""
        return tuple(sorted(self.audience or self.epsilon))

    @property
    def free(self) -> bool:
        """Whether it decides on values that are paid for already."""
        return self.counts is not None

    @property
    def price(self) -> Fraction:
        """The epsilon of every audience."""
        return next(iter(self.epsilon.values()))

    @property
    def budget(self) -> Fraction | None:
        """What runs may cost of a day; None where a day's epsilon says so."""
        return next(iter(self.daily_budget.values()), None)

    def windows(self, tick: Micros) -> int:
        """Return during how many windows an event that is to be seen lasts."""
        return max(1, (self.within or tick) // tick)

    @model_validator(mode="after")
    def _whole(self) -> ThresholdRelease:
        for holds, rule in (*_of_thresholds(self), *(_of_free(self) if self.free else _of_paid(self))):
            if not holds:
                raise ValueError(rule)
        refuse_repeats("audience must be unique", self.audience)
        return self


def _of_thresholds(release: ThresholdRelease) -> Sequence[tuple[bool, str]]:
    given = (release.threshold is not None) + bool(release.thresholds) + (release.of_capacity is not None)
    limits = [*release.thresholds.values(), *([] if release.threshold is None else [release.threshold])]
    return (
        (given == 1, f"must have one of threshold, thresholds and of_capacity, got {given}"),
        (release.alert == "above" or min(limits, default=1) > 0, "a threshold of alert = 'below' must be at least 1"),
        (
            0 < release.miss < Fraction(1, 2),
            f"miss must be above 0 and below 0.5, got {decimal_string(release.miss)}",
        ),
        (not release.schedule or release.level == "zone", f"schedule must go with level = 'zone', got {release.level}"),
    )


def _of_free(release: ThresholdRelease) -> Sequence[tuple[bool, str]]:
    unused = [key for key in _PAID if getattr(release, key) != ThresholdRelease.model_fields[key].default]
    return (
        (not unused, f"{unused[0] if unused else ''} must not go with counts, whose values are paid for"),
        (bool(release.audience), "audience must be given with counts, at least one of its audiences"),
    )


def _of_paid(release: ThresholdRelease) -> Sequence[tuple[bool, str]]:
    by_run, budget = release.unit == "run", release.budget
    return (
        (bool(release.epsilon), "epsilon must be given, or counts to decide on"),
        (not release.audience, "audience must go with counts: epsilon names the audiences"),
        (
            len(set(release.epsilon.values())) <= 1 and len(set(release.daily_budget.values())) <= 1,
            "epsilon, and daily_budget, must be one for all audiences, who are told the same decisions",
        ),
        (
            set(release.daily_budget) == (set(release.epsilon) if by_run else set()),
            "daily_budget must be given for each audience with unit = 'run', and only then",
        ),
        (budget is None or not release.epsilon or budget >= release.price, "daily_budget must pay at least one run"),
    )


def nodes_of(release: ThresholdRelease, zones: Sequence[Zone]) -> dict[str, tuple[int, ...]]:
    """Return the nodes of a release, in order, each with the places of its zones among those it covers at a site."""
    held: dict[str, list[int]] = {}
    for place, zone in enumerate(zones):
        name = {"zone": zone.id, "floor": zone.floor}.get(release.level, BUILDING)
        held.setdefault(name, []).append(place)
    return {name: tuple(places) for name, places in held.items()}


def thresholds_of(release: ThresholdRelease, zones: Sequence[Zone]) -> dict[str, int]:
    """Return the threshold of each node."""
    share = release.of_capacity
    return {
        node: release.threshold
        if release.threshold is not None
        else release.thresholds[node]
        if share is None
        else int(share * sum(zones[place].capacity for place in places))
        for node, places in nodes_of(release, zones).items()
    }


def check_threshold(
    release: ThresholdRelease, sites: Mapping[str, tuple[Site, tuple[Zone, ...]]], counts: Mapping[str, CountRelease]
) -> None:
    """Raise ValueError where a release does not fit the sites in which it covers zones, or the counts it decides on.

    ``sites`` holds each with the zones that are covered there, ``counts`` the policy's count releases by name.
    """
    nodes = {node for _, zones in sites.values() for node in nodes_of(release, zones)}
    booked, named = {booking.zone for booking in release.schedule}, set(release.thresholds)
    rules = [
        (not named or named == nodes, f"thresholds must name each node and no other, not {_first(named ^ nodes)}"),
        (booked <= nodes, f"schedule must name zones of the release, got {_first(booked - nodes)}"),
    ]
    if release.alert == "below" and release.of_capacity is not None:
        least = min(least for _, zones in sites.values() for least in thresholds_of(release, zones).values())
        rules.append((least > 0, "of_capacity must leave alert = 'below' a threshold of 1 or more"))
    rules += _rules_of_counts(release, sites, counts) if release.free else _rules_of_sites(sites)
    for holds, rule in rules:
        if not holds:
            msg = f"release '{release.name}': {rule}"
            raise ValueError(msg)


def decidable(counts: CountRelease) -> bool:
    """Whether a count release has noisy values of zones, of a known law, on which may be decided."""
    return counts.mechanism in _DECIDED_ON and not counts.shares and not counts.states and "zone" in counts.levels


def _first(names: set[str]) -> str:
    return repr(min(names, default=""))


def _rules_of_sites(sites: Mapping[str, tuple[Site, tuple[Zone, ...]]]) -> Sequence[tuple[bool, str]]:
    without = {name for name, (site, _) in sites.items() if site.day_starts is None}
    rule = f"epsilon needs day_starts and contribution at site {_first(without)}: what runs cost is proven by the day"
    return [(not without, rule)]


def _rules_of_counts(
    release: ThresholdRelease, sites: Mapping[str, tuple[Site, tuple[Zone, ...]]], counts: Mapping[str, CountRelease]
) -> Sequence[tuple[bool, str]]:
    held = counts.get(release.counts or "")
    if held is None:
        return [(False, f"counts must name a count release of the policy, got {release.counts!r}")]
    missed = {zone.id for _, zones in sites.values() for zone in zones if not held.zones.covers(zone)}
    strangers = set(release.audience) - set(held.epsilon)
    return [
        (decidable(held), f"counts must be of zones, by {' or '.join(_DECIDED_ON)} without shares, got {held.name!r}"),
        (not missed, f"counts must cover the same zones, {held.name!r} leaves out {_first(missed)}"),
        (not strangers, f"audience must be some of those of {held.name!r}, got {_first(strangers)}"),
    ]
