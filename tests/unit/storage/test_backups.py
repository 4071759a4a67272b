"""Copies of a store: what is no store is not copied, and no folder is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.storage.embedded.backup import back_up
from connectors.storage.embedded.store import SqliteStore
from stream.errors import UsageError


def test_what_is_no_store_is_not_copied(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none: must be a store made by 'tacet run'"):
        back_up(tmp_path / "none", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_not_replaced_by_a_copy(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "store").close()
    (tmp_path / "copy").mkdir()
    with pytest.raises(UsageError, match="copy: must not exist yet"):
        back_up(tmp_path / "store", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []
