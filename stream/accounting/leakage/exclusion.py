"""The exclusion attack in closed form: what withheld records, and one other attribute, say about a record.

An attribute's record is released with probability 1 - e^-epsilon when it is not sensitive and never when
it is (OSDPRR), so withholding is evidence for "sensitive". Lee & Smith, "Privacy Leakage over Dependent
Attributes in One-Sided Differential Privacy": Theorem 1 with its n-query form (2), Theorem 2, Corollary 1
and Theorem 3. All are special cases of ``stream.accounting.leakage.dependence``, which takes any number of
attributes; Theorem 4 (two colluding applications) is in ``stream.accounting.leakage.collusion``.

| symbol          | here          | meaning                                                            |
|-----------------|---------------|--------------------------------------------------------------------|
| X_i             |               | 0 when the record of attribute i is sensitive, 1 when it is not    |
| M_i             |               | 1 when that record was released, 0 when it was withheld            |
| epsilon_i       | ``epsilon``   | the parameter of the release, >= 0; infinity: always released      |
| n               | ``queries``   | how often the attribute was asked, each time with a coin of its own|
| delta_1^(ij)    | ``delta_1``   | Pr(X_i = 0 given X_j = 0)                                          |
| delta_2^(ij)    | ``delta_2``   | Pr(X_i = 0 given X_j = 1)                                          |
| f_1^(ij)        | ``dependent_suppression_factor`` | factor on the odds of X_j when r_i is withheld  |
| f_2^(ij)        | ``dependent_release_factor``     | factor on the odds of X_j when r_i is released  |

Odds are always sensitive : not sensitive, Pr(X_j = 0) / Pr(X_j = 1).
"""

from __future__ import annotations

import math

from stream.accounting.leakage.entries import number, whole
from stream.errors import UsageError


def exp_or_inf(value: float) -> float:
    """Return e^value, infinity where a double cannot hold it."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def spent(epsilon: float, queries: int) -> float:
    """Return queries x epsilon, where no query spends nothing even at infinite epsilon."""
    return 0.0 if queries == 0 else queries * epsilon


def suppression_factor(epsilon: float, queries: int = 1) -> float:
    """Return e^(n epsilon): how much withholding r_i in ``queries`` queries raises the odds of X_i (Theorem 1, (2)).

    Raises:
        UsageError: epsilon is negative, or queries is not a whole number >= 0.
    """
    return exp_or_inf(spent(_epsilon(epsilon), whole(queries, "queries")))


def dependent_suppression_factor(delta_1: float, delta_2: float, epsilon: float, queries: int = 1) -> float:
    """Return f_1 of Theorem 2, for n withheld queries f_1 at n epsilon (Corollary 1).

    f_1 = (delta_1 (e^(n epsilon) - 1) + 1) / (delta_2 (e^(n epsilon) - 1) + 1), written with
    w = e^(-n epsilon) so that large n epsilon gives the limit delta_1 / delta_2 instead of an overflow.

    Returns:
        A number in [0, infinity]; below 1 exactly when delta_1 < delta_2.

    Raises:
        UsageError: a delta is outside [0, 1], epsilon negative, or queries not a whole number >= 0.
    """
    first, second = _probability(delta_1, "delta_1"), _probability(delta_2, "delta_2")
    total = spent(_epsilon(epsilon), whole(queries, "queries"))
    if first == second:
        return 1.0
    if second == 0.0:
        return 1.0 - first + first * exp_or_inf(total)
    w = math.exp(-total)
    return (first * (1.0 - w) + w) / (second * (1.0 - w) + w)


def dependent_release_factor(delta_1: float, delta_2: float) -> float:
    """Return f_2 = (1 - delta_1) / (1 - delta_2) of Theorem 3: r_i was released.

    It does not depend on epsilon_i: once a record is out, no small epsilon takes back what it says about
    another attribute. Infinite when a release of r_i happens only with a sensitive r_j.

    Raises:
        UsageError: a delta is outside [0, 1], or both are 1 (r_i can never be released).
    """
    first, second = _probability(delta_1, "delta_1"), _probability(delta_2, "delta_2")
    if first == second == 1.0:
        raise UsageError("delta_1 and delta_2 must not both be 1: such a record is never released")
    return math.inf if second == 1.0 else (1.0 - first) / (1.0 - second)


def posterior_odds(prior_odds: float, factor: float) -> float:
    """Return prior odds x factor; odds of 0 or infinity are certain and stay what they are."""
    odds = number(prior_odds, "prior_odds", low=0.0, finite=False, any_size=True)
    ratio = number(factor, "factor", low=0.0, finite=False, any_size=True)
    return odds if odds in (0.0, math.inf) else odds * ratio


def _epsilon(value: float) -> float:
    return number(value, "epsilon", low=0.0, finite=False, any_size=True)


def _probability(value: float, where: str) -> float:
    return number(value, where, low=0.0, high=1.0, any_size=True)
