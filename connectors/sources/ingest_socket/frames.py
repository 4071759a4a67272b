"""The protocol of the ingest's socket: JSON, one line per message; pure.

    {"hearing": true}                                       whether all systems can be received
    {"id": 7, "source": "cloud:mist", "rows": [...]}        sightings of one source
    {"id": 7, "kept": true}                                 the acknowledgement: all rows to be stored are durable

A row is [kind, device, access point, name, time in microseconds, session], addresses and session in hexadecimal. Behind
it comes the user name, in hexadecimal too, if there is one: 'tacet poll' sends it for sites that count logins. The
ingest trusts nothing but the file system, whose permissions decide who may open the socket. Each line is validated
whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from connectors.sources.ingest.addresses import LONGEST_NAME
from connectors.sources.ingest.logins import LONGEST_LOGIN
from connectors.sources.ingest.sighting import OBSERVATIONS, Kind, Sighting
from stream.records import Micros

LONGEST_LINE = 1 << 20
"""Octets."""
MOST_ROWS = 1000
"""Maximum of one line."""
_AROUND_ROWS, _AROUND_FIELDS = 256, 64
"""Octets of a line besides its rows at most, and of a row besides names and addresses."""
MOST_ID = 2**53
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_SHORT = 32
"""Octets of an address or a session at most."""
_SOURCE = re.compile(r"[\x21-\x7e]{1,64}")


class FrameError(ValueError):
    """A line that is not valid; the error contains nothing of its content."""


class TimedSighting(NamedTuple):
    """A sighting and its time by the sender's clock; its repr hides both."""

    sighting: Sighting
    at: Micros

    def __repr__(self) -> str:
        """Show nothing."""
        return "TimedSighting()"


class Batch(NamedTuple):
    """Sightings of one source that are acknowledged together; its repr hides them."""

    number: int
    source: str
    rows: tuple[TimedSighting, ...]

    def __repr__(self) -> str:
        """Show nothing."""
        return "Batch()"


def encode_batch(batch: Batch) -> bytes:
    """Return a batch as a line."""
    rows = [
        [str(seen.kind), seen.client.hex(), seen.access_point.hex(), seen.name.decode("utf-8", "replace"), at,
         seen.session.hex(), *([seen.user_name.hex()] if seen.user_name else [])]
        for seen, at in batch.rows
    ]  # fmt: skip
    return orjson.dumps({"id": batch.number, "source": batch.source, "rows": rows}) + b"\n"


def encode_can_receive(*, can_receive: bool) -> bytes:
    """Return a line with whether all systems can be received."""
    return orjson.dumps({"hearing": can_receive}) + b"\n"


def encode_answer(number: int, *, kept: bool) -> bytes:
    """Return the acknowledgement of a batch as a line."""
    return orjson.dumps({"id": number, "kept": kept}) + b"\n"


def decode(line: bytes) -> Batch | bool:
    """Return a batch, or whether all systems can be received; raises ``FrameError``."""
    document = _object(line)
    if set(document) == {"hearing"} and isinstance(document["hearing"], bool):
        return document["hearing"]
    if set(document) != {"id", "source", "rows"}:
        raise FrameError
    source, rows = document["source"], document["rows"]
    if not isinstance(source, str) or not _SOURCE.fullmatch(source):
        raise FrameError
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise FrameError
    return Batch(_number(document["id"]), source, tuple(map(_row, rows)))


def decode_answer(line: bytes) -> tuple[int, bool]:
    """Return the number of the acknowledged batch and whether it is stored; raises ``FrameError``."""
    document = _object(line)
    if set(document) != {"id", "kept"} or not isinstance(document["kept"], bool):
        raise FrameError
    return _number(document["id"]), document["kept"]


def batches(source: str, rows: Sequence[TimedSighting], first: int) -> list[Batch]:
    """Return rows as batches of one line each, numbered from ``first`` on.

    A longer line than ``LONGEST_LINE`` would be refused each time that it is sent.
    """
    parts: list[list[TimedSighting]] = []
    left = 0
    for row in rows:
        size = _most_octets(row.sighting)
        if size > left or len(parts[-1]) == MOST_ROWS:
            parts.append([])
            left = LONGEST_LINE - _AROUND_ROWS
        parts[-1].append(row)
        left -= size
    return [Batch(first + place, source, tuple(part)) for place, part in enumerate(parts)]


def _most_octets(seen: Sighting) -> int:
    """Return how many octets of a line a row takes at most: JSON escapes an octet of a name by up to six."""
    octets = len(seen.client) + len(seen.access_point) + len(seen.session) + len(seen.user_name)
    return _AROUND_FIELDS + 6 * len(seen.name) + 2 * octets


def _object(line: bytes) -> dict[str, object]:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise FrameError from None
    if not isinstance(document, dict):
        raise FrameError
    return document


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST_ID:
        raise FrameError
    return value


def _row(value: object) -> TimedSighting:
    if not isinstance(value, list) or len(value) not in {6, 7}:
        raise FrameError
    kind, client, access_point, name, at, session, *user = value
    if not isinstance(kind, str) or kind not in OBSERVATIONS or not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise FrameError
    device, radio = _octets(client), _octets(access_point)
    if len(device) != 6 or len(radio) not in {0, 6} or not (radio or name):
        raise FrameError
    try:
        seen = Sighting(
            Kind(kind), device, radio, name.encode(), session=_octets(session),
            user_name=_octets(user[0], LONGEST_LOGIN) if user else b"",
        )  # fmt: skip
    except UnicodeEncodeError:
        raise FrameError from None
    return TimedSighting(seen, _number(at))


def _octets(value: object, most: int = _SHORT) -> bytes:
    if not isinstance(value, str) or len(value) > 2 * most or not _HEX.fullmatch(value):
        raise FrameError
    return bytes.fromhex(value)
