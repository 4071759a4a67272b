"""Min-entropy as one asks for it: plain numbers in, a plain answer out; ``tacet leakage min-entropy`` prints it."""

from __future__ import annotations

from typing import Any

from stream.accounting.leakage.entries import vector
from stream.decisions import min_entropy as measure


def min_entropy(*, epsilons: object, priors: object = None) -> dict[str, Any]:
    """Return how little may remain unknown of which predicate holds, after a predicate-wise private answer.

    Args:
        epsilons: what the answer costs a record of each predicate, >= 0, at least one.
        priors: how likely each was beforehand, >= 0, up to a factor; by default equal.

    Returns:
        ``min_entropy`` in nats (the ``lower`` end where it is not ``exact``), ``normalised`` by the logarithm of
        the number of predicates, and the bracket ``lower``, ``upper``.

    Raises:
        UsageError: an entry is malformed, there is none, or no prior is positive.
    """
    each = vector(epsilons, "epsilons", low=0.0)
    before = None if priors is None else vector(priors, "priors", len(each), low=0.0).tolist()
    found = measure.min_entropy(each.tolist(), before)
    return {
        "min_entropy": found.lower,
        "normalised": found.normalised,
        "lower": found.lower,
        "upper": found.upper,
        "exact": found.exact,
    }
