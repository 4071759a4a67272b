"""The kind of a noise and its exact parameter. ``_LAWS`` contains what differs between kinds.

``tail`` bounds the probability that the noise of a released count, or of a sum of counts, is far from 0; the bound is
never too low. For one draw it is exact (to 2**-63, rounded up), from the sampler's tables. For a sum of n draws it is
Chernoff's bound: Pr[S >= k] <= E[e^(tZ)]^n e^(-tk), minimised over a grid of t. For discrete Gaussian noise, whose
moments are at most those of the continuous Gaussian, it is the bound at the best t, e^(-k²/(2nσ²)). Arithmetic is
+ - * / in a fixed order, since a shift that decides released bytes follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from stream.errors import UsageError
from stream.mechanisms import gaussian, noise
from stream.mechanisms.exact import Floats, Ints, exp, ln
from stream.mechanisms.noise_labels import Context
from stream.records import NoiseKind

_GRID = np.arange(1, 256, dtype=np.float64) / 256


def _laplace_sum_exponents(epsilon: Fraction, draws: int, distance: int) -> Floats:
    """Return ln of Chernoff's bound at each t of the grid."""
    inverse = float(epsilon)
    t, a = _GRID * inverse, float(exp(np.array([-inverse]))[0])
    moments = (1 - a) * (1 - a) / ((1 - exp(t - inverse)) * (1 - exp(-t - inverse)))
    return np.asarray(draws * ln(moments) - t * distance)


def _gaussian_sum_exponents(variance: Fraction, draws: int, distance: int) -> Floats:
    """Return ln of the bound at the best t."""
    return np.array([-float(distance * distance / (2 * draws * variance))])


class _Law(NamedTuple):
    """The functions of a kind of noise; each takes the exact parameter first."""

    check: Callable[[Fraction], Fraction]
    """Returns the parameter; UsageError if the sampler does not support it."""
    chain: Callable[[bytes, Context, bytes, Sequence[Fraction], int], dict[Fraction, Ints]]
    """Draws the noise chain: key, context, digest, parameters, number of zones."""
    thresholds: Callable[[Fraction], Ints]
    """⌊2**63 · Pr[|Z| >= k]⌋ for k = 1, 2, … of one draw, down to 0."""
    sum_exponents: Callable[[Fraction, int, int], Floats]
    """ln of upper bounds on Pr[S >= distance], S a sum of so many draws."""
    half_width_95: Callable[[Fraction], int]
    sum_half_width_95: Callable[[Fraction, int], int]
    deviation: Callable[[Fraction], float]
    scale: Callable[[Fraction], float]
    """The field ``noise_scale`` of records."""
    inverse_scale: Callable[[Fraction], float]
    """ε, or 1/σ."""


_LAWS: dict[NoiseKind, _Law] = {
    "laplace": _Law(
        check=noise.check_epsilon,
        chain=noise.chain,
        thresholds=noise.thresholds,
        sum_exponents=_laplace_sum_exponents,
        half_width_95=noise.half_width_95,
        sum_half_width_95=noise.sum_half_width_95,
        deviation=noise.std,
        scale=lambda epsilon: float(1 / epsilon),
        inverse_scale=float,
    ),
    "gaussian": _Law(
        check=gaussian.check_variance,
        chain=gaussian.gaussian_chain,
        thresholds=gaussian.thresholds,
        sum_exponents=_gaussian_sum_exponents,
        half_width_95=gaussian.half_width_95,
        sum_half_width_95=gaussian.sum_half_width_95,
        deviation=gaussian.scale,
        scale=gaussian.scale,
        inverse_scale=lambda variance: 1 / gaussian.scale(variance),
    ),
}


@dataclass(frozen=True, slots=True)
class NoiseParameter:
    """The distribution of one noise. Raises UsageError where the sampler does not support it."""

    kind: NoiseKind
    exact: Fraction
    """Laplace: ε divided by the sensitivity. Gaussian: σ²."""

    def __post_init__(self) -> None:
        _LAWS[self.kind].check(self.exact)

    @property
    def epsilon(self) -> Fraction:
        """ε of Laplace noise; UsageError for other kinds, which have no ε without a δ."""
        if self.kind != "laplace":
            raise UsageError(f"noise must be laplace where a pure epsilon is needed, got {self.kind}")
        return self.exact

    @property
    def scale(self) -> float:
        """The field ``noise_scale`` of records: 1/ε, or σ."""
        return _LAWS[self.kind].scale(self.exact)

    @property
    def deviation(self) -> float:
        """Standard deviation; for Gaussian noise σ, which is an upper bound."""
        return _LAWS[self.kind].deviation(self.exact)

    @property
    def inverse_scale(self) -> float:
        """ε, or 1/σ: the filter's calendar weighs a person no more than the noise does."""
        return _LAWS[self.kind].inverse_scale(self.exact)

    @property
    def half_width_95(self) -> int:
        """The smallest w that a draw exceeds with a probability of at most 0.05."""
        return _LAWS[self.kind].half_width_95(self.exact)

    def sum_half_width_95(self, n: int) -> int:
        """Return a w that the sum of ``n`` independent draws exceeds with a probability of at most 0.05."""
        return _LAWS[self.kind].sum_half_width_95(self.exact, n)


def laplace_noise(epsilon: Fraction) -> NoiseParameter:
    """Return discrete Laplace noise at an epsilon (divided by the sensitivity)."""
    return NoiseParameter("laplace", epsilon)


def gaussian_noise(variance: Fraction) -> NoiseParameter:
    """Return discrete Gaussian noise of a variance σ²."""
    return NoiseParameter("gaussian", variance)


def noise_chain(
    key: bytes, context: Context, digest: bytes, parameters: Sequence[NoiseParameter], n: int
) -> dict[NoiseParameter, Ints]:
    """Return the noise of every parameter from one chain; equal parameters share one value.

    Args:
        key: the day's secret.
        context: the window's release; the audience is not part of it.
        digest: digest of the counts that the noise is for.
        parameters: at least one, all of one kind.
        n: number of zones.

    Raises:
        UsageError: no parameter, or parameters of several kinds, for which there is no chain.
    """
    kinds = {each.kind for each in parameters}
    if len(kinds) != 1:
        raise UsageError(f"parameters must be of one kind, got {', '.join(sorted(kinds)) or 'none'}")
    (kind,) = kinds
    drawn = _LAWS[kind].chain(key, context, digest, [each.exact for each in parameters], n)
    return {each: drawn[each.exact] for each in parameters}


# Tails.

_LARGEST_SHIFT = 1 << 22


def tail(law: NoiseParameter, draws: int, distance: int) -> float:
    """Return a bound on Pr[S >= distance] of the sum S of ``draws`` draws; by symmetry also on Pr[S <= -distance]."""
    if distance <= 0:
        return 1.0
    if draws == 1:
        table = _LAWS[law.kind].thresholds(law.exact)
        scaled = int(table[distance - 1]) if distance <= len(table) else 0
        return (scaled + 1) / 2.0**64
    exponents = _LAWS[law.kind].sum_exponents(law.exact, draws, distance)
    return float(exp(np.minimum(exponents, 0.0)).min()) * (1 + 1e-9)


def least_shift(law: NoiseParameter, draws: int, miss: Fraction, windows: int) -> int:
    """Return the least shift for which a count just beyond its threshold is missed that rarely in ``windows`` windows.

    Raises:
        UsageError: the shift would be larger than any count.
    """
    low, high = -1, 1
    while tail(law, draws, high + 1) ** windows > miss:
        low, high = high, 2 * high
        if high > _LARGEST_SHIFT:
            raise UsageError(f"miss must be one that noise of scale {law.scale:g} can keep, got {float(miss):g}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(law, draws, middle + 1) ** windows > miss else (low, middle)
    return high
