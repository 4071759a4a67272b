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
