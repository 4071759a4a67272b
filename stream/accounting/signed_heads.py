"""Signed heads: periodic signatures of every audit chain.

The audit key signs entries, but a holder of that key can write different entries. A head is signed with a key that no
part of the engine has (Ed25519, RFC 8032). It names the latest entry of every site's audit chain, and includes the hash
of the previous head. With the public key anyone can verify that no entry up to the last head of a copy of the audit log
was removed, added or altered, without access to the signer or the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypedDict

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from stream.accounting.audit import ChainLink, ChainWitness
from stream.accounting.ledger import GENESIS
from stream.domains import Domain
from stream.errors import AuditError

_SIGNATURE = re.compile("[0-9a-f]{128}")
_NO_HEAD = "audit: every signed head must be one that 'tacet audit sign' wrote, byte for byte"


class LinkDocument(TypedDict):
    """The head of a site's chain."""

    sequence: int
    head: str


class HeadStatement(TypedDict):
    """The statement that the signature of a head covers."""

    number: int
    time: str
    previous: str
    sites: dict[str, LinkDocument]


@dataclass(frozen=True, slots=True)
class SignedHead:
    """The heads of all sites' audit chains, with a signature."""

    number: int
    """Counts from 0, without gaps."""
    time: str
    """Time of signing, by the signer's clock: RFC 3339 in UTC and whole seconds, so that texts sort as times."""
    previous: str
    """Digest of the previous head; GENESIS for the first."""
    sites: Mapping[str, ChainLink]
    signature: str = ""
    """Hexadecimal."""

    @property
    def name(self) -> str:
        """The name in errors."""
        return f"signed head {self.number} of {self.time}"

    def statement(self) -> HeadStatement:
        """Return the signed statement as an object."""
        return {
            "number": self.number, "time": self.time, "previous": self.previous,
            "sites": {site: {"sequence": link.sequence, "head": link.head} for site, link in self.sites.items()},
        }  # fmt: skip

    def signed(self) -> bytes:
        """Return the bytes that the signature is over."""
        return Domain.AUDIT_HEAD + orjson.dumps(self.statement(), option=orjson.OPT_SORT_KEYS)

    def digest(self) -> str:
        """Return the digest that the next head contains."""
        return sha256(self.signed()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the head as one line of a file, without the line end."""
        return orjson.dumps({"head": self.statement(), "signature": self.signature}, option=orjson.OPT_SORT_KEYS)


def parse_head(line: bytes) -> SignedHead:
    """Parse a line; AuditError unless it is, byte for byte, the result of ``to_bytes``."""
    try:
        record = orjson.loads(line)
        statement, signature = record["head"], str(record["signature"])
        sites = {
            str(site): ChainLink(int(link["sequence"]), str(link["head"])) for site, link in statement["sites"].items()
        }
        head = SignedHead(
            int(statement["number"]), str(statement["time"]), str(statement["previous"]), sites, signature
        )
        written = head.to_bytes()
    except (KeyError, ValueError, TypeError, AttributeError):
        raise AuditError(_NO_HEAD) from None
    if written != line or not _SIGNATURE.fullmatch(signature):
        raise AuditError(_NO_HEAD)
    return head


def sign_head(
    before: SignedHead | None, sites: Mapping[str, ChainLink], time: str, key: Ed25519PrivateKey
) -> SignedHead:
    """Sign the heads of the audit chains; the caller must have compared the audit log with the previous head.

    Raises:
        AuditError: the previous head has a later time, or was signed with another key.
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
    """Check that the heads are signed, that none is missing, and that no chain is shorter than in the head before.

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
        if head.sites.get(site, ChainLink()).sequence < link.sequence:
            raise AuditError(f"audit: {head.name} must have {link.sequence} entries of site {site}, as the one before")


def longest(copies: Iterable[Sequence[SignedHead]]) -> Sequence[SignedHead]:
    """Return the longest of several copies of the same heads.

    Raises:
        AuditError: two copies have different heads of the same number, so there are two histories.
    """
    found: Sequence[SignedHead] = ()
    for copy in copies:
        for mine, other in zip(found, copy, strict=False):
            if mine != other:
                raise AuditError(f"audit: {other.name} must be the same in every copy of the heads")
        found = max(found, copy, key=len)
    return found


def witnesses(heads: Iterable[SignedHead]) -> Iterator[tuple[str, ChainWitness]]:
    """Yield (site, witness) for each site's audit chain in each head."""
    for head in heads:
        for site, link in head.sites.items():
            yield site, ChainWitness(head.name, link)
