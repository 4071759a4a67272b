"""OSDPRR: one-sided randomised response on the attributes of a zone's day.

A sensitive record is never shown; any other is shown with probability 1 - e**-ε (Lee and Smith, Definition
2, after Doudalis et al., arXiv 1712.05888), so a suppressed record is at most e**ε likelier to be sensitive
than before. Asking again must not toss again: n independent withholdings would give e**(nε) (their Corollary
1). Every record therefore has one permanent uniform number U, and an epsilon shows it iff U < 1 - e**-ε:
audiences are nested and together know what the largest epsilon reveals.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from stream.mechanisms.irrational import Irrational, exp_minus
from stream.mechanisms.labels import label
from stream.mechanisms.noise import bernoulli, check_epsilon


def released(day_key: bytes, *, site: str, zone: str, attribute: str, day: str, epsilon: Fraction) -> bool:
    """Return whether a record that is not sensitive is shown at ``epsilon``.

    The label is the record and nothing else: with the epsilon, the audience, the release or the policy in
    it a second question would toss a second coin; shared between attributes or days, a value shown beside
    one withheld would prove the latter sensitive.

    Args:
        day_key: secret of the UTC day in which the record's local day begins.
        site, zone, attribute: whose record.
        day: site-local date, ISO form.
        epsilon: exact; at least 1e-9.

    Raises:
        UsageError: epsilon is no Fraction or too small.
    """
    shown = show(check_epsilon(epsilon))
    return bool(bernoulli(day_key, label("record", site, zone, attribute, day), shown, 1)[0])


@lru_cache(maxsize=256)
def show(epsilon: Fraction) -> Irrational:
    """Return 1 - e**-ε, the probability that a record that is not sensitive is shown."""
    return lambda: 1 - exp_minus(epsilon)
