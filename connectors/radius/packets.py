"""The part of RADIUS that accounting uses: a strict reader of requests, and what answers them; pure, no I/O.

RFC 2865 section 3 (packets), RFC 2866 sections 3 and 4 (accounting and its authenticators), RFC 2869 section 5.14
(Message-Authenticator), RFC 5997 (Status-Server, by which a client asks whether anybody is there).

Octets behind the declared length are padding. Every attribute must lie wholly within it. Of the attributes only those
in ``KEPT`` are taken out of the datagram; user names and all others stay in it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from stream.errors import DataError

ACCOUNTING_REQUEST, ACCOUNTING_RESPONSE, STATUS_SERVER = 4, 5, 12
NAS_IP_ADDRESS, CALLED_STATION_ID, CALLING_STATION_ID, NAS_IDENTIFIER, PROXY_STATE = 4, 30, 31, 32, 33
ACCT_STATUS_TYPE, ACCT_DELAY_TIME, ACCT_SESSION_ID, EVENT_TIMESTAMP, MESSAGE_AUTHENTICATOR = 40, 41, 44, 55, 80
KEPT = frozenset({
    NAS_IP_ADDRESS, CALLED_STATION_ID, CALLING_STATION_ID, NAS_IDENTIFIER,
    ACCT_STATUS_TYPE, ACCT_DELAY_TIME, ACCT_SESSION_ID, EVENT_TIMESTAMP, MESSAGE_AUTHENTICATOR,
})  # fmt: skip
_FOUR_OCTETS = frozenset({NAS_IP_ADDRESS, ACCT_STATUS_TYPE, ACCT_DELAY_TIME, EVENT_TIMESTAMP})
HEADER, LONGEST = 20, 4096
"""Octets of a header; of a whole packet at most."""

TRUNCATED, MALFORMED, UNSUPPORTED_CODE = "truncated", "malformed", "unsupported_code"
BAD_AUTHENTICATOR, BAD_MESSAGE_AUTHENTICATOR = "bad_authenticator", "bad_message_authenticator"
REFUSED_REASONS = (TRUNCATED, UNSUPPORTED_CODE, BAD_AUTHENTICATOR, MALFORMED, BAD_MESSAGE_AUTHENTICATOR)


class RefusedPacket(DataError):  # noqa: N818 - it names what arrived
    """A datagram that is no genuine accounting request; ``reason`` is one of ``REFUSED_REASONS``."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"datagram refused: {reason}")
        self.reason = reason


class Request(NamedTuple):
    """A genuine request; shown without anything that it holds."""

    code: int
    """``ACCOUNTING_REQUEST`` or ``STATUS_SERVER``."""
    identifier: int
    authenticator: bytes
    attributes: Mapping[int, bytes]
    """Those of ``KEPT`` that it holds, by type."""
    proxy_states: bytes
    """Its Proxy-State attributes, whole and in their order."""
    secret: bytes
    """Under which it is genuine."""

    def __repr__(self) -> str:
        """Name what it is, never what it says."""
        return f"Request(code {self.code})"

    def number(self, attribute: int) -> int | None:
        """Return an attribute of four octets as a number; None where it is not there."""
        content = self.attributes.get(attribute)
        return None if content is None else int.from_bytes(content, "big")


def read(datagram: bytes, secrets: tuple[bytes, ...]) -> Request:
    """Return the request in a datagram, genuine under one of the secrets.

    An Accounting-Request is by its Request Authenticator, and by Message-Authenticator where it bears one; a
    Status-Server, whose authenticator is random, only by that. Raises ``RefusedPacket``.
    """
    packet = _packet(datagram)
    code, authenticator = packet[0], packet[4:HEADER]
    signed = packet[:4] + bytes(16) + packet[HEADER:] if code == ACCOUNTING_REQUEST else packet
    if code == ACCOUNTING_REQUEST:
        secrets = tuple(each for each in secrets if hmac.compare_digest(_md5(signed + each), authenticator))
        if not secrets:
            raise RefusedPacket(BAD_AUTHENTICATOR)
    attributes, proxy_states, place = _attributes(packet)
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
    """Return the Accounting-Response: the request's Proxy-State attributes, as they came.

    It bears a Message-Authenticator where the request does. The same request has the same answer, so that a copy of it
    is answered alike.
    """
    tagged = MESSAGE_AUTHENTICATOR in request.attributes
    size = HEADER + len(request.proxy_states) + 18 * tagged
    head = bytes((ACCOUNTING_RESPONSE, request.identifier)) + size.to_bytes(2, "big")
    body = request.proxy_states
    if tagged:
        # Where the request's own authenticator is a digest, zeros stand for it; that of a Status-Server is random.
        nonce = request.authenticator if request.code == STATUS_SERVER else bytes(16)
        kind = bytes((MESSAGE_AUTHENTICATOR, 18))
        body = kind + hmac.digest(request.secret, head + nonce + kind + bytes(16) + body, "md5") + body
    return head + _md5(head + request.authenticator + body + request.secret) + body


def _packet(datagram: bytes) -> bytes:
    """Return the packet without what pads it."""
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


def _attributes(packet: bytes) -> tuple[dict[int, bytes], bytes, int | None]:
    """Return the attributes that are kept, the Proxy-States, and where the content of Message-Authenticator lies."""
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
        elif kind in KEPT:
            if kind == MESSAGE_AUTHENTICATOR and (place is not None or len(content) != 16):
                raise RefusedPacket(MALFORMED)
            _keep(found, kind, content)
            place = pos + 2 if kind == MESSAGE_AUTHENTICATOR else place
        pos = stop
    return found, proxy_states, place


def _keep(found: dict[int, bytes], kind: int, content: bytes) -> None:
    """Keep an attribute; one that comes twice with two values contradicts itself."""
    if kind in _FOUR_OCTETS and len(content) != 4:
        raise RefusedPacket(MALFORMED)
    if found.setdefault(kind, content) != content:
        raise RefusedPacket(MALFORMED)


def _md5(content: bytes) -> bytes:
    return hashlib.md5(content, usedforsecurity=False).digest()
