"""Releases of the past: what a recording brings later than its windows were due.

A late window or day goes into the same books as the live ones, and its groups and filters are its own. The first
time a zone's window is charged needs no order; to charge it again, under whatever name, takes an attempt and
the names of the releases meant. Attributes are asked at the first attempt only, and of zones' days never asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from stream.accounting.charged import ChargedWindows, Line, attempt_of, release_of
from stream.errors import UsageError
from stream.keys import Keys, key_day_of
from stream.local_time import span_of_day
from stream.mechanisms.labels import counts_digest
from stream.policy.document import Attribute, AttributeRelease, CountRelease, Policy, audiences_of
from stream.policy.mechanisms import SPARSE_VECTOR, names_where
from stream.records import (
    Charge,
    DayClosed,
    OccupancyWindow,
    PrivacyDay,
    Published,
    ReleaseId,
    ZoneDayAttribute,
)
from stream.release.asked import AskedDays, LocalDay
from stream.release.attribute_plan import attribute_plans, read_digest
from stream.release.attribute_stage import AttributeReleases
from stream.release.count_plan import CountPlan, count_plans
from stream.release.count_stage import CountReleases
from stream.release.earlier import EarlierPolicy
from stream.release.free_decisions import free_thresholds
from stream.release.issuer import Issuer
from stream.release.state import ReleaseState
from stream.schemas import parse_time, rfc3339


class LateReleases:
    """The releases of one site, for items that lie before what it has released."""

    def __init__(self, policy: Policy, site: str, keys: Keys, attempt: int = 1, names: Collection[str] = ()) -> None:
        """Release late under ``policy``; at attempts above 1 only the count releases named.

        Raises:
            UsageError: names and attempt do not go together, or a name is of no release that may come late again.
        """
        _check_names(policy, attempt, names)
        self._policy = policy
        self._timezone = ZoneInfo(policy.site[site].timezone)
        self._issuer = Issuer.of(policy, site, keys, attempt)
        again = attempt > 1
        self._plans = tuple(plan for plan in count_plans(policy, site) if not again or plan.release.name in names)
        self._late_plans = tuple(plan for plan in self._plans if not plan.release.declared.carries)
        self._attribute_plans = () if again else attribute_plans(policy, site, keys)
        self._counts = CountReleases(policy, self._issuer, self._late_plans)
        self._attributes = AttributeReleases(policy, self._issuer, self._attribute_plans)
        self._days_priced: set[PrivacyDay | None] = set()
        """Days of which ``prices`` has named the price."""

    def past(self, state: ReleaseState, item: OccupancyWindow | DayClosed, aside: ReleaseState) -> list[Published]:
        """Release an item that lies before what has been released, into the same books.

        ``aside`` holds groups and filters of its own, so that those of the live windows see nothing of it. What
        ``sample`` and ``ba`` may publish depends on all windows around, so they release nothing here.
        """
        aside.ledger, aside.asked, aside.charged = state.ledger, state.asked, state.charged
        made: Iterator[Published | Charge]
        if isinstance(item, OccupancyWindow):
            made = self._counts.window(aside, item)
        else:
            made = self._attributes.day(aside, item)
        published = [output for output in made if isinstance(output, Published)]
        state.ledger, state.asked, state.charged = aside.ledger, aside.asked, aside.charged
        state.paid.close_to_others(aside.paid)
        return published

    def finish(self, aside: ReleaseState) -> list[Published]:
        """Return the revised values of late windows behind which nothing comes any more."""
        return list(self._counts.finish(aside))

    def note_coverage(self, aside: ReleaseState, window: OccupancyWindow) -> None:
        """Take the coverage of a window that is not released into that of its local day."""
        self._counts.note_coverage(aside, window)

    def open_books(
        self, state: ReleaseState, entries: Iterable[Mapping[str, Any]], policies: Mapping[str, Policy]
    ) -> None:
        """Remember all that was ever charged and asked, and not only what windows to come look at.

        Args:
            state: the site's.
            entries: all of the site's ledger.
            policies: the policy of each version under which an entry was made.
        """
        state.ledger.spent, state.ledger.recent, state.ledger.zones = {}, {}, {}
        state.asked, state.charged = AskedDays(), ChargedWindows()
        known = {
            version: EarlierPolicy(policy, self._policy, self._issuer.site) for version, policy in policies.items()
        }
        for entry in entries:
            if entry["outcome"] == "released":
                known[entry["policy_version"]].note(state, entry, parse_time(entry["window_end"]))

    def close_books(self, state: ReleaseState) -> None:
        """Let go of what only windows of the past had to look at."""
        state.charged.forget(state.through)
        for day in sorted(state.asked.days)[-1:]:
            state.asked.forget(day.local_day)

    def charged_before(self, state: ReleaseState, window: OccupancyWindow) -> str | None:
        """Return a release under which a zone of what would be released now was charged for this window.

        For a release that is paid by the day: for any window of its day. At attempts above 1 only what was charged
        at the same attempt counts: a day's price buys one run of the counters.
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

    def _same_price(self, name: str, line: Line) -> bool:
        """Whether a day that was charged on a line may not be charged at this attempt too."""
        paid_by_day = [plan for plan in self._late_plans if plan.days is not None]
        if self._issuer.attempt > 1:
            return any(
                release_of(name) == plan.release.name and attempt_of(name) == self._issuer.attempt
                for plan in paid_by_day
            )
        return any(set(line.zones) & set(plan.covered) for plan in paid_by_day)

    def prices(self, state: ReleaseState, item: OccupancyWindow | DayClosed) -> Iterator[tuple[str, str, Fraction]]:
        """Yield (release, audience, epsilon) of each record that will be charged for an item, unless it is denied."""
        if isinstance(item, OccupancyWindow):
            for plan in self._late_plans:
                for audience in audiences_of(plan.release):
                    yield plan.release.name, audience, self._price(plan, item, audience)
            self._days_priced.add(item.privacy_day)
            return
        asked = state.asked.zones_of(LocalDay(item.local_day, *span_of_day(item.local_day, self._timezone)))
        for attributes in self._attribute_plans:
            rules: dict[str, Attribute] = dict(attributes.release.attributes.items())
            for record, audience in attributes.records(item):
                if record.zone not in asked:
                    yield attributes.release.name, audience, rules[record.attribute].epsilon[audience]

    def _price(self, plan: CountPlan, window: OccupancyWindow, audience: str) -> Fraction:
        """Return what a window costs: a day's first one all of the day."""
        if plan.days is None:
            return plan.release.charge(audience)
        return Fraction(0) if window.privacy_day in self._days_priced else plan.release.epsilon[audience]

    def ids(self, item: OccupancyWindow | DayClosed) -> list[str]:
        """Return the release ids of an item's records."""
        free = [*self._free(rfc3339(item.window_end))] if isinstance(item, OccupancyWindow) else []
        return [name for name, _, _ in self._named(item)] + free

    def _free(self, end: str) -> Iterator[str]:
        """Yield the release ids of what is answered from a window's values, and of what revises them."""
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
        """Return, by release id, the commitments to an item's input; KeyFileError when its key is gone.

        Queries answer from released values and have none.
        """
        if isinstance(item, OccupancyWindow):
            key_day, end = key_day_of(item.window_end - self._issuer.tick_length), item.window_end
        else:
            start, end = span_of_day(item.local_day, self._timezone)
            key_day = key_day_of(start)
        return {name: self._issuer.commitment(key_day, release, end, read) for name, release, read in self._named(item)}

    def _named(self, item: OccupancyWindow | DayClosed) -> Iterator[tuple[str, str, bytes]]:
        """Yield (release id, release, digest of what it reads) of each record of an item."""
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


def _check_names(policy: Policy, attempt: int, names: Collection[str]) -> None:
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
