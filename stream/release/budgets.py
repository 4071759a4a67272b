"""Decides which audiences receive a window of a count release, and at what price.

Decisions depend on policy, ledger and clock, never on counts.

* A release that pays per window checks its budgets.
* A release that carries a publication may have to wait until w windows have passed.
* A release that pays per day charges the whole day to the day's first window. It waits for the next day if the
  current day was paid on other terms, or if the counters of the day's contributions were interrupted.
* All releases check ``max_factor``: whether the counts and attributes of a zone together, as charged in the ledger,
  would reveal too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.charges import ChargeHistory, ChargeStream, line_name
from stream.keys import key_day_of
from stream.policy.document import audiences_of
from stream.policy.privacy import Privacy
from stream.records import WAITING, OccupancyWindow
from stream.release.count_plan import CountPlan
from stream.release.ledger_writer import Budgets, LedgerWriter
from stream.release.prices import DayPaymentStatus, PaidByDay
from stream.release.queried_days import LocalDay
from stream.release.state import ReleaseState
from stream.release.validation import Policy

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
        counts = charged.exponent(charged.covering(zone), day.span, self.privacy.ticks_per_attribute, None)
        limit = math.log(self.privacy.max_factor) + SLACK
        return counts > 0 and alone + float(self.privacy.devices_per_person * counts) > limit

    def passed_by_window(self, state: ReleaseState, zones: tuple[str, ...], end: int) -> bool:
        """Whether current charges exceed the limit for attributes that were queried for the day of a window."""
        return any(
            self.passed(state.charged, day, zone, asked[zone].exponent)
            for day, asked in state.queried_days.at(end).items()
            for zone in asked.keys() & set(zones)
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
        reasons = self.budgets.denials(state.ledger, release, key_day_of(end - self._issuer.tick_length), end)
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
        standing = DayPaymentStatus.OTHERWISE if day is None else state.paid_days.status(name, day, days.terms)
        if day is None or window.bounded is None or standing is DayPaymentStatus.OTHERWISE:
            return dict.fromkeys(audiences, BudgetDecision(WAITING))
        changed = {audience: days.prices[audience].changed for audience in audiences}
        line = ChargeStream(plan.release.mechanism, 1, plan.covered, day=day.number)
        line_of_day = line_name(name, self._version, self._issuer.attempt, day.number)
        if self._exceeds_factor_limit(state, plan, window, line_of_day, line, changed):
            return dict.fromkeys(audiences, BudgetDecision("factor"))
        if standing is DayPaymentStatus.PAID:
            return dict.fromkeys(audiences, BudgetDecision(None))
        state.paid_days.record_payment(name, day, days.terms)
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
