"""The sites of a policy: buildings, their zones, and how their time runs."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from stream.policy.fields import (
    BaseRadio,
    Clock,
    Duration,
    Frozen,
    Ident,
    Mac,
    Name,
    TimeOfDay,
    base_range,
    is_cloud,
    listed,
    refuse_repeats,
)
from stream.policy.privacy_day import EARLY, PrivacyDays, date_off_tick, privacy_days
from stream.policy.probes import Probe, check_probes
from stream.policy.zone_metadata import ZoneMetadata
from stream.records import DAY, MINUTE, SECOND


class Zone(Frozen):
    """The region of one or more access points."""

    id: Ident
    floor: Ident = "1"
    kind: Name = "room"
    capacity: int = Field(gt=0, le=100_000, strict=True)
    max_count: int | None = Field(default=None, gt=0, le=1_000_000, strict=True)
    """Largest count the filter considers, in devices; 10 x capacity + 20 unless given."""
    access_points: tuple[Mac, ...] = ()
    """Radio addresses as traps give them."""
    base_radio: Annotated[tuple[BaseRadio, ...], BeforeValidator(listed)] = ()
    """Base radio addresses with the bits that their BSSIDs share, for controllers that give BSSIDs."""
    access_point_names: tuple[str, ...] = ()
    """Names, or addresses of access points that send their own traps, for controllers that give no radio address.

    They are compared without case.
    """
    metadata: ZoneMetadata = Field(default={}, exclude=True)
    """What building systems call it. No part of the policy's meaning: left out of its version and its document."""

    @property
    def radios(self) -> tuple[str, ...]:
        """The radio addresses that observations of this zone bear: a base radio stands for its BSSIDs."""
        return (*self.access_points, *(base.partition("/")[0] for base in self.base_radio))

    @property
    def largest(self) -> int:
        """The count at which the filter's grid ends."""
        return self.max_count if self.max_count is not None else 10 * self.capacity + 20


class Site(Frozen):
    """A building: one partition key, one ledger, one zone registry."""

    name: str = ""
    feed: Literal["devices", "counts"] = "devices"
    """What comes in: who is where, which is counted here, or what counters of people have counted."""
    timezone: str = "UTC"
    tick: Duration = 5 * MINUTE
    validity: Duration = 10 * MINUTE
    lateness: Duration = 30 * SECOND
    max_devices: int = Field(default=200_000, gt=0, le=200_000, strict=True)
    working_hours: tuple[Clock, Clock] = ("08:00", "18:00")
    day_starts: TimeOfDay | None = None
    """Site-local start of the privacy day, at which names and contributions turn over; None: there is none."""
    contribution: Duration | None = None
    """A device counts for at most so long a privacy day, in whole ticks; given with ``day_starts`` and only then."""
    residents: Literal["ignore", "count"] = "count"
    """Whether a device that is present when the privacy day starts counts before it has been away."""
    sources: tuple[Annotated[str, StringConstraints(min_length=1, max_length=64)], ...] = Field(
        default=(), validate_default=True
    )
    zones: tuple[Zone, ...] = Field(min_length=1)
    probe: tuple[Probe, ...] = Field(default=(), exclude=True)
    """How sources are asked whether they are alive. No part of the policy's meaning: left out of its version."""

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
            known = value != "localtime"  # whatever the machine is set to: no two need agree on it
        except (KeyError, ValueError, OSError):
            known = False
        if not known:
            msg = "must be a time zone name such as 'Europe/Berlin'"
            raise ValueError(msg)
        return value

    @field_validator("tick")
    @classmethod
    def _tick_divides_the_day(cls, value: int) -> int:
        if DAY % value or value % MINUTE:
            msg = "must be whole minutes that divide a day"
            raise ValueError(msg)
        return value

    @field_validator("working_hours")
    @classmethod
    def _hours_in_order(cls, value: tuple[str, str]) -> tuple[str, str]:
        if value[0] >= value[1]:
            msg = "must begin before they end"
            raise ValueError(msg)
        return value

    @field_validator("sources")
    @classmethod
    def _sources_listed(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        refuse_repeats("must be unique", map(_network, value))
        if not value and info.data.get("feed") == "devices":
            msg = "must be given, with at least 1 controller in its list"
            raise ValueError(msg)
        return value

    @field_validator("zones")
    @classmethod
    def _zones_unique(cls, value: tuple[Zone, ...], info: ValidationInfo) -> tuple[Zone, ...]:
        refuse_repeats("zone ids must be unique within their site", (zone.id for zone in value))
        _check_addresses(value, counted=info.data.get("feed") == "counts")
        return value

    @model_validator(mode="after")
    def _probes_fit(self) -> Self:
        check_probes(self.probe, self.sources, self.lateness)
        return self

    @model_validator(mode="after")
    def _nothing_of_devices(self) -> Self:
        given = ("sources", "validity", "max_devices", "residents") if self.feed == "counts" else ()
        for key in given:
            if getattr(self, key) != Site.model_fields[key].default:
                msg = f"{key} must not be given with feed = 'counts': no device is known"
                raise ValueError(msg)
        return self

    @model_serializer(mode="wrap")
    def _without_default_feed(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave the feed out where it is that of before there was another: documents of then mean the same."""
        plain: dict[str, Any] = handler(self)
        if self.feed == "devices":
            plain.pop("feed", None)
        return plain

    @model_validator(mode="after")
    def _bounded_by_the_day(self) -> Self:
        if self.day_starts is None:
            needs = "contribution" if self.contribution is not None else "residents"
            if self.contribution is not None or self.residents != "count":
                msg = f"{needs} needs day_starts, which is not given"
                raise ValueError(msg)
            return self
        if self.contribution is None:
            msg = f"day_starts needs contribution, which is not given, got {self.day_starts}"
            raise ValueError(msg)
        if not self.tick <= self.contribution <= DAY:
            msg = f"contribution must be at least one tick and at most 1d, got {self.contribution // SECOND} s"
            raise ValueError(msg)
        if self.residents == "ignore" and self.tick > EARLY:
            msg = f"residents = 'ignore' needs a tick of at most {EARLY // MINUTE}min, got {self.tick // MINUTE}min"
            raise ValueError(msg)
        if (day := date_off_tick(self.day_starts, self.timezone, self.tick)) is not None:
            msg = f"day_starts must be at a tick on every date, got {self.day_starts}, which is between two on {day}"
            raise ValueError(msg)
        return self

    @property
    def privacy_days(self) -> PrivacyDays | None:
        """The site's privacy days; None where it has none."""
        return None if self.day_starts is None else privacy_days(self.day_starts, self.timezone)

    @property
    def contribution_ticks(self) -> int:
        """K: ticks of a privacy day at which one device counts at most; 0 where the site bounds nothing."""
        return 0 if self.contribution is None else self.contribution // self.tick

    @property
    def radios(self) -> dict[str, tuple[str, ...]]:
        """The radio addresses of each zone."""
        return {zone.id: zone.radios for zone in self.zones}

    @property
    def working_ticks(self) -> tuple[int, int]:
        """The ticks in the working hours, as (first, first behind them), counted from local midnight."""
        begin, end = (60 * int(text[:2]) + int(text[3:]) for text in self.working_hours)
        return -(-begin * MINUTE // self.tick), -(-end * MINUTE // self.tick)

    @property
    def ticks_per_observation(self) -> int:
        """Ticks at which one observation can count: validity over tick, rounded up; one where it is a count."""
        return 1 if self.feed == "counts" else math.ceil(self.validity / self.tick)


def _check_addresses(zones: Iterable[Zone], *, counted: bool) -> None:
    """Raise ValidationError with each zone that has no address, or that has one although counters count there."""
    rule = "must list an address under access_points or base_radio"
    if counted:
        rule = "must list no access point with feed = 'counts': what is counted names the zone"
    wrong = [n for n, zone in enumerate(zones) if bool(zone.radios or (counted and zone.access_point_names)) is counted]
    if wrong:
        error = PydanticCustomError("value_error", "{error}", {"error": ValueError(rule)})
        raise ValidationError.from_exception_data(
            "zones", [InitErrorDetails(type=error, loc=(n,), input={}) for n in wrong]
        )


def zones_now(before: Mapping[str, Collection[str]], zones: Iterable[Zone]) -> dict[str, frozenset[str]]:
    """Return which zones each zone of an earlier policy is now: that of its name, and all that share a radio with it.

    ``before`` holds the radios of the earlier policy's zones.
    """
    zones = tuple(zones)
    return {
        name: frozenset({name} | {zone.id for zone in zones if not set(zone.radios).isdisjoint(radios)})
        for name, radios in before.items()
    }


def check_places(zones: Iterable[Zone]) -> None:
    """Raise ValueError where a radio address or an access point's name could mean two zones.

    A radio may lie in the range of a base radio of its own zone.
    """
    zones = tuple(zones)
    rule = "an access point must be in one zone only"
    refuse_repeats(rule, (radio for zone in zones for radio in zone.radios))
    bases = [(base_range(base), base, number) for number, zone in enumerate(zones) for base in zone.base_radio]
    _check_ranges(rule, zones, {shared: (base, number) for shared, base, number in bases})
    refuse_repeats(
        "an access point's name must be listed once, in whatever case",
        (name.casefold() for zone in zones for name in zone.access_point_names),
    )


def _check_ranges(rule: str, zones: tuple[Zone, ...], bases: Mapping[tuple[int, int], tuple[str, int]]) -> None:
    widths = {bits for _, bits in bases}
    for number, zone in enumerate(zones):
        for radio in zone.radios:
            address = int(radio.replace(":", ""), 16)
            for bits in widths:
                base, other = bases.get((address >> 48 - bits, bits), ("", number))
                if other != number:
                    msg = f"{rule}, got {radio} in one and {base} in another"
                    raise ValueError(msg)


def _network(source: str) -> str:
    """Return the one form of an address or block; an address is a block of one. A cloud's name is as it is."""
    if is_cloud(source):
        return source
    try:
        network = ipaddress.ip_network(source)
    except ValueError:
        msg = f"must be addresses or blocks such as '10.2.0.5' or '10.2.0.0/16', or 'cloud:NAME', got {source!r}"
        raise ValueError(msg) from None
    return network.compressed.removesuffix(f"/{network.max_prefixlen}")
