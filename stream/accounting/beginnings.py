"""Where a ledger begins that goes on with what another one spent, in the same hash chains.

On Kafka the books of a cluster stay where they are when a key is lost or stolen: the chains go on, under the id and the
audit key of the ledger that follows. What it found there it says itself, signed with its audit key. So entries before
its first one need no signature of its own, and none of them can be taken away or be exchanged.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from stream.accounting.audit import Entry, Link, Witness
from stream.errors import AuditError


class Start(NamedTuple):
    """Where a site's chain stood."""

    link: Link
    unreleased: int
    """Of the entries before, those from this sequence on were charged, and no record of them was ever published."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the sites of a partition stood when a ledger began."""

    ledger: str
    partition: int
    sites: Mapping[str, Start]
    mac: str = ""
    """Under the ledger's audit key; hexadecimal."""

    def document(self) -> dict[str, Any]:
        """Return what is kept of it beside its name, ready for JSON."""
        sites = {site: [*start.link, start.unreleased] for site, start in sorted(self.sites.items())}
        return {"sites": sites, "mac": self.mac}

    @classmethod
    def of_document(cls, ledger: str, partition: int, body: Mapping[str, Any]) -> Beginning:
        """Return the beginning that is kept under a name; KeyError, TypeError or ValueError where it is none."""
        sites = {
            str(site): Start(Link(int(sequence), str(head)), int(unreleased))
            for site, (sequence, head, unreleased) in body["sites"].items()
        }
        return cls(ledger, partition, sites, str(body["mac"]))

    def signature(self, audit_key: bytes) -> str:
        """Return what an audit key signs of it."""
        told = [self.ledger, self.partition, self.document()["sites"]]
        text = b"tacet ledger begins v1 " + orjson.dumps(told, option=orjson.OPT_SORT_KEYS)
        return hmac.new(audit_key, text, sha256).hexdigest()

    def signed(self, audit_key: bytes) -> Beginning:
        """Return it with its signature."""
        return Beginning(self.ledger, self.partition, self.sites, self.signature(audit_key))

    def refuse_forged(self, audit_key: bytes) -> None:
        """Raise AuditError unless the audit key has signed it."""
        if not hmac.compare_digest(self.signature(audit_key), self.mac):
            where = f"audit: partition {self.partition}: the beginning of ledger {self.ledger}"
            raise AuditError(f"{where} must be signed with the audit key")


def begun_at(beginnings: Iterable[Beginning], ledger: str, audit_key: bytes) -> dict[str, int]:
    """Return of each site the sequence of the first entry that a ledger has to sign; AuditError for a forged one."""
    own = [beginning for beginning in beginnings if beginning.ledger == ledger]
    for beginning in own:
        beginning.refuse_forged(audit_key)
    return {site: start.link.sequence for beginning in own for site, start in beginning.sites.items()}


def known_by(beginnings: Iterable[Beginning]) -> Iterable[tuple[str, Witness]]:
    """Yield what each beginning knows of each site's chain, as site and witness."""
    for beginning in beginnings:
        for site, start in beginning.sites.items():
            yield site, Witness(f"ledger {beginning.ledger}", start.link)


def unreleased(beginnings: Iterable[Beginning], entries: Iterable[Entry]) -> frozenset[str]:
    """Return the release ids of entries that were charged, and whose records were never published."""
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
