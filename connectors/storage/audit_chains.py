"""Audit chains at the edges: entries as they were written, and what a state remembers of each site's audit chain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stream.accounting.audit import Audit, Link, Witness
from stream.accounting.beginnings import Beginning, begun_at, known_by
from stream.accounting.signed_heads import SignedHead, witnesses
from stream.errors import AuditError, DataError
from stream.runners.snapshot import chains
from stream.schemas import parse_record

Heads = dict[str, Link]


def audit_of(
    states: Iterable[Heads], mark: Heads | None = None, audit_key: bytes | None = None,
    signed: Iterable[SignedHead] = (), beginnings: Sequence[Beginning] = (), ledger: str = "",
) -> Audit:  # fmt: skip
    """Return what audit chains must fit: what states, the mark, signed heads and ledgers that follow remember of them.

    AuditError where the beginning of ``ledger``, whose key is given, was not signed with that.
    """
    known = [("the state", heads) for heads in states] + ([] if mark is None else [("the mark", mark)])
    found: dict[str, list[Witness]] = defaultdict(list)
    for name, heads in known:
        for site, link in heads.items():
            found[site].append(Witness(name, link))
    for site, witness in (*witnesses(signed), *known_by(beginnings)):
        found[site].append(witness)
    return Audit(found, audit_key, {} if audit_key is None else begun_at(beginnings, ledger, audit_key))


def parse_entries(values: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield audit entries; AuditError where one is none."""
    try:
        yield from map(parse_record, values)
    except DataError:
        msg = "audit: every entry must be a JSON object"
        raise AuditError(msg) from None


def heads_of(snapshot: bytes | None) -> Heads:
    """Return what a state remembers of its sites' audit chains."""
    return {} if snapshot is None else {site: Link(*chain) for site, chain in chains(snapshot).items()}
