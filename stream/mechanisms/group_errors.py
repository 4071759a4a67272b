"""How far a value smoothed over a group may be from the count.

PeGaSus publishes the mean or median of a group's noisy values. Its error has two parts: the rest of the noise, which is
smaller in a larger group, and the distance of the window's count from the group's middle, which is unknown. Both are
estimated from the group's noisy values, which are released themselves. With

    symbol    here         meaning
    b         scale        scale of the Laplace noise in a noisy value
    n, y_i    Groups       size of the group, its noisy values; the last one is the window's
    v         value        the smoothed value
    d_i                    the distance of window i's count from v
    t_j       _scales      b 2**j / √n, j = 0 … 8: from the error of a median of n values up

each d_i is taken as a Laplace draw of one unknown scale t_j, all nine equally likely before. The last twelve noisy
values weigh them:

    P(t_j)  in proportion to  Π f_j(y_i - v),  f_j the density of the sum of two Laplace draws, of scales t_j and b
    P(d)    in proportion to  Σ_j P(t_j) e**(-|d|/t_j) / t_j · e**(-|y_n - v - d|/b)

d is computed on a grid of y_n - v ± 8 b. P(d) is 0 where the count v + d would be negative, unless that is the whole
grid. So a band is narrow where the group's values agree with each other, and reaches the window's own noisy value where
this is far from v. Apart from counts near 0, a group of one window has the band of its noise.

This is post-processing. Nothing proves that the d_i follow this law, so the coverage of bands is measured
(``docs/bands.md``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream.mechanisms.base import Groups
from stream.mechanisms.exact import Floats, Ints, exp, ln, ordered_sum

BAND = 0.97
"""Probability of a half-width. Published bands are to cover 95 %; counts follow no law exactly."""
_SCALES, _LATEST = 9, 12
_REACH, _STEPS = 8.0, 129
_APART = 1.02
"""Where t_j is within 2 % of b, f_j takes this multiple of b for it: the density of the sum has no form there."""


class GroupErrors(NamedTuple):
    """The law of count − value of some zones."""

    distance: Floats
    """The grid of d, shape [129, zones]."""
    weight: Floats
    """Probability of each, same shape."""

    @property
    def mean(self) -> Floats:
        """Expected distance, shape [zones]."""
        return ordered_sum(self.weight * self.distance)

    @property
    def deviation(self) -> Floats:
        """Standard deviation of the distance, shape [zones]."""
        apart = self.distance - self.mean
        return np.asarray(np.sqrt(ordered_sum(self.weight * apart * apart)))

    def half_width(self, moved: Floats, smaller: Floats | None = None) -> Ints:
        """Return the half-width around integers that were published in place of the values.

        Args:
            moved: the published integer less the value, shape [zones].
            smaller: factor by which errors are smaller than this law says, shape [zones]; None: 1.
        """
        far = np.abs(self.distance - moved) * (1.0 if smaller is None else smaller)
        order = np.argsort(far, axis=0, kind="stable")
        share = np.cumsum(np.take_along_axis(self.weight, order, axis=0), axis=0)
        place = np.minimum((share < BAND).sum(axis=0), len(far) - 1)
        zones = np.arange(len(place))
        return np.asarray(np.ceil(far[order[place, zones], zones] - 0.5), np.int64)


def group_errors(groups: Groups, value: Floats, scale: Floats) -> GroupErrors:
    """Return the law of the errors of smoothed values.

    Args:
        groups: the group of each zone, as noisy values.
        value: the smoothed value of each zone.
        scale: b of each zone.
    """
    scales = np.ldexp(scale / np.sqrt(groups.size), np.arange(_SCALES)[:, None])
    latest = groups.size - 1 - np.arange(_LATEST)[:, None]
    members = np.take_along_axis(groups.noisy.T, np.maximum(latest, 0), axis=0) - value
    apart = np.where(np.abs(scales / scale - 1) < _APART - 1, _APART * scale, scales)
    known = np.where(latest >= 0, _log_density(np.abs(members), apart[:, None], scale), 0.0)
    noise = np.linspace(-_REACH, _REACH, _STEPS)[:, None] * scale
    distance = members[0] - noise
    weight = _mixed(ordered_sum(known.swapaxes(0, 1)), scales, np.abs(distance)) * exp(-np.abs(noise) / scale)
    is_count = value + distance >= -0.5
    weight = np.where(is_count | ~is_count.any(axis=0), weight, 0.0)
    return GroupErrors(distance, np.asarray(weight / ordered_sum(weight)))


def _mixed(known: Floats, scales: Floats, far: Floats) -> Floats:
    """Return Σ_j P(t_j) e**(-|d|/t_j) / t_j up to a factor, shape [129, zones].

    Each scale is twice the one before, so each exponential is the square of the next one.

    Args:
        known: ln P(t_j), up to a constant; shape [9, zones].
        scales: t_j, likewise.
        far: |d|, shape [129, zones].
    """
    nearest = far.min(axis=0)
    exponent = known - ln(scales) - nearest / scales
    share = exp(exponent - exponent.max(axis=0))
    power = exp(-(far - nearest) / scales[-1])
    mixed = share[-1] * power
    for part in share[-2::-1]:
        power = power * power
        mixed += part * power
    return np.asarray(mixed)


def _log_density(far: Floats, one: Floats, other: Floats) -> Floats:
    """Return ln of the density of the sum of two Laplace draws of different scales, at a distance from 0.

    It is (t e**(-r/t) - b e**(-r/b)) / (2 (t² - b²)), in a form without underflow.
    """
    large, small = np.maximum(one, other), np.minimum(one, other)
    rest = large - small * exp(-far * (1 / small - 1 / large))
    return np.asarray(ln(rest / (2 * (large * large - small * small))) - far / large)
