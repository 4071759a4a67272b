"""Decoders of cloud systems, with strict readers of JSON values; pure, no I/O.

**Juniper Mist** (``read_mist``): webhooks of clients, topics ``client-join`` and ``client-sessions``. A join contains a
client and its access point. A session is reported at its end: a client that roamed to another access point is there
from then on, a client that disconnected leaves. The stay that ends is the one that began in the same second at the same
access point. User names, networks and models do not leave this module.

**Meraki's Scanning API, version 3** (``read_meraki``): for a whole network, which access point last received each
device. It reports every device in range. Only associated devices, which have a network's name, are accepted: others
belong to passers-by, with addresses that mean nothing. Positions, users' names and addresses of networks do not leave
this module.

**Cisco Spaces' Firehose** (``read_spaces``): lines of JSON, one event each, of which ``DEVICE_LOCATION_UPDATE``
contains a device and its place. The places are Spaces' own, so a zone of the policy names them by their ``locationId``,
as it names access points by name; an access point's address is used if an event has one. Only associated devices have a
network's name. E-mail addresses, names and positions do not leave this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from connectors.sources.ingest.addresses import LONGEST_NAME, NOWHERE, parse_address
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.ingest_socket.frames import TimedSighting
from stream.records import Micros

NOT_AN_OBSERVATION, NOT_ASSOCIATED = "not_an_observation", "not_associated"
NO_CLIENT, NO_ACCESS_POINT, NO_TIME = "no_client", "no_access_point", "no_time"
ROW_REASONS = (NOT_AN_OBSERVATION, NOT_ASSOCIATED, NO_CLIENT, NO_ACCESS_POINT, NO_TIME)
_LAST: Micros = 2**52

Read = TimedSighting | str
"""A sighting, or the reason why there is none: one of ``ROW_REASONS``."""


def sighted(kind: Kind, client: bytes, place: tuple[bytes, bytes], at: Micros | None, session: bytes = b"") -> Read:
    """Return a sighting at a place, (radio's address, access point's name), or the reason of what is missing."""
    radio, name = place
    if not client:
        return NO_CLIENT
    if not (radio or name):
        return NO_ACCESS_POINT
    return NO_TIME if at is None else TimedSighting(Sighting(kind, client, radio, name, session=session), at)


def table(value: object) -> Mapping[str, object]:
    """Return a JSON object, empty if the value is none."""
    return value if isinstance(value, dict) else {}


def entries(value: object) -> Sequence[object]:
    """Return a JSON list, empty if the value is none."""
    return value if isinstance(value, list) else []


def address(value: object) -> bytes:
    """Return an address in any spelling; empty if it is invalid, zeros, or a group's."""
    if not isinstance(value, str) or len(value) > 32 or not value.isascii():
        return b""
    octets = parse_address(value.strip().encode())
    return b"" if octets is None or octets == NOWHERE or octets[0] & 1 else octets


def name(value: object) -> bytes:
    """Return a name, empty if it is missing, or longer than names are."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        return b""
    return value.encode("utf-8", "replace")


def seconds(*values: object) -> Micros | None:
    """Return the first value that is a time in seconds since 1970, with or without fractions."""
    return next((read for read in (_scaled(value, 1_000_000) for value in values) if read is not None), None)


def milliseconds(*values: object) -> Micros | None:
    """Return the first value that is a time in milliseconds since 1970, as a number or, for int64, as digits."""
    return next((read for read in (_scaled(value, 1_000) for value in values) if read is not None), None)


def timestamp(value: object) -> Micros | None:
    """Return an RFC 3339 time, with its offset."""
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


# --- Juniper Mist -----------------------------------------------------------------------------------
SIGNATURE = "x-mist-signature-v2"
"""Hexadecimal HMAC-SHA256 of the body under the webhook's secret."""
JOIN, SESSIONS = "client-join", "client-sessions"
ROAMED = 3
"""Of ``termination_reason``; 1 is a disassociation, 2 a time-out."""


def read_mist(document: Mapping[str, object]) -> Iterator[Read]:
    """Yield the result of each event."""
    how = {JOIN: _joined, SESSIONS: _ended}.get(str(document.get("topic")))
    if how is None:
        yield NOT_AN_OBSERVATION
        return
    for event in entries(document.get("events")):
        yield how(table(event))


def _joined(event: Mapping[str, object]) -> Read:
    at = seconds(event.get("connect_float"), event.get("connect"), event.get("timestamp"))
    return sighted(Kind.ASSOCIATE, address(event.get("mac")), _place(event), at, _session(event))


def _ended(event: Mapping[str, object]) -> Read:
    client = address(event.get("mac"))
    at = seconds(event.get("disconnect_float"), event.get("disconnect"), event.get("timestamp"))
    following = address(event.get("next_ap"))
    if event.get("termination_reason") == ROAMED and following:
        return sighted(Kind.ROAM, client, (following, b""), at)
    return sighted(Kind.LEAVE, client, _place(event), at, _session(event))


def _place(event: Mapping[str, object]) -> tuple[bytes, bytes]:
    return address(event.get("ap")) or address(event.get("bssid")), name(event.get("ap_name"))


def _session(event: Mapping[str, object]) -> bytes:
    """Return the value that join and end of a stay share: the second at which it began."""
    began = seconds(event.get("connect"))
    return b"" if began is None else (began // 1_000_000).to_bytes(8, "big")


# --- Meraki -----------------------------------------------------------------------------------------
def read_meraki(document: Mapping[str, object]) -> Iterator[Read]:
    """Yield the result of each observation; Bluetooth is skipped."""
    version = document.get("version")
    if document.get("type") != "WiFi" or not str(version).startswith("3"):
        yield NOT_AN_OBSERVATION
        return
    for one in entries(table(document.get("data")).get("observations")):
        yield _observed(table(one))


def _observed(one: Mapping[str, object]) -> Read:
    if not one.get("ssid"):
        return NOT_ASSOCIATED
    latest = table(one.get("latestRecord"))
    received = [(timestamp(latest.get("time")), address(latest.get("nearestApMac")))]
    received += [(timestamp(place.get("time")), _nearest(place)) for place in map(table, entries(one.get("locations")))]
    at, radio = max(((at, radio) for at, radio in received if at is not None and radio), default=_missing(received))
    return sighted(Kind.RUN, address(one.get("clientMac")), (radio, b""), at)


def _missing(received: list[tuple[Micros | None, bytes]]) -> tuple[Micros | None, bytes]:
    """Return an access point without a time, if there is one."""
    return next(((None, radio) for _, radio in received if radio), (None, b""))


def _nearest(place: Mapping[str, object]) -> bytes:
    """Return the access point that received a device best at one of its places."""
    received = [
        (_strength(each.get("rssi")), address(each.get("apMac")))
        for each in map(table, entries(place.get("rssiRecords")))
    ]
    return max((each for each in received if each[1]), default=(0.0, b""))[1]


def _strength(value: object) -> float:
    try:
        read = float(value) if isinstance(value, str | int | float) else -math.inf
    except (ValueError, OverflowError):
        return -math.inf
    return -math.inf if math.isnan(read) else read


# --- Cisco Spaces -----------------------------------------------------------------------------------
LOCATION_UPDATE = "DEVICE_LOCATION_UPDATE"


def read_spaces(event: Mapping[str, object]) -> Read:
    """Return the result of one event."""
    if event.get("eventType") != LOCATION_UPDATE:
        return NOT_AN_OBSERVATION
    update = table(event.get("deviceLocationUpdate"))
    if not update.get("ssid"):
        return NOT_ASSOCIATED
    radio = address(table(update.get("maxDetectedRssi")).get("apMacAddress"))
    place = radio, name(table(update.get("location")).get("locationId"))
    at = milliseconds(update.get("lastSeen"), event.get("recordTimestamp"))
    return sighted(Kind.RUN, address(table(update.get("device")).get("macAddress")), place, at)


def recorded(event: Mapping[str, object]) -> Micros | None:
    """Return the time of an event: the position to resume from."""
    return milliseconds(event.get("recordTimestamp"))
