"""The files of an embedded store that readers open, all in the folder ``private``.

- **Outboxes of audiences**, ``<audience>.sqlite``: one SQLite file per audience, and the only file that its subscribers
  open. A release lies in its outbox once and for ever: a record with the same id and other bytes is refused.
- **Outboxes of two roles** that are no audience: readers of the account, and operators. They have names that no
  audience can have, so that the service opens neither the store nor its state. Their content is a copy, which can be
  made again.

``Delivery`` moves committed private records of the store to the outboxes. The store may delete them (``synced``) once
the outboxes are written through to disk. Account records are copied. A record that was delivered before a crash is
delivered again under the same id, and stays as it is.

The folder also has ``_sites.json`` (``storage/site_metadata.py``), for everyone who may read one of the outboxes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from connectors.secrets.private_files import private_folder
from connectors.storage.embedded.reader import ACCOUNT_BOX, OPERATOR_BOX
from connectors.storage.embedded.sqlite_file import (
    RECORDS,
    Identity,
    connect,
    identity,
    naming_errors,
    refuse_replaced,
    transaction,
)
from stream.engine.partition import PartitionEngine
from stream.errors import FinalityError
from stream.policy.sites import Site
from stream.records import DAY, MINUTE, JsonObject, Micros, ReleaseId
from stream.schemas import LEAKAGE, rfc3339


class OutboxRecord(NamedTuple):
    """A private record as its outbox stores it."""

    id: str
    release: str
    site: str
    time: int
    """Event time in ms."""
    value: bytes


class Outboxes:
    """The outboxes in a folder: ``<audience>.sqlite``, each created or opened when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)
        self._boxes: dict[str, sqlite3.Connection] = {}
        self._opened: dict[Path, Identity] = {}

    def prepare(self, audiences: Iterable[str]) -> None:
        """Create the missing outboxes of audiences. An audience without an outbox is no audience of this store."""
        for audience in audiences:
            self._box(audience)

    def refuse_replaced(self) -> None:
        """Raise StoreError if an opened outbox is gone, or if another file has its name."""
        for path, opened in self._opened.items():
            refuse_replaced(path, opened)

    def append(self, audience: str, records: Sequence[OutboxRecord]) -> None:
        """Add records in one transaction. Existing records stay; FinalityError if one would differ."""
        box = self._box(audience)
        with naming_errors(self._path(audience)), transaction(box):
            for record in records:
                _put(box, record)

    def sync(self) -> bool:
        """Write everything through to disk; False if a reader prevents it, and the next call does it."""
        with naming_errors(self._folder):
            results = [box.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone() for box in self._boxes.values()]
        return all(not busy and pages == written for busy, pages, written in results)

    def record(self, release_id: str) -> bytes | None:
        """Return a record that was added; None if there is none."""
        box = self._box(ReleaseId.parse(release_id).audience)
        with naming_errors(self._folder):
            row = box.execute("SELECT value FROM records WHERE id = ?", (release_id,)).fetchone()
        return None if row is None else bytes(row[0])

    def close(self) -> None:
        """Close every file."""
        for box in self._boxes.values():
            box.close()

    def _path(self, audience: str) -> Path:
        return self._folder / f"{audience}.sqlite"

    def _box(self, audience: str) -> sqlite3.Connection:
        if audience not in self._boxes:
            path = self._path(audience)
            with naming_errors(path):
                box = connect(path, RECORDS)
                box.execute("PRAGMA synchronous = NORMAL")  # the store still has what a power cut may lose
                self._opened[path] = identity(path)
            self._boxes[audience] = box
        return self._boxes[audience]


def _put(box: sqlite3.Connection, record: OutboxRecord) -> None:
    stored = box.execute("SELECT value FROM records WHERE id = ?", (record.id,)).fetchone()
    if stored is None:
        box.execute("INSERT INTO records (id, release, site, time, value) VALUES (?, ?, ?, ?, ?)", record)
    elif bytes(stored[0]) != record.value:
        msg = f"release {record.id}: was published and would now differ; nothing is released"
        raise FinalityError(msg)


# Outboxes of the two roles

APART: Micros = 5 * MINUTE
"""Least event time between two records of a site's figures that depend on people."""
TOGETHER = 8
"""Least number of access points for which figures that depend on people are published."""
KEPT: Micros = 7 * DAY


class RoleRecord(NamedTuple):
    """A record as the store keeps it, with its number among the records of its kind."""

    seq: int
    site: str
    time: int
    """Event time in ms."""
    value: bytes


class AccountOutbox:
    """The account as it is streamed; the last record of a window is the valid one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{ACCOUNT_BOX}.sqlite"
        self._box = _opened(self._path)

    def last(self) -> int:
        """Return the number of the last record added, 0 before the first."""
        with naming_errors(self._path):
            ((last,),) = self._box.execute("SELECT coalesce(max(seq), 0) FROM records").fetchall()
        return int(last)

    def forget_behind(self, seq: int) -> None:
        """Delete the records that a restored store has not written yet, since it may write them differently."""
        with naming_errors(self._path), transaction(self._box):
            self._box.execute("DELETE FROM records WHERE seq > ?", (seq,))

    def append(self, records: Iterable[RoleRecord]) -> None:
        """Add records in one transaction; existing records stay."""
        rows = ((record.seq, str(record.seq), "account", record.site, record.time, record.value) for record in records)
        with naming_errors(self._path), transaction(self._box):
            self._box.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close its file."""
        self._box.close()


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


NOT_DROPS = frozenset({"rows", "accepted", "stale_heartbeats", "late"})
"""Counters of sensing that are no reason for a drop, and the one that has a field of its own."""


def _dropped(counters: Mapping[str, int]) -> dict[str, int]:
    return {reason: rows for reason, rows in sorted(counters.items()) if rows and reason not in NOT_DROPS}


class OperatorBox:
    """The status of each site: figures of the engine itself, and of traffic how much was accepted and dropped, and why.

    Figures of traffic depend on people. They are as coarse as in the metrics: sums over at least ``TOGETHER`` access
    points, published every ``APART`` at most.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{OPERATOR_BOX}.sqlite"
        self._box = _opened(self._path)
        self._noted: dict[str, Micros] = {}
        self._received: Callable[[], ReceivedTraps] | None = None
        self._traps: ReceivedTraps | None = None

    def count_traps(self, received: Callable[[], ReceivedTraps]) -> None:
        """Add the counts of a receiver to all later records; ``received`` returns the present ones."""
        self._received = received

    def note(self, partition: PartitionEngine) -> None:
        """Record the figures of each site that has progressed by ``APART``."""
        sensing, rows = partition.sites.sensing(), []
        for site, state in sensing.items():
            window = state.next_tick
            if window is not None and window >= self._noted.get(site, 0) + APART:
                self._noted[site] = window
                rows.append((site, window, orjson.dumps(self._figures(partition, site))))
        if rows:
            self._write(rows)

    def _figures(self, partition: PartitionEngine, site: str) -> JsonObject:
        state, place = partition.sites.sensing()[site], partition.policy.site.get(site)
        enough = place is not None and _access_points(place) >= TOGETHER
        everywhere = sum(map(_access_points, partition.policy.site.values()))
        tick = 0 if place is None else place.tick
        key_day = partition.sites.oldest_key_day_needed()
        traps = self._traps_so_far() if everywhere >= TOGETHER else None
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
            "rejected_messages": partition.counters.rejected if everywhere >= TOGETHER else None,
            "oldest_key_day": None if key_day is None else rfc3339(key_day * DAY),
            "policy_version": partition.policy.version,
        }

    def _traps_so_far(self) -> ReceivedTraps | None:
        """Return the receiver's counts; they are read again after ``APART`` only, whichever site is noted."""
        if self._received is not None:
            now = self._received()
            if self._traps is None or now.time >= self._traps.time + APART:
                self._traps = now
        return self._traps

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
        box = connect(path, RECORDS)
        box.execute("PRAGMA synchronous = NORMAL")  # the store still has the record, or the next window repeats it
    return box


# --- delivery -----------------------------------------------------------------------------------------

_AT_ONCE = 2000
"""Account records copied in one batch."""
SYNC_EVERY = 12
"""Number of windows after which the outboxes are written through to disk."""


class Delivery:
    """Delivers the records of one store, in the order of their commits."""

    def __init__(self, path: Path, store: sqlite3.Connection, outboxes: Outboxes, account_box: AccountOutbox) -> None:
        """Begin with the private records that the store still has; ``path`` is that of the store."""
        self._path, self._db = path, store
        self._outboxes, self._account_box = outboxes, account_box
        self._delivered = self._deliveries = 0
        self.synced = 0
        """Position in the store up to which private records are on disk in their outboxes."""
        self._accounts, self._accounted = self._account_given()

    def deliver(self) -> None:
        """Deliver all records that were committed since the last call."""
        with naming_errors(self._path):
            rows = self._db.execute(
                "SELECT seq, topic, key, value, time, id FROM outputs "
                "WHERE seq > ? AND topic LIKE 'tacet.private.%' ORDER BY seq",
                (self._delivered,),
            ).fetchall()
        for audience in sorted({_audience(row[1]) for row in rows}):
            given = [row for row in rows if _audience(row[1]) == audience]
            self._outboxes.append(
                audience,
                [
                    OutboxRecord(name, topic.split(".")[3], key.decode(), time, value)
                    for _, topic, key, value, time, name in given
                ],
            )
        self._delivered = rows[-1][0] if rows else self._delivered
        self._deliver_account()
        self._deliveries += 1
        if self._deliveries % SYNC_EVERY == 0 and self._outboxes.sync():
            self.synced = self._delivered

    def _account_given(self) -> tuple[int, int]:
        """Return how many records the account's outbox has, without any that the store lacks, and the last one's
        position here.

        They are numbered separately: their positions in the store reveal how many other records there are, which
        depends on people.
        """
        with naming_errors(self._path):
            query = "SELECT count(*) FROM outputs WHERE topic = ?"
            ((stored,),) = self._db.execute(query, (LEAKAGE,)).fetchall()
        self._account_box.forget_behind(int(stored))
        given = self._account_box.last()
        if given == 0:
            return 0, 0
        with naming_errors(self._path):
            query = "SELECT seq FROM outputs WHERE topic = ? ORDER BY seq LIMIT 1 OFFSET ?"
            ((place,),) = self._db.execute(query, (LEAKAGE, given - 1)).fetchall()
        return given, int(place)

    def _deliver_account(self) -> None:
        """Copy new account records to the account's outbox."""
        query = "SELECT seq, key, time, value FROM outputs WHERE seq > ? AND +topic = ? ORDER BY seq LIMIT ?"
        while True:
            with naming_errors(self._path):
                rows = self._db.execute(query, (self._accounted, LEAKAGE, _AT_ONCE)).fetchall()
            if not rows:
                return
            self._account_box.append(
                RoleRecord(number, bytes(key).decode(), time, bytes(value))
                for number, (_, key, time, value) in enumerate(rows, start=self._accounts + 1)
            )
            self._accounts, self._accounted = self._accounts + len(rows), rows[-1][0]


def _audience(topic: str) -> str:
    return topic.split(".")[2]
