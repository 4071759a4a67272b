"""w-event mechanisms: ε is the price of *any* w consecutive windows, not of one.

    symbol   here        meaning
    ε        epsilon     the guarantee for any w consecutive windows: streams that differ in one presence
                         tuple in each of them
    w        windows
    u        unit        ε/(2w), the smallest piece of budget in BA
    o_l      published   the latest publication, repeated until the next
    ε_{i,1}              cost of the dissimilarity test of window i: u where there is a test
    ε_{i,2}              cost of the publication of window i: k_i u

(Kellaris, Papadopoulos, Xiao, Papadias, VLDB 2014.)

    uniform   DLap(w/ε) in every window
    sample    DLap(1/ε) in every w-th window, repeated in between
    ba        budget absorption: publish with the budget that earlier windows did not use, if the counts
              differ from o_l by more than the noise would; then skip as many windows

Why any w windows of BA cost at most ε. The output of window i depends on its counts and on earlier outputs only.
(1) The test reads Σ_j |c_i[j] - o_l[j]| + DLap(1/u); a tuple changes the sum by at most 1, so it costs u, and
w tests cost ε/2. (2) A publication costs ε_{i,2} = k_i u, since a tuple changes the counts by 1 in L1. Let
p_1 < … < p_n publish within w windows. After p_i the next k_i - 1 windows neither test nor publish, and p_{i+1}
absorbs only windows after those: p_{i+1} - k_{i+1} + 1 >= p_i + k_i. Hence the windows [p_1, p_1 + k_1 - 1] and
[p_i - k_i + 1, p_i] for i > 1 are disjoint; for n > 1 all lie within [p_1, p_n]; for n = 1, k_1 <= w. So Σ k_i <= w,
and publications cost at most w u = ε/2. (3) A window that is denied or never comes spends nothing and changes
no counter: w windows contain at most w that count, and these are consecutive in (1) and (2).

Bands of ``sample`` and ``ba``. A repeated value does not follow the count, so its band gets wider with each window. How
fast counts change is estimated from published values. With

    symbol   here             meaning
    d_i      Move.change      published value minus the one before, the latest first, i = 0 … 11; of a zone, or the sum
                              over some zones
    g_i      Move.windows     windows from one to the other
    v_i      Move.units       variance of the noise in d_i
    r        age              windows since the value was published
    h_0                       95 % half-width of the noise in the published value

    q = max(0, Σ .8**i (d_i² - v_i) + .3 √(2 Σ .64**i v_i²)) / Σ .8**i g_i,   h_r = √(h_0² + 2.7² q r), rounded

d_i² - v_i estimates the square of the count's change without bias, so q r is the variance of the change after r
windows, if changes are independent. The second term is .3 standard deviations of the first one where counts do not
change. This is post-processing. Nothing proves how counts change, so the coverage is measured (``docs/bands.md``).
With the first value of a stream, or until it is repeated, the band is that of its noise.

The state contains published values and counters, so it is as public as the release. There may be one audience only: two
would publish at different windows, and would not be nested. The mechanism draws its noise; it does not read
``TickInput.noise``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from stream.domains import Draw, Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.base import Parameters, TickInput, Values, whole
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.noise import check_epsilon, discrete_laplace
from stream.mechanisms.noise_labels import counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.schemas import HalfWidthKind

UNITS = 2
"""Units of u per window: one for the test, one for publishing."""


class Move(NamedTuple):
    """A publication compared with the one before; public."""

    change: Ints
    """Its values minus those of the one before, shape [zones]."""
    windows: int
    """Windows from one to the other, at most ``LONGEST``."""
    units: tuple[int, int]
    """Their ε in units of u: its own, and that of the one before."""


MOST_MOVES = 12
"""Number of moves that a state contains."""
LONGEST = 1 << 20
"""Largest number of windows that is counted since a publication."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The latest publication, repeated until the next; public."""

    values: Ints
    """Shape [zones]; zeros before the first."""
    units: int
    """k: its ε in units of u; 0 before the first."""
    waiting: int
    """sample: windows until the next publication. ba: windows that are still to be skipped."""
    unused: int
    """ba: windows whose unit is not spent yet."""
    cost: int
    """Cost of the latest window, in units of u."""
    age: int = 0
    """Windows since it was published, at most ``LONGEST``."""
    moves: tuple[Move, ...] = ()
    """The latest moves, the newest first; empty for ``uniform``, which repeats nothing."""

    def repeated(self, *, waiting: int, unused: int, cost: int) -> Publication:
        """Return the state after a window that repeats the publication."""
        age = min(self.age + 1, LONGEST)
        return Publication(self.values, self.units, waiting, unused, cost, age, self.moves)

    def replaced(self, values: Ints, units: int, *, waiting: int, cost: int) -> Publication:
        """Return the state after a window that publishes values."""
        moves = self.moves
        if self.units:
            move = Move(values - self.values, min(self.age + 1, LONGEST), (units, self.units))
            moves = (move, *moves)[:MOST_MOVES]
        return Publication(values, units, waiting, 0, cost, 0, moves)


_FADING, _UNSEEN, _WIDER = 0.8, 0.3, 2.7


@dataclass(frozen=True)
class Repeated:
    """The bands of a publication that is repeated (module docstring)."""

    state: Publication
    unit: Fraction
    """u."""

    @property
    def noise(self) -> NoiseParameter:
        """The noise in each published value."""
        return laplace_noise(self.state.units * self.unit)

    def half_widths(self) -> Ints:
        """Return the half-width of each zone."""
        own = self.noise.half_width_95
        return self._wider(own, self._changes, 1)

    def half_width(self, members: Sequence[int]) -> int:
        """Return the half-width of the sum over some zones, given by their positions."""
        own, zones = self.noise.sum_half_width_95(len(members)), list(members)
        return int(self._wider(own, self._changes[:, zones].sum(axis=1, keepdims=True), len(zones))[0])

    @cached_property
    def _changes(self) -> Ints:
        """The moves' changes, shape [moves, zones]."""
        return np.array([move.change for move in self.state.moves]).reshape(-1, len(self.state.values))

    def _wider(self, own: int, changes: Ints, zones: int) -> Ints:
        """Return h_r, the half-width r windows after the publication.

        Args:
            own: h_0.
            changes: d_i, shape [moves, sums].
            zones: number of zones in a sum.
        """
        squares, doubt, windows, weight = np.zeros(changes.shape[1]), 0.0, 0.0, 1.0
        for change, move in zip(changes.astype(np.float64), self.state.moves, strict=True):
            variance = zones * sum(_variance(units * self.unit) for units in move.units)
            squares += weight * (change * change - variance)
            doubt += weight * weight * variance * variance
            windows += weight * move.windows
            weight *= _FADING
        rate: Floats = np.maximum(squares + _UNSEEN * math.sqrt(2 * doubt), 0) / max(windows, 1)
        return np.asarray(np.rint(np.sqrt(own * own + _WIDER * _WIDER * rate * self.state.age)), np.int64)


@lru_cache(maxsize=4096)
def _variance(epsilon: Fraction) -> float:
    """Return the variance of Laplace noise."""
    deviation = laplace_noise(epsilon).deviation
    return deviation * deviation


@dataclass(frozen=True)
class _WEvent:
    """Common part of the three mechanisms: parameters, noise, bytes."""

    zones: int
    epsilon: Fraction
    windows: int
    half_width_kind: HalfWidthKind = "noise"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.zones < 1:
            raise UsageError(f"zones must be at least 1, got {self.zones}")
        if not 1 <= self.windows <= 1 << 20:
            raise UsageError(f"windows must be in 1 … {1 << 20}, got {self.windows}")
        check_epsilon(self.unit)

    @property
    def unit(self) -> Fraction:
        """u = ε/(2w)."""
        return self.epsilon / (UNITS * self.windows)

    def initial(self) -> Publication:
        """Return the state before the first window, which always publishes."""
        return Publication(np.zeros(self.zones, np.int64), 0, 0, 0, 0)

    def pause(self, state: Publication) -> Publication:
        """Return the state unchanged: a window that is not released changes no counter."""
        return state

    def spent(self, state: Publication) -> Fraction:
        """Return the exact cost of the latest window."""
        return state.cost * self.unit

    def _noisy(self, item: TickInput, units: int) -> Ints:
        """Return counts with noise of ``units`` times u."""
        epsilon = units * self.unit
        label = item.context.label(Draw.W_EVENT_PUBLISH, epsilon, digest=counts_digest(item.counts))
        return item.counts + discrete_laplace(item.key, label, epsilon, self.zones)

    def _values(self, state: Publication) -> Values:
        """Return the published values with their bands."""
        band = Repeated(state, self.unit)
        sums = band if self.half_width_kind == "posterior" else None
        return Values(
            np.maximum(state.values, 0), band.half_widths(), whole(state.values), noise=band.noise, sums=sums
        )  # fmt: skip

    def encode(self, state: Publication) -> bytes:
        """Return the stable byte form: counters, the values, and the moves."""
        counters = (state.units, state.waiting, state.unused, state.cost)
        head = _HEAD.pack(_MAGIC, self.zones, *counters, state.age, len(state.moves))
        moves = [_MOVE.pack(move.windows, *move.units) + move.change.astype("<i8").tobytes() for move in state.moves]
        return b"".join((head, state.values.astype("<i8").tobytes(), *moves))

    def decode(self, data: bytes) -> Publication:
        """Return the state of a byte form; DataError where it is not one of this mechanism."""
        if len(data) < _HEAD.size or _HEAD.unpack_from(data)[:2] != (_MAGIC, self.zones):
            raise DataError("w-event state: header does not fit the configuration")
        *counters, age, moves = _HEAD.unpack_from(data)[2:]
        each = _MOVE.size + 8 * self.zones
        begin = _HEAD.size + 8 * self.zones
        if moves > MOST_MOVES or len(data) != begin + moves * each:
            raise DataError("w-event state: header does not fit the configuration")
        read = [self._move(data[place : place + each]) for place in range(begin, len(data), each)]
        most = (UNITS + 1) * self.windows
        if max(*counters, *(max(move.units) for move in read)) > most:
            raise DataError("w-event state: counters must be within w")
        if max(age, *(move.windows for move in read), 0) > LONGEST:
            raise DataError(f"w-event state: windows since a publication must be at most {LONGEST}")
        values = np.frombuffer(data[_HEAD.size : begin], dtype="<i8").astype(np.int64)
        units, waiting, unused, cost = counters
        return Publication(values, units, waiting, unused, cost, age, tuple(read))

    def _move(self, data: bytes) -> Move:
        windows, *units = _MOVE.unpack_from(data)
        change = np.frombuffer(data[_MOVE.size :], dtype="<i8").astype(np.int64)
        return Move(change, windows, (units[0], units[1]))


_HEAD = struct.Struct("<4sIIIIIII")
_MOVE = struct.Struct("<III")
_MAGIC = Magic.W_EVENT


@dataclass(frozen=True)
class Uniform(_WEvent):
    """The w-th part of ε in every window."""

    @property
    def noise(self) -> NoiseParameter:
        """The noise of each window, of scale w/ε."""
        return laplace_noise(self.epsilon / self.windows)

    def step(self, state: Publication, item: TickInput) -> tuple[Publication, list[Values]]:
        """Publish the counts with the noise of a window."""
        after = Publication(self._noisy(item, UNITS), UNITS, 0, 0, UNITS)
        return after, [self._values(after)]


@dataclass(frozen=True)
class Sample(_WEvent):
    """All of ε in every w-th window."""

    half_width_kind: HalfWidthKind = "posterior"

    @property
    def noise(self) -> NoiseParameter:
        """The noise of one publication, of scale 1/ε."""
        return laplace_noise(self.epsilon)

    def step(self, state: Publication, item: TickInput) -> tuple[Publication, list[Values]]:
        """Publish in every w-th window, else repeat."""
        if state.waiting:
            after = state.repeated(waiting=state.waiting - 1, unused=0, cost=0)
        else:
            units = UNITS * self.windows
            after = state.replaced(self._noisy(item, units), units, waiting=self.windows - 1, cost=units)
        return after, [self._values(after)]


@dataclass(frozen=True)
class BudgetAbsorption(_WEvent):
    """Publishes where the counts have changed enough, with the budget that earlier windows left."""

    half_width_kind: HalfWidthKind = "posterior"

    @property
    def noise(self) -> NoiseParameter:
        """At u: the smallest budget of a publication."""
        return laplace_noise(self.unit)

    def step(self, state: Publication, item: TickInput) -> tuple[Publication, list[Values]]:
        """Skip, or test and repeat, or test and publish."""
        after = self._passed(state) if state.waiting else self._tested(state, item)
        return after, [self._values(after)]

    def _passed(self, state: Publication) -> Publication:
        return state.repeated(waiting=state.waiting - 1, unused=0, cost=0)

    def _tested(self, state: Publication, item: TickInput) -> Publication:
        unused = min(state.unused + 1, self.windows)
        if state.units and not self._moved(state, item, unused):
            return state.repeated(waiting=0, unused=unused, cost=1)
        tested = 1 if state.units else 0
        return state.replaced(self._noisy(item, unused), unused, waiting=unused - 1, cost=tested + unused)

    def _moved(self, state: Publication, item: TickInput, units: int) -> bool:
        """Whether the mean distance from o_l, with noise, exceeds 1/ε_{i,2}; computed on integer sums."""
        digest = counts_digest(item.counts, state.values)
        label = item.context.label(Draw.W_EVENT_TEST, self.unit, digest=digest)
        noise = int(discrete_laplace(item.key, label, self.unit, 1)[0])
        distance = int(np.abs(item.counts - state.values).sum())
        return distance + noise > self.zones / (units * self.unit)


def uniform(parameters: Parameters) -> Uniform:
    """Return the mechanism for these parameters; UsageError where one is out of range."""
    return Uniform(parameters.zones, parameters.epsilon, parameters.windows)


def sample(parameters: Parameters) -> Sample:
    """Return the mechanism for these parameters; UsageError where one is out of range."""
    return Sample(parameters.zones, parameters.epsilon, parameters.windows)


def ba(parameters: Parameters) -> BudgetAbsorption:
    """Return the mechanism for these parameters; UsageError where one is out of range."""
    return BudgetAbsorption(parameters.zones, parameters.epsilon, parameters.windows)
