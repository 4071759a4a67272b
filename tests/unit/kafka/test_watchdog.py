"""Assigned partitions that do not open end the worker after a stated time, or when it is stopped."""

from __future__ import annotations

import logging

import pytest

from connectors.storage.kafka.watchdog import LONGEST_STEP, StalledError, Watchdog

LIMIT, NOTICE = 300.0, 6.0


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watchdog(clock: Clock) -> Watchdog:
    return Watchdog(LIMIT, NOTICE, clock)


def look(watchdog: Watchdog, clock: Clock, unopened: list[int], seconds: float, step: float = 0.25) -> None:
    """Look now and then for so many seconds."""
    for _ in range(int(seconds / step)):
        clock.now += step
        watchdog.check(unopened)


def test_what_has_not_opened_in_time_ends_the_worker_by_name(watchdog: Watchdog, clock: Clock) -> None:
    look(watchdog, clock, [0, 3], LIMIT)
    clock.now += 0.25
    with pytest.raises(StalledError, match=r"^partitions 0, 3 were assigned and have not opened within 300 s$"):
        watchdog.check([0, 3])


def test_what_opens_in_between_begins_anew(watchdog: Watchdog, clock: Clock) -> None:
    look(watchdog, clock, [0, 3], LIMIT - 1)
    look(watchdog, clock, [3], 0.5)
    look(watchdog, clock, [], 0.25)
    look(watchdog, clock, [0, 3], LIMIT - 1)


def test_each_partition_has_its_own_time(watchdog: Watchdog, clock: Clock) -> None:
    look(watchdog, clock, [0], LIMIT - 1)
    look(watchdog, clock, [1], LIMIT - 1)
    look(watchdog, clock, [1, 2], 1)
    clock.now += 0.5
    with pytest.raises(StalledError, match=r"^partition 1 was assigned and has not opened within 300 s$"):
        watchdog.check([1, 2])


def test_time_in_which_the_process_did_not_run_does_not_count(watchdog: Watchdog, clock: Clock) -> None:
    look(watchdog, clock, [0], LIMIT - 2 * LONGEST_STEP)
    clock.now += 3600.0
    watchdog.check([0])


def test_a_worker_told_to_stop_says_what_has_not_opened_for_long(watchdog: Watchdog, clock: Clock) -> None:
    assert watchdog.late([]) is None
    look(watchdog, clock, [0, 1], NOTICE)
    assert watchdog.late([0, 1]) is None, "an ordinary opening is no fault"
    look(watchdog, clock, [0, 1], 36.0)
    late = watchdog.late([0, 1])
    assert isinstance(late, StalledError)
    assert str(late) == "stopped while partitions 0, 1 were assigned and had not opened for 42 s"
    assert watchdog.late([]) is None, "they have opened since the last check"
    assert str(watchdog.late([1])) == "stopped while partition 1 was assigned and had not opened for 42 s"
    look(watchdog, clock, [], 0.25)
    assert watchdog.late([0, 1]) is None


def test_it_is_logged_once_when_an_opening_takes_long(
    watchdog: Watchdog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        look(watchdog, clock, [0, 1], 4 * NOTICE)
    assert caplog.messages == ["partitions 0, 1 were assigned and have not opened for 6 s"]
