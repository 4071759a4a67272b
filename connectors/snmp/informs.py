"""Informs that were heard lately, so that a repeated one is answered but not stored twice."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from stream.records import SECOND, Micros

MEMORY: Micros = 60 * SECOND
LIMIT = 65_536
"""So many are remembered; beyond, the oldest is forgotten and its copy would be taken as new."""

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
    """The informs of the last minute, and whether what they said is durable."""

    def __init__(self) -> None:
        self._heard: OrderedDict[InformKey, tuple[Micros, bool]] = OrderedDict()

    def earlier(self, key: InformKey, now: Micros) -> bool | None:
        """Return None for a new inform, else whether the first of its kind is durable."""
        while self._heard and next(iter(self._heard.values()))[0] < now - MEMORY:
            self._heard.popitem(last=False)
        heard = self._heard.get(key)
        return None if heard is None else heard[1]

    def remember(self, key: InformKey, now: Micros) -> None:
        """Note an inform that was taken."""
        self._heard[key] = (now, False)
        if len(self._heard) > LIMIT:
            self._heard.popitem(last=False)

    def is_durable(self, key: InformKey) -> None:
        """Note that what an inform said has been stored."""
        heard = self._heard.get(key)
        if heard is not None:
            self._heard[key] = (heard[0], True)
