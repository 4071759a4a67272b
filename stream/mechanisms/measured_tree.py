"""A tree with noise of any kind per level, plain or filtered.

A device is counted by one node of each level, so a release of all levels costs what its levels cost together: with
Laplace noise the sum of their ε, with Gaussian noise the sum of their 1/σ² (shares of either are shares of the price).
Each level has one noise chain for all audiences, with its own registry that contains the level's name.

Plain: generalised least squares with weights 1/σ² make the noisy values consistent. Half-widths follow from the
variances, and nothing is clamped.

Filtered: every node has its own filter, whose medians are made consistent with weights 1/half_width², and are never
negative. Errors of filters are not independent noise: a change that one filter has not followed yet, those above and
below it have not followed either, so nothing proves that consistency makes errors smaller. A filtered node therefore
keeps the half-width of its own filter, or the distance by which it was moved where that is larger; how often the truth
lies within it is measured. All of it is post-processing of the noisy values.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stream.errors import DataError, UsageError
from stream.mechanisms.base import RevisedDay, TickInput, Values, whole
from stream.mechanisms.consistency import Tree, downward_pass, gather, integer_estimates
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.filter.learning import LearningFilter, LearningState
from stream.mechanisms.filter.smoothing import smooth
from stream.mechanisms.filter.state import FilterState
from stream.mechanisms.filter.step import FilterItem
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, noise_chain
from stream.schemas import HalfWidthKind

NORMAL = 1.96
"""95 % half-width of a sum of Gaussian noises in standard deviations."""
LAPLACE = 2.12
"""The same for any sum of Laplace noises: ln 20 / √2 for one, less for more."""
_SURE = 0.5
"""Half-width that replaces a filter's 0, which is a rounded value."""


@dataclass(frozen=True)
class MeasuredTree:
    """Counts of all nodes of a tree, as a count mechanism whose input is the leaves' counts.

    ``TickInput.counts`` are the leaves' true counts; ``TickInput.noise`` is not read. Values and half-widths have the
    shape [nodes], in the order of ``tree``.
    """

    tree: Tree
    laws: tuple[NoiseParameter, ...]
    """The noise of each level, leaves first."""
    chains: tuple[tuple[NoiseParameter, ...], ...]
    """For each level, the noises of all audiences of the release."""
    filters: tuple[LearningFilter, ...] = ()
    """The filter of each level; empty where noisy values are published unfiltered."""

    def __post_init__(self) -> None:
        levels = {len(self.laws), len(self.chains), len(self.filters) or self.tree.height}
        if levels != {self.tree.height}:
            raise UsageError(f"laws, chains and filters must be {self.tree.height}, one a level, got {sorted(levels)}")
        for level, (law, shared) in enumerate(zip(self.laws, self.chains, strict=True)):
            if law not in shared:
                raise UsageError(f"chains[{level}] must contain the level's own law")

    @property
    def noise(self) -> NoiseParameter:
        """The noise of the leaves."""
        return self.laws[0]

    @property
    def nodes(self) -> int:
        """Number of nodes of all levels."""
        return self.tree.nodes

    @property
    def half_width_kind(self) -> HalfWidthKind:
        """``posterior`` where there are filters, otherwise ``noise``."""
        return "posterior" if self.filters else "noise"

    def initial(self) -> tuple[LearningState, ...]:
        """Return the state of each level's filter."""
        return tuple(each.initial() for each in self.filters)

    def step(self, state: tuple[LearningState, ...], item: TickInput) -> tuple[tuple[LearningState, ...], list[Values]]:
        """Perturb and filter each level, and make the levels consistent."""
        noisy = self._noisy(item)
        if not self.filters:
            return (), [self._plain(noisy)]
        after, medians, widths = [], np.zeros(self.tree.nodes, np.int64), np.zeros(self.tree.nodes, np.int64)
        histories: list[list[RevisedDay]] = []
        for filtered, before, here in zip(self.filters, state, self.tree.levels, strict=True):
            level, [output] = filtered.step(before, FilterItem(noisy[here], item.slot))
            after.append(level)
            histories.append(output.histories)
            medians[here], widths[here] = output.estimate
        return tuple(after), [
            self.values_of(medians, widths)._replace(noisy=noisy, histories=self._of_nodes(histories))
        ]

    def _of_nodes(self, histories: Sequence[Sequence[RevisedDay]]) -> list[RevisedDay]:
        """Return the levels' revised parts as parts of the tree's nodes."""
        nodes = np.arange(self.tree.nodes)
        return [
            RevisedDay(
                parts[0].day,
                np.concatenate([nodes[here][part.zones] for here, part in zip(self.tree.levels, parts, strict=True)]),
                np.concatenate([part.median for part in parts], axis=1),
                np.concatenate([part.half_width for part in parts], axis=1),
                parts[0].is_last,
            )
            for parts in zip(*histories, strict=True)
        ]

    def prepare(self, state: tuple[LearningState, ...]) -> tuple[LearningState, ...]:
        """Return the states in which one filter has done one more piece of the next window's work."""
        for level, (each, before) in enumerate(zip(self.filters, state, strict=True)):
            if (prepared := each.prepare(before)) is not before:
                return (*state[:level], prepared, *state[level + 1 :])
        return state

    def rest(self, state: tuple[LearningState, ...]) -> list[RevisedDay]:
        """Return the revised parts of days that are not yet returned."""
        return self._of_nodes([each.rest(own) for each, own in zip(self.filters, state, strict=True)])

    def states(self, state: tuple[LearningState, ...]) -> tuple[FilterState, ...]:
        """Return the state of each level's filter."""
        return tuple(each.filter for each in state)

    def smooth(
        self, states: Sequence[FilterState], items: Sequence[FilterItem], final: int
    ) -> tuple[tuple[FilterState, ...], list[Values]]:
        """Revise the first windows from all of them, each level by itself, and make the levels consistent."""
        after, medians = [], np.zeros((final, self.tree.nodes), np.int64)
        widths = np.zeros_like(medians)
        for learning, before, here in zip(self.filters, states, self.tree.levels, strict=True):
            level, estimates = smooth(
                learning.filter, before, [FilterItem(i.noisy[here], i.slot) for i in items], final
            )
            after.append(level)
            medians[:, here] = [estimate.median for estimate in estimates]
            widths[:, here] = [estimate.half_width for estimate in estimates]
        return tuple(after), [self.values_of(*each) for each in zip(medians, widths, strict=True)]

    def _noisy(self, item: TickInput) -> Ints:
        """Return the counts of all nodes, each with the noise of its level's own chain."""
        counts = self.tree.sums(item.counts)
        for level, here in enumerate(self.tree.levels):
            context = level_context(item.context, self.tree, level)
            drawn = noise_chain(item.key, context, counts_digest(counts[here]), self.chains[level], len(counts[here]))
            counts[here] += drawn[self.laws[level]]
        return counts

    def values_of(self, median: Ints, half_width: Ints) -> Values:
        """Return the filters' medians, made consistent."""
        precision = 1 / np.maximum(half_width, _SURE) ** 2
        numbers = integer_estimates(self.tree, gather(self.tree, median.astype(np.float64), precision), negative=False)
        return Values(numbers, np.maximum(half_width, np.abs(numbers - median)), whole(numbers))

    def _plain(self, noisy: Ints) -> Values:
        gathered = gather(self.tree, noisy.astype(np.float64), self._precision)
        numbers = integer_estimates(self.tree, gathered, negative=True)
        return Values(numbers, self._widths, whole(numbers))

    @cached_property
    def _precision(self) -> Floats:
        """1 / variance of each node's noise."""
        deviations = np.repeat([law.deviation for law in self.laws], [len(names) for names in self.tree.names])
        return np.asarray(1 / (deviations * deviations))

    @cached_property
    def _widths(self) -> Ints:
        """95 % half-widths of the remaining noise, and of rounding."""
        variance = downward_pass(self.tree, gather(self.tree, np.zeros(self.tree.nodes), self._precision)).variance
        tails = NORMAL if self.noise.kind == "gaussian" else LAPLACE
        return np.ceil(tails * np.sqrt(variance + 0.25)).astype(np.int64)

    def pause(self, state: tuple[LearningState, ...]) -> tuple[LearningState, ...]:
        """Return the state unchanged: it contains no true count."""
        return state

    def encode(self, state: tuple[LearningState, ...]) -> bytes:
        """Return the stable byte form: each level's filter, with its length."""
        parts = [each.encode(own) for each, own in zip(self.filters, state, strict=True)]
        return b"".join(_LENGTH.pack(len(part)) + part for part in parts)

    def decode(self, data: bytes) -> tuple[LearningState, ...]:
        """Return the state of a byte form; DataError where it is not one of this mechanism."""
        place, levels = 0, []
        for each in self.filters:
            start = place + _LENGTH.size
            place = start + int.from_bytes(data[place:start], "little")
            levels.append(each.decode(data[start:place]))
        if place != len(data):
            raise DataError("tree state: must end with the last level's filter")
        return tuple(levels)


_LENGTH = struct.Struct("<I")


def level_context(context: Context, tree: Tree, level: int) -> Context:
    """Return the context of a level: its registry begins with words that are no valid zone id."""
    return replace(context, zones=(f"level {level} of {tree.height}", *tree.names[level]))


def noise_scales(mechanism: MeasuredTree) -> tuple[float, ...]:
    """Return the scale of each node's own noise, shape [nodes]."""
    laws = zip(mechanism.laws, mechanism.tree.names, strict=True)
    return tuple(law.scale for law, names in laws for _ in names)
