"""Noise on changes at several levels, each with noise of its own.

The counts of a level are no sums of those below it, because a device's visits are counted for each level; so levels are
not made consistent with each other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stream.errors import DataError, UsageError
from stream.mechanisms.base import Ratio, RevisedDay, TickInput, Values, whole
from stream.mechanisms.changes.mechanism import Changes
from stream.mechanisms.consistency import Tree
from stream.mechanisms.exact import Ints
from stream.mechanisms.measured_tree import level_context
from stream.mechanisms.noise_parameters import NoiseParameter
from stream.schemas import HalfWidthKind

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class LevelChanges:
    """The mechanisms of all levels, as one count mechanism over all nodes, leaves first.

    ``TickInput.counts`` are the sums of changes of all nodes (``ChangeSums``); values have the same shape.
    """

    tree: Tree
    """Names of the nodes of each level; which node is part of which is not used."""
    levels: tuple[Changes, ...]

    def __post_init__(self) -> None:
        if len(self.levels) != self.tree.height:
            raise UsageError(f"levels must be {self.tree.height}, one a level of the tree, got {len(self.levels)}")

    @property
    def noise(self) -> NoiseParameter:
        """The noise of the leaves."""
        return self.levels[0].noise

    @property
    def half_width_kind(self) -> HalfWidthKind:
        """That of all levels."""
        return self.levels[0].half_width_kind

    @property
    def nodes(self) -> int:
        """Number of nodes of all levels."""
        return self.tree.nodes

    def noise_scales(self) -> tuple[float, ...]:
        """Return the scale of each node's noise, shape [nodes]."""
        levels = zip(self.levels, self.tree.names, strict=True)
        return tuple(scale for each, names in levels for scale in [each.noise.scale] * len(names))

    def initial(self) -> tuple[Any, ...]:
        """Return the state of each level."""
        return tuple(each.initial() for each in self.levels)

    def step(self, state: tuple[Any, ...], item: TickInput) -> tuple[tuple[Any, ...], list[Values]]:
        """Perturb and filter each level by itself."""
        after, made = list[Any](), list[Values]()
        for level, (each, before, here) in enumerate(zip(self.levels, state, self.tree.levels, strict=True)):
            context = level_context(item.context, self.tree, level)
            own, [values] = each.step(
                before, item._replace(counts=item.counts[here], noise=item.noise[here], context=context)
            )
            after.append(own)
            made.append(values)
        return tuple(after), [self._joined(made)]

    def rest(self, state: tuple[Any, ...]) -> list[RevisedDay]:
        """Return the revised values of the current day, of its released windows so far; nothing before any."""
        return self._of_nodes([each.rest(own) for each, own in zip(self.levels, state, strict=True)])

    def values_of(self, median: Ints, half_width: Ints) -> Values:
        """Return counts of all nodes and their half-widths as values."""
        return Values(median, half_width, whole(median))

    def _of_nodes(self, histories: Sequence[Sequence[RevisedDay]]) -> list[RevisedDay]:
        """Return the levels' revised days, each as one of all nodes."""
        return [
            RevisedDay(
                parts[0].day,
                np.arange(self.nodes),
                np.concatenate([part.median for part in parts], axis=1),
                np.concatenate([part.half_width for part in parts], axis=1),
                parts[0].is_last,
            )
            for parts in zip(*histories, strict=True)
        ]

    def _joined(self, made: Sequence[Values]) -> Values:
        """Return the values of all levels, one after another."""
        exact = Ratio(*(np.concatenate(parts) for parts in zip(*(each.exact for each in made), strict=True)))
        noisy = [each.noisy for each in made if each.noisy is not None]
        return Values(
            np.concatenate([each.values for each in made]),
            np.concatenate([each.half_width for each in made]),
            exact,
            noisy=np.concatenate(noisy) if len(noisy) == len(made) else None,
            histories=self._of_nodes([each.histories for each in made]),
        )

    def pause(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the states after a window that is not released."""
        return tuple(each.pause(own) for each, own in zip(self.levels, state, strict=True))

    def encode(self, state: tuple[Any, ...]) -> bytes:
        """Return the stable byte form: each level's, with its length."""
        parts = [each.encode(own) for each, own in zip(self.levels, state, strict=True)]
        return b"".join(_LENGTH.pack(len(part)) + part for part in parts)

    def decode(self, data: bytes) -> tuple[Any, ...]:
        """Return the state of a byte form; DataError where it is not one of this mechanism."""
        place, states = 0, list[Any]()
        for each in self.levels:
            start = place + _LENGTH.size
            place = start + int.from_bytes(data[place:start], "little")
            states.append(each.decode(data[start:place]))
        if place != len(data):
            raise DataError("state of changes: must end with the last level")
        return tuple(states)
