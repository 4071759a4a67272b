"""The ingest: what it keeps, when it sends, and what its clock does."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.runtime.clock import AnchoredClock, ClockStepError
from connectors.sources.ingest.ingest import (
    BATCH_DELAY,
    COLLAPSED,
    FOREIGN_SOURCE,
    GRID,
    NO_UPTIME,
    SITE_SHUT,
    UNKNOWN_ACCESS_POINT,
    Ingest,
    Outcome,
    SiteLimits,
)
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest.state import MOST_UNKNOWN, UNKNOWN_LISTED, most_unknown
from stream.encoding import encode_message
from stream.errors import TacetError, UsageError
from stream.policy.document import PolicyDocument
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Heartbeat, Micros, ObservationBatch, Row
from stream.sensing.occupancy import OccupancyOperator

KEY = bytes(range(32))
NAMES = Pseudonyms.daily(KEY)
LOBBY, LOBBY_TOO, ROOM, ELSEWHERE = ("5c:52:1e:00:00:0" + n for n in "1234")
PLACES = {
    LOBBY: ("dbh", "lobby"),
    LOBBY_TOO: ("dbh", "lobby"),
    ROOM: ("dbh", "room"),
    ELSEWHERE: ("ics", "hall"),
}
CONTROLLER, OTHER = "10.2.0.5", "10.2.0.6"
NOON = 17_563 * DAY + 12 * 60 * MINUTE
MIDNIGHT = NOON + DAY // 2
ANNE, BERT = bytes.fromhex("3c0000000001"), bytes.fromhex("3c0000000002")


def ingest(
    validity: int = 10 * MINUTE,
    max_devices: int = 100,
    places: dict[str, tuple[str, str]] = PLACES,
    names: Pseudonyms = NAMES,
    **more: Any,
) -> Ingest:
    sites = {
        "dbh": SiteLimits((CONTROLLER,), validity, max_devices, names),
        "ics": SiteLimits((CONTROLLER, OTHER), validity, max_devices, names),
    }
    return Ingest(access_points=places, sites=sites, **more)


def trap(client: bytes = ANNE, access_point: str = LOBBY, kind: Kind = Kind.ASSOCIATE, **more: Any) -> Sighting:
    values: dict[str, Any] = {
        "kind": kind, "client": client, "access_point": bytes.fromhex(access_point.replace(":", "")), "uptime": 0,
    }  # fmt: skip
    return Sighting(**(values | more))


def rows(messages: Iterator[Any] | list[ObservationBatch]) -> list[Row]:
    return [row for m in messages if isinstance(m, ObservationBatch) for row in m.rows]


class Connector:
    """A core with its state, for the tests' convenience."""

    def __init__(self, core: Any = None, start: int = NOON) -> None:
        self.core = core or ingest()
        self.state = self.core.initial(start)

    def hear(self, time: int, item: Sighting | None = None, source: str = CONTROLLER, address: Any = None) -> Outcome:
        return self.core.observe(self.state, time, source, address or source, item or trap())

    def poll(self, time: int) -> list[Any]:
        return self.core.poll(self.state, time)

    def drain(self) -> list[ObservationBatch]:
        batches = []
        for message in self.core.drain(self.state):
            assert isinstance(message, ObservationBatch)
            batches.append(message)
        return batches


# ---- collapse ------------------------------------------------------------------------------------------


def test_a_run_of_duplicates_a_second_apart_keeps_one_every_five_seconds() -> None:
    c = Connector()
    outcomes = [c.hear(NOON + n * SECOND).dropped for n in range(12)]
    assert [n for n, dropped in enumerate(outcomes) if dropped is None] == [0, 5, 10]
    assert set(outcomes) == {None, COLLAPSED}


def test_two_access_points_of_one_zone_collapse_and_two_zones_do_not() -> None:
    c = Connector()
    assert c.hear(NOON).dropped is None
    assert c.hear(NOON + 1, trap(access_point=LOBBY_TOO)).dropped == COLLAPSED
    assert c.hear(NOON + 2, trap(access_point=ROOM)).dropped is None
    assert c.hear(NOON + 3).dropped is None, "back in the lobby: the last kept one was elsewhere"


def test_devices_and_sites_collapse_apart() -> None:
    c = Connector()
    assert [c.hear(NOON, item).dropped for item in (trap(), trap(BERT), trap(access_point=ELSEWHERE))] == [None] * 3


@given(st.lists(st.tuples(st.integers(0, 3_000_000), st.sampled_from([LOBBY, LOBBY_TOO, ROOM])), max_size=40))
def test_the_last_kept_sighting_is_the_only_anchor(steps: list[tuple[int, str]]) -> None:
    c, time, anchor = Connector(), NOON, None
    for gap, radio in steps:
        time += gap
        zone = PLACES[radio][1]
        repeated = anchor is not None and anchor[1] == zone and time - anchor[0] < 5 * SECOND
        assert c.hear(time, trap(access_point=radio)).dropped == (COLLAPSED if repeated else None)
        anchor = anchor if repeated else (time, zone)


# ---- places --------------------------------------------------------------------------------------------


def test_unknown_access_points_are_listed_with_their_sightings_up_to_a_bound() -> None:
    c = Connector()
    for n in range(UNKNOWN_LISTED + 3):
        assert (
            c.hear(NOON, trap(access_point=f"aa:00:00:00:{n // 256:02x}:{n % 256:02x}")).dropped == UNKNOWN_ACCESS_POINT
        )
    c.hear(NOON, trap(access_point="aa:00:00:00:00:00"))
    assert c.state.unknown["aa:00:00:00:00:00"] == 2
    assert len(c.state.unknown) == UNKNOWN_LISTED


def test_the_most_frequent_unknown_access_points_are_told_by_radio_address() -> None:
    c = Connector()
    for n in range(30):
        for _ in range(n + 1):
            c.hear(NOON, trap(access_point=f"aa:00:00:00:00:{n:02x}"))
    report = most_unknown(c.state)
    assert list(report.items()) == [(f"aa:00:00:00:00:{n:02x}", n + 1) for n in range(29, 29 - MOST_UNKNOWN, -1)]


def test_no_client_and_no_free_text_is_told_as_an_unknown_access_point() -> None:
    c = Connector()
    c.hear(NOON, trap(client=BERT))
    c.hear(NOON, trap(access_point=ANNE.hex(":")))
    c.hear(NOON, trap(access_point=BERT.hex(":")))
    c.hear(NOON, trap(access_point="", name=b"anne@example.org"))
    c.hear(NOON, trap(access_point="", at_sender=True), address="10.2.9.9")
    assert most_unknown(c.state) == {}
    assert ANNE.hex(":") not in c.state.unknown


def test_names_and_senders_stand_for_access_points_where_the_vendor_gives_no_address() -> None:
    c = Connector(ingest(aliases={"2065-clwa": ROOM, "10.2.9.9": LOBBY}))
    assert c.hear(NOON, trap(access_point="", name=b"2065-clwa")).dropped is None
    assert c.hear(NOON, trap(access_point="", at_sender=True), address="10.2.9.9").dropped is None
    assert c.hear(NOON, trap(access_point="", name=b"2066-clwa")).dropped == UNKNOWN_ACCESS_POINT
    assert [row.access_point for row in rows(c.drain())][:2] == [ROOM, LOBBY]
    with pytest.raises(UsageError, match="alias"):
        ingest(aliases={"x": "00:00:00:00:00:01"})


def test_names_of_access_points_are_compared_without_case_and_padding() -> None:
    c = Connector(ingest(aliases={"2065-CLWA": ROOM, "Straße": LOBBY}))
    for n, name in enumerate((b"2065-clwa", b" 2065-Clwa\x00", b"STRASSE")):
        assert c.hear(NOON + n * MINUTE, trap(access_point="", name=name)).dropped is None
    assert [row.access_point for row in rows(c.drain())] == [ROOM, ROOM, LOBBY]


@pytest.mark.parametrize("sender", ["2001:DB8:0::9", "2001:db8::9"])
def test_senders_are_compared_as_addresses(sender: str) -> None:
    c = Connector(ingest(aliases={sender: ROOM}))
    assert c.hear(NOON, trap(access_point="", at_sender=True), address="2001:db8::9").dropped is None


def test_a_bssid_is_placed_by_the_base_radio_that_it_shares_its_first_bits_with() -> None:
    base = "24:de:c6:cc:dd:e0"
    core = ingest(places=PLACES | {base: ("dbh", "room")}, base_radios=[f"{base}/44"])
    c = Connector(core)
    for n, radio in enumerate((base, "24:de:c6:cc:dd:e1", "24:de:c6:cc:dd:ef")):
        assert c.hear(NOON + n * MINUTE, trap(access_point=radio)).dropped is None
    for stranger in ("24:de:c6:cc:dd:df", "24:de:c6:cc:dd:f0"):
        assert c.hear(NOON + 9 * MINUTE, trap(access_point=stranger)).dropped == UNKNOWN_ACCESS_POINT
    assert {row.access_point for row in rows(c.drain())} == {base}, "the engine knows the base radio alone"
    with pytest.raises(UsageError, match="base radio"):
        ingest(base_radios=[f"{base}/44"])


def test_a_controller_that_a_site_does_not_list_places_nobody_there() -> None:
    c = Connector()
    assert c.hear(NOON, source=OTHER).dropped == FOREIGN_SOURCE
    assert c.hear(NOON, trap(access_point=ELSEWHERE), source=OTHER).dropped is None


# ---- nobody's admission depends on anybody else --------------------------------------------------------

CARL, SITES = bytes.fromhex("3c0000000003"), ("dbh", "ics")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4 * MINUTE), st.sampled_from([ANNE, BERT, CARL]), st.sampled_from([LOBBY, ROOM, ELSEWHERE])
        ),
        max_size=40,
    )
)
def test_what_is_kept_of_a_device_does_not_depend_on_any_other(steps: list[tuple[int, bytes, str]]) -> None:
    def kept(of: set[bytes]) -> dict[str, list[Row]]:
        c, time, out = Connector(start=MIDNIGHT - 30 * MINUTE), MIDNIGHT - 30 * MINUTE, []
        for gap, client, radio in steps:
            time += gap
            if client in of:
                c.hear(time, trap(client, radio))
            out += c.poll(time)
        out += c.drain()
        return {site: [row for row in rows(m for m in out if m.site == site) if row.device in names] for site in SITES}

    names = {NAMES.name(ANNE, MIDNIGHT // DAY + n) for n in (-1, 0)}
    assert kept({ANNE}) == kept({ANNE, BERT, CARL})


def test_in_uptime_mode_a_row_far_ahead_makes_the_connector_forget_nobody() -> None:
    def ends(with_bert: bool) -> tuple[str | None, list[Row]]:
        c = Connector(ingest(start=MIDNIGHT - 5 * MINUTE, max_devices=10))
        c.hear(NOON, trap(ANNE, uptime=0))
        if with_bert:
            c.hear(NOON, trap(BERT, uptime=20 * 6_000))
        outcome = c.hear(NOON, trap(ANNE, uptime=100)).dropped
        return outcome, [row for row in rows(c.drain()) if row.device == NAMES.name(ANNE, MIDNIGHT // DAY - 1)]

    assert ends(with_bert=True) == ends(with_bert=False)
    assert ends(with_bert=True)[0] == COLLAPSED


def test_the_device_that_breaks_the_sites_bound_is_sent_and_shuts_the_site_to_all() -> None:
    """The engine holds at least these devices, so the row that is sent last shuts it there, too."""
    c = Connector(ingest(max_devices=2))
    third = NAMES.name(CARL, NOON // DAY)
    assert [c.hear(NOON + n, trap(who)).dropped for n, who in enumerate((ANNE, BERT, CARL))] == [None] * 3
    sent = c.poll(NOON + 3)
    assert [row.device for row in rows(sent)][-1] == third
    assert c.state.suspended == {"dbh"}
    assert not c.state.devices["dbh"], "nobody is remembered any more"
    for who in (ANNE, BERT, CARL):
        assert c.hear(NOON + MINUTE, trap(who)).dropped == SITE_SHUT
    later = c.poll(NOON + 2 * MINUTE)
    assert {m.site for m in later} == {"ics"}, "no rows and no heartbeats: nothing is released from part of the data"
    assert c.hear(NOON + 2 * MINUTE, trap(access_point=ELSEWHERE)).dropped is None, "other sites go on"
    assert not c.core.initial(NOON).suspended, "a connector that is started again begins anew"


@pytest.mark.parametrize("later", [0, 3, 9, 14])
def test_what_a_connector_sends_last_for_a_site_with_too_many_devices_shuts_it_in_the_engine_too(later: int) -> None:
    """Also long after the first devices, with windows closed meanwhile and others forgotten."""
    engine = OccupancyOperator(
        site="dbh", zones=("lobby", "room"), access_points={LOBBY: "lobby", LOBBY_TOO: "lobby", ROOM: "room"},
        sources=(CONTROLLER,), tick_length=5 * MINUTE, validity=10 * MINUTE, lateness=30 * SECOND, max_devices=40,
    )  # fmt: skip
    c, state = Connector(ingest(max_devices=40), start=MIDNIGHT - 9 * MINUTE), engine.initial()
    for n in range(120):
        time = MIDNIGHT - 9 * MINUTE + n * (13 * SECOND if n < 60 else SECOND) + (later * MINUTE if n >= 60 else 0)
        for message in c.poll(time):
            if message.site == "dbh":
                state, _ = engine.step(state, message)
        c.hear(time, trap(n.to_bytes(6, "big")))
    assert c.state.suspended == {"dbh"}
    for message in c.poll(time + BATCH_DELAY):
        if message.site == "dbh":
            state, _ = engine.step(state, message)
    assert state.suspended


def test_a_device_that_is_known_or_was_forgotten_does_not_count_against_the_bound() -> None:
    c = Connector(ingest(max_devices=2))
    for n, who in enumerate((ANNE, BERT, ANNE, BERT)):
        assert c.hear(NOON + n * MINUTE, trap(who)).dropped is None
    c.poll(NOON + 20 * MINUTE)
    assert c.hear(NOON + 20 * MINUTE, trap(CARL)).dropped is None
    assert not c.state.suspended


def test_a_shut_site_gets_no_simulated_heartbeat_either() -> None:
    c = Connector(ingest(start=NOON, max_devices=1))
    c.hear(NOON, trap(ANNE))
    c.hear(NOON, trap(BERT))
    c.hear(NOON, trap(b"", kind=Kind.KEEPALIVE, uptime=6_000))
    assert {m.site for m in beats(c.poll(NOON))} == {"ics"}


def test_full_tables_of_unknown_access_points_change_nobodys_admission() -> None:
    c, quiet = Connector(), Connector()
    for n in range(2 * UNKNOWN_LISTED):
        c.hear(NOON, trap(n.to_bytes(6, "big"), access_point=f"aa:00:00:00:{n // 256:02x}:{n % 256:02x}"))
    for each in (c, quiet):
        assert each.hear(NOON + 1).dropped is None
    assert rows(c.drain()) == rows(quiet.drain())


# ---- epochs --------------------------------------------------------------------------------------------


def test_the_first_sighting_of_a_new_day_ends_the_old_name_at_the_same_time() -> None:
    c = Connector()
    c.hear(MIDNIGHT - MINUTE)
    c.hear(MIDNIGHT + 1)
    old, new = (NAMES.name(ANNE, day) for day in (MIDNIGHT // DAY - 1, MIDNIGHT // DAY))
    assert rows(c.drain()) == [
        (old, LOBBY, MIDNIGHT - MINUTE),
        (old, None, MIDNIGHT + 1),
        (new, LOBBY, MIDNIGHT + 1),
    ]


def test_a_duplicate_across_midnight_is_kept_because_its_name_is_new() -> None:
    c = Connector()
    c.hear(MIDNIGHT - 1)
    assert c.hear(MIDNIGHT).dropped is None
    assert c.hear(MIDNIGHT + 1).dropped == COLLAPSED


@pytest.mark.parametrize(("gap", "ends"), [(10 * MINUTE, 1), (10 * MINUTE + 1, 0)])
def test_an_old_name_that_can_hold_no_presence_is_not_ended(gap: int, ends: int) -> None:
    c = Connector()
    c.hear(MIDNIGHT - 1)
    c.hear(MIDNIGHT - 1 + gap)
    assert sum(row.access_point is None for row in rows(c.drain())) == ends


def test_each_site_ends_the_old_name_for_itself() -> None:
    c = Connector()
    for radio in (LOBBY, ELSEWHERE):
        c.hear(MIDNIGHT - MINUTE, trap(access_point=radio))
    for radio in (ELSEWHERE, LOBBY):
        c.hear(MIDNIGHT + MINUTE, trap(access_point=radio))
    ended = [m.site for m in c.drain() for row in m.rows if row.access_point is None]
    assert sorted(ended) == ["dbh", "ics"]


def test_a_connector_started_around_midnight_ends_the_names_that_an_earlier_one_gave() -> None:
    """Nothing is kept for it: whether or not the old name was ever given, its end is sent."""
    earlier, later = Connector(), Connector(start=MIDNIGHT + MINUTE)
    earlier.hear(MIDNIGHT - MINUTE)
    later.hear(MIDNIGHT + 2 * MINUTE, trap(access_point=ROOM))
    old, new = (NAMES.name(ANNE, day) for day in (MIDNIGHT // DAY - 1, MIDNIGHT // DAY))
    assert rows(earlier.drain()) == [(old, LOBBY, MIDNIGHT - MINUTE)]
    assert rows(later.drain()) == [(old, None, MIDNIGHT + 2 * MINUTE), (new, ROOM, MIDNIGHT + 2 * MINUTE)]


def test_two_connectors_of_a_site_end_each_others_names_at_midnight() -> None:
    one, two = Connector(), Connector()
    one.hear(MIDNIGHT - MINUTE)
    two.hear(MIDNIGHT + 1, trap(access_point=ROOM))
    assert [row.access_point for row in rows(two.drain())] == [None, ROOM]


def test_ttl_mode_ends_names_at_each_salt_life() -> None:
    c = Connector(ingest(names=Pseudonyms.rotating(KEY, MINUTE)))
    for n in range(4):
        c.hear(NOON + n * MINUTE)
    found = rows(c.drain())
    assert [row.access_point for row in found] == [None] * 10 + [LOBBY] + [None, LOBBY] * 3
    assert len({row.device for row in found}) == 14


def test_names_of_many_salt_lives_and_their_sighting_share_a_batch_of_at_most_a_thousand_rows() -> None:
    c = Connector(ingest(names=Pseudonyms.rotating(KEY, 11 * SECOND)))
    for n in range(90):
        c.hear(NOON, trap(n.to_bytes(6, "big")))
    for batch in c.drain():
        assert len(batch.rows) <= 1000
        assert batch.rows[-1].access_point == LOBBY


def test_the_connector_forgets_a_device_after_its_validity_even_when_nobody_moves() -> None:
    c = Connector()
    c.hear(NOON)
    c.poll(NOON + 10 * MINUTE)
    assert [client.address for client in c.state.devices["dbh"]] == [ANNE]
    c.poll(NOON + 10 * MINUTE + 2 * GRID)
    assert not c.state.devices["dbh"]


def test_no_address_leaves_and_random_addresses_are_counted() -> None:
    c = Connector()
    c.hear(NOON, trap(bytes.fromhex("da1234567890")))
    c.hear(NOON, trap(bytes.fromhex("da1234567891")))
    c.hear(NOON, trap())
    assert c.state.locally_administered == 2
    report = repr(c.drain())
    assert "da1234567890" not in report
    assert "12345678" not in report


# ---- batches and heartbeats ----------------------------------------------------------------------------


def test_a_batch_leaves_after_250_ms_or_a_thousand_rows() -> None:
    c = Connector()
    c.hear(NOON)
    assert c.poll(NOON + BATCH_DELAY - 1) == []
    assert c.core.next_due(c.state) == NOON + BATCH_DELAY
    [first] = c.poll(NOON + BATCH_DELAY)
    assert (first.site, first.source, first.session, first.sequence) == ("dbh", CONTROLLER, NOON, 0)
    core = Connector(ingest(max_devices=10_000))
    for n in range(2_500):
        core.hear(NOON, trap(n.to_bytes(6, "big")))
    batches = core.poll(NOON)
    assert [b.sequence for b in batches] == [0, 1]
    assert all(999 <= len(b.rows) <= 1000 for b in batches)
    assert len(rows(batches)) + len(rows(core.drain())) == 2_500


def test_an_end_and_its_sighting_share_a_batch_of_at_most_a_thousand_rows() -> None:
    c = Connector(ingest(max_devices=10_000))
    clients = [n.to_bytes(6, "big") for n in range(1_701)]
    for time in (MIDNIGHT - MINUTE, MIDNIGHT + MINUTE):
        for client in clients:
            c.hear(time, trap(client))
    for batch in c.drain():
        assert len(batch.rows) <= 1000
        ends = [n for n, row in enumerate(batch.rows) if row.access_point is None]
        assert all(batch.rows[n + 1].access_point == LOBBY for n in ends)


def test_sequences_count_from_zero_per_site_and_source() -> None:
    c = Connector()
    sent = []
    for n in range(3):
        c.hear(NOON + n * MINUTE)
        c.hear(NOON + n * MINUTE, trap(access_point=ELSEWHERE), source=OTHER)
        sent += c.drain()
    report = [(m.site, m.source, m.sequence) for m in sent]
    assert report == [(*pair, n) for n in range(3) for pair in (("dbh", CONTROLLER), ("ics", OTHER))]


def beats(messages: list[Any]) -> list[Heartbeat]:
    return [m for m in messages if isinstance(m, Heartbeat)]


def since(beat: Heartbeat) -> Micros:
    assert beat.listened_since is not None
    return beat.listened_since


def test_heartbeats_are_the_same_whether_or_not_anyone_moved() -> None:
    quiet, busy = Connector(), Connector()
    report: dict[str, list[Any]] = {"quiet": [], "busy": []}
    for n in range(1, 400):
        time = NOON + n * 100_003
        busy.hear(time, trap(access_point=[LOBBY, ROOM, ELSEWHERE][n % 3]))
        report["quiet"] += quiet.poll(time)
        report["busy"] += busy.poll(time)
    assert report["quiet"] == beats(report["busy"])
    assert rows(report["busy"])
    pairs = [("dbh", CONTROLLER), ("ics", CONTROLLER), ("ics", OTHER)]
    grid = range(NOON + GRID, NOON + 399 * 100_003 + 1, GRID)
    expected = [Heartbeat(*pair, NOON, g - SECOND, NOON) for g in grid for pair in pairs]
    assert report["quiet"] == expected


STILL = ((41.0, 55.9), (100.2, 300.1), (404.0, 418.0), (500.0, 514.9), (600.1, 615.0), (700.0, 720.0))
"""Seconds in which the connector stands still."""


def live(traps: list[tuple[float, Sighting]]) -> list[Any]:
    """Drive a connector as its receiver does, with these traps (second, trap); return its messages.

    Called on each point of the grid and where a trap or a waiting batch wants it, but not while it stands still.
    """
    c, out = Connector(), []
    awake = {n * 5.0 for n in range(1, 160)} | {second + wait for second, _ in traps for wait in (0, 0.25)}
    for second in sorted(awake | {end for _, end in STILL}):
        if any(begin < second < end for begin, end in STILL):
            continue
        now = NOON + int(second * SECOND)
        for when, item in traps:  # what came while it stood still has waited
            if when <= second and item is not None:
                c.hear(now, item)
        traps = [each for each in traps if each[0] > second]
        c.core.record_running(c.state, now)
        out += c.poll(now)
    return out


def test_heartbeats_are_the_same_to_the_byte_whatever_one_person_does_also_around_standstills() -> None:
    quiet = b"\n".join(encode_message(beat) for beat in beats(live([])))
    for seed in range(40):
        draw = random.Random(seed)
        seconds = sorted(draw.uniform(0, 790) for _ in range(draw.randrange(1, 60)))
        busy = live([(second, trap(access_point=draw.choice([LOBBY, ROOM]))) for second in seconds])
        assert rows(busy)
        assert b"\n".join(encode_message(beat) for beat in beats(busy)) == quiet


def test_after_a_standstill_of_three_intervals_listening_begins_anew_on_the_grid() -> None:
    report = {since(beat) for beat in beats(live([]))}
    assert {(begin - NOON) / SECOND for begin in report} == {0, 60, 305, 420, 620, 725}, "from 500 on it were but two"


def test_no_standstill_of_15_s_is_overlooked() -> None:
    for begin in range(0, 10_000, 37):
        c = Connector()
        for point in range(0, begin // 5000 * 5000 + 1, 5000):
            c.core.record_running(c.state, NOON + point * 1000)
        c.core.record_running(c.state, NOON + begin * 1000)
        back = NOON + (begin + 15_000) * 1000
        c.core.record_running(c.state, back)
        assert back <= c.state.listened_since <= back + GRID


def test_a_session_is_later_than_every_one_before_it_also_when_the_clock_was_set_back() -> None:
    core = ingest()
    assert core.initial(NOON, NOON + 90 * SECOND).session == NOON + 90 * SECOND + 1
    assert core.initial(NOON, NOON - SECOND).session == NOON
    assert core.initial(NOON).listened_since == NOON


def test_no_row_follows_a_heartbeat_that_is_later_than_it() -> None:
    c, out = Connector(), []
    for n in range(3_000):
        time = NOON + n * 7_919
        c.hear(time, trap((n % 50).to_bytes(6, "big"), [LOBBY, ROOM][n // 50 % 2]))
        if n % 11 == 0:
            out += c.poll(time)
    watermark = 0
    for message in out + c.drain():
        if isinstance(message, Heartbeat):
            watermark = message.watermark
        else:
            assert all(row.time > watermark for row in message.rows)


def test_the_grid_is_aligned_to_the_epoch_and_starts_after_the_connector() -> None:
    c = Connector(start=NOON + 3 * SECOND)
    assert c.poll(NOON + GRID - 1) == []
    assert {m.watermark for m in c.poll(NOON + GRID)} == {NOON + 4 * SECOND}


# ---- the laboratory's clock ----------------------------------------------------------------------------


def test_receive_time_counts_and_no_uptime_moves_it() -> None:
    c = Connector()
    c.hear(NOON, trap(uptime=4_075_268_204))
    assert [row.time for row in rows(c.drain())] == [NOON]


def test_uptime_mode_takes_time_from_the_trap_and_heartbeats_from_keep_alives() -> None:
    start = 17_563 * DAY
    c = Connector(ingest(start=start))
    c.hear(NOON, trap(uptime=1234))
    assert c.hear(NOON, trap(BERT, uptime=None)).dropped == NO_UPTIME
    assert c.poll(NOON + BATCH_DELAY - 1) == []
    c.hear(NOON + 1, trap(b"", kind=Kind.KEEPALIVE, uptime=6_001))
    first = c.poll(NOON + 1)
    assert {row.time for row in rows(first)} == {start + 12_340_000}
    assert isinstance(first[0], ObservationBatch), "rows leave before the heartbeat that speaks for them"
    assert [(m.site, m.watermark) for m in beats(first)] == [(s, start + 59 * SECOND) for s in ("dbh", "ics")]
    c.hear(NOON + 2, trap(b"", kind=Kind.KEEPALIVE, uptime=12_000))
    grid = [start + MINUTE + n * GRID - SECOND for n in range(1, 13)]
    assert [m.watermark for m in beats(c.poll(NOON + 2)) if m.site == "dbh"] == grid
    assert c.core.next_due(c.state) is None


def test_in_uptime_mode_the_window_that_ends_at_uptime_0_is_vouched_for() -> None:
    """Nothing can have been missed before it, and a local day that begins there is whole."""
    c = Connector(ingest(start=MIDNIGHT))
    c.hear(NOON, trap(b"", kind=Kind.KEEPALIVE, uptime=6_000))
    assert all(since(beat) <= MIDNIGHT - DAY for beat in beats(c.poll(NOON)))


def test_in_uptime_mode_no_client_moves_the_grid_and_old_keep_alives_do_nothing() -> None:
    c = Connector(ingest(start=NOON))
    for uptime in (6_000, 600, 6_000):
        c.hear(NOON, trap(b"", kind=Kind.KEEPALIVE, uptime=uptime))
    c.hear(NOON, trap(uptime=60_000))
    c.hear(NOON, trap(b"", kind=Kind.RESTART, uptime=90_000))
    assert len(beats(c.poll(NOON + DAY))) == 2


def test_a_clock_step_over_five_seconds_stops_loudly() -> None:
    wall, ticks = [NOON], [77]
    clock = AnchoredClock(lambda: wall[0], lambda: ticks[0])
    ticks[0] += 9 * SECOND
    wall[0] += 4 * SECOND
    assert clock.now() == NOON + 9 * SECOND, "time goes on with the monotonic clock"
    for step in (-SECOND, 12 * SECOND):
        wall[0] += step
        with pytest.raises(ClockStepError):
            clock.now()
    assert issubclass(ClockStepError, TacetError)


def test_a_policy_describes_an_ingest() -> None:
    policy = PolicyDocument.model_validate(
        {
            "site": {"dbh": {"sources": [CONTROLLER], "validity": "1min", "zones": [
                {"id": "lobby", "capacity": 9, "access_points": [LOBBY.upper()]}]}},
            "audience": [{"name": "a"}],
            "release": [{"name": "r", "query": "count", "mechanism": "laplace", "epsilon": {"a": "1"},
                         "zones": {"kind": "room"}, "daily_budget": {"a": "288"}}],
        }
    )  # fmt: skip
    c = Connector(Ingest.of_policy(policy, KEY))
    c.hear(NOON)
    assert rows(c.drain()) == [(NAMES.name(ANNE, NOON // DAY), LOBBY, NOON)]
    assert c.core.pairs == (("dbh", CONTROLLER),)
