"""Who gets a window of a count release, and what it is charged: by policy, ledger and clock, never by counts.

A release that pays by the window asks its budgets; one that carries a publication may have to wait until w windows are
over; one that pays by the day charges the day's first window with all of it, and waits for the next day where today's
was paid on other terms, or where the counters of today's contributions have not run on. All ask whether counts and
attributes of a zone together would say more than ``max_factor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from stream.accounting.charged import Line, line_name
from stream.keys import key_day_of
from stream.policy.document import Policy, audiences_of
from stream.records import WAITING, OccupancyWindow
from stream.release.budgets import Budgets
from stream.release.count_plan import CountPlan
from stream.release.factor_limit import FactorLimit
from stream.release.issuer import Issuer
from stream.release.paid_by_day import PaidByDay
from stream.release.paid_days import Standing
from stream.release.state import ReleaseState

FREE = Fraction(0)


class Verdict(NamedTuple):
    """What an audience gets of a window."""

    reason: str | None
    """Why it gets nothing; None where it gets its value."""
    price: Fraction = FREE
    """What it is charged now."""


Verdicts = dict[str, Verdict]
"""By audience."""


class Judge:
    """Decides on the windows of one site."""

    def __init__(self, policy: Policy, issuer: Issuer) -> None:
        self.budgets = Budgets.of(policy, issuer.site)
        self._limit = FactorLimit(policy.privacy)
        self._version = policy.version
        self._issuer = issuer

    def verdicts(self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow) -> Verdicts:
        """Decide on a window, and take what it is charged into ``state.charged`` and ``state.paid``."""
        if plan.days is not None:
            return self._of_day(state, plan, plan.days, window)
        return self._of_window(state, plan, window)

    def _of_window(self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow) -> Verdicts:
        release, end = plan.release, window.window_end
        reasons = self.budgets.denials(state.ledger, release, key_day_of(end - self._issuer.tick_length), end)
        if plan.owner is not None and release.name not in state.carried and end <= state.waits:
            return dict.fromkeys(reasons, Verdict(WAITING))
        paid = {audience: release.epsilon[audience] for audience, reason in reasons.items() if reason is None}
        line = Line(release.mechanism, release.windows_paid, plan.covered)
        if self._too_much(
            state, plan, window, line_name(release.name, self._version, self._issuer.attempt), line, paid
        ):
            return {audience: Verdict(reason or "factor") for audience, reason in reasons.items()}
        return {
            audience: Verdict(None, release.charge(audience)) if reason is None else Verdict(reason)
            for audience, reason in reasons.items()
        }

    def _of_day(self, state: ReleaseState, plan: CountPlan, days: PaidByDay, window: OccupancyWindow) -> Verdicts:
        name, audiences, day = plan.release.name, audiences_of(plan.release), window.privacy_day
        standing = Standing.OTHERWISE if day is None else state.paid.standing(name, day, days.terms)
        if day is None or window.bounded is None or standing is Standing.OTHERWISE:
            return dict.fromkeys(audiences, Verdict(WAITING))
        changed = {audience: days.prices[audience].changed for audience in audiences}
        line = Line(plan.release.mechanism, 1, plan.covered, day=day.number)
        line_of_day = line_name(name, self._version, self._issuer.attempt, day.number)
        if self._too_much(state, plan, window, line_of_day, line, changed):
            return dict.fromkeys(audiences, Verdict("factor"))
        if standing is Standing.PAID:
            return dict.fromkeys(audiences, Verdict(None))
        state.paid.pay(name, day, days.terms)
        return {audience: Verdict(None, days.prices[audience].epsilon) for audience in audiences}

    def _too_much(
        self, state: ReleaseState, plan: CountPlan, window: OccupancyWindow, name: str, line: Line,
        paid: Mapping[str, Fraction],
    ) -> bool:  # fmt: skip
        """Note what a window is charged; take it back and return True where that says too much of an attribute."""
        state.charged.note(window.window_end, name, line, paid)
        passed = bool(paid) and self._limit.passed_by_window(state, plan.covered, window.window_end)
        if passed:
            state.charged.take_back(window.window_end, name)
        return passed
