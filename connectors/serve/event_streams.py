"""Server-sent event streams: each reader receives an audience's releases in the order of their arrival.

A stream has no queue. It stores the id of the last release that it sent, and reads the next ones: the newest
releases from memory, older ones from the history. A slow reader therefore costs no memory. A reader that accepts
nothing for ``PATIENCE`` seconds is disconnected; it can resume by the id of its last event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from connectors.http.limits import PATIENCE
from connectors.http.responses import RefusalError
from connectors.runtime.offload import offload
from connectors.serve.access import Access, Principal
from connectors.serve.history.release_history import ReleaseHistory
from connectors.serve.reader_limits import STREAMS

RETRY = 5
"""Seconds after which a refused reader may retry."""
HEARTBEAT = 15
"""Seconds between two heartbeats on an idle stream."""
KEPT = 128
"""Releases of an audience that are kept in memory for readers that keep up."""
AT_ONCE = 256

StreamEvent = tuple[str, bytes]
"""A release id and its record."""


class Tail:
    """The newest releases of one audience in memory, indexed by id."""

    def __init__(self, kept: int = KEPT) -> None:
        self._releases: deque[StreamEvent] = deque(maxlen=kept)
        self._place: dict[str, int] = {}
        self._count = 0

    def add(self, releases: Iterable[StreamEvent]) -> None:
        """Append releases in the order of their arrival."""
        for release in releases:
            if len(self._releases) == self._releases.maxlen:
                del self._place[self._releases[0][0]]
            self._releases.append(release)
            self._place[release[0]] = self._count
            self._count += 1

    def behind(self, release_id: str) -> list[StreamEvent] | None:
        """Return the releases after a given one; None if that one is no longer in memory."""
        if release_id not in self._place:
            return None
        first = self._count - len(self._releases)
        begin = self._place[release_id] - first + 1
        return list(islice(self._releases, begin, begin + AT_ONCE))


class Streams:
    """All open streams, and the event that wakes each of them."""

    def __init__(self, access: Access, history: ReleaseHistory) -> None:
        self.history = history
        self._access = access
        self._tails: dict[str, Tail] = {}
        self._open: dict[asyncio.Event, Principal] = {}
        self._stopping = ""

    def publish(self, audience: str, releases: Sequence[StreamEvent]) -> None:
        """Wake an audience's streams after new releases were added to the history."""
        self._tails.setdefault(audience, Tail()).add(releases)
        self._notify()

    def sweep(self) -> None:
        """End the streams of readers whose authorisation has ended."""
        if any(not self._holds(who) for who in self._open.values()):
            self._notify()

    def stop(self, why: str) -> None:
        """End every stream, and open no new ones."""
        self._stopping = why
        self._notify()

    def restart(self, history: ReleaseHistory) -> None:
        """End every stream, because the history was replaced."""
        self.history, self._tails = history, {}
        self._notify()
        self._open = {}

    def __len__(self) -> int:
        return len(self._open)

    def refuse_more(self, who: Principal) -> None:
        """Raise RefusalError if the limit of streams is reached: in total, of one reader, or of readers without a
        token."""
        if self._stopping:
            raise RefusalError(503, "stream", "must be opened again later: the service is stopping", retry=RETRY)
        excess = STREAMS.exceeded((other.reader for other in self._open.values()), who.reader)
        if excess is not None:
            raise RefusalError(excess.status, "stream", f"must be one of at most {excess.limit}", retry=RETRY)

    def open(self, who: Principal, audience: str, after: str) -> EventStream:
        """Return a stream of the releases after a given one, and of those to come. It counts as open from now on.

        Raises:
            RefusalError: a limit of streams is reached.
        """
        self.refuse_more(who)
        wake = asyncio.Event()
        self._open[wake] = who
        return EventStream(self._events(wake, who, audience, after), lambda: self._open.pop(wake, None))

    async def _events(self, wake: asyncio.Event, who: Principal, audience: str, after: str) -> AsyncIterator[bytes]:
        """Yield events until the connection closes or the reader's authorisation ends."""
        last = after
        yield event("ready", b"{}", last)
        while (why := self._ended(wake, who)) is None:
            wake.clear()
            releases = await self._behind(audience, last)
            for last, record in releases:
                yield event("release", record, last)
                await asyncio.sleep(0)  # lets other tasks run, and lets the server notice a closed connection
            if not releases:
                await wake.wait()
        yield event("end", f'{{"why":"{why}"}}'.encode())

    def _ended(self, wake: asyncio.Event, who: Principal) -> str | None:
        if self._stopping:
            return self._stopping
        if wake not in self._open:
            return "rewound"
        return None if self._holds(who) else "revoked"

    def _holds(self, who: Principal) -> bool:
        try:
            return self._access.holds(who)
        except ValueError:  # an unreadable token file ends every stream
            return False

    async def _behind(self, audience: str, after: str) -> list[StreamEvent]:
        tail = self._tails.get(audience)
        releases = None if tail is None else tail.behind(after)
        if releases is not None:
            return releases
        return await offload(self.history.since, audience, after, AT_ONCE)

    def _notify(self) -> None:
        for wake in self._open:
            wake.set()


class EventStream(EventSourceResponse):
    """The response that carries a stream; a reader that accepts nothing is disconnected."""

    def __init__(self, events: AsyncIterator[bytes], leave: Callable[[], object]) -> None:
        """``leave`` is called when the stream ends, even before its first event."""
        super().__init__(events, ping=HEARTBEAT, ping_message_factory=_heartbeat, sep="\n", send_timeout=PATIENCE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end."""
        try:
            with suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="", sep="\n")


def event(name: str, data: bytes, identity: str | None = None) -> bytes:
    """Return an event in wire format. A record is one line of JSON, and an id contains no line ends."""
    at = "" if identity is None else f"id: {identity}\n"
    return b"".join((f"{at}event: {name}\ndata: ".encode(), data, b"\n\n"))
