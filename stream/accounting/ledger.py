"""The ledger: all charges of a site, in order, in a hash chain, in integers.

A charge is written before its record is published, in units of 1e-9 of an epsilon, under the record's id and
attempt; the same id is never charged twice. Budgets refer to the UTC day of the window's start. A window that a budget
cannot pay is denied, and the denial is also an entry. A denial depends on earlier entries and the policy alone, never
on counts.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from stream.accounting.charges import ChargeRun, add_window, renamed, runs_after, windows_within
from stream.errors import FinalityError
from stream.records import Micros
from stream.schemas import AuditEntry, rfc3339

REMEMBERED_DAYS = 366
"""Longest period of a daily budget."""
GENESIS = "0" * 64
"""The predecessor's hash in the first entry."""


@dataclass(slots=True)
class LedgerState:
    """The head of a site's hash chain, and the spending of each account (``account_of``)."""

    sequence: int = 0
    head: str = GENESIS
    spent: dict[str, dict[int, int]] = field(default_factory=dict)
    """Account -> UTC day of the window's start -> nano-epsilon, for the longest period of a daily budget."""
    recent: dict[str, list[ChargeRun[int]]] = field(default_factory=dict)
    """Account -> the latest windows, for the longest sliding budget of any policy."""
    zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Account of a count release -> its zones, under every id that they have had since."""

    def remember(self, account: str, key_day: int, end: Micros, nano: int, zones: Iterable[str] = ()) -> None:
        """Add the spending of an account; ``zones`` are those of a count release."""
        if zones:
            self.zones.setdefault(account, tuple(sorted(zones)))
        days = self.spent.setdefault(account, {})
        days[key_day] = days.get(key_day, 0) + nano
        add_window(self.recent.setdefault(account, []), end, nano)

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Extend the zones of each account by every name that they have now (``zones_now``)."""
        self.zones = {account: renamed(zones, now) for account, zones in self.zones.items()}

    def forget(self, account: str, key_day: int, end: Micros) -> None:
        """Drop an account's spending on days before ``key_day`` and on windows that end at ``end`` or earlier."""
        if account in self.spent:
            self.spent[account] = {old: nano for old, nano in self.spent[account].items() if old >= key_day}
            self.recent[account] = runs_after(self.recent[account], end)


class Posting(NamedTuple):
    """The ledger entry of one record, before it is appended."""

    release: str
    audience: str
    release_id: str
    attempt: int
    window_end: Micros
    """End of the window or of the local day."""
    keep: Micros
    """Windows that ended longer ago leave the sliding sums."""
    key_day: int
    """The day whose budget pays."""
    epsilon: str
    """Decimal string, as in the record."""
    nano: int
    """Cost of the record, in 1e-9 of an epsilon."""
    denial: str | None
    """The reason for a denial; None for a charge."""
    commitment: str
    zones: Collection[str] = ()
    """Zones of a count release."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Writes one site's entries."""

    site: str
    ledger: str
    audit_key: bytes = field(repr=False)
    policy_version: str
    laboratory: bool

    def enter(self, state: LedgerState, posting: Posting) -> tuple[LedgerState, bytes]:
        """Append a charge, or a denial; return the next state and the entry's bytes."""
        charged = 0 if posting.denial else posting.nano
        body = {
            "sequence": state.sequence, "previous": state.head, "ledger": self.ledger, "site": self.site,
            "release_id": posting.release_id, "attempt": posting.attempt, "audience": posting.audience,
            "release": posting.release, "window_end": rfc3339(posting.window_end), "epsilon": posting.epsilon,
            "nano": charged, "outcome": posting.denial or "released", "policy_version": self.policy_version,
            "commitment": posting.commitment,
        }  # fmt: skip
        digest = chain_hash(body | {"laboratory": self.laboratory})
        mac = hmac.new(self.audit_key, digest.encode(), hashlib.sha256).hexdigest()
        entry = AuditEntry.model_validate(body | {"hash": digest, "mac": mac, "laboratory": self.laboratory})
        account = account_of(posting.release, posting.audience, posting.zones)
        state.forget(account, posting.key_day - REMEMBERED_DAYS, posting.window_end - posting.keep)
        if charged:
            state.remember(account, posting.key_day, posting.window_end, charged, posting.zones)
        return replace(state, sequence=state.sequence + 1, head=digest), entry.to_bytes()


def account_of(release: str, audience: str, zones: Iterable[str]) -> str:
    """Return the account of a release's audience; it depends on the zones, so that each sum is for known zones."""
    name, listed = f"{release}/{audience}", "/".join(sorted(zones))
    return f"{name}/{hashlib.sha256(listed.encode()).hexdigest()[:16]}" if listed else name


def owner_of_account(account: str) -> tuple[str, str]:
    """Return the release and the audience of an account."""
    release, audience, *_ = account.split("/")
    return release, audience


def spent_on(state: LedgerState, accounts: Iterable[str], key_days: range) -> int:
    """Return the nano-epsilon that accounts have spent on some key days."""
    return sum(nano for name in accounts for key_day, nano in state.spent.get(name, {}).items() if key_day in key_days)


def spent_around(state: LedgerState, accounts: Iterable[str], end: Micros, span: Micros) -> int:
    """Return the largest sum that accounts have spent on windows that end within any ``span`` around ``end``.

    Both ends belong to a span. A late window may have later windows after it, a live window has none.
    """
    rows = sorted(
        row for account in accounts for row in windows_within(state.recent.get(account, []), end - span, end + span)
    )
    held = deque(row for row in rows if row[0] <= end)
    most = total = sum(nano for _, nano in held)
    for row in rows[len(held) :]:  # the span that ends with each later window
        held.append(row)
        total += row[1]
        while held[0][0] < row[0] - span:
            total -= held.popleft()[1]
        most = max(most, total)
    return most


def chain_hash(body: dict[str, Any]) -> str:
    """Return the hash of an entry without its ``hash``, ``mac`` and ``v``: SHA-256 of its sorted JSON."""
    covered = {name: value for name, value in body.items() if name not in {"hash", "mac", "v"}}
    return hashlib.sha256(orjson.dumps(covered, option=orjson.OPT_SORT_KEYS)).hexdigest()


REPEATED = (
    "the options and observations that made it make it again, otherwise only a new ledger can go on; "
    "'tacet key retire' begins one"
)
"""Advice for a state whose next entries differ from the published ones."""


def refuse_other(published: bytes, again: bytes, site: str, advice: str = REPEATED) -> None:
    """Raise FinalityError unless a released window yields the same entry again."""
    if published != again:
        sequence = orjson.loads(published)["sequence"]
        msg = f"site {site}: ledger entry {sequence} was published and would now differ; nothing is released; {advice}"
        raise FinalityError(msg)


def encode_ledger(state: LedgerState) -> dict[str, Any]:
    """Return the JSON form of a ledger state."""
    spent = {account: sorted(days.items()) for account, days in sorted(state.spent.items())}
    return {
        "sequence": state.sequence,
        "head": state.head,
        "spent": spent,
        "recent": {account: [list(spell) for spell in spells] for account, spells in sorted(state.recent.items())},
        "zones": dict(sorted(state.zones.items())),
    }


def decode_ledger(data: dict[str, Any]) -> LedgerState:
    """Return the ledger state of its JSON form."""
    spent = {account: dict(map(tuple, days)) for account, days in data["spent"].items()}
    recent = {account: [ChargeRun(*row) for row in rows] for account, rows in data["recent"].items()}
    zones = {account: tuple(names) for account, names in data["zones"].items()}
    return LedgerState(data["sequence"], data["head"], spent, recent, zones)
