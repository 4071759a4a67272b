"""Event streams: each reader gets an audience's releases in the order of their arrival, and goes on behind the last.

A stream holds no queue. It remembers the id of the last release it has sent, and asks for what stands behind it:
of the newest releases in memory, of older ones in the history. So a reader that is slow costs nothing, and one that
takes nothing for ``PATIENCE`` seconds is ended; it goes on by id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice

import anyio.to_thread
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from connectors.serve.access import Access, Principal
from connectors.serve.answers import RefusalError
from connectors.serve.contract import ReleasedHistory

HEARTBEAT = 15
"""Seconds between two signs of life on a stream that has nothing to say."""
PATIENCE = 30.0
"""Seconds for which a reader may take nothing."""
MOST_STREAMS, MOST_OF_ONE = 256, 64
"""Streams open at once: in all, and of one principal."""
KEPT = 128
"""Releases of an audience that are kept in memory for those who keep up."""
AT_ONCE = 256

Given = tuple[str, bytes]
"""A release id and its record."""


class Tail:
    """The newest releases of one audience, found by id."""

    def __init__(self, kept: int = KEPT) -> None:
        self._releases: deque[Given] = deque(maxlen=kept)
        self._place: dict[str, int] = {}
        self._count = 0

    def add(self, releases: Iterable[Given]) -> None:
        """Add releases as they have arrived."""
        for release in releases:
            if len(self._releases) == self._releases.maxlen:
                del self._place[self._releases[0][0]]
            self._releases.append(release)
            self._place[release[0]] = self._count
            self._count += 1

    def behind(self, release_id: str) -> list[Given] | None:
        """Return what stands behind a release; None where it is not in memory."""
        if release_id not in self._place:
            return None
        first = self._count - len(self._releases)
        begin = self._place[release_id] - first + 1
        return list(islice(self._releases, begin, begin + AT_ONCE))


class Streams:
    """All open streams, and what they are waiting for."""

    def __init__(self, access: Access, history: ReleasedHistory) -> None:
        self.history = history
        self._access = access
        self._tails: dict[str, Tail] = {}
        self._open: dict[asyncio.Event, Principal] = {}
        self._stopping = ""

    def publish(self, audience: str, releases: Sequence[Given]) -> None:
        """Let an audience's streams go on: releases have arrived, and are in the history."""
        self._tails.setdefault(audience, Tail()).add(releases)
        self._wake()

    def sweep(self) -> None:
        """End the streams of those who may not see them any more."""
        if any(not self._holds(who) for who in self._open.values()):
            self._wake()

    def stop(self, why: str) -> None:
        """End every stream, and open no more."""
        self._stopping = why
        self._wake()

    def restart(self, history: ReleasedHistory) -> None:
        """End every stream: its history has been begun anew."""
        self.history, self._tails = history, {}
        self._wake()
        self._open = {}

    def __len__(self) -> int:
        return len(self._open)

    def refuse_more(self, who: Principal) -> None:
        """Refuse one stream too many."""
        if self._stopping or len(self._open) >= MOST_STREAMS:
            raise RefusalError(503, "stream", f"must be one of at most {MOST_STREAMS} at a time", retry=5)
        if sum(other.name == who.name for other in self._open.values()) >= MOST_OF_ONE:
            raise RefusalError(429, "stream", f"must be one of at most {MOST_OF_ONE} of one reader", retry=5)

    def open(self, who: Principal, audience: str, after: str) -> EventStream:
        """Return a stream of what stands behind a release, and of what comes; it has its place from now on.

        Raises:
            RefusalError: it is one too many.
        """
        self.refuse_more(who)
        wake = asyncio.Event()
        self._open[wake] = who
        return EventStream(self._events(wake, who, audience, after), lambda: self._open.pop(wake, None))

    async def _events(self, wake: asyncio.Event, who: Principal, audience: str, after: str) -> AsyncIterator[bytes]:
        """Yield releases until the reader goes or may stay no longer."""
        last = after
        yield event("ready", b"{}", last)
        while (why := self._ended(wake, who)) is None:
            wake.clear()
            releases = await self._behind(audience, last)
            for last, record in releases:
                yield event("release", record, last)
                await asyncio.sleep(0)  # others have their turn, and it shows whether the reader has gone
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
        except ValueError:  # a file of tokens that cannot be read lets nobody stay
            return False

    async def _behind(self, audience: str, after: str) -> list[Given]:
        tail = self._tails.get(audience)
        held = None if tail is None else tail.behind(after)
        if held is not None:
            return held
        return await anyio.to_thread.run_sync(self.history.since, audience, after, AT_ONCE)

    def _wake(self) -> None:
        for wake in self._open:
            wake.set()


class EventStream(EventSourceResponse):
    """The answer that carries a stream; a reader that takes nothing is cut off."""

    def __init__(self, events: AsyncIterator[bytes], leave: Callable[[], object]) -> None:
        """``leave`` is called when it is over, however little of it there was."""
        super().__init__(events, ping=HEARTBEAT, ping_message_factory=_sign_of_life, sep="\n", send_timeout=PATIENCE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until they end."""
        try:
            with suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _sign_of_life() -> ServerSentEvent:
    return ServerSentEvent(comment="", sep="\n")


def event(name: str, data: bytes, identity: str | None = None) -> bytes:
    """Return an event as it is sent; a record is one line of JSON, and an id has no line ends."""
    at = "" if identity is None else f"id: {identity}\n"
    return b"".join((f"{at}event: {name}\ndata: ".encode(), data, b"\n\n"))
