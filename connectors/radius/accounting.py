"""From an accounting request to a sighting: who, where, and which stay; pure, no I/O.

RFC 2866 section 5 (what is accounted), RFC 3580 section 3 (addresses of station and access point on 802.11), RFC 2869
section 5.3 (Event-Timestamp). The name of the network behind an access point's address goes no further than here.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from typing import NamedTuple

from connectors.intake.addresses import LONGEST_NAME, NOWHERE
from connectors.intake.sighting import Kind, Sighting
from connectors.radius.packets import (
    ACCT_DELAY_TIME,
    ACCT_SESSION_ID,
    ACCT_STATUS_TYPE,
    CALLED_STATION_ID,
    CALLING_STATION_ID,
    EVENT_TIMESTAMP,
    MALFORMED,
    NAS_IDENTIFIER,
    NAS_IP_ADDRESS,
    STATUS_SERVER,
    RefusedPacket,
    Request,
)
from connectors.spellings import spelled
from stream.records import SECOND, Micros

NOT_AN_OBSERVATION, NO_CLIENT, NO_ACCESS_POINT = "not_an_observation", "no_client", "no_access_point"
IGNORED_REASONS = (NOT_AN_OBSERVATION, NO_CLIENT, NO_ACCESS_POINT)
_KINDS = {1: Kind.ASSOCIATE, 2: Kind.LEAVE, 3: Kind.RUN, 7: Kind.RESTART, 8: Kind.RESTART}
"""By Acct-Status-Type: Start, Stop, Interim-Update, Accounting-On, Accounting-Off."""
_DIGIT = re.compile(rb"[0-9a-fA-F]")
_LENGTHS = (17, 12, 14, 13, 16, 15, 11)
"""Characters of an address, the usual ones first."""


class Accounted(NamedTuple):
    """What a request says of a device; shown without it."""

    sighting: Sighting
    reason: str
    """For ``Kind.IGNORED`` one of ``IGNORED_REASONS``, else empty."""

    def __repr__(self) -> str:
        """Name what it is, never who or where."""
        return f"Accounted({self.sighting.kind} {self.reason})"


def account(request: Request, now: Micros) -> Accounted:
    """Return what a request that was received at ``now`` says of a device.

    Accounting-On and -Off say that a sender has started or will stop: they end no stay. Raises ``RefusedPacket`` for an
    Accounting-Request without Acct-Status-Type.
    """
    if request.code == STATUS_SERVER:
        return Accounted(Sighting(Kind.KEEPALIVE), "")
    status = request.number(ACCT_STATUS_TYPE)
    if status is None:
        raise RefusedPacket(MALFORMED)
    kind = _KINDS.get(status)
    if kind is None:
        return Accounted(Sighting(Kind.IGNORED), NOT_AN_OBSERVATION)
    if kind is Kind.RESTART:
        return Accounted(Sighting(kind), "")
    client, (radio, name) = _client(request), _access_point(request)
    if not client:
        return Accounted(Sighting(Kind.IGNORED), NO_CLIENT)
    if not (radio or name):
        return Accounted(Sighting(Kind.IGNORED), NO_ACCESS_POINT)
    return Accounted(Sighting(kind, client, radio, name, age=_age(request, now), session=_session(request)), "")


def _client(request: Request) -> bytes:
    """Return the station's own address, or nothing: zeros and group addresses are no station."""
    address = spelled(request.attributes.get(CALLING_STATION_ID, b"").strip(b"\x00 "))
    return b"" if address is None or address[0] & 0x01 or address == NOWHERE else address


def _access_point(request: Request) -> tuple[bytes, bytes]:
    """Return the access point's address and name, as far as the request gives them.

    Where Called-Station-Id has no address it is the access point's name, up to a colon; else the name is the
    sender's own, NAS-Identifier or NAS-IP-Address as text: some access points account for themselves.
    """
    called = request.attributes.get(CALLED_STATION_ID, b"").strip(b"\x00 ")
    nas = request.attributes.get(NAS_IDENTIFIER, b"") or _address_text(request)
    radio = _leading_address(called)
    name = nas if radio else called.partition(b":")[0] or nas
    return radio, name if len(name) <= LONGEST_NAME else b""


def _leading_address(called: bytes) -> bytes:
    """Return the address that a text begins with, whatever is behind it; empty where there is none, or zeros."""
    for length in _LENGTHS:
        if len(called) >= length and not _DIGIT.match(called, length):
            address = spelled(called[:length])
            if address is not None:
                return b"" if address == NOWHERE else address
    return b""


def _address_text(request: Request) -> bytes:
    address = request.attributes.get(NAS_IP_ADDRESS)
    return b"" if address is None else str(ipaddress.IPv4Address(address)).encode()


def _age(request: Request, now: Micros) -> Micros:
    """Return how long ago it happened: by Acct-Delay-Time, or by Event-Timestamp where that makes it older.

    Whoever holds requests back and sends them later declares either. A time that is to come is a clock that is wrong.
    """
    delay, told = (request.number(ACCT_DELAY_TIME) or 0) * SECOND, request.number(EVENT_TIMESTAMP)
    if told is None:
        return delay
    since = now - told * SECOND
    return since if since < 0 else max(since, delay)


def _session(request: Request) -> bytes:
    """Return a digest of Acct-Session-Id and of the sender that gave it; empty where there is none."""
    session = request.attributes.get(ACCT_SESSION_ID, b"")
    nas = (request.attributes.get(NAS_IDENTIFIER, b""), request.attributes.get(NAS_IP_ADDRESS, b""))
    named = b"".join(bytes((len(part),)) + part for part in (*nas, session))
    return hashlib.sha256(named).digest()[:16] if session else b""
