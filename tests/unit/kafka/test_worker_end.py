"""How a worker ends, and with which exit code, on a virtual clock without a broker."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.storage.kafka import worker
from connectors.storage.kafka.worker import WorkerConfig
from stream.errors import UsageError
from tests.support.virtual_loop import run_virtually

OPEN, SESSION = 300.0, 6.0


class FakeConsumer:
    """Has been given two partitions."""

    grace = 0.0
    flow_active = True

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.ended: list[str] = []

    def unopened(self) -> list[int]:
        return self.closed

    def ended_tasks(self) -> list[str]:
        return self.ended

    async def reopen_lost(self) -> None:
        pass


class FakeApp:
    """An app whose start does what the test says."""

    def __init__(self, start: Callable[[FakeApp], Awaitable[None]], task_manager: Any) -> None:
        self._start, self.task_manager = start, task_manager
        self.consumer = FakeConsumer()
        self.crashed, self.crash_reason = False, None
        self.rebalancing, self.rebalancing_count = False, 1
        self.beacon = SimpleNamespace(data=self, children=[])

    async def start(self) -> None:
        asyncio.get_running_loop().call_later(10 * OPEN, told_to_stop)  # nothing here goes on for ever
        await self._start(self)

    async def stop(self) -> None:
        pass


class FakeJournal:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    async def start(self) -> None:
        pass


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """Run a worker whose app starts in a way; return the exit code and the last line logged at error."""

    def run(start: Callable[[FakeApp], Awaitable[None]]) -> tuple[int, str]:
        def app(*, task_manager: Any, **_: Any) -> FakeApp:
            return FakeApp(start, task_manager)

        monkeypatch.setattr(worker, "KafkaWriterFactory", FakeJournal)
        monkeypatch.setattr(worker, "create_app", app)
        config = WorkerConfig("nowhere:9", fence="f", session_timeout=SESSION, open_timeout=OPEN)
        code = run_virtually(worker.run_until_stopped(config, SimpleNamespace()))  # type: ignore[arg-type]
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
        return code, lines[-1] if lines else ""

    return run


def told_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_worker_that_works_and_is_told_to_stop_ends_with_0(ended: Any) -> None:
    async def start(app: FakeApp) -> None:
        asyncio.get_running_loop().call_later(5 * OPEN, told_to_stop)

    assert ended(start) == (0, "")


def test_one_whose_partitions_never_open_ends_with_1_and_names_them(ended: Any) -> None:
    """Also before its start is done, which waits for the first opening."""

    async def start(app: FakeApp) -> None:
        app.consumer.closed = [0, 1]
        await asyncio.Event().wait()

    said = "worker stopped: StalledError: partitions 0, 1 were assigned and have not opened within 300 s"
    assert ended(start) == (1, said)


def test_one_that_is_told_to_stop_while_they_have_long_not_opened_ends_with_1(ended: Any) -> None:
    async def start(app: FakeApp) -> None:
        app.consumer.closed = [0, 1]
        asyncio.get_running_loop().call_later(60.1, told_to_stop)

    said = "StalledError: stopped while partitions 0, 1 were assigned and had not opened for 60 s"
    assert ended(start) == (1, f"worker stopped: {said}")


def test_one_that_is_told_to_stop_during_an_ordinary_opening_ends_with_0(ended: Any) -> None:
    async def start(app: FakeApp) -> None:
        app.consumer.closed = [0, 1]
        asyncio.get_running_loop().call_later(SESSION / 2, told_to_stop)

    assert ended(start) == (0, "")


def test_one_of_which_a_task_has_ended_ends_with_1_and_names_it(ended: Any) -> None:
    async def start(app: FakeApp) -> None:
        asyncio.get_running_loop().call_later(60.0, app.consumer.ended.append, "aiokafka's fetcher")

    said = "aiokafka's fetcher: ended by itself; nothing is read without it"
    assert ended(start) == (1, f"worker stopped: StalledError: {said}")


def test_one_whose_work_is_cancelled_and_nobody_asked_for_that_ends_with_1(ended: Any) -> None:
    async def start(app: FakeApp) -> None:
        raise asyncio.CancelledError

    said = "UnexpectedCancellationError: work was cancelled unexpectedly"
    assert ended(start) == (1, f"worker stopped: {said}")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "/keys/key: disk full; free space and start again"),
        (errno.EDQUOT, "/keys/key: disk full; free space and start again"),
        (
            errno.EROFS,
            "/keys/key: must be a file that can be used (Read-only file system); repair that and start again",
        ),
    ],
)
def test_one_that_cannot_write_a_file_ends_with_1_and_names_file_and_remedy(ended: Any, number: int, said: str) -> None:
    """Its periodic tasks write the key file when a past day's key is destroyed."""

    async def fails(app: FakeApp) -> None:
        raise OSError(number, os.strerror(number), "/keys/key")

    code, line = ended(fails)
    assert code == 1
    assert line.endswith(said)


def test_one_whose_app_crashes_ends_with_1(ended: Any) -> None:
    async def start(app: FakeApp) -> None:
        def crash() -> None:
            app.crashed, app.crash_reason = True, RuntimeError("who was where")  # type: ignore[assignment]

        asyncio.get_running_loop().call_later(1.0, crash)

    code, said = ended(start)
    assert (code, "who was where" in said) == (1, False)
    assert said.startswith("worker stopped: RuntimeError: ")


@pytest.mark.parametrize(("exc_info", "shown"), [(None, True), (False, True), ("ours", False), ("another's", True)])
def test_a_line_is_kept_back_only_where_it_shows_the_stack_of_an_error_of_ours(exc_info: Any, shown: bool) -> None:
    """asyncio says False where there is no error."""
    errors = {"ours": (UsageError, UsageError("x"), None), "another's": (OSError, OSError("x"), None)}
    record = logging.makeLogRecord({"msg": "x", "exc_info": errors.get(exc_info, exc_info)})
    assert worker._is_not_ours(record) is shown
