"""Runs the Faust app until a signal or an error stops it.

- SIGTERM or SIGINT: checkpoint, leave the group, exit 0.
- An error that is not a decoding error: process and acknowledge nothing more, report the reason in one line, exit 1.
  The supervisor of the process restarts it. A worker ends in the same way if its partitions do not open
  (``watchdog``), or if a task of Faust or aiokafka ends by itself.
- Exit 2: the policy or the key does not match the state. Exit 3: the state or the log cannot be read. In both cases a
  restart without a change does not help.

Faust itself is in ``stream.runners.faust_app``. Three of its habits are replaced here:

- Signals are handled here, not by Faust's worker, so that a checkpoint precedes the end.
- A filter on the log handlers drops the records with stack traces that Faust logs for errors of this program: the
  worker reports them in one line.
- ``app.stop()`` may hang on a broker that is away; after ``LEAVE_TIMEOUT`` the process exits without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from connectors.runtime.offload import offload
from connectors.storage.kafka.aiokafka_client import ended_tasks, prepare_worker
from connectors.storage.kafka.broker_errors import broker_error
from connectors.storage.kafka.broker_health import within
from connectors.storage.kafka.client import with_retry
from connectors.storage.kafka.cluster import GROUP
from connectors.storage.kafka.timeouts import CHECKPOINT_TIMEOUT, LEAVE_TIMEOUT
from connectors.storage.kafka.watchdog import StalledError, Watchdog
from connectors.storage.kafka.writers import EngineTopics, KafkaWriterFactory
from stream.engine.ports import Engine, UnexpectedCancellationError
from stream.errors import DataError, TacetError, UsageError
from stream.runners.faust_app import TacetApp, TaskWatch, create_app, is_open, is_settled
from stream.runners.partition_tasks import TaskManager
from stream.settings import OPEN_TIMEOUT, SESSION_TIMEOUT

log = logging.getLogger(__name__)
T = TypeVar("T")

GARBAGE = 20_000, 20, 20
"""Thresholds of Python's cyclic garbage collector: additional objects before a collection, and how many collections
pass before older objects are included.

The rows that wait for their window are many and form no cycle; with Python's threshold of 700, collection takes a
twentieth of the work."""
RETAKE_EVERY = 0.5
"""Seconds between two looks for partitions that were lost and are assigned again."""
LOOK_EVERY = 0.25
"""Seconds between two looks at the state of the worker."""


class Watch(Protocol):
    """Observes a worker."""

    def begin(
        self,
        task_manager: TaskManager,
        writer_factory: KafkaWriterFactory,
        is_settled: Callable[[], bool],
        is_open: Callable[[], bool],
    ) -> None:
        """Observe these from now on.

        ``is_settled`` returns whether the group has assigned this worker its partitions, ``is_open`` whether all of
        them are open.
        """

    async def during(self, work: Coroutine[Any, Any, int]) -> int:
        """Run the work and observe it at intervals."""

    def failed(self, error: BaseException) -> None:
        """Report the error that ended the worker; may take a while."""


class PeriodicTask(NamedTuple):
    """A task that runs at intervals beside the stream; an error in it stops the worker."""

    work: Callable[[], Coroutine[Any, Any, None]]
    every: float
    """Seconds from the end of one run to the next."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """A worker's configuration for the log."""

    bootstrap: str
    fence: str
    """Prefix of the transactional ids with which writers of a partition fence each other; unique to one cluster."""
    group: str = GROUP
    topics: EngineTopics = field(default_factory=EngineTopics)
    session_timeout: float = SESSION_TIMEOUT
    """Seconds of silence after which a worker's partitions go to another."""
    open_timeout: float = OPEN_TIMEOUT
    """Seconds after which a worker ends if its partitions have not opened."""
    checkpoint_every: float = 5.0
    """Seconds between checkpoints while no window closes."""
    accept_loss: bool = False
    """Resume from the earliest message if the next one is gone."""
    chores: Sequence[PeriodicTask] = ()
    watch: Watch | None = None


class WorkerClients:
    """The clients of Kafka that Faust uses (see ``stream.runners.faust_app.KafkaClients``)."""

    def prepare(self, consumer: Any) -> None:
        """Change an aiokafka consumer that has not been started, so that it uses this project's connections."""
        prepare_worker(consumer)

    def ended_tasks(self, consumer: Any) -> list[str]:
        """Return which of an aiokafka consumer's own tasks have ended."""
        return ended_tasks(consumer)

    async def with_retry(self, call: Callable[[], Awaitable[T]], *errors: type[Exception]) -> T:
        """Call until it succeeds; ``errors`` cause a retry, any other error is raised at once."""
        return await with_retry(call, *errors)


def run_worker(config: WorkerConfig, engine_factory: Callable[[int], Awaitable[Engine]]) -> int:
    """Run a worker until a signal or an error; return the exit code, 0 to 3. Must run in the main thread."""
    gc.set_threshold(*GARBAGE)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_ours)
    work = run_until_stopped(config, engine_factory)
    return asyncio.run(work if config.watch is None else config.watch.during(work))


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Suppress the stack trace that Faust logs for an error of this program: the worker reports it when it stops."""
    return not record.exc_info or not isinstance(record.exc_info[1], TacetError)


async def run_until_stopped(config: WorkerConfig, engine_factory: Callable[[int], Awaitable[Engine]]) -> int:
    """Run a worker in this event loop until a signal or an error; return the exit code, 0 to 3."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    writer_factory = KafkaWriterFactory(config.bootstrap, fence=config.fence, topics=config.topics)
    task_manager = TaskManager(
        engine_factory, writer_factory, audit_topic=config.topics.audit, accept_loss=config.accept_loss
    )
    app = create_app(
        brokers=config.bootstrap,
        group=config.group,
        source=config.topics.source,
        task_manager=task_manager,
        clients=WorkerClients(),
        session_timeout=config.session_timeout,
    )
    if config.watch is not None:
        config.watch.begin(task_manager, writer_factory, lambda: is_settled(app), lambda: is_open(app))
    watchdog = Watchdog(config.open_timeout, config.session_timeout, asyncio.get_running_loop().time)
    working = asyncio.create_task(_work(app, writer_factory, config, watchdog))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    failure = _failure(working)
    stopping.cancel()
    late = watchdog.late(app.consumer.unopened() if app.rebalancing_count else ())
    saved = failure is None and await _completes_within(
        CHECKPOINT_TIMEOUT, task_manager.checkpoint(last=True), "checkpoint"
    )
    failure = failure or late
    task_manager.end()
    working.cancel()
    left = await _completes_within(LEAVE_TIMEOUT, _shut_down(app), "leaving the group")
    if failure is not None:
        log.error("worker stopped: %s: %s", type(failure).__name__, _text_of(failure))
        if config.watch is not None:
            await offload(config.watch.failed, failure)
    code = 0 if saved and failure is None else _code(failure)
    if not left:  # something waits for a broker that is away; everything that could be written has been
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


async def _work(app: TacetApp, writer_factory: KafkaWriterFactory, config: WorkerConfig, watchdog: Watchdog) -> None:
    """Start, and work until something stops the app; never returns, raises the reason."""
    await writer_factory.start()
    parts = [asyncio.create_task(_guard(app, watchdog)), asyncio.create_task(_serve(app, config))]
    try:
        while not (app.task_manager.failed.is_set() or app.crashed or any(part.done() for part in parts)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await app.task_manager.failed.wait()
        failures = [failure for part in parts if (failure := _failure(part)) is not None]
    finally:
        for part in parts:
            part.cancel()
    raise (
        next(iter(failures), None)
        or app.task_manager.failure
        or app.crash_reason
        or RuntimeError("it stopped by itself")
    )


async def _serve(app: TacetApp, config: WorkerConfig) -> None:
    """Start, then run checkpoints and periodic tasks until one fails."""
    await app.start()
    app.consumer.grace = config.session_timeout / 2
    every = (
        PeriodicTask(app.task_manager.checkpoint, config.checkpoint_every),
        PeriodicTask(app.consumer.reopen_lost, RETAKE_EVERY),
    )
    chores = [asyncio.create_task(_run_periodically(*chore)) for chore in (*every, *config.chores)]
    try:
        await asyncio.wait(chores, return_when=asyncio.FIRST_COMPLETED)
        for chore in chores:
            if chore.done():
                chore.result()
    finally:
        for chore in chores:
            chore.cancel()


async def _guard(app: TacetApp, watchdog: Watchdog) -> None:
    """Check from the first assignment on that the app does its work; StalledError if it does not."""
    tasks = TaskWatch(app)
    while True:
        await asyncio.sleep(LOOK_EVERY)
        if not app.rebalancing_count:
            continue
        watchdog.check(app.consumer.unopened())
        ended = [*tasks.ended(), *app.consumer.ended_tasks()]
        if ended and not (app.task_manager.failed.is_set() or app.crashed):
            raise StalledError(f"{', '.join(ended)}: ended by itself; nothing is read without it")


async def _run_periodically(task: Callable[[], Coroutine[Any, Any, None]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await task()


def _failure(work: asyncio.Task[None]) -> BaseException | None:
    """Return the error that ended a part of the work; None while it runs.

    Call this before anything cancels the task.
    """
    if not work.done():
        return None
    return UnexpectedCancellationError("work was cancelled unexpectedly") if work.cancelled() else work.exception()


def _code(failure: BaseException | None) -> int:
    """Return the exit code of a worker that ended with an error."""
    match failure:
        case UsageError():
            return 2
        case DataError():
            return 3
    return 1


def _text_of(failure: BaseException) -> str:
    """Return the text of an error of this program, which never contains observations; otherwise a safe description."""
    if isinstance(failure, TacetError):
        return str(failure)
    return _file_error(failure) or broker_error(failure) or "see the documentation of this error type"


def _file_error(failure: BaseException) -> str | None:
    """Describe an error of a local file, such as the key file, and the way out; None for any other error."""
    if not isinstance(failure, OSError) or not isinstance(failure.filename, str):
        return None
    if failure.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{failure.filename}: disk full; free space and start again"
    return f"{failure.filename}: must be a file that can be used ({failure.strerror}); repair that and start again"


async def _shut_down(app: TacetApp) -> None:
    await app.stop()  # also commits what is acknowledged
    await app.task_manager.close()


async def _completes_within(seconds: float, work: Coroutine[Any, Any, None], what: str) -> bool:
    """Do the work if it takes no longer than the limit, without pauses.

    Never wait for its cancellation, which may hang too.
    """
    task = asyncio.create_task(work)
    if not await within(seconds, task) or task.cancelled() or task.exception() is not None:
        log.warning("%s was not finished within %.0f s", what, seconds)
        task.cancel()
        return False
    return True
