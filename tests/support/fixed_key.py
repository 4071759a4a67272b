"""A laboratory key that is the same in every run, so that nothing that is drawn under it differs by chance."""

from __future__ import annotations

from pathlib import Path

from connectors.secrets.private_files import replace_file

_KEY = {
    "tacet_key": 1, "laboratory": True, "ledger": "0011223344556677", "pseudonym": "a1" * 32,
    "noise": {"root": "b2" * 32}, "audit": "c3" * 32, "data": {"day": 0, "key": "d4" * 32}, "store": None,
}  # fmt: skip


def write_fixed_key(path: Path) -> None:
    """Write the key to a file."""
    replace_file(path, _KEY)
