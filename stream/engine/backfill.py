"""Backfill: release what a recording has and was never released.

* A window or day that was released before is returned as it was stored, at no cost: its keys may have been destroyed,
  and no noise is drawn again. If its key still exists, its input must be the one of its commitment; other input under
  the same ids is refused.
* A window or day that was never released is charged and released as it would have been live, with separate groups and
  filters. Its budgets count all charges, before and after it. ``sample`` and ``ba`` release nothing late, because
  their publications depend on all neighbouring windows.
* Windows after the site's last released one are left to the live run.

The ledger, not the names of releases, decides whether a window was released. A window for which a zone has been
charged, under any name, is charged again only as an attempt above 1 of named releases. A zone's day that was queried
for attributes is never queried again. Nothing is drawn before everything has been compared and priced.

Late releases change the account from their window onwards. The account records of all later windows are published
again; the last record of a window is the valid one.

If a site bounds counts per privacy day, its counters must begin where those of the live run began: at the start of
the day, or, on the site's first day, with its first window. A recording is therefore read from there, although windows
before the first requested one are not returned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple, Protocol

import orjson

from stream.accounting.ledger import Entry, nano
from stream.engine.outputs import OutputRecord, in_order
from stream.engine.partition import PartitionEngine
from stream.engine.site_engines import SiteEngine
from stream.errors import DataError, FinalityError, KeyFileError, UsageError
from stream.keys import Keys
from stream.pipeline import Options, build_stages
from stream.policy.attributes import AttributeRelease, Value
from stream.policy.document import PolicyDocument
from stream.policy.fields import NANO
from stream.policy.sites import Site, zones_now
from stream.records import DAY, DayClosed, Heartbeat, Micros, ObservationBatch, OccupancyWindow, PrivacyDay
from stream.release.account_stage import by_version, rebuild_account
from stream.release.backfill import BackfillStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy
from stream.schemas import parse_record, parse_time, rfc3339
from stream.sensing.day_attributes import DayAttributes, DayState
from stream.sensing.occupancy import OccupancyOperator
from stream.sensing.state import SensingState

Item = OccupancyWindow | DayClosed


@dataclass(slots=True)
class PastSensing:
    """The stages of a site before its releases, and their states."""

    occupancy: OccupancyOperator
    attributes: DayAttributes
    first: Micros | None
    """The first requested window; None: any."""
    state: SensingState
    day: DayState

    @classmethod
    def of(cls, policy: Policy, site: str, keys: Keys, options: Options, first_window: Micros | None) -> PastSensing:
        """Return the stages of a site for the windows requested in ``options``; ``first_window`` as in
        ``sensing_start``.
        """
        since = sensing_start(policy.site[site], options.first_window, first_window)
        stages = build_stages(policy, site, keys, replace(options, first_window=since), keep_presence=False)
        sense, attributes = stages.occupancy, stages.attributes
        return cls(sense, attributes, options.first_window, sense.initial(), attributes.initial())

    def process(self, message: ObservationBatch | Heartbeat) -> list[Item]:
        """Return the windows and days that a message closes; DataError if the site exceeds ``max_devices``."""
        self.state, outputs = self.occupancy.step(self.state, message)
        if self.state.suspended:
            msg = f"site {message.site}: the recording has more devices than its max_devices; nothing is released"
            raise DataError(msg)
        items: list[Item] = []
        for window in outputs:
            if isinstance(window, OccupancyWindow) and (self.first is None or window.window_end >= self.first):
                self.day, days = self.attributes.step(self.day, window)
                items += [*days, window]
        return items


def sensing_start(site: Site, first: Micros | None, first_window: Micros | None) -> Micros | None:
    """Return the first window to process so that the counters at window ``first`` are correct.

    Args:
        site: its policy determines whether counts are bounded per privacy day.
        first: the first requested window, microseconds; None: from the beginning of the recording.
        first_window: the first window of the live counters; None: they always had whole days.
    """
    if first is None or site.privacy_days is None:
        return first
    window = -(-first // site.tick) * site.tick
    start = site.privacy_days.at(window).start
    return first_window if first_window is not None and start < first_window <= window else start + site.tick


class ReleaseHistory(Protocol):
    """Reads what has been released so far."""

    def record(self, release_id: str) -> bytes | None:
        """Return a released record, None if there is none."""

    def entries(self, site: str) -> Sequence[Entry]:
        """Return a site's ledger entries in order."""


@dataclass(slots=True)
class Backfilled:
    """The result of a backfill."""

    again: int = 0
    """Windows and days that were released before."""
    unchecked: int = 0
    """Records whose input was not compared: the key is gone, another policy made them, or all was denied."""
    released: int = 0
    ahead: int = 0
    """Windows and days that the live run has not reached."""
    stored: list[bytes] = field(default_factory=list)
    """Records released before, in order."""
    emitted: list[OutputRecord] = field(default_factory=list)
    """Records released now, in publishing order."""


class BackfillCost(NamedTuple):
    """The most that one audience will be charged for a release."""

    site: str
    release: str
    audience: str
    records: int
    total: Fraction
    """Sum of the epsilons; for a count release the cost for one device that is always present."""
    day: Fraction
    """The largest part of ``total`` that falls on the windows of one UTC day."""


def backfill_costs(
    site: str, releases: BackfillStage, state: ReleaseState, items: Iterable[Item]
) -> list[BackfillCost]:
    """Return the most that releasing these items costs, by release and audience."""
    records: Counter[tuple[str, str]] = Counter()
    days: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for item in items:
        for release, audience, epsilon in releases.prices(state, item):
            records[release, audience] += 1
            days[release, audience][(item.window_end - 1) // DAY] += nano(epsilon)
    return [
        BackfillCost(site, *name, records[name], Fraction(each.total(), NANO), Fraction(max(each.values()), NANO))
        for name, each in sorted(days.items())
    ]


def _nothing_released(site: str) -> UsageError:
    return UsageError(f"site {site}: must have released something before; run the recording with 'tacet run'")


def _other_observations(release: str, day: PrivacyDay | None) -> FinalityError:
    msg = f"release {release}: was made from other observations; nothing is released"
    if day is not None:
        msg += (
            f". A window's bounded counts depend on all observations from {rfc3339(day.start)} on, when its privacy "
            "day starts; read all of it, or leave windows out with --from and --to"
        )
    return FinalityError(msg)


class Backfill:
    """Drives the sensing stages over a recording and compares each window with what was released."""

    def __init__(
        self, policy: Policy, keys: Keys, partition: PartitionEngine, history: ReleaseHistory, options: Options,
        earlier: Sequence[PolicyDocument] = (), names: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Release late under ``policy``; ``earlier`` policies are needed to account for what they released.

        At attempts above 1 ``names`` are the count releases that are charged again.
        """
        self.made = Backfilled()
        self._attempt = options.attempt
        self._policies: list[PolicyDocument] = [policy, *earlier]
        self._version = policy.version
        self._partition = partition
        self._history = history
        self._entries: dict[str, Sequence[Entry]] = {}
        self._items: dict[str, list[Item]] = {site: [] for site in policy.site}
        self._fresh: dict[str, set[int]] = {}
        """Site -> indices of its items that were never released."""
        self._prices: list[BackfillCost] | None = None
        self._commitments: dict[str, str] = {}
        self._sensing: dict[str, PastSensing] = {}
        self._releases: dict[str, BackfillStage] = {}
        self._late_states: dict[str, ReleaseState] = {}
        self._of_days = {r.name for known in self._policies for r in known.release if isinstance(r, AttributeRelease)}
        for site in policy.site:
            self._sensing[site] = PastSensing.of(policy, site, keys, options, self._first_window(site))
            self._releases[site] = BackfillStage(policy, site, keys, options.attempt, names)
            self._late_states[site] = ReleaseState()

    @property
    def since(self) -> Micros | None:
        """The first window from which a recording must be read; None: from its beginning."""
        return min(
            (each.occupancy.first_window for each in self._sensing.values() if each.occupancy.first_window),
            default=None,
        )

    def _first_window(self, site: str) -> Micros | None:
        """Return the window with which a site's counters began; None if there is no live run to compare with."""
        entries = self._history.entries(site) if self._attempt == 1 else []
        return parse_time(entries[0]["window_end"]) if entries else None

    def process(self, message: ObservationBatch | Heartbeat) -> None:
        """Process the next message of the recording; DataError if a site exceeds ``max_devices``."""
        site = message.site
        self._items[site] += self._sensing[site].process(message)

    def price(self) -> list[BackfillCost]:
        """Compare earlier releases; return the largest cost of the rest, before any noise is drawn.

        Raises:
            FinalityError: an earlier release was made from other observations.
            UsageError: the site has released something under a policy that is not known here, or a window would be
                charged a second time.
        """
        if self._prices is None:
            self._prices = []
            for site, items in self._items.items():
                if items:
                    self._prices += self._priced(site, items)
        return self._prices

    def _priced(self, site: str, items: list[Item]) -> list[BackfillCost]:
        through = self._engine(site).released_through()
        if through is None:
            raise _nothing_released(site)
        due = [item for item in items if item.window_end <= through]
        self.made.ahead += len(items) - len(due)
        self._items[site] = due
        if due:
            self._open(site)
        self._fresh[site] = {place for place, item in enumerate(due) if self._never_released(site, item)}
        return backfill_costs(
            site, self._releases[site], self._release_state(site), [due[place] for place in sorted(self._fresh[site])]
        )

    def _release_state(self, site: str) -> ReleaseState:
        return self._engine(site).release_state()

    def _engine(self, site: str) -> SiteEngine:
        engine = self._partition.sites.get(site)
        if engine is None:
            raise _nothing_released(site)
        return engine

    def _open(self, site: str) -> None:
        entries = self._history.entries(site)
        known = by_version(self._policies, entries)
        self._entries[site] = entries
        self._commitments |= {
            entry["release_id"]: entry["commitment"] for entry in entries if self._is_comparable(entry)
        }
        self._releases[site].load_full_history(self._release_state(site), entries, known)

    def _is_comparable(self, entry: Entry) -> bool:
        """Whether an entry's commitment may be compared with a recording.

        Another policy may have read other zones of the same observations, and no noise was drawn for a denied window.
        In these cases the observations of people would decide whether the inputs are equal, and so whether the rest of
        the recording is released.
        """
        return (entry["policy_version"], entry["outcome"]) == (self._version, "released")

    def _never_released(self, site: str, item: Item) -> bool:
        """Return whether an item was never released; if it was, check it and collect its records."""
        ids = self._releases[site].ids(item)
        stored = {name: record for name in ids if (record := self._history.record(name)) is not None}
        if stored:
            self._check(site, item, stored)
            self.made.again += 1
            self.made.stored += stored.values()
        elif ids:
            self._refuse_second_charge(site, item)
        return bool(ids) and not stored

    def _refuse_second_charge(self, site: str, item: Item) -> None:
        if isinstance(item, OccupancyWindow):
            before = self._releases[site].charged_before(self._release_state(site), item)
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
        comparable = sorted(commitments.keys() & set(stored) & self._commitments.keys())
        self.made.unchecked += not comparable
        for name in comparable:
            if self._commitments[name] != commitments[name]:
                raise _other_observations(name, item.privacy_day if isinstance(item, OccupancyWindow) else None)

    def close(self) -> None:
        """Release the remaining windows and days after the last message, and rebuild the accounts of their sites.

        Raises:
            KeyFileError: a window was never released and its day's key is gone; nothing of the recording is released.
        """
        self.price()
        for site, items in self._items.items():
            self._release(site, items)
        self._account()

    def _release(self, site: str, items: list[Item]) -> None:
        releases, late_state = self._releases[site], self._late_states[site]
        for place, item in enumerate(items):
            if place in self._fresh[site]:
                self.made.emitted += in_order(releases.release_late(self._release_state(site), item, late_state))
                self.made.released += 1
            if isinstance(item, OccupancyWindow):
                releases.note_coverage(late_state, item)
        self.made.emitted += in_order(releases.finish(late_state))
        if site in self._entries:
            releases.drop_full_history(self._release_state(site))

    def _account(self) -> None:
        fresh = [orjson.loads(record.value) for record in self.made.emitted]
        for site, entries in self._entries.items():
            late = [body for body in fresh if body["site"] == site and "commitment" in body]
            if late:
                shown = self._shown(entries) | {
                    body["release_id"]: body["value"] for body in fresh if "attribute" in body and body["released"]
                }
                account, records = rebuild_account(self._policies, site, [*entries, *late], shown)
                for before in self._policies:  # the last entry may belong to another policy than the current one
                    if site in before.site:
                        account.rename(zones_now(before.site[site].radios, self._policies[0].site[site].zones))
                first = min(parse_time(entry["window_end"]) for entry in late)
                changed = [record for record in records if record.time >= first]
                self._engine(site).replace_account(account)
                self.made.emitted += in_order(changed)

    def _shown(self, entries: Iterable[Entry]) -> dict[str, Value | None]:
        """Return the attribute values that were published before, by release id."""
        queried = {entry["release_id"] for entry in entries if entry["nano"] and entry["release"] in self._of_days}
        records = [parse_record(value) for name in sorted(queried) if (value := self._history.record(name)) is not None]
        return {record["release_id"]: record["value"] for record in records if record["released"]}
