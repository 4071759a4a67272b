"""decide --ledger: an answer is booked before its noise is drawn, and what all of them cost together is told."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from connectors.files.decision_ledger import DecisionLedger, opened
from stream.decisions.books import Books, Charge
from stream.decisions.composition import Cells
from stream.errors import UsageError
from stream.keys import LaboratoryKeys, subkey

LONGEST_LABEL = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say of a ledger."""

    ledger: Path | None
    label: str | None
    budget: Fraction | None
    new_cells: bool

    def check(self) -> None:
        """Raise a usage error where options do not go together."""
        if self.ledger is None and (self.label is not None or self.budget is not None or self.new_cells):
            raise click.UsageError("--label, --budget and --new-cells go with --ledger")
        if self.budget is not None and self.budget <= 0:
            raise click.UsageError(f"--budget: must be above 0, got {float(self.budget):g}")
        if self.ledger is not None and not _is_label(self.label):
            raise click.UsageError(f"--ledger: --label must name the answer, in at most {LONGEST_LABEL} characters")


def _is_label(label: str | None) -> bool:
    return bool(label) and label == str(label).strip() and str(label).isprintable() and len(str(label)) <= LONGEST_LABEL


class OverBudgetError(UsageError):
    """What all answers would cost together is more than the budget."""


@dataclass(frozen=True, slots=True)
class Booking:
    """One answer that is to be booked; without a ledger there is nothing to book."""

    asked: Asked
    keys: LaboratoryKeys
    ledger: DecisionLedger | None

    @property
    def noise_key(self) -> bytes:
        """The key of this answer's noise: another one under another label."""
        key = subkey(self.keys.noise_key(0), "decide")
        return key if self.asked.label is None else subkey(key, f"label {self.asked.label}")

    def enter(self, theta: dict[Cells, Fraction], everywhere: bool, digest: Callable[[], bytes]) -> None:
        """Charge the answer, once, before anything is drawn.

        Args:
            theta: what it is planned to cost each predicate, by cells.
            everywhere: whether whoever is in any cell pays the most of it.
            digest: gives the digest of the whole question, its counts included; asked for when nothing denies.

        Raises:
            OverBudgetError: together they would cost more than the budget.
            UsageError: cells are new without being said to be, or the label was given to something else.
        """
        if self.ledger is None:
            return
        label = str(self.asked.label)
        unsigned = Charge(label, theta, everywhere, "")
        if label not in self.ledger.books.charges:
            self._refuse(self.ledger.books, unsigned)
        commitment = hmac.new(subkey(self.keys.noise_key(0), "decide commitment"), digest(), sha256).hexdigest()
        self.ledger.enter(Charge(label, theta, everywhere, commitment))

    def _refuse(self, books: Books, charge: Charge) -> None:
        new = frozenset().union(*charge.theta) - books.cells
        if books.charges and new and not self.asked.new_cells:
            raise UsageError(
                f"{len(new)} of the question's cells are not in the ledger: thresholds may say in a column cells which "
                "of its cells a predicate holds for; --new-cells says that nobody is in a new cell and in an old one"
            )
        total = books.with_charge(charge).total
        if self.asked.budget is not None and total > self.asked.budget:
            raise OverBudgetError(f"the ledger would stand at epsilon {float(total):g}, which is more than --budget")

    def report(self) -> dict[str, Any] | None:
        """Return where the ledger stands; nothing in it depends on counts."""
        if self.ledger is None:
            return None
        books = self.ledger.books
        charged = books.charges.get(str(self.asked.label))
        return {
            "label": self.asked.label, "charged": 0.0 if charged is None else float(charged.epsilon),
            "answers": len(books.charges), "total": float(books.total), "sum": float(books.sum),
        }  # fmt: skip


@contextmanager
def booking(asked: Asked, keys: LaboratoryKeys) -> Iterator[Booking]:
    """Open the ledger, where there is one, for the time of one answer."""
    if asked.ledger is None:
        yield Booking(asked, keys, None)
        return
    with opened(asked.ledger, keys) as ledger:
        yield Booking(asked, keys, ledger)
