"""Ledger entries read back into charges: what the account of one policy is rebuilt from."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from stream.accounting.ledger import LedgerState, account_of
from stream.errors import UsageError
from stream.local_time import span_of_day
from stream.policy.document import NANO, AttributeRelease, CountRelease, Policy, ThresholdRelease
from stream.policy.releases import Release
from stream.records import DAY, AttributeCharge, Charge, CountCharge, DayTerms, Micros, ReleaseId
from stream.release.attribute_plan import ABSENT
from stream.release.budgets import Budgets
from stream.release.paid_by_day import PaidByDay
from stream.release.run_prices import RunPrice
from stream.schemas import parse_time

Entry = Mapping[str, Any]


class Books:
    """Reads charges back out of ledger entries of one policy."""

    def __init__(self, policy: Policy, site: str, outcomes: Mapping[str, Any], ledger: LedgerState) -> None:
        self.policy = policy
        self._releases = {release.name: release for release in policy.release}
        self._tick_length = policy.site[site].tick
        self._outcomes = outcomes
        self._by_day: dict[str, PaidByDay] = {}
        self._budgets = Budgets.of(policy, site)
        self._ledger = ledger
        """What entries of all policies have charged so far."""

    def item(self, entry: Entry) -> tuple[Micros, bool]:
        """Return when the entry's window, or day, was released, and whether it was a window.

        A day is released with the first window that ends at or after it, before that window.
        """
        end, daily = parse_time(entry["window_end"]), isinstance(self._release(entry), AttributeRelease)
        return (-(-end // self._tick_length) * self._tick_length if daily else end), not daily

    def note(self, entry: Entry) -> None:
        """Take an entry into the sums that budgets look at."""
        end = parse_time(entry["window_end"])
        zones = self._budgets.covered.get(entry["release"], ())
        account = account_of(entry["release"], entry["audience"], zones)
        self._ledger.remember(account, self._key_day(end), end, entry["nano"], zones)

    def _key_day(self, end: Micros) -> int:
        return (end - self._tick_length) // DAY

    def charge(self, entry: Entry, account: str) -> Charge:
        """Return what an entry charged, for the account of a policy version."""
        release, paid = self._release(entry), entry["outcome"] == "released"
        epsilon, reason = Fraction(entry["epsilon"]) if paid else Fraction(0), "" if paid else entry["outcome"]
        if isinstance(release, CountRelease):
            key_day = self._key_day(parse_time(entry["window_end"]))
            known = entry["audience"] in release.epsilon
            left = self._budgets.left(self._ledger, release, entry["audience"], key_day) if known else None
            return CountCharge(
                release.name, entry["audience"], release.mechanism, epsilon,
                reason=reason, left=left, attempt=entry["attempt"], w=release.windows_paid,
                terms=self._terms(release, entry) if paid else None,
            )  # fmt: skip
        if isinstance(release, ThresholdRelease):
            return self._decided(release, entry, reason)
        which = ReleaseId.parse(entry["release_id"]).attribute
        span = span_of_day(which.day, ZoneInfo(self.policy.site[entry["site"]].timezone))
        shown = self._outcomes.get(entry["release_id"])
        if shown is None and entry["release_id"] in self._outcomes:
            shown = ABSENT
        return AttributeCharge(
            release.name, entry["audience"], epsilon, reason=reason,
            zone=which.zone, attribute=which.attribute, day=which.day, span=span, shown=shown,
            version="" if self.policy.version == account else self.policy.version,
        )  # fmt: skip

    def _decided(self, release: ThresholdRelease, entry: Entry, reason: str) -> CountCharge:
        """Return what a window of decisions charged: the runs that it opened."""
        days, price = self.policy.site[entry["site"]].privacy_days, RunPrice.of(self.policy, release, entry["site"])
        number = None if days is None else days.at(parse_time(entry["window_end"])).number
        epsilon = Fraction(entry["nano"], NANO)
        return CountCharge(
            release.name, entry["audience"], release.mechanism, epsilon, reason=reason, attempt=entry["attempt"],
            terms=None if reason or number is None else price.terms(number, int(epsilon / price.run)),
        )  # fmt: skip

    def _terms(self, release: CountRelease, entry: Entry) -> DayTerms | None:
        """Return what was paid for where a release is paid by the day."""
        days = self.policy.site[entry["site"]].privacy_days
        if not release.by_day or days is None:
            return None
        day = days.at(parse_time(entry["window_end"])).number
        return self._paid_by_day(release, entry["site"]).paid(entry["audience"], day)

    def _paid_by_day(self, release: CountRelease, site: str) -> PaidByDay:
        if release.name not in self._by_day:
            self._by_day[release.name] = PaidByDay.of(self.policy, release, site)
        return self._by_day[release.name]

    def _release(self, entry: Entry) -> Release:
        release = self._releases.get(entry["release"])
        if release is None:
            msg = f"policy: must have the release {entry['release']} of ledger entry {entry['sequence']}"
            raise UsageError(msg)
        return release
