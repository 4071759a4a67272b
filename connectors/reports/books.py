"""The books, and whether they are whole: audit chains, what states and marks know of them, and what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from connectors.audit_chains import Heads, audit_of, heads_of, parse_entries
from connectors.embedded.readings import (
    read_books,
    read_earlier,
    read_identity,
    read_policies,
    read_published,
    read_topic,
)
from connectors.embedded.rollback_mark import read_mark
from connectors.reports.commitments import compare_commitments
from connectors.reports.ended_ledgers import keys_of, refuse_heads, refuse_retired
from stream.accounting.audit import Audit, Link, compare_records
from stream.accounting.beginnings import Beginning, unreleased
from stream.accounting.signed_heads import SignedHead
from stream.errors import AuditError
from stream.keys import Keys
from stream.policy.document import Policy
from stream.schemas import OCCUPANCY, parse_record
from stream.vault import Vault

UNCHECKED = ("signatures", "head against the mark", "commitments")
"""What cannot be checked without key file and mark; commitments need the true counts too."""


def _nothing_counted(vault: Vault | None) -> list[bytes]:
    del vault
    return []


@dataclass(slots=True)
class Books:
    """What has been published and what the states remember of it."""

    entries: list[dict[str, Any]]
    states: list[Heads]
    records: list[dict[str, Any]] = field(default_factory=list)
    all_kept: bool = True
    """Whether every record that was ever published is still there."""
    policies: list[bytes] = field(default_factory=list)
    counted: Callable[[Vault | None], list[bytes]] = _nothing_counted
    """Gives the records of true counts, where they are published, still kept and not without their key (restricted)."""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    """Entries of ledgers that have ended, and whose budgets and account this one goes on with."""
    beginnings: list[Beginning] = field(default_factory=list)
    """Where ledgers begin that go on in the chains of one whose key was retired."""
    states_read: bool = True
    """Whether the reader could see the states: without them nobody misses entries that are gone from the end."""

    def audit(
        self, mark: Heads | None = None, keys: Keys | None = None, signed: Sequence[SignedHead] = ()
    ) -> Audit:  # fmt: skip
        """Return what the audit chains must fit; AuditError where the beginning of the keys' ledger is forged."""
        audit_key, ledger = (None, "") if keys is None else (keys.audit, keys.ledger)
        return audit_of(self.states, mark, audit_key, signed, self.beginnings, ledger)


def store_books(folder: Path, *, records: bool = False) -> Books:
    """Return a store's books; ``records`` reads what was published too."""
    snapshot, entries = read_books(folder)
    published = [parse_record(value) for value in read_published(folder)] if records else []
    return Books(
        list(parse_entries(entries)), [heads_of(snapshot)], published, policies=read_policies(folder),
        earlier=list(parse_entries(read_earlier(folder))),
        counted=partial(read_topic, folder, OCCUPANCY) if records else _nothing_counted,
    )  # fmt: skip


def with_kept(kept: Iterable[bytes], given: Iterable[Policy]) -> list[Policy]:
    """Return the policies whose documents were kept beside the books, and those given besides."""
    policies = [*map(Policy.from_document, kept), *given]
    return list({policy.version: policy for policy in reversed(policies)}.values())


def verified(books: Books) -> list[dict[str, Any]]:
    """Return the entries once audit chains and states fit, after those of ledgers that this one goes on from.

    AuditError names the first break.
    """
    books.audit().chains(books.entries)
    return [*books.earlier, *books.entries]


def _unchecked(books: Books, signed: bool, marked: bool, counted: bool) -> list[str]:
    """Return what could not be checked: without the key, without a mark (Kafka has none), without true counts."""
    checked = (signed, marked, signed and counted)
    found = [what for what, done in zip(UNCHECKED, checked, strict=True) if not done]
    return found if books.states_read else ["head against the state", *found]


def _covered(heads: Heads, last: SignedHead) -> dict[str, Any]:
    """Return how far the last signed head reaches: of what came later nobody has signed anything yet."""
    later = sum(link.sequence - last.sites.get(site, Link()).sequence for site, link in heads.items())
    return {"heads": last.number + 1, "until": last.time, "later_entries": later}


def verify(
    books: Books, store: Path | None, key_file: Path | None, signed: Sequence[SignedHead] = ()
) -> dict[str, Any]:
    """Check everything that can be checked; return the findings of ``tacet audit verify``.

    ``signed`` are heads whose signatures have been checked.
    """
    report: dict[str, Any] = {"ok": True, "entries": len(books.entries), "sites": {}, "first_break": None}
    report |= {"records": 0, "commitments": 0, "unchecked": list(UNCHECKED)}
    refuse_heads(signed, books.earlier)
    try:
        mark, keys = None, None
        if key_file is not None:
            keys = keys_of(key_file)
            refuse_retired(keys.ledger, books.earlier, books.entries, books.beginnings)
            if store is not None:
                mark = {site: Link(*chain) for site, chain in read_mark(key_file, read_identity(store)).items()}
        heads = books.audit(mark, keys, signed).chains(books.entries)
        counted = [] if keys is None else [parse_record(value) for value in books.counted(keys.data)]
        report["unchecked"] = _unchecked(books, keys is not None, mark is not None, bool(counted))
        report["sites"] = {site: link._asdict() for site, link in sorted(heads.items())}
        never = unreleased(books.beginnings, books.entries)
        report["records"] = compare_records(books.entries, books.records, all_kept=books.all_kept, unreleased=never)
        if keys is not None:
            known = with_kept(books.policies, ())
            own = [entry for entry in books.entries if entry["ledger"] == keys.ledger]
            report["commitments"] = compare_commitments(own, counted, known, keys)
        if signed:
            report["signed"] = _covered(heads, signed[-1])
    except AuditError as problem:
        report |= {"ok": False, "first_break": str(problem)}
    return report
