"""The policy file: it contains everything that changes a guarantee, and nothing else.

One TOML file names the sites with their zones, the audiences, and the releases: what each publishes, to which
audiences, by which mechanism and at which epsilon. The file is read and checked as a whole, and the policy is
immutable. ``PolicyDocument.version`` is a digest of its meaning: every parameter changes it; comments and the order of
keys do not.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Annotated

import orjson
from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    ValidationError,
    model_serializer,
    model_validator,
)

from stream.errors import DataError, PolicyError
from stream.policy.attributes import ATTRIBUTES, Attribute, AttributeModel, AttributeName, AttributeRelease, Sensitive
from stream.policy.counts import CountRelease
from stream.policy.fields import (
    DOCUMENT,
    EVERYBODY,
    LARGEST_EPSILON,
    NANO,
    Duration,
    Frozen,
    Ident,
    Name,
    ReadText,
    decimal_string,
    parse_duration,
    parse_epsilon,
    read_no_file,
    refuse_repeats,
)
from stream.policy.forecasts import Forecast, ForecastError, attach_closed_days, check_forecasts, forecast_name
from stream.policy.names import NamesError, attach_names
from stream.policy.people import People, PeopleError, attach_people, check_people, people_name
from stream.policy.privacy import Meeting, Mobility, Privacy, check_unit
from stream.policy.sites import Selection, Site, Zone, check_places
from stream.policy.thresholds import ScheduleError, ThresholdRelease, attach_schedules, check_threshold
from stream.policy.validation_errors import refusals
from stream.records import SECOND

Release = Annotated[CountRelease | AttributeRelease | ThresholdRelease, Field(discriminator="query")]


def audiences_of(release: CountRelease | AttributeRelease | ThresholdRelease) -> tuple[str, ...]:
    """Return the audiences of a release, sorted."""
    return tuple(sorted(release.epsilon)) if isinstance(release, CountRelease) else release.audiences


class Audience(Frozen):
    """The readers of one set of private topics."""

    name: Name
    description: str = ""
    public: StrictBool = Field(default=False, exclude=True)
    """Whether anybody may be shown what is released to it. Like names, not part of the policy's version: it changes who
    looks at released values, and neither these nor what they cost."""


class Pseudonyms(Frozen):
    """How long a device keeps its pseudonym."""

    ttl: Duration | None = None
    """Lifetime of a salt in the thesis' TTL mode; without it pseudonyms change each UTC day, or each privacy day."""


class Restricted(Frozen):
    """The restricted topics to publish: true stays and true counts."""

    presence: StrictBool = False
    occupancy: StrictBool = False


def _several(tables: object) -> object:
    """Return a list of tables; a single one may be written ``[people]``."""
    return [tables] if isinstance(tables, dict) else tables


class PolicyDocument(Frozen):
    """The content of a policy file; each rule of the document is checked.

    ``release.validation.validate`` checks the guarantees as well, and makes the ``Policy`` that a pipeline accepts.
    """

    site: dict[Ident, Site] = Field(min_length=1)
    audience: tuple[Audience, ...] = Field(min_length=1)
    release: tuple[Release, ...] = Field(min_length=1)
    privacy: Privacy = Privacy()
    pseudonym: Pseudonyms = Pseudonyms()
    restricted: Restricted = Restricted()
    people: Annotated[tuple[People, ...], BeforeValidator(_several)] = ()
    """Models that estimate people from count releases."""

    forecast: Annotated[tuple[Forecast, ...], BeforeValidator(_several)] = ()
    """Forecasts of count releases."""

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Omit ``people`` and ``forecast`` if there is none, so that documents from before these keys stay the same."""
        plain: dict[str, object] = handler(self)
        for name in ("people", "forecast"):
            if not getattr(self, name):
                plain.pop(name, None)
        return plain

    @model_validator(mode="after")
    def _consistent(self) -> PolicyDocument:
        zones = [zone for site in self.site.values() for zone in site.zones]
        audiences = [audience.name for audience in self.audience]
        refuse_repeats("audience names must be unique", audiences)
        refuse_repeats("release and query names must be unique", self._names())
        refuse_repeats(
            "people must have one model for each site, release and audience",
            (f"{each.model.site}/{each.model.release}/{each.model.audience}" for each in self.people),
        )
        counts = {r.name: r for r in self.release if isinstance(r, CountRelease)}
        check_people(self.people, self.site, counts)
        refuse_repeats(
            "forecast must be given once for each site, release and audience",
            (f"{each.site}/{each.release}/{each.audience}" for each in self.forecast),
        )
        check_forecasts(self.forecast, self.site, counts)
        check_places(zones)
        _check_everybody(audiences)
        refuse_repeats("an attribute of a zone must belong to one release only", self._attributes_released())
        for release in self.release:
            _check_audiences(release, audiences)
            _check_selection(release, zones)
        _check_salt_life(self.pseudonym.ttl, self.site)
        _check_pseudonym_rotation(self.pseudonym.ttl, self.site)
        for release in self.release:
            self._check_covered(release)
        return self

    def _names(self) -> Iterator[str]:
        for release in self.release:
            yield from release.published_names if isinstance(release, CountRelease) else (release.name,)
        yield from dict.fromkeys(each.release_name for each in self.people)
        yield from dict.fromkeys(each.release_name for each in self.forecast)

    def published_names(self, release: Release, audience: str) -> tuple[str, ...]:
        """Return all names under which a release publishes values to an audience; each has its own private topic."""
        if not isinstance(release, CountRelease):
            return (release.name,)
        return (
            *release.published_names,
            *([people_name(release.name)] if self.people_of(release, audience) else []),
            *([forecast_name(release.name)] if self.forecasts_of(release, audience) else []),
        )

    def people_of(self, release: CountRelease, audience: str) -> tuple[People, ...]:
        """Return the models that estimate people from a release for an audience, one for each site that has one."""
        return tuple(
            each for each in self.people if (each.model.release, each.model.audience) == (release.name, audience)
        )

    def forecasts_of(self, release: CountRelease, audience: str) -> tuple[Forecast, ...]:
        """Return the forecasts of a release for an audience, one for each site that has one."""
        return tuple(each for each in self.forecast if (each.release, each.audience) == (release.name, audience))

    def counts_changes(self, site: str) -> bool:
        """Whether a release counts changes at a site, so that devices make a bounded number of visits there."""
        return any(
            isinstance(each, CountRelease) and each.count == "changes" and self.zones_of(each, site)
            for each in self.release
        )

    def _check_covered(self, release: Release) -> None:
        """Check a release against the sites in which it covers zones."""
        covered = {site: zones for site in self.site if (zones := self.zones_of(release, site))}
        _check_logins(release, [site for site in covered if self.site[site].counts_logins])
        if isinstance(release, CountRelease):
            check_unit(release, {site: self.site[site] for site in covered})
            _check_states(release, {site: {zone.id: zone.largest for zone in zones} for site, zones in covered.items()})
            return
        if isinstance(release, ThresholdRelease):
            counts = {each.name: each for each in self.release if isinstance(each, CountRelease)}
            check_threshold(release, {site: (self.site[site], zones) for site, zones in covered.items()}, counts)
            return
        for name in release.attributes:
            if ATTRIBUTES[name].working_hours:
                _check_working_hours(name, {site: self.site[site] for site in covered})

    def _attributes_released(self) -> Iterator[str]:
        """Yield each attribute of each zone, once for every release of it.

        Two releases of one attribute with different tests would publish in one what the other withholds.
        """
        for release in self.release:
            if isinstance(release, AttributeRelease):
                for site in self.site:
                    for zone in self.zones_of(release, site):
                        yield from (f"{site}/{zone.id}/{name}" for name in release.attributes)

    @cached_property
    def version(self) -> str:
        """Digest of the policy's meaning, 16 hexadecimal digits; a key at its default is the same as no key."""
        meaning = self.model_dump(mode="json", exclude_defaults=True)
        for release in meaning["release"]:
            release |= {name: _in_order(release[name]) for name in ("attributes", "states") if name in release}
        return hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    def document(self) -> bytes:
        """Return the policy as JSON with every default written out, so that later versions read the same policy.

        Durations are in microseconds. Keys are in the order of the policy file, because the order of attributes and
        states has a meaning. When a default changes, ``v`` increases, and the mechanism version changes too.
        """
        return orjson.dumps({"v": 1, "version": self.version, "policy": self.model_dump(mode="json")})

    @staticmethod
    def from_document(document: bytes) -> PolicyDocument:
        """Return the policy that :meth:`document` wrote; DataError unless it has the version that it names."""
        try:
            body = orjson.loads(document)
            policy = PolicyDocument.model_validate(body["policy"], context=DOCUMENT) if body["v"] == 1 else None
            if policy is not None and policy.version == body["version"]:
                return policy
        except (ValueError, KeyError, TypeError):
            pass
        msg = "policy document: must be complete, of version 1, and have the policy version that it names"
        raise DataError(msg)

    def access_points(self) -> dict[str, tuple[str, str]]:
        """Return (site, zone) for each radio address that observations can contain."""
        return {
            radio: (name, zone.id) for name, site in self.site.items() for zone in site.zones for radio in zone.radios
        }

    def zones_of(self, release: Release, site: str) -> tuple[Zone, ...]:
        """Return the zones of a site that a release covers, in registry order."""
        return tuple(zone for zone in self.site[site].zones if release.zones.covers(zone))


def _check_logins(release: Release, sites: Sequence[str]) -> None:
    """Raise ValueError unless a release at sites that count logins pays for a login's day, or for nothing."""
    if isinstance(release, ThresholdRelease) or (isinstance(release, CountRelease) and release.by_day):
        return
    for name in sites:
        paid = "unit = 'device_day'" if isinstance(release, CountRelease) else "counts and thresholds"
        msg = (
            f"release '{release.name}': site.{name}.identity = 'login' must be used with {paid}: for other releases "
            "there is no proof"
        )
        raise ValueError(msg)


def _in_order(table: dict[str, object]) -> object:
    """Return a table whose order has a meaning in a form that sorting keeps; a table in ascending order as it is."""
    return table if list(table) == sorted(table) else [*table.items()]


MOST_NAMES = 60
"""Most pseudonyms of one device that may have an open stay at once; each of its sightings ends them."""


def _check_everybody(audiences: Collection[str]) -> None:
    if EVERYBODY in audiences:
        msg = f"audience name '{EVERYBODY}' is reserved for all audiences together"
        raise ValueError(msg)


def _check_audiences(release: Release, known: Collection[str]) -> None:
    if unknown := set(audiences_of(release)).difference(known):
        msg = f"release '{release.name}' names an audience that is not declared: {sorted(unknown)[0]}"
        raise ValueError(msg)


def _check_selection(release: Release, zones: Sequence[Zone]) -> None:
    if not any(release.zones.covers(zone) for zone in zones):
        msg = f"release '{release.name}' selects no zone"
        raise ValueError(msg)
    if unmatched := release.zones.unmatched(zones):
        msg = f"release '{release.name}' selects zones by a name that no zone has: {unmatched}"
        raise ValueError(msg)


def _check_salt_life(ttl: int | None, sites: dict[str, Site]) -> None:
    """Raise ValueError if a device could have more than ``MOST_NAMES`` pseudonyms while an observation counts."""
    for name, site in sites.items():
        if ttl is not None and ttl * MOST_NAMES < site.counts_for:
            key = "session_limit" if site.has_sessions else "validity"
            rule = f"must be at least one {MOST_NAMES}th of every site's {key}"
            msg = f"pseudonym.ttl: {rule}, got {ttl / SECOND:g} s and {site.counts_for / SECOND:g} s at {name}"
            raise ValueError(msg)


def _check_pseudonym_rotation(ttl: int | None, sites: dict[str, Site]) -> None:
    """Raise ValueError if pseudonyms would change within a privacy day: a device would count as several."""
    for name, site in sites.items():
        if ttl is not None and site.day_starts is not None:
            rule = f"must not be given with site.{name}.day_starts, at which names change"
            msg = f"pseudonym.ttl: {rule}, got {ttl / SECOND:g} s"
            raise ValueError(msg)


def _check_working_hours(attribute: str, sites: dict[str, Site]) -> None:
    """Raise ValueError unless the working hours of every site contain a tick, which the attribute needs."""
    for name, site in sites.items():
        first, behind = site.working_ticks
        if first >= behind:
            begin, end = site.working_hours
            msg = (
                f"site.{name}.working_hours: must contain a tick, because {attribute} refers to ticks, got {begin} to "
                f"{end}"
            )
            raise ValueError(msg)


def _check_states(release: CountRelease, covered: dict[str, dict[str, int]]) -> None:
    """Raise ValueError unless the release covers the zones of all states, at one site.

    It is also an error if the count of a state, or of all zones where each level has noise of its own, may exceed the
    largest count of the mechanism. ``covered`` maps each site to the largest count of each zone that the release
    covers.
    """
    if release.states and len(covered) != 1:
        msg = f"release '{release.name}': states must cover zones of one site, got {len(covered)}"
        raise ValueError(msg)
    for name, zones in release.states.items():
        largest = next(iter(covered.values()))
        for zone in zones:
            if zone not in largest:
                msg = f"release '{release.name}': states.{name} must consist of zones of the release, got '{zone}'"
                raise ValueError(msg)
        _check_largest(release, f"states.{name}", sum(largest[zone] for zone in set(zones)))
    if release.shares:
        for site, largest in covered.items():
            _check_largest(release, f"all zones of {site} together", sum(largest.values()))


def _check_largest(release: CountRelease, what: str, most: int) -> None:
    """Raise ValueError if a count may exceed the largest count of the mechanism."""
    limit = release.declared.largest_count
    if limit is not None and most > limit:
        rule = f"must count at most {limit} devices with {release.mechanism}"
        msg = f"release '{release.name}': {what} {rule}, got {most}"
        raise ValueError(msg)


def parse(text: str, file: str = "policy", read: ReadText = read_no_file) -> PolicyDocument:
    """Parse a policy and check its own rules; PolicyError names the file, the line or key, the rule and the value.

    ``read`` returns the text of a file that the policy names; without it the policy may name no file.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{file}: not TOML: {error}"
        raise PolicyError(msg) from None
    except RecursionError:
        msg = f"{file}: not TOML: brackets are nested too deeply"
        raise PolicyError(msg) from None
    except ValueError:  # Python reads no number of more than 4,300 digits
        msg = f"{file}: not TOML: a number must have fewer than 4,300 digits"
        raise PolicyError(msg) from None
    try:
        attach_schedules(document, read)
        attach_people(document, read)
        attach_closed_days(document, read)
        attach_names(document, read)
        policy = PolicyDocument.model_validate(document)
    except ValidationError as error:
        report = refusals(error.errors(), PolicyDocument, document, text)
        raise PolicyError("\n".join(f"{file}: {sentence}" for sentence in report)) from None
    except (ScheduleError, PeopleError, ForecastError) as error:
        msg = f"{file}: {error}"
        raise PolicyError(msg) from None
    except NamesError as error:
        raise PolicyError("\n".join(f"{file}: {problem}" for problem in error.args)) from None
    for name, site in policy.site.items():
        _check_bounds(file, name, site, changes=policy.counts_changes(name))
    return policy


def _check_bounds(file: str, name: str, site: Site, *, changes: bool) -> None:
    """Raise PolicyError if a site has privacy days without a bound on a device's day, or bounds that nothing uses.

    This concerns files alone: a policy of some of its releases has the same sites.
    """
    if site.day_starts is not None and site.contribution is None and not changes:
        rule = "day_starts: needs contribution, which is not given"
        msg = f"{file}: site.{name}.{rule}, got {site.day_starts}; releases with count = 'changes' need none"
        raise PolicyError(msg)
    for key in ("visits", "gap"):
        if not changes and getattr(site, key) != Site.model_fields[key].default:
            msg = f"{file}: site.{name}.{key}: must be used with a release that has count = 'changes'"
            raise PolicyError(msg)


__all__ = [
    "EVERYBODY", "LARGEST_EPSILON", "NANO", "Attribute", "AttributeModel", "AttributeName",
    "AttributeRelease", "Audience", "CountRelease", "Meeting", "Mobility", "PolicyDocument", "Privacy", "Pseudonyms",
    "Release", "Restricted", "Selection", "Sensitive", "Site", "ThresholdRelease", "Zone", "audiences_of",
    "decimal_string", "parse", "parse_duration", "parse_epsilon",
]  # fmt: skip
