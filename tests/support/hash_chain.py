"""Check the ledger's hash chain by itself."""

from __future__ import annotations

from collections.abc import Iterable

from stream.accounting.audit import Audit
from stream.accounting.ledger import Entry


def verify_chain(entries: Iterable[Entry], audit_key: bytes | None = None) -> None:
    """Check hash chains from their first entries, without any witness; AuditError names the first that is wrong."""
    Audit({}, audit_key).chains(entries)
