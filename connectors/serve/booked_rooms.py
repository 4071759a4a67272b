"""The bookings of rooms: which calendars an operator names, and what was read of them last.

A calendar is a file beside the file of bookings, or an https address. It belongs to one room, or maps the locations of
its events to rooms. Only times of rooms are kept, in memory. A calendar that cannot be read any more counts for
``STALE``, then its rooms have no bookings and no statement is made about them.

The file of bookings may hold addresses that open a calendar to whoever has them, so only its owner may read it, and no
message or log line says more of a calendar than its number in the file.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NoReturn, Self

import structlog
from pydantic import Field, model_validator

from connectors.calendars.address import fetch, parsed_address
from connectors.calendars.reader import LARGEST_FILE, LONGEST_PLACE, read_calendar
from connectors.records.room_use import Assumptions
from connectors.runtime.offload import offload
from connectors.secrets.secret_files import Table, read_tables
from connectors.serve.policy_description import published_zones
from stream.errors import DataError, KeyFileError, UsageError
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from stream.release.validation import Policy

log = structlog.get_logger("tacet.serve")
AGAIN: Micros = 15 * MINUTE
"""Time between two reads of a calendar."""
STALE: Micros = 2 * HOUR
"""Age from which what was read of a calendar does not count any more."""
DAYS_BACK, DAYS_AHEAD = 31, 2
"""Days for which bookings are known."""
MOST_CALENDARS = 500
LEAST_CAPACITY = 5
"""No statement is made about rooms for fewer people, whatever the file says: they would be about these people."""
Share = Annotated[float, Field(gt=0, lt=1)]
Devices = Annotated[int, Field(ge=0, le=1000)]
Place = Annotated[str, Field(min_length=1, max_length=LONGEST_PLACE)]


class Calendar(Table):
    """A calendar, and the rooms that it is about."""

    site: str
    file: str | None = None
    """Path, relative to the file of bookings."""
    address: str | None = None
    internal: bool = False
    """Whether the host of the address may be one of the operator's own network."""
    zone: str | None = None
    """The room of all its events."""
    places: dict[Place, str] = Field(default_factory=dict)
    """The room of each location."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if (self.file is None) == (self.address is None):
            msg = "must have either file or address"
            raise ValueError(msg)
        if (self.zone is None) == (not self.places):
            msg = "must have either zone or places"
            raise ValueError(msg)
        if self.internal and self.address is None:
            msg = "internal must be used with address"
            raise ValueError(msg)
        if self.address is not None:
            parsed_address(self.address)
        return self

    @property
    def zones(self) -> frozenset[str]:
        """The rooms that it is about."""
        return frozenset(self.places.values() if self.zone is None else [self.zone])


class BookingsFile(Table):
    """A file of bookings."""

    audience: str
    """Who sees bookings, and by whose releases rooms are judged."""
    empty_devices: Devices = 1
    used_devices: Devices = 3
    empty_share: Share = 0.1
    used_share: Share = 0.05
    least_capacity: int = Field(default=6, ge=LEAST_CAPACITY)
    """Seats of the smallest room about which statements are made."""
    calendar: list[Calendar] = Field(min_length=1, max_length=MOST_CALENDARS)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.used_devices <= self.empty_devices:
            msg = "used_devices must be above empty_devices"
            raise ValueError(msg)
        return self

    @property
    def assumed(self) -> Assumptions:
        """What is not in the counts."""
        return Assumptions(self.empty_devices, self.used_devices, self.empty_share, self.used_share)


def read_bookings(path: Path, policy: Policy) -> BookingsFile:
    """Return a file of bookings.

    Raises:
        KeyFileError: it is missing, others than its owner can read it, it breaks rules, or names a room that the
            audience gets no count of. No message contains an address.
    """
    content = read_tables(path, BookingsFile, "bookings")
    if content.audience not in [audience.name for audience in policy.audience]:
        msg = f"{path}: audience: must be one of the policy's, got {content.audience!r}"
        raise KeyFileError(msg)
    for number, calendar in enumerate(content.calendar, 1):
        if calendar.site not in policy.site:
            msg = f"{path}: calendar.{number}.site: must be one of the policy's, got {calendar.site!r}"
            raise KeyFileError(msg)
        known = {zone.id for zone in policy.site[calendar.site].zones}
        for zone in sorted(calendar.zones - (known & published_zones(policy, calendar.site, (content.audience,)))):
            msg = f"{path}: calendar.{number}: must be about zones with releases for the audience, got {zone!r}"
            raise KeyFileError(msg)
    return content


@dataclass(frozen=True, slots=True)
class Booking:
    """When a room is booked."""

    start: Micros
    end: Micros
    whole_days: bool


@dataclass(slots=True)
class BookedRooms:
    """What calendars said when they were read last."""

    content: BookingsFile
    folder: Path
    """What files of calendars are relative to."""
    timezones: Mapping[str, str]
    """By site."""
    clock: Callable[[], Micros]
    _read: dict[int, tuple[Micros, Mapping[str, frozenset[Booking]]]] = field(default_factory=dict)

    def zones(self, site: str) -> list[str]:
        """Return the rooms of a site that some calendar is about."""
        return sorted({zone for each in self.content.calendar if each.site == site for zone in each.zones})

    def of(self, site: str, zone: str, now: Micros) -> list[Booking] | None:
        """Return a room's bookings in order of time; None if one of its calendars has not been read lately."""
        found: set[Booking] = set()
        for number, calendar in enumerate(self.content.calendar):
            if calendar.site != site or zone not in calendar.zones:
                continue
            at, booked = self._read.get(number, (0, {}))
            if now - at > STALE:
                return None
            found |= booked.get(zone, frozenset())
        return sorted(found, key=lambda each: (each.start, each.end, each.whole_days))

    async def follow(self) -> NoReturn:
        """Read all calendars, again and again. One that cannot be read is logged by its number and the broken rule."""
        while True:
            for number in range(len(self.content.calendar)):
                await self.read(number)
            await asyncio.sleep(AGAIN / SECOND)

    async def read(self, number: int) -> None:
        """Read one calendar; if it cannot be read, what was read before stays for a while."""
        calendar, now = self.content.calendar[number], self.clock()
        span = (now - DAYS_BACK * DAY, now + DAYS_AHEAD * DAY)
        try:
            content = await self._content(calendar)
            booked: dict[str, set[Booking]] = {}
            places = None if calendar.zone is not None else tuple(calendar.places)
            for each in await offload(
                lambda: read_calendar(content, span, self.timezones[calendar.site], places=places)
            ):
                zone = calendar.places[each.place] if calendar.zone is None else calendar.zone
                booked.setdefault(zone, set()).add(Booking(each.start, each.end, each.whole_days))
        except (DataError, UsageError) as error:
            log.warning("a calendar could not be read", count=number + 1, site=calendar.site, rule=str(error))
            return
        self._read[number] = now, {zone: frozenset(found) for zone, found in booked.items()}

    async def _content(self, calendar: Calendar) -> bytes:
        if calendar.address is not None:
            return await fetch(calendar.address, LARGEST_FILE, internal=calendar.internal)
        return await offload(_content_of, self.folder / (calendar.file or ""))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe without a writer must not hold up the other calendars."""
    return os.open(path, flags | os.O_NONBLOCK)


def _content_of(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:  # os.fdopen would leave a folder's handle open
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DataError("calendar: must be a regular file")
            return file.read(LARGEST_FILE + 1)
    except OSError as error:
        msg = f"calendar: must be a readable file: {error.strerror}"
        raise DataError(msg) from None
