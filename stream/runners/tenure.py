"""What a worker holds of one partition while it owns it, and in which order it lets go of results.

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
from collections.abc import Callable, Sequence

from stream.errors import LaterVersionError
from stream.records import Micros
from stream.runners.continuity import loss_of, refuse_audit_made_anew
from stream.runners.contract import Bounds, DeliveryError, Engine, FencedError, InterruptedWriteError, Output, Writer

log = logging.getLogger(__name__)

SNAPSHOT_SPACING = 0.25
"""Seconds between two checkpoints of a partition: many sites may close a window at one moment."""
PENDING_LIMIT = 10_000
"""Outputs held back before a checkpoint is made although no window closed."""


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
        self._first = engine.snapshot(position, self._audit_known) if engine.unsaved else None
        """The state that must be saved before anything is published."""
        self._pending: list[Output] = []
        # consent that was given to a start is saved though nothing comes; not while another's window is unfinished
        self._unsaved = engine.adopted() and not engine.has_unreplayed_entries()
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
            try:
                await self._fold(offset, key, value, stamp)
            except LaterVersionError:  # nothing of it was taken: the version that reads it begins here
                await self._saved()
                raise

    async def _fold(self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None) -> None:
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
            await self._saved()
            self.ended = self.ended or last

    async def _saved(self) -> None:
        """Publish and save everything that was taken, now."""
        if self._unsaved:
            self._rested.set()
            self._begin_checkpoint()
        await self._settled()

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
            await self._save_first(outputs)
            audit_end = await self._writer.commit(outputs, snapshot)
            if audit_end is not None:
                refuse_audit_made_anew(self.partition, self._audit_end, audit_end)
                self._audit_end = audit_end
            self.acknowledged = position
            if not self._ending:
                self._rest()

    async def _save_first(self, outputs: Sequence[Output]) -> None:
        """Save the state from which outputs follow, in a transaction of its own, where that has to be.

        A crash amid the next one then leaves entries of which that state says who made them.
        """
        first, self._first = self._first, None
        if first is not None and outputs:
            await self._writer.commit([], first)

    def _snapshot(self) -> bytes:
        if not self._engine.has_unreplayed_entries():  # what has yet to come out again must be read by the next owner
            self._audit_known = self._audit_end
        return self._engine.snapshot(self.position, self._audit_known)

    def _rest(self) -> None:
        self._rested.clear()
        asyncio.get_running_loop().call_later(SNAPSHOT_SPACING, self._rested.set)

    async def refuse_another_log(self, bounds: Bounds) -> None:
        """Raise LossError unless the observations are still those that were read; ``bounds`` asks what they hold."""
        loss = await loss_of(self.partition, self._engine, self._writer, self.delivered, await bounds())
        if loss is not None:
            raise loss

    async def retire(self) -> None:
        """Let the checkpoint under way come to its end, then let go of the partition."""
        self.ended = True
        self._rested.set()
        if self._saving is not None:
            await asyncio.wait({self._saving})
        await self._writer.close()
