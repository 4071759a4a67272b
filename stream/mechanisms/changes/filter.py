"""The filter of noise on changes: counts and their uncertainty.

Everything here is post-processing of released values. Of each node, at tick t of a day,

    symbol     here         meaning
    y(t)       noisy        the noisy count: c(t) + n(t), n(t) = Σ_s b(t - s) z(s)  (``factor``)
    c(t)                    the count: (1 + g(t)) m(t) + r(t)
    m(t)       mean         what earlier days of the same kind (weekday or weekend) predict for this tick of the day
    g(t)                    how much fuller this day is; starts with deviation 0.2, hardly moves
    r(t)                    the rest: r(t+1) = (1 - 3/T) r(t) + a step of variance q(t)
    q(t)       steps        what earlier days tell about steps at this time of day
    s_i(t)                  memory of the noise, i = 1 … 5: s_i(t+1) = λ_i s_i(t) + z(t)
    λ_i, w_i   POLES        n(t) = b(0) (z(t) + Σ_i w_i s_i(t)), nearly: b(j)/b(0) is Σ_i w_i λ_i**(j-1) to 8 %

So (r, g, s_1 … s_5) is a linear state with Gaussian noise, z(t) is both a step of s and the noise of the observation,
and the Kalman filter with correlated noises gives the estimate of c(t) from y(0) … y(t). When a day is over, the
backward recursion of de Jong (Durbin, Koopman 2012, section 4.4) gives that from all of the day's values: the revised
counts, from which m and q are learnt, with one step of expectation maximisation. A day begins with z alone in the
noise, and with what earlier days tell about its first count.

Noise at places is small or large against q, so no band is fixed: half-widths follow from the filter's variance. Where a
day moves more than earlier ones, its steps are too large for q: q is multiplied by the mean square of the latest
prediction errors, in units of their variance, where that is above 1.

All arithmetic is + - * / and square roots, elementwise over the nodes, in a fixed order: the same bytes on every
machine. No matrix is inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream.mechanisms.exact import Floats

POLES: dict[Fraction, tuple[tuple[float, float], ...]] = {
    Fraction(6, 10): ((0.22313, 0.12106), (0.72818, 0.12366), (0.93512, 0.11053), (0.98591, 0.01734), (0.997, 0.03287)),
    Fraction(7, 10): ((0.22313, 0.10488), (0.72818, 0.1058), (0.93512, 0.06675), (0.98591, 0.0127), (0.997, 0.01377)),
}
"""a -> (λ_i, w_i)."""
SIZE = 7
"""Components of the state: r, g, and five of the noise."""
FULLNESS = 0.04
"""Variance of g at a day's start."""
_LOST = 3.0
"""Part of r that a day loses, spread over its ticks."""
_LEAST_STEP, _FIRST_STEP = 0.003, 0.25
"""q in units of the noise's variance: the least, and that of the first day."""
UNKNOWN, UNUSUAL = 1000.0, 100.0
"""Variance of the first count of a day, in the same units: on the first day, and on the first of its kind."""
BINS = 50
"""Bins of a day in which q is learnt."""
_SLOW = 0.9
"""Part of the earlier prediction errors that is kept at a tick."""
BAND = 1.96
"""Half-widths in standard deviations."""


class Prior(NamedTuple):
    """What is expected of a day."""

    mean: Floats
    """m, shape [ticks, nodes]."""
    steps: Floats
    """q, shape [ticks, nodes]."""
    first: Floats
    """Variance of the day's first count, shape [nodes]."""
    fullness: Floats
    """Variance of g, shape [nodes]."""


class NoiseLaw(NamedTuple):
    """The noise of noisy counts."""

    order: Fraction
    """a."""
    variance: float
    """Of n(0): σ'² b(0)²."""

    @property
    def rates(self) -> Floats:
        """λ, shape [5]."""
        return np.array([rate for rate, _ in POLES[self.order]])

    @property
    def weights(self) -> Floats:
        """w, shape [5]."""
        return np.array([weight for _, weight in POLES[self.order]])


class Track(NamedTuple):
    """The filter before a tick: what is expected of the state then."""

    x: Floats
    """Shape [7, nodes]."""
    p: Floats
    """Covariance, shape [7, 7, nodes]."""
    surprise: Floats
    """Mean square of the latest prediction errors, in units of their variance, shape [nodes]."""


class Estimated(NamedTuple):
    """Counts and the variances of their errors, each of shape [nodes] or [ticks, nodes]."""

    mean: Floats
    variance: Floats


class Smoothed(NamedTuple):
    """Smoothed estimates of a day, given all of its noisy values."""

    counts: Estimated
    """Of each tick, shape [ticks, nodes]."""
    steps: Floats
    """Expected square of the step of r to each tick, shape [ticks, nodes]; q itself for the first."""


class _Passed(NamedTuple):
    """A tick of the forward pass."""

    x: Floats
    p: Floats
    h: Floats
    error: Floats
    inverse: Floats
    """1 / variance of the error; 0 where nothing was observed."""
    gain: Floats


def begin(prior: Prior) -> Track:
    """Return the filter before the first tick of a day."""
    nodes = len(prior.first)
    p = np.zeros((SIZE, SIZE, nodes))
    p[0, 0], p[1, 1] = prior.first, prior.fullness
    return Track(np.zeros((SIZE, nodes)), p, np.ones(nodes))


def advance(law: NoiseLaw, prior: Prior, track: Track, tick: int, noisy: Floats | None) -> tuple[Track, Estimated]:
    """Return the filter after a tick, and the estimate of its counts.

    Args:
        law: of the noise.
        prior: of the day.
        track: before the tick.
        tick: its position in the day.
        noisy: y, shape [nodes]; None if the tick was not released.
    """
    after, _, estimated = _advance(law, prior, track, tick, noisy)
    return after, estimated


def _advance(
    law: NoiseLaw, prior: Prior, track: Track, tick: int, noisy: Floats | None
) -> tuple[Track, _Passed, Estimated]:
    mean = prior.mean[tick]
    h = np.empty_like(track.x)
    h[0], h[1], h[2:] = 1.0, mean, law.weights[:, None]
    carried = _applied(track.p, h)
    of_noise = np.zeros((SIZE, 1))
    of_noise[2:] = law.variance
    factor = _factors(law, len(prior.mean))
    if noisy is None:
        error, inverse, surprise = np.zeros_like(mean), np.zeros_like(mean), track.surprise
        gain = np.zeros_like(track.x)
    else:
        inverse = 1 / (_dot(h, carried) + law.variance)
        error = noisy - mean - _dot(h, track.x)
        surprise = _SLOW * track.surprise + (1 - _SLOW) * error * error * inverse
        gain = (factor[:, None] * carried + of_noise) * inverse
    own = carried[0] + mean * carried[1]
    plain = track.p[0, 0] + 2 * mean * track.p[0, 1] + mean * mean * track.p[1, 1]
    count = mean + track.x[0] + mean * track.x[1] + own * error * inverse
    estimated = Estimated(count, np.maximum(plain - own * own * inverse, 0.0))
    passed = _Passed(track.x, track.p, h, error, inverse, gain)
    p = track.p * (factor[:, None] * factor)[:, :, None]
    if noisy is not None:
        p -= gain[:, None] * (gain / inverse)
    p[2:, 2:] += law.variance
    if tick + 1 < len(prior.steps):
        p[0, 0] += prior.steps[tick + 1] * np.maximum(surprise, 1.0)
    return Track(factor[:, None] * track.x + gain * error, p, surprise), passed, estimated


def smooth(law: NoiseLaw, prior: Prior, noisy: Sequence[Floats | None]) -> Smoothed:
    """Return a day's counts as all of its noisy values tell, and the steps of the rest.

    Args:
        law: of the noise.
        prior: of the day.
        noisy: y of each tick from the day's first, None where one was not released.
    """
    track, day, surprises = begin(prior), list[_Passed](), list[Floats]()
    for tick, values in enumerate(noisy):
        track, passed, _ = _advance(law, prior, track, tick, values)
        day.append(passed)
        surprises.append(np.maximum(track.surprise, 1.0))
    r, n = np.zeros_like(track.x), np.zeros_like(track.p)
    counts, variances, steps = (np.zeros((len(noisy), r.shape[1])) for _ in range(3))
    factor = _factors(law, len(prior.mean))
    for tick in range(len(noisy) - 1, -1, -1):
        x, p, h, error, inverse, gain = day[tick]
        if tick + 1 < len(noisy):
            q = prior.steps[tick + 1] * surprises[tick]
            steps[tick + 1] = np.square(q * r[0]) + q - q * q * n[0, 0]
        within = n * factor[None, :, None] - _applied(n, gain)[:, None] * h
        n = h[:, None] * (h * inverse) + factor[:, None, None] * within - h[:, None] * _applied_left(gain, within)
        r = h * (error * inverse) + factor[:, None] * r - h * _dot(gain, r)
        mean = prior.mean[tick]
        own = p[0] + mean * p[1]
        counts[tick] = mean + x[0] + mean * x[1] + _dot(own, r)
        plain = p[0, 0] + 2 * mean * p[0, 1] + mean * mean * p[1, 1]
        variances[tick] = np.maximum(plain - _dot(own, _applied(n, own)), 0.0)
    steps[0] = prior.steps[0]
    return Smoothed(Estimated(counts, variances), steps)


def _factors(law: NoiseLaw, ticks: int) -> Floats:
    """Return the diagonal of the state's transition, shape [7]."""
    return np.concatenate([[1 - _LOST / ticks, 1.0], law.rates])


def _applied(matrix: Floats, vector: Floats) -> Floats:
    """Return matrix times vector of each node, in one fixed order."""
    total = matrix[:, 0] * vector[0]
    for j in range(1, SIZE):
        total += matrix[:, j] * vector[j]
    return np.asarray(total)


def _applied_left(vector: Floats, matrix: Floats) -> Floats:
    """Return the transposed vector times matrix of each node, shape [7, nodes]."""
    total = vector[0] * matrix[0]
    for i in range(1, SIZE):
        total += vector[i] * matrix[i]
    return np.asarray(total)


def _dot(one: Floats, other: Floats) -> Floats:
    total = one[0] * other[0]
    for i in range(1, SIZE):
        total += one[i] * other[i]
    return np.asarray(total)


# What earlier days tell.

LEARNT_SHARE = 0.3
"""Weight of a new day in what is learnt of its kind."""
_FIRST_PASSES, _PASSES = 6, 2
_FIRST_SPREAD = 3.0
"""Variance of the first count of a day, in units of the noise's variance, where one day is known."""


class Usual(NamedTuple):
    """What is known of days of one kind."""

    days: int
    """Number of days that it was learnt from."""
    mean: Floats
    """Shape [ticks, nodes]."""
    steps: Floats
    """By bin, shape [BINS, nodes]."""
    first: Floats
    """Shape [nodes]."""


def no_days(ticks: int, nodes: int) -> Usual:
    """Return what is known before the first day."""
    return Usual(0, np.zeros((ticks, nodes)), np.zeros((BINS, nodes)), np.zeros(nodes))


def prior_of(law: NoiseLaw, same: Usual, others: Usual) -> Prior:
    """Return what is expected of a day.

    Args:
        law: of the noise.
        same: what is known of days of its kind.
        others: of days of the other kind, used where the first is unknown.
    """
    known = same if same.days else others
    ticks, nodes = known.mean.shape
    if not known.days:
        flat = np.full((ticks, nodes), _FIRST_STEP * law.variance)
        return Prior(np.zeros((ticks, nodes)), flat, np.full(nodes, UNKNOWN * law.variance), np.zeros(nodes))
    first = known.first if same.days else np.full(nodes, UNUSUAL * law.variance)
    return Prior(known.mean, _of_bins(law, known.steps, ticks), first, np.full(nodes, FULLNESS))


def learn(
    law: NoiseLaw, usual: Usual, prior: Prior, noisy: Sequence[Floats | None], smoothed: Smoothed
) -> tuple[Usual, Estimated]:
    """Return what is known after a day, and the day's revised counts.

    A day's ticks that were not released, and those after its last, keep what was expected.

    Args:
        law: of the noise.
        usual: what is known of such days.
        prior: that of the day.
        noisy: as for ``smooth``.
        smoothed: the day by this prior, from ``smooth``.
    """
    ticks = len(prior.mean)
    share = LEARNT_SHARE if usual.days else 1.0
    counts, steps = smoothed.counts, usual.steps
    for number in range(_PASSES if usual.days else _FIRST_PASSES):
        if number:
            smoothed = smooth(law, prior._replace(steps=_of_bins(law, steps, ticks)), noisy)
        steps = usual.steps + share * (_binned(smoothed.steps, ticks) - usual.steps)
    if not usual.days:
        counts, first = smoothed.counts, np.full_like(prior.first, _FIRST_SPREAD * law.variance)
    else:
        first = usual.first + share * (np.square(counts.mean[0] - prior.mean[0]) + counts.variance[0] - usual.first)
    mean = prior.mean.copy()
    mean[: len(noisy)] += (share if usual.days else 1.0) * (counts.mean - mean[: len(noisy)])
    return Usual(usual.days + 1, mean, steps, first), counts


def _bins(ticks: int) -> NDArray[np.int64]:
    """Return the bin of each tick."""
    return np.arange(ticks) * BINS // ticks


def _binned(steps: Floats, ticks: int) -> Floats:
    """Return the mean of each bin; that of the last known bin where a day has ended."""
    place = _bins(ticks)[: len(steps)]
    found = np.zeros((BINS, steps.shape[1]))
    for each in range(BINS):
        here = steps[place == each]
        if len(here):
            found[each] = np.cumsum(here, axis=0)[-1] / len(here)
        elif each:
            found[each] = found[each - 1]
    return found


def _of_bins(law: NoiseLaw, steps: Floats, ticks: int) -> Floats:
    """Return q of each tick: the mean over a bin and half of each neighbour."""
    wide = np.concatenate([steps[:1], steps, steps[-1:]])
    near = (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4
    return np.asarray(np.maximum(near, _LEAST_STEP * law.variance)[_bins(ticks)])
