"""The price and steps of a threshold decision, before any count.

| mechanism | decides | price |
|---|---|---|
| laplace | at the threshold itself: no bound on misses | TSLM's ε |
| tslm | once, at a threshold shifted by α | least ε with misses <= β |
| ppwlm | in m steps of growing ε; what is far from its threshold early | the last step's ε, for β/m |
| dppwlm | as ppwlm; the next step is chosen by noisy counts | the same |

Steps share one noise chain, in which coarser values are a post-processing of finer ones. The next step and the end
are functions of values already seen, so the whole run is a post-processing of the chain down to its last
step. The price is that of the last step, whatever happened. Price and denial follow from the terms, never from a count;
the step at which a run ended and the cost per predicate depend on counts and stay restricted.

Misses: the last step has a share β/m of its own, and every other ε that a step can have has a share of the rest,
whether it is used or not. A missed predicate is missed at one of them, so β holds however the next step is chosen. The
thesis lets dppwlm pass on the shares of skipped steps, and Algorithm 4 also gives away the last step's share, which
spends β(m+1)/m. Even without that, a choice by the noise that also decides can miss more often than β (1.13 β for
m = m_f = 3, α = 5, β = .05 and the worst choice): the event of a step is no longer independent of the step being used.

Which ε makes misses rare enough, and which shift, is computed exactly, on integers:

    symbol  here     meaning
    c       --       threshold: positive is a count of at least c + 1
    a       --       e**-ε
    s       shift    how far below the threshold a noisy count may still count as above
    β       beta     bound on Pr[a count of c + 1 is missed]

A count of c + 1 with discrete Laplace noise appears as at most c - s with probability a**(s+1) / (1+a), and any
larger count less often; a count of c - 2s or less appears as above just as rarely. The thesis uses the continuous
distribution instead, ε = ln(1/2β)/α.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal, NamedTuple

from stream.errors import UsageError
from stream.mechanisms.exact import decimal, exp_minus, floor_scaled
from stream.mechanisms.noise import SMALLEST_EPSILON

# Epsilons and shifts.

GRID = SMALLEST_EPSILON.denominator
"""Epsilons are multiples of one over this, rounded up, which makes misses rarer."""


@lru_cache(maxsize=4096)
def shift_for(epsilon: Fraction, beta: Fraction) -> int:
    """Return the least s >= 0 with a**(s+1) / (1+a) <= β."""

    def s() -> Decimal:
        return -(decimal(beta) * (1 + exp_minus(epsilon))).ln() / decimal(epsilon)

    return max(0, floor_scaled(s))


@lru_cache(maxsize=256)
def epsilon_for(shift: int, beta: Fraction) -> Fraction:
    """Return the least ε, a multiple of 1e-9, with a**(s+1) / (1+a) <= β, for 0 < β < ½ and s >= 0."""
    enough = floor_scaled(lambda: -decimal(beta).ln() / (shift + 1), 30) * GRID // (1 << 30) + 2
    too_little = 0
    while enough - too_little > 1:
        middle = (enough + too_little) // 2
        if shift_for(Fraction(middle, GRID), beta) <= shift:
            enough = middle
        else:
            too_little = middle
    return Fraction(enough, GRID)


def printed_epsilon(alpha: Fraction, beta: Fraction) -> Fraction:
    """Return the thesis' ε = ln(1/2β)/α, rounded up to a multiple of 1e-9."""
    return Fraction(floor_scaled(lambda: -(2 * decimal(beta)).ln() / decimal(alpha) * GRID) + 1, GRID)


def printed_shift(epsilon: Fraction, beta: Fraction) -> int:
    """Return the integer shift for the thesis' α = ln(1/2β)/ε."""
    return max(0, floor_scaled(lambda: -(2 * decimal(beta)).ln() / decimal(epsilon)))


@lru_cache(maxsize=256)
def geometric(first: Fraction, last: Fraction, steps: int) -> tuple[Fraction, ...]:
    """Return ``steps`` epsilons from first to last with a constant ratio, rounded up to 1e-9.

    Raises:
        UsageError: they do not increase.
    """
    levels = (last,) if steps == 1 else (first, *_between(first, last, steps), last)
    if any(finer <= coarser for coarser, finer in pairwise(levels)):
        rule = f"below the last one of {float(last):g}, by enough for {steps} steps"
        raise UsageError(f"the first epsilon must be {rule}, got {float(first):g}")
    return levels


def _between(first: Fraction, last: Fraction, steps: int) -> Iterator[Fraction]:
    for j in range(1, steps - 1):
        share = Fraction(j, steps - 1)

        yield Fraction(floor_scaled(partial(_scaled, first, last, share)) + 1, GRID)


def _scaled(first: Fraction, last: Fraction, share: Fraction) -> Decimal:
    """Return first**(1-share) · last**share in units of the grid, slightly increased so that no integer is in doubt."""
    logarithm = decimal(first).ln() * decimal(1 - share) + decimal(last).ln() * decimal(share)
    return logarithm.exp() * GRID + Decimal("1e-40")


Mechanism = Literal["laplace", "tslm", "ppwlm", "dppwlm"]
Form = Literal["safe", "thesis"]
_PROGRESSIVE = ("ppwlm", "dppwlm")
_MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class DecisionTerms:
    """The terms of a decision. UsageError names a value that is out of range."""

    mechanism: Mechanism
    beta: Fraction
    """Largest probability, for each predicate, that a count above its threshold is missed; 0 < β < ½."""
    epsilon_first: Fraction = Fraction(1, 100_000)
    """ε of the noise of the first step, before the sensitivity."""
    steps: int = 4
    fine_steps: int = 3
    """Number of parts into which dppwlm may divide the way from one step to the next."""
    sensitivity: int = 1
    """Largest change of all counts together by one person."""
    form: Form = "safe"
    """``safe``: epsilons and shares of β as derived on integers; otherwise as printed, with more misses."""

    def __post_init__(self) -> None:
        _within("beta", self.beta, Fraction(0) < self.beta < Fraction(1, 2), "above 0 and below 0.5")
        _within("epsilon-first", self.epsilon_first, self.epsilon_first >= SMALLEST_EPSILON, "at least 1e-9")
        _within("steps", self.steps, 1 <= self.steps <= _MOST_STEPS, f"1 to {_MOST_STEPS}")
        _within("fine-steps", self.fine_steps, 1 <= self.fine_steps <= _MOST_STEPS, f"1 to {_MOST_STEPS}")
        _within("sensitivity", self.sensitivity, self.sensitivity >= 1, "at least 1")

    @property
    def shares(self) -> int:
        """Number of shares into which β is divided."""
        return self.steps if self.mechanism in _PROGRESSIVE else 1


def _within(name: str, value: Fraction | int, holds: bool, rule: str) -> None:
    if not holds:
        raise UsageError(f"{name} must be {rule}, got {float(value):g}")


class Step(NamedTuple):
    """One evaluation of noisy counts."""

    epsilon: Fraction
    """ε of the noise."""
    shift: int
    """Predicates whose noisy count is further than this from the threshold are decided."""
    used: int
    """Number of planned steps so far, used or skipped."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one α under some terms."""

    terms: DecisionTerms
    last: Step
    """The only step of laplace and tslm."""

    @property
    def price(self) -> Fraction:
        """The charged ε."""
        return self.last.epsilon * self.terms.sensitivity

    @property
    def epsilons(self) -> tuple[Fraction, ...]:
        """Epsilons of the planned steps."""
        return geometric(self.terms.epsilon_first, self.last.epsilon, self.terms.shares)

    @property
    def all_epsilons(self) -> tuple[Fraction, ...]:
        """Every possible epsilon of a step, whatever the counts, ascending: the links of the noise chain."""
        if self.terms.mechanism != "dppwlm":
            return self.epsilons
        fine = [level for index in range(1, self.terms.shares) for level in self._fine(index)]
        return tuple(sorted({*self.epsilons, *fine}))

    def first(self) -> Step:
        """Return the first step."""
        return self._planned(0, 1)

    def following(self, at: Step) -> Step:
        """Return the planned step after a step."""
        return self._planned(at.used, 1)

    def candidates(self, at: Step) -> Iterator[Step]:
        """Yield the steps that may follow, the planned one first."""
        planned = self.following(at)
        yield planned
        for step in self._by_level(at) if self.terms.form == "safe" else self._by_shares(at):
            if step != planned:
                yield step

    def _by_level(self, at: Step) -> Iterator[Step]:
        """Yield every finer step, with the share of its own ε."""
        for epsilon in self.all_epsilons:
            if epsilon > at.epsilon:
                used = sum(level <= epsilon for level in self.epsilons)
                is_last = epsilon == self.last.epsilon
                yield self.last._replace(used=used) if is_last else Step(epsilon, self._shift(epsilon, 1), used)

    def _by_shares(self, at: Step) -> Iterator[Step]:
        """Yield the thesis' steps, with the shares of all skipped steps."""
        for index in range(at.used, self.terms.shares):
            shares = index + 1 - at.used
            for epsilon in self._fine(index):
                used = min(index + 1, self.terms.shares - 1)
                if epsilon > at.epsilon:
                    yield Step(epsilon, self._shift(epsilon, shares), used)
            yield self._planned(index, shares)

    def _planned(self, index: int, shares: int) -> Step:
        if index == self.terms.shares - 1:
            return self.last._replace(used=index + 1)
        return Step(self.epsilons[index], self._shift(self.epsilons[index], shares), index + 1)

    def _fine(self, index: int) -> Iterator[Fraction]:
        """Yield the epsilons between a planned step and the one before it."""
        before, after = self.epsilons[index - 1 : index + 1]
        for s in range(1, self.terms.fine_steps):
            yield before + (after - before) * s / self.terms.fine_steps

    def _shift(self, epsilon: Fraction, shares: int) -> int:
        """Return the shift of a step before the last, with this number of shares of β."""
        share = self.terms.beta / self.terms.shares
        if self.terms.form == "thesis":
            return printed_shift(epsilon, share * shares)
        parts = self.terms.fine_steps if self.terms.mechanism == "dppwlm" else 1
        return shift_for(epsilon, share / parts)


def plan_of(terms: DecisionTerms, alpha: Fraction) -> Plan:
    """Return the plan for an uncertainty region α: counts above c are found, those up to c - 2α are not, except for β.

    Raises:
        UsageError: α is negative; or 0, for which the thesis has no ε.
    """
    _within(
        "alpha",
        alpha,
        alpha >= 0 if terms.form == "safe" else alpha > 0,
        "at least 0" if terms.form == "safe" else "above 0 as printed",
    )
    share, shift = terms.beta / terms.shares, int(alpha)
    epsilon = epsilon_for(shift, share) if terms.form == "safe" else printed_epsilon(alpha, share)
    return Plan(terms, Step(epsilon, shift, 1))
