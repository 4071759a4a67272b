"""Connections on which no head comes to its end are closed; each head has the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from uvicorn.server import ServerState

from connectors.http.limits import HEAD_WITHIN
from connectors.http.server import _TimedProtocol, server_of
from tests.support.virtual_loop import run_virtually

WHOLE = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
BEGUN = b"GET / HTTP/1.1\r\nHost: he"


class Transport(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Go on: the test decides what comes."""

    def resume_reading(self) -> None:
        """Go on."""


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer after half of the time for a head."""
    await asyncio.sleep(HEAD_WITHIN / 2)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def seconds_until_closed(*steps: bytes | float) -> float | None:
    """Return after how many seconds a connection is closed to which bytes come and waits pass; None if it is not."""

    async def main() -> float | None:
        config = server_of(answer, None).config
        protocol = _TimedProtocol(config=config, server_state=ServerState(), app_state={})
        transport, loop = Transport(), asyncio.get_running_loop()
        begin = loop.time()
        protocol.connection_made(transport)
        for step in steps:
            if isinstance(step, bytes):
                protocol.data_received(step)
            else:
                until = loop.time() + step
                while not transport.closed and loop.time() < until:
                    await asyncio.sleep(0.125)
        closed = loop.time() - begin if transport.closed else None
        protocol.connection_lost(None)
        return closed

    return run_virtually(main())


@pytest.mark.parametrize("begun", [[], [BEGUN], [BEGUN[:1], HEAD_WITHIN / 2, BEGUN[1:]]])
def test_a_connection_without_a_whole_head_is_closed(begun: list[bytes | float]) -> None:
    assert seconds_until_closed(*begun, 2 * HEAD_WITHIN) == pytest.approx(HEAD_WITHIN, abs=0.2)


def test_the_next_head_has_the_whole_time_however_soon_it_begins() -> None:
    begins = 0.8 * HEAD_WITHIN
    closed = seconds_until_closed(WHOLE, begins, BEGUN, 2 * HEAD_WITHIN)
    assert closed == pytest.approx(begins + HEAD_WITHIN, abs=0.2)


def test_a_connection_is_open_while_its_request_is_answered_and_kept_for_the_next_one() -> None:
    assert seconds_until_closed(WHOLE, 1.1 * HEAD_WITHIN) is None
