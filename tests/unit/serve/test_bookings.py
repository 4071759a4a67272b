"""Booked rooms that are probably empty, and used rooms that nobody booked: what is said, of which rooms, to whom."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from connectors.http.limits import AllowedHosts
from connectors.records.bands import NoiseDistribution, sum_half_width
from connectors.records.room_use import CALLED, Assumptions
from connectors.serve import booked_rooms
from connectors.serve.access import Access, TokenFile, audience_role, room_role
from connectors.serve.app import application
from connectors.serve.booked_rooms import STALE, BookedRooms, Booking, BookingsFile, read_bookings
from connectors.serve.event_streams import Streams
from connectors.serve.history.local_clock import SiteClock
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.service import Service
from connectors.serve.startup import ServeConfig, check
from stream.errors import DataError, KeyFileError, UsageError
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from stream.release.validation import load_policy
from stream.schemas import CountRecord, parse_time, rfc3339
from tests.support.icalendar_files import NEEDLES, calendar, event

TICK = 5 * MINUTE
MIDNIGHT = parse_time("2026-03-02T00:00:00Z")
NOON = MIDNIGHT + 12 * HOUR
POLICY = load_policy("""
[site.hq]
sources = ["127.0.0.1"]
[[site.hq.zones]]
id = "blue"
capacity = 20
access_points = ["02:00:00:00:0e:01"]
metadata = { name = "Blue room" }
[[site.hq.zones]]
id = "red"
capacity = 12
access_points = ["02:00:00:00:0e:02"]
[[site.hq.zones]]
id = "den"
capacity = 4
access_points = ["02:00:00:00:0e:03"]
[[site.hq.zones]]
id = "hall"
kind = "hall"
capacity = 90
access_points = ["02:00:00:00:0e:04"]
[[audience]]
name = "facility"
[[audience]]
name = "public"
public = true
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
zones = { kind = "room" }
epsilon = { facility = "1", public = "1" }
""")


def at(hour: float) -> Micros:
    return MIDNIGHT + round(hour * 60) * MINUTE


def booking(start: float, end: float, **more: bool) -> Booking:
    return Booking(at(start), at(end), more.get("whole_days", False))


def record(start: Micros, values: Mapping[str, int] | None, *, scale: float = 1.0, **more: Any) -> bytes:
    """Return a window's record; the noise in its values is 0."""
    end, names = start + TICK, values or {"blue": 0}
    release = more.get("release", "occupancy")
    return CountRecord.model_validate({
        "release_id": f"hq/{release}/facility/{rfc3339(end)}", "site": "hq", "audience": "facility",
        "release": release, "window_start": rfc3339(start), "window_end": rfc3339(end), "values": values,
        "released": values is not None, "reason": None if values is not None else "budget", "mechanism": "laplace",
        "epsilon": "1", "spend": "1" if values is not None else "0", "noise_scale": dict.fromkeys(names, scale),
        "half_width_95": None if values is None else dict.fromkeys(names, width(scale)), "half_width_kind": "noise",
        "coverage": 1.0, "policy_version": "p", "laboratory": True, **more,
    }).to_bytes()  # fmt: skip


def width(scale: float) -> int:
    return round(sum_half_width(NoiseDistribution("laplace", scale)))


class Clock:
    now = NOON + 30 * SECOND

    def __call__(self) -> Micros:
        return self.now


class Ground:
    """A service whose calendars said what a test says."""

    def __init__(self, folder: Path, bookings: Mapping[str, list[Booking]] | None, **content: Any) -> None:
        self.clock, tokens = Clock(), TokenFile(folder / "tokens")
        self.tokens = {
            role: tokens.add(role.replace(":", "-"), [role], NOON + 9 * DAY)
            for role in (audience_role("facility"), audience_role("public"), room_role("facility"))
        }
        listed = [{"site": "hq", "file": f"{zone}.ics", "zone": zone} for zone in ("blue", "red", "den")]
        file = BookingsFile.model_validate({"audience": "facility", "calendar": listed} | content)
        self.booked = BookedRooms(file, folder, {"hq": "UTC"}, self.clock)
        for number, zone in enumerate(("blue", "red", "den")):
            if bookings is not None:
                self.booked._read[number] = self.clock(), {zone: frozenset(bookings.get(zone, ()))}
        self.history = ReleaseHistory(None, {"hq": SiteClock("UTC")})
        access = Access(frozenset(self.tokens), clock=self.clock, tokens=tokens)
        self.service = Service(
            POLICY, access, self.history, Streams(access, self.history), AllowedHosts.of((), 80, "http"), self.clock,
            bookings=self.booked, rooms=frozenset(["facility"]),
        )  # fmt: skip
        transport = httpx.ASGITransport(app=application(self.service), client=("10.0.0.1", 5))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def fill(self, counts: Mapping[str, Any], start: float = 6, end: float = 12, **more: Any) -> None:
        """Add the windows of a time; a count is a number, or a function of the hour."""
        windows = range(at(start), at(end), TICK)
        self.history.add([
            record(each, {
                zone: of((each - MIDNIGHT) / HOUR) if callable(of) else of for zone, of in counts.items()
            }, **more)
            for each in windows
        ], {})  # fmt: skip

    async def get(self, path: str, role: str = "audience:facility") -> httpx.Response:
        return await self.client.get(f"/api/v1/{path}", headers={"authorization": f"Bearer {self.tokens[role]}"})

    async def rooms(self, day: str = "") -> dict[str, Any]:
        response = await self.get(f"bookings?audience=facility&site=hq{day and f'&day={day}'}")
        assert response.status_code == 200, response.text
        return {room["zone"]: room for room in response.json()["rooms"]}


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    made = Ground(tmp_path, {"blue": [booking(9, 10)], "red": [booking(9, 10)]})
    yield made
    await made.client.aclose()


async def test_a_booked_room_without_devices_is_probably_empty_and_a_used_one_is_not(ground: Ground) -> None:
    ground.fill({"blue": 0, "red": 8})
    rooms = await ground.rooms()
    assert rooms["blue"]["name"] == "Blue room"
    assert rooms["blue"]["booked"] == [
        {"start": rfc3339(at(9)), "end": rfc3339(at(10)), "whole_days": False, "empty": 0.99, "reason": None}
    ]
    assert rooms["blue"]["unbooked"] == []
    assert rooms["red"]["booked"][0] | {"reason": "unsure"} == rooms["red"]["booked"][0] | {"empty": None}
    assert rooms["red"]["minutes"] == 15
    assert rooms["red"]["half_width"] == pytest.approx(0.83, abs=0.1)


async def test_a_used_room_that_nobody_booked_is_told_by_the_hours_of_the_working_day(ground: Ground) -> None:
    """Not the quarters of an hour before and after a booking, in which devices may belong to it."""
    ground.fill({"blue": 0, "red": 8})
    spans = [(each["start"], each["end"], each["used"]) for each in (await ground.rooms())["red"]["unbooked"]]
    assert spans == [
        (rfc3339(at(start)), rfc3339(at(end)), 0.99) for start, end in ((8, 8 + 50 / 60), (10 + 10 / 60, 11), (11, 12))
    ]


async def test_devices_that_have_just_left_do_not_count_for_the_next_booking(ground: Ground) -> None:
    """A device counts for ten minutes after it was seen."""
    ground.fill({"blue": lambda hour: 40 if hour < 9 + 10 / 60 else 0})
    assert (await ground.rooms())["blue"]["booked"][0]["empty"] == 0.99


async def test_a_booking_is_judged_by_what_has_passed_of_it(tmp_path: Path) -> None:
    ground = Ground(tmp_path, {"blue": [booking(11.5, 13), booking(11.75, 13), booking(14, 15)]})
    ground.fill({"blue": 0})
    booked = (await ground.rooms())["blue"]["booked"]
    assert [each["reason"] for each in booked] == [None, "ahead", "ahead"]
    assert CALLED <= booked[0]["empty"] < 0.99  # twenty minutes say less than an hour


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (booking(0, 24, whole_days=True), "days"), (booking(8, 8.25), "short"), (booking(11, 13), "stale"),
        (booking(5, 7), "missing"), (booking(9, 10), "missing"), (booking(8, 8.75), None),
    ],
)  # fmt: skip
async def test_a_booking_of_which_nothing_can_be_said_says_why(
    tmp_path: Path, made: Booking, reason: str | None
) -> None:
    """Counts begin at six and have ended at half past eleven; one window at half past nine was denied."""
    ground = Ground(tmp_path, {"blue": [made]})
    ground.fill({"blue": 0}, 6, 9.5)
    ground.history.add([record(at(9.5), None)], {})
    ground.fill({"blue": 0}, 9.5 + 5 / 60, 11.5)
    assert (await ground.rooms())["blue"]["booked"][0]["reason"] == reason


async def test_a_window_that_a_source_did_not_cover_is_missing(ground: Ground) -> None:
    ground.fill({"blue": 0}, 6, 9.5)
    ground.fill({"blue": 0}, 9.5, 9.5 + 5 / 60, coverage=0.5)
    ground.fill({"blue": 0}, 9.5 + 5 / 60, 12)
    assert (await ground.rooms())["blue"]["booked"][0]["reason"] == "missing"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"scale": 30.0}, "noise"), ({"bounded_to": "6h"}, "bounded"), ({"mechanism": "sample"}, "law"),
    ],
)  # fmt: skip
async def test_a_room_whose_releases_carry_no_statement_says_why(
    ground: Ground, more: dict[str, Any], reason: str
) -> None:
    ground.fill({"blue": 0, "red": 9}, **more)
    for room in ("blue", "red"):
        found = (await ground.rooms())[room]
        assert (found["reason"], found["booked"], found["unbooked"], found["minutes"]) == (reason, [], [], None)


async def test_a_room_without_counts_or_without_a_calendar_says_so(tmp_path: Path) -> None:
    ground = Ground(tmp_path, {"blue": [booking(9, 10)]})
    ground.fill({"red": 9})
    del ground.booked._read[1]
    rooms = await ground.rooms()
    assert [rooms[zone]["reason"] for zone in ("blue", "red")] == ["none", "calendar"]
    assert rooms["red"]["unbooked"] == []


async def test_a_calendar_that_was_not_read_for_long_counts_no_more(ground: Ground) -> None:
    ground.fill({"blue": 0, "red": 9})
    ground.clock.now += STALE
    assert (await ground.rooms())["blue"]["reason"] is None
    ground.clock.now += 1
    assert (await ground.rooms())["blue"]["reason"] == "calendar"


async def test_no_statement_is_made_about_rooms_for_few_people(tmp_path: Path) -> None:
    ground = Ground(tmp_path, {"den": [booking(9, 10)]}, least_capacity=5)
    ground.fill({"den": 0, "blue": 9, "red": 0})
    den = (await ground.rooms())["den"]
    assert (den["reason"], den["half_width"], den["booked"], den["unbooked"]) == ("few", None, [], [])


async def test_of_several_releases_the_one_with_the_least_noise_counts(ground: Ground) -> None:
    ground.fill({"blue": 9}, release="coarse", scale=2.0)
    ground.fill({"blue": 0})
    ground.fill({"blue": 9}, release="worse", scale=3.0)
    assert (await ground.rooms())["blue"]["booked"][0]["empty"] == 0.99


async def test_only_the_audience_of_the_file_sees_bookings(ground: Ground) -> None:
    path = "bookings?audience=facility&site=hq"
    assert (await ground.get(path, "audience:public")).status_code == 403
    assert (await ground.get(path, "room:facility")).status_code == 403
    assert (await ground.client.get(f"/api/v1/{path}")).status_code == 401
    assert (await ground.get("bookings?audience=public&site=hq", "audience:public")).status_code == 404
    assert (await ground.get("bookings?audience=facility&site=east")).status_code == 404
    sessions = [(await ground.get("session", f"audience:{name}")).json() for name in ("facility", "public")]
    assert [session["bookings"] for session in sessions] == [["facility"], []]
    ground.service.bookings = None
    assert (await ground.get(path)).status_code == 404


@pytest.mark.parametrize(("day", "status"), [
    ("2026-03-01", 200), ("2026-02-01", 200), ("2026-01-30", 422), ("2026-03-03", 422),
    ("0001-01-01", 422), ("9999-12-31", 422), ("2026-02-30", 422),
])  # fmt: skip
async def test_days_without_known_bookings_are_refused(ground: Ground, day: str, status: int) -> None:
    """All rooms would seem unbooked."""
    assert (await ground.get(f"bookings?audience=facility&site=hq&day={day}")).status_code == status


# Calendars.


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "bookings.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


CALENDAR = '[[calendar]]\nsite = "hq"\n'
ADDRESS = 'address = "https://calendar.example.org/needle-link.ics"\n'


def test_a_file_of_bookings_is_read_with_its_assumptions(tmp_path: Path) -> None:
    content = read_bookings(written(tmp_path, f"""
audience = "facility"
empty_devices = 2
used_devices = 5
empty_share = 0.3
used_share = 0.2
{CALENDAR}{ADDRESS}internal = true
places = {{ "Blue room" = "blue", "Raum Rot" = "red" }}
"""), POLICY)  # fmt: skip
    assert content.assumed == Assumptions(2, 5, 0.3, 0.2)
    assert content.calendar[0].zones == {"blue", "red"}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('audience = "nobody"\n' + CALENDAR + 'file = "a.ics"\nzone = "blue"', "audience: must be one of the policy's"),
        (CALENDAR + 'file = "a.ics"\nzone = "attic"', "zones with releases for the audience, got 'attic'"),
        (CALENDAR + 'file = "a.ics"\nzone = "hall"', "zones with releases for the audience, got 'hall'"),
        ('[[calendar]]\nsite = "moon"\nfile = "a.ics"\nzone = "blue"', "calendar.1.site: must be one of the policy's"),
        (CALENDAR + 'zone = "blue"', "either file or address"),
        (CALENDAR + 'file = "a.ics"\nzone = "blue"\n' + ADDRESS, "either file or address"),
        (CALENDAR + 'file = "a.ics"', "either zone or places"),
        (CALENDAR + 'file = "a.ics"\nzone = "blue"\nplaces = { x = "red" }', "either zone or places"),
        (CALENDAR + 'file = "a.ics"\nzone = "blue"\ninternal = true', "internal must be used with address"),
        (CALENDAR + 'address = "http://needle-link/"\nzone = "blue"', "must be an https address"),
        (CALENDAR + 'address = "https://me:needle-link@a/"\nzone = "blue"', "must have no user name"),
        ("empty_devices = 3\n" + CALENDAR + 'file = "a.ics"\nzone = "blue"', "used_devices must be above"),
        ("empty_share = 0.0\n" + CALENDAR + 'file = "a.ics"\nzone = "blue"', "empty_share"),
        ("least_capacity = 3\n" + CALENDAR + 'file = "a.ics"\nzone = "blue"', "least_capacity"),
        ("titles = true\n" + CALENDAR + 'file = "a.ics"\nzone = "blue"', "titles"),
    ],
)
def test_a_file_of_bookings_that_breaks_a_rule_is_refused_without_its_addresses(
    tmp_path: Path, text: str, rule: str
) -> None:
    audience = "" if text.startswith("audience") else 'audience = "facility"\n'
    with pytest.raises(KeyFileError, match=rule) as refused:
        read_bookings(written(tmp_path, audience + text), POLICY)
    assert "needle-link" not in str(refused.value)


def test_a_file_of_bookings_that_others_can_read_is_refused(tmp_path: Path) -> None:
    text = f'audience = "facility"\n{CALENDAR}{ADDRESS}zone = "blue"'
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_bookings(written(tmp_path, text, 0o640), POLICY)


@pytest.mark.parametrize(
    ("audience", "options", "rule"),
    [
        ("facility", {"audiences": ("public",)}, "an audience that is served"),
        ("public", {"audiences": ("public",)}, "an audience that is not public"),
        ("facility", {"audiences": ("facility",), "play": 60.0}, "--play"),
    ],
)
def test_bookings_are_not_shown_to_anybody_nor_beside_a_playback(
    tmp_path: Path, audience: str, options: dict[str, Any], rule: str
) -> None:
    path = written(tmp_path, f'audience = "{audience}"\n{CALENDAR}file = "a.ics"\nzone = "blue"')
    with pytest.raises(UsageError, match=rule):
        check(ServeConfig(POLICY, store=Path("store"), bookings=path, **options))


def test_bookings_are_served_beside_an_audience_that_is_open(tmp_path: Path) -> None:
    path = written(tmp_path, f'audience = "facility"\n{CALENDAR}file = "a.ics"\nzone = "blue"')
    check(ServeConfig(POLICY, ("facility", "public"), Path("store"), bookings=path, opened="public"))


def rooms_of(folder: Path, *calendars: Mapping[str, Any], clock: Clock | None = None) -> BookedRooms:
    listed = [{"site": "hq"} | dict(each) for each in calendars]
    content = BookingsFile.model_validate({"audience": "facility", "calendar": listed})
    return BookedRooms(content, folder, {"hq": "Europe/Berlin"}, clock or Clock())


async def test_times_of_rooms_are_kept_of_a_calendar_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "all.ics").write_bytes(calendar(
        event("20260302T090000", place="Blue room"), event("20260302T100000Z", place="needle-title"),
        event(";VALUE=DATE:20260302", place="Blue room\\; Raum Rot"),
    ))  # fmt: skip
    places = {"Blue room": "blue", "Raum Rot": "red"}
    booked = rooms_of(tmp_path, {"file": "all.ics", "places": places})
    with capture_logs() as logs:
        await booked.read(0)
    day = Booking(MIDNIGHT - HOUR, MIDNIGHT + 23 * HOUR, True)
    assert booked.of("hq", "blue", NOON) == [day, Booking(at(8), at(9), False)]
    assert booked.of("hq", "red", NOON) == [day]
    assert not [needle for needle in NEEDLES if needle in f"{booked!r}{logs!r}"]


async def test_a_calendar_that_cannot_be_read_is_named_by_number_and_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before counts on; the path and the address are in no line."""

    async def refused(*_: object, **__: object) -> bytes:
        raise DataError("address: must answer 200, answered 404; a redirect is not followed")

    monkeypatch.setattr(booked_rooms, "fetch", refused)
    address = "https://calendar.example.org/needle-link.ics"
    booked = rooms_of(tmp_path, {"file": "needle-link.ics", "zone": "red"}, {"address": address, "zone": "blue"})
    booked._read[1] = NOON, {"blue": frozenset([booking(9, 10)])}
    with capture_logs() as logs:
        for number in (0, 1):
            await booked.read(number)
    assert [(line["count"], line["rule"]) for line in logs] == [
        (1, "calendar: must be a readable file: No such file or directory"),
        (2, "address: must answer 200, answered 404; a redirect is not followed"),
    ]
    assert "needle-link" not in f"{logs!r}"
    assert booked.of("hq", "red", NOON) is None
    assert booked.of("hq", "blue", NOON) == [booking(9, 10)]


async def test_a_calendar_that_is_a_pipe_is_refused_and_holds_up_no_other(tmp_path: Path) -> None:
    booked = rooms_of(tmp_path, {"file": "a.ics", "zone": "red"})
    os.mkfifo(tmp_path / "a.ics")
    with capture_logs() as logs:
        await booked.read(0)
    assert [line["rule"] for line in logs] == ["calendar: must be a regular file"]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_calendar_that_is_a_folder_is_refused_and_leaves_no_file_open(tmp_path: Path) -> None:
    booked = rooms_of(tmp_path, {"file": "a.ics", "zone": "red"})
    (tmp_path / "a.ics").mkdir()
    with capture_logs() as logs:
        await booked.read(0)
        before = open_files()
        for _ in range(3):
            await booked.read(0)
    assert {line["rule"] for line in logs} == {"calendar: must be a readable file: Is a directory"}
    assert open_files() == before


async def test_a_room_of_two_calendars_is_booked_by_either_and_needs_both(tmp_path: Path) -> None:
    booked = rooms_of(tmp_path, {"file": "a.ics", "zone": "blue"}, {"file": "b.ics", "zone": "blue"})
    booked._read[0] = NOON, {"blue": frozenset([booking(9, 10), booking(11, 12)])}
    assert booked.of("hq", "blue", NOON) is None
    booked._read[1] = NOON, {"blue": frozenset([booking(9, 10), booking(8, 9)])}
    assert booked.of("hq", "blue", NOON) == [booking(8, 9), booking(9, 10), booking(11, 12)]
