"""Signed heads: their files, audit files, and the signing of a new head.

Both kinds of file are lines of JSON. An audit file has the signed heads first, then the audit entries behind them, as
they were published.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from connectors.keys.signing_key import private_key
from connectors.operations.audit.verification import AuditBundle
from connectors.runtime.clock import wall_clock
from connectors.storage.audit_chains import parse_entries
from stream.accounting.ledger import Entry
from stream.accounting.signed_heads import SignedHead, check_heads, longest, parse_head, sign_head
from stream.errors import AuditError, UsageError
from stream.records import SECOND
from stream.schemas import rfc3339


def read_heads(file: Path) -> list[SignedHead]:
    """Return a file's signed heads; AuditError if a line is malformed."""
    return list(map(parse_head, _lines(file)))


def read_bundle_file(file: Path) -> tuple[AuditBundle, list[SignedHead]]:
    """Return the audit bundle of a file, which has no state, and its signed heads."""
    heads: list[SignedHead] = []
    entries: list[Entry] = []
    lines = _lines(file)
    for line, record in zip(lines, parse_entries(lines), strict=True):
        if "head" in record:
            heads.append(parse_head(line))
        else:
            entries.append(record)
    return AuditBundle(entries, [], states_read=False), heads


def write_bundle_file(file: Path, heads: Iterable[SignedHead], entries: Iterable[Entry]) -> None:
    """Write an audit bundle to a new file, signed heads first."""
    with file.open("xb") as written:
        for head in heads:
            written.write(head.to_bytes() + b"\n")
        for entry in entries:
            written.write(orjson.dumps(entry) + b"\n")
        written.flush()
        os.fsync(written.fileno())


class HeadsCopy(Protocol):
    """One of several locations that store the same signed heads."""

    @property
    def name(self) -> str:
        """The location's name in error messages."""

    def read(self) -> list[SignedHead]:
        """Return the stored heads."""

    def add(self, known: int, heads: Sequence[SignedHead]) -> None:
        """Append heads; ``known`` is the number of heads that were read before."""


@dataclass(frozen=True, slots=True)
class HeadsFile:
    """A file of heads; a missing file counts as empty."""

    path: Path

    @property
    def name(self) -> str:
        """The location's name in error messages."""
        return str(self.path)

    def read(self) -> list[SignedHead]:
        """Return the stored heads; AuditError if a line is malformed."""
        return read_heads(self.path) if self.path.exists() else []

    def add(self, known: int, heads: Sequence[SignedHead]) -> None:
        """Append lines in one write, so that an append-only file (``chattr +a``) works."""
        del known
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(handle, "wb") as written:
            written.write(b"".join(head.to_bytes() + b"\n" for head in heads))
            written.flush()
            os.fsync(written.fileno())


def sign_bundle(bundle: AuditBundle, key_file: Path, copies: Sequence[HeadsCopy], *, first: bool) -> SignedHead:
    """Compare the ledger with every head signed so far, sign its current head, and add that to every copy.

    Args:
        bundle: the audit bundle to sign.
        key_file: the signer's private key.
        copies: of the signed heads; a copy that lacks heads of the longest one receives them.
        first: whether this is the first head of all; otherwise missing heads are an error.

    Raises:
        AuditError: the ledger does not contain what was signed, or the copies contradict one another.
        UsageError: there are heads although this should be the first, or none although it should not.
    """
    key = private_key(key_file)
    stored = [copy.read() for copy in copies]
    heads = longest(stored)
    _refuse_lost(copies[0].name, heads, first=first)
    check_heads(heads, key.public_key())
    links = bundle.audit(signed=heads).chains(bundle.entries)
    if not links:
        raise UsageError("audit: there must be an entry before a head can be signed")
    now = rfc3339(wall_clock() // SECOND * SECOND)
    head = sign_head(heads[-1] if heads else None, links, now, key)
    for copy, known in zip(copies, stored, strict=True):
        copy.add(len(known), [*heads[len(known) :], head])
    return head


def _refuse_lost(name: str, heads: Sequence[SignedHead], *, first: bool) -> None:
    if first and heads:
        msg = f"--first: must not be given, because {name} or a copy of it contains {len(heads)} signed heads"
        raise UsageError(msg)
    if not first and not heads:
        msg = f"{name}: must contain all heads signed so far; give --first only for the first head of all"
        raise UsageError(msg)


def _lines(file: Path) -> list[bytes]:
    try:
        content = file.read_bytes()
    except OSError as error:
        msg = f"{file}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    if content and not content.endswith(b"\n"):
        msg = f"audit: {file} must end with a complete line, but its last line was cut off; restore a copy"
        raise AuditError(msg)
    return content.split(b"\n")[:-1]
