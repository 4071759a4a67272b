"""Folders that only their owner can enter."""

from __future__ import annotations

from pathlib import Path

from stream.errors import UsageError


def private_folder(folder: Path) -> Path:
    """Create a folder that only its owner can enter; UsageError when others can."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_open(folder)
    return folder


def refuse_open(folder: Path) -> None:
    """Raise UsageError where others can enter a folder."""
    if folder.exists() and folder.stat().st_mode & 0o077:
        msg = f"{folder}: must be a folder that only its owner can enter (mode 0700)"
        raise UsageError(msg)
