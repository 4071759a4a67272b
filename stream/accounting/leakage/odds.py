"""Odds and factors as numbers that may be infinite: what every question about dependent attributes reckons with.

Odds are always sensitive : not sensitive, Pr(X = 0) / Pr(X = 1); a factor is what an outcome multiplies them by.
"""

from __future__ import annotations

import math

from stream.accounting.leakage.entries import number


def exp_or_inf(value: float) -> float:
    """Return e^value, infinity where a double cannot hold it."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def spent(epsilon: float, queries: int) -> float:
    """Return queries x epsilon, where no query spends nothing even at infinite epsilon."""
    return 0.0 if queries == 0 else queries * epsilon


def posterior_odds(prior_odds: float, factor: float) -> float:
    """Return prior odds x factor; odds of 0 or infinity are certain and stay what they are."""
    odds = number(prior_odds, "prior_odds", low=0.0, finite=False, any_size=True)
    ratio = number(factor, "factor", low=0.0, finite=False, any_size=True)
    return odds if odds in (0.0, math.inf) else odds * ratio
