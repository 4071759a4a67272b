"""OSDPRR: one-sided randomised response on the attributes of a zone's day.

A sensitive record is never shown. Any other record is shown with probability 1 - e**-ε (Lee and Smith, Definition
2, after Doudalis et al., arXiv 1712.05888), so a suppressed record is at most e**ε likelier to be sensitive
than before. A repeated query must not toss again: n independent withholdings would give e**(nε) (their Corollary
1). Every record therefore has one permanent uniform number U, and is shown at ε if and only if U < 1 - e**-ε.
Audiences are nested and together know what the largest epsilon reveals.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from stream.domains import Label
from stream.mechanisms.exact import Irrational, exp_minus
from stream.mechanisms.inversion import bernoulli
from stream.mechanisms.noise import check_epsilon
from stream.mechanisms.noise_labels import label


def released(day_key: bytes, *, site: str, zone: str, attribute: str, day: str, epsilon: Fraction) -> bool:
    """Return whether a record that is not sensitive is shown at ``epsilon``.

    The label contains the record and nothing else. If it contained the epsilon, the audience, the release or the
    policy, a second query would toss a second coin. If attributes or days shared a label, a value shown beside
    one withheld would prove the latter sensitive.

    Args:
        day_key: secret of the UTC day in which the record's local day begins.
        site, zone, attribute: identify the record.
        day: site-local date, ISO form.
        epsilon: exact; at least 1e-9.

    Raises:
        UsageError: epsilon is no Fraction or too small.
    """
    shown = show(check_epsilon(epsilon))
    return bool(bernoulli(day_key, label(Label.RECORD, site, zone, attribute, day), shown, 1)[0])


@lru_cache(maxsize=256)
def show(epsilon: Fraction) -> Irrational:
    """Return 1 - e**-ε, the probability that a record that is not sensitive is shown."""
    return lambda: 1 - exp_minus(epsilon)
