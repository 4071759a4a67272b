"""A writer is let go of in bounded time, whatever hangs behind it."""

from __future__ import annotations

import asyncio

import pytest

from connectors.kafka import writers


class Hanging:
    """A producer whose end waits for a broker, and does not let itself be cancelled."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def stop(self) -> None:
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                continue


async def test_a_producer_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "CLOSE_TIMEOUT", 0.05)
    producer = Hanging()
    closing = asyncio.create_task(writers.close(producer))
    done, _ = await asyncio.wait({closing}, timeout=10)
    producer.free.set()
    await asyncio.wait({closing})
    assert done, "it must have returned before the producer ended"
