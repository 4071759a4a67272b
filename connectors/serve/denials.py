"""Windows that were denied: how many of the last week's, by release, audience and reason, as the account has them.

The account names with each window what the ledger has refused, and refusals depend on ledger and policy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stream.records import DAY, Micros
from stream.schemas import parse_time

SPAN: Micros = 7 * DAY
"""How far back windows are counted from a site's newest one."""
Denied = tuple[str, str, str]
"""Release, audience, reason."""


class Denials:
    """The windows of each site of which somebody was denied something; others are not kept."""

    def __init__(self) -> None:
        self._denied: dict[str, dict[Micros, frozenset[Denied]]] = {}
        self._newest: dict[str, Micros] = {}

    def take(self, record: Mapping[str, Any]) -> None:
        """Take in the account of a window's counts; where a window comes again, the last account of it is right."""
        site, end = str(record["site"]), parse_time(record["window_end"])
        windows = self._denied.setdefault(site, {})
        windows.pop(end, None)
        if denied := frozenset(map(_denied, record["refused"])):
            windows[end] = denied
        if end > self._newest.get(site, 0):
            self._newest[site] = end
            self._denied[site] = {at: each for at, each in windows.items() if at > end - SPAN}

    def of(self, site: str) -> list[dict[str, Any]]:
        """Return, sorted, how many windows of each release were denied to whom, and why."""
        since = self._newest.get(site, 0) - SPAN
        held = (each for end, windows in self._denied.get(site, {}).items() if end > since for each in windows)
        return [
            {"release": release, "audience": audience, "reason": reason, "windows": windows}
            for (release, audience, reason), windows in sorted(Counter(held).items())
        ]


def _denied(row: Mapping[str, str]) -> Denied:
    release, _, audience = row["release"].partition("/")
    return release, audience, row["reason"]
