"""Verification of every site's audit chain against witnesses and records.

This module reads entries and records that have been published. An attacker who can write to their storage can also
remove some. An audit chain alone does not show that its end is missing, so its length and head are compared with all
other places that remember them (``ChainWitness``).

A ledger may continue the chains of another one (``LedgerStart``). On Kafka the ledger and audit log of a cluster stay
in place when a key is lost or stolen: the chains continue under the id and the audit key of the new ledger. The new
ledger signs the state in which it found the chains with its audit key. So entries before its first one need no
signature of that key, and none of them can be removed or exchanged.
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, TypedDict

import orjson

from stream.accounting.ledger import GENESIS, Entry, chain_hash, nano
from stream.domains import Domain
from stream.errors import AuditError
from stream.policy.fields import parse_amount
from stream.records import JsonObject


class ChainLink(NamedTuple):
    """The head of a site's audit chain: its number of entries, and the hash of the last one."""

    sequence: int = 0
    head: str = GENESIS


class ChainWitness(NamedTuple):
    """The head of an audit chain as recorded by a source other than the chain itself."""

    name: str
    """For example "the state"."""
    link: ChainLink


@dataclass(frozen=True, slots=True)
class Audit:
    """The expectations that every site's audit chain must meet."""

    witnesses: Mapping[str, Sequence[ChainWitness]]
    """By site; a listed site must have entries unless its witnesses have recorded none."""
    audit_key: bytes | None = None
    """Key that signs the entries; without it signatures are not checked."""
    signed_from: Mapping[str, int] = field(default_factory=dict)
    """Site -> the first entry that this key has signed, where a ledger continues another one."""

    def chains(self, entries: Iterable[Entry]) -> dict[str, ChainLink]:
        """Verify all sites' entries, each site's in order; return the heads of the audit chains.

        Raises:
            AuditError: names the first entry that is wrong or missing.
        """
        links: dict[str, ChainLink] = {}
        lengths = {site: _by_length(witnesses) for site, witnesses in self.witnesses.items()}
        for entry in entries:
            site = str(entry.get("site"))
            link = links[site] = self._follow(site, links.get(site, ChainLink()), entry)
            for name, head in lengths.get(site, {}).get(link.sequence, ()):
                if head != link.head:
                    msg = f"audit: site {site}: entry {link.sequence - 1} must be the one that {name} knows"
                    raise AuditError(msg)
        for site, witnesses in self.witnesses.items():
            link = links.get(site, ChainLink())
            for name, known in witnesses:
                if known.sequence > link.sequence:
                    where = f"audit: site {site}: entry {link.sequence}"
                    msg = f"{where} is missing; {name} knows of {known.sequence} entries"
                    raise AuditError(msg)
        return links

    def _follow(self, site: str, link: ChainLink, entry: Entry) -> ChainLink:
        where = f"audit: site {site}: entry {link.sequence}"
        if entry.get("sequence") != link.sequence or entry.get("previous") != link.head:
            msg = f"{where} must be there and follow the one before it"
            raise AuditError(msg)
        if chain_hash(dict(entry)) != entry.get("hash"):
            msg = f"{where} must have the hash of its content"
            raise AuditError(msg)
        try:
            parse_amount(entry.get("epsilon"))
        except ValueError as problem:
            raise AuditError(f"{where}: epsilon {problem}") from None
        head = str(entry["hash"])
        if self.audit_key is not None and link.sequence >= self.signed_from.get(site, 0):
            mac = hmac.new(self.audit_key, head.encode(), sha256).hexdigest()
            if not hmac.compare_digest(mac, str(entry.get("mac"))):
                msg = f"{where} must be signed with the audit key"
                raise AuditError(msg)
        return ChainLink(link.sequence + 1, head)


def _by_length(witnesses: Iterable[ChainWitness]) -> dict[int, list[tuple[str, str]]]:
    """Return number of entries of the chain -> the witnesses that recorded its head at that length."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for name, link in witnesses:
        found[link.sequence].append((name, link.head))
    return found


class Compared(NamedTuple):
    """The result of a comparison of charges with published records."""

    records: int
    """The number of records that were compared."""
    missing: list[Entry]
    """Charges whose record is missing."""


def compare_records(
    entries: Iterable[Entry], records: Iterable[JsonObject], *, unreleased: frozenset[str] = frozenset()
) -> Compared:
    """Compare charges with the published records, except answers to queries.

    A revision of a record costs nothing, and must revise a record that was charged.

    Args:
        entries: all sites' entries in order.
        records: private records of all audiences, read after the entries: a charge and its record are published
            together.
        unreleased: ids of charges whose records were never published, according to the ledger after them.

    Raises:
        AuditError: names the first entry whose record differs, or the first record that was never charged.
    """
    counted = [record for record in records if "/" not in record["mechanism"]]
    published = {str(record["release_id"]): record for record in counted if "revises" not in record}
    charged, missing = set(), []
    for entry in entries:
        name = str(entry["release_id"])
        where = f"audit: site {entry['site']}: entry {entry['sequence']}"
        if name in charged:
            msg = f"{where} must not charge a second time for {name}"
            raise AuditError(msg)
        charged.add(name)
        if name in published:
            _refuse_difference(where, entry, published[name])
        elif name not in unreleased:
            missing.append(entry)
    for name, record in published.items():
        if name not in charged and record["spend"] != "0":
            msg = f"audit: site {record['site']}: record {name} must have been charged"
            raise AuditError(msg)
    for record in counted:
        if "revises" in record and (record["revises"] not in charged or record["spend"] != "0"):
            where = f"audit: site {record['site']}: record {record['release_id']}"
            raise AuditError(f"{where} must revise, at no cost, a record that was charged")
    return Compared(len(published), missing)


class MissingRecords(NamedTuple):
    """Records of one release, audience and site that were charged and are missing."""

    site: str
    release: str
    audience: str
    records: int
    first: str
    """End of the first window or day."""
    last: str

    def __str__(self) -> str:
        """Return them in words."""
        return (
            f"site {self.site}: {self.records:,} published record(s) of release {self.release} for {self.audience} are "
            f"missing, of windows from {self.first} to {self.last}"
        )


def by_release(missing: Iterable[Entry]) -> list[MissingRecords]:
    """Return how many records of each site, release and audience are missing."""
    ends: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for entry in missing:
        ends[entry["site"], entry["release"], entry["audience"]].append(entry["window_end"])
    return [MissingRecords(*name, len(each), min(each), max(each)) for name, each in sorted(ends.items())]


def _refuse_difference(where: str, entry: Entry, record: JsonObject) -> None:
    report = entry["epsilon"], entry["nano"], entry["outcome"]
    try:
        spend = parse_amount(record["spend"])
    except ValueError as problem:
        raise AuditError(f"{where}: spend of its record {record['release_id']} {problem}") from None
    if report != (record["epsilon"], nano(spend), record["reason"] or "released"):
        msg = f"{where} must charge what its record {record['release_id']} says: epsilon, spend and outcome"
        raise AuditError(msg)


# Ledgers that continue the chains of another ledger.


class Start(NamedTuple):
    """The head of a site's chain at the start of a ledger."""

    link: ChainLink
    unreleased: int
    """Sequence of the first earlier entry whose record, like all after it, was charged and never published."""


class LedgerStartDocument(TypedDict):
    """The stored form of a ledger's start."""

    sites: dict[str, tuple[int, str, int]]
    """Site -> number of entries, hash of the last one, and the first entry whose record was not published."""
    mac: str


@dataclass(frozen=True, slots=True)
class LedgerStart:
    """The heads of the sites of a partition at the start of a ledger."""

    ledger: str
    partition: int
    sites: Mapping[str, Start]
    mac: str = ""
    """Under the ledger's audit key; hexadecimal."""

    def document(self) -> LedgerStartDocument:
        """Return the stored fields besides its name, ready for JSON."""
        sites = {site: (*start.link, start.unreleased) for site, start in sorted(self.sites.items())}
        return {"sites": sites, "mac": self.mac}

    @classmethod
    def of_document(cls, ledger: str, partition: int, body: JsonObject) -> LedgerStart:
        """Return the start stored under a name; KeyError, TypeError or ValueError if it is malformed."""
        sites = {
            str(site): Start(ChainLink(int(sequence), str(head)), int(unreleased))
            for site, (sequence, head, unreleased) in body["sites"].items()
        }
        return cls(ledger, partition, sites, str(body["mac"]))

    def signature(self, audit_key: bytes) -> str:
        """Return the signature of this start under an audit key."""
        statement = [self.ledger, self.partition, self.document()["sites"]]
        text = Domain.LEDGER_BEGINS + orjson.dumps(statement, option=orjson.OPT_SORT_KEYS)
        return hmac.new(audit_key, text, sha256).hexdigest()

    def signed(self, audit_key: bytes) -> LedgerStart:
        """Return a copy with its signature."""
        return LedgerStart(self.ledger, self.partition, self.sites, self.signature(audit_key))

    def check_signature(self, audit_key: bytes) -> None:
        """Raise AuditError unless the audit key has signed this start."""
        if not hmac.compare_digest(self.signature(audit_key), self.mac):
            where = f"audit: partition {self.partition}: the beginning of ledger {self.ledger}"
            raise AuditError(f"{where} must be signed with the audit key")


def first_signed_entries(starts: Iterable[LedgerStart], ledger: str, audit_key: bytes) -> dict[str, int]:
    """Return for each site the sequence of the first entry that a ledger has to sign; AuditError for a forged one."""
    own = [beginning for beginning in starts if beginning.ledger == ledger]
    for beginning in own:
        beginning.check_signature(audit_key)
    return {site: start.link.sequence for beginning in own for site, start in beginning.sites.items()}


def witnesses_of(starts: Iterable[LedgerStart]) -> Iterable[tuple[str, ChainWitness]]:
    """Yield (site, witness) for each site's chain in each start."""
    for beginning in starts:
        for site, start in beginning.sites.items():
            yield site, ChainWitness(f"ledger {beginning.ledger}", start.link)


def unreleased(beginnings: Iterable[LedgerStart], entries: Iterable[Entry]) -> frozenset[str]:
    """Return the release ids of entries that were charged, but whose records were never published."""
    spans = [
        (site, start.unreleased, start.link.sequence)
        for beginning in beginnings
        for site, start in beginning.sites.items()
        if start.unreleased < start.link.sequence
    ]
    return frozenset(
        str(entry["release_id"])
        for entry in entries
        for site, first, end in spans
        if entry["site"] == site and first <= entry["sequence"] < end
    )
