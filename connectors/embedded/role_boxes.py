"""Outboxes of the two roles that are no audience: readers of the account, and operators.

They lie beside those of audiences, under names that no audience can have, so that who serves them opens neither the
store nor its state. What is in them is a copy: it can be made again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from connectors.embedded.readings import ACCOUNT_BOX, OPERATOR_BOX
from connectors.embedded.sqlite_file import connect, naming_errors, transaction
from stream.policy.document import Site
from stream.records import DAY, MINUTE, Micros
from stream.runners.partition import Partition
from stream.schemas import rfc3339
from stream.sensing import watermark

APART: Micros = 5 * MINUTE
"""Between two notes of a site's figures: what depends on people is told of so long a time, ..."""
TOGETHER = 8
"""... and of so many access points, or not at all."""
KEPT: Micros = 7 * DAY
_BOX = """
CREATE TABLE IF NOT EXISTS records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, release TEXT NOT NULL,
    site TEXT NOT NULL, time INTEGER NOT NULL, value BLOB NOT NULL);
"""


class Kept(NamedTuple):
    """A record as the store keeps it, by the number that it has there."""

    seq: int
    site: str
    time: int
    """Event time in ms."""
    value: bytes


class AccountBox:
    """The account as it is streamed; the last record of a window is right."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{ACCOUNT_BOX}.sqlite"
        self._box = _opened(self._path)

    def last(self) -> int:
        """Return the number of the last record given, 0 before the first."""
        with naming_errors(self._path):
            ((last,),) = self._box.execute("SELECT coalesce(max(seq), 0) FROM records").fetchall()
        return int(last)

    def forget_behind(self, seq: int) -> None:
        """Forget what a store that was set back has not written yet, and may write otherwise."""
        with naming_errors(self._path), transaction(self._box):
            self._box.execute("DELETE FROM records WHERE seq > ?", (seq,))

    def give(self, records: Iterable[Kept]) -> None:
        """Add records in one transaction; those that are there stay."""
        rows = ((kept.seq, str(kept.seq), "account", kept.site, kept.time, kept.value) for kept in records)
        with naming_errors(self._path), transaction(self._box):
            self._box.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close its file."""
        self._box.close()


class OperatorBox:
    """How each site stands: figures of the engine itself, and of people only how many observations came late or were
    put aside.

    What else is known of traffic is told by metrics alone (``connectors.monitoring``), never to who is served.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{OPERATOR_BOX}.sqlite"
        self._box = _opened(self._path)
        self._noted: dict[str, Micros] = {}

    def note(self, partition: Partition) -> None:
        """Note the figures of each site that has come ``APART`` further."""
        sensing, rows = partition.sites.sensing(), []
        for site, state in sensing.items():
            window = state.next_tick
            if window is not None and window >= self._noted.get(site, 0) + APART:
                self._noted[site] = window
                rows.append((site, window, orjson.dumps(self._figures(partition, site))))
        if rows:
            self._write(rows)

    def _figures(self, partition: Partition, site: str) -> dict[str, Any]:
        state, place = partition.sites.sensing()[site], partition.policy.site.get(site)
        enough = place is not None and _access_points(place) >= TOGETHER
        everywhere = sum(map(_access_points, partition.policy.site.values()))
        tick = 0 if place is None else place.tick
        key_day = partition.sites.oldest_key_day_needed()
        return {
            "v": 1,
            "site": site,
            "window_end": None if state.next_tick is None else rfc3339(state.next_tick - tick),
            "reached": rfc3339(watermark.reached(state.clock)),
            "closed": state.shut,
            "ledger_entries": partition.sites.chains()[site][0],
            "late": state.counters["late"] if enough else None,
            "rejected_messages": partition.counters.rejected if everywhere >= TOGETHER else None,
            "oldest_key_day": None if key_day is None else rfc3339(key_day * DAY),
            "policy_version": partition.policy.version,
        }

    def _write(self, rows: list[tuple[str, Micros, bytes]]) -> None:
        newest = max(window for _, window, _ in rows)
        with naming_errors(self._path), transaction(self._box):
            for site, window, value in rows:
                ((last,),) = self._box.execute("SELECT coalesce(max(seq), 0) FROM records").fetchall()
                row = (f"{site}/{last + 1}", "operator", site, window // 1000, value)
                self._box.execute("INSERT INTO records (id, release, site, time, value) VALUES (?, ?, ?, ?, ?)", row)
            self._box.execute("DELETE FROM records WHERE time < ?", ((newest - KEPT) // 1000,))

    def close(self) -> None:
        """Close its file."""
        self._box.close()


def _access_points(place: Site) -> int:
    return sum(len(zone.radios) for zone in place.zones)


def _opened(path: Path) -> sqlite3.Connection:
    with naming_errors(path):
        box = connect(path, _BOX)
        box.execute("PRAGMA synchronous = NORMAL")  # the store still holds it, or the next window brings it
    return box
