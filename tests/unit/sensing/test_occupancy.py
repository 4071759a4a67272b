"""What a site's occupancy is, edge by edge."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

from stream import operators
from stream.errors import DataError, UsageError
from stream.records import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Heartbeat,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Rejected,
    Row,
    Stay,
)
from stream.schemas import parse_time, rfc3339
from stream.sensing.contribution import ContributionBound
from stream.sensing.occupancy import ROWS_A_DEVICE, OccupancyOperator
from stream.sensing.state import PendingWindow, SensingState, dropped_rows

TICK = 5 * MINUTE
V = 10 * MINUTE
T0 = 1000 * TICK


def scan(
    stage: OccupancyOperator, items: Iterable[Any], state: SensingState | None = None
) -> tuple[SensingState, list[Any]]:
    """Drive the stage; outputs are of any kind, as a test expects them."""
    last, outputs = operators.scan(stage, items, state)
    return last, list(outputs)


def sense(**changes: Any) -> OccupancyOperator:
    settings: dict[str, Any] = {
        "site": "dbh",
        "zones": ("A", "B", "C"),
        "access_points": {"ap-a": "A", "ap-a2": "A", "ap-b": "B", "ap-c": "C"},
        "sources": ("one",),
        "tick_length": TICK,
        "validity": V,
        "lateness": 30 * SECOND,
        "max_devices": 100,
        "ahead": 60 * MINUTE,
    }
    return OccupancyOperator(**(settings | changes))


def batch(*rows: Any, sequence: int = 0, source: str = "one", session: int = 1) -> ObservationBatch:
    return ObservationBatch("dbh", source, session, sequence, tuple(Row(*row) for row in rows))


def beat(watermark: Any, source: str = "one", session: int = 1, since: int = 0) -> Heartbeat:
    return Heartbeat("dbh", source, session, watermark, since)


def run(stage: OccupancyOperator, *items: Any) -> Any:
    """Drive the stage; return its last state, {tick - T0: counts} and everything else that came out."""
    state, out = scan(stage, items)
    windows = {o.window_end - T0: o.counts for o in out if isinstance(o, OccupancyWindow)}
    return state, windows, [o for o in out if not isinstance(o, OccupancyWindow)]


def counts_of(*rows: Any, upto: int = 6, **changes: Any) -> Any:
    """Counts of the windows from T0 on, of rows that all arrive in one batch."""
    _, windows, _ = run(sense(**changes), beat(T0), batch(*rows), beat(T0 + upto * TICK + 31 * SECOND))
    return windows


def test_presence_expires_ten_minutes_after_last_observation() -> None:
    windows = counts_of(("d", "ap-a", T0 + 1))
    assert [windows[n * TICK] for n in range(4)] == [(0, 0, 0), (1, 0, 0), (1, 0, 0), (0, 0, 0)]


def test_presence_at_a_tick_counts_from_that_tick_on_and_not_at_its_end() -> None:
    windows = counts_of(("d", "ap-a", T0))
    assert [windows[n * TICK][0] for n in range(4)] == [1, 1, 0, 0]


def test_observation_one_microsecond_after_the_tick_is_not_in_it() -> None:
    windows = counts_of(("d", "ap-a", T0 + TICK), ("e", "ap-a", T0 + TICK + 1))
    assert windows[TICK] == (1, 0, 0)
    assert windows[2 * TICK] == (2, 0, 0)


def test_device_is_counted_where_it_was_last_seen_and_nowhere_else() -> None:
    steps = [("d", "ap-a" if n % 2 else "ap-b", T0 + n * SECOND) for n in range(300)]
    windows = counts_of(*steps, ("d", "ap-c", T0 + TICK))
    assert windows[0] == (0, 1, 0)
    assert windows[TICK] == (0, 0, 1)
    assert all(sum(counts) <= 1 for counts in windows.values())


def test_two_access_points_of_a_zone_count_a_device_once() -> None:
    windows = counts_of(("d", "ap-a", T0 + 1), ("d", "ap-a2", T0 + 2), ("e", "ap-a2", T0 + 2))
    assert windows[TICK] == (2, 0, 0)


def test_end_row_ends_presence_at_its_own_time() -> None:
    windows = counts_of(("d", "ap-a", T0 + 1), ("d", None, T0 + TICK + 1))
    assert [windows[n * TICK][0] for n in range(3)] == [0, 1, 0]
    assert counts_of(("d", "ap-a", T0 + 1), ("d", None, T0 + TICK))[TICK] == (0, 0, 0)


def test_end_row_does_not_keep_a_device_from_coming_back() -> None:
    windows = counts_of(("d", "ap-a", T0 + 1), ("d", None, T0 + 2), ("d", "ap-b", T0 + 3))
    assert windows[TICK] == (0, 1, 0)


def test_of_two_rows_at_one_instant_the_later_in_the_batch_wins() -> None:
    windows = counts_of(("d", "ap-a", T0 + 1), ("d", "ap-b", T0 + 1))
    assert windows[TICK] == (0, 1, 0)


def test_at_one_instant_the_later_sequence_and_the_greater_source_win() -> None:
    both: dict[str, Any] = {"sources": ("one", "two")}
    first = batch(("d", "ap-a", T0 + 1), sequence=0)
    second = batch(("d", "ap-b", T0 + 1), sequence=1)
    other = batch(("d", "ap-c", T0 + 1), source="two")
    start, end = (beat(T0), beat(T0, "two")), (beat(T0 + 3 * TICK), beat(T0 + 3 * TICK, "two"))
    assert run(sense(**both), *start, first, second, *end)[1][TICK] == (0, 1, 0)
    assert run(sense(**both), *start, other, first, second, *end)[1][TICK] == (0, 0, 1)


def test_window_closes_strictly_after_tick_plus_lateness() -> None:
    stage = sense()
    edge = T0 + 30 * SECOND
    assert run(stage, beat(T0), beat(edge))[1] == {}
    assert run(stage, beat(T0), beat(edge + 1))[1] == {0: (0, 0, 0)}


@pytest.mark.parametrize("lateness", [30 * SECOND, 7 * MINUTE])
@pytest.mark.parametrize("day_starts", [None, "00:00", "04:00"])
def test_every_window_of_a_day_waits_for_its_lateness_also_those_around_midnight(
    lateness: Micros, day_starts: str | None
) -> None:
    """Two UTC days; the first has 25 hours at the site, and a privacy day that begins at midnight or at four."""
    by_day = None
    if day_starts is not None:
        by_day = ContributionBound(
            day_starts, "Europe/Berlin", 96, ignore_residents=False, tick_length=TICK, validity=V
        )
    stage, first = sense(lateness=lateness, by_day=by_day), parse_time("2026-10-25T00:00:00Z") - 2 * HOUR
    state, out = scan(stage, [beat(first)])
    assert out == []
    for tick in range(first, first + 2 * DAY, TICK):
        state, out = scan(stage, [beat(tick + lateness)], state)
        assert out == [], rfc3339(tick)
        state, out = scan(stage, [beat(tick + lateness + 1)], state)
        assert [window.window_end for window in out] == [tick]


def test_batches_never_close_a_window() -> None:
    _, windows, _ = run(sense(), beat(T0 + 30 * SECOND), batch(("d", "ap-a", T0 + 200 * SECOND)))
    assert windows == {}


def test_windows_without_any_event_close_in_order_with_zeros() -> None:
    _, out = scan(sense(), [beat(T0 + n * TICK) for n in range(5)])
    assert out == [OccupancyWindow("dbh", T0 + n * TICK, (0, 0, 0), Fraction(1)) for n in range(4)]


def test_row_at_the_last_closed_tick_is_late_and_one_after_it_is_not() -> None:
    state, windows, rest = run(
        sense(),
        beat(T0),
        beat(T0 + 31 * SECOND),
        batch(("d", "ap-a", T0), ("e", "ap-b", T0 + 1)),
        beat(T0 + 2 * TICK),
    )
    assert windows == {0: (0, 0, 0), TICK: (0, 1, 0)}
    assert rest == []
    assert (state.counters["late"], state.counters["accepted"]) == (1, 1)


def test_row_within_lateness_is_counted_though_the_watermark_has_passed_it() -> None:
    late = batch(("d", "ap-a", T0 - 1))
    assert run(sense(), beat(T0), beat(T0 + 30 * SECOND), late, beat(T0 + TICK))[1] == {0: (1, 0, 0)}


def test_row_further_ahead_than_five_minutes_is_rejected_by_place() -> None:
    rows = (("d", "ap-a", T0 + 5 * MINUTE), ("e", "ap-a", T0 + 5 * MINUTE + 1))
    state, windows, rest = run(sense(ahead=OccupancyOperator.ahead), beat(T0), batch(*rows), beat(T0 + 3 * TICK))
    assert rest == [Rejected("one", "ahead", "rows[1].time")]
    assert windows[TICK] == (1, 0, 0)
    assert state.counters["ahead"] == 1


def test_row_too_far_ahead_is_rejected_also_next_to_one_of_its_window_that_is_not() -> None:
    rows = (("d", "ap-a", T0 + 330 * SECOND), ("e", "ap-a", T0 + 390 * SECOND))
    _, _, rest = run(sense(ahead=5 * MINUTE), beat(T0 + 60 * SECOND), batch(*rows))
    assert rest == [Rejected("one", "ahead", "rows[1].time")]


def test_unknown_access_point_rejects_its_row_alone() -> None:
    rows = (("d", "nowhere", T0 + 1), ("e", "ap-b", T0 + 1))
    _, windows, rest = run(sense(), beat(T0), batch(*rows), beat(T0 + 2 * TICK))
    assert rest == [Rejected("one", "unknown_access_point", "rows[0].access_point")]
    assert windows[TICK] == (0, 1, 0)


def test_batch_of_an_unlisted_source_is_rejected_once_and_whole() -> None:
    rows = (("d", "ap-a", T0 + 1), ("e", "ap-b", T0 + 1))
    state, windows, rest = run(sense(), beat(T0), batch(*rows, source="x"), beat(T0 + 2 * TICK))
    assert rest == [Rejected("x", "unknown_source", "source")]
    assert windows[TICK] == (0, 0, 0)
    assert state.counters["unknown_source"] == 2


def test_heartbeat_of_an_unlisted_source_moves_nothing() -> None:
    _, windows, rest = run(sense(), beat(T0), beat(T0 + 5 * TICK, "x"))
    assert (windows, rest) == ({}, [Rejected("x", "unknown_source", "source")])


def test_item_of_another_site_is_rejected() -> None:
    state, out = scan(sense(), [Heartbeat("elsewhere", "one", 1, T0, 0)])
    assert out == [Rejected("one", "wrong_site", "site")]
    assert state.clock.watermark is None


def test_copy_of_a_batch_and_batches_of_a_replaced_session_are_dropped_and_counted() -> None:
    first = batch(("d", "ap-a", T0 + 1), sequence=3, session=5)
    older = batch(("e", "ap-a", T0 + 1), sequence=2, session=5)
    newer = batch(("f", "ap-b", T0 + 1), sequence=0, session=6)
    stale = batch(("g", "ap-a", T0 + 1), ("h", "ap-a", T0 + 1), sequence=9, session=5)
    begin, end = beat(T0, session=5), beat(T0 + 2 * TICK, session=6)
    state, windows, _ = run(sense(), begin, first, first, older, newer, stale, end)
    assert windows[TICK] == (1, 1, 0)
    assert (state.counters["repeated_batch"], state.counters["stale_session"]) == (2, 2)


def test_rows_seen_are_rows_accepted_plus_every_reason_to_drop() -> None:
    state, _, _ = run(
        sense(sources=("one", "two"), ahead=5 * MINUTE),
        beat(T0),
        beat(T0, "two"),
        beat(T0 + TICK),
        beat(T0 + TICK, "two"),
        batch(("d", "ap-a", T0), ("d", "x", T0), ("d", "ap-a", T0 + 9 * TICK), ("d", "ap-a", T0 + TICK)),
        batch(("d", "ap-a", T0)),
        batch(("e", "ap-a", T0 + TICK), ("f", "ap-a", T0 + TICK), ("g", None, T0 + TICK), sequence=1),
        batch(("d", "ap-a", T0), source="x"),
        batch(("d", "ap-a", T0 + TICK), sequence=0, session=0),
    )
    assert dict(state.counters) == {
        "rows": 10,
        "accepted": 4,
        "late": 1,
        "unknown_access_point": 1,
        "ahead": 1,
        "repeated_batch": 1,
        "unknown_source": 1,
        "stale_session": 1,
    }


def test_first_window_is_the_first_tick_at_or_after_the_watermark() -> None:
    end = beat(T0 + 2 * TICK)
    assert list(run(sense(), beat(T0), end)[1]) == [0, TICK]
    assert list(run(sense(), beat(T0 + 1), end)[1]) == [TICK]


def test_rows_before_the_first_watermark_are_kept_for_the_first_window() -> None:
    early = batch(("d", "ap-a", T0 - 4 * MINUTE), ("e", "ap-b", T0 + 8 * MINUTE))
    _, windows, rest = run(sense(), early, beat(T0), beat(T0 + 3 * TICK))
    assert rest == []
    assert (windows[0], windows[TICK], windows[2 * TICK]) == ((1, 0, 0), (1, 0, 0), (0, 1, 0))


def test_of_many_rows_before_the_first_watermark_the_last_says_where_a_device_is() -> None:
    early = batch(("d", "ap-b", T0 - MINUTE), ("d", "ap-a", T0 - 6 * MINUTE), ("d", "ap-a", T0 - 11 * MINUTE))
    assert run(sense(), early, beat(T0), beat(T0 + TICK))[1] == {0: (0, 1, 0)}


def test_windows_wait_until_every_source_has_been_heard() -> None:
    stage = sense(sources=("one", "two"))
    assert run(stage, beat(T0), beat(T0 + 119 * SECOND))[1] == {}
    _, windows, _ = run(stage, beat(T0), beat(T0 - TICK, "two"), beat(T0 + 60 * SECOND, "two"))
    assert list(windows) == []
    _, windows, _ = run(stage, beat(T0), beat(T0 - 10, "two"), beat(T0 + 60 * SECOND, "two"))
    assert list(windows) == []
    _, windows, _ = run(stage, beat(T0), beat(T0, "two"), *(beat(T0 + 60 * SECOND, s) for s in ("one", "two")))
    assert list(windows) == [0]


def test_stopped_source_times_out_after_two_minutes_of_log_time_and_its_later_rows_are_late() -> None:
    stage = sense(sources=("one", "two"))
    start = (beat(T0), beat(T0, "two"))
    at_timeout = beat(T0 + 120 * SECOND)
    past_timeout = beat(T0 + 120 * SECOND + 1)
    assert run(stage, *start, at_timeout)[1] == {}
    slow = batch(("d", "ap-a", T0), ("e", "ap-a", T0 + 1), source="two")
    end = beat(T0 + 2 * TICK)
    state, windows, _ = run(stage, *start, past_timeout, slow, end)
    assert windows == {0: (0, 0, 0), TICK: (1, 0, 0)}
    assert state.counters["late"] == 1


def test_coverage_is_the_share_of_sources_that_vouch_for_the_window() -> None:
    stage = sense(sources=("one", "two", "three"))
    start = [beat(T0, s) for s in stage.sources]
    items = [beat(T0 + 60 * SECOND, "two"), beat(T0 + 60 * SECOND), beat(T0 + 200 * SECOND)]
    _, out = scan(stage, [*start, *items, beat(T0 + 2 * TICK - 100 * SECOND), beat(T0 + 3 * TICK - 100 * SECOND)])
    assert [w.coverage for w in out] == [Fraction(1), Fraction(1, 3), Fraction(1, 3)]
    behind = [beat(T0 - 1, s) for s in stage.sources]
    _, out = scan(stage, [*behind, beat(T0 + 100 * SECOND, "two"), beat(T0 + 121 * SECOND)])
    assert [(w.window_end, w.coverage) for w in out] == [(T0, Fraction(2, 3))]
    _, out = scan(stage, [*start, *(beat(T0 + 60 * SECOND, s) for s in stage.sources)])
    assert [w.coverage for w in out] == [Fraction(1)]


def test_a_source_does_not_vouch_for_windows_in_which_it_did_not_listen() -> None:
    stage = sense(sources=("one", "two"))
    ticks = [T0 + n * TICK for n in range(9)]
    received = [
        [beat(t)] if t in ticks[3:6] else [beat(t, "two", since=0 if t < ticks[3] else ticks[6]), beat(t)]
        for t in ticks
    ]
    state, out = scan(stage, [item for items in received for item in items])
    assert [(w.window_end - T0) // TICK for w in out if w.coverage == 1] == [0, 1, 2, 7]
    assert {w.coverage for w in out} == {Fraction(1), Fraction(1, 2)}
    assert stage.encode(stage.decode(stage.encode(state))) == stage.encode(state)


def test_coverage_is_nothing_while_nobody_listened() -> None:
    stage = sense()
    back = T0 + 6 * TICK
    _, out = scan(stage, [beat(T0), beat(T0 + TICK), beat(back, since=back), beat(T0 + 8 * TICK, since=back)])
    assert [w.coverage for w in out] == [1, 1, 0, 0, 0, 0, 0, 1]


def test_a_receiver_dead_for_200_s_of_a_window_does_not_vouch_for_it() -> None:
    stage = sense()
    back = T0 + 250 * SECOND
    _, out = scan(
        stage, [beat(T0), beat(T0 + 50 * SECOND), beat(back + 1, since=back), beat(T0 + 3 * TICK, since=back)]
    )
    assert [w.coverage for w in out] == [1, 0, 1]


def test_the_first_window_is_vouched_for_only_if_listening_began_by_its_start() -> None:
    late = [
        beat(T0 + TICK - 9 * SECOND, since=T0 + TICK - 10 * SECOND),
        beat(T0 + 3 * TICK, since=T0 + TICK - 10 * SECOND),
    ]
    in_time = [beat(T0 + 1, since=T0), beat(T0 + 3 * TICK, since=T0)]
    assert [w.coverage for w in scan(sense(), late)[1]] == [0, 1]
    assert [w.coverage for w in scan(sense(), in_time)[1]] == [1, 1]


def test_the_first_heartbeat_after_an_outage_takes_no_voucher_from_a_window_that_lay_before_it() -> None:
    stage = sense(sources=("one", "two", "three", "four"))
    before = [beat(T0 + n * 5 * SECOND, source) for n in range(61) for source in stage.sources]
    back = T0 + TICK + 200 * SECOND
    _, out = scan(stage, [*before, beat(back + 1, since=back)])
    assert [((w.window_end - T0) // TICK, w.coverage) for w in out] == [(0, 1), (1, 1)]


def test_heartbeats_a_tick_apart_keep_full_coverage_when_the_timeout_is_a_tick() -> None:
    stage = sense(sources=("one", "two"), source_timeout=TICK)
    _, out = scan(stage, [beat(T0 + n * TICK, s) for n in range(5) for s in stage.sources])
    assert [(w.window_end - T0, w.coverage) for w in out] == [(n * TICK, 1) for n in range(4)]


def test_a_site_holds_max_devices_and_has_room_again_when_they_expire() -> None:
    stage = sense(max_devices=2)
    full = batch(*((name, "ap-a", T0 + 1) for name in "de"), ("d", "ap-b", T0 + 2))
    room_again = batch(("f", "ap-c", T0 + 4 * TICK), sequence=1)
    state, windows, _ = run(stage, beat(T0), full, beat(T0 + 4 * TICK), room_again, beat(T0 + 5 * TICK))
    assert windows[TICK] == (1, 1, 0)
    assert windows[4 * TICK] == (0, 0, 1)
    assert not state.suspended


@pytest.mark.parametrize("late_one", [("f", "ap-c", T0 + 3), ("f", None, T0 + 3)])
def test_one_device_too_many_shuts_the_site_and_everybody_is_forgotten(late_one: Any) -> None:
    stage = sense(max_devices=2, keep_presence=True)
    state, _ = scan(stage, [beat(T0), batch(("d", "ap-a", T0)), beat(T0 + 31 * SECOND)])
    state, out = scan(stage, [batch(("e", "ap-b", T0 + 2), late_one, sequence=1)], state)
    assert out == [Rejected("one", "site_shut", "site")]
    assert state.suspended
    assert (state.current, state.pending, state.rows, state.open_stays, state.known_devices) == ({}, {}, {}, {}, set())


def test_devices_that_are_present_count_against_max_devices() -> None:
    stage = sense(max_devices=1)
    second = batch(("e", "ap-b", T0 + TICK + 1), sequence=1)
    state, _ = scan(stage, [beat(T0), batch(("d", "ap-a", T0 + 1)), beat(T0 + TICK + 31 * SECOND)])
    assert not state.suspended
    assert scan(stage, [second], state)[0].suspended


def test_entries_are_bounded_while_there_is_no_watermark() -> None:
    stage = sense(max_devices=3)
    rows = [("d", "ap-a", T0 + n * TICK) for n in range(4)]
    assert not scan(stage, [batch(*rows[:3])])[0].suspended
    assert scan(stage, [batch(*rows)])[0].suspended


def test_rows_that_are_kept_for_stays_are_bounded() -> None:
    stage = sense(max_devices=1, keep_presence=True)
    rows = [("d", "ap-a", T0 + n) for n in range(ROWS_A_DEVICE + 1)]
    assert not scan(stage, [beat(T0), batch(*rows[1:])])[0].suspended
    assert scan(stage, [beat(T0), batch(*rows[1:]), batch(*rows[:1], sequence=1)])[0].suspended


def test_a_shut_site_takes_nothing_and_closes_nothing_until_it_is_reopened_also_over_a_restart() -> None:
    stage = sense(max_devices=1)
    state, out = scan(stage, [beat(T0), beat(T0 + 31 * SECOND), batch(("d", "ap-a", T0 + 1), ("e", "ap-a", T0 + 1))])
    state = stage.decode(stage.encode(state))
    state, out = scan(stage, [batch(("d", "ap-a", T0 + 2), sequence=1), beat(T0 + 3 * TICK)], state)
    assert out == []
    assert (state.suspended, state.counters["site_shut"], state.known_devices) == (True, 3, set())

    state = stage.resume(state)
    state, out = scan(stage, [beat(T0 + 3 * TICK), beat(T0 + 6 * TICK)], state)
    assert [((w.window_end - T0) // TICK, w.coverage) for w in out] == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]


def test_first_and_last_window_bound_what_is_released() -> None:
    stage = sense(first_window=T0 + 2 * TICK, last_window=T0 + 3 * TICK)
    rows = batch(
        ("d", "ap-a", T0),
        ("e", "ap-b", T0 + 1),
        ("f", "ap-c", T0 + 3 * TICK),
        ("g", "ap-c", T0 + 3 * TICK + 1),
    )
    state, windows, _ = run(stage, rows, beat(T0), beat(T0 + 9 * TICK))
    assert windows == {2 * TICK: (0, 1, 0), 3 * TICK: (0, 0, 1)}
    assert (state.counters["before_first"], state.counters["after_last"]) == (1, 1)


def test_bounds_off_the_grid_hold_for_neighbours_in_one_window() -> None:
    stage = sense(first_window=T0, last_window=T0 + TICK + MINUTE, validity=7 * MINUTE)
    rows = [("d", "ap-a", T0 + m * MINUTE) for m in (-6, -7, 6, 7)]
    state, _ = scan(stage, [batch(*rows)])
    assert (state.counters["before_first"], state.counters["after_last"]) == (1, 1)


def test_first_window_off_the_grid_means_the_next_tick() -> None:
    assert list(run(sense(first_window=T0 + 1), beat(T0), beat(T0 + 3 * TICK))[1]) == [TICK, 2 * TICK]


def test_stays_come_out_once_they_are_final() -> None:
    stage = sense(keep_presence=True)
    rows = batch(("d", "ap-a", T0 + 1), ("d", "ap-a2", T0 + 9), ("d", "ap-b", T0 + TICK + 7), ("e", "ap-c", T0 + 5))
    state, _, rest = run(stage, beat(T0), rows, beat(T0 + 3 * TICK))
    assert rest == [Stay("dbh", "d", "A", T0 + 1, T0 + TICK + 7)]
    _, out = scan(stage, [beat(T0 + 5 * TICK)], state)
    late = [o for o in out if isinstance(o, Stay)]
    assert late == [
        Stay("dbh", "e", "C", T0 + 5, T0 + 5 + V),
        Stay("dbh", "d", "B", T0 + TICK + 7, T0 + TICK + 7 + V),
    ]


def test_stays_follow_the_later_of_two_rows_at_one_instant_whichever_arrives_first() -> None:
    stage = sense(keep_presence=True, sources=("one", "two"))
    one, two = batch(("d", "ap-a", T0 + 1)), batch(("d", "ap-b", T0 + 1), source="two")
    for order in [(one, two), (two, one)]:
        state, _, _ = run(stage, *order)
        assert stage.remaining_stays(state) == [Stay("dbh", "d", "B", T0 + 1, T0 + 1 + V)]


def test_stays_still_open_at_the_end_of_a_log_can_be_had() -> None:
    stage = sense(keep_presence=True)
    state, _, rest = run(stage, beat(T0), batch(("d", "ap-a", T0 + 1)))
    assert rest == []
    assert stage.remaining_stays(state) == [Stay("dbh", "d", "A", T0 + 1, T0 + 1 + V)]


def test_state_bytes_do_not_depend_on_the_order_of_rows_in_memory() -> None:
    rows = [(name, "ap-a", T0 + 1) for name in "defg"]
    stage = sense()
    one = stage.decode(stage.encode(scan(stage, [batch(*rows)])[0]))
    other = stage.decode(stage.encode(one))
    other.pending = {
        tick: PendingWindow(tick, dict(reversed(list(stored.entries.items())))) for tick, stored in one.pending.items()
    }
    assert stage.encode(one) == stage.encode(other)


def test_state_has_this_byte_form() -> None:
    stage = sense(keep_presence=True)
    rows = batch(("e", "ap-b", T0 + 2), ("d", "ap-a", T0 + 1), ("d", None, T0 + TICK + 1))
    state, _ = scan(stage, [beat(T0), rows, beat(T0 + TICK + 31 * SECOND)])
    assert stage.encode(state) == (
        b'{"form":1,"clock":[300000000000,300331000000,[["one",1,0,300331000000,[[0,300331000000]],0]]],'
        b'"ticks":[300600000000,300300000000,false],"zones":["A","B","C"],'
        b'"current":[["d",0,300000000001],["e",1,300000000002]],"stamps":[["one",1,0]],'
        b'"pending":[[300600000000,[["d",300300000001,0,2,-1]]]],'
        b'"rows":[[300600000000,[[["d",300300000001],300300000001,0,2,-1]]]],'
        b'"stays":[["d","A",300000000001,300000000001],["e","B",300000000002,300000000002]],'
        b'"counters":[["accepted",3],["rows",3]]}'
    )


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"form":1}', b'{"form":1,"clock":[]}', b"\xff"])
def test_bytes_that_are_no_state_are_refused_without_repeating_them(data: Any) -> None:
    with pytest.raises(DataError, match=r"^sense state: not the byte form of a state$"):
        sense().decode(data)


def test_a_state_of_a_later_form_is_refused() -> None:
    data = sense().encode(scan(sense(), [beat(T0)])[0])
    sense().decode(data)
    with pytest.raises(DataError, match="not the byte form of a state"):
        sense().decode(data.replace(b'{"form":1,', b'{"form":2,'))


def test_state_shows_no_device_when_printed() -> None:
    state, _ = scan(sense(), [beat(T0), batch(("d00d", "ap-a", T0 + 1)), beat(T0 + TICK + 31 * SECOND)])
    assert state.current
    assert "d00d" not in repr(state)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tick_length": 0}, "tick"),
        ({"validity": 0}, "validity"),
        ({"lateness": -1}, "lateness"),
        ({"max_devices": 0}, "max_devices"),
        ({"sources": ()}, "sources"),
        ({"zones": ("A", "A", "B", "C")}, "zones"),
        ({"access_points": {"ap-a": "Z"}}, "access_points"),
    ],
)
def test_configuration_without_meaning_is_refused_by_name(changes: Any, word: Any) -> None:
    with pytest.raises(UsageError, match=word):
        sense(**changes)


def test_windows_over_a_lost_part_of_the_log_have_coverage_0_until_the_next_heartbeat() -> None:
    stage = sense()
    state, _ = scan(stage, [beat(T0), beat(T0 + TICK + 31 * SECOND)])
    state = stage.decode(stage.encode(stage.mark_data_loss(state)))
    _, out = scan(stage, [beat(T0 + n * TICK) for n in range(4, 8)], state)
    assert [((w.window_end - T0) // TICK, w.coverage) for w in out] == [
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 1),
        (6, 1),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_what_waits_under_another_tick_is_filed_anew_and_a_devices_last_entry_counts(order: Any) -> None:
    """From 5 to 15 minutes: three windows become one, whichever of them was opened first."""
    rows = [("d", "ap-a", T0 + 1), ("d", "ap-b", T0 + TICK), ("d", "ap-c", T0 + TICK + 1)]
    moves = [batch(row, sequence=n) for n, row in enumerate(rows[::order])]
    state, _ = scan(sense(), [beat(T0), *moves])
    assert len(state.pending) == 2
    coarse = sense(tick_length=3 * TICK, validity=3 * TICK)
    state = coarse.rebase_ticks(state)
    first = -(-T0 // (3 * TICK)) * 3 * TICK
    assert (state.next_tick, list(state.pending)) == (first, [T0 + 2 * TICK])
    _, out = scan(coarse, [beat(T0 + 3 * TICK)], state)
    assert out[-1].counts == (0, 0, 1)


def test_state_moves_to_another_zone_registry_by_name() -> None:
    old = sense()
    state, _ = scan(old, [beat(T0), batch(("d", "ap-a", T0 + 1), ("e", "ap-b", T0 + 2))])
    new = sense(zones=("B", "new"), access_points={"ap-b": "B"})
    _, out = scan(new, [beat(T0 + TICK + 31 * SECOND)], new.decode(old.encode(state)))
    assert out[-1].counts == (1, 0)


def test_rows_accepted_rows_and_stale_heartbeats_are_not_drops() -> None:
    counters = {"rows": 9, "accepted": 6, "stale_heartbeats": 4, "late": 2, "unknown_zone": 1}
    assert dropped_rows(counters) == {"late": 2, "unknown_zone": 1}
