"""Verifies that a request is genuine, and decodes it; pure, no I/O.

A request is genuine by its signature over the received octets (Mist), or by the secret within them (Meraki). The secret
is searched in the octets: nothing is parsed before a request is known to be genuine. Only then its tag is computed, by
which a copy is recognised: an HMAC under the request's secret, so that a reader of tags cannot test addresses against
them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import orjson

from connectors.sources.cloud import decoders
from connectors.sources.cloud.decoders import ROW_REASONS, Read
from connectors.sources.ingest_socket.frames import TimedSighting
from stream.records import SECOND, Micros

BAD_SIGNATURE, BAD_SECRET, MALFORMED, TOO_COMPLEX = "bad_signature", "bad_secret", "malformed", "too_complex"
OLD, AHEAD = "old", "ahead"
REFUSED_REASONS = (BAD_SIGNATURE, BAD_SECRET, MALFORMED, TOO_COMPLEX)
DATED_REASONS = (*ROW_REASONS, OLD, AHEAD)
"""Reasons why a row of a genuine request is not passed on."""
OLDEST: Micros = 180 * SECOND
"""An older row is refused, and so is one that is further in the future than ``FURTHEST``."""
FURTHEST: Micros = 30 * SECOND
MOST_ELEMENTS = 200_000
"""Maximum number of values of one document; a body of 2 MiB with devices only has fewer."""
DEEPEST = 32
"""Maximum depth of nested lists and objects."""
_SIGNATURE = re.compile("[0-9a-f]{64}")
_SECRET_KEY = re.compile(rb'"secret"[ \t\r\n]{0,64}+:[ \t\r\n]{0,64}+"')
_LITERAL = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)
_LONGEST_LITERAL = 2048
_MOST_SECRETS = 8
"""Places of a body that are checked for its secret; Meraki's have one."""


class RefusedError(Exception):
    """A refused request, and the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class VerifiedRequest:
    """The result of a genuine request; its repr hides the content."""

    tag: bytes = field(repr=False)
    """Equal for copies only."""
    rows: tuple[TimedSighting, ...] = field(repr=False)
    dropped: Counter[str]


class Hook(Protocol):
    """A system that sends."""

    @property
    def system(self) -> str:
        """The system: ``mist`` or ``meraki``."""

    @property
    def octets(self) -> tuple[bytes, ...]:
        """Its secrets."""


def verify(hook: Hook, body: bytes, signature: str | None, now: Micros) -> VerifiedRequest:
    """Return the result of a request that came at ``now``; ``RefusedError`` if it is not genuine, or not JSON."""
    if hook.system == "mist":
        return verified(_signed(hook, body, signature), decoders.read_mist(document_of(body)), now)
    used = _secret_within(hook, body)
    return verified(tag_of(used, body), decoders.read_meraki(document_of(body)), now)


def verified(tag: bytes, read: Iterable[Read], now: Micros) -> VerifiedRequest:
    """Return the rows to pass on, and the reasons why the others are not."""
    rows, dropped = [], Counter[str]()
    for one in read:
        if isinstance(one, str):
            dropped[one] += 1
        elif one.at < now - OLDEST:
            dropped[OLD] += 1
        elif one.at > now + FURTHEST:
            dropped[AHEAD] += 1
        else:
            rows.append(one)
    return VerifiedRequest(tag, tuple(rows), dropped)


def tag_of(secret: bytes, body: bytes) -> bytes:
    """Return the value that copies of a body share."""
    return hmac.digest(secret, body, hashlib.sha256)


def signature_of(received: str | None) -> bytes:
    """Return a Mist signature; ``RefusedError`` if it cannot be one."""
    text = (received or "").strip().lower()
    if not _SIGNATURE.fullmatch(text):
        raise RefusedError(BAD_SIGNATURE)
    return bytes.fromhex(text)


def document_of(body: bytes) -> dict[str, object]:
    """Return a genuine document; ``RefusedError`` if it is not a JSON object, or exceeds the limits."""
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_ELEMENTS:
        raise RefusedError(TOO_COMPLEX)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RefusedError(MALFORMED) from None
    if not isinstance(document, dict):
        raise RefusedError(MALFORMED)
    level: list[dict[str, object] | list[object]] = [document]
    for _ in range(DEEPEST):
        level = [one for container in level for one in _within(container) if isinstance(one, dict | list)]
        if not level:
            return document
    raise RefusedError(TOO_COMPLEX)


def _within(container: dict[str, object] | list[object]) -> Iterable[object]:
    return container.values() if isinstance(container, dict) else container


def _signed(hook: Hook, body: bytes, signature: str | None) -> bytes:
    received = signature_of(signature)
    for secret in hook.octets:
        tag = tag_of(secret, body)
        if hmac.compare_digest(tag, received):
            return tag
    raise RefusedError(BAD_SIGNATURE)


def _secret_within(hook: Hook, body: bytes) -> bytes:
    """Return the secret within a body. Each candidate is compared whole, so that timing reveals nothing of a secret."""
    for key in islice(_SECRET_KEY.finditer(body), _MOST_SECRETS):
        literal = _LITERAL.match(body, key.end(), key.end() + _LONGEST_LITERAL)
        received = b"" if literal is None else _unescaped(literal[0])
        for secret in hook.octets:
            if hmac.compare_digest(secret, received):
                return secret
    raise RefusedError(BAD_SECRET)


def _unescaped(literal: bytes) -> bytes:
    try:
        text = orjson.loads(b'"' + literal)
    except orjson.JSONDecodeError:
        return b""
    return text.encode("utf-8", "replace") if isinstance(text, str) else b""
