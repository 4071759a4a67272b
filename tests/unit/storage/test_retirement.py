"""Retiring a key: the steps that stores and clusters share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.keys.key_files import FileKeys
from connectors.storage.retirement import LedgerContent, Retired, retire
from stream.errors import UsageError


class Ledger:
    """A ledger in memory; it records its steps."""

    def __init__(self, *entries: dict[str, Any], resumed: bool = False) -> None:
        self._content = LedgerContent(entries, resumed)
        self.steps: list[Any] = []

    @contextmanager
    def exclusive(self, keys: FileKeys, old_key: Path | None) -> Iterator[None]:
        del keys
        self.steps.append(("lock", old_key))
        yield
        self.steps.append("unlock")

    async def read(self, keys: FileKeys, old_key: Path | None) -> LedgerContent:
        del keys, old_key
        self.steps.append("read")
        return self._content

    async def hand_over(self, keys: FileKeys, old: FileKeys | None) -> int:
        self.steps.append(("hand over", keys.ledger, None if old is None else old.ledger))
        return 2


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    for name in ("old", "new", "third"):
        key_files.create(tmp_path / name, laboratory=False)
    key_files.create(tmp_path / "laboratory", laboratory=True)
    return tmp_path


def entry(key: Path, **changes: Any) -> dict[str, Any]:
    return {"ledger": FileKeys(key).ledger, "laboratory": False} | changes


async def test_the_ledger_is_read_under_lock_handed_over_and_the_old_key_destroyed_before_the_lock_ends(
    scenario: Path,
) -> None:
    old, new = FileKeys(scenario / "old").ledger, FileKeys(scenario / "new").ledger
    ledger = Ledger(entry(scenario / "old"), entry(scenario / "old"))
    assert await retire(ledger, scenario / "new", scenario / "old") == Retired(new, entries=2, unreleased=2)
    assert ledger.steps == [("lock", scenario / "old"), "read", ("hand over", new, old), "unlock"]
    assert key_files.follower(scenario / "old") == new


async def test_a_lost_key_is_neither_locked_nor_destroyed(scenario: Path) -> None:
    ledger = Ledger(entry(scenario / "old"))
    await retire(ledger, scenario / "new", None)
    assert ledger.steps[0] == ("lock", None)
    assert not key_files.is_retired(scenario / "old")


async def test_after_an_interruption_the_destroyed_key_is_skipped(scenario: Path) -> None:
    ledger = Ledger(entry(scenario / "old"), entry(scenario / "new"), resumed=True)
    key_files.retire(scenario / "old", FileKeys(scenario / "new").ledger)
    assert (await retire(ledger, scenario / "new", scenario / "old")).entries == 2
    assert ledger.steps[0] == ("lock", None)


async def test_a_key_that_was_retired_for_another_ledger_is_refused(scenario: Path) -> None:
    ledger, follower = Ledger(entry(scenario / "old")), FileKeys(scenario / "new").ledger
    key_files.retire(scenario / "old", follower)
    with pytest.raises(UsageError, match=f"must be that of ledger {follower}, for which .*old was retired"):
        await retire(ledger, scenario / "third", scenario / "old")
    assert ledger.steps == []


@pytest.mark.parametrize(
    ("new", "old", "resumed", "problem"),
    [
        ("old", "old", False, "must be a new key, got that of the ledger which is to end"),
        ("new", "old", False, "must be a new key, got one whose ledger has entries here"),
        ("laboratory", "old", False, "must be a production key, as the old one was"),
        ("laboratory", None, True, "must be a production key, as the old one was"),
    ],
)
async def test_an_unsuitable_key_changes_nothing(
    scenario: Path, new: str, old: str | None, resumed: bool, problem: str
) -> None:
    ledger = Ledger(entry(scenario / "old"), entry(scenario / "new"), resumed=resumed)
    with pytest.raises(UsageError, match=problem):
        await retire(ledger, scenario / new, None if old is None else scenario / old)
    assert not any(step[0] == "hand over" for step in ledger.steps)
    assert not key_files.is_retired(scenario / "old")


async def test_a_production_key_does_not_follow_a_laboratory_key(scenario: Path) -> None:
    ledger = Ledger(entry(scenario / "laboratory", laboratory=True))
    with pytest.raises(UsageError, match="must be a laboratory key, as the old one was"):
        await retire(ledger, scenario / "new", None)
