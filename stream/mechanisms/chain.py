"""One noise chain for all audiences of a release: what a coalition learns is what its finest member knows.

The finest audience gets discrete Laplace noise; each coarser one gets the value of the next finer one plus
an independent B, which makes it a post-processing of that value. With a_i = e**-ε_i and ε_1 < ε_2 the
law of noise 1 is that of noise 2 plus

    B = 0 with probability p_0 = ((1-a_1)/(1-a_2))² · a_2/a_1, else B ~ DLap(ε_1),

because (1-a_2 z)(1-a_2/z) = (a_2/a_1)(1-a_1 z)(1-a_1/z) + (1-a_2/a_1)(1-a_1 a_2) in the probability
generating functions. The continuous form is the gradual release of Koufogiannis, Han and Pappas
(arXiv 1504.00429).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from stream.errors import UsageError
from stream.mechanisms.irrational import Irrational, exp_minus
from stream.mechanisms.labels import Context
from stream.mechanisms.noise import Ints, bernoulli, discrete_laplace


def chain(key: bytes, context: Context, digest: bytes, epsilons: Sequence[Fraction], n: int) -> dict[Fraction, Ints]:
    """Return the noise of every epsilon, equal ones sharing one value; the joint release costs the largest.

    The steps run strictly in descending order of epsilon. Drawing each coarser value straight from the
    finest instead would cost a coalition of two coarse audiences more than the larger of their epsilons.

    Args:
        key: the day's secret.
        context: the window's release; the audience is not part of it.
        digest: digest of the counts that the noise is for.
        epsilons: at least one, in any order.
        n: number of zones.

    Raises:
        UsageError: no epsilon, or one outside the range of the sampler.
    """
    descending = sorted(set(epsilons), reverse=True)
    if not descending:
        raise UsageError("epsilons must not be empty")
    finest = descending[0]
    noise = {finest: discrete_laplace(key, context.label("chain", finest, digest=digest), finest, n)}
    for finer, coarser in pairwise(descending):
        keep_label = context.label("chain-keep", finer, coarser, digest=digest)
        add_label = context.label("chain-add", finer, coarser, digest=digest)
        kept = bernoulli(key, keep_label, keep(finer, coarser), n)
        noise[coarser] = noise[finer] + np.where(kept, 0, discrete_laplace(key, add_label, coarser, n))
    return noise


@lru_cache(maxsize=256)
def keep(finer: Fraction, coarser: Fraction) -> Irrational:
    """Return p_0, the probability that the coarser value equals the finer one."""

    def p_0() -> Decimal:
        a_1, a_2 = exp_minus(coarser), exp_minus(finer)
        return ((1 - a_1) / (1 - a_2)) ** 2 * (a_2 / a_1)

    return p_0
