"""Zones, floors and building with noise on every level, made consistent.

    symbol   here             meaning
    h        tree.height      number of levels
    ε        epsilon          what one presence tuple costs over all levels together
    ε_pr     pruning.share ε  what the pruning tests of one path may cost
    R        budget.measured  ε - ε_pr
    β        pruning.below    public threshold
    f_l      shares[l]        level l's share of R, leaves first; the shares sum to 1 exactly

A tuple is counted by one node of each level, on a path from a leaf to its root. So each level may spend f_l R:
``laplace`` on the noise, ``pegasus`` four fifths on the noise and one fifth on a grouper (Chen, Machanavajjhala,
Hay, Miklau, CCS 2017, Algorithm 3, there with equal shares). The values are then smoothed and made consistent
by generalised least squares (:mod:`stream.mechanisms.consistency`), which is free.

Pruning (their Algorithm 4): where a node is below β, its descendants are skipped and it gets their budget. As
printed, every comparison costs up to ε_pr/2, which is ε_pr for two of them and more in taller trees. Here
c + DLap((h-1)/ε_pr) is compared with β itself, at every level but the leaves: each test is a post-processing of
one noisy count, a path has at most h - 1 of them, and they cost at most ε_pr. Given the outcomes, which are
public, a path costs exactly R: its cut node at level l has Σ_{k<=l} f_k R, each node above has its own f_k R, and the
nodes below have nothing. A pruned node publishes 0 and its group closes; its count enters no test. A group
also closes where its node's noise changes its scale. Sums hold down to the cut nodes.

Audiences share one noise chain per level (``epsilons``), so a coalition pays for noise as much as its member with the
least noise; each has its own groupers. With pruning there may be one audience only.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stream.domains import Draw
from stream.errors import DataError, UsageError
from stream.mechanisms.base import TickInput, Values, whole
from stream.mechanisms.consistency import Tree, downward_pass, gather, integer_estimates
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.group_errors import GroupErrors, group_errors
from stream.mechanisms.grouper import SMOOTHERS, Grouper, GrouperState, GroupItem
from stream.mechanisms.noise import chain, check_epsilon, discrete_laplace, std
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.policy.mechanisms import Mechanism, mechanism_named, names_where
from stream.schemas import HalfWidthKind

PRUNED, MEASURED, CUT = 0, 1, 2
"""The kind of a node in a window: skipped; measured with its level's share; measured with its subtree's shares too."""


@dataclass(frozen=True)
class Pruning:
    """When a node's descendants are skipped."""

    share: Fraction
    """ε_pr as a fraction of ε, in (0, 1)."""
    below: int
    """β: a node whose noisy count is lower is cut."""


@dataclass(frozen=True, slots=True)
class LevelBudget:
    """One audience's ε, divided among levels, noise, grouper and tests."""

    epsilon: Fraction
    shares: tuple[Fraction, ...]
    grouper: Fraction
    """Part of a level's budget that the grouper spends instead of the noise; 0 without groups."""
    pruning: Pruning | None = None

    @property
    def measured(self) -> Fraction:
        """R."""
        return self._measured(self.epsilon)

    def _measured(self, epsilon: Fraction) -> Fraction:
        return epsilon * (1 - self.pruning.share) if self.pruning else epsilon

    @property
    def noise(self) -> Fraction:
        """Budget of the noise on one path."""
        return self.measured - self.grouper * self.measured

    @property
    def test(self) -> Fraction:
        """Budget of one pruning test: ε_pr / (h-1), or 0 without pruning."""
        if self.pruning is None:
            return Fraction(0)
        return self.epsilon * self.pruning.share / (len(self.shares) - 1)

    def noise_at(self, level: int, kind: int = MEASURED, epsilon: Fraction | None = None) -> Fraction:
        """Return the ε of the noise on a node of a level (0 for leaves) that is MEASURED or CUT.

        Args:
            level: counted from the leaves.
            kind: a cut node has its descendants' shares too.
            epsilon: another audience's; None for that of this budget.
        """
        r = self._measured(epsilon or self.epsilon)
        units = sum(self.shares[: level + 1], Fraction(0)) if kind == CUT else self.shares[level]
        return units * r - self.grouper * (self.shares[level] * r)


WIDEST = 2.12
"""95 % half-width in standard deviations: ln 20 / √2 for one Laplace noise, less for any sum of several."""


@dataclass(frozen=True, slots=True)
class HierarchyState:
    """PeGaSus' open groups of each level (restricted), and the kind of each node in the latest window."""

    groups: tuple[GrouperState, ...] = ()
    """Leaves first; empty without groups."""
    kinds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Hierarchy:
    """Counts of all nodes of a tree at one epsilon: a count mechanism whose input is the leaves' counts.

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
    """Those of all audiences of the release; if empty, only ``epsilon``."""

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
        """The budget of noise, groupers and tests, by level."""
        return LevelBudget(self.epsilon, self.shares, self._declared.composition.own, self.pruning)

    @property
    def half_width_kind(self) -> HalfWidthKind:
        """``posterior`` where values are smoothed over groups, otherwise ``noise``."""
        return "posterior" if self._declared.grouped else "noise"

    @property
    def noise(self) -> NoiseParameter:
        """Total noise of one path: at R, or with a grouper the chain's part of it."""
        return laplace_noise(self.budget.noise)

    # --- one window -----------------------------------------------------------------------------------

    @cached_property
    def groupers(self) -> tuple[Grouper, ...]:
        """One per level, at its share; empty without groups."""
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
        """Prune, perturb, group and smooth each level, and make the levels consistent."""
        counts = self.tree.sums(item.counts)
        kinds = self.prune(item, counts)
        noisy = counts + self.drawn(item, counts, kinds)
        after, smooth, size, errors = self._smoothed(state, item, (counts, noisy), kinds)
        precision = np.where(kinds == PRUNED, 0, size / self._variance(kinds))
        gathered = gather(self.tree, smooth, precision)
        numbers = integer_estimates(self.tree, gathered, negative=not self._declared.clamped)
        own = self._noise_half_widths(kinds)
        if errors is not None:
            own = errors.half_width(numbers - smooth, self._left(kinds, errors.deviation))
        widths, published_noisy = self._half_widths(kinds, numbers, own), None if self.pruning else noisy
        return after, [Values(numbers, widths, whole(numbers), noisy=published_noisy)]

    def prune(self, item: TickInput, counts: Ints) -> Ints:
        """Return the kind of each node in this window; all are MEASURED without pruning."""
        kinds = np.full(self.tree.nodes, MEASURED)
        if self.pruning is None:
            return kinds
        for level in range(self.tree.height - 1, 0, -1):
            here, below = self.tree.levels[level], self.tree.levels[level - 1]
            context = self._context(item.context, level)
            name = context.label(Draw.PRUNE_TEST, self.budget.test, digest=counts_digest(counts[here]))
            noise = discrete_laplace(item.key, name, self.budget.test, len(self.tree.names[level]))
            low = counts[here] + noise < self.pruning.below
            kinds[here] = np.where((kinds[here] == MEASURED) & low, CUT, kinds[here])
            kinds[below] = np.where(kinds[here] == MEASURED, MEASURED, PRUNED)[self.tree.above[level - 1]]
        return kinds

    def drawn(self, item: TickInput, counts: Ints, kinds: Ints) -> Ints:
        """Return the noise of all nodes, from each level's own chain; that of pruned nodes is unused."""
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
        """Return the context of a level: its registry begins with words that are no valid zone id."""
        return replace(context, zones=(f"level {level} of {self.tree.height}", *self.tree.names[level]))

    def _smoothed(
        self, state: HierarchyState, item: TickInput, values: tuple[Ints, Ints], kinds: Ints
    ) -> tuple[HierarchyState, Floats, Floats, GroupErrors | None]:
        """Return (state, smoothed values, sizes of their groups, their errors); the noisy values without groups."""
        counts, noisy = values
        if not self.groupers:
            return state, noisy.astype(np.float64), np.ones(self.tree.nodes), None
        open_before = kinds == np.array(state.kinds)
        smooth, sizes, groups = np.zeros(self.tree.nodes), np.ones(self.tree.nodes), []
        scales, laws = self._scales(kinds), list[GroupErrors]()
        for level, (grouper, here) in enumerate(zip(self.groupers, self.tree.levels, strict=True)):
            group_state = _kept(state.groups[level], open_before[here])
            context = self._context(item.context, level)
            rho, nu = grouper.draw(item.key, context, group_state, counts[here])
            group_state, [last] = grouper.step(group_state, GroupItem(counts[here], noisy[here], rho, nu))
            top, bottom = SMOOTHERS[self.smoother](last)
            smooth[here], sizes[here] = top / bottom, last.size
            groups.append(_kept(group_state, kinds[here] != PRUNED))
            laws.append(group_errors(last, smooth[here], scales[here]))
        errors = GroupErrors(*(np.concatenate(parts, axis=1) for parts in zip(*laws, strict=True)))
        return HierarchyState(tuple(groups), tuple(kinds.tolist())), smooth, sizes, errors

    def _scales(self, kinds: Ints) -> Floats:
        """Return the scale of each node's noise; of a pruned node as if it were measured."""
        scales = np.zeros(self.tree.nodes)
        for level, here in enumerate(self.tree.levels):
            measured, cut = (float(1 / self.budget.noise_at(level, kind)) for kind in (MEASURED, CUT))
            scales[here] = np.where(kinds[here] == CUT, cut, measured)
        return scales

    def _variance(self, kinds: Ints) -> Floats:
        """Return the variance of each node's noise, before smoothing; 1 where it is pruned."""
        variance = np.ones(self.tree.nodes)
        for level, here in enumerate(self.tree.levels):
            for kind in (MEASURED, CUT):
                if (kinds[here] == kind).any():
                    deviation = std(self.budget.noise_at(level, kind))
                    variance[here] = np.where(kinds[here] == kind, deviation * deviation, variance[here])
        return variance

    def _left(self, kinds: Ints, deviation: Floats) -> Floats:
        """Return the part of each node's deviation that is left when the levels have been made consistent.

        Weights assume that errors are independent. Errors of groups on several levels are late together, so of nodes
        above the leaves the root of this part is returned, which is larger.
        """
        precision = np.where(kinds == PRUNED, 0, 1 / (deviation * deviation))
        variance = downward_pass(self.tree, gather(self.tree, np.zeros(self.tree.nodes), precision)).variance
        left = np.sqrt(variance) / deviation
        left[len(self.tree.names[0]) :] = np.sqrt(left[len(self.tree.names[0]) :])
        return np.asarray(left)

    def _noise_half_widths(self, kinds: Ints) -> Ints:
        """Return 95 % half-widths of the noise that is left, and of rounding."""
        precision = np.where(kinds == PRUNED, 0, 1 / self._variance(kinds))
        variance = downward_pass(self.tree, gather(self.tree, np.zeros(self.tree.nodes), precision)).variance
        return np.ceil(WIDEST * np.sqrt(variance + 0.25)).astype(np.int64)

    def _half_widths(self, kinds: Ints, numbers: Ints, own: Ints) -> Ints:
        """Return the half-widths of measured nodes with those of pruned ones.

        A pruned node lies between 0 and its parent's largest value: its half-width is that upper end.
        """
        width = own.copy()
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
        closed = [
            grouper.close_all(group_state) for grouper, group_state in zip(self.groupers, state.groups, strict=True)
        ]
        return replace(state, groups=tuple(closed))

    def encode(self, state: HierarchyState) -> bytes:
        """Return the stable byte form: kinds, then each level's groups, each with its length."""
        if not self.groupers:
            return b""
        parts = [grouper.encode(group_state) for grouper, group_state in zip(self.groupers, state.groups, strict=True)]
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


def _kept(state: GrouperState, is_kept: NDArray[np.bool_]) -> GrouperState:
    """Return the state with all other groups closed, and none of their counts left in it."""
    size = np.where(is_kept, state.size, 0)
    longest, column = int(size.max(initial=0)), is_kept[:, None]
    counts, noisy = state.counts[:, :longest] * column, state.noisy[:, :longest] * column
    return GrouperState(size, state.threshold * is_kept, counts, noisy)
