"""How sites on Kafka stand, by the topics that operators may read: the account, quarantine and control.

What an engine alone knows (how far it has read, whether a site is closed, its keys, sums over people) is in no topic;
the workers' metrics have it, and here it is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connectors.serve.books import AccountBook

UNTOLD = ("reached", "closed", "ledger_entries", "late", "oldest_key_day")


class ClusterBook:
    """The figures of each site that has released anything."""

    def __init__(self, account: AccountBook) -> None:
        self._account = account
        self._refused = 0
        self._version: str | None = None
        self._silent: Mapping[str, int] = {}

    def take_refused(self, records: Sequence[bytes]) -> None:
        """Count messages that were refused: what the quarantine holds, and what comes."""
        self._refused += len(records)

    def take_agreed(self, version: str | None, silent: Mapping[str, int]) -> None:
        """Note the present policy's version, and of how many sources of a site the ingest gives no sign of life."""
        self._version, self._silent = version, silent

    def newest(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each site as they stand now, in the form of a store's."""
        return {site: self._figures(site, account) for site, account in self._account.newest().items()}

    def _figures(self, site: str, account: Mapping[str, Any]) -> dict[str, Any]:
        return {"v": 1, "site": site, "window_end": account["window_end"]} | dict.fromkeys(UNTOLD) | {
            "rejected_messages": self._refused, "policy_version": self._version,
            "silent_sources": self._silent.get(site, 0),
        }  # fmt: skip
