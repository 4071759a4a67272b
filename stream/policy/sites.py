"""The sites of a policy: zones, probes, time, and selection of zones.

``ZoneMetadata`` holds the names that building systems use for a zone: Brick and RealEstateCore classes, a BACnet
object, a name for people; never an address. A ``Probe`` says how a source is queried for liveness; coverage then
depends on its answers alone. Neither changes a guarantee, and probes change no released value but ``coverage``. A
``Poll`` says whose client table is read. It is one more way of observing devices, as traps are. So metadata, probes and
polls are not part of a policy's version.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
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
    DurationOrNone,
    Frozen,
    Ident,
    Mac,
    Name,
    TimeOfDay,
    base_range,
    duration_text,
    is_cloud,
    listed,
    refuse_repeats,
    worded,
)
from stream.policy.names import AttachedNames, DisplayName
from stream.policy.polls import Poll, check_polls
from stream.policy.privacy_days import EARLY, PrivacyDays, date_off_tick, privacy_days
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros

# --- names in building systems ------------------------------------------------------------------------

LAST_INSTANCE = 4_194_302
"""Largest instance of a BACnet object; the next number means no object (ASHRAE 135, 12.1)."""
MOST_ENTRIES = 16
MOST_VISITS = 8
"""Most visits per privacy day; the sensitivity of more is not certified."""
LONGEST_GAP: Micros = 2 * HOUR
"""Longest absence that ends no visit: who leaves counts so much longer."""
_CLASS = "[A-Z][A-Za-z0-9_]{0,99}"
_FORMS = {
    "brick": (re.compile(f"brick:{_CLASS}"), "must be a class such as 'brick:Conference_Room'"),
    "rec": (re.compile(f"rec:{_CLASS}"), "must be a class such as 'rec:ConferenceRoom'"),
    "bacnet": (
        re.compile("(?:AI|AO|AV|BI|BO|BV|MI|MO|MV|IV|PIV)-(?:0|[1-9][0-9]{0,6})"),
        "must be an object such as 'AV-2011'",
    ),
}


def _known(entries: dict[str, str]) -> dict[str, str]:
    for name, (form, rule) in _FORMS.items():
        if name in entries and not form.fullmatch(entries[name]):
            msg = f"{name} {rule}, got {entries[name]!r}"
            raise ValueError(msg)
    instance = int(entries.get("bacnet", "AV-0").rpartition("-")[2])
    if instance > LAST_INSTANCE:
        msg = f"bacnet must have an instance of at most {LAST_INSTANCE}, got {instance}"
        raise ValueError(msg)
    return entries


_Key = Annotated[
    str,
    AfterValidator(worded("[a-z][a-z0-9_-]{0,31}", "must be 1 to 32 lower-case letters, digits, hyphens, underscores")),
]
ZoneMetadata = Annotated[dict[_Key, DisplayName], Field(max_length=MOST_ENTRIES), AfterValidator(_known)]
"""Name by system: ``brick``, ``rec``, ``bacnet``, ``name``, or keys of the operator's choice."""


# --- probes -------------------------------------------------------------------------------------------

LEAST_LATENESS: Micros = 10 * SECOND
"""Least lateness with probes: a window must wait for the answer to the probe at its end."""
_OF_ONE = {"snmp": {"user", "wrong_community"}, "https": {"name", "fingerprint"}, "icmp": set[str]()}


def certificate_digest(text: str) -> str:
    """Return a certificate's SHA-256 as 64 lower-case hexadecimal digits; ValueError if it is none."""
    digest = text.lower().replace(":", "")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        msg = "must be the SHA-256 of a certificate, 64 hexadecimal digits"
        raise ValueError(msg)
    return digest


class Probe(Frozen):
    """A query to one source, sent every minute of the connector's clock, whether or not there are observations."""

    source: str
    """One of the site's sources, written as in ``sources``; a single address."""
    by: Literal["snmp", "https", "icmp"]
    port: int | None = Field(default=None, gt=0, lt=65_536, strict=True)
    """Default: 161 for snmp, 443 for https."""
    user: Annotated[str, StringConstraints(min_length=1, max_length=32)] | None = None
    """The user for SNMPv3; None: SNMPv2c is used."""
    wrong_community: StrictBool = False
    """Also query every hour with a wrong community: the trap that the source sends about it proves its trap path."""
    name: str | None = None
    """The name that the certificate must have; it must come from an authority that this machine trusts."""
    fingerprint: Annotated[str, AfterValidator(certificate_digest)] | None = None
    """Instead of ``name``: the SHA-256 of the certificate."""

    @model_validator(mode="after")
    def _check_required_fields(self) -> Self:
        given = {key for key in set[str]().union(*_OF_ONE.values()) if getattr(self, key)}
        if foreign := sorted(given - _OF_ONE[self.by]):
            msg = f"{foreign[0]} must not be used with by = '{self.by}'"
            raise ValueError(msg)
        if self.by == "https" and len(given) != 1:
            msg = "by = 'https' must have either name or fingerprint"
            raise ValueError(msg)
        if self.by == "icmp" and self.port is not None:
            msg = "port must not be used with by = 'icmp'"
            raise ValueError(msg)
        return self


def check_probes(probes: Iterable[Probe], sources: Iterable[str], lateness: Micros) -> None:
    """Raise ValueError unless each probe queries one address that is a source, and windows wait for its answer."""
    probes, sources = tuple(probes), tuple(sources)
    refuse_repeats("a source must have one probe", (probe.source for probe in probes))
    for probe in probes:
        if probe.source not in sources:
            msg = f"probe.source must be one of the site's sources, got {probe.source!r}"
            raise ValueError(msg)
        if is_cloud(probe.source) or ipaddress.ip_network(probe.source).num_addresses != 1:
            msg = f"probe.source must be one address, got {probe.source!r}"
            raise ValueError(msg)
    if probes and lateness < LEAST_LATENESS:
        least = LEAST_LATENESS // SECOND
        msg = f"lateness must be at least {least}s where sources are probed, got {lateness / SECOND:g} s"
        raise ValueError(msg)


class Zone(Frozen):
    """The region of one or more access points."""

    id: Ident
    floor: Ident = "1"
    kind: Name = "room"
    capacity: int = Field(gt=0, le=100_000, strict=True)
    max_count: int | None = Field(default=None, gt=0, le=1_000_000, strict=True)
    """Largest count that the filter considers, in devices; default: 10 x capacity + 20."""
    access_points: tuple[Mac, ...] = ()
    """Radio addresses as in traps."""
    base_radio: Annotated[tuple[BaseRadio, ...], BeforeValidator(listed)] = ()
    """Base radio addresses with the number of bits that their BSSIDs share, for controllers that report BSSIDs."""
    access_point_names: tuple[str, ...] = ()
    """Names, or addresses of access points that send their own traps, for controllers that report no radio address.

    They are compared without case.
    """
    metadata: ZoneMetadata = Field(default={}, exclude=True)
    """Names in building systems. Not part of the policy's meaning: left out of its version and its document."""

    @property
    def title(self) -> str:
        """The zone's display name: its id if it has no other."""
        return self.metadata.get("name", self.id)

    @property
    def radios(self) -> tuple[str, ...]:
        """The radio addresses in observations of this zone; a base radio represents its BSSIDs."""
        return (*self.access_points, *(base.partition("/")[0] for base in self.base_radio))

    @property
    def largest(self) -> int:
        """The count at which the filter's grid ends."""
        return self.max_count if self.max_count is not None else 10 * self.capacity + 20


SHORTEST_SESSION, LONGEST_SESSION = 10 * MINUTE, 12 * HOUR
"""Limits of ``session_limit``: below, sessions would end before events do; above, a day's messages could count two days
later."""


MOST_REALMS, MOST_SHARED = 64, 4096
"""Largest number of ``home_realms``, and of ``shared_logins``."""


def _login_text(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        msg = "must be printable characters, without blanks at its ends"
        raise ValueError(msg)
    return text


LoginText = Annotated[str, StringConstraints(min_length=1, max_length=253), AfterValidator(_login_text)]
"""A login or a realm, at most as long as a RADIUS attribute (RFC 2865, section 5)."""
_OF_LOGINS = ("login_attribute", "home_realms", "shared_logins", "others")


def _attached(value: object) -> object:
    """Return names that come from a file; a policy cannot contain them."""
    if value is not None and not isinstance(value, AttachedNames):
        msg = "must be the path of a file of names, such as 'names.toml'"
        raise ValueError(msg)
    return value


class Site(Frozen):
    """A building: one partition key, one ledger, one zone registry."""

    name: str = ""
    feed: Literal["devices", "counts"] = "devices"
    """The input: observations of devices, which are counted here, or counts of people counters."""
    zeros: Literal["reported", "omitted"] = "reported"
    """For counts: whether each window has a row for each zone, or empty zones may be left out."""
    timezone: str = "UTC"
    tick: Duration = 5 * MINUTE
    presence: Literal["events", "sessions"] = "events"
    """Whether a device is present for ``validity`` after each event, or from the message that opens its stay until one
    that ends it."""
    validity: Duration = 10 * MINUTE
    """With events: an observation counts for so long, or until the device's next one."""
    session_limit: Duration = 4 * HOUR
    """With sessions: a stay ends at the latest so long after its device's last message."""
    lateness: Duration = 30 * SECOND
    max_devices: int = Field(default=200_000, gt=0, le=200_000, strict=True)
    working_hours: tuple[Clock, Clock] = ("08:00", "18:00")
    day_starts: TimeOfDay | None = None
    """Site-local start of the privacy day, at which pseudonyms change and contributions restart; None: no privacy
    days."""
    contribution: Duration | None = None
    """A device counts for at most so long per privacy day, in whole ticks; needed where ticks are paid for by the
    day."""
    residents: Literal["ignore", "count"] = "count"
    """Whether a device that is present at the start of the privacy day counts before it has been absent."""
    visits: int = Field(default=4, ge=1, le=MOST_VISITS, strict=True)
    """Visits that a device makes at most per privacy day, at each level, in releases that count changes."""
    gap: DurationOrNone = 10 * MINUTE
    """In releases that count changes, an absence of at most so long, in whole ticks, ends no visit to the building; 0:
    any absence does."""
    randomised: Literal["count", "ignore"] = "count"
    """Whether devices with a locally administered address are counted."""
    identity: Literal["device", "login"] = "device"
    """What counts once, however often it is there: a device, or a login with all its devices."""
    login_attribute: Literal["user_name", "chargeable_user_identity"] = "user_name"
    """With logins: the RADIUS attribute that names them, User-Name or Chargeable-User-Identity (RFC 4372)."""
    home_realms: tuple[LoginText, ...] = Field(default=(), max_length=MOST_REALMS)
    """With logins: realms and domains of one's own; a user name is the same in each of them and without one."""
    shared_logins: tuple[LoginText, ...] = Field(default=(), max_length=MOST_SHARED)
    """With logins: names that several people use, which are therefore no login."""
    others: Literal["ignore", "count"] = "ignore"
    """With logins: whether a device without one counts."""
    opt_out: Literal["none", "list"] = "none"
    """Whether devices on the ingest's list of opt-outs are left out; with ``list`` no ingest starts without one."""
    sources: tuple[Annotated[str, StringConstraints(min_length=1, max_length=64)], ...] = Field(
        default=(), validate_default=True
    )
    zones: tuple[Zone, ...] = Field(min_length=1)
    floors: tuple[Ident, ...] = Field(default=(), exclude=True)
    """All floors from the bottom up, for display; default: by number. Not part of the policy's meaning: left out of
    its version."""
    names: Annotated[AttachedNames | None, BeforeValidator(_attached)] = Field(default=None, exclude=True)
    """The file of names (``stream.policy.names``). Not part of the policy's meaning: left out of its version."""
    probe: tuple[Probe, ...] = Field(default=(), exclude=True)
    """How sources are queried for liveness. Not part of the policy's meaning: left out of its version."""
    poll: tuple[Poll, ...] = Field(default=(), exclude=True)
    """Whose client tables are read, and how often. Not part of the policy's meaning: left out of its version."""

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
            known = value != "localtime"  # it depends on the machine's settings
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
    def _floors_are_those_of_zones(self) -> Self:
        if self.floors and sorted(self.floors) != sorted({zone.floor for zone in self.zones}):
            msg = f"floors must name each floor of the zones once, got {', '.join(self.floors)!r}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _probes_fit(self) -> Self:
        check_probes(self.probe, self.sources, self.lateness)
        return self

    @model_validator(mode="after")
    def _polls_fit(self) -> Self:
        check_polls(self.poll, self.sources, {probe.source for probe in self.probe}, self.validity)
        return self

    @model_validator(mode="after")
    def _zeros_of_counts(self) -> Self:
        if self.feed == "devices" and self.zeros != "reported":
            msg = f"zeros must be given with feed = 'counts' only, got {self.zeros!r}"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _logins_need_days(self) -> Self:
        if self.identity == "device":
            for key in _OF_LOGINS:
                if getattr(self, key) != Site.model_fields[key].default:
                    msg = f"{key} must be given with identity = 'login' only"
                    raise ValueError(msg)
        elif self.day_starts is None:
            msg = "identity = 'login' needs day_starts, which is not given: a login is known for a privacy day"
            raise ValueError(msg)
        if self.home_realms and self.login_attribute != "user_name":
            msg = "home_realms must be used with login_attribute = 'user_name': the other attribute has no realm"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _nothing_of_devices(self) -> Self:
        keys = ("sources", "presence", "validity", "max_devices", "residents", "randomised", "opt_out", "identity")
        given = keys if self.feed == "counts" else ()
        for key in given:
            if getattr(self, key) != Site.model_fields[key].default:
                msg = f"{key} must not be given with feed = 'counts': no device is known"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _one_length_of_presence(self) -> Self:
        other, needed = ("session_limit", "sessions") if self.presence == "events" else ("validity", "events")
        if other in self.model_fields_set:
            msg = f"{other} must be given with presence = '{needed}' only, got presence = '{self.presence}'"
            raise ValueError(msg)
        limit = self.session_limit
        if self.presence == "sessions" and (
            limit % MINUTE or not max(SHORTEST_SESSION, self.tick) <= limit <= LONGEST_SESSION
        ):
            shortest, longest = duration_text(max(SHORTEST_SESSION, self.tick)), duration_text(LONGEST_SESSION)
            msg = f"session_limit must be whole minutes from {shortest} to {longest}, got {limit // SECOND} s"
            raise ValueError(msg)
        return self

    @model_serializer(mode="wrap")
    def _without_later_keys(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit keys at their defaults, so that documents from before these keys existed stay the same.

        Of ``validity`` and ``session_limit`` only the one that applies is in a document.
        """
        plain: dict[str, object] = handler(self)
        for key in ("feed", "zeros", "presence", "visits", "gap", "randomised", "opt_out", "identity", *_OF_LOGINS):
            if getattr(self, key) == Site.model_fields[key].default:
                plain.pop(key, None)
        plain.pop("session_limit" if self.presence == "events" else "validity", None)
        return plain

    @model_validator(mode="after")
    def _bounded_by_the_day(self) -> Self:
        if self.day_starts is None:
            needs = "contribution" if self.contribution is not None else "residents"
            if self.contribution is not None or self.residents != "count":
                msg = f"{needs} needs day_starts, which is not given"
                raise ValueError(msg)
            return self
        if self.contribution is not None and not self.tick <= self.contribution <= DAY:
            msg = f"contribution must be at least one tick and at most 1d, got {self.contribution // SECOND} s"
            raise ValueError(msg)
        if self.gap > LONGEST_GAP:
            msg = f"gap must be at most {LONGEST_GAP // HOUR}h, got {self.gap // SECOND} s"
            raise ValueError(msg)
        if self.residents == "ignore" and self.tick > EARLY:
            msg = f"residents = 'ignore' needs a tick of at most {EARLY // MINUTE}min, got {self.tick // MINUTE}min"
            raise ValueError(msg)
        if (day := date_off_tick(self.day_starts, self.timezone, self.tick)) is not None:
            msg = f"day_starts must be at a tick on every date, got {self.day_starts}, which is between two on {day}"
            raise ValueError(msg)
        return self

    def title(self, site: str) -> str:
        """Return the display name of the site, which the policy calls ``site``."""
        return (self.names.name if self.names else None) or self.name or site

    def floor_title(self, floor: str) -> str:
        """Return the display name of a floor: the floor itself if no file gives one."""
        named = {each.id: each.name for each in self.names.floors} if self.names else {}
        return named.get(floor) or floor

    @property
    def privacy_days(self) -> PrivacyDays | None:
        """The site's privacy days; None if it has none."""
        return None if self.day_starts is None else privacy_days(self.day_starts, self.timezone)

    @property
    def contribution_ticks(self) -> int:
        """K: ticks of a privacy day at which one device counts at most; 0 if the site does not bound counts."""
        return 0 if self.contribution is None else self.contribution // self.tick

    @property
    def gap_ticks(self) -> int:
        """Ticks of absence that end no visit to the building, at most."""
        return self.gap // self.tick

    @property
    def bounded_to(self) -> str | None:
        """How long of a privacy day a device counts in bounded counts (``"12h"``); None if no device is left out.

        People counters do not distinguish devices, so the bounded counts of their sites are the counts.
        """
        bounds = self.contribution is not None and self.feed == "devices"
        return duration_text(self.contribution_ticks * self.tick) if bounds else None

    def bound_text(self, *, changes: bool) -> str | None:
        """Return how a device's day is bounded: ``bounded_to``, or where changes are counted its visits."""
        if changes:
            return "1 visit" if self.visits == 1 else f"{self.visits} visits"
        return self.bounded_to

    @property
    def radios(self) -> dict[str, tuple[str, ...]]:
        """The radio addresses of each zone."""
        return {zone.id: zone.radios for zone in self.zones}

    @property
    def radio_count(self) -> int:
        """The number of radio addresses of all zones: an access point that is listed with two counts twice."""
        return sum(len(zone.radios) for zone in self.zones)

    @property
    def working_ticks(self) -> tuple[int, int]:
        """The ticks of the working hours as [first, end), counted from local midnight."""
        begin, end = (60 * int(text[:2]) + int(text[3:]) for text in self.working_hours)
        return -(-begin * MINUTE // self.tick), -(-end * MINUTE // self.tick)

    @property
    def has_sessions(self) -> bool:
        """Whether a stay lasts from the message that opens it until one that ends it."""
        return self.presence == "sessions"

    @property
    def day_terms(self) -> list[Any]:
        """What decides which counts a device's privacy day can change; part of the digest of a day's terms."""
        terms = [self.day_starts, self.timezone, self.contribution, self.residents, self.tick, self.counts_for]
        terms += [self.presence] if self.has_sessions else []
        return [*terms, self.login_terms] if self.counts_logins else terms

    @property
    def counts_logins(self) -> bool:
        """Whether all devices of a login count once."""
        return self.identity == "login"

    @property
    def counted_in_records(self) -> str:
        """What records of counts say that they count; empty where it goes without saying."""
        if not self.counts_logins:
            return ""
        return "logins" if self.others == "ignore" else "logins and devices"

    @property
    def login_terms(self) -> str | None:
        """A digest of what decides which messages belong to one login; None if the site counts devices."""
        if not self.counts_logins:
            return None
        terms = [self.login_attribute, sorted(self.home_realms), sorted(self.shared_logins), self.others]
        return hashlib.sha256(orjson.dumps(terms)).hexdigest()[:16]

    @property
    def counts_for(self) -> Micros:
        """How long an observation counts at most, and how long its device is remembered."""
        return self.session_limit if self.has_sessions else self.validity

    @property
    def ticks_per_observation(self) -> int:
        """Ticks at which one observation can count: ``counts_for`` over tick, rounded up; 1 for counts."""
        return 1 if self.feed == "counts" else math.ceil(self.counts_for / self.tick)


def _check_addresses(zones: Iterable[Zone], *, counted: bool) -> None:
    """Raise ValidationError for each zone without an address, or with one although people counters count there."""
    rule = "must list an address under access_points or base_radio"
    if counted:
        rule = "must list no access point with feed = 'counts': the zone is named by each count"
    wrong = [n for n, zone in enumerate(zones) if bool(zone.radios or (counted and zone.access_point_names)) is counted]
    if wrong:
        error = PydanticCustomError("value_error", "{error}", {"error": ValueError(rule)})
        raise ValidationError.from_exception_data(
            "zones", [InitErrorDetails(type=error, loc=(n,), input={}) for n in wrong]
        )


def zones_now(before: Mapping[str, Collection[str]], zones: Iterable[Zone]) -> dict[str, frozenset[str]]:
    """Return the present zones of each zone of an earlier policy: that of its id, and all that share a radio with it.

    ``before`` maps the zones of the earlier policy to their radio addresses.
    """
    zones = tuple(zones)
    return {
        name: frozenset({name} | {zone.id for zone in zones if not set(zone.radios).isdisjoint(radios)})
        for name, radios in before.items()
    }


def current_names(zones: Iterable[str], now: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return zones under all names that they have now (``zones_now``), in the same order."""
    return tuple(dict.fromkeys(name for zone in zones for name in sorted(now.get(zone, (zone,)))))


def check_places(zones: Iterable[Zone]) -> None:
    """Raise ValueError if a radio address or an access point's name could belong to two zones.

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
    """Return the canonical form of an address or block; an address is a block of one. A cloud's name is unchanged."""
    if is_cloud(source):
        return source
    try:
        network = ipaddress.ip_network(source)
    except ValueError:
        msg = f"must be addresses or blocks such as '10.2.0.5' or '10.2.0.0/16', or 'cloud:NAME', got {source!r}"
        raise ValueError(msg) from None
    return network.compressed.removesuffix(f"/{network.max_prefixlen}")


class Selection(Frozen):
    """The zones that a release covers: every given key must match, each by one value or by one of a list."""

    kind: Annotated[tuple[Name, ...], BeforeValidator(listed)] = ()
    floor: Annotated[tuple[Ident, ...], BeforeValidator(listed)] = ()
    ids: Annotated[tuple[Ident, ...], BeforeValidator(listed)] = ()

    def covers(self, zone: Zone) -> bool:
        """Whether the zone is selected."""
        keys = ((self.kind, zone.kind), (self.floor, zone.floor), (self.ids, zone.id))
        return all(not allowed or value in allowed for allowed, value in keys)

    def unmatched(self, zones: Iterable[Zone]) -> str | None:
        """Return the first given name that no zone has, which is probably misspelt; None if there is none."""
        known = {name for zone in zones for name in (("kind", zone.kind), ("floor", zone.floor), ("ids", zone.id))}
        given = (("kind", self.kind), ("floor", self.floor), ("ids", self.ids))
        return next((f"{key} {name}" for key, names in given for name in names if (key, name) not in known), None)
