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
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.charge_history import ChargeHistory, ChargeLine, line_name
from stream.accounting.count_exponent import count_exponent
from stream.accounting.ledger import BudgetView, nano, owner_of_account
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.records import WAITING, Micros, OccupancyWindow
from stream.release.count_plan import CountPlan
from stream.release.paid_days import DayPaymentStatus
from stream.release.prices import DayPrices
from stream.release.state import LocalDay, ReleaseState

SLACK = 2e-9
"""Tolerance for rounding of ln factors: a factor that passes the policy's check passes here."""
FREE = Fraction(0)


class BudgetDecision(NamedTuple):
    """The decision on one audience's window."""

    reason: str | None
    """The reason for a denial; None if the audience receives the window's value."""
    price: Fraction = FREE
    """The amount charged now."""


BudgetDecisions = dict[str, BudgetDecision]
"""By audience."""


def companions(release: CountRelease, audience: str) -> list[str]:
    """Return the audiences of the same epsilon, including the audience itself.

    They share groups and filters. A later value of one audience would contain earlier values of another, so they
    receive a window all together or not at all.
    """
    return [name for name in audiences_of(release) if release.epsilon[name] == release.epsilon[audience]]


class Budgets:
    """The budgets of one site under one policy.

    The spending of a count release is the sum of the charges under its name and of the charges for any of its zones
    under another name that now releases none of them: a budget does not restart under a new name.
    """

    def __init__(self, policy: PolicyDocument, site: str, attempt: int = 1) -> None:
        counts = (release for release in policy.release if isinstance(release, CountRelease))
        self._covered = {
            release.name: frozenset(zone.id for zone in policy.zones_of(release, site)) for release in counts
        }
        """Count release -> its zones."""
        self._privacy = policy.privacy
        self._tick_length = policy.site[site].tick
        self._version = policy.version
        self._attempt = attempt

    def decide(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, key_day: int
    ) -> BudgetDecisions:  # fmt: skip
        """Decide on a window, and add its charges to ``state.charged`` and ``state.paid_days``.

        ``key_day`` is the UTC day of its start, whose daily budget pays.
        """
        if plan.day_prices is not None:
            return self._decide_by_day(state, plan, plan.day_prices, window)
        release, end = plan.release, window.window_end
        restarts = plan.publication_key is not None and release.name not in state.publication_keys
        if restarts and end <= state.blocked_until:
            return dict.fromkeys(audiences_of(release), BudgetDecision(WAITING))
        reasons = self._denials(state.ledger.budgets, release, key_day, end)
        paid = {audience: release.epsilon[audience] for audience, reason in reasons.items() if reason is None}
        line = ChargeLine(release.mechanism, release.windows_paid, plan.covered)
        if not self.record_within_factor(state, end, release.name, line, paid):
            return {audience: BudgetDecision(reason or "factor") for audience, reason in reasons.items()}
        return {
            audience: BudgetDecision(None, release.charge(audience)) if reason is None else BudgetDecision(reason)
            for audience, reason in reasons.items()
        }

    def _decide_by_day(
        self, state: ReleaseState, plan: CountPlan, days: DayPrices, window: OccupancyWindow
    ) -> BudgetDecisions:
        release, audiences, day = plan.release.name, audiences_of(plan.release), window.privacy_day
        if day is None:
            return dict.fromkeys(audiences, BudgetDecision(WAITING))
        status = state.paid_days.status(release, day, days.terms_digest)
        if status is DayPaymentStatus.OTHER_TERMS or not plan.is_counted(window):
            return dict.fromkeys(audiences, BudgetDecision(WAITING))
        if status is DayPaymentStatus.PAID and not plan.continues(state, day):
            return dict.fromkeys(audiences, BudgetDecision(WAITING))  # another run would cost another day
        changed = {audience: days.prices[audience].changed for audience in audiences}
        line = ChargeLine(plan.release.mechanism, 1, plan.covered, day=day.number)
        if not self.record_within_factor(state, window.window_end, release, line, changed):
            state.change_days.pop(release, None)  # later windows of the day would tell of this one
            return dict.fromkeys(audiences, BudgetDecision("factor"))
        if status is DayPaymentStatus.PAID:
            return dict.fromkeys(audiences, BudgetDecision(None))
        state.paid_days.record_payment(release, day, days.terms_digest)
        state.change_days.pop(release, None)
        return {audience: BudgetDecision(None, days.prices[audience].epsilon) for audience in audiences}

    # --- budgets of windows ---------------------------------------------------------------------------

    def _denials(self, view: BudgetView, release: CountRelease, key_day: int, end: Micros) -> dict[str, str | None]:
        """Return audience -> the reason why this window is denied, None if the audience receives it.

        The window may lie before others that were charged: a backfill fills gaps.
        """
        reasons: dict[str, str | None] = dict.fromkeys(audiences_of(release))
        for audience in reasons:
            cost, left = nano(release.charge(audience)), self._left(view, release, audience, key_day)
            sliding, span = release.w_budget.get(audience), (self._privacy.w - 1) * self._tick_length
            if left is not None and cost > left:
                reasons[audience] = "budget"
            elif sliding is not None:
                spent = view.around(self._accounts(view, release.name, audience), end, span)
                reasons[audience] = "w_budget" if spent + cost > nano(sliding) else None
        return {
            audience: reason or next(filter(None, (reasons[other] for other in companions(release, audience))), None)
            for audience, reason in reasons.items()
        }

    def windows_left(self, view: BudgetView, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return the number of windows that daily budgets still pay in the period of a UTC day; None without one."""
        fits = [
            left // nano(release.charge(name))
            for name in companions(release, audience)
            if (left := self._left(view, release, name, key_day)) is not None
        ]
        return min(fits) if fits else None

    def _left(self, view: BudgetView, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return the nano-epsilon left of a daily budget in the period of a UTC day; None without one."""
        daily = release.daily_budget.get(audience)
        if daily is None:
            return None
        first = key_day - key_day % release.refresh_days
        period = range(first, first + release.refresh_days)
        return nano(daily) - view.on_days(self._accounts(view, release.name, audience), period)

    def _accounts(self, view: BudgetView, release: str, audience: str) -> list[str]:
        """Return the ledger accounts that count against a release's budget."""
        found = []
        for account, spending in view.accounts.items():
            name, who = owner_of_account(account)
            shared = self._covered[release].intersection(spending.zones)
            if who == audience and (name == release or shared - self._covered.get(name, frozenset())):
                found.append(account)
        return found

    # --- the limit ``max_factor`` ---------------------------------------------------------------------

    def record_within_factor(
        self, state: ReleaseState, end: Micros, release: str, line: ChargeLine, paid: Mapping[str, Fraction]
    ) -> bool:
        """Record a window's payments on a release's line, unless they exceed the limit; return whether they are.

        They exceed it if the window's day was queried for an attribute of a zone that the line covers, and all charges
        would now reveal too much of it.
        """
        name = line_name(release, self._version, self._attempt, line.day)
        state.charged.note(end, name, line, paid)
        if paid and any(
            self.exceeds_factor(state.charged, day, zone, queries[zone].exponent)
            for day, queries in state.queried_days.at(end).items()
            for zone in queries.keys() & set(line.zones)
        ):
            state.charged.undo(end, name)
            return False
        return True

    def exceeds_factor(self, charged: ChargeHistory, day: LocalDay, zone: str, alone: float) -> bool:
        """Whether charged counts raise a zone's day above ``max_factor``; False without counts.

        ``alone`` is ln of the largest factor that the day's attributes reach by themselves.
        """
        counts = count_exponent(charged, zone, day.span, self._privacy.ticks_per_attribute)
        limit = math.log(self._privacy.max_factor) + SLACK
        return counts > 0 and alone + float(self._privacy.devices_per_person * counts) > limit
