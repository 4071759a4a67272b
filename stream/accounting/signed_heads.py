"""Signed heads: what somebody who only reads the books has signed of every audit chain, day after day.

The audit key signs entries, but whoever has it can write others. A head is signed with a key that no part of the engine
has (Ed25519, RFC 8032), names the entry at which every site's audit chain stood, and includes the head signed before it
by its hash. Whoever has the public key can then show of any copy of the books, without the signer and without the
cluster, that nothing up to the last head was taken away, added or altered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from stream.accounting.audit import Link, Witness
from stream.accounting.ledger import GENESIS
from stream.errors import AuditError

DOMAIN = b"tacet audit head 1\n"
"""Begins what is signed, so that no signature of this key over anything else can be taken for one."""


@dataclass(frozen=True, slots=True)
class SignedHead:
    """Where every site's audit chain stood, and who says so."""

    number: int
    """Counts from 0, without gaps."""
    time: str
    """When it was signed, by the signer's clock: RFC 3339 in UTC and whole seconds, so that texts sort as times."""
    previous: str
    """Digest of the head before it; GENESIS of the first."""
    sites: Mapping[str, Link]
    signature: str = ""
    """Hexadecimal."""

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"signed head {self.number} of {self.time}"

    def statement(self) -> dict[str, Any]:
        """Return what is signed, as an object."""
        return {
            "number": self.number, "time": self.time, "previous": self.previous,
            "sites": {site: link._asdict() for site, link in self.sites.items()},
        }  # fmt: skip

    def signed(self) -> bytes:
        """Return the bytes that the signature is over."""
        return DOMAIN + orjson.dumps(self.statement(), option=orjson.OPT_SORT_KEYS)

    def digest(self) -> str:
        """Return what the next head says of this one."""
        return sha256(self.signed()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the head as one line of a file, without its end."""
        return orjson.dumps({"head": self.statement(), "signature": self.signature}, option=orjson.OPT_SORT_KEYS)


def parse_head(record: Mapping[str, Any]) -> SignedHead:
    """Return the head that a line of a file holds; AuditError where it holds none, or more than one says."""
    try:
        told, signature = record["head"], str(record["signature"])
        sites = {str(site): Link(int(link["sequence"]), str(link["head"])) for site, link in told["sites"].items()}
        head = SignedHead(int(told["number"]), str(told["time"]), str(told["previous"]), sites, signature)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise AuditError("audit: every signed head must be one that 'tacet audit sign' wrote") from None
    if {"head": head.statement(), "signature": signature} != record:
        raise AuditError(f"audit: {head.name} must say nothing besides what is signed")
    return head


def sign_head(before: SignedHead | None, sites: Mapping[str, Link], time: str, key: Ed25519PrivateKey) -> SignedHead:
    """Sign where the audit chains stand; the books must have been compared with the head before.

    Raises:
        AuditError: the head before is of a later time, or of a key that is not this one.
    """
    number, previous = 0, GENESIS
    if before is not None:
        _refuse_signature(before, key.public_key())
        if before.time > time:
            raise AuditError(f"audit: the clock must have come as far as {before.name}, got {time}")
        number, previous = before.number + 1, before.digest()
    head = SignedHead(number, time, previous, dict(sites))
    return replace(head, signature=key.sign(head.signed()).hex())


def check_heads(heads: Sequence[SignedHead], key: Ed25519PublicKey) -> None:
    """Check that the heads are signed, that none is left out, and that none goes back behind the one before.

    Raises:
        AuditError: names the first that is wrong.
    """
    before: SignedHead | None = None
    for number, head in enumerate(heads):
        if head.number != number or head.previous != (GENESIS if before is None else before.digest()):
            raise AuditError(f"audit: signed head {number} must be there and include the one before it")
        _refuse_signature(head, key)
        if before is not None:
            _refuse_step_back(before, head)
        before = head


def _refuse_signature(head: SignedHead, key: Ed25519PublicKey) -> None:
    try:
        key.verify(bytes.fromhex(head.signature), head.signed())
    except (InvalidSignature, ValueError):
        raise AuditError(f"audit: {head.name} must be signed with the key given") from None


def _refuse_step_back(before: SignedHead, head: SignedHead) -> None:
    if head.time < before.time:
        raise AuditError(f"audit: {head.name} must not be earlier than the one before it")
    for site, link in before.sites.items():
        if head.sites.get(site, Link()).sequence < link.sequence:
            raise AuditError(f"audit: {head.name} must have {link.sequence} entries of site {site}, as the one before")


def longest(copies: Iterable[Sequence[SignedHead]]) -> Sequence[SignedHead]:
    """Return the longest of several copies of the same heads.

    Raises:
        AuditError: two copies have different heads of one number: there are two histories.
    """
    found: Sequence[SignedHead] = ()
    for copy in copies:
        for mine, other in zip(found, copy, strict=False):
            if mine != other:
                raise AuditError(f"audit: {other.name} must be the same in every copy of the heads")
        found = max(found, copy, key=len)
    return found


def witnesses(heads: Iterable[SignedHead]) -> Iterator[tuple[str, Witness]]:
    """Yield of each head what it knows of each site's audit chain, as site and witness."""
    for head in heads:
        for site, link in head.sites.items():
            yield site, Witness(head.name, link)
