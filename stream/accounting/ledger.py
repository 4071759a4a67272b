"""The ledger: every spend of a site, in order, in a hash chain, in integers.

A charge is made before its record is published, in units of 1e-9 of an epsilon, under the record's id and
attempt; the same id is never charged twice. Budgets run on UTC days of the window's start. What a budget
cannot pay is refused, and the refusal is an entry too. Whether something is refused depends on earlier
entries and the policy alone, never on counts.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson

from stream.accounting.spells import Spell, add_window, since, windows_within
from stream.errors import FinalityError
from stream.records import Micros
from stream.schemas import AuditEntry, rfc3339

REMEMBERED_DAYS = 366
"""No daily budget lasts longer."""
GENESIS = "0" * 64
"""What the first entry names as its predecessor's hash."""


@dataclass(slots=True)
class LedgerState:
    """Where a site's chain stands and what each ``release/audience`` has spent."""

    sequence: int = 0
    head: str = GENESIS
    spent: dict[str, dict[int, int]] = field(default_factory=dict)
    """``release/audience`` -> UTC day of the window's start -> nano-epsilon, as far back as daily budgets look."""
    recent: dict[str, list[Spell]] = field(default_factory=dict)
    """``release/audience`` -> the latest windows, as far back as sliding budgets of any policy may look."""

    def remember(self, account: str, day: int, end: Micros, nano: int) -> None:
        """Add what an account has spent."""
        days = self.spent.setdefault(account, {})
        days[day] = days.get(day, 0) + nano
        add_window(self.recent.setdefault(account, []), end, nano)

    def forget(self, account: str, day: int, end: Micros) -> None:
        """Let go of what an account spent on days before ``day`` and windows that end at ``end`` or earlier."""
        if account in self.spent:
            self.spent[account] = {old: nano for old, nano in self.spent[account].items() if old >= day}
            self.recent[account] = since(self.recent[account], end)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Writes one site's entries."""

    site: str
    ledger: str
    audit_key: bytes = field(repr=False)
    policy_version: str
    laboratory: bool

    def enter(
        self, state: LedgerState, *, release: str, audience: str, release_id: str, attempt: int,
        window_end: Micros, keep: Micros, day: int, epsilon: str, nano: int, refusal: str | None,
        commitment: str,
    ) -> tuple[LedgerState, bytes]:  # fmt: skip
        """Append a charge, or a refusal; return the next state and the entry's bytes.

        ``day`` is the UTC day whose budget pays; windows older than ``keep`` leave the sliding sums.
        """
        charged = 0 if refusal else nano
        body = {
            "sequence": state.sequence, "previous": state.head, "ledger": self.ledger, "site": self.site,
            "release_id": release_id, "attempt": attempt, "audience": audience, "release": release,
            "window_end": rfc3339(window_end), "epsilon": epsilon, "nano": charged,
            "outcome": refusal or "released", "policy_version": self.policy_version, "commitment": commitment,
        }  # fmt: skip
        digest = chain_hash(body | {"laboratory": self.laboratory})
        mac = hmac.new(self.audit_key, digest.encode(), hashlib.sha256).hexdigest()
        entry = AuditEntry.model_validate(body | {"hash": digest, "mac": mac, "laboratory": self.laboratory})
        account = f"{release}/{audience}"
        state.forget(account, day - REMEMBERED_DAYS, window_end - keep)
        if charged:
            state.remember(account, day, window_end, charged)
        return LedgerState(state.sequence + 1, digest, state.spent, state.recent), entry.to_bytes()


def spent_on(state: LedgerState, account: str, days: range) -> int:
    """Return the nano-epsilon an account has spent on some UTC days."""
    return sum(nano for day, nano in state.spent.get(account, {}).items() if day in days)


def spent_around(state: LedgerState, account: str, end: Micros, span: Micros) -> int:
    """Return the most that an account has spent on windows that end within any ``span`` around ``end``.

    Both ends of a span belong to it. Live windows have none after them; windows of the past may.
    """
    rows = sorted(windows_within(state.recent.get(account, []), end - span, end + span))
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


def refuse_other(published: bytes, again: bytes, site: str) -> None:
    """Raise FinalityError unless a released window comes out again with the same entry."""
    if published != again:
        sequence = orjson.loads(published)["sequence"]
        msg = f"site {site}: ledger entry {sequence} was published and would now differ; nothing is released"
        raise FinalityError(msg)


def encode_ledger(state: LedgerState) -> dict[str, Any]:
    """Return the JSON form of a ledger state."""
    spent = {account: sorted(days.items()) for account, days in sorted(state.spent.items())}
    return {
        "sequence": state.sequence,
        "head": state.head,
        "spent": spent,
        "recent": {account: [list(spell) for spell in spells] for account, spells in sorted(state.recent.items())},
    }


def decode_ledger(data: dict[str, Any]) -> LedgerState:
    """Return the ledger state of its JSON form."""
    spent = {account: dict(map(tuple, days)) for account, days in data["spent"].items()}
    recent = {account: [Spell(*row) for row in rows] for account, rows in data["recent"].items()}
    return LedgerState(data["sequence"], data["head"], spent, recent)
