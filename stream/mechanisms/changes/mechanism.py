"""Counts with noise on changes: measured sums, and the mechanism.

Steps of a window that belongs to a privacy day, at one position of it:

1. ``ChangeSums`` gets the exact, bounded counts of all nodes and returns C'd at the position. One state serves all
   audiences, whose noise is one chain over the same sums. It is called for windows that are released, and no others.
2. ``Changes``, one for each audience and level, adds noise (``noise``), which gives u'. From here on nothing is secret.
3. The noisy count y follows from the day's u' (``factor``), and the filter estimates the count (``filter``).
4. With the first window of another day the filter learns from the day before, and its revised counts are returned.

A window that is not released, or never came, has no u'; the change up to the next one is part of that one's difference
(``calibration`` says why this costs nothing), and meanwhile the noisy count stays what it was.

**State.** ``ChangeSums`` holds the day's exact differences: as confidential as the counts, for a whole day. ``Changes``
holds only what its readers know.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stream.domains import Magic
from stream.encryption import join_parts, split_parts
from stream.errors import DataError, UsageError
from stream.mechanisms.base import RevisedDay, TickInput, Values, whole
from stream.mechanisms.changes import filter as noise_filter
from stream.mechanisms.changes.factor import MatrixFactor, imputed_measurement, reconstructed, weighted_sum
from stream.mechanisms.changes.filter import NoiseLaw, Smoothed, Track, Usual
from stream.mechanisms.changes.noise import change_noise, check_chain
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.noise_labels import counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise
from stream.schemas import HalfWidthKind

# The sums of a day's changes.


class DayTick(NamedTuple):
    """The bounded counts of some nodes at one tick of a privacy day."""

    day: int
    """Number of the privacy day (``WeekSlot.day``)."""
    position: int
    """Ticks of the day before this one, by the clock: 0 for the first, also where earlier windows are missing."""
    counts: Ints
    """Shape [nodes]; restricted."""


@dataclass(frozen=True)
class DayChanges:
    """A day's differences so far; restricted."""

    day: int | None
    """None before the first tick."""
    positions: tuple[int, ...]
    changes: Ints
    """Shape [positions, nodes]."""


@dataclass(frozen=True)
class ChangeSums:
    """An operator: the bounded counts of a tick -> C'd at this tick, shape [nodes]; both restricted."""

    factor: MatrixFactor
    nodes: int

    def initial(self) -> DayChanges:
        """Return the state before the first tick."""
        return DayChanges(None, (), np.zeros((0, self.nodes), np.int64))

    def step(self, state: DayChanges, item: DayTick) -> tuple[DayChanges, list[Ints]]:
        """Return the sums of this tick.

        Raises:
            UsageError: a position beyond the factor's ticks, or not after the last one of its day.
        """
        before = state if state.day == item.day else self.initial()
        _check_position(self.factor, item.position, before.positions[-1] if before.positions else -1)
        # the differences add up to the last counts
        change = item.counts - before.changes.sum(axis=0, dtype=np.int64)
        after = DayChanges(item.day, (*before.positions, item.position), np.vstack([before.changes, change]))
        return after, [weighted_sum(self.factor, item.position, np.array(after.positions), after.changes)]

    def encode(self, state: DayChanges) -> bytes:
        """Return the stable byte form; restricted."""
        head = {"day": state.day, "positions": list(state.positions)}
        return Magic.CHANGE_SUMS + join_parts(head, {"changes": state.changes.astype("<i8").tobytes()})

    def decode(self, data: bytes) -> DayChanges:
        """Return the state of a byte form; DataError where it is not one of this operator."""
        wrong = DataError("sums of changes: must list the day's positions and the changes of every node")
        if not data.startswith(Magic.CHANGE_SUMS):
            raise wrong
        try:
            head, parts = split_parts(data[len(Magic.CHANGE_SUMS) :])
            positions = tuple(int(each) for each in head["positions"])
            changes = np.frombuffer(parts["changes"], "<i8").astype(np.int64).reshape(len(positions), self.nodes)
            return DayChanges(None if head["day"] is None else int(head["day"]), positions, changes)
        except (KeyError, TypeError, ValueError):
            raise wrong from None


def _check_position(factor: MatrixFactor, position: int, last: int) -> None:
    if not 0 <= position < factor.ticks:
        raise UsageError(f"position must be 0 to {factor.ticks - 1}, within a day of 25 hours, got {position}")
    if position <= last:
        raise UsageError(f"position must be after that of the day's last tick, {last}, got {position}")


# The mechanism.

WEEKDAY, WEEKEND = 0, 1


@dataclass(frozen=True)
class ChangeState:
    """The state of the mechanism of changes; nothing in it is secret."""

    day: int | None
    """Number of the current privacy day; None before the first tick."""
    kind: int
    """``WEEKDAY`` or ``WEEKEND``: that of the day's first released window."""
    measured: Floats
    """u' at the positions so far, shape [positions, nodes]; at those without a window what stands for it."""
    released: tuple[bool, ...]
    """Whether each position was released."""
    track: Track
    """The filter before the next position."""
    usual: tuple[Usual, Usual]
    """What is known of weekdays, and of weekends."""


class _DayEvidence(NamedTuple):
    """The released values of a day, and what they say of its counts."""

    noisy: list[Floats | None]
    """y at each position; None where it was not released."""
    smoothed: Smoothed


@dataclass(frozen=True)
class Changes:
    """The mechanism of one level for one audience.

    ``TickInput.counts`` are the sums of ``ChangeSums``; ``TickInput.noise`` is not read. Positions of a day ascend, and
    a day begins where ``slot.day`` changes.
    """

    factor: MatrixFactor
    variance: Fraction
    """σ'² of this audience, in units of u'."""
    variances: tuple[Fraction, ...]
    """Of all audiences of the release, at this level."""
    max_counts: tuple[int, ...]
    """Largest count of each node, in order: an estimate is never above it."""
    calendar: bool = True
    """Whether the filter learns from earlier days."""
    half_width_kind: HalfWidthKind = "posterior"

    def __post_init__(self) -> None:
        if self.variance not in self.variances:
            raise UsageError("variances must contain the audience's own variance")
        check_chain(self.variances)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.max_counts)

    @cached_property
    def noise(self) -> NoiseParameter:
        """Gaussian noise of the largest variance that a noisy count has within a day: that of its last tick."""
        return gaussian_noise(self.variance * Fraction(float(self.factor.gains[-1])))

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise, as the filter knows it."""
        first = float(self.factor.inverse[0])
        return NoiseLaw(self.factor.order, float(self.variance) * first * first)

    def initial(self) -> ChangeState:
        """Return the state before the first tick."""
        unknown = noise_filter.no_days(self.factor.ticks, self.nodes)
        prior = noise_filter.prior_of(self.law, unknown, unknown)
        return ChangeState(None, WEEKDAY, self._nothing, (), noise_filter.begin(prior), (unknown, unknown))

    @property
    def _nothing(self) -> Floats:
        return np.zeros((0, self.nodes))

    def step(self, state: ChangeState, item: TickInput) -> tuple[ChangeState, list[Values]]:
        """Add noise to the sums, reconstruct the counts, and filter them.

        Raises:
            UsageError: a position beyond the factor's ticks, or not after the last one of its day.
        """
        histories: list[RevisedDay] = []
        if state.day != item.slot.day:
            evidence = self._evidence(state)
            histories = self._history(state, evidence)
            state = self._next_day(state, evidence, item.slot.day, WEEKEND if item.slot.weekend else WEEKDAY)
        _check_position(self.factor, item.position, len(state.released) - 1)
        prior, track, measured = self._prior(state), state.track, state.measured
        for position in range(len(measured), item.position):
            measured = np.vstack([measured, imputed_measurement(self.factor, measured)])
            track, _ = noise_filter.advance(self.law, prior, track, position, None)
        drawn = change_noise(item.key, item.context, counts_digest(item.counts), self.variances, self.nodes)
        measured = np.vstack([measured, (item.counts + drawn[self.variance]).astype(np.float64)])
        noisy = reconstructed(self.factor, measured)
        track, (count, variance) = noise_filter.advance(self.law, prior, track, item.position, noisy)
        skipped = (False,) * (item.position - len(state.released))
        after = ChangeState(state.day, state.kind, measured, (*state.released, *skipped, True), track, state.usual)
        values = self.values_of(*self._published(count, variance))
        return after, [values._replace(noisy=np.rint(noisy).astype(np.int64), histories=histories)]

    def _published(self, count: Floats, variance: Floats) -> tuple[Ints, Ints]:
        """Return whole counts and their half-widths; the half-width covers rounding."""
        median = np.clip(np.rint(count), 0, np.array(self.max_counts)).astype(np.int64)
        return median, np.ceil(noise_filter.BAND * np.sqrt(variance + 0.25)).astype(np.int64)

    def values_of(self, median: Ints, half_width: Ints) -> Values:
        """Return counts and their half-widths as values."""
        return Values(median, half_width, whole(median))

    def _prior(self, state: ChangeState) -> noise_filter.Prior:
        return noise_filter.prior_of(self.law, state.usual[state.kind], state.usual[1 - state.kind])

    def _next_day(self, state: ChangeState, evidence: _DayEvidence | None, day: int, kind: int) -> ChangeState:
        """Return the state at a day's start, having learnt from the day before."""
        usual = state.usual
        if self.calendar and evidence:
            learnt, _ = noise_filter.learn(self.law, usual[state.kind], self._prior(state), *evidence)
            usual = (learnt, usual[WEEKEND]) if state.kind == WEEKDAY else (usual[WEEKDAY], learnt)
        fresh = ChangeState(day, kind, self._nothing, (), state.track, usual)
        begun = noise_filter.begin(self._prior(fresh))
        return ChangeState(day, kind, self._nothing, (), begun, usual)

    def _evidence(self, state: ChangeState) -> _DayEvidence | None:
        """Return the evidence of the day so far; None where nothing of it was released."""
        if not any(state.released):
            return None
        noisy = [
            reconstructed(self.factor, state.measured[: position + 1]) if was_released else None
            for position, was_released in enumerate(state.released)
        ]
        return _DayEvidence(noisy, noise_filter.smooth(self.law, self._prior(state), noisy))

    def rest(self, state: ChangeState) -> list[RevisedDay]:
        """Return the revised values of the current day, of its released windows so far; nothing before any."""
        return self._history(state, self._evidence(state))

    def _history(self, state: ChangeState, evidence: _DayEvidence | None) -> list[RevisedDay]:
        if state.day is None or not evidence:
            return []
        median, half_width = self._published(*(each[list(state.released)] for each in evidence.smoothed.counts))
        return [RevisedDay(state.day, np.arange(self.nodes), median, half_width, True)]

    def pause(self, state: ChangeState) -> ChangeState:
        """Return the state unchanged: it contains no true count."""
        return state

    def encode(self, state: ChangeState) -> bytes:
        """Return the stable byte form."""
        head = {
            "day": state.day,
            "kind": state.kind,
            "released": [int(each) for each in state.released],
            "days": [usual.days for usual in state.usual],
        }
        arrays = {"measured": state.measured} | dict(zip(("x", "p", "surprise"), state.track, strict=True))
        for kind, usual in enumerate(state.usual):
            if usual.days:
                arrays |= {f"mean{kind}": usual.mean, f"steps{kind}": usual.steps, f"first{kind}": usual.first}
        return Magic.CHANGES + join_parts(head, {name: each.astype("<f8").tobytes() for name, each in arrays.items()})

    def decode(self, data: bytes) -> ChangeState:
        """Return the state of a byte form; DataError where it is not one of this mechanism."""
        wrong = DataError("state of changes: must hold a day's released values and the filter of every node")
        if not data.startswith(Magic.CHANGES):
            raise wrong
        head, parts = split_parts(data[len(Magic.CHANGES) :])

        def array(name: str, *shape: int) -> Floats:
            return np.frombuffer(parts[name], "<f8").astype(np.float64).reshape(*shape, self.nodes)

        try:
            released = tuple(bool(each) for each in head["released"])
            size, ticks = noise_filter.SIZE, self.factor.ticks
            track = Track(array("x", size), array("p", size, size), array("surprise"))
            weekdays, weekends = (
                Usual(
                    days, array(f"mean{kind}", ticks), array(f"steps{kind}", noise_filter.BINS), array(f"first{kind}")
                )
                if days
                else noise_filter.no_days(ticks, self.nodes)
                for kind, days in enumerate(head["days"])
            )
            day = None if head["day"] is None else int(head["day"])
            return ChangeState(
                day, int(head["kind"]), array("measured", len(released)), released, track, (weekdays, weekends)
            )
        except (KeyError, TypeError, ValueError):
            raise wrong from None
