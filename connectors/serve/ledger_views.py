"""Views for account readers and operators.

* ``AccountView``: the newest account of each site, the attributes of each day, and the denials of the last week. The
  account lists the denials of each window, which depend on ledger and policy only.
* ``OperatorView``: the newest figures of each site of a store.
* ``ClusterView``: the same form for sites on Kafka, from the topics that operators may read. What only an engine knows
  (its position, whether a site is closed, its keys, sums over people) is in no topic. It is null here; the workers'
  metrics contain it.
* ``Coalition``: the account of audiences that combine their releases, computed from the records that they received. A
  record contains its cost, so the records of all audiences contain what the ledger does; a reader of the account sees
  every audience's outcomes anyway. No view needs the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from connectors.monitoring.catalogue import LEAST_ACCESS_POINTS, TRAFFIC_INTERVAL
from connectors.records.record_fields import nano, scalar
from connectors.serve.models import Denied
from stream.errors import DataError, UsageError
from stream.records import DAY, Micros, ReleaseId
from stream.release.account_stage import past_account
from stream.release.validation import Policy
from stream.schemas import parse_record, parse_time

SPAN: Micros = 7 * DAY
"""The period before a site's newest window in which denials are counted."""
_Denial = tuple[str, str, str]
"""Release, audience, reason."""


class Denials:
    """The windows of each site for which an audience was denied a release; other windows are not stored."""

    def __init__(self) -> None:
        self._denied: dict[str, dict[Micros, frozenset[_Denial]]] = {}
        self._newest: dict[str, Micros] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the account of a window's counts. If a window comes again, its last account replaces the earlier one."""
        site, end = str(record["site"]), parse_time(record["window_end"])
        windows = self._denied.setdefault(site, {})
        windows.pop(end, None)
        if denied := frozenset(map(_denied, record["refused"])):
            windows[end] = denied
        if end > self._newest.get(site, 0):
            self._newest[site] = end
            self._denied[site] = {at: each for at, each in windows.items() if at > end - SPAN}

    def of(self, site: str) -> list[Denied]:
        """Return, sorted, how many windows of each release were denied, with audience and reason."""
        since = self._newest.get(site, 0) - SPAN
        denials = (each for end, windows in self._denied.get(site, {}).items() if end > since for each in windows)
        return [
            Denied(release=release, audience=audience, reason=reason, windows=windows)
            for (release, audience, reason), windows in sorted(Counter(denials).items())
        ]


def _denied(row: Mapping[str, str]) -> _Denial:
    release, _, audience = row["release"].partition("/")
    return release, audience, row["reason"]


Record = Mapping[str, Any]
"""A record as JSON. It is passed on as it was read."""
CoalitionUnits = Mapping[str, str]
"""Privacy unit -> combined cost, a decimal number of epsilons."""


class AccountView:
    """The newest account of each site, the odds that each day's attributes have disclosed, and the denials."""

    def __init__(self) -> None:
        self.denials = Denials()
        self._newest: dict[str, Record] = {}
        self._days: dict[tuple[str, str], dict[str, Record]] = {}

    def add(self, records: Iterable[bytes]) -> None:
        """Add account records in the order in which they were written. The last one of a window counts."""
        for value in records:
            record = parse_record(value)
            try:
                self._add(record)
            except (KeyError, TypeError, ValueError, AttributeError):
                msg = "account: must be a record of an account with site, window and kind"
                raise DataError(msg) from None

    def _add(self, record: Record) -> None:
        site = record["site"]
        for name, figures in record.get("attributes", {}).items() if record["kind"] == "attributes" else ():
            self._days.setdefault((site, name.partition("/")[0]), {})[name] = figures
        if record["kind"] == "counts":
            self.denials.add(record)
        newest = self._newest.get(site)
        if newest is None or _place(record) >= _place(newest):
            self._newest[site] = record

    def newest(self) -> Mapping[str, Record]:
        """Return the current account of each site."""
        return self._newest

    def attributes(self, site: str, day: str) -> Mapping[str, Record]:
        """Return, by ``day/zone/attribute``, what a day's attributes have disclosed; nothing for a day without
        attributes."""
        return self._days.get((site, day), {})


def _place(record: Record) -> tuple[int, bool]:
    return parse_time(record["window_end"]), record["kind"] != "attributes"


class OperatorView:
    """The newest figures of each site."""

    def __init__(self) -> None:
        self._newest: dict[str, Record] = {}

    def add(self, records: Iterable[bytes]) -> None:
        """Add figures in the order in which they were written."""
        for value in records:
            record = parse_record(value)
            self._newest[str(record.get("site"))] = record

    def newest(self) -> Mapping[str, Record]:
        """Return the current figures of each site."""
        return self._newest


NOT_IN_TOPICS = ("reached", "closed", "ledger_entries", "accepted", "late", "dropped", "traps", "oldest_key_day")


class ClusterView:
    """The figures of each site that has released anything."""

    def __init__(self, account: AccountView, policy: Policy, clock: Callable[[], Micros]) -> None:
        """``clock`` is the wall clock."""
        self._account, self._clock = account, clock
        self._enough = sum(site.radio_count for site in policy.site.values()) >= LEAST_ACCESS_POINTS
        self._rejected, self._point = 0, clock() // TRAFFIC_INTERVAL
        self._shown_rejected: int | None = None
        """The number of rejected messages at the latest point of the grid; None before the first."""
        self._version: str | None = None
        self._silent: Mapping[str, int] = {}

    def add_rejected(self, records: Sequence[bytes]) -> None:
        """Count rejected messages from the quarantine topic."""
        self._publish_counts()
        self._rejected += len(records)

    def _publish_counts(self) -> None:
        """Publish the counts up to the latest point of the grid. Call this before more is counted."""
        point = self._clock() // TRAFFIC_INTERVAL
        if point != self._point and self._enough:
            self._shown_rejected = self._rejected
        self._point = point

    def set_control_state(self, version: str | None, silent: Mapping[str, int]) -> None:
        """Store the present policy's version, and for each site how many sources have no heartbeat from ingest."""
        self._version, self._silent = version, silent

    def newest(self) -> Mapping[str, Record]:
        """Return the current figures of each site, in the form of a store's."""
        self._publish_counts()
        return {site: self._figures(site, account) for site, account in self._account.newest().items()}

    def _figures(self, site: str, account: Record) -> Record:
        return {"v": 1, "site": site, "window_end": account["window_end"]} | dict.fromkeys(NOT_IN_TOPICS) | {
            "rejected_messages": self._shown_rejected, "policy_version": self._version,
            "silent_sources": self._silent.get(site, 0),
        }  # fmt: skip


MOST_RECORDS = 40_000
"""Records that are added up during a request; for more, use 'tacet account --coalition'."""


class Coalition:
    """Audiences that combine their releases, and those of their records that have ledger entries."""

    def __init__(self, policy: Policy, audiences: Collection[str]) -> None:
        """``policy``: the policy of all the records. ``audiences``: those that combine their releases."""
        self._policy, self._audiences = policy, frozenset(audiences)
        self._entries: list[Record] = []
        self._outcomes: dict[str, str | float | None] = {}

    def add(self, value: bytes) -> None:
        """Add a record of one of the audiences, each once.

        Raises:
            UsageError: there are more than ``MOST_RECORDS``.
            DataError: it is not a private record, or belongs to another audience.
        """
        record = parse_record(value)
        try:
            self._add(record)
        except (KeyError, TypeError, ValueError):
            raise DataError("record: must be a private release of one of the audiences") from None
        if len(self._entries) > MOST_RECORDS:
            msg = f"audiences: must have at most {MOST_RECORDS} records; 'tacet account --coalition' accepts more"
            raise UsageError(msg)

    def _add(self, record: Record) -> None:
        identity = ReleaseId.parse(record["release_id"])
        named = (identity.site, identity.release, identity.audience)
        if named != (record["site"], record["release"], record["audience"]) or named[2] not in self._audiences:
            raise ValueError
        if is_charged(self._policy, record):
            self._entries.append(_entry(record))
        if "attribute" in record and record["released"]:
            self._outcomes[record["release_id"]] = scalar(record["value"])

    def units(self) -> dict[str, CoalitionUnits]:
        """Return, by site, the combined cost in each privacy unit, in epsilons.

        UsageError if a record was released under another policy.
        """
        return dict(_by_site(self._policy, self._entries, self._outcomes, self._audiences))


def is_charged(policy: Policy, record: Record) -> bool:
    """Return whether a record has a ledger entry: query answers and revised values cost nothing and have none."""
    return record["release"] in {release.name for release in policy.release}


def _entry(record: Record) -> Record:
    """Return the ledger entry that a record implies."""
    attempt, _ = ReleaseId.parse(record["release_id"]).attempt, nano(record["epsilon"])
    copied = ("site", "release_id", "audience", "release", "window_end", "epsilon", "policy_version", "laboratory")
    return {name: record[name] for name in copied} | {
        "sequence": 0,
        "attempt": attempt,
        "nano": nano(record["spend"]),
        "outcome": record["reason"] or "released",
    }


def _by_site(
    policy: Policy, entries: Sequence[Record], outcomes: Mapping[str, str | float | None], audiences: frozenset[str]
) -> Iterator[tuple[str, CoalitionUnits]]:
    name = "+".join(sorted(audiences))
    for site in dict.fromkeys(entry["site"] for entry in entries):
        records = past_account([policy], site, {name: audiences}, entries, outcomes)
        counts = [record for record in records if record["kind"] == "counts"] or records
        yield site, counts[-1]["audiences"][name]
