"""The ledger file of decisions: one line per answer, written before the noise is drawn.

One process at a time can open it. An incomplete last line that begins like the next entry was being written when the
machine stopped. Its noise was not drawn, so the line is removed. The file cannot show that whole entries are missing at
its end: whoever can write it can spend again, as with any budget that is stored beside its key.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from connectors.secrets.private_files import sync_folder
from stream.decisions.ledger import AnswerLedger, Charge, entry_of, entry_prefix, ledger_of, not_an_entry
from stream.errors import UsageError
from stream.keys import Keys


@dataclass(slots=True)
class DecisionLedger:
    """The open ledger file."""

    path: Path
    keys: Keys
    handle: int
    charges: AnswerLedger = field(default_factory=AnswerLedger)

    def enter(self, charge: Charge) -> None:
        """Write a charge to disk, unless it was charged before.

        Raises:
            UsageError: its label was used for another query, or for other counts.
            OSError: it cannot be written; then nothing may be drawn.
        """
        if self.charges.repeats(charge):
            return
        after, line = entry_of(self.charges, charge, self.keys)
        end = os.lseek(self.handle, 0, os.SEEK_END)
        try:
            _write(self.handle, line)
            _sync(self.handle)
        except OSError as error:
            os.ftruncate(self.handle, end)
            error.filename = str(self.path)
            raise
        self.charges = after


@contextmanager
def opened(path: Path, keys: Keys) -> Iterator[DecisionLedger]:
    """Open or create a ledger, and lock it against other processes.

    Raises:
        UsageError: it cannot be opened, or is readable by others than its owner.
        AuditError: it is incomplete, or belongs to another key.
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


def _read(handle: int, keys: Keys) -> AnswerLedger:
    with os.fdopen(os.dup(handle), "rb") as file:
        file.seek(0)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    ledger, incomplete = ledger_of(content[:whole].splitlines(), keys), content[whole:]
    begin = entry_prefix(ledger, keys)
    if incomplete[: len(begin)] != begin[: len(incomplete)]:
        raise not_an_entry(len(ledger.charges))
    os.ftruncate(handle, whole)
    return ledger


def _write(handle: int, content: bytes) -> None:
    while content:
        content = content[os.write(handle, content) :]


def _sync(handle: int) -> None:
    os.fsync(handle)
