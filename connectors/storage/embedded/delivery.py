"""Delivery: committed records of a store reach the outboxes that their readers open.

Private records move: the store may delete them (``synced``) once the outboxes are written through to disk. Account
records are copied. A record that was delivered before a crash is delivered again under the same id, and stays as it is.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from connectors.storage.embedded.outboxes import AccountOutbox, Outboxes, OutboxRecord, RoleRecord
from connectors.storage.embedded.sqlite_file import naming_errors
from stream.schemas import LEAKAGE

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
