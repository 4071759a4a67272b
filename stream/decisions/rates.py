"""How good many runs were, and what they gave away: by the truth, so restricted."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from stream.decisions.min_entropy import min_entropy
from stream.decisions.progressive import Bools, Run


class Rates(NamedTuple):
    """Means over runs."""

    fnr: float | None
    """Share of counts above their threshold that were missed; None where there is none."""
    fpr: float | None
    """Share of the others that were taken for above; None where there is none."""
    ex_post: float
    """Largest ε at which a predicate was decided."""
    min_entropy: float
    """In nats, by the lower end."""
    runs: int


def rates(truth: Bools, runs: Sequence[Run]) -> Rates:
    """Return what many runs of one question came to.

    Args:
        truth: which predicates are positive.
        runs: at least one.
    """
    positive = int(truth.sum())
    missed = sum(int((truth & ~each.above).sum()) for each in runs)
    taken = sum(int((~truth & each.above).sum()) for each in runs)
    n = len(runs)
    return Rates(
        missed / (n * positive) if positive else None,
        taken / (n * (len(truth) - positive)) if positive < len(truth) else None,
        fsum(ex_post(each) for each in runs) / n,
        fsum(min_entropy([float(e) for e in each.epsilons]).lower for each in runs) / n,
        n,
    )


def ex_post(done: Run) -> float:
    """Return the largest ε at which a predicate was decided; restricted."""
    return float(max(done.epsilons))
