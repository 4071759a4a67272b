"""Whether a window can be paid: by the ledger and the policy alone, never by counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream.accounting.ledger import LedgerState, owner_of_account, spent_around, spent_on
from stream.policy.document import NANO, CountRelease, Policy, audiences_of
from stream.records import Micros


def nano(epsilon: Fraction) -> int:
    """Return an epsilon in the ledger's unit."""
    return int(epsilon * NANO)


def period_of(release: CountRelease, key_day: int) -> range:
    """Return the UTC days for which the daily budget that pays for ``key_day`` lasts."""
    first = key_day - key_day % release.refresh_days
    return range(first, first + release.refresh_days)


def companions(release: CountRelease, audience: str) -> list[str]:
    """Return the audiences of the same epsilon, the audience itself included.

    They share groups and filters, so that what one of them gets later would hold what another got before:
    they get a window all together or not at all.
    """
    return [name for name in audiences_of(release) if release.epsilon[name] == release.epsilon[audience]]


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of one site's count releases.

    What a release has spent is what was charged under its name, and for any of its zones under another name that now
    releases none of these: a budget does not begin anew with a name.
    """

    w: int
    """Windows of the sliding budgets."""
    tick_length: Micros
    covered: Mapping[str, frozenset[str]]
    """Count release -> its zones."""

    @classmethod
    def of(cls, policy: Policy, site: str) -> Budgets:
        """Return those of a policy's site."""
        counts = (release for release in policy.release if isinstance(release, CountRelease))
        covered = {release.name: frozenset(zone.id for zone in policy.zones_of(release, site)) for release in counts}
        return cls(policy.privacy.w, policy.site[site].tick, covered)

    def _accounts(self, ledger: LedgerState, release: str, audience: str) -> list[str]:
        """Return the accounts of the ledger for which a release's budget has to answer."""
        found = []
        for account in ledger.spent:
            name, who = owner_of_account(account)
            shared = self.covered[release].intersection(ledger.zones.get(account, ()))
            if who == audience and (name == release or shared - self.covered.get(name, frozenset())):
                found.append(account)
        return found

    def denials(self, ledger: LedgerState, release: CountRelease, key_day: int, end: Micros) -> dict[str, str | None]:
        """Return why each audience gets nothing of this window, None for those that get it.

        The window may lie before others that were charged: a backfill fills gaps.
        """
        reasons = {name: self._denial(ledger, release, name, key_day, end) for name in audiences_of(release)}
        return {
            name: reason or _first(reasons[other] for other in companions(release, name))
            for name, reason in reasons.items()
        }

    def _denial(
        self, ledger: LedgerState, release: CountRelease, audience: str, key_day: int, end: Micros
    ) -> str | None:
        accounts, cost = self._accounts(ledger, release.name, audience), nano(release.charge(audience))
        daily, sliding = release.daily_budget.get(audience), release.w_budget.get(audience)
        if daily is not None and spent_on(ledger, accounts, period_of(release, key_day)) + cost > nano(daily):
            return "budget"
        span = (self.w - 1) * self.tick_length
        if sliding is not None and spent_around(ledger, accounts, end, span) + cost > nano(sliding):
            return "w_budget"
        return None

    def left(self, ledger: LedgerState, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return how many more windows the daily budgets pay in the period of a UTC day; None without one."""
        fits = [
            (nano(budget) - spent_on(ledger, self._accounts(ledger, release.name, name), period_of(release, key_day)))
            // nano(release.charge(name))
            for name in companions(release, audience)
            if (budget := release.daily_budget.get(name)) is not None
        ]
        return min(fits) if fits else None


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)
