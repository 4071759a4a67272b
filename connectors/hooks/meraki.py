"""Meraki's Scanning API, version 3: of a whole network, who was last heard by which access point; pure, no I/O.

It tells of every device that is heard; only those that are associated, which have a network's name, are taken: others
are passers-by, under addresses that mean nothing. Positions, users' names, and addresses of networks go no further
than here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from connectors.hooks.reading import (
    NOT_AN_OBSERVATION,
    NOT_ASSOCIATED,
    Read,
    address,
    entries,
    sighted,
    table,
    timestamp,
)
from connectors.intake.sighting import Kind
from stream.records import Micros


def secret(document: dict[str, Any]) -> str:
    """Return the secret in a document; it is compared, and goes no further."""
    given = document.get("secret")
    return given if isinstance(given, str) else ""


def read(document: dict[str, Any]) -> Iterator[Read]:
    """Yield what each observation says; Bluetooth is passed over."""
    version = document.get("version")
    if document.get("type") != "WiFi" or not str(version).startswith("3"):
        yield NOT_AN_OBSERVATION
        return
    for one in entries(table(document.get("data")).get("observations")):
        yield _observed(table(one))


def _observed(one: dict[str, Any]) -> Read:
    if not one.get("ssid"):
        return NOT_ASSOCIATED
    latest = table(one.get("latestRecord"))
    heard = [(timestamp(latest.get("time")), address(latest.get("nearestApMac")))]
    heard += [(timestamp(place.get("time")), _nearest(place)) for place in map(table, entries(one.get("locations")))]
    at, radio = max(((at, radio) for at, radio in heard if at is not None and radio), default=_missing(heard))
    return sighted(Kind.RUN, address(one.get("clientMac")), (radio, b""), at)


def _missing(heard: list[tuple[Micros | None, bytes]]) -> tuple[Micros | None, bytes]:
    """Return an access point that has no time, where there is one."""
    return next(((None, radio) for _, radio in heard if radio), (None, b""))


def _nearest(place: dict[str, Any]) -> bytes:
    """Return the access point that heard a device best at one of its places."""
    heard = [
        (_strength(each.get("rssi")), address(each.get("apMac")))
        for each in map(table, entries(place.get("rssiRecords")))
    ]
    return max((each for each in heard if each[1]), default=(0.0, b""))[1]


def _strength(value: object) -> float:
    try:
        read = float(value) if isinstance(value, str | int | float) else -math.inf
    except (ValueError, OverflowError):
        return -math.inf
    return -math.inf if math.isnan(read) else read
