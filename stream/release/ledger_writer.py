"""Writes the records of one site: budgets, common fields, commitments, and the ledger entry before each record.

Budget decisions depend on ledger and policy alone, never on counts. A ledger entry precedes every record. The entry
commits to the record's input with a key of the day and the attempt.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from typing import NamedTuple

from stream.accounting.ledger import Ledger, LedgerState, Posting, owner_of_account, spent_around, spent_on
from stream.domains import Purpose
from stream.keys import Keys, subkey
from stream.mechanisms.noise_labels import label
from stream.policy.counts import LONGEST_W, CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.fields import NANO
from stream.records import HOUR, Micros, Published
from stream.release.state import ReleaseState
from stream.schemas import AUDIT, AttributeRecord, CountRecord, ThresholdRecord, rfc3339

# Budgets.


def nano(epsilon: Fraction) -> int:
    """Return an epsilon in the ledger's unit."""
    return int(epsilon * NANO)


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

    def _accounts(self, ledger: LedgerState, release: str, audience: str) -> list[str]:
        """Return the ledger accounts that count against a release's budget."""
        found = []
        for account in ledger.spent:
            name, who = owner_of_account(account)
            shared = self.covered[release].intersection(ledger.zones.get(account, ()))
            if who == audience and (name == release or shared - self.covered.get(name, frozenset())):
                found.append(account)
        return found

    def denials(self, ledger: LedgerState, release: CountRelease, key_day: int, end: Micros) -> dict[str, str | None]:
        """Return audience -> the reason why this window is denied, None if the audience receives it.

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

    def windows_left(self, ledger: LedgerState, release: CountRelease, audience: str, key_day: int) -> int | None:
        """Return the number of windows that daily budgets still pay in the period of a UTC day; None without one."""
        fits = [
            (nano(budget) - spent_on(ledger, self._accounts(ledger, release.name, name), period_of(release, key_day)))
            // nano(release.charge(name))
            for name in companions(release, audience)
            if (budget := release.daily_budget.get(name)) is not None
        ]
        return min(fits) if fits else None


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason is not None), None)


class Head(NamedTuple):
    """The fields that all records of one window, or of one day, have in common."""

    site: str
    window_start: str
    window_end: str
    policy_version: str
    laboratory: bool
    attempt: int
    """Part of release ids when above 1."""


@dataclass(frozen=True, slots=True)
class LedgerWriter:
    """Writes ledger entries of one site under one policy and one attempt."""

    site: str
    tick_length: Micros
    keys: Keys
    attempt: int
    ledger: Ledger

    @classmethod
    def of(cls, policy: PolicyDocument, site: str, keys: Keys, attempt: int) -> LedgerWriter:
        """Return the writer of a site's entries under a policy."""
        ledger = Ledger(site, keys.ledger, keys.audit, policy.version, keys.laboratory)
        return cls(site, policy.site[site].tick, keys, attempt, ledger)

    def head(self, start: Micros, end: Micros) -> Head:
        """Return the head of the records of a window or a day."""
        version, laboratory = self.ledger.policy_version, self.keys.laboratory
        return Head(self.site, rfc3339(start), rfc3339(end), version, laboratory, self.attempt)

    def commitment(self, key_day: int, release: str, end: Micros, digest: bytes) -> str:
        """Return the commitment to an input; it differs between attempts, so that inputs cannot be compared.

        Raises:
            KeyFileError: the key of ``key_day`` no longer exists.
        """
        attempt = (self.attempt,) if self.attempt > 1 else ()
        key = subkey(self.keys.noise_key(key_day), Purpose.COMMITMENT)
        return hmac.new(key, label(self.site, release, end, *attempt, digest), sha256).hexdigest()[:32]

    def charge(
        self, state: ReleaseState, record: CountRecord | ThresholdRecord | AttributeRecord, *, end: Micros,
        key_day: int, commitment: str,
        zones: Collection[str] = (),
    ) -> Published:  # fmt: skip
        """Write a record's ledger entry, before the record is published; return the entry.

        Args:
            state: contains the ledger, which is updated.
            record: a record with a reason is a denial, which costs nothing.
            end: end of the window or of the local day.
            key_day: the day whose budget pays.
            commitment: commits to the record's input.
            zones: the zones of a count release.
        """
        keep = LONGEST_W * max(self.tick_length, HOUR)
        posting = Posting(
            record.release, record.audience, record.release_id, self.attempt, end, keep,
            key_day, record.epsilon, nano(Fraction(record.spend)), record.reason, commitment, zones,
        )  # fmt: skip
        state.ledger, entry = self.ledger.enter(state.ledger, posting)
        return Published(AUDIT, self.site, entry, end, f"{self.site}/{state.ledger.sequence - 1}")
