"""The rules of rows, of observations and of counts; pure.

A rule describes a good row, never the content of a bad one.

- ``RowRules``: a row of observations, with time, device, access point and site.
- ``RowColumns`` reads rows of observations by column, many at once, if they are certainly good. The test is narrow: an
  instant of RFC 3339 in UTC, to the second or the microsecond, and texts that stand for a device, an access point and a
  site. ``RowRules`` reads every other row, and it alone defines a valid row. So a row means the same in both ways, and
  a bad one affects only itself.
- ``CellRules``: a row of counts, with window, zone, count and site. A cell is a zone at a window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import date
from typing import Any, Generic, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from connectors.sources.recordings.dialect import OWN, Dialect, instants, octets
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.fields import base_range
from stream.policy.sites import Site
from stream.records import DAY, HOUR, LARGEST_COUNT, LATEST, MINUTE, SECOND, Micros
from stream.sensing.counter_feed import COUNTERS

_TWICE = "time must have an offset in the hour in which the site's clocks are set back"
_ACCESS_POINT = "access_point must be a radio address such as 5c:52:1e:00:20:65, or a name that the policy lists"
_SITE = "site must be one of the policy's"
_OTHER_SITE = "site must be the one that the access point belongs to in the policy"
_MOST_PLACES = 65_536
"""Number of texts of access points whose result is cached."""


class Sighting(NamedTuple):
    """A good row."""

    time: Micros
    address: bytes
    """The device: six octets, or the sixteen of an opaque id."""
    place: int
    """Number of the access point in ``RowRules.points``."""


class RowRules:
    """The rules of a policy's rows, in one dialect."""

    def __init__(self, policy: PolicyDocument, dialect: Dialect = OWN) -> None:
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
        """Return a good row, or the rule that it broke; None if its access point is not the policy's.

        In a dialect whose rows name no site, the access point determines it.
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
        """Return the number of an access point; the rule that it broke, or None if it is not the policy's."""
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
        """Return the place of the base radio to which this BSSID belongs."""
        found = (bases.get(radio >> width) for width, bases in self._bases.items())
        return next((place for place in found if place is not None), None)


# --- observations by column -------------------------------------------------------------------------

T = TypeVar("T")
K = TypeVar("K")
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NumberedRow = tuple[int, tuple[Any, ...]]
"""A line's number and its fields."""
MOST_KNOWN = 65_536
"""Number of texts of a kind whose result is cached."""
_SECONDS, _MICROSECONDS = 20, 27
"""Characters of ``2026-03-02T12:00:00Z`` and ``2026-03-02T12:00:00.000000Z``."""
_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_FRACTION = (20, 21, 22, 23, 24, 25)
_SIGNS = ((4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":"))
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Known(dict[K, T], Generic[K, T]):
    """A cache that computes the value of a key at its first use; it is emptied when it is full."""

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, key: K) -> T:
        if len(self) >= MOST_KNOWN:
            self.clear()
        found = self[key] = self._find(key)
        return found


class Sightings(NamedTuple):
    """Good rows by column."""

    lines: Integers
    times: Integers
    places: Integers
    addresses: list[bytes]

    def where(self, keep: Flags) -> Sightings:
        """Return the rows for which ``keep`` is true."""
        if keep.all():
            return self
        addresses = [self.addresses[number] for number in np.flatnonzero(keep)]
        return Sightings(self.lines[keep], self.times[keep], self.places[keep], addresses)


class RowColumns:
    """Reads rows of one dialect by column."""

    def __init__(self, rules: RowRules, dialect: Dialect) -> None:
        self._plain = dialect.times == "rfc3339"
        self._names_sites = dialect.names_sites
        sites = {site: number for number, site in enumerate(dict.fromkeys(site for _, site in rules.points))}
        self._site_of = np.array([*(sites[site] for _, site in rules.points), -1], dtype=np.int64)
        self._sites: Known[str, int] = Known(lambda text: sites.get(text, -2))
        self._places: Known[str, int] = Known(lambda text: _number(rules.place(text)))
        self._addresses: Known[str, bytes | None] = Known(dialect.device)

    def read(self, rows: Sequence[NumberedRow]) -> tuple[Sightings | None, Sequence[NumberedRow]]:
        """Return the rows that are certainly good, None for none, and the others in order."""
        columns = tuple(zip(*(fields for _, fields in rows), strict=True))
        if not self._plain or not all({*map(type, column)} == {str} for column in columns):
            return None, rows
        times, good = plain_instants(columns[0])
        addresses = [*map(self._addresses.__getitem__, columns[1])]
        places = np.fromiter(map(self._places.__getitem__, columns[2]), np.int64, len(rows))
        good &= places >= 0
        if self._names_sites:
            good &= self._site_of[places] == np.fromiter(map(self._sites.__getitem__, columns[3]), np.int64, len(rows))
        if None in addresses:
            good &= np.array([address is not None for address in addresses])
        lines = np.fromiter((line for line, _ in rows), np.int64, len(rows))
        found = Sightings(lines, times, places, addresses).where(good)  # type: ignore[arg-type]
        return found, () if good.all() else [row for row, well in zip(rows, good.tolist(), strict=True) if not well]


def _number(place: int | str | None) -> int:
    return place if isinstance(place, int) else -1


def plain_instants(texts: Sequence[str]) -> tuple[Integers, Flags]:
    """Return the microseconds since 1970 of plain texts, and which texts are plain.

    The values of others are undefined.
    """
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    codes = np.array(texts, dtype=f"U{_MICROSECONDS}").view(np.uint32).reshape(len(texts), _MICROSECONDS)
    digits = codes - np.uint32(ord("0"))  # a character that is no digit wraps around to a large number
    plain = (digits[:, _DIGITS] <= 9).all(axis=1)
    for place, sign in _SIGNS:
        plain &= codes[:, place] == ord(sign)
    whole = (lengths == _SECONDS) & (codes[:, _SECONDS - 1] == ord("Z"))
    fraction = (
        (lengths == _MICROSECONDS)
        & (codes[:, 19] == ord("."))
        & (codes[:, 26] == ord("Z"))
        & (digits[:, _FRACTION] <= 9).all(axis=1)
    )
    plain &= whole | fraction
    values = np.where(digits <= 9, digits, 0).astype(np.int64)
    hour, minute, second = (_decimal(values, places) for places in ((11, 12), (14, 15), (17, 18)))
    plain &= (hour < 24) & (minute < 60) & (second < 60)
    times = _days(values) * DAY + hour * HOUR + minute * MINUTE + second * SECOND
    times += np.where(fraction, _decimal(values, _FRACTION), 0)
    return times, plain & (times >= 0) & (times < LATEST)


def _days(digits: Integers) -> Integers:
    """Return days since 1970, a negative number for a date that does not exist."""
    dates, which = np.unique(_decimal(digits, (0, 1, 2, 3, 5, 6, 8, 9)), return_inverse=True)
    return np.array([_day(number) for number in dates.tolist()], dtype=np.int64)[which]


def _day(number: int) -> int:
    try:
        return date(number // 10_000, number // 100 % 100, number % 100).toordinal() - _EPOCH_DAY
    except ValueError:
        return -1


def _decimal(digits: Integers, places: Sequence[int]) -> Integers:
    value = digits[:, places[0]]
    for place in places[1:]:
        value = value * 10 + digits[:, place]
    return value


# --- counts -----------------------------------------------------------------------------------------

COLUMNS = ("window_end", "zone", "count")
TWICE = "each pair of window_end and zone must appear once"
COUNT = f"count must be a whole number from 0 to {LARGEST_COUNT:,}"
WHOLE = "each window must have a good row for each zone, unless the policy declares zeros = 'omitted' for the site"
_TIME = "window_end must be RFC 3339 with an offset (or local to the site without one), on one of the site's ticks"
_TWICE_A_YEAR = "window_end must have an offset in the hour in which the site's clocks are set back"
_COUNTED_SITE = "site must be one of the policy's with feed = 'counts'"
_ZONE = "zone must be one of the site's"


class Cell(NamedTuple):
    """A zone at a window of a site."""

    site: str
    window: Micros
    zone: str


class CellRules:
    """The rules of a policy's rows of counts."""

    def __init__(self, policy: PolicyDocument) -> None:
        """Set the sites that receive counts; UsageError if the policy has none."""
        self.sites: dict[str, Site] = {name: site for name, site in policy.site.items() if site.feed == "counts"}
        if not self.sites:
            raise UsageError("--counts: the policy must have a site with feed = 'counts'")
        self.columns = (*COLUMNS, "site") if len(self.sites) > 1 else COLUMNS
        """Fields of a row; the site only if there are several."""
        self._zones = {name: {zone.id for zone in site.zones} for name, site in self.sites.items()}
        self._clocks = {name: ZoneInfo(site.timezone) for name, site in self.sites.items()}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return site and source of everything that receives counts."""
        return [(name, COUNTERS) for name in self.sites]

    def lacks(self, site: str, counts: Collection[str]) -> bool:
        """Return whether a window with counts of these zones is refused because others are missing.

        An empty window is not.
        """
        return self.sites[site].zeros == "reported" and bool(counts) and self._zones[site] != set(counts)

    def cell(self, time: Any, zone: Any, site: Any = None) -> Cell | str:
        """Return the cell of a row, or the rule that it broke."""
        name = next(iter(self.sites)) if site is None and len(self.sites) == 1 else site
        if not isinstance(name, str) or name not in self.sites:
            return _COUNTED_SITE
        moments = instants(time, self._clocks[name]) if isinstance(time, str) else ()
        if len(moments) != 1 or moments[0] % self.sites[name].tick:
            return _TWICE_A_YEAR if len(moments) > 1 else _TIME
        if not isinstance(zone, str) or zone not in self._zones[name]:
            return _ZONE
        return Cell(name, moments[0], zone)


def number(value: Any) -> int | None:
    """Return a count from a file or from JSON, None for a bad one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_COUNT)):
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
    return int(value) if good else None
