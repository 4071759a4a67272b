"""Backfill: recorded observations of the past, without releasing anything twice.

A window or day that was released comes out as it was stored, for nothing: its keys may be gone, and nothing
is drawn again. Where its key still exists, its input must be the one that was committed to; other input
under the same ids is refused. A window or day that was never released is charged and released as live, with
groups and filters of its own: its budgets look at all that was ever charged, before and after it. Only
``sample`` and ``ba`` release nothing late, since what they may publish depends on all windows around. What
lies ahead of the site's last window is left to the live run.

What is released late changes the account from its window on; the records of all later windows come out
anew, and the last one of a window is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from stream.account_stage import by_version, retell
from stream.errors import FinalityError, KeyFileError, UsageError
from stream.keys import Keys
from stream.late_release import LateReleases
from stream.operators import Operator
from stream.partition import Emitted, Partition
from stream.pipeline import Options, table
from stream.policy import AttributeRelease, Policy
from stream.records import DayClosed, Heartbeat, ObservationBatch, OccupancyWindow
from stream.release_state import ReleaseState
from stream.schemas import parse_record, parse_time

Item = OccupancyWindow | DayClosed


class Book(Protocol):
    """What has been released so far."""

    def record(self, release_id: str) -> bytes | None:
        """Return a released record."""

    def entries(self, site: str) -> list[dict[str, Any]]:
        """Return a site's ledger entries in order."""


@dataclass(slots=True)
class Backfilled:
    """What a backfill found and made."""

    again: int = 0
    """Windows and days that were released before."""
    unchecked: int = 0
    """Of those, the ones whose key is gone, so that their input could not be compared."""
    released: int = 0
    ahead: int = 0
    """Windows and days that the live run has not come to."""
    stored: list[bytes] = field(default_factory=list)
    """Records released before, in order."""
    emitted: list[Emitted] = field(default_factory=list)
    """What was released now, in publishing order."""


class Backfill:
    """Drives the sensing stages over a recording and settles each window against the book."""

    def __init__(
        self, policy: Policy, keys: Keys, partition: Partition, book: Book, options: Options,
        earlier: Sequence[Policy] = (),
    ) -> None:  # fmt: skip
        """Release late under ``policy``; the policies before it are needed to account for what they released."""
        self.made = Backfilled()
        self._policies = [policy, *earlier]
        self._partition = partition
        self._book = book
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self._commitments: dict[str, str] = {}
        self._sensing: dict[str, tuple[Operator[Any, Any, Any], Operator[Any, Any, Any]]] = {}
        self._states: dict[str, list[Any]] = {}
        self._releases: dict[str, LateReleases] = {}
        self._aside: dict[str, ReleaseState] = {}
        self._of_days = {r.name for known in self._policies for r in known.release if isinstance(r, AttributeRelease)}
        for site in policy.site:
            sense, attributes, *_ = table(policy, site, keys, options, keep_presence=False)
            self._sensing[site] = (sense.operator, attributes.operator)
            self._states[site] = [sense.operator.initial(), attributes.operator.initial()]
            self._releases[site] = LateReleases(policy, site, keys, options.attempt)
            self._aside[site] = ReleaseState()

    def take(self, message: ObservationBatch | Heartbeat) -> None:
        """Take the next message of the recording.

        Raises:
            FinalityError: something released was made from other observations; nothing comes of this message.
            KeyFileError: a window was never released and its day's key is gone.
            UsageError: the site has released something under a policy that was not given.
        """
        site = message.site
        (sense, attributes), states = self._sensing[site], self._states[site]
        states[0], outputs = sense.step(states[0], message)
        for window in outputs:
            if isinstance(window, OccupancyWindow):
                states[1], days = attributes.step(states[1], window)
                for item in (*days, window):
                    self._settle(site, item)

    def _settle(self, site: str, item: Item) -> None:
        through = self._partition.released_through(site)
        if through is None:
            msg = f"site {site}: must have released something before; run the recording with 'tacet run'"
            raise UsageError(msg)
        if item.window_end > through:
            self.made.ahead += 1
            return
        self._open(site)
        ids = self._releases[site].ids(item)
        stored = {name: record for name in ids if (record := self._book.record(name)) is not None}
        if stored:
            self._check(site, item, stored)
            self.made.again += 1
            self.made.stored += stored.values()
        elif ids:
            self.made.emitted += self._partition.release_past(site, self._releases[site], item, self._aside[site])
            self.made.released += 1

    def _open(self, site: str) -> None:
        if site not in self._entries:
            entries = self._book.entries(site)
            by_version(self._policies, entries)
            self._entries[site] = entries
            self._commitments |= {entry["release_id"]: entry["commitment"] for entry in entries}
            self._partition.open_books(site, self._releases[site], entries)

    def _check(self, site: str, item: Item, stored: Iterable[str]) -> None:
        try:
            commitments: Mapping[str, str] = self._releases[site].commitments(item)
        except KeyFileError:
            self.made.unchecked += 1
            return
        for name in commitments.keys() & set(stored):
            if self._commitments.get(name) != commitments[name]:
                msg = f"release {name}: was made from other observations; nothing is released"
                raise FinalityError(msg)

    def close(self) -> None:
        """Account anew for every site with something new, when the recording has been taken in."""
        fresh = [orjson.loads(record.value) for record in self.made.emitted]
        for site, entries in self._entries.items():
            late = [body for body in fresh if body["site"] == site and "commitment" in body]
            if late:
                shown = self._shown(entries) | {
                    body["release_id"]: body["value"] for body in fresh if "attribute" in body and body["released"]
                }
                account, records = retell(self._policies, site, [*entries, *late], shown)
                first = min(parse_time(entry["window_end"]) for entry in late)
                changed = [record for record in records if record.time >= first]
                self.made.emitted += self._partition.retold(site, account, changed)

    def _shown(self, entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Return the values of attributes that were shown before."""
        asked = {entry["release_id"] for entry in entries if entry["nano"] and entry["release"] in self._of_days}
        records = [parse_record(value) for name in sorted(asked) if (value := self._book.record(name)) is not None]
        return {record["release_id"]: record["value"] for record in records if record["released"]}
