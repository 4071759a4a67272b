"""The client of the ingest's socket: reconnects, and waits for acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from connectors.sources.ingest_socket.frames import (
    LONGEST_LINE,
    Batch,
    FrameError,
    TimedSighting,
    batches,
    decode_answer,
    encode_batch,
    encode_can_receive,
)

AGAIN = 0.5
"""Seconds after which the connection to an absent ingest is tried again."""
ANSWER_WITHIN = 8.0
"""Seconds; the sender of the webhook waits that long."""
UNANSWERED = 8
"""Batches of one hand-over that may wait for their acknowledgement together, well below the room of the ingest's
queue."""


class IngestClient:
    """A connection to the ingest; ``run`` establishes it and keeps it."""

    def __init__(self, path: Path) -> None:
        """Set the path of the ingest's socket."""
        self._path = path
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[int, asyncio.Future[bool]] = {}
        self._next = 0
        self._can_receive = True

    @property
    def connected(self) -> bool:
        """Whether the ingest is connected."""
        return self._writer is not None

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        while True:
            with suppress(OSError, FrameError, ValueError):
                await self._connected()
            await asyncio.sleep(AGAIN)

    async def _connected(self) -> None:
        reader, writer = await asyncio.open_unix_connection(str(self._path), limit=LONGEST_LINE)
        self._writer = writer
        try:
            writer.write(encode_can_receive(can_receive=self._can_receive))
            while line := await reader.readline():
                number, kept = decode_answer(line)
                self._settle(number, kept=kept)
        finally:
            self._writer = None
            writer.close()
            for number in list(self._answers):
                self._settle(number, kept=False)

    def _settle(self, number: int, *, kept: bool) -> None:
        answer = self._answers.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(kept)

    def report_can_receive(self, *, can_receive: bool) -> None:
        """Report whether all systems can be received; otherwise the ingest confirms no coverage."""
        self._can_receive = can_receive
        if self._writer is not None:
            self._writer.write(encode_can_receive(can_receive=can_receive))

    async def hand_over(self, source: str, rows: Sequence[TimedSighting]) -> bool:
        """Pass rows on; return whether all rows to be stored are durable. False: they may be sent again."""
        parts = batches(source, rows, self._next)
        self._next += len(parts)
        places = asyncio.Semaphore(UNANSWERED)

        async def pass_on(part: Batch) -> bool:
            async with places:
                return await self._one(part)

        return all(await asyncio.gather(*map(pass_on, parts)))

    async def _one(self, batch: Batch) -> bool:
        writer = self._writer
        if writer is None:
            return False
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answers[batch.number] = answer
        try:
            writer.write(encode_batch(batch))
            async with asyncio.timeout(ANSWER_WITHIN):
                await writer.drain()
                return await answer
        except (TimeoutError, OSError):
            return False
        finally:
            self._answers.pop(batch.number, None)
