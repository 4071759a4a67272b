"""A strict decoder of RADIUS accounting, and its responses; pure.

RFC 2865 section 3 (packets), RFC 2866 sections 3 and 4 (accounting and its authenticators), RFC 2869 section 5.14
(Message-Authenticator), RFC 5997 (Status-Server, with which a client asks whether the server is alive). For sightings:
RFC 2866 section 5 (accounted values), RFC 3580 section 3 (addresses of station and access point on 802.11), RFC 2869
section 5.3 (Event-Timestamp).

Octets after the declared length are padding. Every attribute must lie wholly within that length. Only the attributes in
``KEPT`` are read from the datagram, and the one that names logins where a site counts them; all others stay in it. The
name of the network after an access point's address does not leave this module.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from connectors.sources.ingest.addresses import LONGEST_NAME, NOWHERE, parse_address
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.errors import DataError
from stream.records import SECOND, Micros

ACCOUNTING_REQUEST, ACCOUNTING_RESPONSE, STATUS_SERVER = 4, 5, 12
USER_NAME, CHARGEABLE_USER_IDENTITY = 1, 89
NAS_IP_ADDRESS, CALLED_STATION_ID, CALLING_STATION_ID, NAS_IDENTIFIER, PROXY_STATE = 4, 30, 31, 32, 33
ACCT_STATUS_TYPE, ACCT_DELAY_TIME, ACCT_SESSION_ID, EVENT_TIMESTAMP, MESSAGE_AUTHENTICATOR = 40, 41, 44, 55, 80
KEPT = frozenset({
    NAS_IP_ADDRESS, CALLED_STATION_ID, CALLING_STATION_ID, NAS_IDENTIFIER,
    ACCT_STATUS_TYPE, ACCT_DELAY_TIME, ACCT_SESSION_ID, EVENT_TIMESTAMP, MESSAGE_AUTHENTICATOR,
})  # fmt: skip
_FOUR_OCTETS = frozenset({NAS_IP_ADDRESS, ACCT_STATUS_TYPE, ACCT_DELAY_TIME, EVENT_TIMESTAMP})
HEADER, LONGEST = 20, 4096
"""Octets of a header; maximum octets of a packet."""

TRUNCATED, MALFORMED, UNSUPPORTED_CODE = "truncated", "malformed", "unsupported_code"
BAD_AUTHENTICATOR, BAD_MESSAGE_AUTHENTICATOR = "bad_authenticator", "bad_message_authenticator"
REFUSED_REASONS = (TRUNCATED, UNSUPPORTED_CODE, BAD_AUTHENTICATOR, MALFORMED, BAD_MESSAGE_AUTHENTICATOR)


class RefusedPacket(DataError):  # noqa: N818 - it names what arrived
    """A datagram that is not a genuine accounting request; ``reason`` is one of ``REFUSED_REASONS``."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"datagram refused: {reason}")
        self.reason = reason


class Request(NamedTuple):
    """A genuine request; its repr hides its content."""

    code: int
    """``ACCOUNTING_REQUEST`` or ``STATUS_SERVER``."""
    identifier: int
    authenticator: bytes
    attributes: Mapping[int, bytes]
    """The attributes in ``KEPT`` that it contains, and those of a login that were asked for, by type."""
    proxy_states: bytes
    """Its Proxy-State attributes, whole and in order."""
    secret: bytes
    """The secret under which it is genuine."""

    def __repr__(self) -> str:
        """Show its type, never its content."""
        return f"Request(code {self.code})"

    def number(self, attribute: int) -> int | None:
        """Return an attribute of four octets as a number; None if it is missing."""
        content = self.attributes.get(attribute)
        return None if content is None else int.from_bytes(content, "big")


LOGIN_ATTRIBUTES = {"user_name": USER_NAME, "chargeable_user_identity": CHARGEABLE_USER_IDENTITY}
"""``login_attribute`` of a site -> the attribute."""


def read(datagram: bytes, secrets: tuple[bytes, ...], logins: Collection[int] = ()) -> Request:
    """Return the request in a datagram that is genuine under one of the secrets.

    ``logins`` are those of ``LOGIN_ATTRIBUTES`` that are read as well.

    An Accounting-Request is verified by its Request Authenticator, and by Message-Authenticator if it has one. A
    Status-Server, whose authenticator is random, is verified by Message-Authenticator only. Raises ``RefusedPacket``.
    """
    packet = _packet(datagram)
    code, authenticator = packet[0], packet[4:HEADER]
    signed = packet[:4] + bytes(16) + packet[HEADER:] if code == ACCOUNTING_REQUEST else packet
    if code == ACCOUNTING_REQUEST:
        secrets = tuple(each for each in secrets if hmac.compare_digest(_md5(signed + each), authenticator))
        if not secrets:
            raise RefusedPacket(BAD_AUTHENTICATOR)
    attributes, proxy_states, place = _attributes(packet, KEPT.union(logins))
    if place is not None:
        signed = signed[:place] + bytes(16) + signed[place + 16 :]
        sent = attributes[MESSAGE_AUTHENTICATOR]
        secrets = tuple(each for each in secrets if hmac.compare_digest(hmac.digest(each, signed, "md5"), sent))
    elif code == STATUS_SERVER:
        secrets = ()
    if not secrets:
        raise RefusedPacket(BAD_MESSAGE_AUTHENTICATOR)
    return Request(code, packet[1], authenticator, attributes, proxy_states, secrets[0])


def respond(request: Request) -> bytes:
    """Return the Accounting-Response: it repeats the request's Proxy-State attributes.

    It has a Message-Authenticator if the request has one. The same request gives the same response, so that a copy of
    it gets the same answer.
    """
    tagged = MESSAGE_AUTHENTICATOR in request.attributes
    size = HEADER + len(request.proxy_states) + 18 * tagged
    head = bytes((ACCOUNTING_RESPONSE, request.identifier)) + size.to_bytes(2, "big")
    body = request.proxy_states
    if tagged:
        # If the request's own authenticator is a digest, zeros replace it; that of a Status-Server is random.
        nonce = request.authenticator if request.code == STATUS_SERVER else bytes(16)
        kind = bytes((MESSAGE_AUTHENTICATOR, 18))
        body = kind + hmac.digest(request.secret, head + nonce + kind + bytes(16) + body, "md5") + body
    return head + _md5(head + request.authenticator + body + request.secret) + body


def _packet(datagram: bytes) -> bytes:
    """Return the packet without padding."""
    if len(datagram) < HEADER:
        raise RefusedPacket(TRUNCATED)
    if datagram[0] not in {ACCOUNTING_REQUEST, STATUS_SERVER}:
        raise RefusedPacket(UNSUPPORTED_CODE)
    size = int.from_bytes(datagram[2:4], "big")
    if not HEADER <= size <= LONGEST:
        raise RefusedPacket(MALFORMED)
    if size > len(datagram):
        raise RefusedPacket(TRUNCATED)
    return datagram[:size]


def _attributes(packet: bytes, kept: Collection[int]) -> tuple[dict[int, bytes], bytes, int | None]:
    """Return the kept attributes, the Proxy-States, and the position of Message-Authenticator's content."""
    found: dict[int, bytes] = {}
    proxy_states, place, pos, end = b"", None, HEADER, len(packet)
    while pos < end:
        kind = packet[pos]
        stop = pos + packet[pos + 1] if pos + 1 < end else end + 1
        if not pos + 2 <= stop <= end:
            raise RefusedPacket(MALFORMED)
        content = packet[pos + 2 : stop]
        if kind == PROXY_STATE:
            proxy_states += packet[pos:stop]
        elif kind in kept:
            if kind == MESSAGE_AUTHENTICATOR and (place is not None or len(content) != 16):
                raise RefusedPacket(MALFORMED)
            _keep(found, kind, content)
            place = pos + 2 if kind == MESSAGE_AUTHENTICATOR else place
        pos = stop
    return found, proxy_states, place


def _keep(found: dict[int, bytes], kind: int, content: bytes) -> None:
    """Keep an attribute; two copies with different values contradict each other."""
    if kind in _FOUR_OCTETS and len(content) != 4:
        raise RefusedPacket(MALFORMED)
    if found.setdefault(kind, content) != content:
        raise RefusedPacket(MALFORMED)


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()


# --- sightings --------------------------------------------------------------------------------------

NOT_AN_OBSERVATION, NO_CLIENT, NO_ACCESS_POINT = "not_an_observation", "no_client", "no_access_point"
IGNORED_REASONS = (NOT_AN_OBSERVATION, NO_CLIENT, NO_ACCESS_POINT)
_KINDS = {1: Kind.ASSOCIATE, 2: Kind.LEAVE, 3: Kind.RUN, 7: Kind.RESTART, 8: Kind.RESTART}
"""By Acct-Status-Type: Start, Stop, Interim-Update, Accounting-On, Accounting-Off."""
_DIGIT = re.compile(rb"[0-9a-fA-F]")
_LENGTHS = (17, 12, 14, 13, 16, 15, 11)
"""Lengths of an address in characters, the usual ones first."""


class Accounted(NamedTuple):
    """The sighting in a request; its repr hides it."""

    sighting: Sighting
    reason: str
    """For ``Kind.IGNORED`` one of ``IGNORED_REASONS``, else empty."""

    def __repr__(self) -> str:
        """Show the kind, never device or place."""
        return f"Accounted({self.sighting.kind} {self.reason})"


def account(request: Request, now: Micros) -> Accounted:
    """Return the sighting in a request that was received at ``now``.

    Accounting-On and Accounting-Off say that a server has started or will stop. Raises ``RefusedPacket`` for an
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
        return Accounted(Sighting(kind, age=_age(request, now), nas=_server(request)), "")
    client, (radio, name) = _client(request), _access_point(request)
    if not client:
        return Accounted(Sighting(Kind.IGNORED), NO_CLIENT)
    if not (radio or name):
        return Accounted(Sighting(Kind.IGNORED), NO_ACCESS_POINT)
    age, session, nas = _age(request, now), _session(request), _server(request)
    user_name, cui = (request.attributes.get(each, b"") for each in (USER_NAME, CHARGEABLE_USER_IDENTITY))
    seen = Sighting(kind, client, radio, name, age=age, session=session, nas=nas, user_name=user_name, cui=cui)
    return Accounted(seen, "")


def _client(request: Request) -> bytes:
    """Return the station's own address, or nothing: zeros and group addresses are not stations."""
    address = parse_address(request.attributes.get(CALLING_STATION_ID, b"").strip(b"\x00 "))
    return b"" if address is None or address[0] & 0x01 or address == NOWHERE else address


def _access_point(request: Request) -> tuple[bytes, bytes]:
    """Return the access point's address and name, as far as the request contains them.

    If Called-Station-Id has no address, it is the access point's name, up to a colon. Otherwise the name is the
    sender's own, NAS-Identifier or NAS-IP-Address as text: some access points send their own accounting.
    """
    called = request.attributes.get(CALLED_STATION_ID, b"").strip(b"\x00 ")
    nas = request.attributes.get(NAS_IDENTIFIER, b"") or _address_text(request)
    radio = _leading_address(called)
    name = nas if radio else called.partition(b":")[0] or nas
    return radio, name if len(name) <= LONGEST_NAME else b""


def _leading_address(called: bytes) -> bytes:
    """Return the address at the beginning of a text, whatever follows it; empty if there is none, or zeros."""
    for length in _LENGTHS:
        if len(called) >= length and not _DIGIT.match(called, length):
            address = parse_address(called[:length])
            if address is not None:
                return b"" if address == NOWHERE else address
    return b""


def _address_text(request: Request) -> bytes:
    address = request.attributes.get(NAS_IP_ADDRESS)
    return b"" if address is None else str(ipaddress.IPv4Address(address)).encode()


def _age(request: Request, now: Micros) -> Micros:
    """Return the event's age: by Acct-Delay-Time, or by Event-Timestamp if that makes it older.

    A sender that delays requests declares either. A time in the future means that a clock is wrong.
    """
    delay, timestamp = (request.number(ACCT_DELAY_TIME) or 0) * SECOND, request.number(EVENT_TIMESTAMP)
    if timestamp is None:
        return delay
    since = now - timestamp * SECOND
    return since if since < 0 else max(since, delay)


def _session(request: Request) -> bytes:
    """Return a digest of Acct-Session-Id and of the server that assigned it; empty if there is none."""
    session = request.attributes.get(ACCT_SESSION_ID, b"")
    return _digest(*_names(request), session) if session else b""


def _server(request: Request) -> bytes:
    """Return a digest of the server's names; empty if it has none."""
    return _digest(*_names(request)) if any(_names(request)) else b""


def _names(request: Request) -> tuple[bytes, bytes]:
    """Return NAS-Identifier and NAS-IP-Address, empty if they are missing."""
    return request.attributes.get(NAS_IDENTIFIER, b""), request.attributes.get(NAS_IP_ADDRESS, b"")


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(bytes((len(part),)) + part for part in parts)).digest()[:16]
