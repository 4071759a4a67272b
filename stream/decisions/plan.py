"""What a threshold question costs and which steps it may take: known before a count is looked at.

| mechanism | decides | price |
|---|---|---|
| laplace | at the threshold itself: no bound on misses | TSLM's ε |
| tslm | once, at a threshold shifted by α | least ε with misses <= β |
| ppwlm | in m steps of growing ε; what is far from its threshold early | the last step's ε, for β/m |
| dppwlm | as ppwlm; the next step is chosen by noisy counts | the same |

Steps share one noise chain, of which coarser values are a post-processing of finer ones. Which step comes next and
where it ends are functions of values already seen, so all of it is a post-processing of the chain down to its last
step: that is charged, whatever happened. Price and denial follow from the terms, never from a count; where it ended
and what was spent on whom follow from counts and stay restricted.

Misses: the last step has a share β/m of its own, and every other ε that a step can have one of what is left, whether
it is used or not. Whoever is missed is missed at one of them, so β holds however the next step is chosen. The thesis
lets dppwlm hand on the shares of steps that it skipped, and Algorithm 4 gives away the last step's as well, which
spends β(m+1)/m. Even without that a choice by the very noise that decides can miss more often than β (1.13 β for
m = m_f = 3, α = 5, β = .05 and the worst choice): the event of a step is no longer independent of its being taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from stream.decisions import levels
from stream.errors import UsageError
from stream.mechanisms.noise import SMALLEST_EPSILON

Mechanism = Literal["laplace", "tslm", "ppwlm", "dppwlm"]
Form = Literal["safe", "thesis"]
_PROGRESSIVE = ("ppwlm", "dppwlm")
_MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class Terms:
    """How a question is to be answered. UsageError names what is out of range."""

    mechanism: Mechanism
    beta: Fraction
    """Largest probability, for each predicate, that a count above its threshold is missed; 0 < β < ½."""
    epsilon_first: Fraction = Fraction(1, 100_000)
    """ε of the first step, of noise: before the sensitivity."""
    steps: int = 4
    fine_steps: int = 3
    """In how many parts dppwlm may go from one step to the next."""
    sensitivity: int = 1
    """What one person changes in all counts together, at most."""
    form: Form = "safe"
    """Epsilons and shares of β as derived on integers, or as the thesis prints them, which misses more often."""

    def __post_init__(self) -> None:
        _within("beta", self.beta, Fraction(0) < self.beta < Fraction(1, 2), "above 0 and below 0.5")
        _within("epsilon-first", self.epsilon_first, self.epsilon_first >= SMALLEST_EPSILON, "at least 1e-9")
        _within("steps", self.steps, 1 <= self.steps <= _MOST_STEPS, f"1 to {_MOST_STEPS}")
        _within("fine-steps", self.fine_steps, 1 <= self.fine_steps <= _MOST_STEPS, f"1 to {_MOST_STEPS}")
        _within("sensitivity", self.sensitivity, self.sensitivity >= 1, "at least 1")

    @property
    def shares(self) -> int:
        """In how many shares β is cut."""
        return self.steps if self.mechanism in _PROGRESSIVE else 1


def _within(name: str, value: Fraction | int, holds: bool, rule: str) -> None:
    if not holds:
        raise UsageError(f"{name} must be {rule}, got {float(value):g}")


class Step(NamedTuple):
    """One look at noisy counts."""

    epsilon: Fraction
    """Of the noise."""
    shift: int
    """Who is further than this from the threshold is decided."""
    used: int
    """Planned steps up to here, taken or skipped."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one α costs under some terms."""

    terms: Terms
    last: Step
    """The only step of laplace and tslm."""

    @property
    def price(self) -> Fraction:
        """ε that is charged."""
        return self.last.epsilon * self.terms.sensitivity

    @property
    def epsilons(self) -> tuple[Fraction, ...]:
        """Epsilons of the steps as planned."""
        return levels.geometric(self.terms.epsilon_first, self.last.epsilon, self.terms.shares)

    @property
    def all_epsilons(self) -> tuple[Fraction, ...]:
        """Every epsilon that a step can have, whatever the counts, ascending: the links of the noise chain."""
        if self.terms.mechanism != "dppwlm":
            return self.epsilons
        fine = [level for index in range(1, self.terms.shares) for level in self._fine(index)]
        return tuple(sorted({*self.epsilons, *fine}))

    def first(self) -> Step:
        """Return the first step."""
        return self._planned(0, 1)

    def following(self, at: Step) -> Step:
        """Return the step that is planned after one."""
        return self._planned(at.used, 1)

    def candidates(self, at: Step) -> Iterator[Step]:
        """Yield the steps that may follow, the planned one first."""
        planned = self.following(at)
        yield planned
        for step in self._by_level(at) if self.terms.form == "safe" else self._by_shares(at):
            if step != planned:
                yield step

    def _by_level(self, at: Step) -> Iterator[Step]:
        """Yield every finer step; each has the share of its own ε."""
        for epsilon in self.all_epsilons:
            if epsilon > at.epsilon:
                used = sum(level <= epsilon for level in self.epsilons)
                is_last = epsilon == self.last.epsilon
                yield self.last._replace(used=used) if is_last else Step(epsilon, self._shift(epsilon, 1), used)

    def _by_shares(self, at: Step) -> Iterator[Step]:
        """Yield the thesis' steps, with the shares of all that they skip."""
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
        """Return the shift of a step before the last, with so many shares of β."""
        share = self.terms.beta / self.terms.shares
        if self.terms.form == "thesis":
            return levels.printed_shift(epsilon, share * shares)
        parts = self.terms.fine_steps if self.terms.mechanism == "dppwlm" else 1
        return levels.shift_for(epsilon, share / parts)


def plan_of(terms: Terms, alpha: Fraction) -> Plan:
    """Return the plan for an uncertainty region α: counts above c are found, those up to c - 2α are not, but for β.

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
    epsilon = levels.epsilon_for(shift, share) if terms.form == "safe" else levels.printed_epsilon(alpha, share)
    return Plan(terms, Step(epsilon, shift, 1))
