"""Compound decisions: trees of ``and``, ``or`` and ``not`` over tables.

A predicate that should be found is missed by "all" when any part misses it, so parts share β. It is missed by "any"
only when the part that holds misses it, so each part has the whole β. (The thesis shares β there too.) The parts count
the same people, so their ε add up, unless they are declared to be about different people: then the largest ε counts.

| split | "all" of parts whose ε add | of parts about different people |
|---|---|---|
| optimal | β in proportion to W, the sum of 1/u over the tables below | shares for which all parts have the same ε |
| naive | β/n each (Algorithm 6), and so for "any" (Algorithm 7) | the same |
| thesis | in proportion to W (6.21), and so for "any" | the same |

u is the distance that a table's shift allows the noise, relative to the change by one person: ε is about ln(1/β)/u, and
-Σ W ln β is smallest where β is proportional to W.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial, reduce
from hashlib import sha256
from typing import Literal

import numpy as np

from stream.decisions.plan import GRID, DecisionTerms
from stream.decisions.progressive import Bools, Run, Table, decide, price_of, prices_of, question_digest
from stream.errors import UsageError
from stream.mechanisms.exact import exp_minus, floor_scaled
from stream.mechanisms.noise_labels import label

Split = Literal["optimal", "naive", "thesis"]
Betas = Mapping[str, Fraction]
"""Each table's position -> its bound on misses."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One table."""

    place: str
    """Position in the tree, unique."""
    alphas: tuple[Fraction, ...]
    """In the integers that are compared."""
    sensitivity: int = 1
    """The largest change by one contribution; ``terms`` contains the number of contributions per person."""

    def terms(self, terms: DecisionTerms, beta: Fraction) -> DecisionTerms:
        """Return the terms of this table alone."""
        return replace(terms, beta=beta, sensitivity=terms.sensitivity * self.sensitivity)


@dataclass(frozen=True, slots=True)
class Join:
    """All or any of its parts. UsageError without parts, or where whole trees are declared disjoint."""

    kind: Literal["and", "or"]
    parts: tuple[Tree, ...]
    disjoint: bool = False
    """Whether no person is counted in two parts."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise UsageError(f'"{self.kind}" must have at least one part')
        if self.disjoint and not all(isinstance(part, Leaf) for part in self.parts):
            raise UsageError(f'"{self.kind}" that is disjoint must have tables as its parts, no further trees')


Tree = Leaf | Join


def betas_of(tree: Tree, terms: DecisionTerms, split: Split = "optimal") -> dict[str, Fraction]:
    """Return each table's β, so that the whole decision misses with probability ``terms.beta`` at most."""
    return dict(_betas(tree, terms, terms.beta, split))


def _betas(tree: Tree, terms: DecisionTerms, beta: Fraction, split: Split) -> Iterator[tuple[str, Fraction]]:
    if isinstance(tree, Leaf):
        yield tree.place, beta
        return
    for part, share in zip(tree.parts, _shares(tree, terms, beta, split), strict=True):
        yield from _betas(part, terms, share, split)


def _shares(join: Join, terms: DecisionTerms, beta: Fraction, split: Split) -> list[Fraction]:
    if split == "naive":
        return [beta / len(join.parts)] * len(join.parts)
    if join.kind == "or" and split == "optimal":
        return [beta] * len(join.parts)
    if join.disjoint and split == "optimal":
        return _equally_dear(list(leaves(join)), terms, beta)
    weights = [sum(1 / reach(leaf, terms) for leaf in leaves(part)) for part in join.parts]
    return [beta * weight / sum(weights) for weight in weights]


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Yield the tables of a tree, from left to right."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for part in tree.parts:
            yield from leaves(part)


def reach(leaf: Leaf, terms: DecisionTerms) -> Fraction:
    """Return u of a table, to which its ε is inversely proportional."""
    least = min(leaf.alphas)
    return (Fraction(int(least) + 1) if terms.form == "safe" else least) / leaf.sensitivity


def _equally_dear(leaves: list[Leaf], terms: DecisionTerms, beta: Fraction) -> list[Fraction]:
    """Return each part's β at the smallest common ε for which they add up to β at most."""
    reaches = [(leaf, reach(leaf, terms)) for leaf in leaves]
    enough = GRID
    while sum(_missed(reaches, terms, enough)) > beta:
        enough *= 2
    too_little = 0
    while enough - too_little > 1:
        middle = (enough + too_little) // 2
        if sum(_missed(reaches, terms, middle)) <= beta:
            enough = middle
        else:
            too_little = middle
    return _missed(reaches, terms, enough)


def _missed(reaches: list[tuple[Leaf, Fraction]], terms: DecisionTerms, epsilon: int) -> list[Fraction]:
    """Return the β that each part, given with its u, needs at an ε in units of the grid, rounded up."""
    at = Fraction(epsilon, GRID)

    def missed(leaf: Leaf, far: Fraction) -> Decimal:
        below = 1 + exp_minus(at / leaf.sensitivity) if terms.form == "safe" else Decimal(2)
        return exp_minus(at * far) * terms.shares / below

    return [Fraction(floor_scaled(partial(missed, *each), 80) + 1, 1 << 80) for each in reaches]


def price_of_tree(tree: Tree, terms: DecisionTerms, betas: Betas) -> Fraction:
    """Return the price of the whole decision."""
    if isinstance(tree, Leaf):
        return price_of(tree.alphas, tree.terms(terms, betas[tree.place]))
    prices = [price_of_tree(part, terms, betas) for part in tree.parts]
    return max(prices) if tree.disjoint else sum(prices, Fraction(0))


def planned(tree: Tree, terms: DecisionTerms, betas: Betas, predicates: int) -> list[Fraction]:
    """Return the planned price of each predicate; with several tables, each pays for the whole decision."""
    if isinstance(tree, Leaf):
        return prices_of(tree.alphas, tree.terms(terms, betas[tree.place]))
    return [price_of_tree(tree, terms, betas)] * predicates


def tree_digest(tree: Tree, tables: Mapping[str, Table], terms: DecisionTerms, betas: Betas) -> bytes:
    """Return the digest of a whole decision, its counts included; restricted."""
    if isinstance(tree, Leaf):
        return question_digest(tables[tree.place], tree.terms(terms, betas[tree.place]), tree.place)
    parts = [tree_digest(part, tables, terms, betas) for part in tree.parts]
    return sha256(label(tree.kind, int(tree.disjoint), *parts)).digest()


def decide_tree(
    tree: Tree, tables: Mapping[str, Table], terms: DecisionTerms, betas: Betas, key: bytes, attempt: int
) -> Run:
    """Decide a whole tree once; the caller has charged ``price_of_tree``.

    Args:
        tree: the tables and their combination.
        tables: position -> table; all with the same predicates in the same order.
        terms: of the decision, except β.
        betas: each table's β.
        key: secret for drawing the noise.
        attempt: 1, 2, … of the same decision.
    """
    if isinstance(tree, Leaf):
        return decide(tables[tree.place], tree.terms(terms, betas[tree.place]), key, attempt, tree.place)
    runs = [decide_tree(part, tables, terms, betas, key, attempt) for part in tree.parts]
    above = _joined(tree, [each.above for each in runs])
    together = max if tree.disjoint else sum
    spent = tuple(Fraction(together(each)) for each in zip(*(each.epsilons for each in runs), strict=True))
    return Run(above, spent)


def truth_of(tree: Tree, tables: Mapping[str, Table]) -> Bools:
    """Return which predicates are positive; restricted."""
    if isinstance(tree, Leaf):
        return tables[tree.place].truth
    return _joined(tree, [truth_of(part, tables) for part in tree.parts])


def _joined(join: Join, parts: list[Bools]) -> Bools:
    return reduce(np.logical_and if join.kind == "and" else np.logical_or, parts)
