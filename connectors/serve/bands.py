"""How sure a number is: the band of one window, of a mean over windows, and the probability that a room is empty.

    symbol   here          meaning
    Z_w      Law           noise of one window's value: the sum of ``draws`` independent draws of one law
    n        windows       how many windows a mean is taken over
    h_w      spread        95 % half-width of Z_w

The noise of different windows is independent, for each has words of its own. So the noise in a mean of n noisy values
is (Z_1 + … + Z_n) / n, and where all windows have one law its 95 % half-width is that of the sum of all draws: for
Laplace noise the quantile of the sum's own law, for Gaussian noise a bound that the sampler proves; the scale is taken
to be 1e-9 larger than the record says, which has rounded it. Where laws differ, or are known by their half-widths only,
it is √(Σ (h_w + 1)²) / n: sums of Laplace draws have the heaviest tails when one draw is alone, so that squares of
half-widths add, and whole numbers cost one more each. A 0 whose law is not known may stand for a node that was skipped:
its half-width counts in full.

Values that are no noisy values (medians of a filter, groups of PeGaSus) have errors that go on from window to window.
Nothing makes their mean surer than they are: it gets the mean of their half-widths, and the kind says "at most".
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np

from stream.mechanisms.exact import Floats
from stream.mechanisms.parameter import NoiseParameter
from stream.records import NoiseKind

BandKind = Literal["noise", "posterior", "at most"]
"""``noise``: the truth is within the band with probability 95 %, whatever it is. ``posterior``: a filter's 1 to 99 %
range. ``at most``: the mean of the half-widths of values whose errors may go the same way."""
AT_MOST: Final = "at most"
_WIDER = Fraction(10**9 + 1, 10**9)
_HEAVIEST = 2.12
"""95 % half-width of one Laplace draw in standard deviations, ln 20 / √2; any sum of several has less."""
_EXACT_UP_TO = 200_000.0
"""Standard deviation up to which the law of a sum is worked out; beyond it ``_HEAVIEST`` stands for its quantile."""
_TAIL: Final = {"noise": 0.05, "posterior": 0.01}
"""How much lies beyond a half-width, at most; of a posterior on either side."""
_SURE = 0.001
"""No probability is nearer to 0 or 1 than this."""


class Law(NamedTuple):
    """The law of the noise in one window's value."""

    noise: NoiseKind
    scale: float
    """1/ε, or σ, as records have it."""
    draws: int = 1
    """How many independent draws it is the sum of: the zones of a floor."""

    @property
    def parameter(self) -> NoiseParameter:
        """The law of one draw, not narrower than the record says."""
        scale = Fraction(self.scale) * _WIDER
        return NoiseParameter(self.noise, 1 / scale if self.noise == "laplace" else scale * scale)


@lru_cache(maxsize=4096)
def sum_half_width(law: Law, windows: int = 1) -> float:
    """Return a w that the summed noise of so many windows exceeds with probability 0.05 at most; UsageError where the
    scale is none that noise is made of."""
    one, draws = law.parameter, law.draws * windows
    deviation = one.deviation * math.sqrt(draws)
    if deviation > _EXACT_UP_TO:
        return float(math.ceil(_HEAVIEST * deviation) + 1)
    return float(one.sum_half_width_95(draws))


def mean_half_width(law: Law, windows: int) -> float:
    """Return the 95 % half-width of the noise in a mean of noisy values of one law, over at least one window."""
    return sum_half_width(law, windows) / windows


def lower_end(value: Floats, half_width: Floats) -> Floats:
    """Return where bands begin: nobody counts fewer than 0 people, but a negative value lies in its own band."""
    return np.asarray(np.minimum(value, np.maximum(0, value - half_width)))


def upper_end(value: Floats, half_width: Floats) -> Floats:
    """Return where bands end: at 0 or above, for so many people there are."""
    return np.asarray(np.maximum(0, value + half_width))


def likely_empty(value: float, half_width: float, kind: str) -> float:
    """Return the probability that nobody is there, from a value and its band.

    The band is read as that of two-sided geometric errors, which go down by the factor a a person and of which the
    given tail lies beyond the half-width h: a = tail ** (1 / (h + 1)), tail 0.05, of a posterior 0.01. Every count from
    0 upwards is held as likely as any other before the value is seen; a room that is mostly empty is empty more often
    than that. With v = max(value, 0) nobody is there with probability aᵛ (1 - a) / (1 + a - aᵛ⁺¹).

    Args:
        value: as released; below 0 counts as 0.
        half_width: of its band, at least 0.
        kind: what the band is.

    Returns:
        In [0.001, 0.999]: never yes, never no.
    """
    a = _TAIL.get(kind, _TAIL["noise"]) ** (1 / (half_width + 1))
    seen = max(value, 0.0)
    empty: float = a**seen * (1 - a) / (1 + a - a ** (seen + 1))
    return round(min(1 - _SURE, max(_SURE, empty)), 3)
