"""What a row of observations must be: time, device, access point and site, each by one rule; pure.

A rule names what a good row has, never what a bad one held.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from connectors.files.text_rows import instants
from stream.policy.document import Policy
from stream.policy.fields import base_range
from stream.records import Micros

_UTC = ZoneInfo("UTC")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")

_TIME = "time must be RFC 3339 with an offset (or local to the site without one), from 1970 to 2254"
_TWICE = "time must have an offset where the clocks of the site are set back"
_DEVICE = "device must be a MAC address, six pairs of hexadecimal digits with colons between"
_ACCESS_POINT = "access_point must be a radio address, six pairs of hexadecimal digits with colons between"
_SITE = "site must be one of the policy's"
_OTHER_SITE = "site must be the one that the access point belongs to in the policy"


class Sighting(NamedTuple):
    """A good row."""

    time: Micros
    address: bytes
    """Of the device, six octets."""
    place: int
    """Number of the access point in ``RowRules.points``."""


class RowRules:
    """The rules of a policy's rows."""

    def __init__(self, policy: Policy) -> None:
        places = policy.access_points()
        self.points = [(radio, site) for radio, (site, _) in places.items()]
        """Radio address and site of every access point, in the order of the policy."""
        self._place = {radio: number for number, radio in enumerate(places)}
        self._bases: dict[int, dict[int, int]] = {}
        for base in (base for site in policy.site.values() for zone in site.zones for base in zone.base_radio):
            shared, bits = base_range(base)
            self._bases.setdefault(48 - bits, {})[shared] = self._place[base.partition("/")[0]]
        self._zones = {name: ZoneInfo(site.timezone) for name, site in policy.site.items()}

    def read(self, time: Any, device: Any, access_point: Any, site: Any) -> Sighting | str | None:
        """Return a good row, or the rule that it broke; None where its access point is none of the policy's."""
        zone = self._zones.get(site) if isinstance(site, str) else None
        moments = instants(time, zone or _UTC) if isinstance(time, str) else ()
        address = _address(device)
        radio = access_point.lower() if isinstance(access_point, str) else ""
        place = self._place.get(radio)
        if place is None and self._bases and _MAC.fullmatch(radio):
            place = self._of_base(int(radio.replace(":", ""), 16))
        if len(moments) != 1:
            return _TWICE if moments else _TIME
        if address is None:
            return _DEVICE
        if place is None:
            return _ACCESS_POINT if not _MAC.fullmatch(radio) else _SITE if zone is None else None
        if zone is None:
            return _SITE
        return Sighting(moments[0], address, place) if self.points[place][1] == site else _OTHER_SITE

    def _of_base(self, radio: int) -> int | None:
        """Return the place of the base radio whose BSSID this is."""
        found = (bases.get(radio >> width) for width, bases in self._bases.items())
        return next((place for place in found if place is not None), None)


def _address(text: Any) -> bytes | None:
    return _octets(text) if isinstance(text, str) else None


@lru_cache(maxsize=65_536)
def _octets(text: str) -> bytes | None:
    if not _MAC.fullmatch(text.lower()):
        return None
    return bytes.fromhex(text.replace(":", ""))
