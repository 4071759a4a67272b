"""The dialect of a recording: columns, times and devices.

A dialect is declared, never guessed. Some forms need no declaration: every spelling of an address, an access point's
name if the policy lists it, and RFC 3339 with any offset.

Times without an offset are local to the dialect's time zone, or to the site's if the dialect has none. A local time
that does not exist because the clocks were set forward, or that exists twice because they were set back, makes a bad
row: which of two hours it was cannot be known.

A device with an opaque id (a hash, a ticket, a name) is represented by 16 octets that are hashed from the id. No
address has that length, so an id never collides with an address. Like an address, it is used for the day's pseudonym
and nowhere else.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

from connectors.sources.ingest.addresses import address_of
from stream.domains import Domain
from stream.errors import UsageError
from stream.records import EPOCH, LATEST, SECOND, Micros

_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=65_536)
def instants(text: str, timezone: ZoneInfo) -> tuple[Micros, ...]:
    """Return the instants that a time can stand for: two for a local time that exists twice, none for a bad one.

    A time without an offset is local to ``timezone``. Every instant lies after 1970 and before 2255.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return _within([_micros(moment)])
        folds = (moment.replace(tzinfo=timezone, fold=fold) for fold in (0, 1))
        true = (local for local in folds if local.astimezone(UTC).astimezone(timezone).replace(tzinfo=None) == moment)
        return _within(dict.fromkeys(map(_micros, true)))
    except (ValueError, OverflowError, TypeError):
        return ()


def _micros(moment: datetime) -> Micros:
    return (moment - EPOCH) // _MICROSECOND


def _within(moments: Iterable[Micros]) -> tuple[Micros, ...]:
    return tuple(moment for moment in moments if 0 <= moment < LATEST)


FIELDS = ("time", "device", "access_point", "site")
Times = Literal["rfc3339", "seconds", "milliseconds"]
Devices = Literal["address", "opaque"]
LONGEST_ID = 256
"""Maximum length of an opaque id in characters."""

_UTC = ZoneInfo("UTC")
_DECIMAL = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,9}))?")
_UNIT = {"seconds": SECOND, "milliseconds": 1000}
_OWN_TIME = "time must be RFC 3339 with an offset (or local to the site without one), from 1970 to 2254"
_DECLARED_TIME = "time must be RFC 3339 with an offset (or local to --timezone without one), from 1970 to 2254"
_EPOCH_TIME = "time must be a number of {} since 1970, before 2255"
_ADDRESS = "device must be a MAC address, such as a4:00:00:00:00:01 or a400.0000.0001"
_ID = f"device must be an id of 1 to {LONGEST_ID} characters"


@dataclass(frozen=True)
class Dialect:
    """The dialect of one recording; the default is that of this project's own files."""

    columns: Mapping[str, str] | None = None
    """Field -> column, of time, device, access_point and, if rows name it, site.

    None: columns have the fields' names.
    """
    timezone: str | None = None
    """The time zone of times without an offset; None: the site's."""
    times: Times = "rfc3339"
    devices: Devices = "address"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns to read, in the order of ``FIELDS``; the last is left out if rows name no site."""
        if self.columns is None:
            return FIELDS
        return tuple(self.columns[field] for field in FIELDS if field in self.columns)

    @cached_property
    def names_sites(self) -> bool:
        """Whether rows name their site; otherwise the access point determines it."""
        return self.columns is None or "site" in self.columns

    @cached_property
    def time_rule(self) -> str:
        """The rule of a good time."""
        if self.times != "rfc3339":
            return _EPOCH_TIME.format(self.times)
        return _OWN_TIME if self.timezone is None else _DECLARED_TIME

    @property
    def device_rule(self) -> str:
        """The rule of a good device."""
        return _ADDRESS if self.devices == "address" else _ID

    @cached_property
    def _zone(self) -> ZoneInfo | None:
        return None if self.timezone is None else ZoneInfo(self.timezone)

    def instants(self, time: Any, site: ZoneInfo | None) -> tuple[Micros, ...]:
        """Return the instants that a time can stand for: none for a bad one, two for one that exists twice."""
        if self.times != "rfc3339":
            return _since_1970(time, _UNIT[self.times])
        return instants(time, self._zone or site or _UTC) if isinstance(time, str) else ()

    def device(self, value: Any) -> bytes | None:
        """Return the octets that identify a device, None for a bad one."""
        if self.devices == "address":
            return octets(value) if isinstance(value, str) else None
        return _hashed(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None


OWN = Dialect()


def dialect_of(
    columns: Iterable[str] = (), timezone: str | None = None, times: Times = "rfc3339", devices: Devices = "address"
) -> Dialect:
    """Return the dialect that a command line declares, with columns as ``device=mac,access_point=ap,time=when``.

    Raises:
        UsageError: the column of the time, the device or the access point is missing or declared twice; or there is no
            such time zone.
    """
    pairs = [part.partition("=") for text in columns for part in text.split(",")]
    found: dict[str, str] = {}
    for field, _, column in ((field.strip(), equals, column.strip()) for field, equals, column in pairs):
        if not column or field not in FIELDS or field in found or column in found.values():
            rule = f"must be FIELD=COLUMN, each of {', '.join(FIELDS)} once, with commas between"
            raise UsageError(f"--columns: {rule}, got {field + '=' + column!r}")
        found[field] = column
    if missing := [field for field in FIELDS[:3] if found and field not in found]:
        raise UsageError(f"--columns: must say which column is the {missing[0]}")
    if timezone is not None:
        _check_zone(timezone)
    return Dialect(found or None, timezone, times, devices)


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"--timezone: must be a name such as 'Europe/Berlin', got {name!r}") from None


def _since_1970(value: Any, unit: int) -> tuple[Micros, ...]:
    """Return the instant of a number of units, truncated to microseconds."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ()
    text = f"{value:.6f}" if isinstance(value, float) and math.isfinite(value) else str(value)
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return ()
    instant = int(match[1]) * unit + int((match[2] or "").ljust(9, "0")) * unit // 10**9
    return (instant,) if instant < LATEST else ()


@lru_cache(maxsize=65_536)
def octets(text: str) -> bytes | None:
    """Return the six octets that a text spells, None if it is no address."""
    return address_of(text)


@lru_cache(maxsize=65_536)
def _hashed(text: str) -> bytes | None:
    if not 0 < len(text) <= LONGEST_ID or "\ufffd" in text:
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=Domain.DEVICE_ID).digest()
