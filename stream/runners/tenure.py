"""What a worker holds of each partition while it owns it, and in which order it lets go of results.

A *tenure* is one worker's time with one partition, from the snapshot it was restored from until the partition
is taken away. It begins by becoming the partition's one writer: whatever an earlier owner still sends is
refused from then on. The snapshot record of a partition holds the state of all its sites together with the
next offset, and nothing else says where to go on. At a checkpoint all that is pending and one snapshot are
one transaction, audit records first; only then is the input acknowledged. What a crash leaves of an unfinished
transaction was published to whoever reads uncommitted: the next owner must make the same bytes again.

Nothing here knows Faust or Kafka: the engine, the journal and the consumer are handed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol

from stream.errors import TacetError, UsageError
from stream.records import Micros

log = logging.getLogger(__name__)

SNAPSHOT_SPACING = 0.25
"""Seconds between two checkpoints of a partition: many sites may close a window at one moment."""
PENDING_LIMIT = 10_000
"""Outputs held back before a checkpoint is made although no window closed."""


Bounds = Callable[[], Awaitable[tuple[int, int]]]
"""Asks which offsets [begin, end) a log holds."""


class LossError(TacetError):
    """Part of a log that is still needed is gone; the message names partition and how much."""


class FencedError(TacetError):
    """Another owner has taken the partition; what this one had not committed is the other's to make again."""


class InterruptedWriteError(TacetError):
    """It is not known what became of a transaction: the partition must be opened anew to find out."""


class DeliveryError(TacetError):
    """A message did not follow the one before it; nothing of it was processed."""


class Output(Protocol):
    """One record to be published on the partition's number of a topic."""

    @property
    def topic(self) -> str:
        """Where it goes."""

    @property
    def key(self) -> bytes:
        """The site, or a quarantine record's source."""

    @property
    def value(self) -> bytes:
        """The record's bytes."""

    @property
    def timestamp_ms(self) -> int:
        """Its Kafka CreateTime: the window's end, never the time of publication."""

    @property
    def checkpoint(self) -> bool:
        """Whether a window closed here: publish, take a snapshot, acknowledge."""


class Engine(Protocol):
    """Everything of one partition of the observations: its sites' state, and what follows from a message."""

    def restore(self, snapshot: bytes | None) -> int | None:
        """Forget all, take a snapshot's state; return the next offset, None when nothing was read yet."""

    def audit_offset(self) -> int:
        """Return the offset in the audit partition up to which the restored state knows; 0 at first."""

    def published(self, entries: Iterable[bytes]) -> None:
        """Learn audit records that the log holds; a re-run that differs raises ``FinalityError``."""

    def has_unreplayed_entries(self) -> bool:
        """Return whether some of what was published has not come out again yet."""

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state holds; None where that is not known."""

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state holds."""

    def resume_after_loss(self, next_offset: int) -> None:
        """Learn that everything before ``next_offset`` which was not read is lost for good, by consent."""

    def fold(
        self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None
    ) -> Iterator[tuple[Sequence[Output], bool]]:
        """Fold one message in by steps of a bounded number of windows, at least one step.

        ``stamp`` is when the broker appended the message, None where it does not say. Yields what each step
        publishes, in order, and whether it was the last. After any other step the state may be saved too,
        with this message's offset as the next one: folding the message again goes on there.
        """

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        """Return the state of all sites with both positions, in a stable byte form."""


class Writer(Protocol):
    """The one writer of a partition, and what it reads besides the input."""

    async def last_snapshot(self) -> bytes | None:
        """Return the newest committed snapshot, None if there never was one; ``LossError`` when there was."""

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        """Return the audit records from ``offset`` on, uncommitted ones too, and the offset after the last."""

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        """Return key and value of one message of the input; None where there is none at this offset."""

    async def released(self) -> str | None:
        """Return a topic of results that holds, or has held, a record of this partition; None if none does."""

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        """Write records in order and the snapshot, all or none; return the offset after the last audit record.

        ``FencedError`` when another owner has taken the partition, ``InterruptedWriteError`` when the outcome
        is not known.
        """

    async def close(self) -> None:
        """Let go of the connection; what was not committed is void."""


class Journal(Protocol):
    """Where partitions are taken."""

    async def take(self, partition: int) -> Writer:
        """Become the partition's one writer: from now on every earlier owner's writes are refused."""


class Tenure:
    """One partition between the snapshot it was restored from and the moment it is taken away."""

    def __init__(
        self,
        partition: int,
        engine: Engine,
        writer: Writer,
        *,
        audit_topic: str,
        position: int,
        audit_end: int,
        fail: Callable[[Exception], None],
    ) -> None:
        self.partition = partition
        self.delivered = position
        """The offset that the consumer hands on next."""
        self.position = position
        """The offset that the engine takes next."""
        self.acknowledged: int | None = None
        """The offset after the last input that a snapshot of this tenure covers."""
        self.ended = False
        self.lost: FencedError | InterruptedWriteError | None = None
        """Why the tenure ended although nobody took the partition away from this worker, as far as it knows."""
        self._engine = engine
        self._writer = writer
        self._audit_topic = audit_topic
        self._audit_end = audit_end
        self._audit_known = engine.audit_offset()
        self._pending: list[Output] = []
        self._unsaved = False
        """Whether the engine has taken something since the last snapshot was begun."""
        self._ending = False
        self._wanted = asyncio.Event()
        self._rested = asyncio.Event()
        self._rested.set()
        self._saving: asyncio.Task[None] | None = None
        self._fail = fail
        self._lock = asyncio.Lock()

    async def feed(self, follows: int, offset: int, key: bytes | None, value: bytes, stamp: Micros | None) -> None:
        """Take one message; ``follows`` is the offset that had to come after the message before.

        A heartbeat after a long outage closes thousands of windows: between steps the loop has its turn, and
        a tenure that is to end stops there, in a state that goes on when the message is folded again.
        """
        async with self._lock:
            if self.ended or self._ending:
                return
            if follows != self.position:
                msg = f"partition {self.partition}: offset {self.position} was due, {follows} came"
                raise DeliveryError(msg)
            for outputs, last in self._engine.fold(offset, key, value, stamp):
                if last:
                    self.position = offset + 1
                await self._take(outputs)
                if last or self.ended or self._ending:
                    return
                await asyncio.sleep(0)

    async def _take(self, outputs: Sequence[Output]) -> None:
        self._unsaved = True
        self._pending += outputs
        if any(output.checkpoint for output in outputs) or len(self._pending) >= PENDING_LIMIT:
            self._begin_checkpoint()
        if len(self._pending) >= PENDING_LIMIT:
            await self._settled()

    async def checkpoint(self, *, last: bool = False) -> None:
        """Publish and save everything that was fed, and wait for it; ``last`` ends the tenure."""
        self._ending = self._ending or last
        async with self._lock:
            if self._unsaved:
                self._rested.set()
                self._begin_checkpoint()
            await self._settled()
            self.ended = self.ended or last

    def _begin_checkpoint(self) -> None:
        """Publish and save while further messages are folded in; if that is under way, once more after it."""
        self._wanted.set()
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save())
            self._saving.add_done_callback(self._settle)

    async def _settled(self) -> None:
        """Wait for the checkpoints under way; an error of theirs is raised here too, unless it is a lost partition."""
        if self._saving is not None:
            with contextlib.suppress(FencedError, InterruptedWriteError):
                await asyncio.shield(self._saving)

    def _settle(self, saving: asyncio.Task[None]) -> None:
        failure = None if saving.cancelled() else saving.exception()
        if isinstance(failure, FencedError | InterruptedWriteError):
            if not self.ended:
                log.warning("partition %d: %s", self.partition, failure)
                self.ended, self.lost = True, failure
        elif isinstance(failure, Exception):
            self._fail(failure)

    async def _save(self) -> None:
        """Commit all that is pending with the state it belongs to; soon after the last time only, not at once."""
        while self._wanted.is_set():
            await self._rested.wait()
            if self.ended:
                return
            self._wanted.clear()
            # State, position and outputs of one moment: nothing else runs until the first await.
            snapshot, position = self._snapshot(), self.position
            outputs, self._pending = self._pending, []
            self._unsaved = False
            outputs.sort(key=lambda output: output.topic != self._audit_topic)
            audit_end = await self._writer.commit(outputs, snapshot)
            self._audit_end = self._audit_end if audit_end is None else audit_end
            self.acknowledged = position
            self._rest()

    def _snapshot(self) -> bytes:
        if not self._engine.has_unreplayed_entries():  # what has yet to come out again must be read by the next owner
            self._audit_known = self._audit_end
        return self._engine.snapshot(self.position, self._audit_known)

    def _rest(self) -> None:
        self._rested.clear()
        asyncio.get_running_loop().call_later(SNAPSHOT_SPACING, self._rested.set)

    async def retire(self) -> None:
        """Let the checkpoint under way come to its end, then let go of the partition."""
        self.ended = True
        self._rested.set()
        if self._saving is not None:
            await asyncio.wait({self._saving})
        await self._writer.close()


class Tenures:
    """The partitions that this worker holds now, and the failure that ends its work."""

    def __init__(
        self,
        engine_factory: Callable[[int], Awaitable[Engine]],
        journal: Journal,
        *,
        audit_topic: str,
        accept_loss: bool = False,
    ) -> None:
        self.held: dict[int, Tenure] = {}
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        self._engine_factory = engine_factory
        self._journal = journal
        self._audit_topic = audit_topic
        self._accept_loss = accept_loss
        self._retiring: set[asyncio.Task[None]] = set()

    async def open(self, partition: int, bounds: Bounds) -> Tenure:
        """Take a partition and restore it; return the tenure at its position.

        ``bounds`` says which offsets [begin, end) the log holds; it is asked when no earlier owner can move
        the position any more.
        """
        writer = await self._journal.take(partition)
        try:
            tenure = await self._restored(partition, writer, bounds)
        except BaseException:
            self._retire(writer.close())
            raise
        self._replace(tenure)
        return tenure

    async def _restored(self, partition: int, writer: Writer, bounds: Bounds) -> Tenure:
        engine = await self._engine_factory(partition)
        position = engine.restore(await self._snapshot(writer))
        entries, audit_end = await writer.audit_since(engine.audit_offset())
        if position is None and not entries:
            await _refuse_fresh_books(partition, writer)
        engine.published(entries)
        begin, end = await bounds()
        loss = None if position is None else await _loss(partition, engine, writer, position, (begin, end))
        if loss is not None:
            self.consent_to(loss)
            engine.resume_after_loss(begin)
        if position is None or loss is not None:
            position = begin
        return Tenure(
            partition,
            engine,
            writer,
            audit_topic=self._audit_topic,
            position=position,
            audit_end=audit_end,
            fail=self.fail,
        )

    def _replace(self, tenure: Tenure) -> None:
        former = self.held.get(tenure.partition)
        if former is not None:
            self._retire(former.retire())
        self.held[tenure.partition] = tenure

    def _retire(self, ending: Coroutine[Any, Any, None]) -> None:
        """Let something end beside the work; its errors concern nobody any more."""
        task = asyncio.create_task(ending)
        self._retiring.add(task)
        task.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("a writer did not end well: %s", type(task.exception()).__name__)

    async def _snapshot(self, writer: Writer) -> bytes | None:
        try:
            return await writer.last_snapshot()
        except LossError as loss:
            self.consent_to(loss)
            return None

    def consent_to(self, loss: LossError) -> None:
        """Go on after a loss if that was asked for, else raise it."""
        if not self._accept_loss:
            raise loss
        log.warning("accepted: %s", loss)

    async def checkpoint(self, *, last: bool = False) -> None:
        """Checkpoint every partition that was fed since its last one; ``last`` ends their tenures."""
        for tenure in list(self.held.values()):
            await tenure.checkpoint(last=last)

    def end(self) -> None:
        """End every tenure: nothing more is processed, published or acknowledged for them."""
        for tenure in self.held.values():
            tenure.ended = True

    def release(self) -> None:
        """End every tenure and forget it; the partitions may belong to another worker now."""
        for tenure in self.held.values():
            self._retire(tenure.retire())
        self.held.clear()

    async def close(self) -> None:
        """End every tenure and wait until each has let go of its partition."""
        self.release()
        while self._retiring:
            await asyncio.wait(self._retiring)

    def fail(self, failure: Exception) -> None:
        """End every tenure because of an error; the first one is kept as the reason."""
        self.end()
        self.failure = self.failure or failure
        self.failed.set()


async def _refuse_fresh_books(partition: int, writer: Writer) -> None:
    """Raise UsageError where results were published before: fresh books would release their windows once more."""
    topic = await writer.released()
    if topic is not None:
        msg = (
            f"partition {partition}: must have the audit and snapshot records that belong to what {topic} holds, but "
            "both are empty; fresh books would release windows again; 'tacet recover --kafka' says what can be done"
        )
        raise UsageError(msg)


async def _loss(
    partition: int, engine: Engine, writer: Writer, position: int, bounds: tuple[int, int]
) -> LossError | None:
    """Return what is missing between a state's position and the log; None where the log goes on from it."""
    begin, end = bounds
    if not begin <= position <= end:
        return _outside(partition, position, begin, end)
    last = engine.last_read()
    if last is None or last < begin:  # what was read is past its time in the log, as it should be one day
        return None
    message = await writer.message(last)
    if message is not None and engine.recognises(*message):
        return None
    return LossError(
        f"partition {partition} of the observations: offset {last} holds another message than the one that was "
        "read there; the topic was made anew, and what was not read before is gone"
    )


def _outside(partition: int, position: int, begin: int, end: int) -> LossError:
    where = f"partition {partition} of the observations: offset {position} is next"
    if position < begin:
        return LossError(f"{where}, but the log begins at {begin}: {begin - position} messages are gone")
    return LossError(f"{where}, but the log ends at {end}: {position - end} messages that were read are gone")
