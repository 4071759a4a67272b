"""Sessions in the engine: departures name an access point, in any order of arrival, through snapshots and new grids."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest

from stream.records import (
    DAY,
    HOUR,
    MINUTE,
    Heartbeat,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    PrivacyDay,
    Row,
    Stay,
)
from stream.sensing.contribution import ContributionBound
from stream.sensing.occupancy import OccupancyOperator

NOON = 17_563 * DAY + 12 * HOUR
TICK, LIMIT = 5 * MINUTE, 4 * HOUR
ANNE, BERT = "a" * 16, "b" * 16
ONE, TWO, ROOM = "ap-1", "ap-2", "ap-3"
"""Two access points of the lobby, and one of a room."""
ENGINE = OccupancyOperator(
    site="dbh", zones=("lobby", "room"), access_points={ONE: "lobby", TWO: "lobby", ROOM: "room"}, sources=("s",),
    tick_length=TICK, validity=LIMIT, lateness=0, max_devices=100, ahead=2 * HOUR, sessions=True,
)  # fmt: skip


def counted(
    rows: list[Row], ticks: int = 3, engine: OccupancyOperator = ENGINE, epoch: PrivacyDay | None = None,
    *, snapshots: bool = True,
) -> list[tuple[int, ...]]:  # fmt: skip
    """Return the counts from noon on; each row is a batch, and each message is followed by a snapshot."""
    batches = [ObservationBatch("dbh", "s", 1, n, (row,), epoch) for n, row in enumerate(rows)]
    first, last = (Heartbeat("dbh", "s", 1, time, 0) for time in (NOON - TICK, NOON + ticks * TICK))
    state, found = engine.initial(), list[tuple[int, ...]]()
    log: list[Heartbeat | ObservationBatch] = [first, *batches, last]
    for message in log:
        state, out = engine.step(state, message)
        found += [each.counts for each in out if isinstance(each, OccupancyWindow) and each.window_end >= NOON]
        if snapshots:
            state = engine.decode(engine.encode(state))
    return found


def test_a_departure_ends_the_stay_at_its_own_access_point() -> None:
    came = Row(ANNE, ONE, NOON - 1)
    assert counted([came, Row(ANNE, f"-{ONE}", NOON + 1)]) == [(1, 0), (0, 0), (0, 0)]
    for other in (TWO, ROOM):
        assert counted([came, Row(ANNE, f"-{other}", NOON + 1)]) == [(1, 0)] * 3
    assert counted([came, Row(BERT, f"-{ONE}", NOON + 1)]) == [(1, 0)] * 3


def test_a_departure_that_comes_behind_a_roam_ends_nothing() -> None:
    """Also in one zone, where two access points hand a device over."""
    rows = [Row(ANNE, ONE, NOON - 3), Row(ANNE, TWO, NOON + 1), Row(ANNE, f"-{ONE}", NOON + 2)]
    assert counted(rows) == [(1, 0)] * 3


IN_ORDER = [
    Row(ANNE, ONE, NOON + 1), Row(ANNE, f"-{ONE}", NOON + 2), Row(ANNE, ONE, NOON + 3), Row(ANNE, f"-{ONE}", NOON + 4),
]  # fmt: skip


@pytest.mark.parametrize("rows", list(permutations(IN_ORDER)), ids=range(24))
def test_the_last_row_decides_in_whatever_order_they_come(rows: tuple[Row, ...]) -> None:
    assert counted([*rows]) == [(0, 0)] * 3
    assert counted([*rows, Row(ANNE, ROOM, NOON + 5)]) == [(0, 0), (0, 1), (0, 1)]
    assert counted([row for row in rows if row.time != NOON + 4]) == [(0, 0), (1, 0), (1, 0)]


def test_of_one_instant_the_later_row_decides() -> None:
    came, went = Row(ANNE, ONE, NOON - 1), Row(ANNE, f"-{ONE}", NOON - 1)
    assert counted([came, went], 1) == [(0, 0)]
    assert counted([went, came], 1) == [(1, 0)]


def test_departures_move_to_a_new_grid() -> None:
    state = ENGINE.initial()
    rows = (Row(ANNE, ONE, NOON + 1), Row(ANNE, f"-{ONE}", NOON + 2), Row(BERT, ONE, NOON + 1))
    for message in (Heartbeat("dbh", "s", 1, NOON - TICK, 0), ObservationBatch("dbh", "s", 1, 0, rows)):
        state, _ = ENGINE.step(state, message)
    coarse = replace(ENGINE, tick_length=3 * TICK)
    state = coarse.rebase_ticks(coarse.decode(ENGINE.encode(state)))
    _, out = coarse.step(state, Heartbeat("dbh", "s", 1, NOON + HOUR, 0))
    assert [each.counts for each in out if isinstance(each, OccupancyWindow)][:2] == [(0, 0), (1, 0)]


def test_a_site_that_changes_how_it_counts_begins_without_anybody() -> None:
    events = replace(ENGINE, sessions=False)
    for before, after in ((events, ENGINE), (ENGINE, events)):
        state = before.initial()
        for message in (
            Heartbeat("dbh", "s", 1, NOON - TICK, 0), ObservationBatch("dbh", "s", 1, 0, (Row(ANNE, ONE, NOON - 1),)),
            Heartbeat("dbh", "s", 1, NOON + 1, 0),
        ):  # fmt: skip
            state, _ = before.step(state, message)
        assert state.current
        assert not after.decode(before.encode(state)).current


def test_with_events_a_state_says_nothing_of_departures() -> None:
    events = replace(ENGINE, sessions=False)
    state, _ = events.step(events.initial(), ObservationBatch("dbh", "s", 1, 0, (Row(ANNE, ONE, NOON),)))
    assert b"left" not in events.encode(state)


@pytest.mark.parametrize("limit", [LIMIT, 12 * HOUR])
def test_stays_are_cut_where_a_privacy_day_starts(limit: Micros) -> None:
    bound = ContributionBound("12:00", "UTC", 288, ignore_residents=False, tick_length=TICK, validity=limit)
    engine = replace(ENGINE, by_day=bound, validity=limit)
    day = PrivacyDay(17_562, NOON - DAY, NOON)
    assert counted([Row(ANNE, ONE, NOON - HOUR), Row(BERT, ONE, NOON)], engine=engine, epoch=day) == [
        (2, 0), (0, 0), (0, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_stays_last_as_long_as_devices_are_counted(seed: int) -> None:
    rng = random.Random(seed)
    times = sorted(rng.sample(range(NOON, NOON + HOUR), 30))
    rows = [Row(rng.choice((ANNE, BERT)), rng.choice(("", "-")) + rng.choice((ONE, TWO, ROOM)), time) for time in times]
    engine = replace(ENGINE, keep_presence=True, validity=20 * MINUTE)
    state, out = engine.initial(), []
    beats = [Heartbeat("dbh", "s", 1, time, 0) for time in (NOON - TICK, NOON + 3 * HOUR)]
    for message in (beats[0], ObservationBatch("dbh", "s", 1, 0, tuple(rows)), beats[1]):
        state, made = engine.step(state, message)
        out += made
    stays = [each for each in out if isinstance(each, Stay)]
    for window in (each for each in out if isinstance(each, OccupancyWindow)):
        inside = [stay.zone for stay in stays if stay.start <= window.window_end < stay.end]
        assert tuple(inside.count(zone) for zone in ENGINE.zones) == window.counts
