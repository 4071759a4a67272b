"""How late the filters of many zones are together: bands of sums over filtered zones.

Where many zones fill or empty at once, all their filters follow late, each by an amount that lies within its own band.
A sum over these zones is then wrong by the sum of these amounts, which is far more than independent errors would be.
The sum of the noisy values shows this: its noise is known, and what it differs from the sum of the filtered values
beyond that noise is the common error. With

    symbol   here             meaning
    x_i      total            Σ .8**i (noisy value - published value), i = 0 for the newest window; of a zone
    W, Q     weight, squares  Σ .8**i and Σ .64**i over the same windows
    n, σ     noise.deviation  number of zones in a sum; deviation of the noise in one noisy value
    h_z                       half-width of a zone by its filter
    h_0      deviation_of_sum √((1 - ρ) Σ h_z² + ρ (Σ h_z)²), ρ = .03: half-width if errors are nearly independent

    D = Σ_z x_z / W,   v = n σ² Q / W²,   h = √(h_0² + 2² max(0, D² - v/2)), rounded

D is the mean difference over about the last five windows and v the variance of its noise. The factor 2 allows for
changes that D has not followed yet. All of this is post-processing of released values. Nothing proves how filters err,
so the coverage is measured (``docs/bands.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stream.mechanisms.exact import Floats, Ints, deviation_of_sum, ordered_sum
from stream.mechanisms.noise_parameters import NoiseParameter

FADING = 0.8
MOST_WEIGHT = 6.0
"""More than the limit of W, 1 / (1 - .8) = 5."""
ALIKE = 0.03
"""ρ: the assumed correlation of the errors of two filters, apart from what D shows."""
_LATE, _OF_NOISE = 2.0, 0.5


class Residuals(NamedTuple):
    """Weighted differences between noisy and published values; public."""

    total: Floats
    """Shape [zones]."""
    weight: float
    squares: float

    def after(self, noisy: Ints, published: Ints) -> Residuals:
        """Return the residuals after one more window."""
        total = FADING * self.total + (noisy - published)
        return Residuals(total, FADING * self.weight + 1, FADING * FADING * self.squares + 1)


def no_residuals(zones: int) -> Residuals:
    """Return the residuals before the first window."""
    return Residuals(np.zeros(zones), 0.0, 0.0)


@dataclass(frozen=True)
class FilteredSums:
    """The bands of sums over filtered zones, for one window."""

    half_widths: Ints
    """Of each zone."""
    residuals: Residuals
    """After this window."""
    noise: NoiseParameter

    def half_width(self, members: Sequence[int]) -> int:
        """Return the 95 % half-width of the sum over some zones, given by their positions."""
        zones = list(members)
        if len(zones) == 1:
            return int(self.half_widths[zones[0]])
        own = deviation_of_sum(self.half_widths[zones].astype(np.float64), ALIKE)
        late = float(ordered_sum(self.residuals.total[zones])) / self.residuals.weight
        deviation = self.noise.deviation
        noise = len(zones) * deviation * deviation * self.residuals.squares / (self.residuals.weight**2)
        beyond = max(0.0, late * late - _OF_NOISE * noise)
        return int(np.rint(np.sqrt(own * own + _LATE * _LATE * beyond)))
