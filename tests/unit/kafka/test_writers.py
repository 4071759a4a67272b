"""A Kafka client is closed in bounded time, even if a broker hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from connectors.storage.kafka import client, metadata
from connectors.storage.kafka import client as closing
from connectors.storage.site_metadata import SiteMetadata
from stream.schemas import METADATA
from tests.support.patience import PATIENCE, within_patience


class Hanging:
    """A client whose end waits for a broker, and does not let itself be cancelled."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self._client = self.client = None

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        while not self.free.is_set():
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                continue

    async def send_and_wait(self, *_: Any, **__: Any) -> None:
        pass


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Hanging:
    made = Hanging()
    monkeypatch.setattr(closing, "CLOSE_TIMEOUT", 0.05)
    monkeypatch.setattr(client, "AIOKafkaConsumer", lambda **_: made)
    monkeypatch.setattr(client, "answering", lambda _: None)
    monkeypatch.setattr(metadata, "producer_of", lambda _: made)
    return made


async def returned(work: Coroutine[Any, Any, Any], hanging: Hanging) -> bool:
    """Whether the work was over before the client was."""
    doing = asyncio.create_task(work)
    done, _ = await asyncio.wait({doing}, timeout=PATIENCE)
    hanging.free.set()
    await asyncio.wait({doing})
    assert doing.exception() is None
    return bool(done)


async def test_a_producer_that_hangs_holds_nobody_up(hanging: Hanging) -> None:
    assert await returned(closing.close(hanging), hanging)


async def test_nor_does_a_reader(hanging: Hanging) -> None:
    async def read() -> None:
        async with client.reader_of("127.0.0.1:9") as reader:
            assert reader is hanging

    assert await returned(read(), hanging)


async def test_nor_does_who_has_told_of_zones(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: str) -> dict[str, Any]:
        return {}

    async def one(_: str) -> dict[str, int]:
        return {METADATA: 1}

    monkeypatch.setattr(metadata, "read", nothing)
    monkeypatch.setattr(metadata, "partition_counts", one)
    hall: SiteMetadata = {
        "v": 1, "site": "hall", "name": "Hall", "timezone": "UTC", "tick_seconds": 300, "zones": [],
    }  # fmt: skip
    assert await returned(metadata.publish("127.0.0.1:9", {"hall": hall}), hanging)


async def test_an_end_that_fails_is_no_error_of_what_was_read(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stop() -> None:
        raise ConnectionError

    monkeypatch.setattr(hanging, "stop", stop)
    async with client.reader_of("127.0.0.1:9") as reader:
        assert reader is hanging


async def test_who_is_cancelled_while_it_closes_leaves_nothing_behind_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = asyncio.Event()

    class Waiting(Hanging):
        async def stop(self) -> None:
            try:
                await self.free.wait()
            finally:
                stopped.set()

    monkeypatch.setattr(closing, "CLOSE_TIMEOUT", 60.0)
    task = asyncio.create_task(closing.close(Waiting()))
    await asyncio.sleep(0.01)
    task.cancel()
    await within_patience(stopped.wait(), "the client's own end")
