"""``tacet key``: when a new key begins, what its parts hold, and what is said of a ledger that ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors.cli import key as key_verb
from connectors.keys import key_files
from connectors.storage.retirement import Retired
from stream.records import DAY
from stream.schemas import parse_time
from tests.acceptance.command_line import here, run


def test_a_key_begins_with_the_day_that_is_given_or_with_its_first_use(tmp_path: Path) -> None:
    here("key", "create", tmp_path / "dated", "--first-day", "2026-03-02")
    here("key", "create", tmp_path / "undated")
    assert key_files.oldest_key_day(tmp_path / "dated") == parse_time("2026-03-02T00:00:00Z") // DAY
    assert key_files.oldest_key_day(tmp_path / "undated") is None


@pytest.mark.parametrize(
    ("part", "kept", "note"), [("ingest", "pseudonym", ""), ("worker", "audit", "still contains all later days")]
)
def test_a_part_has_what_its_host_needs_and_of_a_workers_it_is_said_that_the_whole_remains(
    tmp_path: Path, part: str, kept: str, note: str
) -> None:
    here("key", "create", tmp_path / "key", "--first-day", "2026-03-02")
    done = here("key", "export", tmp_path / "key", part, tmp_path / "part")
    assert done.stdout == f"{tmp_path / 'part'}: {part} key created\n"
    assert (note in done.stderr, bool(done.stderr)) == (True, bool(note))
    held = json.loads((tmp_path / "part").read_text())
    assert [name for name in ("pseudonym", "audit") if name in held] == [kept]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return with which keys ledgers end, instead of ending any."""
    asked = list[Any]()

    async def retire(ending: Any, new_key: Path, old_key: Path | None) -> Retired:
        asked.append((new_key, old_key))
        return Retired("2f", 1_234, 2)

    monkeypatch.setattr(key_verb, "retire_ledger", retire)
    return asked


@pytest.mark.parametrize(
    ("words", "where"), [(("--store", "old", "--new-store", "new"), "new"), (("--kafka", "broker:9092"), "cluster")]
)
def test_the_ledger_that_continues_is_named_with_what_it_begins_with(
    ended: list[Any], words: tuple[str, ...], where: str
) -> None:
    done = run("key", "retire", *words, "--key-file", "old.key", "--new-key", "new.key")
    assert done.out == f"{where}: ledger 2f starts with 1,234 entries of the old one\n"
    assert done.problem == "2 of them are charges for windows that are never released\n"
    answer = run("key", "retire", *words, "--key-file", "old.key", "--new-key", "new.key", "--json").answer
    assert answer == {"ledger": "2f", "entries": 1_234, "unreleased": 2}
    assert ended == [(Path("new.key"), Path("old.key"))] * 2


def test_of_a_lost_key_it_is_said_what_cannot_be_checked(ended: list[Any]) -> None:
    words = ("key", "retire", "--store", "old", "--new-store", "new", "--lost", "--new-key", "new.key")
    assert "it cannot be checked whether the old store had been set back" in run(*words).problem
    assert ended == [(Path("new.key"), None)]
