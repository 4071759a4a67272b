"""Files of signed heads, and books in one file that whoever has the public key can check without store or cluster.

Either is lines of JSON: signed heads, and in a file of books the audit entries behind them, as they were published.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from connectors.audit_chains import parse_entries
from connectors.intake.clock import wall_clock
from connectors.reports.books import Books
from connectors.signing_key import private_key
from stream.accounting.signed_heads import SignedHead, check_heads, longest, parse_head, sign_head
from stream.errors import AuditError, UsageError
from stream.records import SECOND
from stream.schemas import rfc3339


def read_heads(file: Path) -> list[SignedHead]:
    """Return a file's signed heads; AuditError where a line is none."""
    return [parse_head(record) for record in parse_entries(_lines(file))]


def read_books_file(file: Path) -> tuple[Books, list[SignedHead]]:
    """Return the books that a file holds, which has no state, and its signed heads."""
    heads: list[SignedHead] = []
    entries: list[dict[str, Any]] = []
    for record in parse_entries(_lines(file)):
        if "head" in record:
            heads.append(parse_head(record))
        else:
            entries.append(record)
    return Books(entries, [], all_kept=False, states_read=False), heads


def write_books_file(file: Path, heads: Iterable[SignedHead], entries: Iterable[dict[str, Any]]) -> None:
    """Write books to a new file: signed heads first."""
    with file.open("xb") as written:
        for head in heads:
            written.write(head.to_bytes() + b"\n")
        for entry in entries:
            written.write(orjson.dumps(entry) + b"\n")
        written.flush()
        os.fsync(written.fileno())


class CopyOfHeads(Protocol):
    """One of several places in which the same signed heads are kept."""

    @property
    def name(self) -> str:
        """What an error calls it."""

    def read(self) -> list[SignedHead]:
        """Return the heads that it holds."""

    def add(self, known: int, heads: Sequence[SignedHead]) -> None:
        """Add heads behind those that were read, of which there were so many."""


@dataclass(frozen=True, slots=True)
class FileOfHeads:
    """A file of heads; one that is not there holds none."""

    path: Path

    @property
    def name(self) -> str:
        """What an error calls it."""
        return str(self.path)

    def read(self) -> list[SignedHead]:
        """Return the heads that it holds; AuditError where a line is none."""
        return read_heads(self.path) if self.path.exists() else []

    def add(self, known: int, heads: Sequence[SignedHead]) -> None:
        """Add lines in one write, so that a file that can only grow (``chattr +a``) will do."""
        del known
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(handle, "wb") as written:
            written.write(b"".join(head.to_bytes() + b"\n" for head in heads))
            written.flush()
            os.fsync(written.fileno())


def sign_books(books: Books, key_file: Path, copies: Sequence[CopyOfHeads], *, first: bool) -> SignedHead:
    """Compare the books with every head signed so far, sign where they stand now, and add that to every copy.

    Args:
        books: what is signed.
        key_file: the signer's private key.
        copies: of the signed heads; what one lacks of the longest is added to it.
        first: whether this is the first head of all; heads that are gone are missed otherwise.

    Raises:
        AuditError: the books do not hold what was signed, or the copies contradict one another.
        UsageError: there are heads, and this should be the first; or there are none, and it should not.
    """
    key = private_key(key_file)
    held = [copy.read() for copy in copies]
    heads = longest(held)
    _refuse_lost(copies[0].name, heads, first=first)
    check_heads(heads, key.public_key())
    links = books.audit(signed=heads).chains(books.entries)
    if not links:
        raise UsageError("audit: there must be an entry before a head can be signed")
    now = rfc3339(wall_clock() // SECOND * SECOND)
    head = sign_head(heads[-1] if heads else None, links, now, key)
    for copy, known in zip(copies, held, strict=True):
        copy.add(len(known), [*heads[len(known) :], head])
    return head


def _refuse_lost(name: str, heads: Sequence[SignedHead], *, first: bool) -> None:
    if first and heads:
        msg = f"--first: must not be given, since {name} or a copy of it holds {len(heads)} signed heads"
        raise UsageError(msg)
    if not first and not heads:
        msg = f"{name}: must hold the heads signed so far; only the first of all is signed with --first"
        raise UsageError(msg)


def _lines(file: Path) -> Iterator[bytes]:
    try:
        content = file.read_bytes()
    except OSError as error:
        msg = f"{file}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None
    if content and not content.endswith(b"\n"):
        msg = f"audit: {file} must end with a whole line; its last one was cut off, put a copy back"
        raise AuditError(msg)
    return iter(content.splitlines())
