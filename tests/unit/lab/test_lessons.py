"""Lessons: true counts of simulated people, released by the real mechanisms, and the detective's questions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from connectors.lab.simulation.lessons import (
    EPSILONS,
    MECHANISMS,
    ROUNDS,
    TASKS,
    WINDOW,
    WINDOWS,
    case,
    day_released,
    lessons,
    places_shown,
    true_counts,
)
from stream.errors import UsageError
from stream.lab.simulator.visits import Visits
from stream.mechanisms.base import WeekSlot

MINUTE = 60_000_000


def visits(*stays: tuple[int, int, int]) -> Visits:
    """Return stays of one device each: zone, first and last minute."""
    zone, start, end = (np.array(column, dtype=np.int64) for column in zip(*stays, strict=True))
    return Visits(np.arange(len(stays)), zone, start * MINUTE, end * MINUTE, np.zeros(len(stays), dtype=np.int64))


def test_a_stay_counts_at_the_ticks_from_its_start_to_before_its_end() -> None:
    ends = np.array([5, 10, 15, 20]) * MINUTE
    counts = true_counts(visits((0, 10, 20), (1, 6, 9), (0, 0, 11)), ends, 2)
    assert counts.tolist() == [[1, 0], [2, 0], [1, 0], [0, 0]]


def test_the_truth_is_the_stays_of_the_simulated_people() -> None:
    of = lessons()
    stays, end = of.simulation.visits, int(of.ends[150])
    there = stays.zone[(stays.start <= end) & (end < stays.end)]
    assert of.counts[150].tolist() == np.bincount(there, minlength=len(of.zones)).tolist()


@pytest.mark.parametrize(
    ("local", "slot"),
    [("2018-02-05T08:30", WeekSlot(17, 8, False)), ("2018-02-10T23:55", WeekSlot(47, 23, True))],
)
def test_a_window_is_of_the_half_hour_of_the_buildings_own_week(local: str, slot: WeekSlot) -> None:
    end = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo("America/Los_Angeles"))
    assert lessons().slot(round(end.timestamp()) * 1_000_000) == slot


def test_the_busiest_zones_are_those_with_the_highest_peaks() -> None:
    of = lessons()
    rooms = of.busiest("classroom", "open")
    peaks = [of.counts[:, room].max() for room in rooms]
    assert peaks == sorted(peaks, reverse=True)
    assert sorted(rooms) == [n for n, kind in enumerate(of.simulation.building.kinds) if kind in ("classroom", "open")]


@pytest.mark.parametrize(
    "mechanism", [pytest.param(each, marks=pytest.mark.long) if each == "filter" else each for each in MECHANISMS]
)
def test_more_epsilon_is_less_error(mechanism: Any) -> None:
    def error(epsilon: Any) -> float:
        made = day_released("building", mechanism, epsilon)
        return float(np.abs(made.values - made.truth).mean())

    assert error("10") < error("1") < error("0.1") < error("0.01")


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bands_of_plain_noise_hold_the_truth_as_often_as_they_say(epsilon: Any) -> None:
    """Of 4 x 288 windows with bands of 95 % or more, fewer than 1,035 hold the truth by a chance of 1e-11 at most."""
    inside = 0
    for place in places_shown(lessons()):
        made = day_released(place, "laplace", epsilon)
        inside += int((np.abs(made.values - made.truth) <= made.half_widths).sum())
    assert inside >= 1035


def test_the_same_day_is_released_the_same_way_again() -> None:
    first = day_released("building", "pegasus", "1")
    day_released.cache_clear()
    assert (day_released("building", "pegasus", "1").values == first.values).all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "number", [0, 7, *(pytest.param(n, marks=pytest.mark.long) for n in range(ROUNDS) if n not in (0, 7))]
)
def test_the_truth_has_all_points_in_every_round(task: Any, number: int) -> None:
    found = case(task, number, "1")
    assert found.score(found.truth) == (0, 100)


@pytest.mark.parametrize("task", TASKS)
def test_truth_does_not_depend_on_epsilon_but_what_is_shown_does(task: Any) -> None:
    small, large = case(task, 7, "1"), case(task, 7, "10")
    assert small.truth == large.truth
    assert (small.series[0].values != large.series[0].values).any()


@pytest.mark.parametrize("rounds", [(0, 7), pytest.param(range(ROUNDS), marks=pytest.mark.long)])
def test_at_a_large_epsilon_the_values_alone_answer_nearly_all(rounds: Iterable[int]) -> None:
    points = [found.score(found.machine).points for task in TASKS for n in rounds for found in [case(task, n, "10")]]
    assert sum(points) / len(points) > 90


def test_rounds_are_not_all_alike() -> None:
    for task in TASKS:
        assert len({case(task, number, "1").truth for number in (0, 7)}) > 1


@pytest.mark.long
def test_of_all_rounds_more_than_three_differ() -> None:
    for task in TASKS:
        assert len({case(task, number, "1").truth for number in range(ROUNDS)}) > 3


def test_a_broken_sensor_shows_noise_and_no_device() -> None:
    found = case("stuck", 2, "1")
    hour, minute = map(int, found.truth.split(":"))
    broken = (hour * 60 + minute) // 5 - 1
    [series] = found.series
    assert np.abs(series.values[broken:]).mean() < series.half_widths[0]
    assert series.values[broken - 1] > series.half_widths[0]


def test_a_night_runs_from_18_to_06() -> None:
    found = case("region", 0, "1")
    of, series = lessons(), found.series[0]
    assert len(series.ends) == 12 * 60 * 60 * 1_000_000 // WINDOW
    assert (int(series.ends[0]) - WINDOW - int(of.simulation.start)) // WINDOW % WINDOWS == 18 * 12


@pytest.mark.parametrize("answer", ["", "12", "12:", ":30", "00:00", "24:01", "-1:00", "x:10"])
def test_a_time_that_is_none_is_refused(answer: str) -> None:
    with pytest.raises(UsageError, match="answer: must be"):
        case("stuck", 0, "1").score(answer)


def test_times_off_are_counted_in_windows() -> None:
    found = case("event", 0, "1")
    hour, minute = map(int, found.truth.split(":"))
    later = hour * 60 + minute + 30
    assert found.score(f"{later // 60:02}:{later % 60:02}") == (6, 50)
