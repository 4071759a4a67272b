"""Informs that were heard lately, and the answers that are owed to them.

A repeated inform is answered but not stored twice, and none is answered before what it said is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from connectors.snmp.ingest_state import BatchKey
from stream.records import SECOND, Micros

MEMORY: Micros = 60 * SECOND
LIMIT = 65_536
"""So many are remembered; beyond, the oldest is forgotten and its copy would be taken as new."""
ANSWER_OCTETS = 64 * 1024 * 1024
"""Answers held for informs that are not durable yet: so many octets, and one datagram more at most."""

InformKey = tuple[Any, ...]
"""Sender, request id, and what the inform says: a sender that starts its ids again is not mistaken."""


class Answer(NamedTuple):
    """What to send when an inform is durable: the sender's own words, held for it alone and shown nowhere."""

    key: InformKey
    address: Any
    datagram: bytes

    def __repr__(self) -> str:
        """Show nothing."""
        return "Answer()"


class Informs:
    """The informs of the last minute, whether what they said is durable, and the answers held until it is."""

    def __init__(self) -> None:
        self._heard: OrderedDict[InformKey, tuple[Micros, bool]] = OrderedDict()
        self._owed: dict[BatchKey, list[Answer]] = {}
        self._held = 0

    def earlier(self, key: InformKey, now: Micros) -> bool | None:
        """Return None for a new inform, else whether the first of its kind is durable."""
        while self._heard and next(iter(self._heard.values()))[0] < now - MEMORY:
            self._heard.popitem(last=False)
        heard = self._heard.get(key)
        return None if heard is None else heard[1]

    @property
    def full(self) -> bool:
        """Whether no further answer may be held."""
        return self._held > ANSWER_OCTETS

    def remember(self, answer: Answer, now: Micros) -> None:
        """Note an inform that was taken, and hold its answer."""
        self._held += len(answer.datagram)
        self._heard[answer.key] = (now, False)
        if len(self._heard) > LIMIT:
            self._heard.popitem(last=False)

    def owe(self, answer: Answer, batch: BatchKey) -> None:
        """Hold an answer until the batch that says the same is no longer open."""
        self._owed.setdefault(batch, []).append(answer)

    def due(self, still_open: Container[BatchKey]) -> Iterator[Answer]:
        """Give up the answers of all batches but those that are still open."""
        for batch in [batch for batch in self._owed if batch not in still_open]:
            yield from self._owed.pop(batch)

    def settle(self, answer: Answer) -> None:
        """Note that what an inform said is durable, and hold its answer no longer."""
        self.drop(answer)
        heard = self._heard.get(answer.key)
        if heard is not None:
            self._heard[answer.key] = (heard[0], True)

    def drop(self, answer: Answer) -> None:
        """Hold an answer no longer that is never sent."""
        self._held -= len(answer.datagram)
