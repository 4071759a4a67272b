"""Retire a key: another key continues with what was spent.

The same steps on both storages.

1. Both key files are checked, and other processes are kept from using them.
2. ``EndingLedger.read`` reads and verifies the ledger. Nothing has changed so far.
3. ``EndingLedger.hand_over`` ends the ledger for good, and begins the new one with its charges.
4. The old key is destroyed.

After an interruption the same call resumes: finished steps are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from stream.accounting.ledger import Entry
from stream.errors import UsageError


class Retired(NamedTuple):
    """The result of ending a ledger."""

    ledger: str
    """Public id of the new ledger."""
    entries: int
    """How many entries the new ledger's budgets and account begin with."""
    unreleased: int
    """How many of them were charged just now at their worst case, and are never released."""


class LedgerContent(NamedTuple):
    """The content of a ledger that ends."""

    entries: Sequence[Entry]
    """The parsed entries of this ledger and of those that it continues."""
    resumed: bool
    """Whether an interrupted call has already begun the new ledger, so that it may have entries."""


class EndingLedger(Protocol):
    """The ledger of a store or of a cluster that ends."""

    def exclusive(self, keys: FileKeys, old_key: Path | None) -> AbstractContextManager[None]:
        """Keep other processes from using the ledger and the keys meanwhile; UsageError if one does."""

    async def read(self, keys: FileKeys, old_key: Path | None) -> LedgerContent:
        """Read and verify the ledger; nothing is changed.

        Raises:
            UsageError: the ledger has not begun, or has ended in favour of another key.
            AuditError: the ledger is not complete, or (by the mark of the old key) lacks released entries.
        """

    async def hand_over(self, keys: FileKeys, old: FileKeys | None) -> int:
        """End the ledger and begin the one of ``keys``; return how many entries are charged and never released."""


async def retire(ending: EndingLedger, new_key: Path, old_key: Path | None) -> Retired:
    """End a ledger, and continue with another key and its charges.

    Args:
        ending: the ledger; no run, worker or ingest may use it.
        new_key: a key that was never used.
        old_key: the key of the ledger, which is destroyed; None if it is lost.

    Raises:
        UsageError: a key is not suitable or in use, or the ledger has ended in favour of another key.
        AuditError: the ledger is not complete.
    """
    keys = FileKeys(new_key)
    old = None if old_key is None else _keys_to_destroy(old_key, keys)
    present = None if old is None else old_key
    with ending.exclusive(keys, present):
        content = await ending.read(keys, present)
        refuse_new_key(content, keys)
        unreleased = await ending.hand_over(keys, old)
        if old_key is not None:
            key_files.retire(old_key, keys.ledger)
    return Retired(keys.ledger, len(content.entries), unreleased)


def _keys_to_destroy(path: Path, new: FileKeys) -> FileKeys | None:
    """Return the old keys; None if they were already destroyed in favour of the new ones."""
    if (follower := key_files.follower(path)) is not None:
        if follower != new.ledger:
            raise UsageError(f"--new-key: must be that of ledger {follower}, for which {path} was retired")
        return None
    old = FileKeys(path)
    if old.ledger == new.ledger:
        raise UsageError("--new-key: must be a new key, got that of the ledger which is to end")
    return old


def refuse_new_key(content: LedgerContent, keys: FileKeys) -> None:
    """Raise UsageError for a key that was used before, or for one that would hide that a laboratory key was used."""
    if not content.resumed and any(entry["ledger"] == keys.ledger for entry in content.entries):
        raise UsageError("--new-key: must be a new key, got one whose ledger has entries here")
    if any(entry["laboratory"] != keys.laboratory for entry in content.entries):
        kind = "production" if keys.laboratory else "laboratory"
        raise UsageError(f"--new-key: must be a {kind} key, as the old one was")
