"""A ledger of answers: planned costs, entered before noise is drawn.

An answer has a label that identifies it. The label decides whether the answer is charged; its counts never do. Under a
label that the ledger contains, only exactly the same query of the same counts is answered again, with the same noise
and so for free. The entry contains a commitment to all three, under a key that readers of the ledger do not have. So
entries of one query under two labels do not show whether its counts are the same.

The joint cost of all answers is composed predicate by predicate (Theorem 5.2): for one cell, the sum of what each
answer charges it. A predicate is the set of cells for which it holds, such as pairs of zone and time; the predicates of
one answer exclude each other. A record in cell x pays the charge of the predicate that contains x in each answer, so
the composition consists of the pieces into which the predicates divide each other. Only planned epsilons may be
composed for a public ledger: the epsilons at which a run ended depend on counts.

This holds for a person who is in one cell. Where a person may be in several cells, or in another one each time (a
bound above one on a person's contributions, or several tables), an answer is charged everywhere, by its most expensive
predicate.
"""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from hashlib import sha256
from typing import Any

import orjson

from stream.accounting.ledger import GENESIS, chain_hash
from stream.domains import Domain
from stream.errors import AuditError, UsageError
from stream.keys import Keys
from stream.records import JsonObject

# Composition by predicate.

Cells = frozenset[Hashable]
Theta = Mapping[Cells, Fraction]
"""Predicate -> ε that an answer costs a record of it; a cell of no predicate costs nothing."""


def composed(first: Theta, second: Theta) -> dict[Cells, Fraction]:
    """Return the Θ of both answers together: pieces in both cost the sum, other pieces their own cost.

    Raises:
        UsageError: a Θ has predicates that overlap, or that hold for no cell.
    """
    of_first, of_second = _by_cell(first), _by_cell(second)
    pieces: dict[tuple[Cells, Cells], set[Hashable]] = defaultdict(set)
    for cell in of_first.keys() | of_second.keys():
        pieces[of_first.get(cell, _NONE), of_second.get(cell, _NONE)].add(cell)
    nothing = Fraction(0)
    return {frozenset(cells): first.get(a, nothing) + second.get(b, nothing) for (a, b), cells in pieces.items()}


_NONE: Cells = frozenset()


def _by_cell(theta: Theta) -> dict[Hashable, Cells]:
    found = {cell: predicate for predicate in theta for cell in predicate}
    if not all(theta):
        raise UsageError("a predicate must hold for at least one cell")
    if len(found) < sum(map(len, theta)):
        raise UsageError("predicates of one answer must exclude each other")
    return found


def epsilon_of(theta: Theta) -> Fraction:
    """Return ε of differential privacy for one added or removed record: the largest of any predicate (Theorem 5.3)."""
    return max(theta.values(), default=Fraction(0))


_NANO = 10**9


@dataclass(frozen=True, slots=True)
class Charge:
    """The planned cost of one answer."""

    label: str
    theta: Theta
    """The predicates are given by the names of their cells."""
    everywhere: bool
    """Whether a person in any cell pays the largest cost."""
    commitment: str
    """Commitment to the label, the query and its counts, in hex."""

    @property
    def epsilon(self) -> Fraction:
        """The largest cost for any person."""
        return epsilon_of(self.theta)


@dataclass(frozen=True, slots=True)
class AnswerLedger:
    """The charges so far; each charge makes a new state."""

    charges: Mapping[str, Charge] = field(default_factory=dict)
    """Label -> charge, in order."""
    head: str = GENESIS

    @property
    def theta(self) -> Theta:
        """The joint cost of all answers that are charged by predicate."""
        none: Theta = {}
        return reduce(composed, (each.theta for each in self.charges.values() if not each.everywhere), none)

    @property
    def total(self) -> Fraction:
        """The largest joint cost of all answers for a person in one cell."""
        return epsilon_of(self.theta) + sum(each.epsilon for each in self.charges.values() if each.everywhere)

    @property
    def sum(self) -> Fraction:
        """Upper bound on the joint cost for a person who may have been in another cell each time."""
        return sum((each.epsilon for each in self.charges.values()), Fraction(0))

    @property
    def cells(self) -> frozenset[Any]:
        """All known cells."""
        return frozenset[Any]().union(*(predicate for each in self.charges.values() for predicate in each.theta))

    def repeats(self, charge: Charge) -> bool:
        """Whether a charge was made before.

        Raises:
            UsageError: its label belongs to another query, or to other counts.
        """
        known = self.charges.get(charge.label)
        if known is not None and not hmac.compare_digest(known.commitment, charge.commitment):
            raise UsageError("label: belongs to another query or to other counts; nothing is decided or charged")
        return known is not None

    def with_charge(self, charge: Charge) -> AnswerLedger:
        """Return the ledger with one more charge."""
        return replace(self, charges={**self.charges, charge.label: charge})


def entry_of(ledger: AnswerLedger, charge: Charge, keys: Keys) -> tuple[AnswerLedger, bytes]:
    """Append a new charge; return the next state and the entry's line."""
    body = _place(ledger, keys) | {
        "label": charge.label, "everywhere": charge.everywhere, "commitment": charge.commitment,
        "theta": [[sorted(cells), int(epsilon * _NANO)] for cells, epsilon in _by_cost(charge.theta)],
    }  # fmt: skip
    digest = chain_hash(body)
    line = orjson.dumps(body | {"hash": digest, "mac": _mac(keys, digest)}, option=orjson.OPT_APPEND_NEWLINE)
    return replace(ledger.with_charge(charge), head=digest), line


def _place(ledger: AnswerLedger, keys: Keys) -> dict[str, int | str]:
    return {"v": 1, "sequence": len(ledger.charges), "previous": ledger.head, "ledger": keys.ledger}


def entry_prefix(ledger: AnswerLedger, keys: Keys) -> bytes:
    """Return the beginning of the next entry's line, which does not depend on its charge."""
    return orjson.dumps(_place(ledger, keys))[:-1] + b',"label":'


def _by_cost(theta: Theta) -> list[tuple[list[str], Fraction]]:
    """Return predicates with their cost, those of equal cost merged, in a fixed order."""
    by_epsilon: dict[Fraction, list[str]] = {}
    for cells, epsilon in theta.items():
        by_epsilon.setdefault(epsilon, []).extend(map(str, cells))
    return [(sorted(cells), epsilon) for epsilon, cells in sorted(by_epsilon.items())]


def ledger_of(lines: Iterable[bytes], keys: Keys) -> AnswerLedger:
    """Return the ledger that entries form.

    Raises:
        AuditError: an entry is malformed, does not follow the one before, or was not made with this key.
    """
    ledger = AnswerLedger()
    for number, line in enumerate(lines):
        try:
            ledger = _extended(ledger, orjson.loads(line), keys)
        except (AuditError, LookupError, TypeError, ValueError):
            raise not_an_entry(number) from None
    return ledger


def not_an_entry(number: int) -> AuditError:
    """Return the error for a line that is no entry."""
    return AuditError(f"ledger of decisions: entry {number} must be whole, follow the one before it and be of this key")


def _extended(ledger: AnswerLedger, entry: JsonObject, keys: Keys) -> AnswerLedger:
    theta: Theta = {frozenset(map(str, cells)): Fraction(nano, _NANO) for cells, nano in entry["theta"]}
    charge = Charge(entry["label"], theta, entry["everywhere"], entry["commitment"])
    if charge.label in ledger.charges:
        raise ValueError
    after, line = entry_of(ledger, charge, keys)
    if orjson.loads(line) != entry:
        raise ValueError
    return after


def _mac(keys: Keys, digest: str) -> str:
    return hmac.new(keys.audit, Domain.DECISIONS + digest.encode(), sha256).hexdigest()
