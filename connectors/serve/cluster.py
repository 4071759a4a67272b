"""How sites on Kafka stand, by the topics that operators may read: the account, quarantine and control.

What an engine alone knows (how far it has read, whether a site is closed, its keys, sums over people) is in no topic;
the workers' metrics have it, and here it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connectors.serve.books import AccountBook
from stream.policy.document import Policy
from stream.records import MINUTE, Micros

APART: Micros = 5 * MINUTE
"""What depends on people is told as of points of the clock's grid of this width, ..."""
TOGETHER = 8
"""... and of so many access points, or not at all."""
UNTOLD = ("reached", "closed", "ledger_entries", "late", "oldest_key_day")


class ClusterBook:
    """The figures of each site that has released anything."""

    def __init__(self, account: AccountBook, policy: Policy, clock: Callable[[], Micros]) -> None:
        """``clock`` is the wall's."""
        self._account, self._clock = account, clock
        access_points = sum(len(zone.radios) for site in policy.site.values() for zone in site.zones)
        self._enough = access_points >= TOGETHER
        self._refused, self._point = 0, clock() // APART
        self._told: int | None = None
        """How many had been refused at the latest point of the grid; None before the first."""
        self._version: str | None = None
        self._silent: Mapping[str, int] = {}

    def take_refused(self, records: Sequence[bytes]) -> None:
        """Count messages that were refused: what the quarantine holds, and what comes."""
        self._settle()
        self._refused += len(records)

    def _settle(self) -> None:
        """Tell from now on what came before the latest point of the grid; to be called before more is counted."""
        point = self._clock() // APART
        if point != self._point and self._enough:
            self._told = self._refused
        self._point = point

    def take_agreed(self, version: str | None, silent: Mapping[str, int]) -> None:
        """Note the present policy's version, and of how many sources of a site the ingest gives no sign of life."""
        self._version, self._silent = version, silent

    def newest(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each site as they stand now, in the form of a store's."""
        self._settle()
        return {site: self._figures(site, account) for site, account in self._account.newest().items()}

    def _figures(self, site: str, account: Mapping[str, Any]) -> dict[str, Any]:
        return {"v": 1, "site": site, "window_end": account["window_end"]} | dict.fromkeys(UNTOLD) | {
            "rejected_messages": self._told, "policy_version": self._version,
            "silent_sources": self._silent.get(site, 0),
        }  # fmt: skip
