"""The outbox of operators: figures of each site from which they see how a run is doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import orjson

from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS, TRAFFIC_INTERVAL
from connectors.storage.embedded.outboxes import open_outbox
from connectors.storage.embedded.reader import OPERATOR_OUTBOX
from connectors.storage.embedded.sqlite_file import naming_errors, transaction
from stream.engine.partition import PartitionEngine
from stream.records import DAY, JsonObject, Micros
from stream.schemas import rfc3339
from stream.sensing.state import dropped_rows

RETENTION: Micros = 7 * DAY
"""For how long figures are kept, in event time."""


class ReceivedTraps(NamedTuple):
    """The counts of a receiver since it began."""

    time: Micros
    """The receiver's time."""
    received: int
    accepted: int
    dropped: Mapping[str, int]
    """By reason."""
    kernel_drops: int

    def published(self) -> dict[str, int | dict[str, int]]:
        """Return the counts as they stand in the record; reasons without drops are left out."""
        return {
            "received": self.received, "accepted": self.accepted, "kernel_drops": self.kernel_drops,
            "dropped": {reason: number for reason, number in sorted(self.dropped.items()) if number},
        }  # fmt: skip


def _dropped(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the drops by reason but for late rows, which have a field of their own."""
    return {reason: rows for reason, rows in sorted(dropped_rows(counters).items()) if rows and reason != "late"}


class OperatorOutbox:
    """The status of each site: figures of the engine itself, and of traffic how much was accepted and dropped, and why.

    Figures of traffic depend on people. They are as coarse as in the metrics: sums over at least
    ``LEAST_ACCESS_POINTS``, published every ``TRAFFIC_INTERVAL`` at most.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{OPERATOR_OUTBOX}.sqlite"
        self._box = open_outbox(self._path)
        self._noted: dict[str, Micros] = {}
        self._received: Callable[[], ReceivedTraps] | None = None
        self._traps: ReceivedTraps | None = None

    def count_traps(self, received: Callable[[], ReceivedTraps]) -> None:
        """Add the counts of a receiver to all later records; ``received`` returns the present ones."""
        self._received = received

    def note(self, partition: PartitionEngine) -> None:
        """Record the figures of each site that has progressed by ``TRAFFIC_INTERVAL``."""
        sensing, rows = partition.sites.sensing(), []
        for site, state in sensing.items():
            window = state.next_tick
            if window is not None and window >= self._noted.get(site, 0) + TRAFFIC_INTERVAL:
                self._noted[site] = window
                rows.append((site, window, orjson.dumps(self._figures(partition, site))))
        if rows:
            self._write(rows)

    def _figures(self, partition: PartitionEngine, site: str) -> JsonObject:
        state, place = partition.sites.sensing()[site], partition.policy.site.get(site)
        enough = place is not None and place.radio_count >= LEAST_ACCESS_POINTS
        everywhere = sum(each.radio_count for each in partition.policy.site.values())
        tick = 0 if place is None else place.tick
        key_day = partition.sites.oldest_key_day_needed()
        traps = self._traps_so_far() if everywhere >= LEAST_ACCESS_POINTS else None
        return {
            "v": 1,
            "site": site,
            "window_end": None if state.next_tick is None else rfc3339(state.next_tick - tick),
            "reached": rfc3339(state.clock.watermark or 0),  # a session's start would show that a device was heard
            "closed": state.suspended,
            "ledger_entries": partition.sites.chains()[site][0],
            "accepted": state.counters["accepted"] if enough else None,
            "late": state.counters["late"] if enough else None,
            "dropped": _dropped(state.counters) if enough else None,
            "traps": None if traps is None else traps.published(),
            "rejected_messages": partition.counters.rejected if everywhere >= LEAST_ACCESS_POINTS else None,
            "oldest_key_day": None if key_day is None else rfc3339(key_day * DAY),
            "policy_version": partition.policy.version,
        }

    def _traps_so_far(self) -> ReceivedTraps | None:
        """Return the receiver's counts; read again after ``TRAFFIC_INTERVAL`` only, for all sites."""
        if self._received is not None:
            now = self._received()
            if self._traps is None or now.time >= self._traps.time + TRAFFIC_INTERVAL:
                self._traps = now
        return self._traps

    def _write(self, rows: list[tuple[str, Micros, bytes]]) -> None:
        newest = max(window for _, window, _ in rows)
        with naming_errors(self._path), transaction(self._box):
            for site, window, value in rows:
                ((last,),) = self._box.execute("SELECT coalesce(max(seq), 0) FROM records").fetchall()
                row = (f"{site}/{last + 1}", "operator", site, window // 1000, value)
                self._box.execute("INSERT INTO records (id, release, site, time, value) VALUES (?, ?, ?, ?, ?)", row)
            self._box.execute("DELETE FROM records WHERE time < ?", ((newest - RETENTION) // 1000,))

    def close(self) -> None:
        """Close its file."""
        self._box.close()
