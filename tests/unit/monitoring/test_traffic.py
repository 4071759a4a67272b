"""What depends on people is summed over eight access points and five minutes, and steps on the clock's grid alone."""

from __future__ import annotations

import pytest

from connectors.monitoring.catalogue import BY_NAME, LEAST_ACCESS_POINTS, METRICS, TRAFFIC_INTERVAL, Metric, Nature
from connectors.monitoring.metric_values import MetricValues, Part, Traffic
from stream.records import MINUTE, SECOND, Micros

NAME = "tacet_observations_total"
GRID = 1_700_000_100 * SECOND // TRAFFIC_INTERVAL * TRAFFIC_INTERVAL


class Scenario:
    """Counters of some sites, a clock, and what is told of them."""

    def __init__(self, **access_points: int) -> None:
        self.parts = {site: Part(number, {(NAME,): 0}) for site, number in access_points.items()}
        self.figures, self.now, self.monotonic = MetricValues("worker", lambda: GRID), GRID + 90 * SECOND, 5 * SECOND
        self.traffic = Traffic(self.figures)
        self.traffic.count(lambda: self.parts)
        self.look()

    def came(self, site: str, rows: int) -> None:
        points, counts = self.parts[site]
        self.parts[site] = Part(points, {(NAME,): counts[NAME,] + rows})

    def look(self) -> None:
        self.traffic.update(self.now, self.monotonic)

    def until(self, time: Micros, every: Micros = SECOND) -> None:
        """Go on to a time of the wall clock, looking every second."""
        while self.now < time:
            step = min(every, time - self.now)
            self.now += step
            self.monotonic += step
            self.look()

    @property
    def told(self) -> float:
        (family,) = [family for family in self.figures.families() if family.metric.name == NAME]
        return family.values[()]


def test_nothing_is_told_between_two_points_of_the_grid() -> None:
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    before = scenario.told
    scenario.came("dbh", 40)
    scenario.until(GRID + 3 * TRAFFIC_INTERVAL - SECOND)
    assert scenario.told == before
    scenario.until(GRID + 3 * TRAFFIC_INTERVAL)
    assert scenario.told == before + 40


@pytest.mark.parametrize("begun", [1, 90, 299])
def test_the_first_step_comes_when_the_help_text_says(begun: int) -> None:
    """It comes 5 to 10 minutes after the start, whenever the process starts between two points of the grid."""
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS)
    scenario.now = start = GRID + begun * SECOND
    scenario.traffic.count(lambda: scenario.parts)  # the interval starts again here
    scenario.look()
    scenario.came("dbh", 3)
    while scenario.told == 0:
        scenario.until(scenario.now + SECOND)
    assert 5 * MINUTE - SECOND <= scenario.now - start <= 10 * MINUTE
    assert "every 5 minutes on the clock" in BY_NAME[NAME].text
    assert "first 5 to 10 minutes after the start" in BY_NAME[NAME].text


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_traffic_says_that_it_steps_on_the_grid_and_nothing_else_does(metric: Metric) -> None:
    assert ("on the clock" in metric.text) == (metric.nature is Nature.TRAFFIC)


def test_the_first_step_too_holds_five_minutes_at_least() -> None:
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS)  # begun 90 s behind a point of the grid
    scenario.came("dbh", 3)
    scenario.until(GRID + TRAFFIC_INTERVAL + 4 * MINUTE)
    assert scenario.told == 0
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    assert scenario.told == 3


def test_of_seven_access_points_nothing_is_told_ever() -> None:
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS - 1)
    scenario.came("dbh", 500)
    scenario.until(GRID + 12 * TRAFFIC_INTERVAL)
    assert scenario.told == 0


def test_sites_are_told_together_where_together_they_have_enough() -> None:
    scenario = Scenario(dbh=5, icb=3)
    scenario.came("dbh", 7)
    scenario.came("icb", 2)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    assert scenario.told == 9


def test_a_site_that_has_just_come_does_not_make_the_others_enough() -> None:
    scenario = Scenario(dbh=5)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    scenario.came("dbh", 7)
    scenario.parts["icb"] = Part(3, {(NAME,): 1000})
    scenario.until(GRID + 3 * TRAFFIC_INTERVAL)
    assert scenario.told == 0
    scenario.came("icb", 1)
    scenario.until(GRID + 4 * TRAFFIC_INTERVAL)
    assert scenario.told == 8, "what came since, of both; not what the other one had counted before"


def test_a_site_that_leaves_is_not_told_of_any_more() -> None:
    scenario = Scenario(dbh=5, icb=3)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    scenario.came("dbh", 7)
    del scenario.parts["icb"]
    scenario.until(GRID + 5 * TRAFFIC_INTERVAL)
    assert scenario.told == 0


def test_a_site_whose_counts_fall_has_begun_anew() -> None:
    scenario = Scenario(dbh=8, icb=8)
    scenario.came("icb", 20)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    scenario.parts["icb"] = Part(8, {(NAME,): 4})
    scenario.came("dbh", 1)
    scenario.until(GRID + 3 * TRAFFIC_INTERVAL)
    assert scenario.told == 21
    scenario.came("icb", 5)
    scenario.until(GRID + 4 * TRAFFIC_INTERVAL)
    assert scenario.told == 26


def test_a_point_that_a_busy_loop_comes_late_to_is_passed_over() -> None:
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL - SECOND)
    scenario.came("dbh", 6)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL + 3 * SECOND, every=10 * SECOND)
    assert scenario.told == 0
    scenario.until(GRID + 3 * TRAFFIC_INTERVAL)
    assert scenario.told == 6


@pytest.mark.parametrize("leap", [TRAFFIC_INTERVAL, -TRAFFIC_INTERVAL])
def test_a_wall_clock_that_is_set_makes_no_step_shorter(leap: Micros) -> None:
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    scenario.came("dbh", 6)
    scenario.now += leap
    scenario.look()
    assert scenario.told == 0


def test_what_counts_later_takes_its_five_minutes_too() -> None:
    scenario = Scenario(dbh=LEAST_ACCESS_POINTS)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL - MINUTE)
    scenario.traffic.count(lambda: {"": Part(LEAST_ACCESS_POINTS, {("tacet_quarantined_total", "row"): 0})})
    scenario.came("dbh", 6)
    scenario.until(GRID + 2 * TRAFFIC_INTERVAL)
    assert scenario.told == 0
