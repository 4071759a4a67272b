"""The ledger: all charges of a site, in order, in a hash chain, in integers.

A charge is written before its record is published, in units of 1e-9 of an epsilon, under the record's id and attempt.
Budgets refer to the UTC day of the window's start. A window that a budget cannot pay is denied, and the denial is also
an entry. A denial depends on earlier entries and the policy alone, never on counts.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import orjson

from stream.accounting.charge_runs import ChargeRun, add_window, runs_after, windows_within
from stream.errors import FinalityError
from stream.policy.fields import NANO
from stream.policy.sites import current_names
from stream.records import Micros
from stream.schemas import AuditEntry, rfc3339

REMEMBERED_DAYS = 366
"""Longest period of a daily budget."""
GENESIS = "0" * 64
"""The predecessor's hash in the first entry."""

Entry = Mapping[str, Any]
"""The JSON object of an ``AuditEntry``."""


class ChargeEvent(NamedTuple):
    """A charge or a denial: what one ledger entry records, and what every view of the ledger is built from."""

    release: str
    audience: str
    release_id: str
    attempt: int
    window_end: Micros
    """End of the window or of the local day."""
    key_day: int
    """UTC day whose budget pays: of the start of the window or of the local day."""
    epsilon: str
    """Decimal string, as in the record."""
    nano: int
    """Cost of the record, in 1e-9 of an epsilon; 0 for a denial."""
    denial: str | None
    """The reason for a denial; None for a charge."""
    zones: tuple[str, ...] = ()
    """Zones of a count release."""

    @property
    def account(self) -> str:
        """The account that pays; it depends on the zones, so that each sum is for known zones."""
        account = f"{self.release}/{self.audience}"
        if not self.zones:
            return account
        return f"{account}/{hashlib.sha256('/'.join(sorted(self.zones)).encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class Spending:
    """The spending of one account."""

    zones: tuple[str, ...] = ()
    """Zones of a count release, under every id that they have had since."""
    days: dict[int, int] = field(default_factory=dict)
    """UTC day of the window's start -> nano-epsilon, for the longest period of a daily budget."""
    windows: list[ChargeRun[int]] = field(default_factory=list)
    """The latest windows and their nano-epsilon, for the longest sliding budget of any policy."""


@dataclass(slots=True)
class BudgetView:
    """What budgets read of the ledger: the spending of each account (``ChargeEvent.account``)."""

    accounts: dict[str, Spending] = field(default_factory=dict)

    def apply(self, event: ChargeEvent) -> None:
        """Add the charge of an event; events without cost change nothing."""
        if not event.nano:
            return
        spending = self.accounts.setdefault(event.account, Spending(tuple(sorted(event.zones))))
        spending.days[event.key_day] = spending.days.get(event.key_day, 0) + event.nano
        add_window(spending.windows, event.window_end, event.nano)

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Extend the zones of each account by every name that they have now (``zones_now``)."""
        for spending in self.accounts.values():
            spending.zones = current_names(spending.zones, now)

    def forget(self, account: str, key_day: int, end: Micros) -> None:
        """Drop an account's spending on days before ``key_day`` and on windows that end at ``end`` or earlier."""
        spending = self.accounts.get(account)
        if spending is not None:
            spending.days = {day: nano for day, nano in spending.days.items() if day >= key_day}
            spending.windows = runs_after(spending.windows, end)

    def on_days(self, accounts: Iterable[str], key_days: range) -> int:
        """Return the nano-epsilon that accounts have spent on some key days."""
        return sum(
            nano
            for name in accounts
            if name in self.accounts
            for key_day, nano in self.accounts[name].days.items()
            if key_day in key_days
        )

    def around(self, accounts: Iterable[str], end: Micros, span: Micros) -> int:
        """Return the largest sum that accounts have spent on windows that end within any ``span`` around ``end``.

        Both ends belong to a span. A late window may have later windows after it, a live window has none.
        """
        runs = [self.accounts[name].windows for name in accounts if name in self.accounts]
        rows = sorted(row for each in runs for row in windows_within(each, end - span, end + span))
        within = deque(row for row in rows if row[0] <= end)
        most = total = sum(nano for _, nano in within)
        for row in rows[len(within) :]:  # the span that ends with each later window
            within.append(row)
            total += row[1]
            while within[0][0] < row[0] - span:
                total -= within.popleft()[1]
            most = max(most, total)
        return most


@dataclass(slots=True)
class LedgerState:
    """The head of a site's hash chain, and what budgets read of its entries."""

    sequence: int = 0
    head: str = GENESIS
    budgets: BudgetView = field(default_factory=BudgetView)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Writes one site's entries."""

    site: str
    ledger: str
    audit_key: bytes = field(repr=False)
    policy_version: str
    laboratory: bool

    keep: Micros
    """Windows that ended longer ago leave the sliding sums."""

    def enter(self, state: LedgerState, event: ChargeEvent, commitment: str) -> tuple[LedgerState, bytes]:
        """Append a charge, or a denial; return the next state, which has the same budgets, and the entry's bytes."""
        if event.denial:
            event = event._replace(nano=0)
        body = {
            "sequence": state.sequence, "previous": state.head, "ledger": self.ledger, "site": self.site,
            "release_id": event.release_id, "attempt": event.attempt, "audience": event.audience,
            "release": event.release, "window_end": rfc3339(event.window_end), "epsilon": event.epsilon,
            "nano": event.nano, "outcome": event.denial or "released", "policy_version": self.policy_version,
            "commitment": commitment,
        }  # fmt: skip
        digest = chain_hash(body | {"laboratory": self.laboratory})
        mac = hmac.new(self.audit_key, digest.encode(), hashlib.sha256).hexdigest()
        entry = AuditEntry.model_validate(body | {"hash": digest, "mac": mac, "laboratory": self.laboratory})
        state.budgets.forget(event.account, event.key_day - REMEMBERED_DAYS, event.window_end - self.keep)
        state.budgets.apply(event)
        return replace(state, sequence=state.sequence + 1, head=digest), entry.to_bytes()


def nano(epsilon: Fraction) -> int:
    """Return an epsilon in the ledger's unit, rounded up: no charge is smaller than its epsilon."""
    return math.ceil(epsilon * NANO)


def owner_of_account(account: str) -> tuple[str, str]:
    """Return the release and the audience of an account."""
    release, audience, *_ = account.split("/")
    return release, audience


def chain_hash(body: Mapping[str, object]) -> str:
    """Return the hash of an entry without its ``hash``, ``mac`` and ``v``: SHA-256 of its sorted JSON."""
    covered = {name: value for name, value in body.items() if name not in {"hash", "mac", "v"}}
    return hashlib.sha256(orjson.dumps(covered, option=orjson.OPT_SORT_KEYS)).hexdigest()


REPEATED = (
    "it is repeated by the options and observations that produced it; otherwise only a new ledger can continue, which "
    "'tacet key retire' begins"
)
"""Advice for a state whose next entries differ from the published ones."""


def refuse_other(published: bytes, again: bytes, site: str, advice: str = REPEATED) -> None:
    """Raise FinalityError unless a released window yields the same entry again."""
    if published != again:
        sequence = orjson.loads(published)["sequence"]
        msg = f"site {site}: ledger entry {sequence} was published and would now differ; nothing is released; {advice}"
        raise FinalityError(msg)
