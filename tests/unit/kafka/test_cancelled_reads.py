"""Whoever cancels a read ends it, even at the moment of its answer: a subscriber that was left would read for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from connectors.storage.kafka import client
from connectors.storage.kafka.client import read_with_retry
from tests.support.patience import within_patience

TURNS = range(12)
"""Turns of the loop between the answer and the cancellation: more than it takes until the answer is returned."""


async def cancelled_after(turns: int, work: Any, answer: asyncio.Event) -> bool:
    """Cancel work so many turns after its answer came; return whether it was cancelled while it had not ended."""
    task = asyncio.ensure_future(work)
    for _ in TURNS:
        await asyncio.sleep(0)
    answer.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    if not task.cancel():
        return False
    await within_patience(asyncio.wait({task}), "the end of the cancelled task")
    assert task.cancelled(), f"cancelled {turns} turns after the answer, and goes on"
    return True


async def test_a_read_that_is_cancelled_ends_although_its_answer_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def reader_of(*_: object, **__: object) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(client, "reader_of", reader_of)
    ended_before = []
    for turns in TURNS:
        answer = asyncio.Event()

        async def read(_: Any, answer: asyncio.Event = answer) -> None:
            await answer.wait()

        ended_before.append(await cancelled_after(turns, read_with_retry("servers", read), answer))
    assert ended_before[0]
    assert not ended_before[-1]
