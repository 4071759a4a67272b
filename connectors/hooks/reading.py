"""What decoders of cloud systems share: values of JSON read strictly, and why one says nothing of anybody; pure."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from connectors.handover.frames import Dated
from connectors.intake.addresses import LONGEST_NAME, NOWHERE
from connectors.intake.sighting import Kind, Sighting
from connectors.spellings import spelled
from stream.records import Micros

NOT_AN_OBSERVATION, NOT_ASSOCIATED = "not_an_observation", "not_associated"
NO_CLIENT, NO_ACCESS_POINT, NO_TIME = "no_client", "no_access_point", "no_time"
ROW_REASONS = (NOT_AN_OBSERVATION, NOT_ASSOCIATED, NO_CLIENT, NO_ACCESS_POINT, NO_TIME)
_LAST: Micros = 2**52

Read = Dated | str
"""A sighting, or why there is none: one of ``ROW_REASONS``."""


def sighted(kind: Kind, client: bytes, place: tuple[bytes, bytes], at: Micros | None, session: bytes = b"") -> Read:
    """Return a sighting at a place, (radio's address, access point's name), or what is missing of it."""
    radio, name = place
    if not client:
        return NO_CLIENT
    if not (radio or name):
        return NO_ACCESS_POINT
    return NO_TIME if at is None else Dated(Sighting(kind, client, radio, name, session=session), at)


def table(value: object) -> dict[str, Any]:
    """Return an object of JSON, empty where it is none."""
    return value if isinstance(value, dict) else {}


def entries(value: object) -> list[Any]:
    """Return a list of JSON, empty where it is none."""
    return value if isinstance(value, list) else []


def address(value: object) -> bytes:
    """Return an address in any spelling; empty where it is none, zeros, or a group's."""
    if not isinstance(value, str) or len(value) > 32 or not value.isascii():
        return b""
    octets = spelled(value.strip().encode())
    return b"" if octets is None or octets == NOWHERE or octets[0] & 1 else octets


def name(value: object) -> bytes:
    """Return a name, empty where it is none, or longer than names are."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        return b""
    return value.encode("utf-8", "replace")


def seconds(*values: object) -> Micros | None:
    """Return the first that is a time in seconds since 1970, with or without fractions."""
    return next((read for read in (_scaled(value, 1_000_000) for value in values) if read is not None), None)


def milliseconds(*values: object) -> Micros | None:
    """Return the first that is a time in milliseconds since 1970, as a number or, as int64 is in JSON, its digits."""
    return next((read for read in (_scaled(value, 1_000) for value in values) if read is not None), None)


def timestamp(value: object) -> Micros | None:
    """Return a time of RFC 3339, with its offset."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        read = datetime.fromisoformat(value)
        return None if read.tzinfo is None else _scaled(read.timestamp(), 1_000_000)
    except (ValueError, OverflowError):
        return None


def _scaled(value: object, factor: int) -> Micros | None:
    if isinstance(value, str) and len(value) <= 16 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    scaled = round(value * factor) if abs(value) < _LAST else 0
    return scaled if 0 < scaled < _LAST else None
