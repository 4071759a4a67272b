"""A site's metadata besides its releases: zones, floors and their names in building systems."""

from __future__ import annotations

from typing import Any

from stream.policy.document import PolicyDocument
from stream.policy.sites import Site
from stream.records import SECOND


def site_metadata(policy: PolicyDocument) -> dict[str, dict[str, Any]]:
    """Return each site's metadata message by its name.

    It contains no address, no source, and nothing that changes a guarantee.
    """
    return {name: _described(name, site) for name, site in policy.site.items()}


def _described(name: str, site: Site) -> dict[str, Any]:
    zones = [
        {"zone": zone.id, "floor": zone.floor, "kind": zone.kind, "capacity": zone.capacity, "metadata": zone.metadata}
        for zone in site.zones
    ]
    head = {"v": 1, "site": name, "name": site.name or name}
    return head | {"timezone": site.timezone, "tick_seconds": site.tick // SECOND, "zones": zones}
