"""Booked rooms that are probably empty, and rooms in use that nobody booked: from released counts and calendars.

A statement is made for a span in which every window was released and covered by all sources. Windows begin after the
site's ``validity``, for which devices count that have left; so people of the booking before do not count for this one.

    span                            windows                                    statement
    a booking, or what has passed   from its start + validity to its end       booked, probably empty
    of it
    an hour of the working day      those that no booking touches, also not    in use, not booked
                                    with ``validity`` before and after it

Where no statement can be made, a reason is given: of the room, or of the booking. The first that applies counts.

    reason of a room   meaning
    few                it is for so few people that a statement would be about them
    calendar           its calendar could not be read lately
    none               nothing was released for it on that day
    bounded            each device counts for a part of the day only, so an absent one says nothing
    law                the law of its noise is not stated in the records
    noise              its noise is so large that statements need more than ``LONGEST``

    reason of a booking   meaning
    days                  it is of whole days
    ahead                 too little of it has passed
    short                 it is shorter than what the room's noise needs
    stale                 figures are late
    missing               a window was not released, or not covered
    unsure                the counts do not say that the room is empty
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from connectors.http.responses import RefusalError, answer
from connectors.records.bands import NoiseDistribution, mean_half_width
from connectors.records.decoding import Window, decoded
from connectors.records.room_use import CALLED, Assumptions, least_windows, room_use
from connectors.serve.access import audience_role
from connectors.serve.booked_rooms import DAYS_BACK, Booking
from connectors.serve.models import BookedRoom, BookedSpan, BookingsPart, OfBookings, UseAssumptions, UsedSpan
from connectors.serve.policy_description import sites_of
from connectors.serve.room import STALE_WINDOWS
from connectors.serve.service import parsed, role, service_of
from stream.local_time import span_of_day
from stream.policy.sites import Site, Zone
from stream.records import EPOCH, HOUR, MINUTE, JsonObject, Micros
from stream.schemas import rfc3339

LONGEST: Micros = 4 * HOUR
"""Length of the longest span that a room may need for a statement."""
RoomReason = Literal["few", "calendar", "none", "bounded", "law", "noise"]
BookingReason = Literal["days", "ahead", "short", "stale", "missing", "unsure"]


class Count(NamedTuple):
    """A window's noisy count of a room, and the law of its noise."""

    noisy: int
    law: NoiseDistribution


class RoomDay(NamedTuple):
    """What was released for a room on a day, by one release."""

    counts: Mapping[Micros, Count]
    """By the window's start."""
    is_known: bool
    """Whether all noise has a known law."""
    is_bounded: bool


class Passed(NamedTuple):
    """Which windows there can be."""

    tick: Micros
    until: Micros
    """End of the newest window."""
    is_stale: bool


class BookingResult(NamedTuple):
    """A booking, with the probability that its room is empty if that is high, and else why not."""

    booking: Booking
    empty: float | None
    reason: BookingReason | None


class Unbooked(NamedTuple):
    """A span in which a room is in use and nobody has booked it."""

    start: Micros
    end: Micros
    used: float


def room_days(bodies: Iterable[JsonObject], site: str, zones: Sequence[str]) -> dict[str, RoomDay]:
    """Return what records tell of the rooms of a site.

    First counts of windows that all sources covered; of several attempts the last. Of several releases with a room the
    one counts whose noise has a known law, which is not bounded, and which has the least noise, in this order.
    """
    nodes = {f"zone:{zone}": zone for zone in zones}
    found: dict[tuple[str, str], dict[Micros, tuple[int, Count | None]]] = {}
    bounded: set[tuple[str, str]] = set()
    for body in bodies:
        if body["site"] != site or "attribute" in body or "revises" in body or body.get("counted") == "people":
            continue
        if body.get("half_width_95") is None or "/" in body["mechanism"] or body["coverage"] != 1:
            continue  # denied windows, threshold streams, queries and heat maps
        window = decoded(body)
        assert isinstance(window, Window)  # noqa: S101
        for cell in window.cells:
            if cell.node in nodes:
                key = (nodes[cell.node], window.series.release)
                at = found.setdefault(key, {})
                if at.get(window.start, (-1, None))[0] <= window.series.rank:
                    count = None if cell.noise is None else Count(cell.noisy, cell.noise)
                    at[window.start] = window.series.rank, count
                if window.bounded is not None:
                    bounded.add(key)
    chosen: dict[str, list[tuple[tuple[bool, bool, float, str], RoomDay]]] = {}
    for (zone, release), by_start in found.items():
        counts = {start: count for start, (_, count) in by_start.items() if count is not None}
        known, is_bounded = len(counts) == len(by_start), (zone, release) in bounded
        noise = max((deviation_of(count.law) for count in counts.values()), default=0.0)
        rank = (not known, is_bounded, noise, release)
        chosen.setdefault(zone, []).append((rank, RoomDay(counts, known, is_bounded)))
    return {zone: min(days, key=lambda each: each[0])[1] for zone, days in chosen.items()}


def deviation_of(law: NoiseDistribution) -> float:
    """Return the standard deviation of a value's noise."""
    return float(law.parameter.deviation * law.draws**0.5)


class Feasibility(NamedTuple):
    """Whether a room's noise permits statements."""

    reason: RoomReason | None
    windows: int | None
    """Number of windows that a statement needs."""
    half_width: float | None
    """95 % half-width of the noise in an hour's mean."""


def feasibility(day: RoomDay | None, assumed: Assumptions, tick: Micros) -> Feasibility:
    """Return from how many windows on a room's releases carry statements, by its largest noise of the day."""
    if day is None:
        return Feasibility("none", None, None)
    if day.is_bounded:
        return Feasibility("bounded", None, None)
    if not day.is_known:
        return Feasibility("law", None, None)
    law = max((count.law for count in day.counts.values()), key=deviation_of)
    windows = least_windows(law, assumed, max(1, LONGEST // tick))
    half_width = mean_half_width(law, max(1, HOUR // tick))
    return Feasibility("noise" if windows is None else None, windows, round(half_width, 2))


def judge_booking(
    booking: Booking, day: RoomDay, passed: Passed, *, settle: Micros, needed: int, assumed: Assumptions
) -> BookingResult:
    """Return whether a booked room is probably empty."""
    if booking.whole_days:
        return BookingResult(booking, None, "days")
    whole = _windows(booking.start + settle, booking.end, passed.tick)
    if len(whole) < needed:
        return BookingResult(booking, None, "short")
    windows = [start for start in whole if start + passed.tick <= passed.until]
    if passed.is_stale and len(windows) < len(whole):
        return BookingResult(booking, None, "stale")
    if len(windows) < needed:
        return BookingResult(booking, None, "ahead")
    counts = [day.counts.get(start) for start in windows]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return BookingResult(booking, None, "missing")
    empty = room_use(sum(count.noisy for count in known), [count.law for count in known], assumed).empty
    return BookingResult(booking, empty, None) if empty >= CALLED else BookingResult(booking, None, "unsure")


def unbooked_use(
    hours: Iterable[tuple[Micros, Micros]], bookings: Sequence[Booking], day: RoomDay, passed: Passed, *,
    settle: Micros, needed: int, assumed: Assumptions,
) -> Iterator[Unbooked]:  # fmt: skip
    """Yield the hours in which a room is in use and not booked."""
    for start, end in hours:
        free = [
            at
            for at in _windows(start, end, passed.tick)
            if not any(each.start - settle < at + passed.tick and at < each.end + settle for each in bookings)
        ]
        if len(free) < needed or free[-1] + passed.tick > passed.until or not all(at in day.counts for at in free):
            continue
        counts = [day.counts[at] for at in free]
        used = room_use(sum(count.noisy for count in counts), [count.law for count in counts], assumed).used
        if used >= CALLED:
            yield Unbooked(free[0], free[-1] + passed.tick, used)


def _windows(start: Micros, end: Micros, tick: Micros) -> list[Micros]:
    """Return the starts of the windows that lie within a span."""
    return list(range(-(-start // tick) * tick, end - tick + 1, tick))


def working_hours(midnight: Micros, site: Site) -> list[tuple[Micros, Micros]]:
    """Return the hours of the working day that begins at a local midnight; the last one may be shorter."""
    zone = ZoneInfo(site.timezone)
    day = (EPOCH + timedelta(microseconds=midnight)).astimezone(zone).replace(tzinfo=None)
    first, last = (int(text[:2]) * 60 + int(text[3:]) for text in site.working_hours)
    minutes = [*range(first, last, 60), last]
    at = [(day + timedelta(minutes=each)).replace(tzinfo=zone) for each in minutes]
    instants = [(each - EPOCH) // timedelta(microseconds=1) for each in at]
    return list(pairwise(instants))


async def bookings(request: Request) -> Response:
    """Return the booked rooms that are probably empty, and rooms in use that nobody booked, of a day."""
    service, query = service_of(request), parsed(request, OfBookings)
    role(request, audience_role(query.audience))
    booked = service.bookings
    if booked is None or booked.content.audience != query.audience:
        raise RefusalError(404, "audience", "must be an audience that this service shows bookings to (--bookings)")
    if query.site not in sites_of(service.policy, (query.audience,)):
        raise RefusalError(404, "site", "must be one with releases for the reader")
    place, now = service.policy.site[query.site], service.now()
    today = (EPOCH + timedelta(microseconds=now)).astimezone(ZoneInfo(place.timezone)).date()
    day = query.day or today.isoformat()
    if not (today - timedelta(days=DAYS_BACK - 2)).isoformat() <= day <= today.isoformat():
        raise RefusalError(422, "day", f"must be today, or one of the {DAYS_BACK - 2} days before")
    start, end = span_of_day(day, ZoneInfo(place.timezone))
    content = booked.content
    zones = [zone for zone in place.zones if zone.id in booked.zones(query.site)]

    def released_for_rooms(
        audience: str, site: str, zones: tuple[str, ...], after: Micros, until: Micros
    ) -> dict[str, RoomDay]:
        return room_days(service.history.bodies(audience, after, until), site, zones)

    zone_ids = tuple(zone.id for zone in zones if zone.capacity >= content.least_capacity)
    days = await service.cached(
        released_for_rooms, query.audience, query.site, zone_ids, start - LONGEST, end + LONGEST
    )  # fmt: skip
    newest = await service.run_query(service.history.newest_end, query.audience, query.site)
    stale = newest is None or now - newest > place.lateness + STALE_WINDOWS * place.tick
    of = DayOfSite(
        place, start, end, Passed(place.tick, newest or 0, stale), days, content.least_capacity, content.assumed
    )  # fmt: skip
    rooms = [_room(of, zone, booked.of(query.site, zone.id, now)) for zone in zones]
    part = BookingsPart(
        site=query.site, timezone=place.timezone, day=day, stale=stale,
        window_end=None if newest is None else rfc3339(newest), least_capacity=content.least_capacity,
        assumed=UseAssumptions(**content.assumed._asdict()), called=CALLED, rooms=rooms,
    )  # fmt: skip
    return answer(part.model_dump())


class DayOfSite(NamedTuple):
    """What is known of a site's day."""

    site: Site
    start: Micros
    end: Micros
    passed: Passed
    rooms: Mapping[str, RoomDay]
    least_capacity: int
    assumed: Assumptions


def _room(of: DayOfSite, zone: Zone, bookings: Sequence[Booking] | None) -> BookedRoom:
    day = of.rooms.get(zone.id)
    feasible = feasibility(day, of.assumed, of.site.tick)
    few = zone.capacity < of.least_capacity
    reason: RoomReason | None = "few" if few else "calendar" if bookings is None else feasible.reason
    room = BookedRoom(
        zone=zone.id, name=zone.title, reason=reason, half_width=feasible.half_width, minutes=None, booked=[],
        unbooked=[],
    )  # fmt: skip
    if reason is not None or bookings is None or day is None or feasible.windows is None:
        return room
    settle, needed = of.site.validity, feasible.windows
    near = [each for each in bookings if each.start < of.end + LONGEST and each.end > of.start - LONGEST]
    today = [each for each in near if each.start < of.end and each.end > of.start]
    room.minutes = needed * of.site.tick // MINUTE
    room.booked = [
        _booked_span(judge_booking(each, day, of.passed, settle=settle, needed=needed, assumed=of.assumed))
        for each in today
    ]
    hours = working_hours(of.start, of.site)
    room.unbooked = [
        UsedSpan(start=rfc3339(each.start), end=rfc3339(each.end), used=_percent(each.used))
        for each in unbooked_use(hours, near, day, of.passed, settle=settle, needed=needed, assumed=of.assumed)
    ]
    return room


def _booked_span(found: BookingResult) -> BookedSpan:
    booking = found.booking
    return BookedSpan(
        start=rfc3339(booking.start), end=rfc3339(booking.end), whole_days=booking.whole_days,
        empty=None if found.empty is None else _percent(found.empty), reason=found.reason,
    )  # fmt: skip


def _percent(probability: float) -> float:
    """Return a probability, rounded down: it is never said to be higher than it is."""
    return math.floor(100 * probability) / 100
