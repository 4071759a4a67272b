"""What leaves an engine: records in publishing order, and quarantine records for what was rejected."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable
from typing import NamedTuple

import orjson

from stream.envelope import Kind, seal
from stream.keys import key_day_of
from stream.records import DAY, Micros, Published, Rejected
from stream.schemas import AUDIT, QUARANTINE, RESTRICTED, rfc3339
from stream.vault import Vault


class Emitted(NamedTuple):
    """One record on its way to a topic, in publishing order: audit entries come first."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    checkpoint: bool
    """Whether a window closed with this message."""
    id: str


def in_order(published: Iterable[Published], vault: Vault | None = None) -> list[Emitted]:
    """Return records in publishing order, charges before what they pay for; true stays and counts are encrypted."""
    ordered = sorted(published, key=lambda output: output.topic != AUDIT)
    return [
        Emitted(out.topic, out.key.encode(), _as_kept(out, vault), out.time // 1000, True, out.id) for out in ordered
    ]


def _as_kept(output: Published, vault: Vault | None) -> bytes:
    """Return a record as topics and stores keep it; what is encrypted is bound to topic, site and window."""
    if vault is None or output.topic not in RESTRICTED:
        return output.value
    clear = {"v": 2, "topic": output.topic, "site": output.key, "window_end": rfc3339(output.time)}
    lock = vault.lock(key_day_of(output.time - 1))
    return seal(Kind.RESTRICTED, output.value, clear=orjson.dumps(clear), lock=lock)


def quarantined(
    rejection: Rejected, value: bytes, *, now: Micros, sources: Collection[str], audit_key: bytes
) -> Emitted:
    """Say what was wrong with a message without keeping it: rounded length and a keyed digest.

    Args:
        rejection: what was wrong, and where.
        value: the message.
        now: how far the sites have come, 0 before any has: the record's time. A log that is kept by the clock on the
            wall stamps it anew (Kafka); a store counts its days from the first time there is.
        sources: those that the policy names; no other is named.
        audit_key: key of the digest, with the day of ``now``.
    """
    source = rejection.source if rejection.source in sources else "unknown"
    daily = hmac.new(audit_key, f"quarantine {now // DAY}".encode(), hashlib.sha256).digest()
    body = {
        "v": 1, "source": source, "reason": rejection.reason, "place": rejection.place,
        "length": -(-len(value) // 64) * 64,
        "digest": hmac.new(daily, value, hashlib.sha256).hexdigest()[:32],
    }  # fmt: skip
    return Emitted(QUARANTINE, source.encode(), orjson.dumps(body), now // 1000, False, "")
