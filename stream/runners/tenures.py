"""The partitions of a worker: how each is taken and restored, and how all of them end.

Where the log no longer holds what a state needs next, or what it last read, the partition is not opened: the loss
is named, and gone on after only by consent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from stream.errors import UsageError
from stream.runners.continuity import audit_beyond, loss_of
from stream.runners.contract import Bounds, Engine, Journal, LossError, Writer
from stream.runners.tenure import Tenure

log = logging.getLogger(__name__)


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
        entries, audit_end = await audit_beyond(engine, writer)
        if position is None and not entries:
            await _refuse_fresh_books(partition, writer)
        begin, end = await bounds()
        loss = None if position is None else await loss_of(partition, engine, writer, position, (begin, end))
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
        await asyncio.gather(*(tenure.checkpoint(last=last) for tenure in list(self.held.values())))

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
