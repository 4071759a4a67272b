"""Zones, floors and building with noise of their own, made to add up; and PeGaSus' pruning in its safe form.

    symbol   here             meaning
    h        tree.height      number of levels
    ε        epsilon          what one presence tuple costs over all levels together
    ε_pr     pruning.share ε  what the pruning tests of one path may cost
    R        budget.measured  ε - ε_pr
    β        pruning.below    public threshold
    f_l      shares[l]        level l's share of R, leaves first; the shares sum to 1 exactly

A tuple is counted by one node of each level, a path from a leaf to its root. So each level may spend f_l R:
``laplace`` on the noise, ``pegasus`` four fifths on the noise and one on a grouper (Chen, Machanavajjhala,
Hay, Miklau, CCS 2017, Algorithm 3, there with equal shares). The values are then smoothed and made to add up
by generalised least squares (:mod:`stream.mechanisms.consistency`), which is free.

Pruning (their Algorithm 4): a node below β makes its descendants be skipped, and gets their budget. As
printed, every comparison costs up to ε_pr/2, which is ε_pr for two of them and more in taller trees. Here
c + DLap((h-1)/ε_pr) is compared with β itself, at every level but the leaves: each test is a post-processing of
one noisy count, a path has at most h - 1 of them, and they cost at most ε_pr. Given the outcomes, which are
public, a path costs exactly R: its cut node at level l has Σ_{k<=l} f_k R, what is above has f_k R each, what
is below has nothing. A pruned node publishes 0 and its group closes, its count enters no test; a group
also closes where its node's noise changes its scale. Sums hold down to the cut nodes.

Audiences share one noise chain per level (``epsilons``), so a coalition pays for noise what its finest
member pays; each has groupers of its own. With pruning there may be one audience only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stream.errors import DataError, UsageError
from stream.mechanisms.chain import chain
from stream.mechanisms.consistency import Tree, gather, settle, whole_numbers
from stream.mechanisms.contract import TickInput, Values
from stream.mechanisms.exact import Floats
from stream.mechanisms.grouper import Grouper, GrouperState, GroupItem
from stream.mechanisms.labels import Context, counts_digest
from stream.mechanisms.level_budget import CUT, MEASURED, PRUNED, LevelBudget, Pruning
from stream.mechanisms.noise import Ints, check_epsilon, discrete_laplace, std
from stream.mechanisms.parameter import NoiseParameter, laplace_noise
from stream.mechanisms.smoothers import SMOOTHERS, whole
from stream.policy.mechanisms import Mechanism, mechanism_named, names_where
from stream.schemas import HalfWidthKind

WIDEST = 2.12
"""95 % half-width in standard deviations: ln 20 / √2 for one Laplace noise, less for any sum of several."""


@dataclass(frozen=True, slots=True)
class HierarchyState:
    """PeGaSus' open groups of each level (restricted), and what each node was in the latest window."""

    groups: tuple[GrouperState, ...] = ()
    """Leaves first; empty where nothing is grouped."""
    kinds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hierarchy:
    """Counts of all nodes of a tree at one epsilon: a count mechanism that takes the leaves' counts.

    ``TickInput.counts`` are the leaves' true counts; ``TickInput.noise`` is not read. Values and half-widths have the
    shape [nodes], in the order of ``tree``.
    """

    tree: Tree
    epsilon: Fraction
    shares: tuple[Fraction, ...]
    perturber: str = "laplace"
    smoother: str = "median"
    pruning: Pruning | None = None
    epsilons: tuple[Fraction, ...] = ()
    """Those of all audiences of the release; only ``epsilon`` where it is empty."""
    half_width_kind: HalfWidthKind = "noise"

    def __post_init__(self) -> None:
        self._check_choices()
        if len(self.shares) != self.tree.height or sum(self.shares) != 1 or min(self.shares) <= 0:
            raise UsageError(f"shares must be {self.tree.height} positive numbers, one a level, with the sum 1")
        if self.pruning is not None:
            self._check_pruning(self.pruning)
        for level in range(self.tree.height):
            check_epsilon(self.budget.noise_at(level))
        self.initial()

    def _check_choices(self) -> None:
        if self.perturber not in names_where("prunes"):
            raise UsageError(f"perturber must be one of {', '.join(names_where('prunes'))}, got {self.perturber!r}")
        if self.smoother not in SMOOTHERS:
            raise UsageError(f"smoother must be one of {', '.join(SMOOTHERS)}, got {self.smoother!r}")
        if self.epsilons and self.epsilon not in self.epsilons:
            raise UsageError(f"epsilons must contain epsilon, got {self.epsilon}")

    def _check_pruning(self, pruning: Pruning) -> None:
        if not 0 < pruning.share < 1 or self.tree.height < 2:
            raise UsageError(f"pruning.share must be between 0 and 1 and levels at least 2, got {pruning.share}")
        if len(set(self.epsilons)) > 1:
            raise UsageError(f"pruning must have one audience only, got {len(self.epsilons)} epsilons")

    @property
    def _declared(self) -> Mechanism:
        return mechanism_named(self.perturber)

    @cached_property
    def budget(self) -> LevelBudget:
        """What noise, groupers and tests spend, level by level."""
        return LevelBudget(self.epsilon, self.shares, self._declared.composition.own, self.pruning)

    @property
    def noise(self) -> NoiseParameter:
        """Of one path in all: at R, or with a grouper the chain's part of it."""
        return laplace_noise(self.budget.noise)

    # --- one window -----------------------------------------------------------------------------------

    @cached_property
    def groupers(self) -> tuple[Grouper, ...]:
        """One a level, at its share; none where nothing is grouped."""
        if not self._declared.grouped:
            return ()
        r = self.budget.measured
        return tuple(Grouper(len(names), f * r) for names, f in zip(self.tree.names, self.shares, strict=True))

    def initial(self) -> HierarchyState:
        """Return the state in which no group is open."""
        if not self.groupers:
            return HierarchyState()
        return HierarchyState(tuple(g.initial() for g in self.groupers), (PRUNED,) * self.tree.nodes)

    def step(self, state: HierarchyState, item: TickInput) -> tuple[HierarchyState, list[Values]]:
        """Prune, perturb, group and smooth each level, and make the levels add up."""
        counts = self.tree.sums(item.counts)
        kinds = self.prune(item, counts)
        noisy = counts + self.drawn(item, counts, kinds)
        after, smooth, size = self._smoothed(state, item, (counts, noisy), kinds)
        precision = np.where(kinds == PRUNED, 0, size / self._variance(kinds))
        gathered = gather(self.tree, smooth, precision)
        numbers = whole_numbers(self.tree, gathered, negative=not self._declared.clamped)
        widths, told = self._half_widths(kinds, numbers), None if self.pruning else noisy
        return after, [Values(numbers, widths, whole(numbers), noisy=told)]

    def prune(self, item: TickInput, counts: Ints) -> Ints:
        """Return what each node is in this window; all are MEASURED without pruning."""
        kinds = np.full(self.tree.nodes, MEASURED)
        if self.pruning is None:
            return kinds
        for level in range(self.tree.height - 1, 0, -1):
            here, below = self.tree.levels[level], self.tree.levels[level - 1]
            context = self._context(item.context, level)
            name = context.label("prune-test", self.budget.test, digest=counts_digest(counts[here]))
            noise = discrete_laplace(item.key, name, self.budget.test, len(self.tree.names[level]))
            low = counts[here] + noise < self.pruning.below
            kinds[here] = np.where((kinds[here] == MEASURED) & low, CUT, kinds[here])
            kinds[below] = np.where(kinds[here] == MEASURED, MEASURED, PRUNED)[self.tree.above[level - 1]]
        return kinds

    def drawn(self, item: TickInput, counts: Ints, kinds: Ints) -> Ints:
        """Return the noise of all nodes, from each level's own chain; that of pruned ones is not used."""
        parts = []
        for level, here in enumerate(self.tree.levels):
            drawn = self._level_noise(item, level, counts[here], MEASURED)
            if (kinds[here] == CUT).any():
                drawn = np.where(kinds[here] == CUT, self._level_noise(item, level, counts[here], CUT), drawn)
            parts.append(drawn)
        return np.concatenate(parts)

    def _level_noise(self, item: TickInput, level: int, counts: Ints, kind: int) -> Ints:
        shares = [self.budget.noise_at(level, kind, epsilon) for epsilon in self.epsilons or (self.epsilon,)]
        context = self._context(item.context, level)
        drawn = chain(item.key, context, counts_digest(counts), shares, len(counts))
        return drawn[self.budget.noise_at(level, kind)]

    def _context(self, context: Context, level: int) -> Context:
        """Return the context of a level: its registry begins with words that no zone id can be."""
        return replace(context, zones=(f"level {level} of {self.tree.height}", *self.tree.names[level]))

    def _smoothed(
        self, state: HierarchyState, item: TickInput, values: tuple[Ints, Ints], kinds: Ints
    ) -> tuple[HierarchyState, Floats, Floats]:
        """Return (state, smoothed values, sizes of their groups); the noisy values where nothing is grouped."""
        counts, noisy = values
        if not self.groupers:
            return state, noisy.astype(np.float64), np.ones(self.tree.nodes)
        open_before = kinds == np.array(state.kinds)
        smooth, sizes, groups = np.zeros(self.tree.nodes), np.ones(self.tree.nodes), []
        for level, (grouper, here) in enumerate(zip(self.groupers, self.tree.levels, strict=True)):
            held = _kept(state.groups[level], open_before[here])
            context = self._context(item.context, level)
            rho, nu = grouper.draw(item.key, context, held, counts[here])
            held, [last] = grouper.step(held, GroupItem(counts[here], noisy[here], rho, nu))
            top, bottom = SMOOTHERS[self.smoother](last)
            smooth[here], sizes[here] = top / bottom, last.size
            groups.append(_kept(held, kinds[here] != PRUNED))
        return HierarchyState(tuple(groups), tuple(kinds.tolist())), smooth, sizes

    def _variance(self, kinds: Ints) -> Floats:
        """Return the variance of each node's noise, before smoothing; 1 where it is pruned."""
        variance = np.ones(self.tree.nodes)
        for level, here in enumerate(self.tree.levels):
            for kind in (MEASURED, CUT):
                if (kinds[here] == kind).any():
                    deviation = std(self.budget.noise_at(level, kind))
                    variance[here] = np.where(kinds[here] == kind, deviation * deviation, variance[here])
        return variance

    def _half_widths(self, kinds: Ints, numbers: Ints) -> Ints:
        """Return 95 % half-widths of the noise (and of rounding), as if nothing were smoothed.

        A pruned node lies between 0 and what its parent may be: its half-width is that upper end.
        """
        precision = np.where(kinds == PRUNED, 0, 1 / self._variance(kinds))
        variance = settle(self.tree, gather(self.tree, np.zeros(self.tree.nodes), precision)).variance
        width = np.ceil(WIDEST * np.sqrt(variance + 0.25)).astype(np.int64)
        for level in range(self.tree.height - 1, 0, -1):
            above, below = self.tree.levels[level], self.tree.levels[level - 1]
            upper = (np.maximum(numbers[above], 0) + width[above])[self.tree.above[level - 1]]
            width[below] = np.where(kinds[below] == PRUNED, upper, width[below])
        return width

    def noise_scales(self) -> tuple[float, ...]:
        """Return the scale of each node's own noise where nothing is cut, shape [nodes]."""
        scales = [float(1 / self.budget.noise_at(level)) for level in range(self.tree.height)]
        return tuple(scale for scale, names in zip(scales, self.tree.names, strict=True) for _ in names)

    # --- state ----------------------------------------------------------------------------------------

    def pause(self, state: HierarchyState) -> HierarchyState:
        """Return the state with all groups closed."""
        closed = [grouper.close_all(held) for grouper, held in zip(self.groupers, state.groups, strict=True)]
        return replace(state, groups=tuple(closed))

    def encode(self, state: HierarchyState) -> bytes:
        """Return the stable byte form: kinds, then each level's groups, each with its length."""
        if not self.groupers:
            return b""
        parts = [grouper.encode(held) for grouper, held in zip(self.groupers, state.groups, strict=True)]
        return bytes(state.kinds) + b"".join(_LENGTH.pack(len(part)) + part for part in parts)

    def decode(self, data: bytes) -> HierarchyState:
        """Return the state of a byte form; DataError where it is not one of this mechanism."""
        kinds, place = tuple(data[: self.tree.nodes if self.groupers else 0]), self.tree.nodes
        if len(data) < len(kinds) or (not self.groupers and data) or max(kinds, default=PRUNED) > CUT:
            raise DataError("hierarchy state: must begin with the kind of each node")
        parts = []
        for grouper in self.groupers:
            start = place + _LENGTH.size
            place = start + int.from_bytes(data[place:start], "little")
            if len(data) < max(start, place):
                raise DataError("hierarchy state: must hold the groups of every level")
            parts.append(grouper.decode(data[start:place]))
        if self.groupers and place != len(data):
            raise DataError("hierarchy state: must end with the last level's groups")
        return HierarchyState(tuple(parts), kinds)


_LENGTH = struct.Struct("<I")


def _kept(state: GrouperState, kept: NDArray[np.bool_]) -> GrouperState:
    """Return the state with all other groups closed, none of their counts left in it."""
    size = np.where(kept, state.size, 0)
    longest, column = int(size.max(initial=0)), kept[:, None]
    counts, noisy = state.counts[:, :longest] * column, state.noisy[:, :longest] * column
    return GrouperState(size, state.threshold * kept, counts, noisy)
