"""The tasks that serve a worker's partitions: processing, checkpoints, and endings.

A ``PartitionTask`` serves one partition, from the snapshot that it was restored from until the partition is revoked or
the task fails. ``TaskManager`` opens and ends the tasks. When a task opens, it becomes the partition's only writer:
whatever an earlier owner still sends is refused. The snapshot record of a partition holds the state of all its sites
together with the next offset; no other record decides where processing resumes. The input is acknowledged only after
the transaction that covers it.

If the log no longer holds the message that the state needs next, or holds another message than the one it read last,
the partition is not opened. The error names the loss; processing continues only with the operator's consent
(``accept_loss``). Consent cannot help if audit entries beyond the state were made from the lost messages: their records
would come out again with another coverage.

This module knows neither Faust nor Kafka: engine, writer factory and consumer are passed in.


States of a task
================

``PartitionTask.state`` is a ``TaskState``:

    state     meaning
    RUNNING   messages are processed
    ENDING    the last checkpoint is under way; no further message is processed
    ENDED     nothing more is processed, and no commit begins
    LOST      as ENDED; the writer was fenced, or the outcome of its commit is unknown (``loss_error``)
    CLOSED    ``retire`` has closed the writer

Transitions:

    state             event                                              next     action
    -                 TaskManager.open has restored the partition        RUNNING  a former task of it is retired
    RUNNING           process: the message that is due                   RUNNING  step by step; outputs become pending
    RUNNING           process: the first message after an accepted loss  RUNNING  the engine learns of the loss; commit
    RUNNING           process: a message that does not follow            RUNNING  DeliveryError; nothing is processed
    RUNNING           process: a message of a later version              RUNNING  commit, then LaterVersionError
    RUNNING           checkpoint()                                       RUNNING  commit, and wait for it
    RUNNING           checkpoint(last=True)                              ENDING   ``process`` stops after its step
    ENDING            that checkpoint is done                            ENDED    what was processed is committed
    RUNNING, ENDING   a commit raises FencedError                        LOST     logged
    RUNNING, ENDING   a commit raises InterruptedWriteError              LOST     logged
    RUNNING, ENDING   a commit raises another error, or is cancelled     ENDED    TaskManager.fail ends all tasks
    RUNNING, ENDING   TaskManager.end or TaskManager.fail                ENDED    a commit under way completes
    ENDED, LOST       a commit under way is fenced or interrupted        (same)   ignored
    ENDED, LOST       a commit under way fails in another way            (same)   TaskManager.fail ends all tasks
    ENDED, LOST       process                                            (same)   the message is dropped
    ENDED, LOST       checkpoint                                         (same)   nothing is committed
    ENDING            process                                            ENDING   the message is dropped
    any but CLOSED    retire()                                           CLOSED   waits for a commit under way

A message that is dropped is not lost: it lies beyond the last snapshot, and the next owner reads it again. The agent
calls ``process`` inside ``TaskManager.failing``, so an error of it ends all tasks. The consumer opens a LOST partition
again while the group still assigns it to this worker.


States of the checkpoint loop
=============================

One loop (``_run_checkpoints``) makes all commits of a task, one after the other, while further messages are processed:

    state       loop     meaning
    IDLE        done     no checkpoint is requested
    WAITING     runs     a checkpoint is requested; ``SNAPSHOT_SPACING`` is not over (``_spacing_over``)
    COMMITTING  runs     the transaction is under way

    state       event                                     next        action
    IDLE        a window closed; PENDING_LIMIT outputs;   WAITING     ``_checkpoint_requested`` is set
                checkpoint() with unsaved input
    WAITING     the spacing ends, or checkpoint() ends it COMMITTING  ``_checkpoint_requested`` is cleared
    WAITING     the task has ended                        IDLE        no commit
    COMMITTING  another request                           COMMITTING  ``_checkpoint_requested`` is set
    COMMITTING  the commit is done, no other request      IDLE        the spacing begins, in RUNNING only
    COMMITTING  the commit is done, another request came  WAITING     the spacing begins, in RUNNING only
    COMMITTING  the commit fails                          IDLE        the task becomes LOST or ENDED

With ``PENDING_LIMIT`` outputs pending, ``process`` waits until the loop is idle.


Steps of a commit
=================

1. Wait until the spacing since the last commit is over. Stop if the task has ended. Clear ``_checkpoint_requested``.
2. Without any await in between, take the snapshot, ``position`` and all pending outputs, and clear ``_unsaved``. If
   every published entry has been replayed, the snapshot's audit offset is the end that the audit topic had before this
   commit; otherwise it stays as it was, because the next owner must read the outstanding entries.
3. Sort the outputs: audit records come first.
4. The first time, if the restored state has to be saved before anything that follows from it (``Engine.unsaved``, or
   an accepted loss) and there are outputs, commit that state alone. If a crash then interrupts step 5 and leaves audit
   entries, the saved state says which mechanism version made them, and that they were made after the loss.
5. Commit the outputs and the snapshot in one transaction.
6. If audit records were written, check that they lie behind the former end of the audit topic; LossError if they do
   not, since the topic was then recreated or has lost its last records.
7. Set ``committed_offset`` to ``position``. Only then may the consumer acknowledge the input.
8. In RUNNING, begin the spacing. Repeat from step 1 while ``_checkpoint_requested`` is set.

A crash before step 5 leaves no output. A crash during step 5 leaves records of an open transaction. The next owner
aborts it, or the broker after its time limit; but readers of uncommitted records have seen them, so the next owner must
produce the same bytes again. A crash after step 5 loses nothing, because processing resumes at the offset in the
snapshot, not at the acknowledged one. ``tests/simulation`` kills workers at each of these steps.


Steps of the next owner
=======================

1. ``WriterFactory.acquire`` fences the former owner and ends its open transaction.
2. The engine is restored from the last committed snapshot.
3. ``audit_beyond`` reads the audit topic from the snapshot's audit offset on, including uncommitted entries, and passes
   them to the engine (``Engine.expect_replay``).
4. ``loss_of`` checks that the log still holds the next message. If it does not and entries are outstanding, no consent
   helps (``unrepeatable``).
5. Processing begins at the offset in the snapshot. ``ReplayVerifier.compare`` checks each new entry against the
   outstanding one of the same number; an entry that differs raises FinalityError, and its step publishes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

from stream.engine.ports import (
    Bounds,
    DeliveryError,
    Engine,
    FencedError,
    InterruptedWriteError,
    LossError,
    Output,
    TransactionalWriter,
    UnexpectedCancellationError,
    WriterFactory,
    audit_beyond,
    check_audit_not_recreated,
    hole,
    loss_of,
    price_of,
    refusal_of,
    unrepeatable,
)
from stream.errors import LaterVersionError, UsageError
from stream.records import Micros

log = logging.getLogger(__name__)

SNAPSHOT_SPACING = 0.25
"""Seconds between two checkpoints of a partition: many sites may close a window at one moment."""
PENDING_LIMIT = 10_000
"""With so many pending outputs, a checkpoint is made although no window closed."""


class TaskState(Enum):
    """The state of a partition's task; the module lists what changes it."""

    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"
    LOST = "lost"
    CLOSED = "closed"


class PartitionTask:
    """Serves one partition, from the snapshot it was restored from until it is revoked."""

    def __init__(
        self,
        partition: int,
        engine: Engine,
        writer: TransactionalWriter,
        *,
        audit_topic: str,
        position: int,
        audit_end: int,
        fail: Callable[[Exception], None],
        consent: Callable[[LossError, str], None],
        loss_accepted: bool = False,
    ) -> None:
        """Begin at ``position``.

        ``consent`` raises a loss, or logs that it is accepted and what it costs; ``loss_accepted`` says that it has
        accepted one before this position.
        """
        self.partition = partition
        self.fetch_offset = position
        """The offset that the consumer passes on next."""
        self.position = position
        """The offset that the engine processes next."""
        self.committed_offset: int | None = None
        """The offset after the last input that a snapshot of this task covers; None before its first commit."""
        self.state = TaskState.RUNNING
        self.loss_error: FencedError | InterruptedWriteError | None = None
        """The error by which a LOST task lost its partition, which as far as it knows the group still assigns to it."""
        self._engine = engine
        self._writer = writer
        self._audit_topic = audit_topic
        self._audit_end = audit_end
        self._snapshot_audit_offset = engine.audit_offset()
        self._restored_snapshot = (
            engine.snapshot(position, self._snapshot_audit_offset) if engine.unsaved or loss_accepted else None
        )
        """The restored state if it must be saved before anything is published; None otherwise, and once it is saved."""
        self._pending: list[Output] = []
        # Consent to a loss, or to another policy or version, is saved even if no message arrives, but not while a
        # window that began under the former one is unfinished.
        self._unsaved = (engine.adopted() or loss_accepted) and not engine.has_unreplayed_entries()
        """Whether the engine has processed anything since the last snapshot was taken."""
        self._checkpoint_requested = asyncio.Event()
        """Set while a checkpoint is requested and has not begun."""
        self._spacing_over = asyncio.Event()
        """Set when ``SNAPSHOT_SPACING`` has passed since the last commit."""
        self._spacing_over.set()
        self._checkpoint_loop: asyncio.Task[None] | None = None
        """The checkpoint loop that ran last."""
        self._fail = fail
        self._consent = consent
        self._lock = asyncio.Lock()
        """Locked while a message is processed or a requested checkpoint is made."""

    @property
    def ended(self) -> bool:
        """Whether nothing more is processed, and no commit begins."""
        return self.state not in (TaskState.RUNNING, TaskState.ENDING)

    def end(self) -> None:
        """Process nothing more, and begin no commit; one that is under way completes."""
        if not self.ended:
            self.state = TaskState.ENDED

    async def process(
        self, expected_offset: int, offset: int, key: bytes | None, value: bytes, stamp: Micros | None,
        *, after_loss: bool = False,
    ) -> None:  # fmt: skip
        """Process one message; ``expected_offset`` is the offset that must follow the previous message.

        ``after_loss``: the messages between that offset and this one are lost, and the loss is accepted.

        A heartbeat after a long outage closes thousands of windows. Between two steps the event loop runs other tasks,
        and a task that is ending stops. Its state is consistent there: processing the message again continues after
        the last step.
        """
        async with self._lock:
            if self.state is not TaskState.RUNNING:
                return
            if expected_offset != self.position:
                msg = f"partition {self.partition}: offset {self.position} was due, {expected_offset} came"
                raise DeliveryError(msg)
            if after_loss:
                await self._resume_after_loss(offset)
                if self.state is not TaskState.RUNNING:
                    return
            try:
                await self._process_in_steps(offset, key, value, stamp)
            except LaterVersionError as later:  # the version that can read it resumes at this offset
                await self._checkpoint_now()
                msg = f"partition {self.partition}, offset {offset}: {later}"
                raise LaterVersionError(msg) from None

    async def _resume_after_loss(self, offset: int) -> None:
        """Continue at ``offset`` after lost messages, and save that before anything is made of what follows."""
        if self._engine.has_unreplayed_entries():
            gone = f"partition {self.partition} of the observations: messages before offset {offset} are gone"
            raise unrepeatable(LossError(gone))
        self._engine.resume_after_loss(offset)
        self.position, self._unsaved = offset, True
        await self._checkpoint_now()

    async def _process_in_steps(self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None) -> None:
        for outputs, last in self._engine.process_in_steps(offset, key, value, stamp):
            if last:
                self.position = offset + 1
            await self._collect(outputs)
            if last or self.state is not TaskState.RUNNING:
                return
            await asyncio.sleep(0)

    async def _collect(self, outputs: Sequence[Output]) -> None:
        self._unsaved = True
        self._pending += outputs
        if any(output.checkpoint for output in outputs) or len(self._pending) >= PENDING_LIMIT:
            self._begin_checkpoint()
        if len(self._pending) >= PENDING_LIMIT:
            await self._wait_for_checkpoint()

    async def checkpoint(self, *, last: bool = False) -> None:
        """Commit everything that was processed, and wait for it; ``last`` ends the task."""
        if last and self.state is TaskState.RUNNING:
            self.state = TaskState.ENDING
        async with self._lock:
            await self._checkpoint_now()
            if last:
                self.end()

    async def _checkpoint_now(self) -> None:
        """Commit everything that was processed, without waiting for the spacing."""
        if self._unsaved:
            self._spacing_over.set()
            self._begin_checkpoint()
        await self._wait_for_checkpoint()

    def _begin_checkpoint(self) -> None:
        """Request a commit beside the processing of messages; if one is under way, another follows it."""
        self._checkpoint_requested.set()
        if self._checkpoint_loop is None or self._checkpoint_loop.done():
            self._checkpoint_loop = asyncio.create_task(self._run_checkpoints())
            self._checkpoint_loop.add_done_callback(self._on_checkpoint_end)

    async def _wait_for_checkpoint(self) -> None:
        """Wait for the checkpoint loop; its error is raised here too, unless it means that the partition is lost."""
        if self._checkpoint_loop is not None:
            with contextlib.suppress(FencedError, InterruptedWriteError):
                await asyncio.shield(self._checkpoint_loop)

    def _on_checkpoint_end(self, checkpoint_loop: asyncio.Task[None]) -> None:
        """Change the task's state when the checkpoint loop has failed."""
        failure = (
            UnexpectedCancellationError("a checkpoint was cancelled")
            if checkpoint_loop.cancelled()
            else checkpoint_loop.exception()
        )
        if isinstance(failure, FencedError | InterruptedWriteError):
            if not self.ended:
                level = logging.INFO if isinstance(failure, FencedError) else logging.WARNING  # the first is ordinary
                log.log(level, "partition %d: %s", self.partition, failure)
                self.state, self.loss_error = TaskState.LOST, failure
        elif isinstance(failure, Exception):
            self._fail(failure)

    async def _run_checkpoints(self) -> None:
        """Run the checkpoint loop until no checkpoint is requested; the module lists the steps."""
        while self._checkpoint_requested.is_set():
            await self._spacing_over.wait()
            if self.ended:
                return
            self._checkpoint_requested.clear()
            # No await: snapshot, position and outputs must be of one moment.
            snapshot, position = self._snapshot(), self.position
            outputs, self._pending = self._pending, []
            self._unsaved = False
            outputs.sort(key=lambda output: output.topic != self._audit_topic)
            await self._commit_restored(outputs)
            audit_end = await self._writer.commit(outputs, snapshot)
            if audit_end is not None:
                written = sum(output.topic == self._audit_topic for output in outputs)
                check_audit_not_recreated(self.partition, self._audit_end, written, audit_end)
                self._audit_end = audit_end
            self.committed_offset = position
            if self.state is TaskState.RUNNING:
                self._start_spacing()

    async def _commit_restored(self, outputs: Sequence[Output]) -> None:
        """Commit the restored state in a separate transaction if there are outputs (step 4)."""
        first, self._restored_snapshot = self._restored_snapshot, None
        if first is not None and outputs:
            await self._writer.commit([], first)

    def _snapshot(self) -> bytes:
        if not self._engine.has_unreplayed_entries():  # the next owner must read outstanding entries (step 2)
            self._snapshot_audit_offset = self._audit_end
        return self._engine.snapshot(self.position, self._snapshot_audit_offset)

    def _start_spacing(self) -> None:
        self._spacing_over.clear()
        asyncio.get_running_loop().call_later(SNAPSHOT_SPACING, self._spacing_over.set)

    async def check_same_log(self, bounds: Bounds) -> None:
        """Raise LossError unless the log is the one that was read; ``bounds`` returns its offsets [begin, end)."""
        loss = await loss_of(self.partition, self._engine, self._writer, self.fetch_offset, bounds)
        if loss is not None:
            raise refusal_of(loss, self._engine.due())

    async def accept_hole(self, offset: int) -> bool:
        """Return True if unread messages before ``offset`` are lost and the loss is accepted, False if none is lost.

        LossError if the loss is not accepted. Transaction markers and aborted messages also leave gaps in the offsets;
        they are no loss.
        """
        missing = await self._writer.missing(self.fetch_offset, offset)
        if not missing:
            return False
        loss, due = hole(self.partition, self.fetch_offset, offset, missing), self._engine.due()
        self._consent(refusal_of(loss, due), f"{loss}; {price_of(due)}")
        return True

    async def retire(self) -> None:
        """End the task: let a commit under way complete, then close the writer."""
        self.end()
        self._spacing_over.set()
        if self._checkpoint_loop is not None:
            await asyncio.wait({self._checkpoint_loop})
        await self._writer.close()
        self.state = TaskState.CLOSED


class TaskManager:
    """Opens and ends the tasks of this worker's partitions; keeps the first failure."""

    def __init__(
        self,
        engine_factory: Callable[[int], Awaitable[Engine]],
        writer_factory: WriterFactory,
        *,
        audit_topic: str,
        accept_loss: bool = False,
    ) -> None:
        self.tasks: dict[int, PartitionTask] = {}
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        self._engine_factory = engine_factory
        self._writer_factory = writer_factory
        self._audit_topic = audit_topic
        self._accept_loss = accept_loss
        self._retiring: set[asyncio.Task[None]] = set()

    async def open(self, partition: int, bounds: Bounds) -> PartitionTask:
        """Become a partition's writer and restore it; return its task at the restored position.

        ``bounds`` returns the offsets [begin, end) that the log holds. It is called after the snapshot was read, when
        no earlier owner can write another one.

        Raises:
            LossError: the log no longer holds what the state needs, and ``accept_loss`` is not set.
            UsageError: results were published before, but neither audit nor snapshot records exist.
        """
        writer = await self._writer_factory.acquire(partition)
        try:
            task = await self._restored(partition, writer, bounds)
        except BaseException:
            self._retire(writer.close())
            raise
        self._replace(task)
        return task

    async def _restored(self, partition: int, writer: TransactionalWriter, bounds: Bounds) -> PartitionTask:
        engine = await self._engine_factory(partition)
        position, entries, audit_end = await self._read_state(engine, writer)
        if position is None and not entries and (topic := await writer.released()) is not None:
            # If this process was paused, another owner may have written the partition's first records meanwhile.
            position, entries, audit_end = await self._read_state(engine, writer)
            if position is None and not entries:
                raise _results_without_ledger(partition, topic)
        loss = None if position is None else await loss_of(partition, engine, writer, position, bounds)
        if loss is not None:
            if engine.has_unreplayed_entries():
                raise unrepeatable(loss)
            self.consent_to(refusal_of(loss, engine.due()), f"{loss}; {price_of(engine.due())}")
        if position is None or loss is not None:
            position, _ = await bounds()
            if loss is not None:
                engine.resume_after_loss(position)
        return PartitionTask(
            partition,
            engine,
            writer,
            audit_topic=self._audit_topic,
            position=position,
            audit_end=audit_end,
            fail=self.fail,
            consent=self.consent_to,
            loss_accepted=loss is not None,
        )

    async def _read_state(self, engine: Engine, writer: TransactionalWriter) -> tuple[int | None, list[bytes], int]:
        """Restore an engine; return its next offset, the audit records beyond its state, and the offset after them."""
        position = engine.restore(await self._snapshot(writer))
        return position, *await audit_beyond(engine, writer)

    def _replace(self, task: PartitionTask) -> None:
        former = self.tasks.get(task.partition)
        if former is not None:
            self._retire(former.retire())
        self.tasks[task.partition] = task

    def _retire(self, ending: Coroutine[Any, Any, None]) -> None:
        """Run the end of a task or writer in the background; an error of it is only logged."""
        task = asyncio.create_task(ending)
        self._retiring.add(task)
        task.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("a writer did not close cleanly: %s", type(task.exception()).__name__)

    async def _snapshot(self, writer: TransactionalWriter) -> bytes | None:
        try:
            return await writer.last_snapshot()
        except LossError as loss:
            self.consent_to(LossError(f"{loss}; 'tacet recover --kafka' lists the remedies"), str(loss))
            return None

    def consent_to(self, loss: LossError, accepted: str) -> None:
        """Log ``accepted`` if this worker accepts losses; raise the loss otherwise."""
        if not self._accept_loss:
            raise loss
        log.warning("accepted: %s", accepted)

    async def checkpoint(self, *, last: bool = False) -> None:
        """Checkpoint every partition that has processed anything since its last one; ``last`` ends the tasks."""
        await asyncio.gather(*(task.checkpoint(last=last) for task in list(self.tasks.values())))

    def end(self) -> None:
        """End every task: nothing more is processed, and no commit begins."""
        for task in self.tasks.values():
            task.end()

    def release(self) -> None:
        """End every task in the background and forget it; the partitions may belong to another worker now."""
        for task in self.tasks.values():
            self._retire(task.retire())
        self.tasks.clear()

    async def close(self) -> None:
        """End every task and wait until each has closed its writer."""
        self.release()
        while self._retiring:
            await asyncio.wait(self._retiring)

    def fail(self, failure: Exception) -> None:
        """End every task because of an error; the first error is kept in ``failure``."""
        self.end()
        self.failure = self.failure or failure
        self.failed.set()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """End all tasks on an error of the work inside, or on a cancellation that was not requested.

        A cancellation that was not requested becomes an ``UnexpectedCancellationError``: callers would treat a bare
        ``CancelledError`` as their own cancellation and report nothing.
        """
        try:
            yield
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            unasked = UnexpectedCancellationError("work was cancelled unexpectedly")
            self.fail(unasked)
            raise unasked from None
        except Exception as failure:
            self.fail(failure)
            raise


def _results_without_ledger(partition: int, topic: str) -> UsageError:
    """Return the error for results whose ledger is missing: with an empty one their windows would be released again."""
    return UsageError(
        f"partition {partition}: must have the audit and snapshot records that belong to what {topic} holds, but "
        "both are empty; with an empty ledger their windows would be released a second time; 'tacet recover --kafka' "
        "lists the remedies"
    )
