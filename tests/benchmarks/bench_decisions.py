"""Threshold decisions on 10,000 predicates: their min-entropy, one run of each mechanism, a ledger of answers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce

import numpy as np

from stream.decisions.ledger import Theta, composed
from stream.decisions.min_entropy import minimum_entropy
from stream.decisions.plan import DecisionTerms, Mechanism
from stream.decisions.progressive import Table, decide
from tests.benchmarks.shared import Figure, tell

PREDICATES, GOAL_S = 10_000, 1.0
MECHANISMS: tuple[Mechanism, ...] = ("tslm", "ppwlm", "dppwlm")


def seconds(work: Callable[[], object]) -> float:
    """Return the processor seconds of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def entropy() -> Figure:
    """Return the dearest of many kinds of answers on up to 12 levels, with and without priors."""
    random_, worst = random.Random(1), 0.0
    for levels in (1, 2, 4, 8, 12):
        for finest in (-2.0, 0.0, 0.6, 1.1):
            known = [10 ** random_.uniform(-5, finest) for _ in range(levels)]
            epsilons = [random_.choice(known) for _ in range(PREDICATES)]
            priors = [random_.choice((0.1, 0.5, 1.0)) for _ in range(PREDICATES)]
            query = partial(minimum_entropy, epsilons), partial(minimum_entropy, epsilons, priors)
            worst = max(worst, *map(seconds, query))
    return Figure(
        "min-entropy of 10,000 predicates", worst, "s CPU", f"< {GOAL_S:g}", worst < GOAL_S, "the worst of 40 answers"
    )


def run(mechanism: Mechanism) -> Figure:
    """Return what one run on all predicates takes."""
    rng = random.Random(2)
    counts = np.array([rng.randrange(20_000) for _ in range(PREDICATES)])
    table = Table(tuple(map(str, range(PREDICATES))), counts, np.full(PREDICATES, 9_000), (Fraction(1),) * PREDICATES)
    took = seconds(lambda: decide(table, DecisionTerms(mechanism, Fraction(1, 20)), b"k" * 32, 1))
    return Figure(f"{mechanism}, 10,000 predicates", took, "s CPU", aside=True)


def ledger() -> Figure:
    """Return what ten answers on all predicates take to compose."""
    answers: list[Theta] = [
        {frozenset({cell}): Fraction(1 + (cell + each) % 3) for cell in range(PREDICATES)} for each in range(10)
    ]
    nothing: Theta = {}
    return Figure("ten answers composed", seconds(lambda: reduce(composed, answers, nothing)), "s CPU", aside=True)


def main() -> None:
    """Measure and tell."""
    tell([entropy(), *(run(mechanism) for mechanism in MECHANISMS), ledger()])


if __name__ == "__main__":
    main()
