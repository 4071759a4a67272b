"""A ledger of answers: what each was planned to cost which predicate, entered before its noise is drawn.

An answer has a label that says which it is, and that decides whether it is charged: never its counts. Under a label
that the ledger has, only the very same question of the same counts is answered again, with the same noise and so for
nothing; the entry holds a commitment to both, under a key that readers of the ledger do not have.

What all answers cost together is composed predicate by predicate (Theorem 5.2): of one cell, the sum of what each
answer charges it. That holds for who is in one cell. Where a person may be in several, or in another one each time (a
bound above one on what a person contributes, or several tables), an answer is charged everywhere, by its dearest
predicate.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from hashlib import sha256
from typing import Any

import orjson

from stream.accounting.ledger import GENESIS, chain_hash
from stream.decisions.composition import Theta, composed, epsilon_of
from stream.errors import AuditError, UsageError
from stream.keys import Keys

_NANO = 10**9


@dataclass(frozen=True, slots=True)
class Charge:
    """What one answer is planned to cost."""

    label: str
    theta: Theta
    """Of predicates by the names of their cells."""
    everywhere: bool
    """Whether whoever is in any cell pays the most of it."""
    commitment: str
    """To the question and its counts, in hex."""

    @property
    def epsilon(self) -> Fraction:
        """What it costs whoever pays most."""
        return epsilon_of(self.theta)


@dataclass(frozen=True, slots=True)
class Books:
    """What has been charged so far; each charge makes the next state."""

    charges: Mapping[str, Charge] = field(default_factory=dict)
    """By label, in their order."""
    head: str = GENESIS

    @property
    def theta(self) -> Theta:
        """What all answers that are charged by predicate cost together."""
        none: Theta = {}
        return reduce(composed, (each.theta for each in self.charges.values() if not each.everywhere), none)

    @property
    def total(self) -> Fraction:
        """What all answers cost whoever pays most, being in one cell."""
        return epsilon_of(self.theta) + sum(each.epsilon for each in self.charges.values() if each.everywhere)

    @property
    def sum(self) -> Fraction:
        """What they cost at most whoever may have been in another cell each time."""
        return sum((each.epsilon for each in self.charges.values()), Fraction(0))

    @property
    def cells(self) -> frozenset[Any]:
        """All cells that are known."""
        return frozenset[Any]().union(*(predicate for each in self.charges.values() for predicate in each.theta))

    def repeats(self, charge: Charge) -> bool:
        """Whether a charge was made before.

        Raises:
            UsageError: its label was given to another question, or to other counts.
        """
        known = self.charges.get(charge.label)
        if known is not None and not hmac.compare_digest(known.commitment, charge.commitment):
            raise UsageError("label: was given to another question or to other counts; nothing is decided or charged")
        return known is not None

    def with_charge(self, charge: Charge) -> Books:
        """Return the books with one charge more."""
        return replace(self, charges={**self.charges, charge.label: charge})


def entry_of(books: Books, charge: Charge, keys: Keys) -> tuple[Books, bytes]:
    """Enter a new charge; return the next state and the entry's line."""
    body = _place(books, keys) | {
        "label": charge.label, "everywhere": charge.everywhere, "commitment": charge.commitment,
        "theta": [[sorted(cells), int(epsilon * _NANO)] for cells, epsilon in _by_cost(charge.theta)],
    }  # fmt: skip
    digest = chain_hash(body)
    line = orjson.dumps(body | {"hash": digest, "mac": _mac(keys, digest)}, option=orjson.OPT_APPEND_NEWLINE)
    return replace(books.with_charge(charge), head=digest), line


def _place(books: Books, keys: Keys) -> dict[str, Any]:
    return {"v": 1, "sequence": len(books.charges), "previous": books.head, "ledger": keys.ledger}


def beginning(books: Books, keys: Keys) -> bytes:
    """Return how the next entry's line begins, whatever is charged."""
    return orjson.dumps(_place(books, keys))[:-1] + b',"label":'


def _by_cost(theta: Theta) -> list[tuple[list[str], Fraction]]:
    """Return predicates with what they cost, those of equal cost as one, in a fixed order."""
    by_epsilon: dict[Fraction, list[str]] = {}
    for cells, epsilon in theta.items():
        by_epsilon.setdefault(epsilon, []).extend(map(str, cells))
    return [(sorted(cells), epsilon) for epsilon, cells in sorted(by_epsilon.items())]


def books_of(lines: Iterable[bytes], keys: Keys) -> Books:
    """Return the books that entries make.

    Raises:
        AuditError: an entry is not one, does not follow the one before, or was not made with this key.
    """
    books = Books()
    for number, line in enumerate(lines):
        try:
            books = _followed(books, orjson.loads(line), keys)
        except (AuditError, LookupError, TypeError, ValueError):
            raise not_an_entry(number) from None
    return books


def not_an_entry(number: int) -> AuditError:
    """Return what to say of a line that is none."""
    return AuditError(f"ledger of decisions: entry {number} must be whole, follow the one before it and be of this key")


def _followed(books: Books, entry: dict[str, Any], keys: Keys) -> Books:
    theta: Theta = {frozenset(map(str, cells)): Fraction(nano, _NANO) for cells, nano in entry["theta"]}
    charge = Charge(entry["label"], theta, entry["everywhere"], entry["commitment"])
    if charge.label in books.charges:
        raise ValueError
    after, line = entry_of(books, charge, keys)
    if orjson.loads(line) != entry:
        raise ValueError
    return after


def _mac(keys: Keys, digest: str) -> str:
    return hmac.new(keys.audit, b"tacet decisions v1 " + digest.encode(), sha256).hexdigest()
