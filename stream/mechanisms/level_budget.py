"""What a hierarchy's nodes spend: each level its share of what is measured, with or without pruning.

    symbol   here          meaning
    h        len(shares)   number of levels
    ε_pr     pruning.share ε
    R        measured      ε - ε_pr
    f_l      shares[l]     level l's share of R, leaves first

The proof that a path costs exactly ε stands in :mod:`stream.mechanisms.hierarchy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

PRUNED, MEASURED, CUT = 0, 1, 2
"""What a node is in a window: skipped; measured with its level's share; measured with its subtree's too."""


@dataclass(frozen=True)
class Pruning:
    """When a node's descendants are skipped."""

    share: Fraction
    """ε_pr as a part of ε, in (0, 1)."""
    below: int
    """β: a node whose noisy count is below is cut."""


@dataclass(frozen=True, slots=True)
class LevelBudget:
    """One audience's ε, divided over levels, noise, grouper and tests."""

    epsilon: Fraction
    shares: tuple[Fraction, ...]
    grouper: Fraction
    """Part of a level's budget that the grouper spends instead of the noise; 0 where nothing is grouped."""
    pruning: Pruning | None = None

    @property
    def measured(self) -> Fraction:
        """R."""
        return self._measured(self.epsilon)

    def _measured(self, epsilon: Fraction) -> Fraction:
        return epsilon * (1 - self.pruning.share) if self.pruning else epsilon

    @property
    def noise(self) -> Fraction:
        """What the noise of one path spends."""
        return self.measured - self.grouper * self.measured

    @property
    def test(self) -> Fraction:
        """What one pruning test spends: ε_pr / (h-1), or nothing without pruning."""
        if self.pruning is None:
            return Fraction(0)
        return self.epsilon * self.pruning.share / (len(self.shares) - 1)

    def noise_at(self, level: int, kind: int = MEASURED, epsilon: Fraction | None = None) -> Fraction:
        """Return the ε of the noise on a node of a level (0 for leaves) that is MEASURED or CUT.

        Args:
            level: counted from the leaves.
            kind: a cut node has its descendants' shares too.
            epsilon: another audience's; that of this budget where it is None.
        """
        r = self._measured(epsilon or self.epsilon)
        units = sum(self.shares[: level + 1], Fraction(0)) if kind == CUT else self.shares[level]
        return units * r - self.grouper * (self.shares[level] * r)
