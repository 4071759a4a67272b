"""Backfill: recorded observations of the past, without releasing anything twice.

A window or day that was released comes out as it was stored, for nothing: its keys may be gone, and nothing
is drawn again. Where its key still exists, its input must be the one that was committed to; other input
under the same ids is refused. A window or day that was never released is charged and released as live, with
groups and filters of its own: its budgets look at all that was ever charged, before and after it. Only
``sample`` and ``ba`` release nothing late, since what they may publish depends on all windows around. What
lies ahead of the site's last window is left to the live run.

The ledger decides what was never released, and not the names of releases: a window for which a zone has been
charged, under whatever name, is charged again only as an attempt above 1 of releases that are named. A zone's
day that was asked is not asked again at all. Nothing is drawn before all has been compared and priced.

What is released late changes the account from its window on; the records of all later windows come out
anew, and the last one of a window is right.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import orjson

from stream.errors import FinalityError, KeyFileError, UsageError
from stream.keys import Keys
from stream.pipeline import Options
from stream.policy.document import NANO, AttributeRelease, Policy
from stream.policy.sites import zones_now
from stream.records import DAY, Heartbeat, Micros, ObservationBatch, OccupancyWindow, PrivacyDay
from stream.release.account_stage import by_version, rebuild_account
from stream.release.budgets import nano
from stream.release.late import LateReleases
from stream.release.state import ReleaseState
from stream.runners.emitted import Emitted, in_order
from stream.runners.partition import Partition
from stream.runners.past_sensing import Item, PastSensing
from stream.runners.sites import Site
from stream.schemas import parse_record, parse_time, rfc3339


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


class Price(NamedTuple):
    """What one audience will be charged at most for a release."""

    site: str
    release: str
    audience: str
    records: int
    total: Fraction
    """Sum of their epsilons; of a count release what one device pays that is there all the time."""
    day: Fraction
    """The largest part of it that falls on windows of one UTC day."""


def priced(site: str, releases: LateReleases, books: ReleaseState, items: Iterable[Item]) -> list[Price]:
    """Return what releasing these items costs at most, by release and audience."""
    records: Counter[tuple[str, str]] = Counter()
    days: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for item in items:
        for release, audience, epsilon in releases.prices(books, item):
            records[release, audience] += 1
            days[release, audience][(item.window_end - 1) // DAY] += nano(epsilon)
    return [
        Price(site, *name, records[name], Fraction(each.total(), NANO), Fraction(max(each.values()), NANO))
        for name, each in sorted(days.items())
    ]


def _nothing_released(site: str) -> UsageError:
    return UsageError(f"site {site}: must have released something before; run the recording with 'tacet run'")


def _other_observations(release: str, day: PrivacyDay | None) -> FinalityError:
    msg = f"release {release}: was made from other observations; nothing is released"
    if day is not None:
        msg += (
            f". What a window's bounded counts are depends on all from {rfc3339(day.start)} on, when its privacy day "
            "starts; read all of it, or leave windows out with --from and --to"
        )
    return FinalityError(msg)


class Backfill:
    """Drives the sensing stages over a recording and settles each window against the book."""

    def __init__(
        self, policy: Policy, keys: Keys, partition: Partition, book: Book, options: Options,
        earlier: Sequence[Policy] = (), names: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Release late under ``policy``; the policies before it are needed to account for what they released.

        At attempts above 1 ``names`` are the count releases that are charged again.
        """
        self.made = Backfilled()
        self._attempt = options.attempt
        self._policies = [policy, *earlier]
        self._partition = partition
        self._book = book
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self._items: dict[str, list[Item]] = {site: [] for site in policy.site}
        self._fresh: dict[str, set[int]] = {}
        """Site -> places of its items that were never released."""
        self._prices: list[Price] | None = None
        self._commitments: dict[str, str] = {}
        self._sensing: dict[str, PastSensing] = {}
        self._releases: dict[str, LateReleases] = {}
        self._aside: dict[str, ReleaseState] = {}
        self._of_days = {r.name for known in self._policies for r in known.release if isinstance(r, AttributeRelease)}
        for site in policy.site:
            self._sensing[site] = PastSensing.of(policy, site, keys, options, self._begun(site))
            self._releases[site] = LateReleases(policy, site, keys, options.attempt, names)
            self._aside[site] = ReleaseState()

    @property
    def since(self) -> Micros | None:
        """The first window from which on a recording has to be read; None: from its own beginning."""
        return min(
            (each.sense.first_window for each in self._sensing.values() if each.sense.first_window), default=None
        )

    def _begun(self, site: str) -> Micros | None:
        """Return the window with which a site's counters began; None where there is no run to be compared with."""
        entries = self._book.entries(site) if self._attempt == 1 else []
        return parse_time(entries[0]["window_end"]) if entries else None

    def take(self, message: ObservationBatch | Heartbeat) -> None:
        """Take the next message of the recording; DataError where it has more devices than a site may hold."""
        site = message.site
        self._items[site] += self._sensing[site].take(message)

    def price(self) -> list[Price]:
        """Compare what was released before; return what the rest will cost at most, before anything is drawn.

        Raises:
            FinalityError: something released was made from other observations.
            UsageError: the site has released something under a policy that was not given, or a window that was
                charged before would be charged again.
        """
        if self._prices is None:
            self._prices = []
            for site, items in self._items.items():
                if items:
                    self._prices += self._priced(site, items)
        return self._prices

    def _priced(self, site: str, items: list[Item]) -> list[Price]:
        through = self._engine(site).released_through()
        if through is None:
            raise _nothing_released(site)
        due = [item for item in items if item.window_end <= through]
        self.made.ahead += len(items) - len(due)
        self._items[site] = due
        if due:
            self._open(site)
        self._fresh[site] = {place for place, item in enumerate(due) if self._never_released(site, item)}
        return priced(
            site, self._releases[site], self._books(site), [due[place] for place in sorted(self._fresh[site])]
        )

    def _books(self, site: str) -> ReleaseState:
        return self._engine(site).books()

    def _engine(self, site: str) -> Site:
        held = self._partition.sites.held(site)
        if held is None:
            raise _nothing_released(site)
        return held

    def _open(self, site: str) -> None:
        entries = self._book.entries(site)
        known = by_version(self._policies, entries)
        self._entries[site] = entries
        self._commitments |= {entry["release_id"]: entry["commitment"] for entry in entries}
        self._releases[site].open_books(self._books(site), entries, known)

    def _never_released(self, site: str, item: Item) -> bool:
        """Settle an item that was released before; return whether this one was not, and is released now."""
        ids = self._releases[site].ids(item)
        stored = {name: record for name in ids if (record := self._book.record(name)) is not None}
        if stored:
            self._check(site, item, stored)
            self.made.again += 1
            self.made.stored += stored.values()
        elif ids:
            self._refuse_second_charge(site, item)
        return bool(ids) and not stored

    def _refuse_second_charge(self, site: str, item: Item) -> None:
        if isinstance(item, OccupancyWindow):
            before = self._releases[site].charged_before(self._books(site), item)
            if before is not None:
                msg = (
                    f"site {site}: zones of the window that ends at {rfc3339(item.window_end)} were charged before, as "
                    f"release '{before}'; --attempt {self._attempt + 1} --release NAME orders another release, which "
                    "is charged again, and --from and --to leave windows out"
                )
                raise UsageError(msg)

    def _check(self, site: str, item: Item, stored: Iterable[str]) -> None:
        try:
            commitments: Mapping[str, str] = self._releases[site].commitments(item)
        except KeyFileError:
            self.made.unchecked += 1
            return
        for name in commitments.keys() & set(stored):
            if self._commitments.get(name) != commitments[name]:
                raise _other_observations(name, item.privacy_day if isinstance(item, OccupancyWindow) else None)

    def close(self) -> None:
        """Release what never was, when the recording has been taken in, and account anew for sites with something new.

        Raises:
            KeyFileError: a window was never released and its day's key is gone; nothing comes of the recording.
        """
        self.price()
        for site, items in self._items.items():
            self._release(site, items)
        self._account()

    def _release(self, site: str, items: list[Item]) -> None:
        releases, aside = self._releases[site], self._aside[site]
        for place, item in enumerate(items):
            if place in self._fresh[site]:
                self.made.emitted += in_order(releases.past(self._books(site), item, aside))
                self.made.released += 1
            if isinstance(item, OccupancyWindow):
                releases.note_coverage(aside, item)
        self.made.emitted += in_order(releases.finish(aside))
        if site in self._entries:
            releases.close_books(self._books(site))

    def _account(self) -> None:
        fresh = [orjson.loads(record.value) for record in self.made.emitted]
        for site, entries in self._entries.items():
            late = [body for body in fresh if body["site"] == site and "commitment" in body]
            if late:
                shown = self._shown(entries) | {
                    body["release_id"]: body["value"] for body in fresh if "attribute" in body and body["released"]
                }
                account, records = rebuild_account(self._policies, site, [*entries, *late], shown)
                for before in self._policies:  # the last of the entries may be of another policy than the one to go on
                    if site in before.site:
                        account.rename(zones_now(before.site[site].radios, self._policies[0].site[site].zones))
                first = min(parse_time(entry["window_end"]) for entry in late)
                changed = [record for record in records if record.time >= first]
                self._engine(site).replace_account(account)
                self.made.emitted += in_order(changed)

    def _shown(self, entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Return the values of attributes that were shown before."""
        asked = {entry["release_id"] for entry in entries if entry["nano"] and entry["release"] in self._of_days}
        records = [parse_record(value) for name in sorted(asked) if (value := self._book.record(name)) is not None]
        return {record["release_id"]: record["value"] for record in records if record["released"]}
