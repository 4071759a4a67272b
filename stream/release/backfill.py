"""Late releases of windows and days that a recording delivers after they were due.

A late window or day is charged to the same ledger as live ones, but has separate groups and filters. The first
charge of a zone's window needs no operator request. A second charge, under any release name, needs an attempt number
above 1 and the names of the releases. Attributes are queried at the first attempt only, and only for days of zones
that were never queried.

``PolicyReplay`` and ``count_as_published`` restore the state of a site from ledger entries of any policy. A state
contains only the data that future windows need. The entries themselves are read if older charges matter (a late
recording), or if the state lacks published entries (``count_as_published``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from stream.accounting.charges import ChargeHistory, ChargeStream, attempt_of, line_name, release_of
from stream.accounting.ledger import account_of
from stream.errors import UsageError
from stream.keys import Keys, key_day_of
from stream.local_time import span_of_day
from stream.mechanisms.noise_labels import counts_digest
from stream.policy.attributes import Attribute, AttributeRelease
from stream.policy.counts import LONGEST_W, CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.mechanisms import SPARSE_VECTOR, names_where
from stream.policy.sites import zones_now
from stream.records import (
    HOUR,
    Charge,
    DayClosed,
    Micros,
    OccupancyWindow,
    PrivacyDay,
    Published,
    ReleaseId,
    ZoneDayAttribute,
)
from stream.release.attribute_stage import AttributeReleases, attribute_plans, read_digest
from stream.release.count_plan import CountPlan, count_plans
from stream.release.count_stage import CountReleases
from stream.release.guarantees import log_largest_factor
from stream.release.ledger_writer import LedgerWriter
from stream.release.prices import ELSEWHERE, STREAMS, PaidByDay, RunPrice
from stream.release.queried_days import LocalDay, QueriedDays
from stream.release.state import ReleaseState
from stream.release.thresholds import free_thresholds
from stream.release.validation import Policy
from stream.schemas import parse_time, rfc3339

# Reading past ledger entries back into the state.


Entry = Mapping[str, Any]


class PolicyReplay:
    """A policy under which entries were made, related to the current policy."""

    def __init__(self, policy: PolicyDocument, present: PolicyDocument, site: str) -> None:
        self._version = policy.version
        self._timezone = ZoneInfo(policy.site[site].timezone)
        self._tick_length = policy.site[site].tick
        self._now = zones_now(policy.site[site].radios, present.site[site].zones)
        self._lines: dict[str, ChargeStream] = {}
        """Count release -> the line of its charges."""
        self._days: dict[str, PaidByDay] = {}
        """Count release that is paid per day -> the cost of its days."""
        self._privacy_days = policy.site[site].privacy_days
        self._runs: dict[str, RunPrice] = {}
        """Threshold stream -> the cost of its runs."""
        self._alone: dict[str, float] = {}
        """Attribute release -> ln of the largest factor that it reaches by itself."""
        self._carrying: set[str] = set()
        """Count releases that carry publications from window to window."""
        for release in policy.release:
            if isinstance(release, CountRelease):
                self._carrying |= {release.name} if release.declared.carries else set()
                zones = {now for zone in policy.zones_of(release, site) for now in self._now[zone.id]}
                self._lines[release.name] = ChargeStream(release.mechanism, release.windows_paid, tuple(sorted(zones)))
                if release.by_day:
                    self._days[release.name] = PaidByDay.of(policy, release, site)
            elif isinstance(release, AttributeRelease):
                self._alone[release.name] = log_largest_factor(release)
            elif not release.free:
                zones = {now for zone in policy.zones_of(release, site) for now in self._now[zone.id]}
                self._lines[release.name] = ChargeStream(release.mechanism, 1, tuple(sorted(zones)))
                self._runs[release.name] = RunPrice.of(policy, release, site)

    def note(self, state: ReleaseState, entry: Entry, end: Micros) -> None:
        """Add one charge to what budgets and attribute limits read: spending, charged windows and queried days."""
        release = entry["release"]
        if release in self._lines:
            line = self._lines[release]
            zones = () if release in self._runs else line.zones  # the runs of a stream use no budget of counts
            account = account_of(release, entry["audience"], zones)
            if entry["nano"]:
                key_day = key_day_of(end - self._tick_length)
                state.ledger.remember(account, key_day, end, entry["nano"], zones)
            self._note_count(state, entry, end, line)
        elif release in self._alone:
            local_day, zone, attribute = ReleaseId.parse(entry["release_id"]).attribute
            local = LocalDay(local_day, *span_of_day(local_day, self._timezone))
            if entry["nano"]:
                account = account_of(release, entry["audience"], ())
                state.ledger.remember(account, key_day_of(local.start), end, entry["nano"])
            for now in self._now[zone]:
                state.queried_days.note(local, now, attribute, self._alone[release])

    def _note_count(self, state: ReleaseState, entry: Entry, end: Micros, line: ChargeStream) -> None:
        """Add a window, which was charged itself or with its day, to the charged windows."""
        release, audience, cost = entry["release"], entry["audience"], Fraction(entry["epsilon"])
        number = None
        if release in {*self._days, *self._runs} and self._privacy_days is not None:
            number = self._privacy_days.at(end).number
            by_run = self._runs.get(release)
            cost = self._days[release].prices[audience].changed if by_run is None else 2 * by_run.day
            line = line._replace(day=number)
        name = line_name(release, self._version, entry["attempt"], number)
        state.charged.note(end, name, line, {audience: cost})

    def pass_by(self, state: ReleaseState, entry: Entry) -> None:
        """Block later releases of an entry's subject: its window, its local day, or its privacy day's run.

        Releases that carry publications over windows must wait, since the publication that the entry made is unknown.
        """
        release, end = entry["release"], parse_time(entry["window_end"])
        if release in self._alone:
            state.closed = max(state.closed, ReleaseId.parse(entry["release_id"]).attribute.day)
            return
        state.released_until = max(state.released_until, end)
        if release in self._carrying:
            state.blocked_until = max(state.blocked_until, end + LONGEST_W * HOUR)
        if release in self._days and self._privacy_days is not None:
            state.paid_days.record_payment(release, self._privacy_days.at(end), ELSEWHERE)
        if release in self._runs and self._privacy_days is not None:
            state.paid_days.record_payment(STREAMS, self._privacy_days.at(end), ELSEWHERE)


def count_as_published(
    state: ReleaseState,
    entries: Sequence[Entry],
    policies: Mapping[str, PolicyDocument],
    present: PolicyDocument,
    site: str,
) -> None:
    """Treat entries that were published without their records as if all these records had been published.

    Args:
        state: contains the entries before these; afterwards it releases nothing that these entries concern.
        entries: of one site, in the order of its audit chain.
        policies: the policy of each version under which an entry was made.
        present: the policy to whose zones the state belongs; an entry's own policy is used if this one lacks the site.
        site: the site of the entries.
    """
    known: dict[str, PolicyReplay] = {}
    for entry in entries:
        version = entry["policy_version"]
        if version not in known:
            policy = policies[version]
            known[version] = PolicyReplay(policy, present if site in present.site else policy, site)
        if entry["outcome"] == "released":
            known[version].note(state, entry, parse_time(entry["window_end"]))
        known[version].pass_by(state, entry)
        state.ledger.sequence, state.ledger.head = entry["sequence"] + 1, entry["hash"]
    state.charged.forget(state.released_until)


class BackfillStage:
    """The releases of one site, for items before the latest release of the site."""

    def __init__(self, policy: Policy, site: str, keys: Keys, attempt: int = 1, names: Collection[str] = ()) -> None:
        """Prepare late releases under ``policy``; at attempts above 1 only the count releases in ``names``.

        Raises:
            UsageError: names and attempt do not fit together, or a name is of no release that may come late again.
        """
        _check_names(policy, attempt, names)
        self._policy = policy
        self._timezone = ZoneInfo(policy.site[site].timezone)
        self._issuer = LedgerWriter.of(policy, site, keys, attempt)
        again = attempt > 1
        self._plans = tuple(plan for plan in count_plans(policy, site) if not again or plan.release.name in names)
        self._late_plans = tuple(plan for plan in self._plans if not plan.release.declared.carries)
        self._attribute_plans = () if again else attribute_plans(policy, site, keys)
        self._counts = CountReleases(policy, self._issuer, self._late_plans)
        self._attributes = AttributeReleases(policy, self._issuer, self._attribute_plans)
        self._days_priced: set[PrivacyDay | None] = set()
        """Days whose price ``prices`` has already yielded."""

    def release_late(
        self, state: ReleaseState, item: OccupancyWindow | DayClosed, late_state: ReleaseState
    ) -> list[Published]:
        """Release an item that lies before the latest release, and charge it to the same ledger.

        ``late_state`` contains separate groups and filters, so that a late window does not change those of the live
        windows. ``sample`` and ``ba`` release nothing here, since their publications depend on all neighbouring
        windows.
        """
        late_state.ledger, late_state.queried_days, late_state.charged = state.ledger, state.queried_days, state.charged
        made: Iterator[Published | Charge]
        if isinstance(item, OccupancyWindow):
            made = self._counts.window(late_state, item)
        else:
            made = self._attributes.day(late_state, item)
        published = [output for output in made if isinstance(output, Published)]
        state.ledger, state.queried_days, state.charged = late_state.ledger, late_state.queried_days, late_state.charged
        state.paid_days.close_for_live_runs(late_state.paid_days)
        return published

    def finish(self, late_state: ReleaseState) -> list[Published]:
        """Return the revised values of late windows that no further window follows."""
        return list(self._counts.finish(late_state))

    def note_coverage(self, late_state: ReleaseState, window: OccupancyWindow) -> None:
        """Add the coverage of a window that is not released to that of its local day."""
        self._counts.note_coverage(late_state, window)

    def load_full_history(
        self, state: ReleaseState, entries: Iterable[Mapping[str, Any]], policies: Mapping[str, PolicyDocument]
    ) -> None:
        """Load all charges and queries since the beginning, not only those that future windows need.

        Args:
            state: the site's.
            entries: the site's whole ledger.
            policies: the policy of each version under which an entry was made.
        """
        state.ledger.spent, state.ledger.recent, state.ledger.zones = {}, {}, {}
        state.queried_days, state.charged = QueriedDays(), ChargeHistory()
        known = {version: PolicyReplay(policy, self._policy, self._issuer.site) for version, policy in policies.items()}
        for entry in entries:
            if entry["outcome"] == "released":
                known[entry["policy_version"]].note(state, entry, parse_time(entry["window_end"]))

    def drop_full_history(self, state: ReleaseState) -> None:
        """Drop the charges and queries that only past windows need."""
        state.charged.forget(state.released_until)
        for day in sorted(state.queried_days.days)[-1:]:
            state.queried_days.forget(day.local_day)

    def charged_before(self, state: ReleaseState, window: OccupancyWindow) -> str | None:
        """Return a release under which this window was charged already for a zone that would be released now.

        For a release that is paid per day, any window of its day counts. At attempts above 1 only charges of the same
        attempt count: a day's price pays for one run of the counters.
        """
        again = self._issuer.attempt > 1
        by_window = {} if again else state.charged.charged_at(window.window_end)
        for name, line in sorted(by_window.items()):
            if any(set(line.zones) & set(plan.covered) for plan in self._late_plans):
                return release_of(name)
        day = window.privacy_day
        if day is None:
            return None
        for name, line in sorted(state.charged.days_charged_in((day.start + 1, day.end + 1)).items()):
            if self._same_price(name, line):
                return release_of(name)
        return None

    def _same_price(self, name: str, line: ChargeStream) -> bool:
        """Whether a day that was charged on a line may not be charged at this attempt too."""
        paid_by_day = [plan for plan in self._late_plans if plan.days is not None]
        if self._issuer.attempt > 1:
            return any(
                release_of(name) == plan.release.name and attempt_of(name) == self._issuer.attempt
                for plan in paid_by_day
            )
        return any(set(line.zones) & set(plan.covered) for plan in paid_by_day)

    def prices(self, state: ReleaseState, item: OccupancyWindow | DayClosed) -> Iterator[tuple[str, str, Fraction]]:
        """Yield (release, audience, epsilon) of each record that an item will be charged for, unless it is denied."""
        if isinstance(item, OccupancyWindow):
            for plan in self._late_plans:
                for audience in audiences_of(plan.release):
                    yield plan.release.name, audience, self._price(plan, item, audience)
            self._days_priced.add(item.privacy_day)
            return
        asked = state.queried_days.zones_of(LocalDay(item.local_day, *span_of_day(item.local_day, self._timezone)))
        for attributes in self._attribute_plans:
            rules: dict[str, Attribute] = dict(attributes.release.attributes.items())
            for record, audience in attributes.records(item):
                if record.zone not in asked:
                    yield attributes.release.name, audience, rules[record.attribute].epsilon[audience]

    def _price(self, plan: CountPlan, window: OccupancyWindow, audience: str) -> Fraction:
        """Return the price of a window: the first window of a day costs the whole day."""
        if plan.days is None:
            return plan.release.charge(audience)
        return Fraction(0) if window.privacy_day in self._days_priced else plan.release.epsilon[audience]

    def ids(self, item: OccupancyWindow | DayClosed) -> list[str]:
        """Return the release ids of an item's records."""
        free = [*self._free(rfc3339(item.window_end))] if isinstance(item, OccupancyWindow) else []
        return [name for name, _, _ in self._named(item)] + free

    def _free(self, end: str) -> Iterator[str]:
        """Yield the release ids of queries and revisions, which are computed from a window's released values."""
        for release in (plan.release for plan in self._plans):
            decided = free_thresholds(self._policy, self._issuer.site, release.name)
            told = {each.name: each.audiences for each in decided}
            named = [(query.name, end) for query in release.queries]
            named += [(each.name, end) for each in decided]
            named += [(release.revised_name, f"{end}/{span}") for span in release.revise]
            for name, where in named:
                for audience in told.get(name, audiences_of(release)):
                    yield str(ReleaseId(self._issuer.site, name, audience, where, self._issuer.attempt))

    def commitments(self, item: OccupancyWindow | DayClosed) -> dict[str, str]:
        """Return release id -> commitment to an item's input; KeyFileError if its key is destroyed.

        Queries read released values only and have no commitments.
        """
        if isinstance(item, OccupancyWindow):
            key_day, end = key_day_of(item.window_end - self._issuer.tick_length), item.window_end
        else:
            start, end = span_of_day(item.local_day, self._timezone)
            key_day = key_day_of(start)
        return {name: self._issuer.commitment(key_day, release, end, read) for name, release, read in self._named(item)}

    def _named(self, item: OccupancyWindow | DayClosed) -> Iterator[tuple[str, str, bytes]]:
        """Yield (release id, release, digest of the input) of each record of an item."""
        if isinstance(item, OccupancyWindow):
            for plan in self._plans:
                name, read = plan.release.name, counts_digest(plan.counts(item))
                for audience in audiences_of(plan.release):
                    end = rfc3339(item.window_end)
                    yield str(ReleaseId(self._issuer.site, name, audience, end, self._issuer.attempt)), name, read
        else:
            for attributes in self._attribute_plans:
                name = attributes.release.name
                for record, audience in attributes.records(item):
                    which = ZoneDayAttribute(record.day, record.zone, record.attribute)
                    yield str(ReleaseId(self._issuer.site, name, audience, str(which))), name, read_digest(record)


def _check_names(policy: PolicyDocument, attempt: int, names: Collection[str]) -> None:
    if (attempt > 1) != bool(names):
        rule = "must name the count releases to charge again, with --attempt above 1 and only then"
        msg = f"--release: {rule}, got {', '.join(sorted(names)) or 'none'} and attempt {attempt}"
        raise UsageError(msg)
    releases = {release.name: release for release in policy.release}
    for name in sorted(names):
        release = releases.get(name)
        if isinstance(release, AttributeRelease):
            msg = f"--release: must name count releases, since attributes are asked once, got {name}"
            raise UsageError(msg)
        if not isinstance(release, CountRelease) or release.declared.carries:
            never = " or ".join([*names_where("carries"), SPARSE_VECTOR])
            msg = f"--release: must name count releases of the policy, and not of {never}, got {name}"
            raise UsageError(msg)
