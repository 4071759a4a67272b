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

The state contains published values and counters, so it is as public as the release. There may be one audience only: two
would publish at different windows, and would not be nested. The mechanism draws its noise; it does not read
``TickInput.noise``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from stream.domains import Draw, Magic
from stream.errors import DataError, UsageError
from stream.mechanisms.base import Parameters, TickInput, Values, whole
from stream.mechanisms.noise import Ints, check_epsilon, discrete_laplace
from stream.mechanisms.noise_labels import counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.schemas import HalfWidthKind

UNITS = 2
"""Units of u per window: one for the test, one for publishing."""


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
        """Return the published values; the half-width is that of the noise at the window that drew it."""
        noise = laplace_noise(state.units * self.unit)
        width = np.full(self.zones, noise.half_width_95)
        return Values(np.maximum(state.values, 0), width, whole(state.values), noise=noise)

    def encode(self, state: Publication) -> bytes:
        """Return the stable byte form."""
        counters = (state.units, state.waiting, state.unused, state.cost)
        return _HEAD.pack(_MAGIC, self.zones, *counters) + state.values.astype("<i8").tobytes()

    def decode(self, data: bytes) -> Publication:
        """Return the state of a byte form; DataError where it is not one of this mechanism."""
        fits = len(data) == _HEAD.size + 8 * self.zones and _HEAD.unpack_from(data)[:2] == (_MAGIC, self.zones)
        if not fits:
            raise DataError("w-event state: header does not fit the configuration")
        counters = _HEAD.unpack_from(data)[2:]
        if max(counters) > (UNITS + 1) * self.windows:
            raise DataError("w-event state: counters must be within w")
        return Publication(np.frombuffer(data[_HEAD.size :], dtype="<i8").astype(np.int64), *counters)


_HEAD = struct.Struct("<4sIIIII")
_MAGIC = Magic.W_EVENT


@dataclass(frozen=True)
class Uniform(_WEvent):
    """The w-th part of ε in every window."""

    @property
    def noise(self) -> NoiseParameter:
        """At ε/w."""
        return laplace_noise(self.epsilon / self.windows)

    def step(self, state: Publication, item: TickInput) -> tuple[Publication, list[Values]]:
        """Publish."""
        after = Publication(self._noisy(item, UNITS), UNITS, 0, 0, UNITS)
        return after, [self._values(after)]


@dataclass(frozen=True)
class Sample(_WEvent):
    """All of ε in every w-th window."""

    @property
    def noise(self) -> NoiseParameter:
        """At all of ε."""
        return laplace_noise(self.epsilon)

    def step(self, state: Publication, item: TickInput) -> tuple[Publication, list[Values]]:
        """Publish in every w-th window, else repeat."""
        if state.waiting:
            after = Publication(state.values, state.units, state.waiting - 1, 0, 0)
        else:
            units = UNITS * self.windows
            after = Publication(self._noisy(item, units), units, self.windows - 1, 0, units)
        return after, [self._values(after)]


@dataclass(frozen=True)
class BudgetAbsorption(_WEvent):
    """Publishes where the counts have changed enough, with the budget that earlier windows left."""

    @property
    def noise(self) -> NoiseParameter:
        """At u: the smallest budget of a publication."""
        return laplace_noise(self.unit)

    def step(self, state: Publication, item: TickInput) -> tuple[Publication, list[Values]]:
        """Skip, or test and repeat, or test and publish."""
        after = self._passed(state) if state.waiting else self._tested(state, item)
        return after, [self._values(after)]

    def _passed(self, state: Publication) -> Publication:
        return Publication(state.values, state.units, state.waiting - 1, 0, 0)

    def _tested(self, state: Publication, item: TickInput) -> Publication:
        unused = min(state.unused + 1, self.windows)
        if state.units and not self._moved(state, item, unused):
            return Publication(state.values, state.units, 0, unused, 1)
        tested = 1 if state.units else 0
        return Publication(self._noisy(item, unused), unused, unused - 1, 0, tested + unused)

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
