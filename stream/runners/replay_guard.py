"""What a partition's state must meet again: the message it read last, and what was published beyond it.

A worker that crashed, or whose transaction was never committed, has left audit entries in the log: the same entries
must come out again, or nothing may. They also say under which policy a window was begun, and so under which it is to
be finished. A log that holds another message where the state has read one is not the log of this state.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable, Mapping

import orjson

from stream.accounting.ledger import REPEATED, refuse_other
from stream.runners.contract import LossError

Mark = tuple[int, str]
"""Offset and keyed digest of a message: distinguishes it from any other without revealing what it holds."""


def entries_beyond(entries: Iterable[bytes], chains: Mapping[str, tuple[int, str]], sites: Collection[str]) -> int:
    """Return how many ledger entries, copies aside, lie beyond where each site's hash chain stands.

    Args:
        entries: in any order.
        chains: of each site how many entries a state knows, and the hash of the last.
        sites: those that some policy has; entries of others, which no state knows, can be made by nobody.
    """
    read = (orjson.loads(value) for value in entries)
    numbers = {(entry["site"], entry["sequence"]) for entry in read if entry["site"] in {*chains, *sites}}
    return sum(sequence >= chains.get(site, (0, ""))[0] for site, sequence in numbers)


class ReplayGuard:
    """The outstanding entries of all sites, by sequence, and the last message that was folded in whole."""

    def __init__(self, key: bytes, last: Mark | None = None, advice: str = REPEATED) -> None:
        """``advice`` is what to do where an entry comes out differently."""
        self._key = key
        self._advice = advice
        self._last = last
        self._unmarked: tuple[int, bytes | None, bytes] | None = None
        """The last message where its digest has not been made yet."""
        self._sites: dict[str, dict[int, bytes]] = {}

    # --- entries --------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether some entry has not come out again yet."""
        return any(self._sites.values())

    def add(self, value: bytes, chains: Mapping[str, tuple[int, str]]) -> None:
        """Take an entry unless its site's hash chain is past it; FinalityError when it contradicts another."""
        entry = orjson.loads(value)
        site, sequence = entry["site"], entry["sequence"]
        if sequence >= chains.get(site, (0, ""))[0]:
            known = self._sites.setdefault(site, {}).setdefault(sequence, value)
            refuse_other(known, value, site, self._advice)

    def compare(self, site: str, value: bytes) -> None:
        """Let an entry that has just been made stand for its copy; FinalityError when they differ."""
        entries = self._sites.get(site)
        if entries:
            known = entries.pop(orjson.loads(value)["sequence"], None)
            if known is not None:
                refuse_other(known, value, site, self._advice)

    def keep_to(self, sites: frozenset[str]) -> None:
        """Forget the entries of all other sites, which nothing can make again."""
        self._sites = {site: entries for site, entries in self._sites.items() if site in sites}

    def count(self) -> int:
        """Return how many entries have not come out again yet."""
        return sum(map(len, self._sites.values()))

    def policies(self) -> frozenset[str]:
        """Return the policy versions under which the sites' next entries were made."""
        firsts = [entries[min(entries)] for entries in self._sites.values() if entries]
        return frozenset(orjson.loads(value)["policy_version"] for value in firsts)

    # --- the last message -----------------------------------------------------------------------------

    def read(self, offset: int, key: bytes | None, value: bytes) -> None:
        """Take note of a message that was folded in whole."""
        self._unmarked = offset, key, value

    def mark(self) -> Mark | None:
        """Return what a snapshot keeps of the last message; None where that is not known."""
        if self._unmarked is not None:
            offset, key, value = self._unmarked
            self._last, self._unmarked = (offset, self._digest(offset, key, value)), None
        return self._last

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state was restored with or marked; None where not known."""
        return None if self._last is None else self._last[0]

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is that message, as far as it is known."""
        return self._last is None or hmac.compare_digest(self._last[1], self._digest(self._last[0], key, value))

    def _digest(self, offset: int, key: bytes | None, value: bytes) -> str:
        text = b"tacet message v1 %d %d " % (offset, len(key or b"")) + (key or b"") + value
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()[:32]


def refuse_holes(entries: Iterable[bytes], chains: Mapping[str, tuple[int, str]]) -> None:
    """Raise LossError unless the entries hold the hash chains whole: site -> (entries, hash of the last)."""
    there = {(entry["site"], entry["sequence"]): entry["hash"] for entry in map(orjson.loads, entries)}
    for site, (length, head) in sorted(chains.items()):
        whole = all((site, number) in there for number in range(length))
        if not whole or (length and there[site, length - 1] != head):
            msg = f"site {site}: the audit must hold every entry that the state has published"
            raise LossError(msg)
