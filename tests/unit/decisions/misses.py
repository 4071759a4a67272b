"""Exact misses by convolution along the noise chain, for the worst choice of steps that noisy counts can make."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from stream.decisions.plan import Plan, Step

Floats = NDArray[np.float64]


def law(epsilon: Fraction, reach: int) -> Floats:
    """Pr[DLap(ε) = z] for |z| <= reach."""
    a = math.exp(-epsilon)
    return np.asarray((1 - a) / (1 + a) * np.exp(-float(epsilon) * np.abs(np.arange(-reach, reach + 1))))


def link(coarser: Fraction, finer: Fraction, reach: int) -> Floats:
    """The law of what a coarser noise has over a finer one, by the identity of generating functions."""
    a_1, a_2 = math.exp(-coarser), math.exp(-finer)
    same = ((1 - a_1) / (1 - a_2)) ** 2 * a_2 / a_1
    found = (1 - same) * law(coarser, reach)
    found[reach] += same
    return found


def worst_miss(plan: Plan, above: int = 1, reach: int = 600) -> float:
    """Return Pr[a count of c + above is missed] when every next step is the worst that may follow."""
    noisy = above + np.arange(-reach, reach + 1)
    known: dict[Step, Floats] = {}

    def missed_from(step: Step) -> Floats:
        if step not in known:
            below = noisy <= -step.shift
            later = np.zeros(len(noisy))
            if step.epsilon < plan.last.epsilon:
                undecided = ~below & (noisy <= step.shift)
                later = undecided * np.max([missed_by(step, following) for following in followers(step)], axis=0)
            known[step] = below + later
        return known[step]

    def followers(step: Step) -> list[Step]:
        return list(plan.candidates(step)) if plan.terms.mechanism == "dppwlm" else [plan.following(step)]

    def missed_by(step: Step, following: Step) -> Floats:
        joint = fftconvolve(
            missed_from(following) * law(following.epsilon, reach), link(step.epsilon, following.epsilon, 2 * reach)
        )
        here = law(step.epsilon, reach)
        middle = joint[2 * reach : 4 * reach + 1]
        return np.asarray(np.divide(middle, here, out=np.zeros(len(here)), where=here > 1e-200))

    first = plan.first() if plan.terms.mechanism in ("ppwlm", "dppwlm") else plan.last
    return float((missed_from(first) * law(first.epsilon, reach)).sum())
