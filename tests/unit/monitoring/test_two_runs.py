"""One person more: every figure is the same, at every moment, but for named timings, sizes and sums over many.

Two runs of one building, with the same key, clock and heartbeats, of which the second has one person's observations
more; and whatever they show, a look at it after every message of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS, METRICS, TRAFFIC_INTERVAL, Nature
from connectors.monitoring.engine import EngineMetrics
from connectors.monitoring.metric_values import MetricValues
from connectors.monitoring.monitor import Monitor
from connectors.operations.monitoring.watches import watch_embedded, watch_key, watch_receiver, watch_store
from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.queue import Counters
from connectors.storage.embedded.runner import opened
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.records import MINUTE, SECOND, Heartbeat, Micros, ObservationBatch
from stream.release.validation import Policy, load_policy
from tests.support.small_building import (
    ACCESS_POINTS,
    ATTRIBUTES,
    COUNTS,
    EVENING,
    SITE,
    Seen,
    building,
    laboratory,
    messages,
    people,
    policy_text,
)

ROOM = 'access_points = ["02:00:00:00:00:01"'
TEXT = policy_text(COUNTS + ATTRIBUTES).replace('daily_budget = { board = "10" }', 'daily_budget = { board = "5" }')
MANY = load_policy(TEXT.replace(f"{ROOM}]", f'{ROOM}, "02:00:00:00:01:01", "02:00:00:00:01:02"]'))
"""The building with eight access points."""
FEW = building()
OTHERS = people(hours=29, devices=10)
MORE = [Seen(EVENING + n * 11 * MINUTE, "a4:00:00:00:77:77", ACCESS_POINTS["abcd"[n % 4]]) for n in range(1, 140)]
TOLD_OF_PEOPLE = {
    "tacet_lag_seconds", "tacet_window_release_delay_seconds", "tacet_key_epoch_age_seconds",
    "tacet_clock_offset_seconds", "tacet_certificate_expiry_seconds", "tacet_store_size_bytes", "tacet_disk_free_bytes",
    "tacet_datagrams_total", "tacet_datagrams_accepted_total", "tacet_datagrams_dropped_total",
    "tacet_kernel_drops_total", "tacet_sightings_total", "tacet_observations_total", "tacet_observations_dropped_total",
    "tacet_quarantined_total",
}  # fmt: skip
"""Timings in whole seconds, sizes in whole steps, and traffic; nothing else may tell two runs apart."""
Shown = dict[str, Any]


def shown(figures: MetricValues) -> Shown:
    return {family.metric.name: (dict(family.values), dict(family.histograms)) for family in figures.families()}


def run(folder: Path, key: Path, policy: Policy, seen: list[Seen]) -> Iterator[tuple[Micros, Shown]]:
    """Yield, behind each heartbeat, its time and what is shown then."""
    now = [EVENING]
    monitor = Monitor("run", policy, None, lambda: now[0])
    watch_key(monitor, key)
    monotonic = 0
    with opened(policy, key, folder) as (runner, _):
        watch_store(monitor, folder)
        watch_embedded(monitor, runner, policy, live=False)
        for message in messages(sorted(seen), policy):
            runner.process(message)
            if isinstance(message, Heartbeat):
                monotonic += max(0, message.watermark - now[0])
                now[0] = max(now[0], message.watermark)
                monitor.health.check()
                for look, _ in monitor._checks:
                    look()
                monitor.traffic.update(now[0], monotonic)
                yield now[0], shown(monitor.metrics)
    assert not isinstance(message, ObservationBatch)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    key_files.create(path, laboratory=True)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stores of both runs are."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runs(folder: Path, key: Path) -> list[list[tuple[Micros, Shown]]]:
    return [list(run(folder / str(number), key, MANY, seen)) for number, seen in enumerate((OTHERS, OTHERS + MORE))]


def test_what_may_differ_is_what_the_catalogue_calls_so() -> None:
    assert {metric.name for metric in METRICS if metric.nature is not Nature.PUBLIC} == TOLD_OF_PEOPLE


def test_one_person_more_changes_no_other_figure_at_any_moment(runs: list[list[tuple[Micros, Shown]]]) -> None:
    without, with_more = runs
    assert [time for time, _ in without] == [time for time, _ in with_more]
    for (time, one), (_, other) in zip(without, with_more, strict=True):
        differing = {name for name in one if one[name] != other[name]}
        assert differing <= TOLD_OF_PEOPLE, time


def test_the_two_runs_did_release_and_were_counted(runs: list[list[tuple[Micros, Shown]]]) -> None:
    """Equal figures of nothing would be equal too."""
    last = [stored[-1][1] for stored in runs]
    for shown_last in last:
        assert sum(shown_last["tacet_releases_total"][0].values()) > 100
        assert sum(shown_last["tacet_refusals_total"][0].values()) > 0
        assert len(shown_last["tacet_privacy_spent_epsilon"][0]) > 20
        assert shown_last["tacet_budget_left_epsilon"][0][SITE, "plain", "board", "window"] == 0
    one, other = (stored["tacet_observations_total"][0][()] for stored in last)
    assert 0 < other - one <= len(MORE)


def test_traffic_steps_at_points_of_the_grid_alone(runs: list[list[tuple[Micros, Shown]]]) -> None:
    steps = 0
    for stored in runs:
        for (_, before), (time, after) in pairwise(stored):
            if before["tacet_observations_total"] != after["tacet_observations_total"]:
                assert time % TRAFFIC_INTERVAL < SECOND
                steps += 1
    assert steps > 10


def test_of_six_access_points_no_traffic_is_told(tmp_path: Path, key: Path) -> None:
    assert len(ACCESS_POINTS) < LEAST_ACCESS_POINTS
    reported = [each["tacet_observations_total"] for _, each in run(tmp_path / "store", key, FEW, OTHERS[:300])]
    assert len(reported) > 20
    assert {value for values, _ in reported for value in values.values()} <= {0}


class Heard:
    """What is watched of a receiver that has heard so many datagrams, of which it dropped some."""

    def __init__(self, datagrams: int, late: int) -> None:
        self.counters = Counters(datagrams=datagrams, accepted=datagrams - late, dropped={"malformed": late})
        self.counters.kernel_drops = late
        self.clock = AnchoredClock(lambda: EVENING, lambda: 0)
        self.state = Ingest.of_policy(MANY, b"k" * 32).initial(EVENING)


def heard(datagrams: int, late: int) -> Shown:
    monitor, receiver = Monitor("ingest", MANY, None, lambda: EVENING), Heard(0, 0)
    watch_receiver(monitor, receiver, MANY)  # type: ignore[arg-type]
    receiver.counters = Heard(datagrams, late).counters
    monitor.run_checks()
    assert monitor.health.checks() == {"feed": True, "intake": True}
    return shown(monitor.metrics)


def test_what_an_ingest_has_heard_is_told_by_its_traffic_alone_and_not_before_the_grid_says_so() -> None:
    one, other = heard(500, 3), heard(501, 4)
    assert one == other
    assert one["tacet_datagrams_total"][0] == {(): 0}


STANDING = (
    "tacet_privacy_spent_epsilon", "tacet_budget_epsilon", "tacet_budget_left_epsilon",
    "tacet_window_end_timestamp_seconds", "tacet_ledger_entries",
)  # fmt: skip


def test_what_was_spent_and_is_left_is_told_again_after_a_restart_before_any_window_closes(
    folder: Path, key: Path, runs: list[list[tuple[Micros, Shown]]]
) -> None:
    now, before = runs[0][-1]
    monitor = Monitor("run", MANY, None, lambda: now)
    with opened(MANY, key, folder / "0") as (runner, _):
        watch_embedded(monitor, runner, MANY, live=False)
        after = shown(monitor.metrics)
    assert {name: after[name] for name in STANDING} == {name: before[name] for name in STANDING}
    assert all(before[name][0] for name in STANDING)
    assert sum(after["tacet_releases_total"][0].values()) == 0, "they were another process's"


def test_a_store_in_which_nothing_was_released_tells_of_no_spending(tmp_path: Path, key: Path) -> None:
    monitor = Monitor("run", MANY, None, lambda: EVENING)
    with opened(MANY, key, tmp_path / "store") as (runner, _):
        watch_embedded(monitor, runner, MANY, live=False)
        assert not any(shown(monitor.metrics)[name][0] for name in STANDING)


def test_a_site_is_not_shown_before_a_source_has_reported_whoever_was_seen_there() -> None:
    """Its figures would say within which seconds of a start somebody came."""
    log, partition = list(messages(OTHERS, FEW)), PartitionEngine(FEW, laboratory())
    figures = MetricValues("run", lambda: EVENING)
    engine = EngineMetrics(figures, FEW, lambda: [partition], lambda: EVENING)
    engine.update()
    nobody = shown(figures)
    partition.process(0, None, encode_message(next(each for each in log if isinstance(each, ObservationBatch))))
    engine.update()
    assert shown(figures) == nobody
    partition.process(1, None, encode_message(next(each for each in log if isinstance(each, Heartbeat))))
    engine.update()
    assert shown(figures)["tacet_ledger_entries"][0] == {(SITE,): 0}


def test_a_site_of_which_no_source_has_reported_keeps_no_key() -> None:
    """Otherwise whether somebody was seen there would decide when a day's key is destroyed."""
    policy = building(sites=(SITE, f"{SITE}1"))
    partition = PartitionEngine(policy, laboratory())
    log = [each for each in messages(people(hours=2), policy) if each.site == SITE]
    for offset, message in enumerate(log):
        partition.process(offset, None, encode_message(message))
    needed = partition.sites.oldest_key_day_needed()
    assert needed is not None
    batch = next(each for each in log if isinstance(each, ObservationBatch))
    partition.process(len(log), None, encode_message(replace(batch, site=f"{SITE}1")))
    assert partition.sites.oldest_key_day_needed() == needed
