"""A table of counts against thresholds: priced, denied or decided, with keyed noise of its own for every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

import numpy as np

from stream.decisions.plan import Plan, Terms, plan_of
from stream.decisions.progressive import Run, run
from stream.errors import UsageError
from stream.mechanisms.chain import chain
from stream.mechanisms.inversion import Ints
from stream.mechanisms.labels import Context, counts_digest, label


@dataclass(frozen=True, slots=True)
class Table:
    """Counts of predicates that exclude each other: nobody is counted in two, but for what the sensitivity says."""

    predicates: tuple[str, ...]
    counts: Ints
    thresholds: Ints
    """Positive is a count above its threshold."""
    alphas: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        sizes = {len(self.predicates), len(self.counts), len(self.thresholds), len(self.alphas)}
        if sizes == {0} or len(sizes) > 1:
            raise UsageError(
                f"counts, thresholds and alphas must be of the same predicates, got {sorted(sizes)} of them"
            )
        if len(set(self.predicates)) < len(self.predicates):
            raise UsageError("predicates must be named once each")

    @property
    def truth(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which counts are above; restricted."""
        return np.asarray(self.counts > self.thresholds)


def price_of(alphas: Sequence[Fraction], terms: Terms) -> Fraction:
    """Return what the predicates cost together: they exclude each other, so as much as the dearest of them."""
    return max(prices_of(alphas, terms))


def prices_of(alphas: Sequence[Fraction], terms: Terms) -> list[Fraction]:
    """Return what each predicate costs who is in it: the planned Θ."""
    known = {alpha: plan_of(terms, alpha).price for alpha in set(alphas)}
    return [known[alpha] for alpha in alphas]


def decide(table: Table, terms: Terms, key: bytes, attempt: int, place: str = "") -> Run:
    """Decide a whole table once; who calls has charged ``price_of``.

    Args:
        table: what to decide.
        terms: how.
        key: secret that draws the noise.
        attempt: 1, 2, … of the same question; each has noise of its own.
        place: of a table in a compound question, so that equal ones do not share their noise.
    """
    above, spent = np.zeros(len(table.predicates), dtype=bool), np.empty(len(table.predicates), dtype=object)
    for alpha in sorted(set(table.alphas)):
        places = np.array([i for i, each in enumerate(table.alphas) if each == alpha])
        plan = plan_of(terms, alpha)
        part = tuple(table.predicates[i] for i in places)
        counts, thresholds = table.counts[places], table.thresholds[places]
        context = Context("", f"decide/{terms.mechanism}", 0, attempt, part, "/decide")
        noise = chain(key, context, _digest(plan, alpha, counts, thresholds, place), plan.all_epsilons, len(part))
        done = run(counts, thresholds, plan, noise)
        above[places], spent[places] = done.above, done.epsilons
    return Run(above, tuple(spent.tolist()))


def question_digest(table: Table, terms: Terms, place: str) -> bytes:
    """Return the digest of a table, its counts included, and how it is decided; restricted."""
    kinds = sorted(set(table.alphas))
    parts = [_digest(plan_of(terms, alpha), alpha, table.counts, table.thresholds, place) for alpha in kinds]
    return sha256(label(terms.mechanism, *table.predicates, *table.alphas, *parts)).digest()


def _digest(plan: Plan, alpha: Fraction, counts: Ints, thresholds: Ints, place: str) -> bytes:
    """Return the digest of all that a run reads: another question has other noise."""
    t = plan.terms
    numbers = label(alpha, t.beta, t.epsilon_first, t.steps, t.fine_steps, t.sensitivity, t.form, place)
    return sha256(label(numbers, counts_digest(counts, thresholds))).digest()
