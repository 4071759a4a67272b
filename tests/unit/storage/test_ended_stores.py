"""The ledger of a store that ends: who may not use the keys meanwhile, and what need not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.storage.embedded.retirement import StoreLedger
from connectors.storage.embedded.rollback_mark import one_run
from connectors.storage.embedded.store import SqliteStore
from stream.errors import UsageError


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A store that has released nothing, its key and a new one."""
    for name in ("old", "new"):
        key_files.create(tmp_path / name, laboratory=False)
    SqliteStore(tmp_path / "store").close()
    return tmp_path


@pytest.mark.parametrize("used", ["old", "new"])
def test_a_ledger_does_not_end_while_a_run_uses_one_of_the_keys(scenario: Path, used: str) -> None:
    ending = StoreLedger(scenario / "store", scenario / "next").exclusive(FileKeys(scenario / "new"), scenario / "old")
    refused = pytest.raises(UsageError, match=f"{used}: must be used by one run at a time")
    with one_run(scenario / used, scenario / "elsewhere", laboratory=False), refused, ending:
        pass


async def test_a_ledger_under_which_nothing_was_released_does_not_end(scenario: Path) -> None:
    ledger, keys = StoreLedger(scenario / "store", scenario / "next"), FileKeys(scenario / "new")
    refused = pytest.raises(UsageError, match="store: has released nothing, so its key need not be retired")
    with ledger.exclusive(keys, scenario / "old"), refused:
        await ledger.hand_over(keys, FileKeys(scenario / "old"))
    assert not (scenario / "next").exists()
    SqliteStore(scenario / "store").close()
