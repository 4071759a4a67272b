"""Audit chains as the storages keep them: entries, and their links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from stream.accounting.audit import Audit, ChainLink, ChainWitness, LedgerStart, first_signed_entries, witnesses_of
from stream.accounting.ledger import Entry
from stream.accounting.signed_heads import SignedHead, witnesses
from stream.engine.snapshot import chains
from stream.errors import AuditError, DataError
from stream.schemas import parse_record

Heads = dict[str, ChainLink]


def audit_of(
    states: Iterable[Heads], mark: Heads | None = None, audit_key: bytes | None = None,
    signed: Iterable[SignedHead] = (), beginnings: Sequence[LedgerStart] = (), ledger: str = "",
) -> Audit:  # fmt: skip
    """Return an audit that verifies chains against snapshots, the mark, signed heads and the ledgers that follow.

    Raises:
        AuditError: the key of ``ledger`` is given, and the first entry of that ledger was not signed with it.
    """
    known = [("the state", heads) for heads in states] + ([] if mark is None else [("the mark", mark)])
    found: dict[str, list[ChainWitness]] = defaultdict(list)
    for name, heads in known:
        for site, link in heads.items():
            found[site].append(ChainWitness(name, link))
    for site, witness in (*witnesses(signed), *witnesses_of(beginnings)):
        found[site].append(witness)
    return Audit(found, audit_key, {} if audit_key is None else first_signed_entries(beginnings, ledger, audit_key))


def parse_entries(values: Iterable[bytes]) -> Iterator[Entry]:
    """Yield parsed audit entries; raise AuditError for a value that is not one."""
    try:
        yield from map(parse_record, values)
    except DataError:
        msg = "audit: every entry must be a JSON object"
        raise AuditError(msg) from None


def heads_of(snapshot: bytes | None) -> Heads:
    """Return the last link of each site's audit chain, as a snapshot records it."""
    return {} if snapshot is None else {site: ChainLink(*chain) for site, chain in chains(snapshot).items()}
