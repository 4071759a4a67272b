"""Answers that are owed: none is given before what it answers is durable.

A repeated request is answered but not stored twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from typing import Any, Protocol

from connectors.intake.ingest_state import BatchKey
from stream.records import SECOND, Micros

MEMORY: Micros = 60 * SECOND
LIMIT = 65_536
"""So many are remembered; beyond, the oldest is forgotten and its copy would be taken as new."""
ANSWER_OCTETS = 64 * 1024 * 1024
"""Answers held for requests that are not durable yet: so many octets, and one datagram more at most."""

RequestKey = tuple[Any, ...]
"""What makes two requests one: their sender and what they say."""


class Answer(Protocol):
    """What one sender waits for; exactly one of the two is called, once."""

    def give(self) -> None:
        """What it sent is durable, or there was nothing to store."""

    def withhold(self) -> None:
        """It is not stored and will not be: the sender asks again."""


class Owed:
    """The answers that wait for their batch."""

    def __init__(self) -> None:
        self._owed: dict[BatchKey, list[Answer]] = {}

    def owe(self, answer: Answer, batch: BatchKey) -> None:
        """Hold an answer until the batch that says the same is no longer open."""
        self._owed.setdefault(batch, []).append(answer)

    def due(self, still_open: Container[BatchKey]) -> Iterator[Answer]:
        """Give up the answers of all batches but those that are still open."""
        for batch in [batch for batch in self._owed if batch not in still_open]:
            yield from self._owed.pop(batch)


class Reply:
    """One datagram to send when its request is durable: the sender's own words, held for it alone, shown nowhere."""

    __slots__ = ("address", "datagram", "key", "requests")

    def __init__(self, requests: Requests, key: RequestKey, address: Any, datagram: bytes) -> None:
        self.requests, self.key, self.address, self.datagram = requests, key, address, datagram

    def __repr__(self) -> str:
        """Show nothing."""
        return "Reply()"

    def give(self) -> None:
        """Send it, and hold it no longer."""
        self.requests.settle(self)

    def withhold(self) -> None:
        """Hold it no longer."""
        self.requests.drop(self)


class Requests:
    """The requests heard lately at one entrance, whether they are durable, and the replies held until they are."""

    def __init__(self, send: Callable[[bytes, Any], None], memory: Micros = MEMORY, limit: int = LIMIT) -> None:
        """Take what sends a datagram to an address, how long a request is remembered, and how many are."""
        self._send, self._memory, self._limit = send, memory, limit
        self._heard: OrderedDict[RequestKey, tuple[Micros, bool]] = OrderedDict()
        self._held = 0

    def earlier(self, key: RequestKey, now: Micros) -> bool | None:
        """Return None for a new request, else whether the first of its kind is durable."""
        while self._heard and next(iter(self._heard.values()))[0] < now - self._memory:
            self._heard.popitem(last=False)
        heard = self._heard.get(key)
        return None if heard is None else heard[1]

    @property
    def full(self) -> bool:
        """Whether no further reply may be held."""
        return self._held > ANSWER_OCTETS

    def remember(self, reply: Reply, now: Micros) -> None:
        """Note a request that was taken, and hold its reply."""
        self._held += len(reply.datagram)
        self._heard[reply.key] = (now, False)
        if len(self._heard) > self._limit:
            self._heard.popitem(last=False)

    def settle(self, reply: Reply) -> None:
        """Note that a request is durable, and send its reply."""
        self.drop(reply)
        heard = self._heard.get(reply.key)
        if heard is not None:
            self._heard[reply.key] = (heard[0], True)
        self._send(reply.datagram, reply.address)

    def drop(self, reply: Reply) -> None:
        """Hold a reply no longer."""
        self._held -= len(reply.datagram)
