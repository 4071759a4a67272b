"""PeGaSus' deviation-based grouper and smoothers, in exact arithmetic.

The grouper, in integers (Chen, Machanavajjhala, Hay, Miklau, CCS 2017, Algorithm 2):

    symbol     here             meaning
    ε_p, ε_g   perturber_epsilon, grouper_epsilon    0.8 ε and 0.2 ε (their section 6.1)
    θ          theta            5 / ε_g
    G          a zone's open group: the ticks since the group opened
    dev(G)     Σ_{i in G} |c_i - mean(G)|
    D          deviation        ⌊1024 · dev⌋
    ρ          threshold_noise  DLap(2 · 2049 / ε_g), drawn when a group opens
    ν          test_noise       DLap(4 · 2049 / ε_g), drawn at each comparison

A count changes dev by less than 2 and so D by at most 2049. The comparison D + ν < 1024 θ + ρ, signed and
strict, is then one run of the sparse vector technique that ends at its first failure. A failed comparison
closes the old group *and* the tick that failed: no count is part of two runs, and a presence tuple costs ε_g
here and ε_p at the perturber, ε in total. Smoothing reads noisy values only.

The state contains true counts of open groups: it is as restricted as the input.

The smoothers compute one value for a tick from the noisy values of its group (post-processing, free):

    average       mean of the group
    median        median of the group, the mean of the middle two where their number is even
    james-stein   (c̃_t - mean) / |G| + mean

They read the perturber's values, never smoothed ones. Values stay exact fractions until :func:`publishable`
rounds them, so no tie is ever decided by a rounding error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.domains import Draw, Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.base import Groups, Ratio
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise import check_epsilon, discrete_laplace
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.policy.mechanisms import CHAIN_AND_GROUPER

GRID = 1024
"""Deviations are compared on a grid of 1/1024."""
SENSITIVITY = 2 * GRID + 1
"""The largest change of D by one count that changes by one."""


def perturber_epsilon(epsilon: Fraction) -> Fraction:
    """Return ε_p, the share of ``epsilon`` that the noise on the counts may spend."""
    return CHAIN_AND_GROUPER.shared * epsilon


def grouper_epsilon(epsilon: Fraction) -> Fraction:
    """Return ε_g, the share of ``epsilon`` that the grouper may spend."""
    return CHAIN_AND_GROUPER.own * epsilon


class GroupItem(NamedTuple):
    """The grouper's input for a tick, one entry per zone."""

    counts: Ints
    """True counts."""
    noisy: Ints
    """The perturber's values for the same counts."""
    threshold_noise: Ints
    """ρ; read where a group opens."""
    test_noise: Ints
    """ν; read where a group is open."""


@dataclass(frozen=True, slots=True)
class GrouperState:
    """The open groups; restricted. A zone without one has size 0."""

    size: Ints
    """Shape [zones]."""
    threshold: Ints
    """⌈1024 θ⌉ + ρ of the open group, else 0. Shape [zones]."""
    counts: Ints
    """True counts of the open group, padded with 0. Shape [zones, longest]."""
    noisy: Ints
    """Noisy values of the open group, likewise."""


@dataclass(frozen=True)
class Grouper:
    """The grouper of one epsilon over all zones of a site, an operator of the stream."""

    zones: int
    epsilon: Fraction
    """The whole ε of the release, of which the grouper spends a fifth."""

    def __post_init__(self) -> None:
        check_epsilon(grouper_epsilon(self.epsilon) / (4 * SENSITIVITY))
        if self.zones < 1:
            raise UsageError(f"zones must be at least 1, got {self.zones}")

    @cached_property
    def threshold(self) -> int:
        """⌈1024 θ⌉: an integer lies below 1024 θ + ρ iff it lies below this plus ρ."""
        return -int(-GRID * 5 / grouper_epsilon(self.epsilon) // 1)

    def initial(self) -> GrouperState:
        """Return the state in which no group is open."""
        none = np.zeros(self.zones, dtype=np.int64)
        return GrouperState(none, none, np.zeros((self.zones, 0), np.int64), np.zeros((self.zones, 0), np.int64))

    def draw(
        self, key: bytes, context: Context, state: GrouperState, counts: Ints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (ρ, ν) of one tick for all zones; the label contains a digest of counts and open groups."""
        digest = counts_digest(counts) + open_counts_digest(state)
        rho_label = context.label(Draw.GROUPER_THRESHOLD, self.epsilon, digest=digest)
        nu_label = context.label(Draw.GROUPER_TEST, self.epsilon, digest=digest)
        threshold, test = self._epsilons
        rho = discrete_laplace(key, rho_label, threshold, self.zones)
        return rho, discrete_laplace(key, nu_label, test, self.zones)

    @cached_property
    def _epsilons(self) -> tuple[Fraction, Fraction]:
        """The parameters of ρ and ν on the grid: ε_g / (2 · 2049) and ε_g / (4 · 2049)."""
        scale = grouper_epsilon(self.epsilon) / SENSITIVITY
        return scale / 2, scale / 4

    def step(self, state: GrouperState, item: GroupItem) -> tuple[GrouperState, list[Groups]]:
        """Extend, close or open each zone's group; return the group that now contains the tick."""
        opening = state.size == 0
        grown = _append(state, item)
        passed = deviation(grown.counts, grown.size) + item.test_noise < state.threshold
        failed = ~opening & ~passed
        threshold = np.where(opening, self.threshold + item.threshold_noise, state.threshold)
        after = _keep_open(replace(grown, threshold=threshold), ~failed)
        return after, [_last_groups(grown, failed, item.noisy)]

    def close_all(self, state: GrouperState) -> GrouperState:
        """Return the state in which no group is open: at the end of a key day, or where a window is denied.

        The counts so far took part in one run of the test, which just ends. A denied window's count
        never gets here, so it is part of no run.
        """
        return _keep_open(state, np.zeros(self.zones, dtype=np.bool_))

    def encode(self, state: GrouperState) -> bytes:
        """Return the stable byte form: sizes and thresholds, then the open groups zone by zone."""
        members = _members(state.size, state.counts.shape[1])
        parts = (state.size, state.threshold, state.counts[members], state.noisy[members])
        return _HEAD.pack(_MAGIC, self.zones) + b"".join(part.astype("<i8").tobytes() for part in parts)

    def decode(self, data: bytes) -> GrouperState:
        """Return the state of a byte form; DataError where it is not one of this grouper."""
        if len(data) < _HEAD.size + 16 * self.zones or _HEAD.unpack_from(data) != (_MAGIC, self.zones):
            raise DataError("grouper state: header does not fit the configuration")
        if (len(data) - _HEAD.size) % 8:
            raise DataError("grouper state: length must be whole numbers of eight bytes")
        values = np.frombuffer(data[_HEAD.size :], dtype="<i8").astype(np.int64)
        size, threshold, rest = np.split(values, [self.zones, 2 * self.zones])
        if (size < 0).any() or len(rest) != 2 * size.sum():
            raise DataError("grouper state: length does not fit the sizes of its groups")
        counts, noisy = np.split(rest, 2)
        return GrouperState(size, threshold, _padded(size, counts), _padded(size, noisy))


_HEAD = struct.Struct("<4sI")
_MAGIC = Magic.GROUPER


def open_counts_digest(state: GrouperState) -> bytes:
    """Return the digest of the true counts of all open groups, each with its size."""
    return counts_digest(state.size, state.counts[_members(state.size, state.counts.shape[1])])


def deviation(counts: Ints, size: Ints) -> Ints:
    """Return D = ⌊1024 · Σ|c_i - mean|⌋ of each row's first ``size`` counts, exactly (0 for size 0).

    Over integers the deviation is Σ|n c_i - Σc| / n, so no mean is ever rounded.
    """
    n = size[:, None]
    total = counts.sum(axis=1, keepdims=True)
    distance = np.abs(n * counts - total) * _members(size, counts.shape[1])
    return np.asarray(GRID * distance.sum(axis=1) // np.maximum(size, 1))


def _append(state: GrouperState, item: GroupItem) -> GrouperState:
    """Return the state with the tick added to every zone's group, open or new."""
    place = state.size[:, None]
    counts, noisy = _widened(state.counts), _widened(state.noisy)
    np.put_along_axis(counts, place, item.counts[:, None], axis=1)
    np.put_along_axis(noisy, place, item.noisy[:, None], axis=1)
    return GrouperState(state.size + 1, state.threshold, counts, noisy)


def _keep_open(state: GrouperState, is_kept: NDArray[np.bool_]) -> GrouperState:
    size = np.where(is_kept, state.size, 0)
    longest = int(size.max(initial=0))
    counts = state.counts[:, :longest] * is_kept[:, None]
    return GrouperState(size, state.threshold * is_kept, counts, state.noisy[:, :longest] * is_kept[:, None])


def _last_groups(grown: GrouperState, failed: NDArray[np.bool_], noisy: Ints) -> Groups:
    """Return each zone's group after the tick: the grown one, or where it failed the tick alone."""
    size = np.where(failed, 1, grown.size)
    values = grown.noisy * ~failed[:, None]
    values[failed, 0] = noisy[failed]
    return Groups(size, values[:, : int(size.max(initial=1))])


def _members(size: Ints, longest: int) -> NDArray[np.bool_]:
    return np.asarray(np.arange(longest) < size[:, None])


def _widened(rows: Ints) -> Ints:
    return np.concatenate([rows, np.zeros((len(rows), 1), np.int64)], axis=1)


def _padded(size: Ints, values: Ints) -> Ints:
    rows = np.zeros((len(size), int(size.max(initial=0))), dtype=np.int64)
    rows[_members(size, rows.shape[1])] = values
    return rows


# Smoothers.


Smoother = Callable[[Groups], Ratio]


def average(groups: Groups) -> Ratio:
    """Return the mean of each group."""
    return Ratio(groups.noisy.sum(axis=1), groups.size)


def median(groups: Groups) -> Ratio:
    """Return the median of each group."""
    padding = np.arange(groups.noisy.shape[1]) >= groups.size[:, None]
    ordered = np.sort(np.where(padding, np.iinfo(np.int64).max, groups.noisy), axis=1)
    low = np.take_along_axis(ordered, (groups.size[:, None] - 1) // 2, axis=1)
    high = np.take_along_axis(ordered, groups.size[:, None] // 2, axis=1)
    return Ratio((low + high)[:, 0], np.full_like(groups.size, 2))


def james_stein(groups: Groups) -> Ratio:
    """Return the last value of each group, shrunk towards the group's mean."""
    n, total = groups.size, groups.noisy.sum(axis=1)
    last = np.take_along_axis(groups.noisy, n[:, None] - 1, axis=1)[:, 0]
    return Ratio(n * last - total + n * total, n * n)


SMOOTHERS: dict[str, Smoother] = {"average": average, "median": median, "james-stein": james_stein}


def publishable(value: Ratio) -> Ints:
    """Return the integers to publish: rounded, half to even, and only then clamped at 0."""
    quotient, rest = np.divmod(value.numerator, value.denominator)
    up = (2 * rest > value.denominator) | ((2 * rest == value.denominator) & (quotient % 2 == 1))
    return np.asarray(np.maximum(quotient + up, 0))
