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
from zoneinfo import ZoneInfo

from stream.accounting.charge_history import ChargeHistory, ChargeLine, attempt_of, line_name, release_of
from stream.accounting.ledger import BudgetView, ChargeEvent, Entry
from stream.errors import UsageError
from stream.keys import Keys, key_day_of
from stream.local_time import span_of_day
from stream.mechanisms.noise_labels import counts_digest
from stream.policy.attributes import Attribute, AttributeRelease
from stream.policy.counts import LONGEST_W, CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.mechanisms import SPARSE_VECTOR, names_where
from stream.policy.sites import zones_now
from stream.policy.thresholds import ThresholdRelease
from stream.records import HOUR, Charge, DayClosed, OccupancyWindow, PrivacyDay, Published, ReleaseId, ZoneDayAttribute
from stream.release.attribute_guarantees import log_largest_factor
from stream.release.attribute_stage import AttributeReleases, attribute_plans, attribute_price, read_digest
from stream.release.count_plan import CountPlan, count_plans
from stream.release.counts import CountReleases
from stream.release.forecasts import forecast_streams
from stream.release.ledger_entries import EntryReader
from stream.release.ledger_writer import LedgerWriter
from stream.release.paid_days import ELSEWHERE, STREAMS
from stream.release.state import LocalDay, QueriedDays, ReleaseState
from stream.release.thresholds import free_thresholds
from stream.release.validation import Policy
from stream.schemas import parse_time, rfc3339

# Reading past ledger entries back into the state.


class PolicyReplay:
    """A policy under which entries were made, related to the current policy."""

    def __init__(self, policy: PolicyDocument, present: PolicyDocument, site: str) -> None:
        self._version = policy.version
        self._entries = EntryReader(policy, site)
        self._now = zones_now(policy.site[site].radios, present.site[site].zones)
        self._lines: dict[str, ChargeLine] = {}
        """Release of counts, or threshold stream that pays for runs -> the line of its charges."""
        self._alone: dict[str, float] = {}
        """Attribute release -> ln of the largest factor that it reaches by itself."""
        for release in policy.release:
            if isinstance(release, AttributeRelease):
                self._alone[release.name] = log_largest_factor(release)
            elif isinstance(release, CountRelease) or not release.free:
                zones = {now for zone in policy.zones_of(release, site) for now in self._now[zone.id]}
                w = release.windows_paid if isinstance(release, CountRelease) else 1
                self._lines[release.name] = ChargeLine(release.mechanism, w, tuple(sorted(zones)))

    def apply(self, state: ReleaseState, entry: Entry) -> None:
        """Add one charge to what budgets and attribute limits read: spending, charged windows and queried days.

        A denial changes none of them.
        """
        name = entry["release"]
        if entry["outcome"] != "released" or name not in {*self._lines, *self._alone}:
            return
        event = self._entries.event(entry)
        if event.zones:  # runs of threshold streams, and attributes, use no budget of counts
            event = event._replace(zones=self._lines[name].zones)
        state.ledger.budgets.apply(event)
        if name in self._lines:
            self._apply_to_charged_windows(state, entry, event)
            return
        local_day = self._entries.local_day(entry)
        _, zone, attribute = ReleaseId.parse(event.release_id).attribute
        for now in self._now[zone]:
            state.queried_days.note(local_day, now, attribute, self._alone[name])

    def _apply_to_charged_windows(self, state: ReleaseState, entry: Entry, event: ChargeEvent) -> None:
        """Add a window, which was charged itself or with its day, to the charged windows."""
        release, line, cost = self._entries.releases[event.release], self._lines[event.release], Fraction(event.epsilon)
        day = self._entries.privacy_day(entry)
        if day is not None and isinstance(release, CountRelease) and release.by_day:
            line, cost = line._replace(day=day.number), self._entries.day_prices(release).prices[event.audience].changed
        elif day is not None and isinstance(release, ThresholdRelease):
            line, cost = line._replace(day=day.number), 2 * self._entries.run_price(release).day
        name = line_name(event.release, self._version, event.attempt, line.day)
        state.charged.note(event.window_end, name, line, {event.audience: cost})

    def block_later_releases(self, state: ReleaseState, entry: Entry) -> None:
        """Block later releases of an entry's subject: its window, its local day, or its privacy day's run.

        Releases that carry publications over windows must wait, since the publication that the entry made is unknown.
        """
        name, end = entry["release"], parse_time(entry["window_end"])
        release = self._entries.releases.get(name)
        if isinstance(release, AttributeRelease):
            state.closed = max(state.closed, self._entries.local_day(entry).local_day)
            return
        state.released_until = max(state.released_until, end)
        day = self._entries.privacy_day(entry)
        if isinstance(release, CountRelease) and release.declared.carries:
            state.blocked_until = max(state.blocked_until, end + LONGEST_W * HOUR)
        if isinstance(release, CountRelease) and release.by_day and day is not None:
            state.paid_days.record_payment(name, day, ELSEWHERE)
        if isinstance(release, ThresholdRelease) and not release.free and day is not None:
            state.paid_days.record_payment(STREAMS, day, ELSEWHERE)


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
        known[version].apply(state, entry)
        known[version].block_later_releases(state, entry)
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
        self._writer = LedgerWriter.of(policy, site, keys, attempt)
        again = attempt > 1
        self._forecasts = tuple(forecast_streams(policy, site))
        self._plans = tuple(plan for plan in count_plans(policy, site) if not again or plan.release.name in names)
        self._late_plans = tuple(plan for plan in self._plans if not plan.release.declared.carries)
        self._attribute_plans = () if again else attribute_plans(policy, site, keys)
        self._counts = CountReleases(policy, self._writer, self._late_plans)
        self._attributes = AttributeReleases(policy, self._writer, self._attribute_plans)
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
        outputs: Iterator[Published | Charge]
        if isinstance(item, OccupancyWindow):
            outputs = self._counts.window(late_state, item)
        else:
            outputs = self._attributes.day(late_state, item)
        published = [output for output in outputs if isinstance(output, Published)]
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
        self, state: ReleaseState, entries: Iterable[Entry], policies: Mapping[str, PolicyDocument]
    ) -> None:
        """Load all charges and queries since the beginning, not only those that future windows need.

        Args:
            state: the site's.
            entries: the site's whole ledger.
            policies: the policy of each version under which an entry was made.
        """
        state.ledger.budgets = BudgetView()
        state.queried_days, state.charged = QueriedDays(), ChargeHistory()
        known = {version: PolicyReplay(policy, self._policy, self._writer.site) for version, policy in policies.items()}
        for entry in entries:
            known[entry["policy_version"]].apply(state, entry)

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
        again = self._writer.attempt > 1
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

    def _same_price(self, name: str, line: ChargeLine) -> bool:
        """Whether a day that was charged on a line may not be charged at this attempt too."""
        paid_by_day = [plan for plan in self._late_plans if plan.day_prices is not None]
        if self._writer.attempt > 1:
            return any(
                release_of(name) == plan.release.name and attempt_of(name) == self._writer.attempt
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
        queried = state.queried_days.zones_of(LocalDay(item.local_day, *span_of_day(item.local_day, self._timezone)))
        for attributes in self._attribute_plans:
            rules: dict[str, Attribute] = dict(attributes.release.attributes.items())
            for record, audience in attributes.records(item):
                if record.zone not in queried:
                    price = attribute_price(rules[record.attribute].epsilon[audience], None)
                    yield attributes.release.name, audience, price

    def _price(self, plan: CountPlan, window: OccupancyWindow, audience: str) -> Fraction:
        """Return the price of a window: the first window of a day costs the whole day."""
        if plan.day_prices is None:
            return plan.release.charge(audience)
        return Fraction(0) if window.privacy_day in self._days_priced else plan.release.epsilon[audience]

    def ids(self, item: OccupancyWindow | DayClosed) -> list[str]:
        """Return the release ids of an item's records."""
        free = [*self._free(rfc3339(item.window_end))] if isinstance(item, OccupancyWindow) else []
        return [name for name, _, _ in self._named(item)] + free

    def _free(self, end: str) -> Iterator[str]:
        """Yield the release ids of queries and revisions, which are computed from a window's released values."""
        for release in (plan.release for plan in self._plans):
            decided = free_thresholds(self._policy, self._writer.site, release.name)
            readers = {each.name: each.audiences for each in decided}
            names = [(query.name, end) for query in release.queries]
            names += [(each.name, end) for each in decided]
            names += [(release.revised_name, f"{end}/{span}") for span in release.revise]
            for name, where in names:
                for audience in readers.get(name, audiences_of(release)):
                    yield str(ReleaseId(self._writer.site, name, audience, where, self._writer.attempt))
            for people in self._policy.people:
                model = people.model
                if (model.site, model.release) == (self._writer.site, release.name):
                    name = people.release_name
                    yield str(ReleaseId(model.site, name, model.audience, end, self._writer.attempt))
            for forecast in self._forecasts:
                if forecast.release == release.name and forecast.is_due(parse_time(end)):
                    site = self._writer.site
                    yield str(ReleaseId(site, forecast.name, forecast.audience, end, self._writer.attempt))

    def commitments(self, item: OccupancyWindow | DayClosed) -> dict[str, str]:
        """Return release id -> commitment to an item's input; KeyFileError if its key is destroyed.

        Queries read released values only and have no commitments.
        """
        if isinstance(item, OccupancyWindow):
            key_day, end = key_day_of(item.window_end - self._writer.tick_length), item.window_end
        else:
            start, end = span_of_day(item.local_day, self._timezone)
            key_day = key_day_of(start)
        return {name: self._writer.commitment(key_day, release, end, read) for name, release, read in self._named(item)}

    def _named(self, item: OccupancyWindow | DayClosed) -> Iterator[tuple[str, str, bytes]]:
        """Yield (release id, release, digest of the input) of each record of an item."""
        if isinstance(item, OccupancyWindow):
            for plan in self._plans:
                name, read = plan.release.name, counts_digest(plan.counts(item))
                for audience in audiences_of(plan.release):
                    end = rfc3339(item.window_end)
                    yield str(ReleaseId(self._writer.site, name, audience, end, self._writer.attempt)), name, read
        else:
            for attributes in self._attribute_plans:
                name = attributes.release.name
                for record, audience in attributes.records(item):
                    which = ZoneDayAttribute(record.day, record.zone, record.attribute)
                    yield str(ReleaseId(self._writer.site, name, audience, str(which))), name, read_digest(record)


def _check_names(policy: PolicyDocument, attempt: int, names: Collection[str]) -> None:
    if (attempt > 1) != bool(names):
        rule = "must name the count releases to charge again, with --attempt above 1 and only then"
        msg = f"--release: {rule}, got {', '.join(sorted(names)) or 'none'} and attempt {attempt}"
        raise UsageError(msg)
    releases = {release.name: release for release in policy.release}
    for name in sorted(names):
        release = releases.get(name)
        if isinstance(release, AttributeRelease):
            msg = f"--release: must name count releases, since attributes are queried once, got {name}"
            raise UsageError(msg)
        if not isinstance(release, CountRelease) or release.declared.carries:
            never = " or ".join([*names_where("carries"), SPARSE_VECTOR])
            msg = f"--release: must name count releases of the policy with other mechanisms than {never}, got {name}"
            raise UsageError(msg)
