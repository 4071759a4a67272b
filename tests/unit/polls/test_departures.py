"""Departures: gone is who is missing from two complete polls; everybody else stays as they are."""

from __future__ import annotations

import random

from connectors.sources.ingest.sighting import Kind
from connectors.sources.ingest_socket.frames import TimedSighting
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.departures import Departures

HERE, THERE = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def device(number: int, place: bytes = HERE) -> AssociatedClient:
    return AssociatedClient(bytes((0x3C, 0, 0, 0, 0, number)), place)


def polled(departures: Departures, *rows: AssociatedClient, at: int = 0) -> list[TimedSighting]:
    passed_on, known = departures.follow(rows, at)
    departures.accept(known)
    return passed_on


def said(rows: list[TimedSighting]) -> list[tuple[Kind, int, bytes]]:
    return [(row.sighting.kind, row.sighting.client[5], row.sighting.access_point) for row in rows]


def test_a_device_leaves_when_two_complete_polls_in_a_row_lack_it() -> None:
    departures = Departures()
    assert said(polled(departures, device(1), device(2))) == [(Kind.RUN, 1, HERE), (Kind.RUN, 2, HERE)]
    assert said(polled(departures, device(1))) == [(Kind.RUN, 1, HERE)]
    assert said(polled(departures, device(1))) == [(Kind.RUN, 1, HERE), (Kind.LEAVE, 2, HERE)]
    assert said(polled(departures, device(1))) == [(Kind.RUN, 1, HERE)]


def test_a_device_that_comes_back_starts_again() -> None:
    departures = Departures()
    for rows in ([device(1)], [], [device(1, THERE)], []):
        assert Kind.LEAVE not in {kind for kind, *_ in said(polled(departures, *rows))}
    assert said(polled(departures)) == [(Kind.LEAVE, 1, THERE)]


def test_a_poll_that_is_not_accepted_changes_nothing() -> None:
    departures = Departures()
    polled(departures, device(1))
    for _ in range(3):
        departures.follow([], 0)
    assert said(polled(departures)) == []
    assert said(polled(departures)) == [(Kind.LEAVE, 1, HERE)]


def test_all_rows_bear_the_time_and_the_session_of_the_poll() -> None:
    departures = Departures()
    polled(departures, device(1), device(2), at=5)
    polled(departures, device(2), at=10)
    rows = polled(departures, device(2), device(3), at=15)
    assert {row.at for row in rows} == {15}
    assert len({row.sighting.session for row in rows}) == 1
    assert all(row.sighting.session for row in rows)


def test_one_row_of_one_poll_changes_what_is_said_of_its_device_alone() -> None:
    draw = random.Random(11)
    for _ in range(200):
        tables = [[device(n, draw.choice((HERE, THERE))) for n in range(6) if draw.random() < 0.6] for _ in range(6)]
        place, number = draw.randrange(6), draw.randrange(6)
        other = [list(rows) for rows in tables]
        other[place] = [row for row in other[place] if row.client[5] != number] + (
            [] if any(row.client[5] == number for row in tables[place]) else [device(number)]
        )
        worlds = []
        for rows_of in (tables, other):
            departures = Departures()
            worlds.append([
                sorted(each for each in said(polled(departures, *rows)) if each[1] != number) for rows in rows_of
            ])  # fmt: skip
        assert worlds[0] == worlds[1]


def test_nothing_shows_a_device_that_is_remembered() -> None:
    _, known = Departures().follow([device(1)], 0)
    assert [repr(each) for each in known.values()] == ["KnownDevice()"]


# ---- sites that count logins -------------------------------------------------------------------------------


def login_of(user_name: bytes) -> bytes | None:
    """Compare without case; nobody is called like this."""
    return None if user_name in {b"", b"anonymous"} else user_name.lower()


def of_login(number: int, name: bytes, place: bytes = HERE) -> AssociatedClient:
    return device(number, place)._replace(user_name=name)


def told(rows: list[TimedSighting]) -> list[tuple[Kind, int, bytes]]:
    return [(row.sighting.kind, row.sighting.client[5], row.sighting.user_name) for row in rows]


def test_a_login_leaves_its_device_whoever_uses_it_now() -> None:
    departures, anne, bert = Departures(login_of), of_login(1, b"Anne"), of_login(1, b"bert")
    assert told(polled(departures, anne)) == [(Kind.RUN, 1, b"Anne")]
    assert told(polled(departures, bert)) == [(Kind.RUN, 1, b"bert")]
    assert told(polled(departures, bert)) == [(Kind.RUN, 1, b"bert"), (Kind.LEAVE, 1, b"Anne")]
    spelled = [told(polled(departures, of_login(1, name))) for name in (b"BERT", b"bert", b"Bert")]
    assert spelled == [[(Kind.RUN, 1, name)] for name in (b"BERT", b"bert", b"Bert")], "another spelling is no other"


def test_a_row_that_bears_no_login_gets_no_leave_and_its_text_goes_no_further() -> None:
    departures = Departures(login_of)
    assert told(polled(departures, of_login(1, b"anonymous"), device(2))) == [(Kind.RUN, 1, b""), (Kind.RUN, 2, b"")]
    assert [told(polled(departures)) for _ in range(3)] == [[], [], []]


def test_a_site_of_devices_passes_no_user_name_on() -> None:
    assert told(polled(Departures(), of_login(1, b"anne"))) == [(Kind.RUN, 1, b"")]


def test_the_rows_of_one_login_change_nothing_that_is_said_of_another() -> None:
    draw = random.Random(12)
    for _ in range(200):
        tables = [
            [
                of_login(n, name, draw.choice((HERE, THERE)))
                for n in range(2) for name in (b"anne", b"bert", b"") if draw.random() < 0.4
            ]
            for _ in range(6)
        ]  # fmt: skip
        worlds = []
        for left_out in (b"nobody", b"bert"):
            departures = Departures(login_of)
            world = [told(polled(departures, *[row for row in rows if row.user_name != left_out])) for rows in tables]
            worlds.append([[each for each in said_ if each[2] != b"bert"] for said_ in world])
        assert worlds[0] == worlds[1]
