"""Processes verified requests: drops copies, and passes sightings on.

A request is recorded as accepted only afterwards.

The tags of accepted requests (``ReplayCache``) are in one SQLite file of mode 0600, locked by one process, so that a
copy is recognised after a restart too. A tag is retained for longer than its request could be accepted. It is written
when the request's sightings are durable, before its sender gets a success response.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol

from connectors.secrets.locked_file import LockedFile
from connectors.sources.cloud.verification import FURTHEST, OLDEST, VerifiedRequest
from connectors.sources.ingest_socket.frames import TimedSighting
from stream.errors import KeyFileError, TacetError
from stream.records import MINUTE, Micros

KEPT: Micros = OLDEST + FURTHEST + MINUTE
_SCHEMA = "CREATE TABLE IF NOT EXISTS taken (tag BLOB PRIMARY KEY, at INTEGER) WITHOUT ROWID"


class ReplayCache:
    """The open file; ``close`` releases it. ``KeyFileError`` if it cannot be used."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; KeyFileError if others can read it, or another process has locked it."""
        self._file = LockedFile(path, _SCHEMA, whose="'tacet hooks'", by="another 'tacet hooks' uses it")
        try:
            with self._file.usable():
                rows = self._file.database.execute("SELECT tag, at FROM taken ORDER BY at")
                self._tags = OrderedDict[bytes, Micros](rows)
        except KeyFileError:
            self._file.close()
            raise

    def knows(self, tag: bytes) -> bool:
        """Return whether the request of a tag was accepted."""
        return tag in self._tags

    def keep(self, tags: Iterable[bytes], now: Micros) -> None:
        """Remember tags; they survive a crash after this returns.

        Tags of requests that are too old to come again are deleted.
        """
        fresh = dict.fromkeys(tags, now)
        self._tags.update(fresh)
        while self._tags and next(iter(self._tags.values())) < now - KEPT:
            self._tags.popitem(last=False)
        with self._file.changing() as database:
            database.executemany("INSERT OR REPLACE INTO taken VALUES (?, ?)", fresh.items())
            database.execute("DELETE FROM taken WHERE at < ?", (now - KEPT,))

    def close(self) -> None:
        """Close and release the file."""
        self._file.close()


REPLAYED, UNAVAILABLE = "replayed", "ingest_away"


class SightingReceiver(Protocol):
    """Receives sightings."""

    async def hand_over(self, source: str, rows: Sequence[TimedSighting]) -> bool:
        """Pass rows on; return whether all rows to be stored are durable."""


@dataclass(slots=True)
class WebhookCounts:
    """The results of all requests or events, and of the rows in accepted ones."""

    requests: int = 0
    taken: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    """Rows that were passed on."""
    dropped: Counter[str] = field(default_factory=Counter)

    def check(self) -> bool:
        """Return whether every request is counted exactly once."""
        return self.requests == self.taken + self.refused.total()


class WebhookProcessor:
    """Processes each request once."""

    def __init__(self, receiver: SightingReceiver, replays: ReplayCache, now: Callable[[], Micros]) -> None:
        """Set the receiver of sightings, the recently accepted tags, and the clock."""
        self._receiver, self._replays, self._now = receiver, replays, now
        self._in_flight: set[bytes] = set()
        self._broken = asyncio.Event()
        self._failure: TacetError | None = None
        self.counts = WebhookCounts()

    async def failed(self) -> NoReturn:
        """Wait until tags can no longer be stored, and raise the error: copies could not be recognised."""
        await self._broken.wait()
        raise self._failure or TacetError("hooks: the tags of accepted requests cannot be stored")

    def refuse(self, reason: str) -> None:
        """Count a request that is not genuine."""
        self.counts.requests += 1
        self.counts.refused[reason] += 1

    async def process(self, source: str, requests: Iterable[VerifiedRequest]) -> bool:
        """Pass on the sightings of genuine requests; return whether their sender may forget them.

        A copy of an accepted request is counted and may be forgotten; a copy of one in progress may not be forgotten
        yet.
        """
        done, fresh = True, list[VerifiedRequest]()
        for request in requests:
            self.counts.requests += 1
            if self._replays.knows(request.tag) or request.tag in self._in_flight:
                self.counts.refused[REPLAYED] += 1
                done &= request.tag not in self._in_flight
            else:
                self._in_flight.add(request.tag)
                fresh.append(request)
        try:
            return await self._hand_over(source, fresh) and done
        finally:
            self._in_flight.difference_update(request.tag for request in fresh)

    async def _hand_over(self, source: str, fresh: Sequence[VerifiedRequest]) -> bool:
        rows = [row for request in fresh for row in request.rows]
        if rows and not await self._receiver.hand_over(source, rows):
            self.counts.refused[UNAVAILABLE] += len(fresh)
            return False
        if fresh:
            self._keep([request.tag for request in fresh])
        self.counts.taken += len(fresh)
        self.counts.rows += len(rows)
        for request in fresh:
            self.counts.dropped.update(request.dropped)
        return True

    def _keep(self, tags: Sequence[bytes]) -> None:
        try:
            self._replays.keep(tags, self._now())
        except TacetError as error:
            self._failure = error
            self._broken.set()
            raise
