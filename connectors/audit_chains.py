"""Audit chains at the edges: entries as they were written, and what a state remembers of each site's audit chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stream.accounting.audit import Audit, Link, Witness
from stream.errors import AuditError, DataError
from stream.runners.snapshot import chains
from stream.schemas import parse_record

Heads = dict[str, Link]


def audit_of(states: Iterable[Heads], mark: Heads | None = None, audit_key: bytes | None = None) -> Audit:
    """Return what audit chains must fit: what states, and the mark, remember of them."""
    known = [("the state", heads) for heads in states] + ([] if mark is None else [("the mark", mark)])
    sites = {site for _, heads in known for site in heads}
    return Audit({s: [Witness(name, heads[s]) for name, heads in known if s in heads] for s in sites}, audit_key)


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
