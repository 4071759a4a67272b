"""What is said to who verifies books with what belongs to a ledger that has ended: since when, and what to give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from connectors import keyfile
from stream.accounting.beginnings import Beginning
from stream.accounting.signed_heads import SignedHead
from stream.errors import KeyFileError, UsageError

Entries = Sequence[Mapping[str, Any]]


def keys_of(key_file: Path) -> keyfile.FileKeys:
    """Return a file's keys; KeyFileError where they are not there, or were destroyed when they were retired."""
    try:
        return keyfile.FileKeys(key_file)
    except KeyFileError as problem:
        if not keyfile.is_retired(key_file):
            raise
        msg = (
            f"{problem}; give the key of that where it has entries, or none: then chains and records are still checked"
        )
        raise KeyFileError(msg) from None


def refuse_retired(ledger: str, earlier: Entries, entries: Entries, beginnings: Iterable[Beginning]) -> None:
    """Raise UsageError for the key of a ledger that all sites of these books have left.

    ``earlier`` are entries of ledgers that ended in another store, ``entries`` those that are to be verified.
    """
    last = _last(entries, beginnings)
    own = [entry["window_end"] for entry in (*earlier, *entries) if entry["ledger"] == ledger]
    if not own or ledger in last.values():
        return
    following = " or ".join(f"ledger {each}" for each in sorted(set(last.values()))) or "the ledger"
    msg = (
        f"--key-file: is that of ledger {ledger}, which has ended: its key was retired after the window of {max(own)}; "
        f"give the key of {following}, which goes on with what was spent, or verify without a key"
    )
    raise UsageError(msg)


def _last(entries: Entries, beginnings: Iterable[Beginning]) -> dict[str, str]:
    """Return the ledger in which each site's chain stands: that of the last entry, or one that begins behind it."""
    last = {entry["site"]: (entry["sequence"], entry["ledger"]) for entry in entries}
    for beginning in beginnings:
        for site, start in beginning.sites.items():
            if start.link.sequence > last.get(site, (-1, ""))[0]:
                last[site] = start.link.sequence, beginning.ledger
    return {site: ledger for site, (_, ledger) in last.items()}


def refuse_heads(signed: Sequence[SignedHead], earlier: Entries) -> None:
    """Raise UsageError for signed heads of a ledger that ended in another store, with whose books these begin."""
    known = {entry["hash"]: entry for entry in earlier}
    for head in reversed(signed):
        for link in head.sites.values():
            if link.head in known:
                entry = known[link.head]
                msg = (
                    f"--heads: head {head.number} of {head.time} is of ledger {entry['ledger']}, which has ended: its "
                    "key was retired; verify these heads with the store of that, those of this one are in another file"
                )
                raise UsageError(msg)
