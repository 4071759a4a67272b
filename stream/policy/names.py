"""The names of a site, its floors and zones, the order of the floors, and their plans: for display alone.

They are in a file of their own (TOML), which the sites of a policy refer to with ``names``. They change no guarantee
and no released value, so they are not part of the policy's version. Where a policy has a name or an order of floors of
its own, the file is the one that counts.
"""

from __future__ import annotations

import ipaddress
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, field_validator

from stream.policy.fields import Frozen, Ident, ReadText, refuse_repeats
from stream.policy.validation_errors import MOST_REPORTED, refusals, shown

_MAC = re.compile(r"(?<![0-9A-Fa-f])(?:[0-9A-Fa-f]{2}[:.-]?){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f])")


def _plain(text: str) -> str:
    if not 0 < len(text) <= 200 or not text.isprintable():
        msg = "must be 1 to 200 printable characters"
        raise ValueError(msg)
    if _MAC.search(text) or any(map(_is_address, re.split(r"[\s,;/\[\]()]", text))):
        msg = "must contain no address of a device or of the network"
        raise ValueError(msg)
    return text


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word.rpartition(":")[0] if word.count(":") == 1 else word)
    except ValueError:
        return False
    return True


def _plan(path: str) -> str:
    if not path.isprintable() or not path.endswith((".svg", ".geojson")):
        msg = "must be the path of a file that ends in .svg or .geojson"
        raise ValueError(msg)
    return path


DisplayName = Annotated[str, AfterValidator(_plain)]
"""A name for people: never an address."""


def is_display_name(text: str) -> bool:
    """Whether a text may be a name for people."""
    try:
        _plain(text)
    except ValueError:
        return False
    return True


_GROUND = {"g", "gf", "ground", "ground-floor", "e", "eg", "erdgeschoss", "rdc", "lobby", "l"}
_BELOW = re.compile(r"(?:-|b|ug|u|k|lg|basement|cellar)[ ._-]*(\d*)")
_NUMBER = re.compile(r"\d+")


def floor_level(floor: str) -> tuple[float, str]:
    """Return the sort key of a floor, from the bottom up: its number, 0 for a ground floor, below 0 for a basement.

    Floors without a number come last, by name.
    """
    name = floor.casefold().strip()
    if name in _GROUND:
        return 0.0, name
    if below := _BELOW.fullmatch(name):
        return -float(below[1] or 1), name
    number = _NUMBER.search(name)
    return (math.inf if number is None else float(number[0])), name


class FloorNames(Frozen):
    """A floor's name and plan."""

    id: Ident
    """The floor, as zones name it."""
    name: DisplayName | None = None
    plan: Annotated[str, AfterValidator(_plan)] | None = None
    """SVG or GeoJSON, relative to the file of names."""


class SiteNames(Frozen):
    """What a file of names says of a site."""

    name: DisplayName | None = None
    floors: tuple[FloorNames, ...] = ()
    """All floors from the bottom up; empty: the file does not order them."""
    zones: dict[Ident, DisplayName] = Field(default={})

    @field_validator("floors")
    @classmethod
    def _floors_once(cls, value: tuple[FloorNames, ...]) -> tuple[FloorNames, ...]:
        refuse_repeats("floors must be listed once", (floor.id for floor in value))
        return value


class AttachedNames(SiteNames):
    """The names of a site with the file that they come from, as the policy gives it."""

    file: str


class NamesFile(Frozen):
    """A file of names."""

    site: dict[Ident, SiteNames] = Field(min_length=1)


class NamesError(Exception):
    """A file of names broke rules; each argument gives file, key, rule and value."""


def read_names(text: str) -> NamesFile:
    """Return the content of a file of names; NamesError gives key, rule and value."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, tomllib.TOMLDecodeError) else "a value is too long or nested too deeply"
        msg = f"not TOML: {reason}"
        raise NamesError(msg) from None
    try:
        return NamesFile.model_validate(document)
    except ValidationError as error:
        raise NamesError(*refusals(error.errors(), NamesFile, document, text, of="file of names")) from None


def attach_names(document: Mapping[str, Any], read: ReadText) -> None:
    """Replace the name of each file of names in the sites of a policy by what it says.

    Names of zones and the order of floors also replace those of the policy itself.

    Args:
        document: the parsed policy.
        read: returns the text of a file.

    Raises:
        NamesError: a file cannot be read, is no file of names, or names what the policy does not have.
    """
    sites = document.get("site")
    sites = sites if isinstance(sites, dict) else {}
    files: dict[str, NamesFile] = {}
    for name, site in sites.items():
        file = site.get("names") if isinstance(site, dict) else None
        if not isinstance(file, str):
            continue
        if file not in files:
            files[file] = _file(f"site.{name}.names", file, sites, read)
        if name not in files[file].site:
            msg = f"{file}: site.{name}: must be given, because the policy takes this site's names from here"
            raise NamesError(msg)
        names = files[file].site[name]
        if problems := list(_unknown(name, names, site)):
            raise NamesError(*(f"{file}: {problem}" for problem in problems[:MOST_REPORTED]))
        site["names"] = AttachedNames(file=file, **dict(names))
        _merge(names, site)


def _file(key: str, file: str, sites: Mapping[str, Any], read: ReadText) -> NamesFile:
    try:
        text = read(file)
    except ValueError as error:
        msg = f"{key}: {error}, got {file!r}"
        raise NamesError(msg) from None
    try:
        found = read_names(text)
    except NamesError as error:
        raise NamesError(*(f"{file}: {problem}" for problem in error.args)) from None
    for name in found.site:
        if name not in sites:
            msg = f"{file}: site: must name sites of the policy{shown(name)}"
            raise NamesError(msg)
    return found


def _zones(site: Mapping[str, object]) -> list[dict[str, object]]:
    zones = site.get("zones")
    return [zone for zone in zones if isinstance(zone, dict)] if isinstance(zones, list) else []


def _unknown(name: str, names: SiteNames, site: Mapping[str, object]) -> Iterator[str]:
    """Yield what is wrong with names of zones and floors, given the site's table in the policy."""
    zones = _zones(site)
    known = {identity for zone in zones if isinstance(identity := zone.get("id"), str)}
    for zone in names.zones:
        if zone not in known:
            yield f"site.{name}.zones: must name zones of the policy{shown(zone)}"
    on = {str(zone.get("floor", "1")) for zone in zones}
    listed = [floor.id for floor in names.floors]
    for floor in listed:
        if floor not in on:
            yield f"site.{name}.floors: must name floors of the policy's zones{shown(floor)}"
    for floor in sorted(on.difference(listed)) if listed else ():
        yield f"site.{name}.floors: must name every floor of the policy's zones, but lacks{shown(floor)[5:]}"


def _merge(names: SiteNames, site: dict[str, object]) -> None:
    for zone in _zones(site):
        identity, metadata = zone.get("id"), zone.get("metadata", {})
        if isinstance(identity, str) and identity in names.zones and isinstance(metadata, dict):
            zone["metadata"] = metadata | {"name": names.zones[identity]}
    if names.floors:
        site["floors"] = [floor.id for floor in names.floors]
