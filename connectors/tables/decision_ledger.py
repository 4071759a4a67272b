"""The file of a ledger of decisions: a line an answer, on disk before its noise is drawn.

One process at a time has it. A last line that begins as the next entry would and is not whole was being written when
the machine stopped, so nothing was drawn for it, and it is taken away. Nothing here can see that whole entries are
missing at the end: whoever can write the file can spend again, as with any budget that lies beside its key.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from connectors.private_file import sync_folder
from stream.decisions.books import Books, Charge, beginning, books_of, entry_of, not_an_entry
from stream.errors import UsageError
from stream.keys import Keys


@dataclass(slots=True)
class DecisionLedger:
    """The open file."""

    path: Path
    keys: Keys
    handle: int
    books: Books = field(default_factory=Books)

    def enter(self, charge: Charge) -> None:
        """Write a charge through to disk, unless it was made before.

        Raises:
            UsageError: its label was given to another question, or to other counts.
            OSError: it cannot be written; then nothing may be drawn.
        """
        if self.books.repeats(charge):
            return
        after, line = entry_of(self.books, charge, self.keys)
        end = os.lseek(self.handle, 0, os.SEEK_END)
        try:
            _write(self.handle, line)
            _through(self.handle)
        except OSError as error:
            os.ftruncate(self.handle, end)
            error.filename = str(self.path)
            raise
        self.books = after


@contextmanager
def opened(path: Path, keys: Keys) -> Iterator[DecisionLedger]:
    """Open a ledger, or begin one, and keep other processes from it meanwhile.

    Raises:
        UsageError: it cannot be opened, or others than its owner can read it.
        AuditError: it is not whole, or of another key.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened as a ledger ({error.strerror})") from None
    try:
        _refuse_other(path, os.fstat(handle).st_mode)
        fcntl.flock(handle, fcntl.LOCK_EX)
        sync_folder(path.absolute().parent)
        yield DecisionLedger(path, keys, handle, _read(handle, keys))
    finally:
        os.close(handle)


def _refuse_other(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: must be a file")
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{path}: must be readable by its owner only (mode 0600)")


def _read(handle: int, keys: Keys) -> Books:
    with os.fdopen(os.dup(handle), "rb") as file:
        file.seek(0)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    books, torn = books_of(content[:whole].splitlines(), keys), content[whole:]
    begin = beginning(books, keys)
    if torn[: len(begin)] != begin[: len(torn)]:
        raise not_an_entry(len(books.charges))
    os.ftruncate(handle, whole)
    return books


def _write(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]


def _through(handle: int) -> None:
    os.fsync(handle)
