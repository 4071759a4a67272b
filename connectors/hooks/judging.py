"""Whether a request is genuine, and what it says; pure, no I/O.

A request is genuine by its signature over the very octets that came (Mist), or by the secret within them (Meraki).
Only then is its tag made, by which a copy is known: an HMAC under the secret that it came by, so that who reads tags
cannot try addresses.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from connectors.handover.frames import Dated
from connectors.hooks import meraki, mist
from connectors.hooks.reading import ROW_REASONS, Read
from stream.records import SECOND, Micros

BAD_SIGNATURE, BAD_SECRET, MALFORMED = "bad_signature", "bad_secret", "malformed"
OLD, AHEAD = "old", "ahead"
REFUSED_REASONS = (BAD_SIGNATURE, BAD_SECRET, MALFORMED)
DATED_REASONS = (*ROW_REASONS, OLD, AHEAD)
"""Why a row of a genuine request is not handed over."""
OLDEST: Micros = 180 * SECOND
"""A row that is older is not taken, nor one that is further ahead than ``FURTHEST``."""
FURTHEST: Micros = 30 * SECOND
_SIGNATURE = re.compile("[0-9a-f]{64}")


class RefusedError(Exception):
    """A request that is not taken, and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a genuine request says; shown without it."""

    tag: bytes = field(repr=False)
    """Equal for copies alone."""
    rows: tuple[Dated, ...] = field(repr=False)
    dropped: Counter[str]


class Hook(Protocol):
    """A system that sends."""

    @property
    def system(self) -> str:
        """Which: ``mist`` or ``meraki``."""

    @property
    def octets(self) -> tuple[bytes, ...]:
        """Its secrets."""


def judge(hook: Hook, body: bytes, signature: str | None, now: Micros) -> Verdict:
    """Return what a request that came at ``now`` says; ``RefusedError`` where it is not genuine, or no JSON."""
    if hook.system == "mist":
        tag = _signed(hook, body, signature)
        return verdict(tag, mist.read(_document(body)), now)
    document = _document(body)
    used = _secret_of(hook, meraki.secret(document))
    return verdict(tag_of(used, body), meraki.read(document), now)


def verdict(tag: bytes, read: Iterable[Read], now: Micros) -> Verdict:
    """Return what is to be handed over of what was read, and why the rest is not."""
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
    return Verdict(tag, tuple(rows), dropped)


def tag_of(secret: bytes, body: bytes) -> bytes:
    """Return what copies of a body have in common."""
    return hmac.digest(secret, body, hashlib.sha256)


def _signed(hook: Hook, body: bytes, signature: str | None) -> bytes:
    given = (signature or "").strip().lower()
    if not _SIGNATURE.fullmatch(given):
        raise RefusedError(BAD_SIGNATURE)
    for secret in hook.octets:
        tag = tag_of(secret, body)
        if hmac.compare_digest(tag, bytes.fromhex(given)):
            return tag
    raise RefusedError(BAD_SIGNATURE)


def _secret_of(hook: Hook, given: str) -> bytes:
    octets = given.encode("utf-8", "replace")
    for secret in hook.octets:
        if hmac.compare_digest(secret, octets):
            return secret
    raise RefusedError(BAD_SECRET)


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RefusedError(MALFORMED) from None
    if not isinstance(document, dict):
        raise RefusedError(MALFORMED)
    return document
