"""What an ingest sends for a site that counts sessions: every message that matters, and nothing that memory invents."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.sources.ingest.ingest import COLLAPSED, UNKNOWN_ACCESS_POINT, Ingest, Outcome, SiteLimits
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest.state import ClientKey, RememberedDevice
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros, ObservationBatch, Row

NAMES = Pseudonyms.daily(bytes(range(32)))
LOBBY, LOBBY_TOO, ROOM, ELSEWHERE, NOWHERE = ("5c:52:1e:00:00:0" + n for n in "12345")
SOURCE = "10.2.0.5"
NOON = 17_563 * DAY + 12 * HOUR
MIDNIGHT = NOON + DAY // 2
ANNE = bytes.fromhex("3c0000000001")
NAS = b"a server"


def name(time: Micros = NOON) -> str:
    return NAMES.name(ANNE, time // DAY)


class Connector:
    """A core with its state."""

    def __init__(self, start: Micros = NOON - HOUR) -> None:
        places = {
            LOBBY: ("dbh", "lobby"),
            LOBBY_TOO: ("dbh", "lobby"),
            ROOM: ("dbh", "room"),
            ELSEWHERE: ("ics", "hall"),
        }
        limits = SiteLimits((SOURCE,), 4 * HOUR, 100, NAMES, 30 * SECOND, sessions=True)
        self.core = Ingest(access_points=places, sites=dict.fromkeys(("dbh", "ics"), limits))
        self.state = self.core.initial(start)

    def hear(self, time: Micros, radio: str = LOBBY, kind: Kind = Kind.RUN, **more: Any) -> Outcome:
        octets = bytes.fromhex(radio.replace(":", ""))
        seen = Sighting(kind, ANNE, octets, **({"nas": NAS} | more))
        return self.core.observe(self.state, time, SOURCE, SOURCE, seen)

    def leave(self, time: Micros, radio: str = LOBBY, **more: Any) -> Outcome:
        return self.hear(time, radio, Kind.LEAVE, **more)

    def restart(self, time: Micros, nas: bytes = NAS, **more: Any) -> Outcome:
        return self.core.observe(self.state, time, SOURCE, SOURCE, Sighting(Kind.RESTART, nas=nas, **more))

    def rows(self, site: str = "dbh") -> list[Row]:
        batches = self.core.drain(self.state)
        return [
            row for each in batches if isinstance(each, ObservationBatch) and each.site == site for row in each.rows
        ]


# ---- what is remembered ----------------------------------------------------------------------------------


def test_memory_ends_before_the_instant_from_which_messages_may_still_come() -> None:
    state, old, kept = Connector().state, ClientKey(ANNE, "old"), ClientKey(ANNE, "kept")
    state.devices["dbh"] = {
        key: RememberedDevice(time, 0, "lobby", ("dbh", SOURCE)) for key, time in ((old, NOON - 1), (kept, NOON))
    }
    state.latest = {old: NOON - 1, kept: NOON}
    state.restarts = {(("dbh", SOURCE), b"old"): NOON - 1, (("dbh", SOURCE), b"kept"): NOON}
    state.left_out = {("dbh", b"old"): NOON - 2 * DAY - 1, ("dbh", b"kept"): NOON - 2 * DAY}
    state.forget("dbh", NOON)
    state.forget_order(NOON)
    assert list(state.devices["dbh"]) == list(state.latest) == [kept]
    assert [name for _, name in (*state.restarts, *state.left_out)] == [b"kept", b"kept"]


# ---- what is left out ------------------------------------------------------------------------------------


def test_a_repeated_message_is_left_out_only_where_no_tick_lies_between() -> None:
    c = Connector()
    assert c.hear(NOON).dropped is None
    assert c.hear(NOON + 1).dropped is None, "the tick at noon sees the first one alone"
    assert c.hear(NOON + 5 * SECOND).dropped == COLLAPSED
    assert c.hear(NOON + 5 * SECOND + 1).dropped is None


def test_nothing_is_left_out_at_another_access_point_of_the_zone_or_behind_an_end() -> None:
    c = Connector()
    output = [c.hear(NOON + 1), c.hear(NOON + 2, LOBBY_TOO), c.leave(NOON + 3, LOBBY_TOO), c.hear(NOON + 4, LOBBY_TOO)]
    assert [each.dropped for each in output] == [None] * 4
    assert [row.access_point for row in c.rows()] == [LOBBY, LOBBY_TOO, f"-{LOBBY_TOO}", LOBBY_TOO]


def test_a_message_older_than_the_last_one_is_left_out_wherever_that_was() -> None:
    for last in (ROOM, ELSEWHERE, NOWHERE):
        c = Connector()
        c.hear(NOON, last)
        assert c.hear(NOON + SECOND, age=10 * SECOND).dropped == COLLAPSED
    c = Connector()
    c.hear(NOON)
    c.leave(NOON + SECOND)
    assert c.hear(NOON + 2 * SECOND, ROOM, age=10 * SECOND).dropped == COLLAPSED


def test_a_connector_dates_nothing_before_its_own_start() -> None:
    c = Connector(NOON)
    c.hear(NOON + SECOND, age=10 * SECOND)
    c.leave(NOON + SECOND, age=10 * SECOND)
    assert [row.time for row in c.rows()] == [NOON, NOON]


# ---- ends ------------------------------------------------------------------------------------------------


def test_every_end_is_sent_whatever_is_remembered_and_whatever_its_session() -> None:
    c = Connector()
    assert c.leave(NOON).dropped is None, "after a restart nobody is remembered"
    c.hear(NOON + SECOND, session=b"1")
    assert c.leave(NOON + MINUTE, session=b"2").dropped is None
    assert c.rows() == [
        (name(), f"-{LOBBY}", NOON),
        (name(), LOBBY, NOON + SECOND),
        (name(), f"-{LOBBY}", NOON + MINUTE),
    ]


def test_an_end_after_midnight_ends_yesterdays_name_too() -> None:
    c = Connector(MIDNIGHT - HOUR)
    c.hear(MIDNIGHT - MINUTE)
    c.leave(MIDNIGHT + MINUTE)
    assert c.rows()[1:] == [
        (name(MIDNIGHT - 1), f"-{LOBBY}", MIDNIGHT + MINUTE),
        (name(MIDNIGHT), f"-{LOBBY}", MIDNIGHT + MINUTE),
    ]


@pytest.mark.parametrize("again", [False, True])
def test_the_first_message_of_a_new_day_ends_yesterdays_name_for_as_long_as_it_may_count(again: bool) -> None:
    c = Connector(MIDNIGHT - HOUR)
    c.hear(MIDNIGHT - MINUTE)
    before = [] if again else c.rows()
    c = Connector(MIDNIGHT) if again else c
    for time in (MIDNIGHT + 3 * HOUR, MIDNIGHT + 3 * HOUR + MINUTE):
        c.hear(time)
    assert c.rows() == [
        (name(MIDNIGHT - 1), None, MIDNIGHT + 3 * HOUR), (name(MIDNIGHT), LOBBY, MIDNIGHT + 3 * HOUR),
        (name(MIDNIGHT), LOBBY, MIDNIGHT + 3 * HOUR + MINUTE),
    ]  # fmt: skip
    assert len(before) == (not again)


@pytest.mark.parametrize("away", [ELSEWHERE, NOWHERE])
def test_who_is_heard_elsewhere_leaves_the_access_point_that_is_remembered(away: str) -> None:
    c = Connector()
    c.hear(NOON)
    outcome = c.hear(NOON + MINUTE, away)
    assert outcome.dropped == (UNKNOWN_ACCESS_POINT if away == NOWHERE else None)
    assert c.rows()[1:] == [(name(), f"-{LOBBY}", NOON + MINUTE)]


def test_an_end_elsewhere_ends_nothing_here() -> None:
    c = Connector()
    c.hear(NOON)
    for away in (ELSEWHERE, NOWHERE):
        c.leave(NOON + MINUTE, away)
    assert c.rows() == [(name(), LOBBY, NOON)]


def test_a_restart_is_answered_only_when_its_ends_can_be_stored() -> None:
    """Its answer waits for no batch: all rows are ready before it is acknowledged."""
    c = Connector()
    c.hear(NOON)
    assert c.restart(NOON + MINUTE) == (None, None)
    assert not c.state.open
    assert c.rows() == [(name(), LOBBY, NOON), (name(), f"-{LOBBY}", NOON + MINUTE)]


@pytest.mark.parametrize("more", [{"nas": b"another"}, {"nas": b""}])
def test_a_restart_of_another_server_or_of_none_ends_nothing(more: dict[str, bytes]) -> None:
    c = Connector()
    c.hear(NOON)
    c.restart(NOON + MINUTE, **more)
    assert len(c.rows()) == 1


def test_what_was_heard_after_a_restart_goes_on() -> None:
    c = Connector()
    c.hear(NOON + 10 * SECOND)
    c.restart(NOON + 20 * SECOND, age=15 * SECOND)
    assert len(c.rows()) == 1


def test_a_device_is_remembered_for_the_limit() -> None:
    c = Connector()
    c.hear(NOON)
    for time, remembered in ((NOON + 4 * HOUR, 1), (NOON + 4 * HOUR + MINUTE, 0)):
        c.core.poll(c.state, time)
        assert len(c.state.devices["dbh"]) == remembered
    assert not c.state.latest, "order is remembered only while late messages may come"
