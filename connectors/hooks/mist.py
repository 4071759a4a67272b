"""Juniper Mist's webhooks of clients, topics ``client-join`` and ``client-sessions``; pure, no I/O.

A join says who came to which access point. A session is reported when it is over, by its end: who went on to another
access point is there from then on, who went away leaves. The stay that ends so is the one that began at the same
second at the same access point. User names, networks and models go no further than here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.hooks.reading import NOT_AN_OBSERVATION, Read, address, entries, name, seconds, sighted, table
from connectors.intake.sighting import Kind

SIGNATURE = "x-mist-signature-v2"
"""Hexadecimal HMAC-SHA256 of the body under the webhook's secret."""
JOIN, SESSIONS = "client-join", "client-sessions"
ROAMED = 3
"""Of ``termination_reason``; 1 is a disassociation, 2 a time-out."""


def read(document: dict[str, Any]) -> Iterator[Read]:
    """Yield what each event says."""
    how = {JOIN: _joined, SESSIONS: _ended}.get(str(document.get("topic")))
    if how is None:
        yield NOT_AN_OBSERVATION
        return
    for event in entries(document.get("events")):
        yield how(table(event))


def _joined(event: dict[str, Any]) -> Read:
    at = seconds(event.get("connect_float"), event.get("connect"), event.get("timestamp"))
    return sighted(Kind.ASSOCIATE, address(event.get("mac")), _place(event), at, _session(event))


def _ended(event: dict[str, Any]) -> Read:
    client = address(event.get("mac"))
    at = seconds(event.get("disconnect_float"), event.get("disconnect"), event.get("timestamp"))
    following = address(event.get("next_ap"))
    if event.get("termination_reason") == ROAMED and following:
        return sighted(Kind.ROAM, client, (following, b""), at)
    session = _session(event)
    return sighted(Kind.LEAVE, client, _place(event), at, session) if session else NOT_AN_OBSERVATION


def _place(event: dict[str, Any]) -> tuple[bytes, bytes]:
    return address(event.get("ap")) or address(event.get("bssid")), name(event.get("ap_name"))


def _session(event: dict[str, Any]) -> bytes:
    """Return what join and end of a stay have in common: the second at which it began."""
    began = seconds(event.get("connect"))
    return b"" if began is None else (began // 1_000_000).to_bytes(8, "big")
