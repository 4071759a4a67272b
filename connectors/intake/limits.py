"""What a connector needs to know of a site; pure."""

from __future__ import annotations

from dataclasses import dataclass

from stream.policy.sites import Site
from stream.records import SECOND, Micros
from stream.sensing.pseudonyms import Pseudonyms

MOST_AGE: Micros = 60 * SECOND
"""So far back at most an observation is dated: no tick but one lies within it."""


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """What the connector needs to know of a site."""

    sources: tuple[str, ...]
    """Its controllers, as the policy lists them."""
    validity: Micros
    """V: how long a sighting holds, and how long the connector remembers a device."""
    max_devices: int
    """Far above any real building; the device beyond it shuts the site."""
    names: Pseudonyms
    """How its devices are named."""
    lateness: Micros = 0
    """How long after a tick its window closes."""
    probed: frozenset[str] = frozenset()
    """Sources that are asked whether they are alive: for the others only the connector itself can be vouched for."""

    @classmethod
    def of_site(cls, site: Site, names: Pseudonyms) -> SiteLimits:
        """Return what a policy says of a site."""
        probed = frozenset(probe.source for probe in site.probe)
        return cls(site.sources, site.validity, site.max_devices, names, site.lateness, probed)

    @property
    def oldest(self) -> Micros:
        """How far back an observation is dated at most: no tick it may count at has closed."""
        return min(self.lateness, MOST_AGE)
