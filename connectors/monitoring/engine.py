"""The metrics of an engine: ledger, account, windows and traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import structlog

from connectors.monitoring.metric_values import Labels, MetricValues, Part, Parts, Series
from stream.accounting.account import UnitReport
from stream.accounting.ledger import Entry
from stream.engine.partition import PartitionEngine
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.document import audiences_of
from stream.policy.fields import EVERYBODY
from stream.records import SECOND, JsonObject, Micros
from stream.release.account_stage import CurrentAccount
from stream.release.validation import Policy
from stream.schemas import AUDIT, LEAKAGE, QUARANTINE, parse_record, parse_time, rfc3339
from stream.sensing import watermark
from stream.sensing.state import dropped_rows

log = structlog.get_logger("tacet.engine")

RELEASED = "released"
COUNT_DENIALS, ATTRIBUTE_DENIALS = ("budget", "w_budget", "waiting"), ("asked", "factor", "month", "guard")
"""Why a record of counts is denied, and why an attribute is not queried."""
DROPPED = (
    "late", "unknown_access_point", "before_first", "after_last", "ahead", "epoch", "site_shut", "stale_session",
    "repeated_batch", "unknown_source", "wrong_site", "incomplete",
)  # fmt: skip
"""Reasons for which sensing drops rows."""
QUARANTINED = (
    "row", "epoch", "ahead", "unknown_site", "unknown_source", "unknown_access_point", "site_shut", "wrong_site",
    "wrong_partition", "json", "kind", "type", "version", "incomplete",
)  # fmt: skip
"""Known reasons for which rows and messages go to quarantine; others are added when they occur."""
Budget = tuple[str, str]
"""Release and audience."""


class Record(Protocol):
    """One record of a commit."""

    @property
    def topic(self) -> str:
        """The topic to which it was written."""

    @property
    def value(self) -> bytes:
        """Its bytes."""


class EngineMetrics:
    """Sets metrics from the records that an engine has committed and from the status of its sites."""

    def __init__(
        self, metrics: MetricValues, policy: Policy, engines: Callable[[], Iterable[PartitionEngine]],
        clock: Callable[[], Micros] | None,
    ) -> None:  # fmt: skip
        """``engines`` returns the present partitions; ``clock`` is the wall clock, None for recordings."""
        self._metrics, self._policy, self._engines, self._clock = metrics, policy, engines, clock
        self._ends: dict[str, Micros] = {}
        self._rejected: Counter[str] = Counter()
        self._budgets = {(r.name, name): (r, name) for r in _counts(policy) for name in r.epsilon}
        self._begin()

    def _begin(self) -> None:
        """Create every counter before it counts, so that its first step is visible."""
        for site, release, audience, reasons in _all_records(self._policy):
            self._metrics.add("tacet_releases_total", 0, site, release, audience)
            for reason in reasons:
                self._metrics.add("tacet_refusals_total", 0, site, release, audience, reason)
        self._metrics.add("tacet_observations_total", 0)
        for reason in DROPPED:
            self._metrics.add("tacet_observations_dropped_total", 0, reason)
        for reason in QUARANTINED:
            self._metrics.add("tacet_quarantined_total", 0, reason)
        for site in self._policy.site if self._clock is not None else ():
            self._metrics.begin("tacet_window_release_delay_seconds", site)

    def committed(self, records: Sequence[Record]) -> None:
        """Process the records of a commit that is durable."""
        for record in records:
            if record.topic == AUDIT:
                self._charged(parse_record(record.value))
            elif record.topic == LEAKAGE:
                self._accounted(parse_record(record.value))
            elif record.topic == QUARANTINE:
                self._rejected[parse_record(record.value)["reason"]] += 1

    def _charged(self, entry: Entry) -> None:
        labels = entry["site"], entry["release"], entry["audience"]
        if entry["outcome"] == RELEASED:
            self._metrics.add("tacet_releases_total", 1, *labels)
        else:
            self._metrics.add("tacet_refusals_total", 1, *labels, entry["outcome"])

    def _accounted(self, record: JsonObject) -> None:
        """Process the account after a window of counts.

        The account of a day's attributes depends on outcomes and is skipped.
        """
        if record["kind"] == "counts":
            self._window_released(record["site"], parse_time(record["window_end"]))
            self._stands(cast(CurrentAccount, record))

    def _stands(self, account: CurrentAccount) -> None:
        site = account["site"]
        for reader, units in (*account["audiences"].items(), (EVERYBODY, account["coalition"] or {})):
            for unit, delta, epsilon in _spent(units):
                self._metrics.set("tacet_privacy_spent_epsilon", epsilon, site, reader, unit, delta)
        for name, windows in account["left"].items():
            self._set_budget_left(site, name, windows)

    def _window_released(self, site: str, end: Micros) -> None:
        place = self._policy.site.get(site)
        if end <= self._ends.get(site, -1):
            return
        self._ends[site] = end
        log.debug("window released", site=site, window=rfc3339(end))
        self._metrics.set("tacet_window_end_timestamp_seconds", end / SECOND, site)
        if self._clock is not None and place is not None:
            delay = (self._clock() - end - place.lateness) / SECOND
            self._metrics.observe("tacet_window_release_delay_seconds", delay, site)

    def _restore_status(self, account: CurrentAccount | None) -> None:
        """Set a site's status from before this process began.

        Earlier releases do not count as this process's releases.
        """
        if account is not None:
            site = account["site"]
            self._ends[site] = parse_time(account["window_end"])
            self._metrics.set("tacet_window_end_timestamp_seconds", self._ends[site] / SECOND, site)
            self._stands(account)

    def _set_budget_left(self, site: str, name: str, windows: int) -> None:
        release, audience = name.split("/", 1)
        found = self._budgets.get((release, audience))
        if found is None:  # of an earlier policy
            return
        declared, labels = found[0], (site, release, audience, found[0].unit)
        self._metrics.set("tacet_budget_left_epsilon", float(windows * declared.charge(audience)), *labels)
        if audience in declared.daily_budget:
            self._metrics.set("tacet_budget_epsilon", float(declared.daily_budget[audience]), *labels)

    def update(self) -> None:
        """Set the metrics that no commit sets: the progress of the sites, and the status of sites without a commit."""
        marks: dict[Labels, Micros] = {}
        shut: dict[Labels, float] = {}
        entries: dict[Labels, float] = {}
        for partition in self._engines():
            for name, state in partition.sites.sensing().items():
                if not watermark.has_begun(state.clock) and not state.suspended:
                    continue  # sightings exist there, but no heartbeat yet
                shut[name,] = state.suspended
                if (engine := partition.sites.get(name)) is not None:
                    entries[name,] = engine.chain[0]
                if name not in self._ends and name in self._policy.site:
                    self._restore_status(partition.sites.current_account(name))
                if self._clock is not None and state.clock.watermark is not None:
                    marks[name,] = state.clock.watermark
        self._metrics.only_since("tacet_lag_seconds", marks)
        self._metrics.only("tacet_site_closed", shut)
        self._metrics.only("tacet_ledger_entries", entries)

    def is_open(self) -> bool:
        """Whether no site is suspended at ``max_devices``."""
        return not any(each.sites.suspended_sites() for each in self._engines())

    def traffic(self) -> Parts:
        """Return the counters of sensing at each site, and the numbers of quarantined records of all sites."""
        parts = {"": Part(0, {("tacet_quarantined_total", why): n for why, n in self._rejected.items()})}
        for partition in self._engines():
            for name, state in partition.sites.sensing().items():
                site = self._policy.site.get(name)
                counts = dict(_observed(state.counters))
                parts[name] = Part(0 if site is None else site.radio_count, counts)
        return parts


def _counts(policy: Policy) -> Iterator[CountRelease]:
    return (release for release in policy.release if isinstance(release, CountRelease))


def _all_records(policy: Policy) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield site, release, audience and the possible reasons for a denial."""
    for site in policy.site:
        for release in policy.release:
            if policy.zones_of(release, site):
                reasons = ATTRIBUTE_DENIALS if isinstance(release, AttributeRelease) else COUNT_DENIALS
                yield from ((site, release.name, audience, reasons) for audience in audiences_of(release))


def _spent(units: UnitReport) -> Iterator[tuple[str, str, float]]:
    """Yield unit, delta and epsilon; a bound that rests on a declared model of knowledge is not a unit's cost."""
    for unit, epsilon in units.items():
        if isinstance(epsilon, str):
            yield unit, "0", float(epsilon)
        elif isinstance(epsilon, dict):
            for name, tight in epsilon.items():
                yield name, str(tight["delta"]), float(tight["epsilon"])


def _observed(counters: Mapping[str, int]) -> Iterator[tuple[Series, int]]:
    yield ("tacet_observations_total",), counters.get("accepted", 0)
    for reason, rows in dropped_rows(counters).items():
        yield ("tacet_observations_dropped_total", reason), rows
