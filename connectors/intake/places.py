"""Which access point a sighting names: by radio address or base radio, by its name, or as its sender."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from connectors.intake.addresses import access_point_name, sender
from connectors.intake.sighting import Sighting
from stream.errors import UsageError
from stream.policy.fields import base_range


class Place(NamedTuple):
    """Where an access point is."""

    site: str
    zone: str
    radio: str
    """Its radio address, as the policy writes it."""


class Places:
    """The listed access points, by everything that a source may name them by."""

    def __init__(
        self,
        access_points: Mapping[str, tuple[str, str]],
        sites: Collection[str],
        aliases: Mapping[str, str],
        base_radios: Iterable[str],
    ) -> None:
        """Take radio address -> (site, zone), the sites there are, name or IP address -> radio address, base radios.

        Raises ``UsageError`` for an access point of no site, an alias or base radio of no access point.
        """
        self._radios: dict[bytes, Place] = {}
        self._aliases: dict[str, Place] = {}
        self._bases: dict[int, dict[int, Place]] = {}
        for mac, (site, zone) in access_points.items():
            if site not in sites:
                msg = f"access point {mac}: must be of a known site, got {site!r}"
                raise UsageError(msg)
            self._radios[bytes.fromhex(mac.replace(":", ""))] = Place(site, zone, mac)
        for name, mac in aliases.items():
            if mac not in access_points:
                msg = f"alias {name!r}: must stand for an access point of a zone, got {mac!r}"
                raise UsageError(msg)
            self._aliases[_alias(name)] = Place(*access_points[mac], mac)
        for written in base_radios:
            mac = written.partition("/")[0]
            if mac not in access_points:
                msg = f"base radio {written}: must be an access point of a zone"
                raise UsageError(msg)
            shared, bits = base_range(written)
            self._bases.setdefault(48 - bits, {})[shared] = Place(*access_points[mac], mac)

    def find(self, sighting: Sighting, address: str) -> Place | None:
        """Return the listed access point: by its radio address or base radio, else its name, else as the sender."""
        place = self._radios.get(sighting.access_point)
        if place is None and self._bases and sighting.access_point:
            place = self._of_base(int.from_bytes(sighting.access_point, "big"))
        if place is None and self._aliases:
            name = address if sighting.at_sender else access_point_name(sighting.name)
            place = None if name is None else self._aliases.get(name.casefold())
        return place

    def _of_base(self, radio: int) -> Place | None:
        """Return where the base radio is that shares its first bits with this address."""
        found = (bases.get(radio >> width) for width, bases in self._bases.items())
        return next((place for place in found if place is not None), None)


def _alias(name: str) -> str:
    """Return the form in which names and senders' addresses are compared."""
    try:
        return sender(name)
    except ValueError:
        return name.strip().casefold()
