"""Whether a window can be paid: by the ledger and the policy alone, never by counts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream.accounting.ledger import LedgerState, spent_in, spent_since
from stream.policy import NANO, CountRelease, audiences_of
from stream.records import Micros


def nano(epsilon: Fraction) -> int:
    """Return an epsilon in the ledger's unit."""
    return int(epsilon * NANO)


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of one site's count releases."""

    w: int
    """Windows of the sliding budgets."""
    tick: Micros

    def refusals(self, ledger: LedgerState, release: CountRelease, day: int, end: Micros) -> dict[str, str | None]:
        """Return why each audience gets nothing of this window, None for those that get it.

        Audiences of equal epsilon share groups and filters, so that what one of them gets later would hold
        this window too: they get it all together or not at all.
        """
        reasons = {name: self._refusal(ledger, release, name, day, end) for name in audiences_of(release)}
        short = {release.epsilon[name]: reason for name, reason in reasons.items() if reason is not None}
        return {name: reason or short.get(release.epsilon[name]) for name, reason in reasons.items()}

    def _refusal(self, ledger: LedgerState, release: CountRelease, audience: str, day: int, end: Micros) -> str | None:
        account, cost = f"{release.name}/{audience}", nano(release.charge(audience))
        daily, sliding = release.daily_budget.get(audience), release.w_budget.get(audience)
        if daily is not None and spent_in(ledger, account, day // release.refresh_days) + cost > nano(daily):
            return "budget"
        first = end - (self.w - 1) * self.tick
        if sliding is not None and spent_since(ledger, account, first) + cost > nano(sliding):
            return "w_budget"
        return None

    def left(self, ledger: LedgerState, release: CountRelease, audience: str, period: int) -> int | None:
        """Return how many more windows the daily budget pays in a period; None without one."""
        budget = release.daily_budget.get(audience)
        if budget is None:
            return None
        return (nano(budget) - spent_in(ledger, f"{release.name}/{audience}", period)) // nano(release.charge(audience))
