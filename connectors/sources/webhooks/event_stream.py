"""Reading an event stream over HTTPS: connected again when it ends, from where it was; one reader.

What was read is handed over before more is: where the ingest is away, the stream waits, and is read again from the last
event that was taken. Copies that come of this are known by their octets.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import orjson
import structlog

from connectors.hooks import spaces
from connectors.hooks.desk import Desk
from connectors.hooks.hooks_file import Stream
from connectors.hooks.judging import MALFORMED, OLDEST, tag_of, verdict
from stream.errors import UsageError
from stream.records import Micros

if TYPE_CHECKING:
    import httpx

SILENCE = 90.0
"""Seconds; Spaces sends something to keep the connection alive more often."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a stream that ended is connected again: doubled while nothing comes, some of it left to chance."""
LONGEST_LINE = 1 << 20
LONGEST_BATCH = 256
KEY_HEADER = "X-API-Key"
log = structlog.get_logger("tacet.hooks")


class BrokenError(Exception):
    """The stream, or the way to the ingest, is broken."""


class Puller:
    """Reads one stream for as long as it runs."""

    def __init__(
        self,
        stream: Stream,
        desk: Desk,
        now: Callable[[], Micros],
        hearing: Callable[[bool], None],
        key: Callable[[], str] | None = None,
    ) -> None:
        """``hearing`` is told whether the stream is connected, whenever that changes; ``key`` gives its key of now."""
        self._stream, self._desk, self._now, self._hearing = stream, desk, now, hearing
        self._key_now = key or stream.api_key.get_secret_value
        self._key = self._key_now()
        self._reached: Micros | None = None
        self._wait = FIRST_WAIT

    async def run(self) -> None:
        """Read until cancelled; UsageError where the server refuses the key."""
        import httpx  # noqa: PLC0415 - only who reads a stream needs it

        async with _client(self._stream) as client:
            while True:
                try:
                    await self._read(client)
                except (httpx.TransportError, BrokenError, OSError):
                    pass
                finally:
                    self._hearing(False)
                log.warning("stream_ended", reason=self._stream.name, seconds=round(self._wait))
                await asyncio.sleep(self._wait * random.uniform(0.5, 1.0))
                self._wait = min(2 * self._wait, LONGEST_WAIT)

    async def _read(self, client: httpx.AsyncClient) -> None:
        async with self._open(client) as answer:
            if answer.status_code in {401, 403} and self._key == self._key_now():
                msg = f"stream {self._stream.name}: api_key must be one that it takes, got {answer.status_code}"
                raise UsageError(msg)
            if answer.status_code != 200:
                raise BrokenError
            self._hearing(True)
            async for lines in _lines(answer.aiter_bytes()):
                await self._take(lines)
                self._wait = FIRST_WAIT

    def _open(self, client: httpx.AsyncClient) -> AbstractAsyncContextManager[httpx.Response]:
        since, self._key = {}, self._key_now()
        if self._reached is not None:
            since["fromTimestamp"] = str(max(self._reached, self._now() - OLDEST) // 1000)
        return client.stream("GET", self._stream.url, headers={KEY_HEADER: self._key}, params=since)

    async def _take(self, lines: list[bytes]) -> None:
        """Hand over what lines say; BrokenError where the ingest is away."""
        verdicts, reached, now = [], self._reached, self._now()
        for line in lines:
            event = _event(line)
            if event is None:
                self._desk.refuse(MALFORMED)
                continue
            verdicts.append(verdict(tag_of(self._key.encode(), line), [spaces.read(event)], now))
            at = spaces.recorded(event)
            if at is not None and at <= now:
                reached = at if reached is None else max(reached, at)
        if not await self._desk.take(self._stream.source, verdicts):
            raise BrokenError
        self._reached = reached


def _client(stream: Stream) -> httpx.AsyncClient:
    try:
        import httpx  # noqa: PLC0415 - as in run
    except ImportError:
        msg = "[[stream]]: needs httpx; install 'tacet-occupancy[http]'"
        raise UsageError(msg) from None
    known = None if stream.ca_file is None else str(stream.ca_file)
    try:
        context = ssl.create_default_context(cafile=known)
    except OSError as error:
        msg = f"stream {stream.name}: ca_file must be certificates in PEM, got {known} ({error.strerror})"
        raise UsageError(msg) from None
    return httpx.AsyncClient(verify=context, timeout=httpx.Timeout(10.0, read=SILENCE), follow_redirects=False)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield whole lines as they come, some at a time; BrokenError where one does not end."""
    left = b""
    async for piece in pieces:
        *whole, left = (left + piece).split(b"\n")
        if len(left) > LONGEST_LINE:
            raise BrokenError
        lines = [line for line in whole if line.strip()]
        for start in range(0, len(lines), LONGEST_BATCH):
            yield lines[start : start + LONGEST_BATCH]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None
