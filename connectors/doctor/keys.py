"""The key file and the mark beside it: who can read them, what they serve, which day they have come to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from connectors import keyfile
from connectors.doctor.findings import Finding, fine, note, wrong
from connectors.embedded.readings import read_identity
from connectors.embedded.rollback_mark import mark_path, read_marks
from stream.records import DAY, EPOCH, Micros

KEY, MARK = "key file", "mark"
LATE_DAYS = 3
"""A production key that still holds a day so far back has not stepped on: that day's noise can be undone with it."""


def key_file(path: Path, now: Micros) -> Iterator[Finding]:
    """Yield how a key file is; ``now`` in microseconds since 1970."""
    yield from _mode(KEY, path)
    if keyfile.is_laboratory(path):
        yield note(KEY, "a laboratory's, which can draw any day's noise again: for simulated and recorded data only")
        return
    day = keyfile.oldest_key_day(path)
    if day is None:
        yield fine(KEY, "a production key that has not been used yet")
        return
    text = f"a production key that holds {(EPOCH + timedelta(days=day)).date()} and every later day"
    late = now // DAY - day
    if late > LATE_DAYS:
        yield wrong(KEY, f"{text}: it has not stepped on for {late} days; is anything running with it?")
    else:
        yield fine(KEY, text)


def serves(path: Path, store: Path | None) -> Iterator[Finding]:
    """Yield what a key serves, and whether its mark knows the store."""
    bound = keyfile.store_of(path)
    if bound is not None and bound.startswith("cluster "):
        yield fine(KEY, f"serves {bound}")
        return
    mark = mark_path(path)
    if not mark.exists():
        used = bound is not None
        yield wrong(MARK, "is gone, though the key was used: 'tacet recover'") if used else fine(MARK, "not made yet")
        return
    yield from _mode(MARK, mark)
    marks = read_marks(path)
    if store is None:
        yield fine(MARK, f"knows {len(marks)} store(s)")
        return
    name = read_identity(store)
    if name not in marks:
        yield wrong(
            MARK, "does not know this store: it belongs to another key, or was put back; 'tacet recover' says more"
        )
    else:
        yield fine(MARK, f"knows this store, and how far {len(marks[name])} site(s) of it were published")


def _mode(check: str, path: Path) -> Iterator[Finding]:
    """Yield whether a file is its owner's alone, and whether that is who asks."""
    held = path.stat()
    mode = stat.S_IMODE(held.st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield wrong(check, f"{path}: has mode {mode:04o}, which others can read: chmod 600")
    elif held.st_uid != os.geteuid():
        yield note(check, f"{path}: belongs to user {held.st_uid}, not to who asks")
    else:
        yield fine(check, f"{path}: mode {mode:04o}, its owner's alone")
