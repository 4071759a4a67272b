"""Reads an event stream over HTTPS: reconnects, and resumes at its position.

Events are passed on before more are read. While the ingest is away, the stream waits, and is then read again from the
last accepted event. The copies that this causes are recognised by their octets.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal

import structlog

from connectors.sources.cloud import decoders
from connectors.sources.cloud.config import Stream
from connectors.sources.cloud.processor import WebhookProcessor
from connectors.sources.cloud.verification import MALFORMED, OLDEST, RefusedError, document_of, tag_of, verified
from stream.errors import OPTIONAL, UsageError
from stream.records import Micros

State = Literal["connecting", "reading", "refused"]

if TYPE_CHECKING:
    import httpx

SILENCE = 90.0
"""Seconds; Spaces sends keep-alives more often."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds before a stream that ended is connected again: doubled while nothing comes, partly random."""
REFUSED_WAIT = 300.0
"""Seconds before a stream whose key was refused is tried again; with another key it is tried at once."""
LOOK_EVERY = 1.0
"""Seconds between two checks of a refused stream's key."""
LONGEST_LINE = 1 << 20
LONGEST_BATCH = 256
KEY_HEADER = "X-API-Key"
log = structlog.get_logger("tacet.hooks")


class BrokenError(Exception):
    """The stream, or the connection to the ingest, is broken."""


class KeyRefusedError(Exception):
    """The server refuses the key."""


class StreamReader:
    """Reads one stream until it is cancelled."""

    def __init__(
        self,
        stream: Stream,
        processor: WebhookProcessor,
        now: Callable[[], Micros],
        on_connection: Callable[[bool], None],
        key: Callable[[], str] | None = None,
    ) -> None:
        """``on_connection`` is called with whether the stream is connected; ``key`` returns its present key."""
        self.state: State = "connecting"
        self._stream, self._processor, self._now, self._on_connection = stream, processor, now, on_connection
        self._key_now = key or stream.api_key.get_secret_value
        self._key = self._key_now()
        self._reached: Micros | None = None
        self._wait = FIRST_WAIT

    async def run(self) -> None:
        """Read until cancelled; a stream whose key is refused is retried later, without effect on other streams."""
        import httpx  # noqa: PLC0415 - needed only to read a stream

        async with _client(self._stream) as client:
            while True:
                try:
                    await self._read(client)
                except KeyRefusedError:
                    self._ended("refused")
                    log.error("stream_refused", reason=f"{self._stream.name}: the server refuses the api_key")
                    await self._until_another_key()
                    continue
                except (httpx.HTTPError, BrokenError, OSError):
                    self._ended("connecting")
                log.warning("stream_ended", reason=self._stream.name, seconds=round(self._wait))
                await asyncio.sleep(self._wait * random.uniform(0.5, 1.0))
                self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _ended(self, state: State) -> None:
        self.state = state
        self._on_connection(False)

    async def _until_another_key(self) -> None:
        left = REFUSED_WAIT
        while left > 0 and self._key == self._key_now():
            await asyncio.sleep(min(LOOK_EVERY, left))
            left -= LOOK_EVERY

    async def _read(self, client: httpx.AsyncClient) -> None:
        async with self._open(client) as answer:
            if answer.status_code in {401, 403}:
                raise KeyRefusedError
            if answer.status_code != 200 or answer.headers.get("content-encoding", "identity") != "identity":
                raise BrokenError  # a compressed stream could expand beyond memory
            self.state = "reading"
            self._on_connection(True)
            async for lines in _lines(answer.aiter_raw()):
                await self._pass_on(lines)
                self._wait = FIRST_WAIT

    def _open(self, client: httpx.AsyncClient) -> AbstractAsyncContextManager[httpx.Response]:
        since, self._key = {}, self._key_now()
        if self._reached is not None:
            since["fromTimestamp"] = str(max(self._reached, self._now() - OLDEST) // 1000)
        return client.stream("GET", self._stream.url, headers=_headers(self._key), params=since)

    async def _pass_on(self, lines: list[bytes]) -> None:
        """Pass on the sightings in lines; BrokenError if the ingest is away."""
        requests, reached, now = [], self._reached, self._now()
        for line in lines:
            event = _event(line)
            if event is None:
                self._processor.refuse(MALFORMED)
                continue
            requests.append(verified(tag_of(self._key.encode(), line), [decoders.read_spaces(event)], now))
            at = decoders.recorded(event)
            if at is not None and at <= now:
                reached = at if reached is None else max(reached, at)
        if not await self._processor.process(self._stream.source, requests):
            raise BrokenError
        self._reached = reached


def _headers(key: str) -> dict[str, str]:
    return {KEY_HEADER: key, "accept-encoding": "identity"}


def _client(stream: Stream) -> httpx.AsyncClient:
    try:
        import httpx  # noqa: PLC0415 - as in run
    except ImportError:
        msg = f"[[stream]]: needs httpx; {OPTIONAL}"
        raise UsageError(msg) from None
    known = None if stream.ca_file is None else str(stream.ca_file)
    try:
        context = ssl.create_default_context(cafile=known)
    except OSError as error:
        msg = f"stream {stream.name}: ca_file must contain certificates in PEM, got {known} ({error.strerror})"
        raise UsageError(msg) from None
    return httpx.AsyncClient(verify=context, timeout=httpx.Timeout(10.0, read=SILENCE), follow_redirects=False)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield complete lines as they come, in groups; BrokenError if one is too long."""
    left = b""
    async for piece in pieces:
        *whole, left = (left + piece).split(b"\n")
        if len(left) > LONGEST_LINE:
            raise BrokenError
        lines = [line for line in whole if line.strip()]
        for start in range(0, len(lines), LONGEST_BATCH):
            yield lines[start : start + LONGEST_BATCH]


def _event(line: bytes) -> Mapping[str, object] | None:
    try:
        return document_of(line)
    except RefusedError:
        return None
