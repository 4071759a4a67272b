"""A site's metadata besides its releases: zones, floors and their names in building systems.

A cluster publishes one message for each site (``storage/kafka/metadata.py``). A store has all of them in
``private/_sites.json``, for everyone who may read one of its outboxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

import orjson

from connectors.secrets.private_files import replace_file
from stream.errors import DataError, UsageError
from stream.policy.document import PolicyDocument
from stream.policy.sites import Site
from stream.records import SECOND

VERSION = 1
"""Version of a site's message, and of the file."""
_NAME = "_sites.json"


class ZoneEntry(TypedDict):
    """One zone of a site."""

    zone: str
    floor: str
    kind: str
    capacity: int
    """In people."""
    metadata: dict[str, str]
    """The zone's names in building systems, by the keys of the policy."""


class FloorEntry(TypedDict):
    """One floor of a site."""

    floor: str
    name: str


class SiteMetadata(TypedDict):
    """A site's message: it contains no address, no source, and nothing that changes a guarantee."""

    v: int
    site: str
    name: str
    """The site's display name."""
    timezone: str
    tick_seconds: int
    zones: list[ZoneEntry]
    floors: NotRequired[list[FloorEntry]]
    """All floors from the bottom up, where a file of names lists them."""


SitesMetadata = Mapping[str, SiteMetadata]
"""By the site's name."""


def site_metadata(policy: PolicyDocument) -> dict[str, SiteMetadata]:
    """Return each site's metadata message by its name."""
    return {name: _described(name, site) for name, site in policy.site.items()}


def _described(name: str, site: Site) -> SiteMetadata:
    described: SiteMetadata = {
        "v": VERSION,
        "site": name,
        "name": site.title(name),
        "timezone": site.timezone,
        "tick_seconds": site.tick // SECOND,
        "zones": [
            {
                "zone": zone.id,
                "floor": zone.floor,
                "kind": zone.kind,
                "capacity": zone.capacity,
                "metadata": zone.metadata,
            }
            for zone in site.zones
        ],
    }
    if site.names is not None and site.names.floors:
        described["floors"] = [{"floor": floor.id, "name": floor.name or floor.id} for floor in site.names.floors]
    return described


def display_name(site: SiteMetadata | None, node: str) -> str | None:
    """Return the name that the policy gives to ``floor:2`` or ``zone:2011``; None if it gives none."""
    level, _, place = node.partition(":")
    names: dict[str, str] = {}
    if site is not None and level == "zone":
        names = {zone["zone"]: zone["metadata"].get("name", "") for zone in site["zones"]}
    elif site is not None and level == "floor":
        names = {floor["floor"]: floor["name"] for floor in site.get("floors", []) if floor["name"] != floor["floor"]}
    return names.get(place) or None


def write_sites(private: Path, sites: SitesMetadata) -> None:
    """Write the file to a store's folder ``private`` if its content would change.

    UsageError if a later version wrote the existing file.
    """
    if read_sites(private) != sites:
        replace_file(private / _NAME, {"v": VERSION, "sites": dict(sites)})


def read_sites(private: Path) -> dict[str, SiteMetadata]:
    """Return each site's metadata by its name; empty if no run has written the file yet.

    Raises:
        DataError: the file is malformed.
        UsageError: a later version wrote it.
    """
    path = private / _NAME
    try:
        body = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError:
        body = None
    version, sites = (body.get("v"), body.get("sites")) if isinstance(body, dict) else (None, None)
    if isinstance(version, int) and version > VERSION:
        msg = f"{path}: must be of version {VERSION}, got {version}; use the version of Tacet that wrote it"
        raise UsageError(msg)
    if version != VERSION or not isinstance(sites, dict):
        msg = f"{path}: must be what a run has written there"
        raise DataError(msg)
    return sites
