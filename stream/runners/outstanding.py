"""Audit entries that were published beyond a state: the same entries must come out again, or nothing may.

A worker that crashed, or whose transaction was never committed, has left them in the log. They also say under
which policy a window was begun, and so under which it is to be finished.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from stream.accounting.ledger import refuse_other


class Outstanding:
    """The entries of all sites, by sequence."""

    def __init__(self) -> None:
        self._sites: dict[str, dict[int, bytes]] = {}

    def __bool__(self) -> bool:
        return any(self._sites.values())

    def add(self, value: bytes, chains: Mapping[str, tuple[int, str]]) -> None:
        """Take an entry unless its site's chain is past it; FinalityError when it contradicts another."""
        entry = orjson.loads(value)
        site, sequence = entry["site"], entry["sequence"]
        if sequence >= chains.get(site, (0, ""))[0]:
            known = self._sites.setdefault(site, {}).setdefault(sequence, value)
            refuse_other(known, value, site)

    def compare(self, site: str, value: bytes) -> None:
        """Let an entry that has just been made stand for its copy; FinalityError when they differ."""
        entries = self._sites.get(site)
        if entries:
            known = entries.pop(orjson.loads(value)["sequence"], None)
            if known is not None:
                refuse_other(known, value, site)

    def keep_to(self, sites: frozenset[str]) -> None:
        """Forget the entries of all other sites, which nothing can make again."""
        self._sites = {site: entries for site, entries in self._sites.items() if site in sites}

    def policies(self) -> frozenset[str]:
        """Return the policy versions under which the sites' next entries were made."""
        firsts = [entries[min(entries)] for entries in self._sites.values() if entries]
        return frozenset(orjson.loads(value)["policy_version"] for value in firsts)
