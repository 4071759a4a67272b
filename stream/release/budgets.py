"""Budgets of count releases: which audiences receive a window, and at what price.

Decisions depend on policy, ledger and clock, never on counts.

* A release that pays per window checks its budgets.
* A release that carries a publication may have to wait until w windows have passed.
* A release that pays per day charges the whole day to the day's first window. It waits for the next day if the
  current day was paid on other terms, or if the counters of the day's contributions were interrupted. One that counts
  changes also waits if its run of the day has ended: a denied window ends it, and so does the loss of its sums.
* All releases check ``max_factor``: whether the counts and attributes of a zone together, as charged in the ledger,
  would reveal too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.charge_history import ChargeHistory, ChargeStream, line_name
from stream.accounting.count_exponent import count_exponent
from stream.accounting.ledger import BudgetView, nano, owner_of_account
from stream.keys import key_day_of
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.privacy import Privacy
from stream.records import WAITING, Micros, OccupancyWindow
from stream.release.count_plan import CountPlan
from stream.release.ledger_writer import LedgerWriter
from stream.release.prices import DayPaymentStatus, PaidByDay
from stream.release.state import LocalDay, ReleaseState
from stream.release.validation import Policy

# Budgets.


def period_of(release: CountRelease, key_day: int) -> range:
    """Return the UTC days that share the daily budget of ``key_day``."""
    first = key_day - key_day % release.refresh_days
    return range(first, first + release.refresh_days)


def companions(release: CountRelease, audience: str) -> list[str]:
    """Return the audiences of the same epsilon, including the audience itself.

    They share groups and filters. A later value of one audience would contain earlier values of another, so they
    receive a window all together or not at all.
    """
    return [name for name in audiences_of(release) if release.epsilon[name] == release.epsilon[audience]]


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of one site's count releases.

    The spending of a release is the sum of the charges under its name and of the charges for any of its zones under
    another name that now releases none of them: a budget does not restart under a new name.
    """

    w: int
    """Number of windows of the sliding budgets."""
    tick_length: Micros
    covered: Mapping[str, frozenset[str]]
    """Count release -> its zones."""

    @classmethod
    def of(cls, policy: PolicyDocument, site: str) -> Budgets:
        """Return the budgets of a policy's site."""
        counts = (release for release in policy.release if isinstance(release, CountRelease))
        covered = {release.name: frozenset(zone.id for zone in policy.zones_of(release, site)) for release in counts}
        return cls(policy.privacy.w, policy.site[site].tick, covered)

    def _accounts(self, view: BudgetView, release: str, audience: str) -> list[str]:
        """Return the ledger accounts that count against a release's budget."""
        found = []
        for account, spending in view.accounts.items():
            name, who = owner_of_account(account)
            shared = self.covered[release].intersection(spending.zones)
            if who == audience and (name == release or shared - self.covered.get(name, frozenset())):
                found.append(account)
        return found

    def denials(self, view: BudgetView, release: CountRelease, key_day: int, end: Micros) -> dict[str, str | None]:
        """Return audience -> the reason why this window is denied, None if the audience receives it.

        The window may lie before others that were charged: a backfill fills gaps.
        """
        reasons = {name: self._denial(view, release, name, key_day, end) for name in audiences_of(release)}
        return {
            name: reason or next(filter(None, (reasons[other] for other in companions(release, name))), None)
            for name, reason in reasons.items()
        }

    def _denial(self, view: BudgetView, release: CountRelease, audience: str, key_day: int, end: Micros) -> str | None:
        accounts, cost = self._accounts(view, release.name, audience), nano(release.charge(audience))
        daily, sliding = release.daily_budget.get(audience), release.w_budget.get(audience)
        if daily is not None and view.on_days(accounts, period_of(release, key_day)) + cost > nano(daily):
            return "budget"
        span = (self.w - 1) * self.tick_length
        if sliding is not None and view.around(accounts, end, span) + cost > nano(sliding):
            return "w_budget"
        return None

    def windows_left(self, view: BudgetView, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return the number of windows that daily budgets still pay in the period of a UTC day; None without one."""
        fits = [
            (nano(budget) - view.on_days(self._accounts(view, release.name, name), period_of(release, key_day)))
            // nano(release.charge(name))
            for name in companions(release, audience)
            if (budget := release.daily_budget.get(name)) is not None
        ]
        return min(fits) if fits else None


# The limit ``max_factor``.

SLACK = 2e-9
"""Tolerance for rounding of ln factors: a factor that passes the policy's check passes here."""


@dataclass(frozen=True, slots=True)
class FactorLimit:
    """The ``max_factor`` of one policy."""

    privacy: Privacy

    def passed(self, charged: ChargeHistory, day: LocalDay, zone: str, alone: float) -> bool:
        """Whether charged counts raise a zone's day above ``max_factor``; False without counts.

        ``alone`` is ln of the largest factor that the day's attributes reach by themselves.
        """
        counts = count_exponent(charged, zone, day.span, self.privacy.ticks_per_attribute)
        limit = math.log(self.privacy.max_factor) + SLACK
        return counts > 0 and alone + float(self.privacy.devices_per_person * counts) > limit

    def passed_by_window(self, state: ReleaseState, zones: tuple[str, ...], end: int) -> bool:
        """Whether current charges exceed the limit for attributes that were queried for the day of a window."""
        return any(
            self.passed(state.charged, day, zone, queries[zone].exponent)
            for day, queries in state.queried_days.at(end).items()
            for zone in queries.keys() & set(zones)
        )


FREE = Fraction(0)


class BudgetDecision(NamedTuple):
    """The decision on one audience's window."""

    reason: str | None
    """The reason for a denial; None if the audience receives the window's value."""
    price: Fraction = FREE
    """The amount charged now."""


BudgetDecisions = dict[str, BudgetDecision]
"""By audience."""


class BudgetGate:
    """Decides on the windows of one site."""

    def __init__(self, policy: Policy, issuer: LedgerWriter) -> None:
        self.budgets = Budgets.of(policy, issuer.site)
        self._limit = FactorLimit(policy.privacy)
        self._version = policy.version
        self._issuer = issuer

    def verdicts(self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow) -> BudgetDecisions:
        """Decide on a window, and add its charges to ``state.charged`` and ``state.paid``."""
        if plan.days is not None:
            return self._of_day(state, plan, plan.days, window)
        return self._of_window(state, plan, window)

    def _of_window(self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow) -> BudgetDecisions:
        release, end = plan.release, window.window_end
        reasons = self.budgets.denials(state.ledger.budgets, release, key_day_of(end - self._issuer.tick_length), end)
        if (
            plan.publication_key is not None
            and release.name not in state.publication_keys
            and end <= state.blocked_until
        ):
            return dict.fromkeys(reasons, BudgetDecision(WAITING))
        paid = {audience: release.epsilon[audience] for audience, reason in reasons.items() if reason is None}
        line = ChargeStream(release.mechanism, release.windows_paid, plan.covered)
        if self._exceeds_factor_limit(
            state, plan, window, line_name(release.name, self._version, self._issuer.attempt), line, paid
        ):
            return {audience: BudgetDecision(reason or "factor") for audience, reason in reasons.items()}
        return {
            audience: BudgetDecision(None, release.charge(audience)) if reason is None else BudgetDecision(reason)
            for audience, reason in reasons.items()
        }

    def _of_day(
        self, state: ReleaseState, plan: CountPlan, days: PaidByDay, window: OccupancyWindow
    ) -> BudgetDecisions:
        name, audiences, day = plan.release.name, audiences_of(plan.release), window.privacy_day
        status = DayPaymentStatus.OTHERWISE if day is None else state.paid_days.status(name, day, days.terms)
        if day is None or status is DayPaymentStatus.OTHERWISE or not plan.is_counted(window):
            return dict.fromkeys(audiences, BudgetDecision(WAITING))
        if status is DayPaymentStatus.PAID and not plan.continues(state, day):
            return dict.fromkeys(audiences, BudgetDecision(WAITING))  # another run would cost another day
        changed = {audience: days.prices[audience].changed for audience in audiences}
        line = ChargeStream(plan.release.mechanism, 1, plan.covered, day=day.number)
        line_of_day = line_name(name, self._version, self._issuer.attempt, day.number)
        if self._exceeds_factor_limit(state, plan, window, line_of_day, line, changed):
            state.change_days.pop(name, None)  # later windows of the day would tell of this one
            return dict.fromkeys(audiences, BudgetDecision("factor"))
        if status is DayPaymentStatus.PAID:
            return dict.fromkeys(audiences, BudgetDecision(None))
        state.paid_days.record_payment(name, day, days.terms)
        state.change_days.pop(name, None)
        return {audience: BudgetDecision(None, days.prices[audience].epsilon) for audience in audiences}

    def _exceeds_factor_limit(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, name: str, line: ChargeStream,
        paid: Mapping[str, Fraction],
    ) -> bool:  # fmt: skip
        """Record the charge of a window; undo it and return True where it would exceed the limit of an attribute."""
        state.charged.note(window.window_end, name, line, paid)
        passed = bool(paid) and self._limit.passed_by_window(state, plan.covered, window.window_end)
        if passed:
            state.charged.undo(window.window_end, name)
        return passed
