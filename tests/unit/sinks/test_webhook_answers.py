"""What a receiver of webhooks answers: its status counts, and nothing else is read."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from connectors.sinks import webhooks
from connectors.sinks.triggers import Trigger
from connectors.sinks.webhooks import WebhookSink

SECRET = "whsec_" + base64.b64encode(b"a secret of a test, 24 bytes or more").decode()
RECORD: Any = {"release_id": "one", "window_end": "2026-01-05T10:00:00Z"}
BOMB = gzip.compress(bytes(64 << 20))


class Receiver:
    """Answers each request with the next of some octets, and leaves the connection open."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.asked = list(answers), 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            writer.write(self.answers.pop(0))
            await reader.read(-1)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def sink_to(receiver: Receiver) -> AsyncIterator[WebhookSink]:
    server = await asyncio.start_server(receiver.meet, "127.0.0.1", 0)
    sink = WebhookSink(
        f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", lambda: [SECRET], Trigger("release"), {}
    )
    try:
        yield sink
    finally:
        await sink.close()
        server.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(webhooks, "TIMEOUT", 2.0)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"


@pytest.mark.parametrize("body", [BOMB, BOMB[:100], b"no gzip"], ids=["a bomb", "a part", "nonsense"])
async def test_the_body_of_an_answer_is_not_read(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def unpacked(decoder: object, data: bytes) -> bytes:
        read.append(len(data))
        return b""

    monkeypatch.setattr("httpx._decoders.GZipDecoder.decode", unpacked)
    receiver = Receiver(*[HEAD % len(BOMB) + body] * 5)
    async with sink_to(receiver) as sink:
        await asyncio.wait_for(sink.deliver(RECORD), 300)
    assert (receiver.asked, read) == (1, [])


async def test_a_receiver_that_does_not_answer_in_time_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    receiver = Receiver(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Busy\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n")
    async with sink_to(receiver) as sink:
        await asyncio.wait_for(sink.deliver(RECORD), 300)
    assert receiver.asked == 3
    assert "Kafka" not in caplog.text
    assert caplog.text.count("tried again") == 2
