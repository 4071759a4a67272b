"""One policy, one key and one mechanism version work at a time: others are refused, or take over with consent."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation import occupancy
from tests.simulation.processes import Process
from tests.simulation.started_workers import Scenario, prepared
from tests.support.later_mechanism_version import LATER


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    with prepared(tmp_path) as made:
        yield made


def refused(scenario: Scenario, worker: Process, reason: str) -> None:
    """Assert that a worker ends with 2 and gives the reason in one line."""
    scenario.until(lambda: not worker.alive)
    assert worker.exit_code == 2
    lines = [line for line in scenario.world.trace.lines if f"{worker.name:<10} worker stopped: " in line]
    assert [reason in line for line in lines] == [True]


def ended_well(scenario: Scenario, worker: Process) -> None:
    worker.signal(signal.SIGTERM)
    scenario.until(lambda: not worker.alive)
    assert worker.exit_code == 0


def releases(scenario: Scenario) -> int:
    return min(map(scenario._visible, occupancy.PRIVATE))


def test_one_policy_and_one_key_work_at_a_time(scenario: Scenario) -> None:
    """Another key or policy is refused in one line; who carries consent takes over, and the former displaces nobody."""
    first = scenario.worker("first", accept_policy=True)
    scenario.until(lambda: releases(scenario) >= 6)
    refused(scenario, scenario.worker("unasked", occupancy.CHANGED), "policy: must be version")
    other = scenario.key.with_name("other")
    occupancy.create_key(other)
    refused(scenario, scenario.worker("stranger", key=other), "key: must be the one")
    assert first.alive

    second = scenario.worker("second", occupancy.CHANGED, accept_policy=True)
    refused(scenario, first, "which the cluster has accepted in the meantime")
    again = scenario.worker("again", accept_policy=True)
    refused(scenario, again, "accepted as number 2 in place of the one given")
    before = releases(scenario)
    scenario.until(lambda: releases(scenario) >= before + 6)
    third = scenario.worker("third", accept_policy=True, again=2)
    refused(scenario, second, "which the cluster has accepted in the meantime")
    scenario.until(scenario._complete)
    ended_well(scenario, third)
    assert scenario.check() == []
    assert set(scenario.begun().values()) == {occupancy.POLICY.version, occupancy.CHANGED.version}


def test_workers_of_the_version_before_that_still_run_end_when_the_next_begins(scenario: Scenario) -> None:
    """The next begins with consent alone, and none of the version before comes back."""
    running = scenario.worker("running")
    scenario.until(lambda: releases(scenario) >= 6)
    unasked = scenario.worker("unasked", later=True)
    scenario.until(lambda: not unasked.alive)
    assert unasked.exit_code == 2, "without consent"
    assert running.alive
    following = scenario.worker("following", later=True, accept_policy=True)
    refused(scenario, running, f"mechanism version: must be {LATER}, which the cluster has accepted in the meantime")
    scenario.until(scenario._complete)
    back = scenario.worker("back", accept_policy=True)
    refused(scenario, back, f"to continue from, got {LATER}; 'tacet recover' lists")
    ended_well(scenario, following)
    assert scenario.check() == []
