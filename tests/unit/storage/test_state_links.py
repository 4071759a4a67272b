"""A symbolic link in place of a state file is refused, and its target is not changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.secrets.locked_file import LockedFile
from connectors.storage.embedded.sqlite_file import connect
from connectors.storage.embedded.store import _lock
from stream.errors import KeyFileError, UsageError


def held(path: Path) -> Any:
    return LockedFile(path, "CREATE TABLE IF NOT EXISTS one (a)", whose="a test", by="another")


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    ("opened", "name"),
    [(held, "state"), (lambda path: connect(path, "CREATE TABLE IF NOT EXISTS one (a)"), "store.sqlite"),
     (lambda path: _lock(path.parent), "lock")],
)  # fmt: skip
def test_a_link_in_the_place_of_a_state_file_is_refused(
    opened: Callable[[Path], Any], name: str, exists: bool, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    if exists:
        target.touch(0o600)
    (tmp_path / name).symlink_to(target)
    with pytest.raises((KeyFileError, UsageError), match="must be a file"):
        opened(tmp_path / name)
    assert target.exists() == exists
    assert not exists or target.read_bytes() == b""


def test_a_state_file_is_held_by_one_process_until_it_is_closed_and_deletes_what_is_deleted(tmp_path: Path) -> None:
    file = held(tmp_path / "state")
    for setting, value in (("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1)):
        assert file.database.execute(f"PRAGMA {setting}").fetchone() == (value,)
    with pytest.raises(KeyFileError, match="must be held by one process only, another"):
        held(tmp_path / "state")
    file.close()
    held(tmp_path / "state").close()
