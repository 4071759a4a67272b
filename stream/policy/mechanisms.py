"""The declarations of count mechanisms, for policy, release and account.

A policy may name only mechanisms in ``MECHANISMS``. The declaration says how a mechanism composes, for how many windows
its epsilon pays, whether it draws its own noise, and so on; policy, release and account read it from here. A name that
is not declared is refused, never treated as the cheapest mechanism. The behaviour of a mechanism is in its own module;
``stream.mechanisms.registry`` maps the name to the function that makes it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

from stream.errors import UsageError
from stream.policy.fields import NANO
from stream.records import NoiseKind

SMALLEST_PART = Fraction(1, NANO)
"""Smallest part of an epsilon for which the sampler can draw noise."""
SMALLEST_PEGASUS = Fraction(1, 20_000)
"""Smallest epsilon of PeGaSus; below it the grouper would need more noise than the sampler can draw."""
LARGEST_STATE = 1 << 20
"""Largest count that the filter considers."""


class Composition(NamedTuple):
    """How the epsilons of several audiences of one release compose at one window; the two parts add up to 1."""

    shared: Fraction
    """Part spent on the noise chain that all audiences share; together they learn as much as the largest epsilon
    allows."""
    own: Fraction
    """Part spent separately for each distinct epsilon; together they learn the sum."""

    def joint_epsilon(self, distinct: Collection[Fraction]) -> Fraction:
        """Return the joint epsilon of readers at these distinct epsilons, of which there must be at least one."""
        return self.shared * max(distinct) + self.own * sum(distinct)


ONE_CHAIN = Composition(Fraction(1), Fraction(0))
"""All of epsilon on the shared noise chain."""
CHAIN_AND_GROUPER = Composition(Fraction(4, 5), Fraction(1, 5))
"""PeGaSus (Chen, Machanavajjhala, Hay, Miklau, CCS 2017, section 6.1): 0.8 ε on the noise, 0.2 ε on a grouper."""


class SpendingRule(Enum):
    """For which windows one epsilon pays, and how much of it one window may spend."""

    WINDOW = "each window"
    """Each window costs an epsilon."""
    EVEN = "the w-th part in each window"
    """An epsilon pays for any w consecutive windows, each of which spends the w-th part."""
    CARRIED = "up to all of it in one window"
    """An epsilon pays for any w consecutive windows, and one window may spend all of it. The remaining amount
    is carried over from window to window, together with the publication that is repeated meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """The declaration of a count mechanism."""

    composition: Composition
    spending: SpendingRule
    audiences: int | None = None
    """Largest number of audiences of one release; None: any number."""
    smallest: Fraction = SMALLEST_PART
    """Least value of every part of epsilon that is spent at once."""
    parts_per_window: int = 1
    """Number of parts into which the w-th part of an epsilon is divided, if an epsilon pays for w windows."""
    own_noise: bool = False
    """Whether the mechanism draws its own noise, instead of using the shared noise chain. The account then adds its
    prices up, also at a delta."""
    clamped: bool
    """Whether values are never negative."""
    grouped: bool = False
    """Whether values come from groups of windows, which can also be used for sums over windows."""
    noises: tuple[NoiseKind, ...] = ("laplace",)
    """Possible laws of the chain's noise. ``composition`` holds for Laplace noise. Gaussian noise has no pure epsilon;
    only a release that is paid per device day may use it."""
    levels: bool = False
    """Whether the mechanism can measure zones, floors and building at shares of epsilon."""
    revisable: bool = False
    """Whether values can be revised when later windows are known, because they depend on noisy values only."""
    by_day: bool = False
    """Whether one price can pay for a device's whole day: the values of a window depend on that window's noisy
    counts and on earlier published values, and on no other true count. Several audiences share one noise chain."""
    by_changes: bool = False
    """Whether a day's price can pay for changes: all values are computed from noisy changes alone."""
    prunes: bool = False
    """Whether the mechanism can skip the levels below nodes with small counts."""
    largest_count: int | None = None
    """Largest count that the mechanism considers; None if it has no limit."""
    plain: bool = False
    """Whether values are the noisy counts themselves, neither rounded nor smoothed."""
    learnt: str | None = None
    """What the mechanism learns from earlier windows, as ``policy diff`` names it; an accepted policy begins it anew.
    None if no state goes from window to window but a publication that is carried over."""

    def __post_init__(self) -> None:
        if sum(self.composition) != 1 or min(self.composition) < 0:
            raise UsageError(f"composition: parts must be at least 0 and add up to 1, got {self.composition}")
        if self.spending is not SpendingRule.WINDOW and self.audiences != 1:
            raise UsageError("audiences: must be 1 where an epsilon pays for w windows")
        if self.own_noise and self.audiences != 1 and self.composition.shared:
            raise UsageError(
                "composition: must share nothing where several audiences have noise that is not the chain's"
            )
        if self.by_day and self.composition.own and self.audiences != 1:
            raise UsageError(
                "by_day: must have one audience or share all of epsilon: a day's price is of one noise chain"
            )

    @property
    def pays_by_window(self) -> bool:
        """Whether an epsilon is the price of each window."""
        return self.spending is SpendingRule.WINDOW

    @property
    def pays_for_w(self) -> bool:
        """Whether an epsilon is the price of any w consecutive windows (w-event privacy)."""
        return not self.pays_by_window

    @property
    def shows_noisy(self) -> bool:
        """Whether the noisy counts of each window are known beside its values; the law of their noise is declared."""
        return self.plain or self.grouped or self.revisable

    @property
    def carries(self) -> bool:
        """Whether a publication and the remaining amount are carried over from window to window."""
        return self.spending is SpendingRule.CARRIED

    def epsilons_for(self, w: int, ticks: int, windows: int) -> int:
        """Return how many epsilons pay for some ticks among consecutive windows, wherever these ticks lie.

        Args:
            w: consecutive windows for which one epsilon pays; 1 if each window is paid separately.
            ticks: the number of ticks.
            windows: the number of consecutive windows that contain the ticks.
        """
        if self.spending is SpendingRule.EVEN:
            return -(-min(ticks, windows) // w)
        return min(ticks, -(-windows // w))


MECHANISMS: dict[str, Mechanism] = {
    "laplace": Mechanism(
        composition=ONE_CHAIN,
        spending=SpendingRule.WINDOW,
        clamped=False,
        noises=("laplace", "gaussian"),
        levels=True,
        by_day=True,
        prunes=True,
        plain=True,
    ),
    "pegasus": Mechanism(
        composition=CHAIN_AND_GROUPER,
        spending=SpendingRule.WINDOW,
        smallest=SMALLEST_PEGASUS,
        clamped=True,
        grouped=True,
        levels=True,
        prunes=True,
        learnt="its grouping",
    ),
    "filter": Mechanism(
        composition=ONE_CHAIN,
        spending=SpendingRule.WINDOW,
        clamped=True,
        noises=("laplace", "gaussian"),
        levels=True,
        largest_count=LARGEST_STATE,
        revisable=True,
        by_day=True,
        learnt="its filter",
        by_changes=True,
    ),
    "uniform": Mechanism(
        composition=ONE_CHAIN,
        spending=SpendingRule.EVEN,
        audiences=1,
        parts_per_window=2,
        own_noise=True,
        clamped=True,
    ),
    "sample": Mechanism(
        composition=ONE_CHAIN,
        spending=SpendingRule.CARRIED,
        audiences=1,
        parts_per_window=2,
        own_noise=True,
        clamped=True,
    ),
    "ba": Mechanism(
        composition=ONE_CHAIN,
        spending=SpendingRule.CARRIED,
        audiences=1,
        parts_per_window=2,
        own_noise=True,
        clamped=True,
    ),
}
"""Name in the policy -> declaration, in the order in which messages name them."""

SPARSE_VECTOR = "sparse-vector"
DECIDING: dict[str, Mechanism] = {
    SPARSE_VECTOR: Mechanism(
        composition=ONE_CHAIN,
        spending=SpendingRule.WINDOW,
        own_noise=True,
        audiences=1,
        clamped=True,
        by_day=True,
    ),
}
"""Mechanisms that decide on counts instead of releasing them; a count release cannot use them. All audiences of
a stream read the same decisions, and so count as one."""

ALIASES = {"plain": "laplace"}
"""Other name in a policy -> name in records. With gaussian noise, ``laplace`` would be a misleading name."""


def mechanism_named(name: str) -> Mechanism:
    """Return the declaration of the mechanism of this name; UsageError if there is none."""
    declared = MECHANISMS.get(name) or DECIDING.get(name)
    if declared is None:
        raise UsageError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")
    return declared


def names_where(condition: str) -> tuple[str, ...]:
    """Return the mechanisms with a property, such as ``levels`` or ``carries``, in the order of the registry."""
    return tuple(name for name, declared in MECHANISMS.items() if getattr(declared, condition))
