"""Charged answers: what is refused before a draw, what is charged, and which noise an answer gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from connectors.cli.decide import AnswerCharge, LedgerOptions, OverBudgetError, booking
from connectors.tables import decision_ledger
from stream.decisions.ledger import Cells
from stream.errors import AuditError, UsageError
from stream.keys import LaboratoryKeys

F = Fraction
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
NOTHING = F(0)
HALL, LOFT = frozenset({"hall"}), frozenset({"loft"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def asked(
    path: Path | None, label: str | None = "monday", budget: Fraction | None = None, new: bool = False
) -> LedgerOptions:
    return LedgerOptions(path, label, budget, new)


def book(
    path: Path, label: str, hall: Fraction, loft: Fraction = NOTHING, *, everywhere: bool = False, counts: bytes = b"c",
    budget: Fraction | None = None, new: bool = False,
) -> AnswerCharge:  # fmt: skip
    theta: dict[Cells, Fraction] = {HALL: hall, LOFT: loft}
    with booking(asked(path, label, budget, new), KEYS) as made:
        made.enter(theta, everywhere, lambda: counts)
        return made


def test_a_budget_holds_for_all_answers_together_to_the_nano_epsilon(path: Path) -> None:
    book(path, "monday", F(1), budget=F(2))
    book(path, "tuesday", F(1), budget=F(2))
    booked = path.read_bytes()
    with pytest.raises(OverBudgetError, match="more than --budget"):
        book(path, "wednesday", F(1, 10**9), budget=F(2))
    assert path.read_bytes() == booked, "what is denied costs nothing"
    book(path, "wednesday", F(0), F(2), budget=F(2))  # of another cell


def test_answers_that_are_charged_everywhere_use_up_a_budget_by_their_sum(path: Path) -> None:
    for label in ("monday", "tuesday"):
        book(path, label, F(1), everywhere=True, budget=F("2.5"))
    with pytest.raises(OverBudgetError):
        book(path, "wednesday", F(1), everywhere=True, budget=F("2.5"))


def test_an_answer_that_was_booked_costs_nothing_again_even_where_there_is_no_budget_left(path: Path) -> None:
    book(path, "monday", F(1))
    booked = path.read_bytes()
    again = book(path, "monday", F(1), budget=F(1, 2))
    assert path.read_bytes() == booked
    report = again.report()
    assert report is not None
    assert (report["charged"], report["answers"], report["total"], report["sum"]) == (1.0, 1, 1.0, 1.0)


def test_a_label_is_given_to_one_question_of_one_table(path: Path) -> None:
    book(path, "monday", F(1))
    booked = path.read_bytes()
    with pytest.raises(UsageError, match="belongs to another query or to other counts"):
        book(path, "monday", F(1), counts=b"other")
    assert path.read_bytes() == booked


def test_cells_that_the_ledger_does_not_know_are_new_only_where_that_is_said(path: Path) -> None:
    book(path, "monday", F(1))
    roof: dict[Cells, Fraction] = {frozenset({"roof"}): F(1)}
    with booking(asked(path, "tuesday"), KEYS) as made, pytest.raises(UsageError, match="1 of the query's cells"):
        made.enter(roof, False, lambda: b"c")
    with booking(asked(path, "tuesday", new=True), KEYS) as made:
        made.enter(roof, False, lambda: b"c")
        assert made.ledger is not None
        assert len(made.ledger.charges.charges) == 2


def test_each_label_has_noise_of_its_own_and_the_same_one_has_the_same(path: Path) -> None:
    def key(label: str | None) -> bytes:
        return AnswerCharge(asked(None if label is None else path, label), KEYS, None).noise_key

    assert key("monday") == key("monday")
    assert len({key(each) for each in ("monday", "tuesday", None)}) == 3


def test_what_cannot_be_written_is_not_booked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book(path, "monday", F(1))
    booked = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with booking(asked(path, "tuesday"), KEYS) as made:
        monkeypatch.setattr("connectors.tables.decision_ledger.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            made.enter({HALL: F(1)}, False, lambda: b"c")
        assert made.ledger is not None
        assert set(made.ledger.charges.charges) == {"monday"}
    assert path.read_bytes() == booked


def halves(path: Path) -> Iterator[bytes]:
    line = path.read_bytes()
    yield line + line[:0]
    book(path, "tuesday", F(1))
    second = path.read_bytes()[len(line) :]
    yield from (line + second[:cut] for cut in (1, 40, len(second) - 1))


def test_an_entry_that_was_being_written_when_the_machine_stopped_is_taken_away_and_nothing_else(path: Path) -> None:
    book(path, "monday", F(1))
    whole = path.read_bytes()
    for content in list(halves(path)):
        path.write_bytes(content)
        with decision_ledger.opened(path, KEYS) as stored:
            assert set(stored.charges.charges) == {"monday"}
        assert path.read_bytes() == whole
    path.write_bytes(b"notes of somebody")
    with pytest.raises(AuditError, match="entry 0 must be whole"), decision_ledger.opened(path, KEYS):
        pass
    assert path.read_bytes() == b"notes of somebody"


def test_a_ledger_is_a_file_of_its_own_that_can_be_opened(path: Path) -> None:
    link, pipe = path.with_name("link"), path.with_name("pipe")
    link.symlink_to(path)
    os.mkfifo(pipe, 0o600)
    for other, problem in ((link, "cannot be opened as a ledger"), (path.parent, "cannot be opened as a ledger"),
                           (pipe, "must be a file")):  # fmt: skip
        with pytest.raises(UsageError, match=f"{other}: {problem}"), decision_ledger.opened(other, KEYS):
            pass
    assert not path.exists()
