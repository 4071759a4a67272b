"""The outputs of an engine, in publishing order, and the replay check.

A worker that crashed, or whose transaction was never committed, has left audit entries in the log. After a restart the
engine must produce the same entries again, or it must publish nothing; ``ReplayVerifier`` checks this. The entries also
name the policy under which a window began; the window must be finished under the same policy. The verifier also
identifies the last message that a state includes: a log with another message at that offset is not the log of this
state.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import orjson

from stream.accounting.ledger import REPEATED, refuse_other
from stream.domains import Domain
from stream.encryption import Kind, Vault, seal
from stream.engine.ports import LossError
from stream.keys import key_day_of
from stream.mechanisms.noise_labels import label
from stream.records import DAY, Micros, Published, Rejected
from stream.schemas import AUDIT, QUARANTINE, RESTRICTED, rfc3339


class OutputRecord(NamedTuple):
    """One record to be published; in publishing order audit entries come first."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    checkpoint: bool
    """Whether a window closed with this message."""
    id: str


def in_order(published: Iterable[Published], vault: Vault | None = None) -> list[OutputRecord]:
    """Return records in publishing order, charges before the records they pay for; encrypt true stays and counts."""
    ordered = sorted(published, key=lambda output: output.topic != AUDIT)
    return [
        OutputRecord(out.topic, out.key.encode(), _stored_form(out, vault), out.time // 1000, True, out.id)
        for out in ordered
    ]


def _stored_form(output: Published, vault: Vault | None) -> bytes:
    """Return a record in its stored form; encrypted content is bound to topic, site and window."""
    if vault is None or output.topic not in RESTRICTED:
        return output.value
    clear = {"v": 1, "topic": output.topic, "site": output.key, "window_end": rfc3339(output.time)}
    lock = vault.lock(key_day_of(output.time - 1))
    return seal(Kind.RESTRICTED, output.value, clear=orjson.dumps(clear), lock=lock)


def quarantined(
    rejection: Rejected, value: bytes, *, now: Micros, sources: Collection[str], audit_key: bytes
) -> OutputRecord:
    """Return the quarantine record of a message: the fault, the rounded length and a keyed digest, not the message.

    Args:
        rejection: the fault and its place.
        value: the message.
        now: the greatest watermark of the sites, 0 if there is none; it is the record's time. A log whose retention
            follows the wall clock stamps the record again (Kafka); a store counts its days from its first time.
        sources: the sources that the policy names; the record names no other.
        audit_key: key of the digest, together with the day of ``now``. The digest covers source, ``now`` and message,
            so equal messages of two sources, or at two times, have different digests.
    """
    source = rejection.source if rejection.source in sources else "unknown"
    daily = hmac.new(audit_key, Domain.QUARANTINE + b"%d" % (now // DAY), hashlib.sha256).digest()
    body = {
        "v": 1, "source": source, "reason": rejection.reason, "place": rejection.place,
        "length": -(-len(value) // 64) * 64,
        "digest": hmac.new(daily, label(source, now, value), hashlib.sha256).hexdigest()[:32],
    }  # fmt: skip
    return OutputRecord(QUARANTINE, source.encode(), orjson.dumps(body), now // 1000, False, "")


# --- replay -------------------------------------------------------------------------------------------

MessageMark = tuple[int, str]
"""Offset and keyed digest of a message: identifies the message without revealing its content."""


def entries_beyond(entries: Iterable[bytes], chains: Mapping[str, tuple[int, str]], sites: Collection[str]) -> int:
    """Return how many distinct ledger entries lie beyond the end of each site's hash chain.

    Args:
        entries: in any order.
        chains: site -> (number of entries that a state knows, hash of the last).
        sites: the sites of all policies; an entry of any other site that the state does not know cannot be replayed.
    """
    read = (orjson.loads(value) for value in entries)
    numbers = {(entry["site"], entry["sequence"]) for entry in read if entry["site"] in {*chains, *sites}}
    return sum(sequence >= chains.get(site, (0, ""))[0] for site, sequence in numbers)


class ReplayVerifier:
    """The outstanding entries of all sites, by sequence, and the last message that was completely processed."""

    def __init__(self, key: bytes, last: MessageMark | None = None, advice: str = REPEATED) -> None:
        """``advice`` is the remedy to name if a replayed entry differs."""
        self._key = key
        self._advice = advice
        self._last = last
        self._unmarked: tuple[int, bytes | None, bytes] | None = None
        """The last message, if its digest has not been computed yet."""
        self._sites: dict[str, dict[int, bytes]] = {}

    # --- entries --------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether some entry has not been replayed yet."""
        return any(self._sites.values())

    def add(self, value: bytes, chains: Mapping[str, tuple[int, str]]) -> None:
        """Add an entry that lies beyond its site's hash chain; FinalityError if it contradicts another copy."""
        entry = orjson.loads(value)
        site, sequence = entry["site"], entry["sequence"]
        if sequence >= chains.get(site, (0, ""))[0]:
            known = self._sites.setdefault(site, {}).setdefault(sequence, value)
            refuse_other(known, value, site, self._advice)

    def compare(self, site: str, value: bytes) -> None:
        """Compare a new entry with its outstanding copy and remove the copy; FinalityError if they differ."""
        entries = self._sites.get(site)
        if entries:
            known = entries.pop(orjson.loads(value)["sequence"], None)
            if known is not None:
                refuse_other(known, value, site, self._advice)

    def keep_to(self, sites: frozenset[str]) -> None:
        """Remove the entries of all other sites, which cannot be replayed."""
        self._sites = {site: entries for site, entries in self._sites.items() if site in sites}

    def count(self) -> int:
        """Return how many entries have not been replayed yet."""
        return sum(map(len, self._sites.values()))

    def policies(self) -> frozenset[str]:
        """Return the policy versions under which the sites' next entries were made."""
        firsts = [entries[min(entries)] for entries in self._sites.values() if entries]
        return frozenset(orjson.loads(value)["policy_version"] for value in firsts)

    # --- the last message -----------------------------------------------------------------------------

    def note_read(self, offset: int, key: bytes | None, value: bytes) -> None:
        """Record a message that was completely processed."""
        self._unmarked = offset, key, value

    def mark(self) -> MessageMark | None:
        """Return the mark of the last message, for a snapshot; None if there is no last message."""
        if self._unmarked is not None:
            offset, key, value = self._unmarked
            self._last, self._unmarked = (offset, self._digest(offset, key, value)), None
        return self._last

    def forget_last_read(self) -> None:
        """Forget the last message: the log may hold another one at its offset."""
        self._last = self._unmarked = None

    def last_read(self) -> int | None:
        """Return the offset of the last marked message, of this run or the restored state; None if not known."""
        return None if self._last is None else self._last[0]

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last marked message; True if none is known."""
        return self._last is None or hmac.compare_digest(self._last[1], self._digest(self._last[0], key, value))

    def _digest(self, offset: int, key: bytes | None, value: bytes) -> str:
        text = Domain.MESSAGE + b"%d %d " % (offset, len(key or b"")) + (key or b"") + value
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()[:32]


def check_complete_chains(entries: Iterable[bytes], chains: Mapping[str, tuple[int, str]]) -> None:
    """Raise LossError unless the entries contain the complete hash chains: site -> (entries, hash of the last)."""
    there = {(entry["site"], entry["sequence"]): entry["hash"] for entry in map(orjson.loads, entries)}
    for site, (length, head) in sorted(chains.items()):
        whole = all((site, number) in there for number in range(length))
        if not whole or (length and there[site, length - 1] != head):
            msg = f"site {site}: the audit must hold every entry that the state has published"
            raise LossError(msg)
