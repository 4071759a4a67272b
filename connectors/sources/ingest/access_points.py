"""The listed access points: found by radio address or base radio, by name, or as the sender of a message."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from connectors.sources.ingest.addresses import access_point_name, sender
from connectors.sources.ingest.sighting import Sighting
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.fields import base_range
from stream.policy.sites import Zone


class AccessPointEntry(NamedTuple):
    """The site and zone of an access point."""

    site: str
    zone: str
    radio: str
    """Its radio address in the policy's spelling."""


class AccessPoints:
    """The listed access points, by every identifier that a source may use for them."""

    def __init__(
        self,
        access_points: Mapping[str, tuple[str, str]],
        sites: Collection[str],
        aliases: Mapping[str, str],
        base_radios: Iterable[str],
    ) -> None:
        """Set radio address -> (site, zone), the sites, name or IP address -> radio address, and base radios.

        Raises ``UsageError`` for an access point of no site, or for an alias or base radio of no access point.
        """
        self._radios: dict[bytes, AccessPointEntry] = {}
        self._aliases: dict[str, AccessPointEntry] = {}
        self._bases: dict[int, dict[int, AccessPointEntry]] = {}
        for mac, (site, zone) in access_points.items():
            if site not in sites:
                msg = f"access point {mac}: must be of a known site, got {site!r}"
                raise UsageError(msg)
            self._radios[bytes.fromhex(mac.replace(":", ""))] = AccessPointEntry(site, zone, mac)
        for name, mac in aliases.items():
            if mac not in access_points:
                msg = f"alias {name!r}: must name an access point of a zone, got {mac!r}"
                raise UsageError(msg)
            self._aliases[_alias(name)] = AccessPointEntry(*access_points[mac], mac)
        for written in base_radios:
            mac = written.partition("/")[0]
            if mac not in access_points:
                msg = f"base radio {written}: must be an access point of a zone"
                raise UsageError(msg)
            shared, bits = base_range(written)
            self._bases.setdefault(48 - bits, {})[shared] = AccessPointEntry(*access_points[mac], mac)

    @classmethod
    def of_policy(cls, policy: PolicyDocument) -> AccessPoints:
        """Return the access points of a policy's zones."""
        return cls(policy.access_points(), policy.site, aliases_of(policy), base_radios_of(policy))

    def find(self, sighting: Sighting, address: str) -> AccessPointEntry | None:
        """Return the listed access point: by its radio address or base radio, else by its name, else as the sender."""
        place = self._radios.get(sighting.access_point)
        if place is None and self._bases and sighting.access_point:
            place = self._of_base(int.from_bytes(sighting.access_point, "big"))
        if place is None and self._aliases:
            name = address if sighting.at_sender else access_point_name(sighting.name)
            place = None if name is None else self._aliases.get(name.casefold())
        return place

    def _of_base(self, radio: int) -> AccessPointEntry | None:
        """Return the access point whose base radio shares its first bits with this address."""
        found = (bases.get(radio >> width) for width, bases in self._bases.items())
        return next((place for place in found if place is not None), None)


def aliases_of(policy: PolicyDocument) -> dict[str, str]:
    """Return the radio address of each access point that a policy names: name or IP address -> radio address."""
    return {name: zone.radios[0] for zone in _zones(policy) for name in zone.access_point_names}


def base_radios_of(policy: PolicyDocument) -> list[str]:
    """Return the base radios of a policy, such as ``24:de:c6:cc:dd:e0/44``."""
    return [base for zone in _zones(policy) for base in zone.base_radio]


def _zones(policy: PolicyDocument) -> Iterator[Zone]:
    return (zone for site in policy.site.values() for zone in site.zones)


def _alias(name: str) -> str:
    """Return the form in which names and senders' addresses are compared."""
    try:
        return sender(name)
    except ValueError:
        return name.strip().casefold()
