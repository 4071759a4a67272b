"""Accounting requests as controllers build them, for tests; what they hold is written down plainly."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

SECRET, OLD_SECRET = b"a-secret-of-16-octets", b"the-secret-before-that"
START, STOP, INTERIM, ON, OFF = 1, 2, 3, 7, 8
USER, NETWORK = b"anne.canary@example.org", b"canary-net"
ATTRIBUTES = {
    "user": 1, "nas_ip": 4, "called": 30, "calling": 31, "nas": 32, "proxy": 33, "status": 40, "delay": 41,
    "session": 44, "multi_session": 50, "timestamp": 55, "message": 80,
}  # fmt: skip


def attribute(kind: int, content: bytes) -> bytes:
    return bytes((kind, len(content) + 2)) + content


def attributes(**values: Any) -> bytes:
    """Return attributes in the order given: numbers as four octets, texts and octets as they are."""
    parts = []
    for name, value in values.items():
        content = value.to_bytes(4, "big") if isinstance(value, int) else value
        parts.append(attribute(ATTRIBUTES[name], content.encode() if isinstance(content, str) else content))
    return b"".join(parts)


def packet(body: bytes, *, code: int = 4, identifier: int = 1, secret: bytes = SECRET, tagged: bool = False) -> bytes:
    """Return a genuine Accounting-Request; ``tagged``: with Message-Authenticator."""
    size = (20 + len(body) + 18 * tagged).to_bytes(2, "big")
    head = bytes((code, identifier)) + size
    if tagged:
        place = attribute(80, bytes(16))
        body = attribute(80, hmac.digest(secret, head + bytes(16) + place + body, "md5")) + body
    return head + hashlib.md5(head + bytes(16) + body + secret).digest() + body


def accounting(
    status: int = START, calling: str = "3C-00-00-00-00-01", called: str = "02-00-00-00-00-01:canary-net", **more: Any
) -> bytes:
    """Return the attributes of what a controller sends of a station, a user's name among them."""
    stored = {
        "user": USER,
        "status": status,
        "calling": calling,
        "called": called,
        "session": "5A3F",
        "nas": "wlc-west",
    }
    return attributes(**(stored | more))


def request(status: int = START, *, identifier: int = 1, secret: bytes = SECRET, **more: Any) -> bytes:
    return packet(accounting(status, **more), identifier=identifier, secret=secret)


def status_server(identifier: int = 9, secret: bytes = SECRET, *, tagged: bool = True) -> bytes:
    """Return a Status-Server, whose authenticator is random."""
    body = attribute(80, bytes(16)) if tagged else attributes(nas="wlc-west")
    unsigned = bytes((12, identifier)) + (20 + len(body)).to_bytes(2, "big") + b"random-sixteen-o" + body
    return unsigned[:22] + hmac.digest(secret, unsigned, "md5") if tagged else unsigned
