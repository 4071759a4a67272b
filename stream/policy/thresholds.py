"""Releases of threshold decisions: counts above, or below, a threshold.

There are two kinds. A release with ``counts`` decides on the noisy values of a count release of the same policy, at no
further cost. A release with ``epsilon`` uses sparse vector and is paid per run; its proof holds for whole privacy days
only. A schedule restricts decisions to the times at which a zone is booked; its rows are public and part of the
policy's meaning.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from stream.policy.counts import LARGEST_COUNT, CountRelease, Level
from stream.policy.fields import (
    Clock,
    Duration,
    Epsilon,
    Frozen,
    Ident,
    Name,
    ReadText,
    Spend,
    decimal_string,
    listed,
    refuse_repeats,
)
from stream.policy.mechanisms import SPARSE_VECTOR, names_where
from stream.policy.sites import Selection, Site, Zone
from stream.records import MINUTE, Micros

# --- schedules ----------------------------------------------------------------------------------------

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
COLUMNS = ("zone", "day", "start", "end")
MOST_BOOKINGS = 10_000


def _day(text: str) -> str:
    if text in WEEKDAYS:
        return text
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        msg = f"must be one of {', '.join(WEEKDAYS)}, or a date such as '2026-03-02'"
        raise ValueError(msg) from None


class Booking(Frozen):
    """A period of a day for which a zone is booked, in site-local time."""

    zone: Ident
    day: Annotated[str, AfterValidator(_day)]
    """``mon`` … ``sun`` for every week, or one date."""
    start: Clock
    end: Clock

    @model_validator(mode="after")
    def _in_order(self) -> Booking:
        if self.start >= self.end:
            msg = f"start must be before end, got {self.start} and {self.end}"
            raise ValueError(msg)
        return self

    def holds(self, local: datetime) -> bool:
        """Whether a site-local instant lies in the booking; the end is exclusive."""
        clock = local.strftime("%H:%M")
        today = self.day in (WEEKDAYS[local.weekday()], local.date().isoformat())
        return today and self.start <= clock < self.end


Bookings = Annotated[tuple[Booking, ...], Field(max_length=MOST_BOOKINGS)]


class ScheduleError(Exception):
    """A schedule file broke a rule; the message gives the key that names it, the rule and the file's name."""


def attach_schedules(document: Mapping[str, Any], read: ReadText) -> None:
    """Replace the name of each schedule file in the releases of a policy by the rows of the file.

    Args:
        document: the parsed policy.
        read: returns the text of a file.

    Raises:
        ScheduleError: a file cannot be read, or is not a schedule.
    """
    releases = document.get("release")
    for number, release in enumerate(releases if isinstance(releases, list) else []):
        name = release.get("schedule") if isinstance(release, dict) else None
        if isinstance(name, str):
            try:
                release["schedule"] = read_schedule(read(name))
            except (ValueError, csv.Error) as error:
                msg = f"release[{number}].schedule: {error}, got {name!r}"
                raise ScheduleError(msg) from None


def read_schedule(text: str) -> list[dict[str, str]]:
    """Return the rows of a schedule file, CSV with the columns ``zone``, ``day``, ``start`` and ``end``.

    Raises:
        ValueError: the columns are different, a row has more or fewer fields, or there is no row. The values of the
            fields are checked with the policy.
    """
    rows = list(csv.reader(text.splitlines()))
    if not rows or tuple(name.strip() for name in rows[0]) != COLUMNS:
        msg = f"must have the columns {', '.join(COLUMNS)}"
        raise ValueError(msg)
    bookings = [row for row in rows[1:] if row]
    if not bookings:
        msg = "must have at least one booking"
        raise ValueError(msg)
    for number, row in enumerate(bookings, start=2):
        if len(row) != len(COLUMNS):
            msg = f"row {number} must have {len(COLUMNS)} fields, got {len(row)}"
            raise ValueError(msg)
    return [dict(zip(COLUMNS, (field.strip() for field in row), strict=True)) for row in bookings]


# --- releases -----------------------------------------------------------------------------------------

Limit = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]
BUILDING = "building"
_PAID = ("epsilon", "daily_budget", "unit", "events")


class ThresholdRelease(Frozen):
    """Decisions which nodes are above, or below, their thresholds."""

    name: Name
    query: Literal["threshold"]
    alert: Literal["above", "below"] = "above"
    """The cause of an alert: a count above its threshold, or below it."""
    zones: Selection = Selection()
    level: Level = "zone"
    """The nodes: zones, floors (the selected zones of each), or all selected zones together."""
    threshold: Limit | None = None
    """One threshold for all nodes."""
    thresholds: dict[Ident, Limit] = Field(default={})
    """Node (zone, floor or ``building``) -> threshold."""
    of_capacity: Spend | None = None
    """Threshold as a share of each node's capacity, rounded down."""
    miss: Spend = Fraction(1, 20)
    """Probability with which an event that is not denied may have no alert."""
    within: Duration | None = None
    """Least duration of an event that must be detected, and the longest delay of its detection; None: one tick."""
    hysteresis: Limit | None = None
    """An alert ends when the count is so far on the other side of the threshold; None: at the end of its cool-down."""
    cooldown: Duration = 30 * MINUTE
    """How long no query is made after an alert began or ended; it follows the clock, whatever the counts."""
    events: int = Field(default=3, ge=1, le=100, strict=True)
    """Most alerts of a node per day; later ones are denied."""
    schedule: Bookings = ()
    """Bookings of zones; no query is made at other times. Without bookings, queries are always made."""
    unit: Literal["device_day", "run"] = "device_day"
    """Unit for which epsilon pays: all runs of a device's privacy day, or one run."""
    epsilon: dict[Name, Epsilon] = Field(default={})
    daily_budget: dict[Name, Spend] = Field(default={})
    """With ``unit = "run"`` the budget of a privacy day for runs; a run that it cannot pay is not opened."""
    counts: Name | None = None
    """The count release on whose noisy values the decisions are made, at no further cost."""
    audience: Annotated[tuple[Name, ...], BeforeValidator(listed)] = ()
    """With ``counts``: the audiences, which must be audiences of that count release."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism in records and ledger entries."""
        return SPARSE_VECTOR

    @property
    def audiences(self) -> tuple[str, ...]:
        """All audiences, sorted."""
        return tuple(sorted(self.audience or self.epsilon))

    @property
    def free(self) -> bool:
        """Whether the release decides on values that are already paid for."""
        return self.counts is not None

    @property
    def price(self) -> Fraction:
        """The epsilon of every audience."""
        return next(iter(self.epsilon.values()))

    @property
    def budget(self) -> Fraction | None:
        """The budget of a day for runs; None if epsilon pays for the day."""
        return next(iter(self.daily_budget.values()), None)

    def windows(self, tick: Micros) -> int:
        """Return the least number of windows that an event must last to be detected."""
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
        (
            not release.schedule or release.level == "zone",
            f"schedule must be used with level = 'zone', got {release.level}",
        ),
    )


def _of_free(release: ThresholdRelease) -> Sequence[tuple[bool, str]]:
    unused = [key for key in _PAID if getattr(release, key) != ThresholdRelease.model_fields[key].default]
    return (
        (not unused, f"{unused[0] if unused else ''} must not be used with counts, whose values are paid for"),
        (bool(release.audience), "audience must be given with counts, at least one of its audiences"),
    )


def _of_paid(release: ThresholdRelease) -> Sequence[tuple[bool, str]]:
    by_run, budget = release.unit == "run", release.budget
    return (
        (bool(release.epsilon), "epsilon must be given, or counts to decide on"),
        (not release.audience, "audience must be used with counts: epsilon names the audiences"),
        (
            len(set(release.epsilon.values())) <= 1 and len(set(release.daily_budget.values())) <= 1,
            "epsilon, and daily_budget, must be one for all audiences, who read the same decisions",
        ),
        (
            set(release.daily_budget) == (set(release.epsilon) if by_run else set()),
            "daily_budget must be given for each audience with unit = 'run', and only then",
        ),
        (
            budget is None or not release.epsilon or budget >= release.price,
            "daily_budget must pay for at least one run",
        ),
    )


def nodes_of(release: ThresholdRelease, zones: Sequence[Zone]) -> dict[str, tuple[int, ...]]:
    """Return the nodes of a release, in order, each with the indices of its zones among ``zones``."""
    nodes: dict[str, list[int]] = {}
    for place, zone in enumerate(zones):
        name = {"zone": zone.id, "floor": zone.floor}.get(release.level, BUILDING)
        nodes.setdefault(name, []).append(place)
    return {name: tuple(places) for name, places in nodes.items()}


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
    """Raise ValueError if a release does not fit the sites in which it covers zones, or the counts on which it decides.

    ``sites`` maps names to sites and the zones covered there, ``counts`` names to the policy's count releases.
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
    """Whether decisions can be made on a count release: its noisy values are of zones and have a known distribution."""
    plain = counts.declared.shows_noisy and not counts.by_changes
    return plain and not counts.shares and not counts.states and "zone" in counts.levels


def _first(names: set[str]) -> str:
    return repr(min(names, default=""))


def _rules_of_sites(sites: Mapping[str, tuple[Site, tuple[Zone, ...]]]) -> Sequence[tuple[bool, str]]:
    without = {name for name, (site, _) in sites.items() if site.contribution is None}
    rule = (
        f"epsilon needs day_starts and contribution at site {_first(without)}: the cost of runs is proven for whole "
        "days"
    )
    return [(not without, rule)]


def _rules_of_counts(
    release: ThresholdRelease, sites: Mapping[str, tuple[Site, tuple[Zone, ...]]], counts: Mapping[str, CountRelease]
) -> Sequence[tuple[bool, str]]:
    paid = counts.get(release.counts or "")
    if paid is None:
        return [(False, f"counts must name a count release of the policy, got {release.counts!r}")]
    missed = {zone.id for _, zones in sites.values() for zone in zones if not paid.zones.covers(zone)}
    others = set(release.audience) - set(paid.epsilon)
    known = names_where("shows_noisy")
    return [
        (not paid.by_changes, f"counts must not be a release with count = 'changes', got {paid.name!r}"),
        (decidable(paid), f"counts must be of zones, by {' or '.join(known)} without shares, got {paid.name!r}"),
        (not missed, f"counts must cover the same zones, {paid.name!r} leaves out {_first(missed)}"),
        (not others, f"audience must be some of those of {paid.name!r}, got {_first(others)}"),
    ]
