"""Bookings from a store and a calendar on disk, through the service as it runs."""

from __future__ import annotations

from pathlib import Path

import orjson

from connectors.serve.startup import ServeConfig
from stream.records import HOUR, MINUTE
from stream.release.validation import load_policy
from stream.schemas import parse_time, rfc3339
from tests.acceptance.serve.services import eventually, served
from tests.support.icalendar_files import NEEDLES, calendar, event
from tests.support.released_store import NOON, give
from tests.unit.serve.released_history import window

POLICY = load_policy("""
[site.dbh]
timezone = "Europe/Berlin"
sources = ["127.0.0.1"]
[[site.dbh.zones]]
id = "2011"
capacity = 20
access_points = ["02:00:00:00:0e:01"]
metadata = { name = "Blue room" }
[[site.dbh.zones]]
id = "2065"
capacity = 20
access_points = ["02:00:00:00:0e:02"]
[[audience]]
name = "facilities"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { facilities = "1" }
""")
BOOKINGS = """
audience = "facilities"
[[calendar]]
site = "dbh"
file = "rooms.ics"
places = { "Blue room" = "2011", "Red room" = "2065" }
"""


def test_a_weekly_booking_of_an_empty_room_and_a_room_that_nobody_booked_are_told(tmp_path: Path) -> None:
    starts = range(NOON - 4 * HOUR, NOON, 5 * MINUTE)
    more = {"audience": "facilities"}
    records = [window(start + 5 * MINUTE, {"2011": 0, "2065": 7}, **more) for start in starts]  # type: ignore[arg-type]
    give(tmp_path / "store", map(orjson.loads, records), "facilities")
    weekly = event(";TZID=Europe/Berlin:20260105T100000", "RRULE:FREQ=WEEKLY;BYDAY=MO", place="Blue room")
    (tmp_path / "rooms.ics").write_bytes(calendar(weekly))
    path = tmp_path / "bookings.toml"
    path.write_text(BOOKINGS)
    path.chmod(0o600)
    config = ServeConfig(
        POLICY, ("facilities",), tmp_path / "store", listen=("127.0.0.1", 0), bookings=path
    )  # fmt: skip
    with served(config, lambda: NOON) as running, running.browser() as client:
        asked = "/api/v1/bookings?audience=facilities&site=dbh"
        eventually(lambda: all(room["reason"] is None for room in client.get(asked).json()["rooms"]))
        body = client.get(asked)
        assert client.get("/api/v1/session").json()["bookings"] == ["facilities"]
    blue, red = body.json()["rooms"]
    (booked,) = blue["booked"]
    assert (booked["start"], booked["end"]) == ("2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z")
    assert booked["empty"] == 0.99
    assert blue["unbooked"] == red["booked"] == []
    assert [parse_time(each["start"]) for each in red["unbooked"]] == list(range(NOON - 4 * HOUR, NOON, HOUR))
    assert red["unbooked"][-1]["end"] == rfc3339(NOON)
    assert not [needle for needle in NEEDLES if needle in body.text]
