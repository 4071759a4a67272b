"""The ledger: every spend of a site, in order, in a hash chain, in integers.

A charge is made before its record is published, in units of 1e-9 of an epsilon, under the record's id and
attempt; the same id is never charged twice. Budgets run on UTC days of the window's start. What a budget
cannot pay is refused, and the refusal is an entry too. Whether something is refused depends on earlier
entries and the policy alone, never on counts.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any

import orjson

from stream.errors import DataError, FinalityError
from stream.records import Micros
from stream.schemas import AuditEntry, rfc3339

GENESIS = "0" * 64
"""What the first entry names as its predecessor's hash."""


@dataclass(slots=True)
class LedgerState:
    """Where a site's chain stands and what each ``release/audience`` has spent."""

    sequence: int = 0
    head: str = GENESIS
    spent: dict[str, dict[int, int]] = field(default_factory=dict)
    """``release/audience`` -> budget period -> nano-epsilon."""
    recent: dict[str, list[tuple[Micros, int]]] = field(default_factory=dict)
    """``release/audience`` -> (end, nano-epsilon) of the latest windows, as far back as w-event budgets look."""


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
        window_end: Micros, keep: Micros, period: int, epsilon: str, nano: int, refusal: str | None,
        commitment: str,
    ) -> tuple[LedgerState, bytes]:  # fmt: skip
        """Append a charge, or a refusal; return the next state and the entry's bytes.

        ``period`` is the budget period that pays; windows older than ``keep`` leave the sliding sums.
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
        paid = {old: nano for old, nano in state.spent.get(account, {}).items() if old >= period - 1}
        recent = [row for row in state.recent.get(account, []) if row[0] > window_end - keep]
        state.spent[account] = paid | {period: paid.get(period, 0) + charged}
        state.recent[account] = [*recent, (window_end, charged)] if charged else recent
        return LedgerState(state.sequence + 1, digest, state.spent, state.recent), entry.to_bytes()


def spent_in(state: LedgerState, account: str, period: int) -> int:
    """Return the nano-epsilon an account has spent in a budget period."""
    return state.spent.get(account, {}).get(period, 0)


def spent_since(state: LedgerState, account: str, start: Micros) -> int:
    """Return the nano-epsilon an account has spent on windows that end at ``start`` or later."""
    return sum(nano for end, nano in state.recent.get(account, []) if end >= start)


def chain_hash(body: dict[str, Any]) -> str:
    """Return the hash of an entry without its ``hash``, ``mac`` and ``v``: SHA-256 of its sorted JSON."""
    covered = {name: value for name, value in body.items() if name not in {"hash", "mac", "v"}}
    return hashlib.sha256(orjson.dumps(covered, option=orjson.OPT_SORT_KEYS)).hexdigest()


def verify_chain(entries: list[dict[str, Any]], audit_key: bytes | None = None) -> None:
    """Check one site's whole chain from its first entry; DataError names the first entry that is wrong."""
    head = GENESIS
    for number, entry in enumerate(entries):
        if entry["sequence"] != number or entry["previous"] != head or chain_hash(entry) != entry["hash"]:
            msg = f"audit chain: entry {number} of {entry['site']} must follow the one before it"
            raise DataError(msg)
        head = entry["hash"]
        if audit_key is not None:
            mac = hmac.new(audit_key, head.encode(), hashlib.sha256).hexdigest()
            if not hmac.compare_digest(mac, entry["mac"]):
                msg = f"audit chain: entry {number} of {entry['site']} must be signed with the audit key"
                raise DataError(msg)


def refuse_other(published: bytes, again: bytes, site: str) -> None:
    """Raise FinalityError unless a released window comes out again with the same entry."""
    if published != again:
        sequence = orjson.loads(published)["sequence"]
        msg = f"site {site}: ledger entry {sequence} was published and would now differ; nothing is released"
        raise FinalityError(msg)


def encode_ledger(state: LedgerState) -> dict[str, Any]:
    """Return the JSON form of a ledger state."""
    spent = {account: sorted(periods.items()) for account, periods in sorted(state.spent.items())}
    return {
        "sequence": state.sequence,
        "head": state.head,
        "spent": spent,
        "recent": dict(sorted(state.recent.items())),
    }


def decode_ledger(data: dict[str, Any]) -> LedgerState:
    """Return the ledger state of its JSON form."""
    spent = {account: dict(map(tuple, periods)) for account, periods in data["spent"].items()}
    recent = {account: [(end, nano) for end, nano in rows] for account, rows in data["recent"].items()}
    return LedgerState(data["sequence"], data["head"], spent, recent)
