"""Runs the Faust app: until it is told to stop, or until something went wrong.

SIGTERM or SIGINT: checkpoint, leave the group, exit 0. Any error that is not a matter of decoding: stop with
nothing more processed or acknowledged, say why in one line, exit 1; whoever supervises the process starts it
again. Exit 2 says that the policy or the key is not the state's, 3 that the state or the log cannot be read:
there a start without a change helps nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from connectors.kafka.broker_errors import broker_error
from connectors.kafka.joining import GROUP
from connectors.kafka.strict_consumer import StrictTransport
from connectors.kafka.writers import EngineTopics, KafkaJournal
from stream.errors import DataError, TacetError, UsageError
from stream.runners.contract import Engine
from stream.runners.faust_app import TacetApp, create_app
from stream.runners.tenures import Tenures
from stream.settings import SESSION_TIMEOUT

log = logging.getLogger(__name__)

GARBAGE = 20_000, 20, 20
"""Objects more than there were at which Python looks for cycles among them, and how many looks take in older ones.

Rows that wait for their window are many and in no cycle; at Python's 700 one part in twenty of the work is looking."""
CHECKPOINT_TIMEOUT = 4.0
LEAVE_TIMEOUT = 4.0
RETAKE_EVERY = 0.5


class Watch(Protocol):
    """Who watches a worker."""

    def begin(self, tenures: Tenures, journal: KafkaJournal, settled: Callable[[], bool]) -> None:
        """Watch these from now on; ``settled`` says whether the group has given this worker what it is to have."""

    async def during(self, work: Coroutine[Any, Any, int]) -> int:
        """Do the work, and look now and then."""

    def failed(self, error: BaseException) -> None:
        """Tell what ended the worker; may take a while."""


class Chore(NamedTuple):
    """What is to be done now and then beside the stream; an error in it stops the worker."""

    work: Callable[[], Coroutine[Any, Any, None]]
    every: float
    """Seconds from the end of one to the next."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker has to know of the log."""

    bootstrap: str
    fence: str
    """Name under which the writers of a partition fence each other: one cluster's, and no other's."""
    group: str = GROUP
    topics: EngineTopics = field(default_factory=EngineTopics)
    session_timeout: float = SESSION_TIMEOUT
    """Seconds of silence after which a worker's partitions go to another."""
    checkpoint_every: float = 5.0
    """Seconds between checkpoints while no window closes."""
    accept_loss: bool = False
    """Go on from the earliest message when the one that is next is gone."""
    chores: Sequence[Chore] = ()
    watch: Watch | None = None


def run_worker(config: WorkerConfig, engine_factory: Callable[[int], Awaitable[Engine]]) -> int:
    """Run a worker until a signal or an error; return the exit code, 0 to 3. Needs the main thread."""
    gc.set_threshold(*GARBAGE)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_ours)
    work = _run(config, engine_factory)
    return asyncio.run(work if config.watch is None else config.watch.during(work))


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Keep Faust from showing the stack of an error of ours: the worker says what it means when it stops."""
    return record.exc_info is None or not isinstance(record.exc_info[1], TacetError)


async def _run(config: WorkerConfig, engine_factory: Callable[[int], Awaitable[Engine]]) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    journal = KafkaJournal(config.bootstrap, fence=config.fence, topics=config.topics)
    tenures = Tenures(engine_factory, journal, audit_topic=config.topics.audit, accept_loss=config.accept_loss)
    app = create_app(
        brokers=config.bootstrap,
        group=config.group,
        source=config.topics.source,
        tenures=tenures,
        transport=StrictTransport,
        session_timeout=config.session_timeout,
    )
    if config.watch is not None:
        config.watch.begin(tenures, journal, lambda: _is_settled(app))
    working = asyncio.create_task(_work(app, journal, config))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    failure = _failure(working)
    stopping.cancel()
    saved = failure is None and await _within(CHECKPOINT_TIMEOUT, tenures.checkpoint(last=True), "checkpoint")
    tenures.end()
    working.cancel()
    left = await _within(LEAVE_TIMEOUT, _leave(app), "leaving the group")
    if failure is not None:
        log.error("worker stopped: %s: %s", type(failure).__name__, _text_of(failure))
        if config.watch is not None:
            await asyncio.to_thread(config.watch.failed, failure)
    code = 0 if saved else _code(failure)
    if not left:  # something hangs on a broker that is away; all that could be written has been
        sys.stderr.flush()
        os._exit(code)
    return code


async def _work(app: TacetApp, journal: KafkaJournal, config: WorkerConfig) -> None:
    """Start, then checkpoint and do the chores now and then; returns never, raises what stopped the app."""
    await journal.start()
    await app.start()
    app.consumer.grace = config.session_timeout / 2
    every = Chore(app.tenures.checkpoint, config.checkpoint_every), Chore(app.consumer.retake, RETAKE_EVERY)
    chores = [asyncio.create_task(_often(*chore)) for chore in (*every, *config.chores)]
    try:
        while not (app.tenures.failed.is_set() or app.crashed or any(chore.done() for chore in chores)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(app.tenures.failed.wait(), 0.25)
    finally:
        for chore in chores:
            chore.cancel()
    for chore in chores:
        if chore.done() and not chore.cancelled():
            chore.result()
    raise app.tenures.failure or app.crash_reason or RuntimeError("the app stopped by itself")


def _is_settled(app: TacetApp) -> bool:
    return bool(app.rebalancing_count and not app.rebalancing and app.consumer.flow_active)


async def _often(chore: Callable[[], Coroutine[Any, Any, None]], every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await chore()


def _failure(working: asyncio.Task[None]) -> BaseException | None:
    return working.exception() if working.done() and not working.cancelled() else None


def _code(failure: BaseException | None) -> int:
    """Return the exit code of a worker that did not end well."""
    match failure:
        case UsageError():
            return 2
        case DataError():
            return 3
    return 1


def _text_of(failure: BaseException) -> str:
    """Return an error's text if it is one of ours, which never hold what was observed."""
    if isinstance(failure, TacetError):
        return str(failure)
    return broker_error(failure) or "see the documentation of this error type"


async def _leave(app: TacetApp) -> None:
    await app.stop()  # commits what is acknowledged, too
    await app.tenures.close()


async def _within(seconds: float, work: Coroutine[Any, Any, None], what: str) -> bool:
    """Do the work if that takes no longer; never wait for its cancellation, which may hang as well."""
    task = asyncio.create_task(work)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done or task.cancelled() or task.exception() is not None:
        log.warning("%s was not finished within %.0f s", what, seconds)
        task.cancel()
        return False
    return True
