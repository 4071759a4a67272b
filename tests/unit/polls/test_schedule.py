"""The grid of polls: fixed by names and clock, slower after failures, and never by what a table holds."""

from __future__ import annotations

import itertools

from connectors.sources.polls.schedule import LONGEST_BACK_OFF, PollGrid
from stream.records import HOUR, MINUTE, SECOND

NOW = 1_790_000_000 * SECOND
USUAL, SHORT = PollGrid(5 * MINUTE, 17 * SECOND), PollGrid(2 * MINUTE, 5 * SECOND)


def test_polls_start_once_in_each_interval_at_the_same_offset() -> None:
    at, starts = NOW, []
    for _ in range(10):
        at = USUAL.next_poll(at).start
        starts.append(at)
    assert {start % (5 * MINUTE) for start in starts} == {17 * SECOND}
    assert {after - before for before, after in itertools.pairwise(starts)} == {5 * MINUTE}


def test_a_table_is_handed_over_in_the_middle_of_the_interval() -> None:
    for grid in (USUAL, SHORT):
        times = grid.next_poll(NOW)
        assert times.hand_over - times.start == grid.interval // 2


def test_a_poll_has_half_its_interval_and_a_frequent_one_a_tenth() -> None:
    usual, short = USUAL.next_poll(NOW), SHORT.next_poll(NOW)
    assert usual.limit - usual.start == 150 * SECOND
    assert short.limit - short.start == 12 * SECOND


def test_failures_double_the_distance_up_to_half_an_hour_and_stay_on_the_grid() -> None:
    for failures, distance in ((1, 10), (2, 20), (3, 30), (4, 30), (100, 30)):
        start = USUAL.next_poll(NOW, failures).start
        assert NOW < start <= NOW + distance * MINUTE
        assert start % (distance * MINUTE) == 17 * SECOND
        assert USUAL.next_poll(start, failures).start - start == distance * MINUTE
    each_minute = PollGrid(MINUTE, 0)
    start = each_minute.next_poll(NOW, 9).start
    assert each_minute.next_poll(start, 9).start - start == 30 * MINUTE
    slow = PollGrid(LONGEST_BACK_OFF, 0)
    assert slow.next_poll(NOW, 5).start - NOW <= LONGEST_BACK_OFF


def test_the_offset_follows_from_the_names_and_lies_within_the_interval() -> None:
    grids = [PollGrid.of_source("dbh", f"10.2.0.{number}", 5 * MINUTE) for number in range(100)]
    assert grids == [PollGrid.of_source("dbh", f"10.2.0.{number}", 5 * MINUTE) for number in range(100)]
    assert all(0 <= grid.offset < 5 * MINUTE and grid.offset % SECOND == 0 for grid in grids)
    assert len({grid.offset for grid in grids}) > 50
    assert PollGrid.of_source("a", "b", HOUR) != PollGrid.of_source("b", "a", HOUR)
