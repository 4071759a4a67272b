"""Utilities of heat map and building, by hand; and what a detective's answers are worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.lab.tuning.bench import exact_release, prepared
from stream.lab.tuning.detective import COMING, REGIONS, _limit, detective
from stream.lab.tuning.utility import Released, Site, World, building_utility, heatmap_utility, measured, world_of
from stream.mechanisms.exact import Ints
from stream.records import MINUTE

TICK = 5 * MINUTE
DAY_TICKS = 288
START = 17_000 * 288 * TICK
"""A UTC midnight."""


def world(counts: Any, measured: int = 1, before: int = 0) -> World:
    """Return a world at Greenwich of counts, shape [whole days of windows, zones]."""
    table: Ints = np.asarray(counts, dtype=np.int64)
    names = tuple(f"z{place}" for place in range(table.shape[1]))
    site = Site("dbh", "UTC", names, (500,) * len(names), TICK)
    times = START + TICK * np.arange(1, len(table) + 1, dtype=np.int64)
    return world_of(site, times, table, measured, before)


def days(*counts: int, zones: int = 1) -> Ints:
    """Return days in each of which all counts are alike."""
    return np.repeat(np.array(counts, dtype=np.int64), DAY_TICKS)[:, None].repeat(zones, axis=1)


def everything(of: World) -> Any:
    return of.measures("all")


# --- heat map --------------------------------------------------------------------------------------------------------


def test_a_heat_map_s_utility_is_by_distance_of_colours_under_what_was_usual_before() -> None:
    """Usual are 10 and 20: mean 15, deviation 5. 15 has colour 6, 20 has 8: two of nine."""
    of = world(days(10, 20, 15))
    utility = heatmap_utility(of, everything(of))
    assert utility(exact_release(days(15))).utility == 1
    assert utility(exact_release(days(20))).utility == pytest.approx(1 - 2 / 9)
    assert utility(exact_release(days(500))).utility == pytest.approx(1 - 4 / 9)


def test_the_measured_day_is_no_part_of_what_is_usual() -> None:
    """1000 and 26 are both far above 15 with deviation 5; not so above what 1000 itself would make usual."""
    of = world(days(10, 20, 1000))
    assert heatmap_utility(of, everything(of))(exact_release(days(26))).utility == 1


def test_what_is_usual_is_of_the_same_time_of_day() -> None:
    morning = np.concatenate([np.full(144, 30), np.full(144, 0)])[:, None]
    of = world(np.concatenate([morning, morning, morning]))
    assert heatmap_utility(of, everything(of))(exact_release(morning)).utility == 1
    evening = morning[::-1]
    assert heatmap_utility(of, everything(of))(exact_release(evening)).utility < 0.6


def test_only_the_hours_that_are_asked_for_are_measured() -> None:
    of = world(days(10, 20, 15))
    spoilt = days(15)
    spoilt[of.measures("night")] = 500
    assert heatmap_utility(of, of.measures("day"))(exact_release(spoilt)).utility == 1
    assert heatmap_utility(of, of.measures("night"))(exact_release(spoilt)).utility < 1


def test_a_heat_map_needs_two_days_before() -> None:
    of = world(days(10, 15))
    with pytest.raises(DataError, match="at least two days before"):
        heatmap_utility(of, everything(of))


# --- building --------------------------------------------------------------------------------------------------------


def test_a_building_s_utility_is_one_less_mean_error_by_mean_count_day_by_day() -> None:
    of = world(days(10, 40, zones=2), measured=2).as_one()
    released = exact_release(days(24, 70))
    assert building_utility(of, everything(of))(released).utility == pytest.approx(1 - (4 / 20 + 10 / 80) / 2)


def test_a_building_s_utility_may_be_below_nothing() -> None:
    of = world(days(10)).as_one()
    assert building_utility(of, everything(of))(exact_release(days(-20))).utility == pytest.approx(-2)


def test_a_day_on_which_nobody_comes_has_no_utility() -> None:
    of = world(days(10, 0), measured=2).as_one()
    with pytest.raises(DataError, match="a count above 0 on each measured day"):
        building_utility(of, everything(of))


def test_no_window_has_no_utility() -> None:
    of = world(days(10, 10, 10))
    for make in (heatmap_utility, building_utility):
        with pytest.raises(DataError, match="a window to be measured"):
            make(of, np.zeros(DAY_TICKS, dtype=np.bool_))


def test_spread_is_over_all_cells_over_times_and_over_places() -> None:
    found = measured(np.array([[1.0, 0.0], [0.5, 0.5]]))
    assert found == pytest.approx((0.5, np.sqrt(0.125), 0.0, 0.25))


# --- tasks -----------------------------------------------------------------------------------------------------------


def building(seed: int = 4, measured_days: int = 3) -> World:
    """Return a building of 14 zones, unlike in size, in which people are from six to eighteen hours."""
    generator = np.random.default_rng(seed)
    open_hours = np.sin(np.clip((np.arange(DAY_TICKS) - 72) / 144, 0, 1) * np.pi)
    size = np.linspace(100, 12, 14)
    counts = np.rint(np.outer(np.tile(open_hours, measured_days + 1), size) + generator.random((288 * 4, 14)) * 3)
    return world(counts, measured=measured_days)


def test_the_truth_has_all_points_and_zeros_have_few() -> None:
    questions, plant = detective(building())
    truth = questions.world.counts[questions.world.released]
    assert questions.utility(exact_release(truth)).utility == 1
    assert questions.utility(exact_release(np.zeros_like(truth))).utility < 0.5
    assert (plant(building().counts[288:]) == truth).all()


def test_of_each_day_five_rooms_and_the_night_are_asked_and_of_all_three_sensors_and_three_events() -> None:
    questions, _ = detective(building())
    truth = questions.world.counts[questions.world.released]
    assert [task for task, _ in questions.offs(exact_release(truth))].count("above") == 15
    assert [task for task, _ in questions.offs(exact_release(truth))][15 + 3 :] == ["stuck"] * 3 + ["event"] * 3


@pytest.mark.parametrize("n", range(3))
def test_a_sensor_that_breaks_earlier_in_what_is_released_is_as_far_off(n: int) -> None:
    questions, _ = detective(building())
    released = questions.world.counts[questions.world.released].copy()
    zone, window = questions.broken[n]
    released[-DAY_TICKS + window - 6 :, zone] = 0
    assert sorted(off for task, off in questions.offs(exact_release(released)) if task == "stuck") == [0, 0, 6]


def test_noise_within_two_half_widths_is_no_sign_of_a_working_sensor() -> None:
    questions, _ = detective(building())
    truth = questions.world.counts[questions.world.released]
    noisy = Released(np.where(truth == 0, 6, truth), np.full_like(truth, 3))
    assert [off for task, off in questions.offs(noisy) if task == "stuck"] == [0, 0, 0]


def test_an_event_that_is_released_late_is_as_far_off() -> None:
    questions, _ = detective(building())
    zone, window = questions.events[0]
    released = questions.world.counts[questions.world.released].copy()
    for day in questions.days:
        released[day[window : window + 2], zone] -= COMING
    offs = [off for task, off in questions.offs(exact_release(released)) if task == "event"]
    assert offs == [2, 0, 0]


def test_a_window_in_which_many_are_counted_is_no_event() -> None:
    """People who come stay: three times as many in one window of 5 min are fewer than these within half an hour."""
    questions, _ = detective(building())
    released = questions.world.counts[questions.world.released].copy()
    for day in questions.days:
        released[day[200], questions.events[0].zone] += 3 * COMING
    assert [off for task, off in questions.offs(exact_release(released)) if task == "event"] == [0, 0, 0]


def test_a_window_that_ends_at_eighteen_is_no_part_of_the_night() -> None:
    counts = np.tile(np.array([2, 1]), (DAY_TICKS, 1))
    counts[18 * 12 - 1, 1] = 10_000
    questions, _ = detective(world(counts))
    released = exact_release(np.tile(np.array([2, 1]), (DAY_TICKS, 1)))
    assert [off for task, off in questions.offs(released) if task == "region"] == [0]


def test_regions_are_those_that_are_the_most_occupied_at_night() -> None:
    """Night is from 18 to 6: the rooms that are full by day are asked about only if people stay."""
    minutes = 5 * np.arange(1, DAY_TICKS + 1)
    night = (minutes > 18 * 60) | (minutes <= 6 * 60)
    counts = np.where(night[:, None], np.arange(REGIONS + 2), 100 * np.arange(REGIONS + 2)[::-1])
    questions, _ = detective(world(counts))
    assert questions.regions == tuple(range(REGIONS + 1, 1, -1))


def test_a_room_that_never_comes_near_its_capacity_has_three_fifths_of_its_largest_count() -> None:
    assert [_limit(np.array([0, largest])) for largest in (10, 70, 71)] == [6, 42, 60]


def test_tasks_have_hours_of_their_own() -> None:
    with pytest.raises(UsageError, match="hours of their own"):
        prepared(building(), "tasks", ["day"])


def test_a_building_in_which_nobody_is_has_no_tasks() -> None:
    with pytest.raises(DataError, match="a count above 0"):
        detective(world(days(0, 0)))


def test_a_building_of_one_zone_has_fewer_questions() -> None:
    questions, _ = detective(world(days(3, 9)))
    assert [task for task, _ in questions.offs(exact_release(days(9)))] == ["above", "region"]


def test_only_a_day_of_24_hours_is_asked_about() -> None:
    of = building()
    with pytest.raises(DataError, match="24 hours"):
        detective(replace(of, days=np.arange(len(of.days))))
