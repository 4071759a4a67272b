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
        reasons: dict[str, str | None] = dict.fromkeys(audiences_of(release))
        for audience in reasons:
            cost, left = nano(release.charge(audience)), self._left(view, release, audience, key_day)
            sliding, span = release.w_budget.get(audience), (self.w - 1) * self.tick_length
            if left is not None and cost > left:
                reasons[audience] = "budget"
            elif sliding is not None:
                spent = view.around(self._accounts(view, release.name, audience), end, span)
                reasons[audience] = "w_budget" if spent + cost > nano(sliding) else None
        return {
            audience: reason or next(filter(None, (reasons[other] for other in companions(release, audience))), None)
            for audience, reason in reasons.items()
        }

    def _left(self, view: BudgetView, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return the nano-epsilon left of a daily budget in the period of a UTC day; None without one."""
        daily = release.daily_budget.get(audience)
        if daily is None:
            return None
        first = key_day - key_day % release.refresh_days
        period = range(first, first + release.refresh_days)
        return nano(daily) - view.on_days(self._accounts(view, release.name, audience), period)

    def windows_left(self, view: BudgetView, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return the number of windows that daily budgets still pay in the period of a UTC day; None without one."""
        fits = [
            left // nano(release.charge(name))
            for name in companions(release, audience)
            if (left := self._left(view, release, name, key_day)) is not None
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

    def admits(
        self, state: ReleaseState, end: Micros, name: str, line: ChargeStream, paid: Mapping[str, Fraction]
    ) -> bool:
        """Record a window's payments on a line, unless they exceed the limit; return whether they were recorded.

        They exceed it if the window's day was queried for an attribute of a zone that the line covers, and all charges
        would now reveal too much of it.
        """
        state.charged.note(end, name, line, paid)
        if paid and any(
            self.passed(state.charged, day, zone, queries[zone].exponent)
            for day, queries in state.queried_days.at(end).items()
            for zone in queries.keys() & set(line.zones)
        ):
            state.charged.undo(end, name)
            return False
        return True


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

    def decisions(self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow) -> BudgetDecisions:
        """Decide on a window, and add its charges to ``state.charged`` and ``state.paid_days``."""
        if plan.days is not None:
            return self._of_day(state, plan, plan.days, window)
        return self._of_window(state, plan, window)

    def _of_window(self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow) -> BudgetDecisions:
        release, end = plan.release, window.window_end
        reasons = self.budgets.denials(state.ledger.budgets, release, key_day_of(end - self._issuer.tick_length), end)
        restarts = plan.publication_key is not None and release.name not in state.publication_keys
        if restarts and end <= state.blocked_until:
            return dict.fromkeys(reasons, BudgetDecision(WAITING))
        paid = {audience: release.epsilon[audience] for audience, reason in reasons.items() if reason is None}
        name = line_name(release.name, self._version, self._issuer.attempt)
        line = ChargeStream(release.mechanism, release.windows_paid, plan.covered)
        if not self._limit.admits(state, end, name, line, paid):
            return {audience: BudgetDecision(reason or "factor") for audience, reason in reasons.items()}
        return {
            audience: BudgetDecision(None, release.charge(audience)) if reason is None else BudgetDecision(reason)
            for audience, reason in reasons.items()
        }

    def _of_day(
        self, state: ReleaseState, plan: CountPlan, days: PaidByDay, window: OccupancyWindow
    ) -> BudgetDecisions:
        release, audiences, day = plan.release.name, audiences_of(plan.release), window.privacy_day
        status = DayPaymentStatus.OTHERWISE if day is None else state.paid_days.status(release, day, days.terms)
        if day is None or status is DayPaymentStatus.OTHERWISE or not plan.is_counted(window):
            return dict.fromkeys(audiences, BudgetDecision(WAITING))
        if status is DayPaymentStatus.PAID and not plan.continues(state, day):
            return dict.fromkeys(audiences, BudgetDecision(WAITING))  # another run would cost another day
        changed = {audience: days.prices[audience].changed for audience in audiences}
        name = line_name(release, self._version, self._issuer.attempt, day.number)
        line = ChargeStream(plan.release.mechanism, 1, plan.covered, day=day.number)
        if not self._limit.admits(state, window.window_end, name, line, changed):
            state.change_days.pop(release, None)  # later windows of the day would tell of this one
            return dict.fromkeys(audiences, BudgetDecision("factor"))
        if status is DayPaymentStatus.PAID:
            return dict.fromkeys(audiences, BudgetDecision(None))
        state.paid_days.record_payment(release, day, days.terms)
        state.change_days.pop(release, None)
        return {audience: BudgetDecision(None, days.prices[audience].epsilon) for audience in audiences}
