"""What is measured: whole local days, hours of day and night, days with a change of the clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.errors import DataError, UsageError
from stream.lab.tuning.utility import Site, World, within, world_of
from stream.records import DAY, HOUR, MINUTE, SECOND

ZONE = "America/Los_Angeles"
SITE = Site("dbh", ZONE, ("a", "b"), (50, 60), 5 * MINUTE)


def local(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(ZONE)).timestamp()) * SECOND


def ends(begin: str, end: str) -> NDArray[np.int64]:
    """Return the ends of all windows behind one instant, up to another."""
    return np.arange(local(begin) + SITE.tick, local(end) + 1, SITE.tick, dtype=np.int64)


def world(times: NDArray[np.int64], measured: int = 1, before: int = 0) -> World:
    counts = np.stack([np.arange(len(times)), np.ones(len(times), dtype=np.int64)], axis=1)
    return world_of(SITE, times, counts, measured, before)


def test_the_last_whole_day_is_measured_and_what_lies_behind_it_is_left_out() -> None:
    of = world(ends("2018-02-01T13:00", "2018-02-04T09:00"))
    assert (of.times[of.measured], of.times[-1]) == (local("2018-02-03T00:05"), local("2018-02-04T00:00"))
    assert of.begins == of.measured
    assert len(of.counts) == len(of.times) == len(of.days) == len(of.minutes)


def test_days_before_are_released_and_not_measured() -> None:
    of = world(ends("2018-02-01T00:00", "2018-02-05T00:00"), measured=2, before=1)
    assert of.times[of.begins] == local("2018-02-02T00:05")
    assert of.measures("all").sum() == 2 * 288
    assert not of.measures("all")[:288].any()


@pytest.mark.parametrize(("days", "windows"), [(1, 288), (2, 2 * 288), (9, 3 * 288)])
def test_what_lies_before_the_released_days_is_a_world_of_no_more_days_than_are_asked_for(
    days: int, windows: int
) -> None:
    of = world(ends("2018-02-01T00:00", "2018-02-05T00:00"))
    earlier = of.before(days)
    assert earlier is not None
    assert earlier.times[earlier.released].tolist() == of.times[of.begins - windows : of.begins].tolist()


def test_where_nothing_lies_before_the_released_days_there_is_no_such_world() -> None:
    assert world(ends("2018-02-01T00:00", "2018-02-02T00:00")).before(1) is None


def test_a_day_with_a_hole_ends_the_run_of_days() -> None:
    times = ends("2018-02-01T00:00", "2018-02-05T00:00")
    holed = np.delete(times, 288 + 20)
    assert world(holed, measured=2).begins == 2 * 288 - 1
    with pytest.raises(DataError, match="at least 3 whole days of windows, got 2"):
        world(holed, measured=3)


@pytest.mark.parametrize(
    ("day", "behind", "hours"), [("2018-03-11", "2018-03-12", 23), ("2018-11-04", "2018-11-05", 25)]
)
def test_a_day_on_which_clocks_change_is_whole_with_its_own_hours(day: str, behind: str, hours: int) -> None:
    of = world(ends(f"{day}T00:00", f"{behind}T00:00"))
    assert of.measures("all").sum() == hours * HOUR // SITE.tick


def test_a_window_is_of_the_day_when_it_ends_after_seven_and_by_nineteen_hours() -> None:
    of = world(ends("2018-02-01T00:00", "2018-02-02T00:00"))
    by_day = of.times[of.measures("day")]
    assert (by_day[0], by_day[-1]) == (local("2018-02-01T07:05"), local("2018-02-01T19:00"))
    assert (of.measures("day") ^ of.measures("night")).all()
    assert of.measures("day").sum() == 144


def test_midnight_is_night() -> None:
    assert within("night", np.array([0, 7 * 60, 7 * 60 + 1, 19 * 60, 19 * 60 + 1])).tolist() == [1, 1, 0, 0, 1]


def test_the_building_is_one_zone_in_which_everybody_is() -> None:
    of = world(ends("2018-02-01T00:00", "2018-02-02T00:00")).as_one()
    assert (of.site.zones, of.site.max_counts, of.counts[5].tolist()) == (("building",), (110,), [6])


@pytest.mark.parametrize(("measured", "before"), [(0, 0), (1, -1)])
def test_numbers_of_days_out_of_range_are_refused(measured: int, before: int) -> None:
    with pytest.raises(UsageError, match="days must be"):
        world(ends("2018-02-01T00:00", "2018-02-02T00:00"), measured, before)


def test_counts_of_another_shape_are_refused() -> None:
    times = ends("2018-02-01T00:00", "2018-02-02T00:00")
    with pytest.raises(UsageError, match="for each time and zone"):
        world_of(SITE, times, np.zeros((len(times), 3), dtype=np.int64), 1)
    with pytest.raises(UsageError, match="must ascend"):
        world_of(SITE, times[::-1], np.zeros((len(times), 2), dtype=np.int64), 1)


def test_a_recording_of_less_than_a_day_has_too_little() -> None:
    with pytest.raises(DataError, match="got 0"):
        world(np.arange(DAY, DAY + HOUR, SITE.tick, dtype=np.int64))
