"""The registry of count mechanisms: what each declares, for policy, release and account alike.

A policy may name what stands in ``MECHANISMS`` and nothing else. Whoever has to know how a mechanism composes, for how
many windows its epsilon pays or whether it draws its own noise reads the declaration; a name that is not declared is
refused, never taken for the cheapest. What a mechanism does stands in its own module, which ``implementation`` names:
a function from ``mechanisms.contract.Parameters`` to a ``CountMechanism``.
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
"""Below this part of an epsilon the sampler makes no noise."""
SMALLEST_PEGASUS = Fraction(1, 20_000)
"""Below this PeGaSus' grouper would need more noise than the sampler gives."""
LARGEST_STATE = 1 << 20
"""Largest count that the filter considers."""


class Composition(NamedTuple):
    """What readers of one release learn together at one window. The parts of an epsilon add up to 1."""

    shared: Fraction
    """Spent on the noise chain that all audiences share: together they learn what the largest epsilon buys."""
    own: Fraction
    """Spent for each distinct epsilon anew: together they learn the sum."""

    def together(self, distinct: Collection[Fraction]) -> Fraction:
        """Return what readers at these epsilons, at least one and each once, learn together."""
        return self.shared * max(distinct) + self.own * sum(distinct)


ONE_CHAIN = Composition(Fraction(1), Fraction(0))
"""All of epsilon on the shared noise chain."""
CHAIN_AND_GROUPER = Composition(Fraction(4, 5), Fraction(1, 5))
"""PeGaSus (Chen, Machanavajjhala, Hay, Miklau, CCS 2017, section 6.1): 0.8 ε on the noise, 0.2 ε on a grouper."""


class Spending(Enum):
    """Which windows one epsilon pays for, and how much of it one of them may take."""

    WINDOW = "each window"
    """Each window costs an epsilon."""
    EVEN = "the w-th part in each window"
    """An epsilon pays for any w windows one after another, each of which takes the w-th part."""
    CARRIED = "up to all of it in one window"
    """An epsilon pays for any w windows one after another, and one may take all of it: what may still be spent is
    carried from window to window, with the publication that is repeated meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What a count mechanism declares."""

    implementation: str
    """``module:function`` of what makes it."""
    composition: Composition
    spending: Spending
    audiences: int | None = None
    """Most audiences of one release; None: any number."""
    smallest: Fraction = SMALLEST_PART
    """Least epsilon, of every part that is spent at once."""
    parts_per_window: int = 1
    """Into how many parts the w-th part of an epsilon is divided; only where an epsilon pays for w windows."""
    own_noise: bool = False
    """Whether it draws its noise itself, instead of taking that of the shared noise chain."""
    clamped: bool
    """Whether values are never negative."""
    grouped: bool = False
    """Whether its values come from groups of windows, in which sums over windows may be taken too."""
    noises: tuple[NoiseKind, ...] = ("laplace",)
    """Laws that the noise of the chain may have. What is declared of ``composition`` holds for Laplace noise; Gaussian
    noise has no pure epsilon, and only a release that is paid by the day may have it."""
    levels: bool = False
    """Whether it can measure zones, floors and building at shares of epsilon."""
    revisable: bool = False
    """Whether its values may be revised when later windows are known: they are made of noisy values only."""
    by_day: bool = False
    """Whether a device's whole day may pay for it: what it publishes of a window reads that window's noisy counts and
    what was published before, and no other true count."""
    prunes: bool = False
    """Whether it can leave out what lies below small nodes of these."""
    largest_count: int | None = None
    """Largest count that it considers, which is then to be declared; None where it needs to know none."""

    def __post_init__(self) -> None:
        if sum(self.composition) != 1 or min(self.composition) < 0:
            raise UsageError(f"composition: parts must be at least 0 and add up to 1, got {self.composition}")
        if self.spending is not Spending.WINDOW and self.audiences != 1:
            raise UsageError("audiences: must be 1 where an epsilon pays for w windows")
        if self.own_noise and self.audiences != 1 and self.composition.shared:
            raise UsageError(
                "composition: must share nothing where several audiences have noise that is not the chain's"
            )

    @property
    def pays_for_w(self) -> bool:
        """Whether an epsilon is the price of any w windows one after another (w-event privacy)."""
        return self.spending is not Spending.WINDOW

    @property
    def carries(self) -> bool:
        """Whether a publication, and what may still be spent, is carried from window to window."""
        return self.spending is Spending.CARRIED

    def epsilons_for(self, w: int, ticks: int, windows: int) -> int:
        """Return how many epsilons pay for some ticks of a run of windows, wherever among them they lie.

        Args:
            w: windows one after another for which one epsilon pays; 1 where each costs its own.
            ticks: how many.
            windows: of the run, one after another, among which the ticks are.
        """
        if self.spending is Spending.EVEN:
            return -(-min(ticks, windows) // w)
        return min(ticks, -(-windows // w))


MECHANISMS: dict[str, Mechanism] = {
    "laplace": Mechanism(
        implementation="stream.mechanisms.laplace:laplace",
        composition=ONE_CHAIN,
        spending=Spending.WINDOW,
        clamped=False,
        noises=("laplace", "gaussian"),
        levels=True,
        by_day=True,
        prunes=True,
    ),
    "pegasus": Mechanism(
        implementation="stream.mechanisms.pegasus:pegasus",
        composition=CHAIN_AND_GROUPER,
        spending=Spending.WINDOW,
        smallest=SMALLEST_PEGASUS,
        clamped=True,
        grouped=True,
        levels=True,
        prunes=True,
    ),
    "filter": Mechanism(
        implementation="stream.mechanisms.filtered:filtered",
        composition=ONE_CHAIN,
        spending=Spending.WINDOW,
        clamped=True,
        noises=("laplace", "gaussian"),
        levels=True,
        largest_count=LARGEST_STATE,
        revisable=True,
        by_day=True,
    ),
    "uniform": Mechanism(
        implementation="stream.mechanisms.wevent:uniform",
        composition=ONE_CHAIN,
        spending=Spending.EVEN,
        audiences=1,
        parts_per_window=2,
        own_noise=True,
        clamped=True,
    ),
    "sample": Mechanism(
        implementation="stream.mechanisms.wevent:sample",
        composition=ONE_CHAIN,
        spending=Spending.CARRIED,
        audiences=1,
        parts_per_window=2,
        own_noise=True,
        clamped=True,
    ),
    "ba": Mechanism(
        implementation="stream.mechanisms.wevent:ba",
        composition=ONE_CHAIN,
        spending=Spending.CARRIED,
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
        implementation="stream.mechanisms.sparse_vector:SparseVector",
        composition=ONE_CHAIN,
        spending=Spending.WINDOW,
        own_noise=True,
        audiences=1,
        clamped=True,
        by_day=True,
    ),
}
"""What decides on counts instead of releasing them: no mechanism of a count release. All audiences of a stream are told
the same, and so count as one."""

ALIASES = {"plain": "laplace"}
"""Another name that a policy may use -> the one that records have: with gaussian noise it is not Laplace's."""


def mechanism_named(name: str) -> Mechanism:
    """Return what the mechanism of this name declares; UsageError where there is none of it."""
    declared = MECHANISMS.get(name) or DECIDING.get(name)
    if declared is None:
        raise UsageError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}")
    return declared


def names_where(condition: str) -> tuple[str, ...]:
    """Return the mechanisms that declare something, such as ``levels`` or ``carries``, in the order of the registry."""
    return tuple(name for name, declared in MECHANISMS.items() if getattr(declared, condition))
