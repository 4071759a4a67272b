"""Temporal privacy leakage, to an adversary who knows how people move.

Cao, Yoshikawa, Xiao, Xiong, "Quantifying Differential Privacy under Temporal Correlations" (ICDE 2017) and
"Quantifying Differential Privacy in Continuous Data Release under Temporal Correlations" (TKDE 2018). A
user's state is a Markov chain known to the adversary. A release at time t that is epsilon_t-private for an
event leaks more about it, because earlier and later releases depend on it as well:

    BPL(1) = epsilon_1,  BPL(t) = L_B(BPL(t-1)) + epsilon_t          (backward: releases up to t)
    FPL(T) = epsilon_T,  FPL(t) = L_F(FPL(t+1)) + epsilon_t          (forward: releases from t on)
    TPL(t) = BPL(t) + FPL(t) - epsilon_t

    L(alpha) = max over row pairs (q, d) and sets J of ln (q_J (e^alpha - 1) + 1) / (d_J (e^alpha - 1) + 1)

The best J contains the columns with the largest q_j / d_j (ICDE, Theorem 4), so it is a prefix of the columns
in that order. L depends on the matrix only through the pairs (q_J, d_J). Only pairs that no other pair
dominates (larger q, smaller d) can be the maximum, for any alpha, and only they are stored.

An adversary without knowledge of one direction has L = 0 there: BPL(t) or FPL(t) is then epsilon_t.

| symbol        | here            | meaning                                                           |
|---------------|-----------------|-------------------------------------------------------------------|
| P_B[a, b]     | ``backward``    | Pr(state b at t-1 given a at t), rows sum to 1                    |
| P_F[a, b]     | ``forward``     | Pr(state b at t given a at t-1), rows sum to 1                    |
| L             | ``Loss``        | leakage carried over one step; 0 <= L(alpha) <= alpha             |
| q_J, d_J      | ``q``, ``d``    | sums of two rows over the columns in J                            |
| epsilon_t     | ``epsilon``     | of the release at t, >= 0                                         |
| BPL, FPL, TPL | ``backward_leakage``, ``forward_leakage``, ``total_leakage``                        |
| alpha         | ``target``      | the total leakage allowed                                         |
| T             | ``horizon``     | number of releases                                                |

All T releases together cost a user sum_t epsilon_t, for any correlation.

**Transition matrices** are learnt with pseudo-counts, or declared. A matrix from the policy is public. A matrix
learnt from people's movements is personal data, and so is everything computed from it.

| symbol    | here           | meaning                                                                |
|-----------|----------------|------------------------------------------------------------------------|
| P_F[a, b] | ``forward``    | Pr(state b at t given a at t-1), rows sum to 1                         |
| P_B[a, b] | ``reversed_in_time`` | Pr(state b at t-1 given a at t) = pi_b P_F[b,a] / sum_c pi_c P_F[c,a] |
| pi        | ``marginal``   | distribution of the state at t-1, shape (n,)                           |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import log
from stream.accounting.leakage.entries import Floats, positive
from stream.errors import UsageError

# Transition matrices.


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
    recurrent = (~reached | reached.T).all(axis=1)  # every state that can be reached leads back
    if not reached[np.ix_(recurrent, recurrent)].all():
        raise UsageError("forward must have one stationary distribution, has several closed sets of states")
    equations = np.vstack([forward.T - np.eye(n), np.ones(n)])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0), rcond=None)[0]
    return np.where(recurrent, np.maximum(solution, 0.0), 0.0)


def _reached(forward: Floats) -> NDArray[np.bool_]:
    """Return which states can follow which, after any number of steps, 0 among them; shape (n, n), row: from."""
    reached = (forward > 0) | np.eye(len(forward), dtype=bool)
    for _ in range(len(forward).bit_length()):  # each round doubles the number of steps
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


@dataclass(frozen=True)
class Loss:
    """L of one transition matrix: the undominated pairs (q, d) with q > d, as two arrays."""

    q: Floats
    d: Floats

    def __call__(self, alpha: float) -> float:
        """Return L(alpha) in nats for alpha in [0, infinity]; infinite only at infinity."""
        if not len(self.q) or alpha <= 0.0:
            return 0.0
        if alpha > _LARGE:
            q, d = (np.logaddexp(log(sums), -alpha) for sums in (self.q, self.d))
            return min(alpha, float((q - d).max()))
        kept, rest = -math.expm1(-alpha), math.exp(-alpha)
        return min(alpha, math.log1p(float(((self.q - self.d) * kept / (self.d * kept + rest)).max())))


_LARGE = 300.0
"""Above this e^alpha approaches the largest double."""

NONE = Loss(np.zeros(0), np.zeros(0))
"""The loss of an adversary without knowledge of this direction."""


def loss(matrix: Floats | None) -> Loss:
    """Return L of a transition matrix of shape (n, n); None stands for no knowledge."""
    if matrix is None:
        return NONE
    q, d = np.zeros(0), np.zeros(0)
    for row in matrix:
        q_new, d_new = _prefixes(row, matrix)
        q, d = _undominated(np.concatenate([q, q_new]), np.concatenate([d, d_new]))
    return Loss(q, d)


def _prefixes(row: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """Return (q_J, d_J) of this row against every other for every prefix J, as two flat arrays."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(row > 0, row / matrix, 0.0)
    order = np.argsort(-ratio, axis=1, kind="stable")
    q = np.cumsum(np.take_along_axis(np.broadcast_to(row, matrix.shape), order, axis=1), axis=1)
    d = np.cumsum(np.take_along_axis(matrix, order, axis=1), axis=1)
    return np.minimum(q, 1.0).ravel(), np.minimum(d, 1.0).ravel()


def _undominated(q: Floats, d: Floats) -> tuple[Floats, Floats]:
    """Return the pairs with q > d for which no other pair has more q and no more d, by rising d."""
    useful = q > d
    q, d = q[useful], d[useful]
    order = np.lexsort((-q, d))
    q, d = q[order], d[order]
    before = np.concatenate([[-1.0], np.maximum.accumulate(q)[:-1]])
    return q[q > before], d[q > before]


def backward_leakage(carry: Loss, epsilon: Sequence[float]) -> list[float]:
    """Return BPL(t) for t = 1..T, in nats."""
    found: list[float] = []
    for spend in epsilon:
        found.append(carry(found[-1] if found else 0.0) + spend)
    return found


def forward_leakage(carry: Loss, epsilon: Sequence[float]) -> list[float]:
    """Return FPL(t) for t = 1..T; every later release raises the earlier ones."""
    return backward_leakage(carry, epsilon[::-1])[::-1]


def total_leakage(backward: Loss, forward: Loss, epsilon: Sequence[float]) -> list[float]:
    """Return TPL(t) = BPL(t) + FPL(t) - epsilon_t for t = 1..T."""
    before, after = backward_leakage(backward, epsilon), forward_leakage(forward, epsilon)
    return [b + f - e for b, f, e in zip(before, after, epsilon, strict=True)]


def supremum(carry: Loss, epsilon: float) -> float:
    """Return the limit of BPL (or FPL) under a constant epsilon; infinity when it grows without end.

    Per pair (q, d) the root y = e^sup of d y^2 + (1 - d - q E) y - E (1 - q) = 0, E = e^epsilon (ICDE,
    Theorem 5): ln of (sqrt(4 d E (1 - q) + (d + q E - 1)^2) + d + q E - 1) / (2 d); with d = 0 it is
    ln((1 - q) E / (1 - q E)) while epsilon < ln(1 / q), and infinite from there on, equality included.
    Solved for z = y - 1, d z^2 + (1 + d - q E) z - (E - 1) = 0, which keeps its digits at small epsilons.
    """
    if epsilon <= 0.0:
        return 0.0
    if epsilon > _LARGE:
        return epsilon + carry(math.inf)
    return max((_root(float(q), float(d), epsilon) for q, d in zip(carry.q, carry.d, strict=True)), default=epsilon)


def _root(q: float, d: float, epsilon: float) -> float:
    growth = math.expm1(epsilon)
    slope = 1.0 - q + d - q * growth
    root = math.sqrt(slope * slope + 4.0 * d * growth)
    if slope > 0.0:
        return math.log1p(2.0 * growth / (slope + root))
    return math.log1p((root - slope) / (2.0 * d)) if d > 0.0 else math.inf


def total_supremum(backward: Loss, forward: Loss, epsilon: float) -> float:
    """Return sup BPL + sup FPL - epsilon: no TPL under epsilons up to this one ever exceeds it."""
    return supremum(backward, epsilon) + supremum(forward, epsilon) - epsilon


def constant_allocation(backward: Loss, forward: Loss, target: float, horizon: int) -> list[float]:
    """Return the constant epsilon with sup TPL = target, T times: the upper-bound method.

    It holds for any number of releases. 0 when no positive epsilon has a supremum (a deterministic Markov chain).

    Raises:
        UsageError: target is not positive.
    """
    low, high = 0.0, positive(target, "target")
    for _ in range(200):
        middle = (low + high) / 2
        if total_supremum(backward, forward, middle) <= target:
            low = middle
        else:
            high = middle
    whole = total_supremum(backward, forward, target) <= target
    return [target if whole else low] * horizon


def quantified_allocation(backward: Loss, forward: Loss, target: float, horizon: int) -> list[float]:
    """Return epsilons whose TPL is ``target`` at each of T times: the quantification method.

    Solves a_F = target - L_B(a_B), a_B = target - L_F(a_F); then epsilon_1 = a_B, the ones between
    a_B + a_F - target, epsilon_T = a_F. A stream longer than T would exceed the target.

    Raises:
        UsageError: target is not positive.
    """
    positive(target, "target")
    if horizon == 1:
        return [target]
    low, high = 0.0, target
    for _ in range(200):
        middle = (low + high) / 2
        if middle <= target - forward(target - backward(middle)):
            low = middle
        else:
            high = middle
    a_b, a_f = low, target - backward(low)
    return [a_b, *[max(0.0, a_b + a_f - target)] * (horizon - 2), a_f]
