"""The ledger of answers: what answers cost together, and which answer a label identifies."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from stream.decisions.ledger import AnswerLedger, Charge, Theta, entry_of, ledger_of
from stream.errors import AuditError, UsageError
from stream.keys import LaboratoryKeys

F = Fraction
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
HALL, LOFT = frozenset({"hall"}), frozenset({"loft"})
NANO = F(1, 10**9)


def charge(label: str, hall: Fraction, loft: Fraction, *, everywhere: bool = False) -> Charge:
    theta: Theta = {HALL: hall, LOFT: loft}
    return Charge(label, theta, everywhere, commitment="c-" + label)


def books(*charges: Charge) -> AnswerLedger:
    made = AnswerLedger()
    for each in charges:
        made, _ = entry_of(made, each, KEYS)
    return made


def test_answers_that_are_charged_everywhere_add_up_to_their_sum() -> None:
    """A person may be in the dearest predicate of each, so none of them is covered by a dearer one."""
    charges = [charge(str(n), F(n), F(1), everywhere=True) for n in (1, 3, 2)]
    assert [books(*charges[:n]).total for n in range(4)] == [0, 1, 4, 6]


def test_answers_that_are_charged_by_predicate_cost_what_the_dearest_cell_pays() -> None:
    apart = books(charge("a", F(1), F(0)), charge("b", F(0), F(2)))
    assert (apart.total, apart.sum) == (F(2), F(3))
    assert books(charge("a", F(1), F(0)), charge("b", F(2), F(0))).total == 3


def test_what_is_charged_everywhere_is_added_to_every_cell() -> None:
    both = [charge("a", F(1), F(0)), charge("b", F(0), F(2)), charge("c", F(4), F(5), everywhere=True)]
    assert books(*both).total == 2 + 5
    assert books(*both, charge("d", F(7), F(0), everywhere=True)).total == 2 + 5 + 7


def test_a_total_is_exact_to_the_ledgers_unit() -> None:
    made = books(*(charge(str(n), NANO, F(0), everywhere=True) for n in range(3)))
    assert made.total == made.sum == 3 * NANO


def test_books_that_are_read_back_cost_what_was_charged() -> None:
    lines, made = [], AnswerLedger()
    for each in (charge("a", F(1, 8), F(3)), charge("b", NANO, F(0), everywhere=True), charge("c", F(2), F(2))):
        made, line = entry_of(made, each, KEYS)
        lines.append(line)
    again = ledger_of(lines, KEYS)
    assert (again.total, again.sum, again.head) == (made.total, made.sum, made.head)
    with pytest.raises(AuditError, match="entry 1 must be whole"):
        ledger_of([lines[0], lines[2]], KEYS)
    with pytest.raises(AuditError, match="entry 0 must be whole"):
        ledger_of(lines, replace(KEYS, audit=b"b" * 32))


def test_a_label_stands_for_one_question_of_one_table() -> None:
    stored = books(charge("monday", F(1), F(1)))
    assert stored.repeats(charge("monday", F(1), F(1)))
    assert not stored.repeats(charge("tuesday", F(1), F(1)))
    with pytest.raises(UsageError, match="belongs to another query or to other counts"):
        stored.repeats(replace(charge("monday", F(1), F(1)), commitment="another"))
