"""Whether the books are whole: the audit chain of every site, what its state and mark remember, and what was published.

Everything here reads entries and records that have been published. Who can write where they lie can also take
some away; an audit chain alone does not show that its end is missing, so its length and head are compared with what
else remembers them (``Witness``).
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import sha256
from typing import Any, NamedTuple

from stream.accounting.ledger import GENESIS, chain_hash
from stream.errors import AuditError
from stream.policy.document import NANO

Entry = Mapping[str, Any]


class Link(NamedTuple):
    """Where a site's audit chain stands: how many entries it has, and the hash of the last."""

    sequence: int = 0
    head: str = GENESIS


class Witness(NamedTuple):
    """What something besides the audit chain remembers of it."""

    name: str
    """Such as "the state"."""
    link: Link


@dataclass(frozen=True, slots=True)
class Audit:
    """What every site's audit chain must fit."""

    witnesses: Mapping[str, Sequence[Witness]]
    """By site; a site that is here must have entries unless its witnesses know of none."""
    audit_key: bytes | None = None
    """Signs the entries; without it signatures are not checked."""
    signed_from: Mapping[str, int] = field(default_factory=dict)
    """By site the first entry that this key has signed, where a ledger goes on with what another one spent."""

    def chains(self, entries: Iterable[Entry]) -> dict[str, Link]:
        """Follow all sites' entries, each site's in order; return where the audit chains stand.

        Raises:
            AuditError: names the first entry that is wrong or missing.
        """
        links: dict[str, Link] = {}
        lengths = {site: _by_length(witnesses) for site, witnesses in self.witnesses.items()}
        for entry in entries:
            site = str(entry.get("site"))
            link = links[site] = self._follow(site, links.get(site, Link()), entry)
            for name, head in lengths.get(site, {}).get(link.sequence, ()):
                if head != link.head:
                    msg = f"audit: site {site}: entry {link.sequence - 1} must be the one that {name} knows"
                    raise AuditError(msg)
        for site, witnesses in self.witnesses.items():
            link = links.get(site, Link())
            for name, known in witnesses:
                if known.sequence > link.sequence:
                    where = f"audit: site {site}: entry {link.sequence}"
                    msg = f"{where} is missing; {name} knows of {known.sequence} entries"
                    raise AuditError(msg)
        return links

    def _follow(self, site: str, link: Link, entry: Entry) -> Link:
        where = f"audit: site {site}: entry {link.sequence}"
        if entry.get("sequence") != link.sequence or entry.get("previous") != link.head:
            msg = f"{where} must be there and follow the one before it"
            raise AuditError(msg)
        if chain_hash(dict(entry)) != entry.get("hash"):
            msg = f"{where} must have the hash of what it says"
            raise AuditError(msg)
        head = str(entry["hash"])
        if self.audit_key is not None and link.sequence >= self.signed_from.get(site, 0):
            mac = hmac.new(self.audit_key, head.encode(), sha256).hexdigest()
            if not hmac.compare_digest(mac, str(entry.get("mac"))):
                msg = f"{where} must be signed with the audit key"
                raise AuditError(msg)
        return Link(link.sequence + 1, head)


def _by_length(witnesses: Iterable[Witness]) -> dict[int, list[tuple[str, str]]]:
    """Return who knows of which head, by the number of entries that the audit chain then has."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for name, link in witnesses:
        found[link.sequence].append((name, link.head))
    return found


def compare_records(
    entries: Iterable[Entry], records: Iterable[Mapping[str, Any]], *, all_kept: bool,
    unreleased: frozenset[str] = frozenset(),
) -> int:  # fmt: skip
    """Compare charges with what was published, answers to queries aside; return how many records were compared.

    What revises a record costs nothing, and must revise one that was charged.

    Args:
        entries: all sites' entries in order.
        records: private records of all audiences.
        all_kept: whether every record is still there; else those that a topic no longer or not yet holds may
            be missing.
        unreleased: ids of charges whose records were never published, by what the ledger behind them says.

    Raises:
        AuditError: names the first entry whose record is missing or says something else, or the first record
            that was never charged.
    """
    counted = [record for record in records if "/" not in record["mechanism"]]
    published = {str(record["release_id"]): record for record in counted if "revises" not in record}
    kept = None if all_kept else _kept(published.values())
    charged = set()
    for entry in entries:
        name = str(entry["release_id"])
        where = f"audit: site {entry['site']}: entry {entry['sequence']}"
        if name in charged:
            msg = f"{where} must not charge a second time for {name}"
            raise AuditError(msg)
        charged.add(name)
        if name in published:
            _refuse_difference(where, entry, published[name])
        elif name in unreleased:
            continue
        elif kept is None or kept.get(_topic(entry), _NOTHING).holds(entry["window_end"]):
            msg = f"{where} must have its record {name}"
            raise AuditError(msg)
    for name, record in published.items():
        if name not in charged and record["spend"] != "0":
            msg = f"audit: site {record['site']}: record {name} must have been charged"
            raise AuditError(msg)
    for record in counted:
        if "revises" in record and (record["revises"] not in charged or record["spend"] != "0"):
            where = f"audit: site {record['site']}: record {record['release_id']}"
            raise AuditError(f"{where} must revise, at no cost, a record that was charged")
    return len(published)


def _refuse_difference(where: str, entry: Entry, record: Mapping[str, Any]) -> None:
    report = entry["epsilon"], entry["nano"], entry["outcome"]
    spend = Fraction(record["spend"])
    if report != (record["epsilon"], int(spend * NANO), record["reason"] or "released"):
        msg = f"{where} must charge what its record {record['release_id']} says: epsilon, spend and outcome"
        raise AuditError(msg)


class _Span(NamedTuple):
    """Ends of the first and the last window of which a topic holds a site's record; RFC 3339 texts sort as times."""

    first: str
    last: str

    def holds(self, window_end: str) -> bool:
        return self.first <= window_end <= self.last


_NOTHING = _Span("~", "")


def _topic(body: Mapping[str, Any]) -> tuple[str, str, str]:
    return body["site"], body["audience"], body["release"]


def _kept(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], _Span]:
    ends: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for record in records:
        ends[_topic(record)].append(record["window_end"])
    return {topic: _Span(min(each), max(each)) for topic, each in ends.items()}
