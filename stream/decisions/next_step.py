"""Which step comes next, by noisy counts: the one after which most would remain unknown (Algorithm 4).

For each step that may follow, n_u estimates how many stay undecided there: those who are likeliest to do so keep the
last step's ε, the others get this one's, and the min-entropy of that is compared. A noisy count of the next step is
the one at hand less the B of the chain, so with a flat prior a predicate whose noisy count is x above its threshold
stays undecided with probability p_0 [|x| <= s] + (1-p_0) Pr[|x + DLap(ε)| <= s]. (The thesis' 5.9 takes both noises
for independent; they are one chain.) All of it is + - * / in a fixed order: what is released depends on it.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream.decisions.min_entropy import min_entropy
from stream.decisions.plan import Plan, Step
from stream.mechanisms.exact import Floats, exp
from stream.mechanisms.inversion import Ints

_NODES = 40
"""Of the search for each min-entropy: its lower end is compared."""


def chosen(plan: Plan, at: Step, noisy: Ints, undecided: NDArray[np.bool_], epsilons: NDArray[Any]) -> Step:
    """Return the step that may follow ``at`` and leaves most unknown; of equals the planned one, then the coarsest.

    Args:
        plan: what may be done.
        at: the step at hand.
        noisy: its noisy counts, less the thresholds.
        undecided: who it left undecided.
        epsilons: of the noise, where each predicate was decided, the last step's where it is not yet.
    """
    spent = np.array([float(each) for each in epsilons])
    best, most = at, -1.0
    for step in plan.candidates(at):
        entropy = min_entropy(_expected(plan, at, step, noisy, undecided, spent), most_nodes=_NODES).lower
        if entropy > most:
            best, most = step, entropy
    return best


def _expected(
    plan: Plan, at: Step, step: Step, noisy: Ints, undecided: NDArray[np.bool_], spent: Floats
) -> list[float]:
    """Return the epsilons that a step is expected to lead to."""
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
        above: noisy counts of the step at hand, less their thresholds.
        shift: of the next step.
        coarser: ε of the step at hand.
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
