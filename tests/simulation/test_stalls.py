"""A worker opens what the group gives to it, however long that takes, or it ends with 1 and says why."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.storage.kafka.cluster import ENGINE_FENCE
from connectors.storage.kafka.timeouts import TRANSACTION_TIMEOUT
from tests.simulation import occupancy
from tests.simulation.kafka_brokers import Broker, Cluster
from tests.simulation.processes import Process
from tests.simulation.run import RESULTS, TOPICS
from tests.simulation.started_workers import Scenario, prepared

LONG = 22.0
"""Seconds for which an opening takes longer than any wait of Faust's or the group's."""
ALL = range(occupancy.PARTITIONS)
(PRIVATE,) = occupancy.PRIVATE


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    with prepared(tmp_path) as made:
        yield made


def cancel(process: Process, name: str) -> int:
    """Cancel the tasks of a process that have such a name, or run such a coroutine; return how many there are."""
    found = [
        task
        for task in process.tasks
        if name in task.get_name() or getattr(task.get_coro(), "__qualname__", "") == name
    ]
    for task in found:
        task.get_loop().call_soon(task.cancel)
    return len(found)


@pytest.mark.parametrize("why", ["it is paused", "its opening is slow"])
def test_who_takes_over_a_dead_workers_partitions_opens_them_however_long_that_takes(
    scenario: Scenario, why: str
) -> None:
    """Paused, it also loses its place in the group, and what it has begun to open is given to it again.

    The time for which it is paused does not count.
    """
    limit = LONG / 2 if why == "it is paused" else 2 * LONG
    survivor, other = scenario.worker("survivor", open_timeout=limit), scenario.worker("other")
    scenario.until(lambda: all(scenario.says(f"{name:<10} partition") for name in ("survivor", "other")))
    scenario.until(lambda: min(map(scenario._visible, occupancy.PRIVATE)) >= 6)
    scenario.held["survivor"] = ALL
    other.kill()
    scenario.until(lambda: scenario.says("survivor opens"))
    scenario.world.run(lambda: False, 1.0)  # in which the wait is noticed
    if why == "it is paused":
        survivor.pause()
    scenario.world.run(lambda: False, LONG)
    survivor.resume()
    scenario.held["survivor"] = ()
    scenario.until(scenario._complete)
    survivor.signal(signal.SIGTERM)
    scenario.until(lambda: not survivor.alive)
    assert survivor.exit_code == 0
    assert scenario.check() == []


def test_a_partition_that_goes_to_another_while_it_is_opened_again_ends_nobody(scenario: Scenario) -> None:
    """It was lost to another writer; its owner opens it again beside its other work, and a rebalance waits for that."""
    first = scenario.worker("first")
    scenario.until(lambda: scenario._visible(PRIVATE) >= 6)
    scenario.held["first"] = ALL
    scenario.cluster.transactions.init(f"{ENGINE_FENCE}-1", TRANSACTION_TIMEOUT)  # the one that the other worker gets
    scenario.until(lambda: scenario.says("first opens 1"))
    second = scenario.worker("second")
    scenario.until(lambda: scenario.says("2 members"))
    scenario.world.run(lambda: False, 1.0)
    scenario.held["first"] = ()
    scenario.until(scenario._complete)
    assert (first.alive, second.alive) == (True, True)
    assert scenario.says("partition 1 was taken away while it was opened")
    assert scenario.check() == []


def test_nothing_is_read_before_all_is_open_though_the_opening_before_ends_in_a_rebalance(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That opening lets messages flow, and the next one empties the queues when it ends: what they hold is lost."""
    answer = Cluster.answer

    def slow(cluster: Cluster, broker: Broker, request: Any) -> None:
        """Let transactions take so long that messages wait in the queues."""
        seconds = 1.5 * occupancy.SESSION_TIMEOUT if request.kind.__name__.startswith("EndTxn") else 0.0
        scenario.world.after(seconds, lambda: answer(cluster, broker, request))

    first, second = scenario.worker("first"), scenario.worker("second")
    scenario.until(lambda: scenario.says("2 members"))
    scenario.until(lambda: scenario._visible(PRIVATE) >= 6)
    scenario.held["first"] = ALL
    third = scenario.worker("third")
    scenario.until(lambda: scenario.says("first opens"))
    (of_second,) = (partition for partition in ALL if not scenario.says(f"first opens {partition}"))
    second.pause()  # so that the group waits for it when the third one leaves
    third.signal(signal.SIGTERM)
    scenario.world.run(lambda: False, occupancy.SESSION_TIMEOUT / 2)
    scenario.held["first"] = {of_second}
    scenario.until(lambda: scenario.says(f"first opens {of_second}"))
    monkeypatch.setattr(Cluster, "answer", slow)
    scenario.world.run(lambda: False, 1.2 * occupancy.SESSION_TIMEOUT)
    monkeypatch.setattr(Cluster, "answer", answer)
    scenario.held["first"] = ()
    second.kill()
    scenario.until(scenario._complete)
    assert first.alive
    assert scenario.says("partitions 0, 1 were assigned and have not opened for 6 s")
    assert scenario.check() == []


def test_partitions_that_do_not_open_in_time_end_the_worker_with_1_and_it_says_which(scenario: Scenario) -> None:
    stuck = scenario.worker("stuck", open_timeout=2.0, held=ALL)
    scenario.until(lambda: not stuck.alive)
    assert stuck.exit_code == 1
    assert scenario.says("worker stopped: StalledError: partitions 0, 1 were assigned and have not opened within 2 s")


def test_a_worker_told_to_stop_before_its_partitions_have_opened_ends_with_1(scenario: Scenario) -> None:
    stuck = scenario.worker("stuck", held=ALL)
    scenario.until(lambda: scenario.says("partitions 0, 1 were assigned and have not opened for 6 s"))
    stuck.signal(signal.SIGTERM)
    scenario.until(lambda: not stuck.alive)
    assert stuck.exit_code == 1
    assert scenario.says("StalledError: stopped while partitions 0, 1 were assigned and had not opened for")


@pytest.mark.parametrize("task", ["Recovery._restart_recovery", "Fetcher._fetcher", "Conductor._subscriber"])
def test_a_task_of_fausts_that_ends_by_itself_ends_the_worker_with_1_and_is_named(
    scenario: Scenario, task: str
) -> None:
    """Faust goes on without it, in the group, and does nothing."""
    maimed = scenario.worker("maimed")
    scenario.until(lambda: scenario.says("Worker ready"))
    assert cancel(maimed, task)
    scenario.until(lambda: not maimed.alive)
    assert maimed.exit_code == 1
    assert scenario.says("worker stopped: ")


@pytest.mark.parametrize("task", ["StrictConsumer._open", "_work"])
def test_work_that_is_cancelled_by_nobody_ends_the_worker_with_1_and_it_says_so(scenario: Scenario, task: str) -> None:
    """Its callers take a cancellation for their own, and say nothing."""
    maimed = scenario.worker("maimed", held=ALL)
    scenario.until(lambda: scenario.says("maimed opens"))
    assert cancel(maimed, task)
    scenario.until(lambda: not maimed.alive, occupancy.SESSION_TIMEOUT)
    assert maimed.exit_code == 1
    assert scenario.says("worker stopped: UnexpectedCancellationError: work was cancelled unexpectedly")


def test_requests_of_an_opening_that_are_cancelled_by_nobody_are_made_again(scenario: Scenario) -> None:
    """What waits for an answer over a connection that is cut may end so."""
    worker = scenario.worker("worker")
    scenario.until(lambda: scenario.says("Seek stream"))
    cancelled = 0
    for _ in range(50):
        cancelled += cancel(worker, "wait_for")
        scenario.world.run(lambda: False, 0.003)
    scenario.until(scenario._complete)
    assert cancelled
    assert worker.alive
    assert scenario.check() == []


def test_a_checkpoint_that_is_cancelled_by_nobody_ends_the_worker_with_1_and_what_it_held_comes_out_later(
    scenario: Scenario,
) -> None:
    maimed = scenario.worker("maimed")
    scenario.until(lambda: scenario._visible(PRIVATE) >= 6)

    def strike() -> bool:
        assert cancel(maimed, "PartitionTask._run_checkpoints")
        return False

    scenario.cluster.aims["maimed", "EndTxn", "before"] = strike
    scenario.until(lambda: not maimed.alive, 2 * LONG)
    assert maimed.exit_code == 1
    assert scenario.says("worker stopped: UnexpectedCancellationError: a checkpoint was cancelled")
    scenario.worker("heir")
    scenario.until(scenario._complete)
    assert scenario.check() == []


def test_every_topic_of_results_is_read() -> None:
    assert {*TOPICS.private, TOPICS.audit, TOPICS.account, TOPICS.quarantine} == set(RESULTS)
