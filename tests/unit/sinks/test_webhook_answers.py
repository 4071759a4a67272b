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
from stream.errors import UsageError
from tests.support.released_store import count

SECRET = "whsec_" + base64.b64encode(b"a secret of a test, 24 bytes or more").decode()
EACH = Trigger("release")
RECORD: Any = {"release_id": "one", "window_end": "2026-01-05T10:00:00Z"}
BOMB = gzip.compress(bytes(64 << 20))


class Receiver:
    """Answers each request with the next of some octets, and leaves the connection open."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.asked, self.heads = list(answers), 0, list[bytes]()

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            self.asked += 1
            writer.write(self.answers.pop(0))
            await reader.read(-1)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def sink_to(receiver: Receiver, trigger: Trigger = EACH) -> AsyncIterator[WebhookSink]:
    server = await asyncio.start_server(receiver.meet, "127.0.0.1", 0)
    sink = WebhookSink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", lambda: [SECRET], trigger, {})
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


DONE = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_refusal_for_the_moment_is_tried_again(status: int) -> None:
    receiver = Receiver(b"HTTP/1.1 %d Later\r\n\r\n" % status, DONE)
    async with sink_to(receiver) as sink:
        await asyncio.wait_for(sink.deliver(RECORD), 300)
    assert receiver.asked == 2


@pytest.mark.parametrize("status", [301, 400, 404, 409, 410, 426])
async def test_a_refusal_for_good_ends_the_sink(status: int) -> None:
    receiver = Receiver(b"HTTP/1.1 %d No\r\n\r\n" % status)
    async with sink_to(receiver) as sink:
        with pytest.raises(UsageError, match=f"--to: must accept reports, but answered {status}"):
            await asyncio.wait_for(sink.deliver(RECORD), 300)


async def test_a_change_is_one_from_what_it_began_with_and_then_from_what_was_reported() -> None:
    receiver = Receiver(DONE, DONE)
    async with sink_to(receiver, Trigger("change")) as sink:
        await sink.begin(count(1, {"a": 10}))
        for number, value in enumerate((30, 30, 31), start=2):
            await asyncio.wait_for(sink.deliver(count(number, {"a": value})), 300)
    assert receiver.asked == 1


async def test_a_report_is_named_dated_and_signed() -> None:
    receiver = Receiver(DONE)
    async with sink_to(receiver) as sink:
        await asyncio.wait_for(sink.deliver(RECORD), 300)
    (head,) = receiver.heads
    for line in (
        b"content-type: application/json",
        b"webhook-id: one",
        b"webhook-timestamp: ",
        b"webhook-signature: v1,",
    ):
        assert b"\r\n" + line in head.lower()
