"""What a row of observations must be: time, device, access point and site, each by one rule; pure.

A rule names what a good row has, never what a bad one held.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from connectors.files.dialect import OWN, Dialect, octets
from stream.policy.document import Policy
from stream.policy.fields import base_range
from stream.records import Micros

_TWICE = "time must have an offset where the clocks of the site are set back"
_ACCESS_POINT = "access_point must be a radio address such as 5c:52:1e:00:20:65, or a name that the policy lists"
_SITE = "site must be one of the policy's"
_OTHER_SITE = "site must be the one that the access point belongs to in the policy"
_MOST_PLACES = 65_536
"""Texts of access points that are remembered with what they stand for."""


class Sighting(NamedTuple):
    """A good row."""

    time: Micros
    address: bytes
    """Of the device: six octets, or the sixteen of an opaque id."""
    place: int
    """Number of the access point in ``RowRules.points``."""


class RowRules:
    """The rules of a policy's rows, in one dialect."""

    def __init__(self, policy: Policy, dialect: Dialect = OWN) -> None:
        places = policy.access_points()
        self.points = [(radio, site) for radio, (site, _) in places.items()]
        """Radio address and site of every access point, in the order of the policy."""
        self._dialect = dialect
        number = {radio: place for place, radio in enumerate(places)}
        self._radios = {bytes.fromhex(radio.replace(":", "")): place for radio, place in number.items()}
        self._names: dict[str, int] = {}
        self._bases: dict[int, dict[int, int]] = {}
        for zone in (zone for site in policy.site.values() for zone in site.zones):
            self._names |= {name.strip().casefold(): number[zone.radios[0]] for name in zone.access_point_names}
            for base in zone.base_radio:
                shared, bits = base_range(base)
                self._bases.setdefault(48 - bits, {})[shared] = number[base.partition("/")[0]]
        self._zones = {name: ZoneInfo(site.timezone) for name, site in policy.site.items()}
        self._found: dict[str, int | str | None] = {}

    def read(self, time: Any, device: Any, access_point: Any, site: Any = None) -> Sighting | str | None:
        """Return a good row, or the rule that it broke; None where its access point is none of the policy's.

        In a dialect whose rows name no site that is the access point's.
        """
        place = self.place(access_point)
        if not self._dialect.names_sites and isinstance(place, int):
            site = self.points[place][1]
        zone = self._zones.get(site) if isinstance(site, str) else None
        moments = self._dialect.instants(time, zone)
        address = self._dialect.device(device)
        if len(moments) != 1:
            return _TWICE if moments else self._dialect.time_rule
        if address is None:
            return self._dialect.device_rule
        if not isinstance(place, int):
            return place if place is not None or zone is not None or not self._dialect.names_sites else _SITE
        if zone is None:
            return _SITE
        return Sighting(moments[0], address, place) if self.points[place][1] == site else _OTHER_SITE

    def place(self, access_point: Any) -> int | str | None:
        """Return the number of an access point; the rule that it broke, or None where it is none of the policy's."""
        if not isinstance(access_point, str):
            return _ACCESS_POINT
        try:
            return self._found[access_point]
        except KeyError:
            if len(self._found) >= _MOST_PLACES:
                self._found.clear()
            found = self._found[access_point] = self._find(access_point)
            return found

    def _find(self, text: str) -> int | str | None:
        address = octets(text)
        if address is None:
            return self._names.get(text.strip().casefold(), None if self._names else _ACCESS_POINT)
        place = self._radios.get(address)
        return self._of_base(int.from_bytes(address, "big")) if place is None else place

    def _of_base(self, radio: int) -> int | None:
        """Return the place of the base radio whose BSSID this is."""
        found = (bases.get(radio >> width) for width, bases in self._bases.items())
        return next((place for place in found if place is not None), None)
