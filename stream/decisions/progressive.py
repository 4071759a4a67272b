"""Runs of a decision mechanism on tables of counts: results, restricted costs, and error rates.

Every run draws keyed noise of its own. The results alone are released; ε per predicate is restricted.

**Choice of the next step** from noisy counts (``chosen``): the step after which most remains unknown (Algorithm 4). For
each possible step, n_u estimates how many predicates stay undecided: the likeliest ones keep the last step's ε, the
others get this step's, and the min-entropy of that is compared. A noisy count of the next step is the current one minus
the B of the chain. So with a flat prior a predicate whose noisy count is x above its threshold stays undecided with
probability p_0 [|x| <= s] + (1-p_0) Pr[|x + DLap(ε)| <= s]. (The thesis' 5.9 assumes independent noises; here they are
one chain.) All of it is + - * / in a fixed order, since what is released depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import ceil, fsum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.decisions.min_entropy import minimum_entropy
from stream.decisions.plan import DecisionTerms, Plan, Step, plan_of
from stream.domains import Suffix
from stream.errors import UsageError
from stream.mechanisms.exact import Floats, Ints, exp
from stream.mechanisms.noise import chain
from stream.mechanisms.noise_labels import Context, counts_digest, label

# The choice of the next step.

_NODES = 40
"""Number of nodes of the search for each min-entropy, whose lower end is compared."""


def chosen(plan: Plan, at: Step, noisy: Ints, undecided: NDArray[np.bool_], epsilons: NDArray[Any]) -> Step:
    """Return the possible step after ``at`` that leaves most unknown; among equals the planned one, then the coarsest.

    Args:
        plan: of the decision.
        at: the current step.
        noisy: its noisy counts, minus the thresholds.
        undecided: the predicates that it left undecided.
        epsilons: of the noise at which each predicate was decided; the last step's for undecided ones.
    """
    spent = np.array([float(each) for each in epsilons])
    best, most = at, -1.0
    for step in plan.candidates(at):
        entropy = minimum_entropy(_expected(plan, at, step, noisy, undecided, spent), most_nodes=_NODES).lower
        if entropy > most:
            best, most = step, entropy
    return best


def _expected(
    plan: Plan, at: Step, step: Step, noisy: Ints, undecided: NDArray[np.bool_], spent: Floats
) -> list[float]:
    """Return the expected epsilons after a step."""
    expected = spent.copy()
    if step.epsilon < plan.last.epsilon:
        places = np.flatnonzero(undecided)
        staying = stays_undecided(noisy[places], step.shift, at.epsilon, step.epsilon)
        decided = len(places) - ceil(fsum(staying.tolist()))
        expected[places[np.argsort(staying, kind="stable")[:decided]]] = float(step.epsilon)
    return [each * plan.terms.sensitivity for each in expected.tolist()]


def stays_undecided(above: Ints, shift: int, coarser: Fraction, finer: Fraction) -> Floats:
    """Return the probability that the next noisy count is undecided too: in (-shift, shift].

    Args:
        above: noisy counts of the current step, minus their thresholds.
        shift: of the next step.
        coarser: ε of the current step.
        finer: ε of the next step, which is larger.
    """
    a_1, a_2 = (float(exp(np.array([-float(epsilon)]))[0]) for epsilon in (coarser, finer))
    ratio = (1 - a_1) / (1 - a_2)
    same = ratio * ratio * (a_2 / a_1)
    within = (above > -shift) & (above <= shift)
    moved = _at_most(shift - above, coarser, a_1) - _at_most(-shift - above, coarser, a_1)
    return np.asarray(same * within + (1 - same) * moved)


def _at_most(z: Ints, epsilon: Fraction, a: float) -> Floats:
    """Return Pr[DLap(ε) <= z]."""
    e = float(epsilon)
    below = exp(-e * np.maximum(-z, 0).astype(np.float64)) / (1 + a)
    beyond = exp(-e * np.maximum(z + 1, 0).astype(np.float64)) / (1 + a)
    return np.where(z < 0, below, 1 - beyond)


Bools = NDArray[np.bool_]
Noise = Mapping[Fraction, Ints]
"""The noise of a chain: for every possible epsilon of a step, one number per predicate."""


class Run(NamedTuple):
    """The result of a run."""

    above: Bools
    """Per predicate; only this is released."""
    epsilons: tuple[Fraction, ...]
    """Per predicate, ε at which it was decided, with the sensitivity; restricted."""


def run(counts: Ints, thresholds: Ints, plan: Plan, noise: Noise) -> Run:
    """Decide once, with the noise of one chain.

    Args:
        counts: one per predicate.
        thresholds: one per predicate; positive is a count above its threshold.
        plan: of the decision.
        noise: of ``plan.all_epsilons``.
    """
    distance = counts - thresholds
    if plan.terms.mechanism in ("laplace", "tslm"):
        shift = plan.last.shift if plan.terms.mechanism == "tslm" else 0
        above = distance + noise[plan.last.epsilon] > -shift
        return Run(above, (plan.price,) * len(counts))
    return _Walk(distance, plan).to_the_end(noise)


class _Walk:
    """Steps of increasing ε until everything is decided."""

    def __init__(self, distance: Ints, plan: Plan) -> None:
        self.distance, self.plan = distance, plan
        self.above = np.zeros(len(distance), dtype=bool)
        self.undecided = np.ones(len(distance), dtype=bool)
        self.epsilons = np.full(len(distance), plan.last.epsilon, dtype=object)

    def to_the_end(self, noise: Noise) -> Run:
        step = self.plan.first()
        while True:
            noisy = self.distance + noise[step.epsilon]
            if step.epsilon == self.plan.last.epsilon:
                self.above |= self.undecided & (noisy > -step.shift)
                break
            self.decide(noisy, step)
            if not self.undecided.any():
                break
            step = self.following(noisy, step)
        spent = tuple(each * self.plan.terms.sensitivity for each in self.epsilons.tolist())
        return Run(self.above, spent)

    def decide(self, noisy: Ints, step: Step) -> None:
        self.above |= self.undecided & (noisy > step.shift)
        still = self.undecided & (noisy > -step.shift) & (noisy <= step.shift)
        self.epsilons[self.undecided & ~still] = step.epsilon
        self.undecided = still

    def following(self, noisy: Ints, step: Step) -> Step:
        if self.plan.terms.mechanism == "ppwlm":
            return self.plan.following(step)
        return chosen(self.plan, step, noisy, self.undecided, self.epsilons)


# Tables.


@dataclass(frozen=True, slots=True)
class Table:
    """Counts of predicates that exclude each other: a person is counted once, except as allowed by the sensitivity."""

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


def price_of(alphas: Sequence[Fraction], terms: DecisionTerms) -> Fraction:
    """Return the joint price of the predicates: they exclude each other, so it is that of the most expensive one."""
    return max(prices_of(alphas, terms))


def prices_of(alphas: Sequence[Fraction], terms: DecisionTerms) -> list[Fraction]:
    """Return the price of each predicate for a person in it: the planned Θ."""
    known = {alpha: plan_of(terms, alpha).price for alpha in set(alphas)}
    return [known[alpha] for alpha in alphas]


def decide(table: Table, terms: DecisionTerms, key: bytes, attempt: int, place: str = "") -> Run:
    """Decide a whole table once; the caller has charged ``price_of``.

    Args:
        table: counts and thresholds.
        terms: of the decision.
        key: secret for drawing the noise.
        attempt: 1, 2, … of the same decision; each has its own noise.
        place: position of a table in a compound decision, so that equal tables do not share their noise.
    """
    above, spent = np.zeros(len(table.predicates), dtype=bool), np.empty(len(table.predicates), dtype=object)
    for alpha in sorted(set(table.alphas)):
        places = np.array([i for i, each in enumerate(table.alphas) if each == alpha])
        plan = plan_of(terms, alpha)
        part = tuple(table.predicates[i] for i in places)
        counts, thresholds = table.counts[places], table.thresholds[places]
        context = Context("", f"decide/{terms.mechanism}", 0, attempt, part, Suffix.DECIDE)
        noise = chain(key, context, _digest(plan, alpha, counts, thresholds, place), plan.all_epsilons, len(part))
        done = run(counts, thresholds, plan, noise)
        above[places], spent[places] = done.above, done.epsilons
    return Run(above, tuple(spent.tolist()))


def question_digest(table: Table, terms: DecisionTerms, place: str) -> bytes:
    """Return the digest of a table, its counts included, and of its terms; restricted."""
    kinds = sorted(set(table.alphas))
    parts = [_digest(plan_of(terms, alpha), alpha, table.counts, table.thresholds, place) for alpha in kinds]
    return sha256(label(terms.mechanism, *table.predicates, *table.alphas, *parts)).digest()


def _digest(plan: Plan, alpha: Fraction, counts: Ints, thresholds: Ints, place: str) -> bytes:
    """Return the digest of a run's input: another decision has other noise."""
    t = plan.terms
    numbers = label(alpha, t.beta, t.epsilon_first, t.steps, t.fine_steps, t.sensitivity, t.form, place)
    return sha256(label(numbers, counts_digest(counts, thresholds))).digest()


# Error rates, computed from the truth and so restricted.


class Rates(NamedTuple):
    """Means over runs."""

    fnr: float | None
    """Share of counts above their threshold that were missed; None where there is none."""
    fpr: float | None
    """Share of the other counts that were decided as above; None where there is none."""
    ex_post: float
    """Largest ε at which a predicate was decided."""
    min_entropy: float
    """In nats, the lower end."""
    runs: int


def rates(truth: Bools, runs: Sequence[Run]) -> Rates:
    """Return the error rates of many runs of one decision.

    Args:
        truth: which predicates are positive.
        runs: at least one.
    """
    positive = int(truth.sum())
    missed = sum(int((truth & ~each.above).sum()) for each in runs)
    mistaken = sum(int((~truth & each.above).sum()) for each in runs)
    n = len(runs)
    return Rates(
        missed / (n * positive) if positive else None,
        mistaken / (n * (len(truth) - positive)) if positive < len(truth) else None,
        fsum(ex_post(each) for each in runs) / n,
        fsum(minimum_entropy([float(e) for e in each.epsilons]).lower for each in runs) / n,
        n,
    )


def ex_post(done: Run) -> float:
    """Return the largest ε at which a predicate was decided; restricted."""
    return float(max(done.epsilons))
