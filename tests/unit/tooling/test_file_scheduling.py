"""The order of files over several workers: half of the workers begin with those that wait for brokers."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.workermanage import WorkerController

from tests.support.file_scheduling import FileScheduling, waits_for_broker

BROKER = ("tests/integration/test_claims.py", "tests/integration/test_three_brokers.py")
NONE = ("tests/acceptance/test_cli.py", "tests/laws/test_change_neighbours.py", "tests/unit/tooling/test_patience.py")


class Worker:
    """Takes down which tests it is sent."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, indices: Iterable[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_files_that_ask_for_a_broker_are_known_by_their_text() -> None:
    assert [waits_for_broker(file) for file in (*BROKER, *NONE)] == [True, True, False, False, False]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_half_of_the_workers_begin_with_files_that_wait_and_all_files_are_run_once(workers: int) -> None:
    config = SimpleNamespace(getvalue=lambda _: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=False))
    scheduling = FileScheduling(cast("Any", config))
    nodes = [cast("WorkerController", Worker()) for _ in range(workers)]
    tests = [f"{file}::test_{number}" for file in (*NONE, *BROKER) for number in range(3)]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, tests)
    scheduling.schedule()
    first = [tests[node.sent[0]].partition("::")[0] for node in nodes]
    waiting = (workers + 1) // 2
    assert [file in BROKER for file in first] == [True] * waiting + [False] * (workers - waiting)
    assert first[waiting:] == list(NONE[: workers - waiting]), "unit tests come last"
    done = 0
    while scheduling.has_pending:
        node = nodes[done % workers]
        remaining = [index for index in node.sent if not _completed(scheduling, node, tests[index])]
        if remaining:
            scheduling.mark_test_complete(node, remaining[0])
        done += 1
    assert sorted(index for node in nodes for index in node.sent) == list(range(len(tests)))


def _completed(scheduling: FileScheduling, node: WorkerController, test: str) -> bool:
    return bool(scheduling.assigned_work[node][test.partition("::")[0]][test])
