"""Transition matrices for temporal leakage: learnt with pseudo-counts, stationary, turned around in time.

Cao, Yoshikawa, Xiao, Xiong, "Quantifying Differential Privacy under Temporal Correlations" (ICDE 2017). A
matrix from the policy is public; one learnt from people's movements is personal data, and so is everything
computed from it.

| symbol    | here           | meaning                                                                |
|-----------|----------------|------------------------------------------------------------------------|
| P_F[a, b] | ``forward``    | Pr(state b at t given a at t-1), rows sum to 1                         |
| P_B[a, b] | ``reversed_in_time`` | Pr(state b at t-1 given a at t) = pi_b P_F[b,a] / sum_c pi_c P_F[c,a] |
| pi        | ``marginal``   | distribution of the state at t-1, shape (n,)                           |
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.entries import Floats, positive
from stream.errors import UsageError


def learn_transitions(counts: NDArray[np.int64], pseudo: float = 0.5) -> Floats:
    """Return (n_ab + alpha) / (n_a + alpha n), n_ab moves from a to b; zeros would make leakage infinite.

    Args:
        counts: moves seen, shape (n, n), row: from.
        pseudo: alpha, positive.

    Raises:
        UsageError: the pseudo-count is not positive.
    """
    weights = counts + positive(pseudo, "pseudo")
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


def stationary(forward: Floats) -> Floats:
    """Return pi with pi P_F = pi, shape (n,).

    Raises:
        UsageError: more than one set of states is never left, so there is more than one such pi.
    """
    n, reached = len(forward), _reached(forward)
    recurrent = (~reached | reached.T).all(axis=1)  # from wherever they lead, a way leads back
    if not reached[np.ix_(recurrent, recurrent)].all():
        raise UsageError("forward must have one stationary distribution, has several closed sets of states")
    equations = np.vstack([forward.T - np.eye(n), np.ones(n)])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return np.where(recurrent, np.maximum(solution, 0.0), 0.0)


def _reached(forward: Floats) -> NDArray[np.bool_]:
    """Return which states can follow which, after any number of steps, 0 among them; shape (n, n), row: from."""
    reached = (forward > 0) | np.eye(len(forward), dtype=bool)
    for _ in range(len(forward).bit_length()):  # each time ways of twice as many steps
        reached = reached @ reached
    return reached


def reversed_in_time(forward: Floats, marginal: Floats) -> Floats:
    """Return P_B for a Markov chain with this forward matrix and distribution at t-1 (Bayes' rule).

    Raises:
        UsageError: a state that is never reached has no past.
    """
    joint = marginal[:, None] * forward
    reached = joint.sum(axis=0)
    for state in np.flatnonzero(reached <= 0):
        raise UsageError(f"forward: state {state} has probability 0, so it has no time before it")
    return np.asarray((joint / reached).T, dtype=np.float64)
