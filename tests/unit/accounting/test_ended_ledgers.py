"""Which key's audit entries need after a ledger has ended and its hash chain continues on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.operations.audit.verification import keys_of, refuse_retired
from stream.accounting.audit import ChainLink, LedgerStart, Start
from stream.errors import KeyFileError, UsageError


def entries(*ledgers: str, site: str = "hall") -> list[dict[str, object]]:
    return [
        {"site": site, "sequence": number, "ledger": ledger, "window_end": f"2026-03-02T1{number}:00:00Z"}
        for number, ledger in enumerate(ledgers)
    ]


def begun(ledger: str, at: int, site: str = "hall") -> LedgerStart:
    return LedgerStart(ledger, 0, {site: Start(ChainLink(at, "0" * 64), at)})


@pytest.mark.parametrize(
    ("ledgers", "beginnings"),
    [
        (("old", "old", "new"), [begun("new", 2)]),
        (("old", "old"), [begun("new", 2)]),  # before its first entry
        (("old", "old", "second", "new"), [begun("second", 2), begun("new", 3)]),
    ],
)
def test_the_key_that_was_retired_is_named_with_its_last_window_and_the_one_to_give(
    ledgers: tuple[str, ...], beginnings: Sequence[LedgerStart]
) -> None:
    with pytest.raises(UsageError) as refusal:
        refuse_retired("old", [], entries(*ledgers), beginnings)
    assert "ledger old, which has ended: its key was retired after the window of 2026-03-02T11:00" in str(refusal.value)
    assert "give the key of ledger new, which" in str(refusal.value)


@pytest.mark.parametrize("ledger", ["new", "another"])
def test_the_key_that_goes_on_and_one_that_never_was_are_not_refused_for_that(ledger: str) -> None:
    refuse_retired(ledger, [], entries("old", "new"), [begun("new", 1)])


def test_where_a_site_still_stands_in_it_the_ledger_has_not_ended() -> None:
    refuse_retired("old", [], [*entries("old", "new"), *entries("old", site="loft")], [begun("new", 1)])


def test_a_store_in_which_nothing_was_released_yet_does_not_know_its_own_ledger() -> None:
    with pytest.raises(UsageError, match="give the key of the ledger, which continues"):
        refuse_retired("old", entries("old"), [], [])


def test_the_keys_of_a_file_are_those_of_its_ledger_until_they_are_retired(tmp_path: Path) -> None:
    file = tmp_path / "key"
    key_files.create(file, laboratory=False)
    assert keys_of(file).ledger == key_files.FileKeys(file).ledger
    key_files.retire(file, "the next")
    with pytest.raises(KeyFileError, match="; give the key of that ledger, or no key, which still checks chains"):
        keys_of(file)
    with pytest.raises(KeyFileError) as missing:
        keys_of(tmp_path / "none")
    assert "which still checks chains" not in str(missing.value)
