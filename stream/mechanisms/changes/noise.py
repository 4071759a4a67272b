"""Keyed discrete Gaussian noise of any width, with a proven distance.

The sampler (:mod:`stream.mechanisms.gaussian`) has a table as long as the noise is wide. Noise on changes is in units
of 2**-16 devices and therefore too wide for one. It is drawn in places of base ``m = 256``, as

    z = r + m z',   r discrete Gaussian of variance ρ² = 1280²,   z' of variance V' = (V - ρ²)/m²

and z' again in this way as long as it is wide. Poisson's summation, as for the noise chain there, gives the law of z:

    w(z - m x; ρ²) w(m x; m² V') = w(z; V) e**(-(m x - c z)²/(2 s²)),  c = m² V'/V,  s² = ρ² m² V'/V

and the sum over x is (s/m) √(2π) (1 ± η(s/m)) for every z, η(t) = 2 Σ_{k>=1} e**(-2π² t² k²). As V > 2**24,
(s/m)² = (ρ/m)² (1 - ρ²/V) > 22, so the law of z is the discrete Gaussian of variance V but for a factor within e**±g,
g < 1e-180. The steps of a noise chain are wide as well (``check_chain``): a factor within e**±1e-60.

``LATTICE_GAP`` bounds all of it for every draw of a day together. The calibration (``calibration``) covers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from stream.domains import Draw
from stream.errors import UsageError
from stream.mechanisms.exact import Ints
from stream.mechanisms.gaussian import discrete_gaussian
from stream.mechanisms.noise_labels import Context

LATTICE_GAP = 1e-50
"""How far ln Pr of a day's draws is at most from that of independent discrete Gaussians: of a million draws."""

_BASE = 256
_LOW = Fraction(1280**2)
_WIDE = 1 << 24
"""Noise of a larger variance is drawn in places."""
_LEAST_STEP = 16
"""Least variance of noise and of a step: s² >= 8, so η(s) < 1e-68."""


def change_noise(
    key: bytes, context: Context, digest: bytes, variances: Sequence[Fraction], n: int
) -> dict[Fraction, Ints]:
    """Return the noise of every variance from one chain, from the finest to the coarsest.

    Each coarser one is the next finer one plus independent noise, so that together readers learn what the one with the
    least noise learns.

    Args:
        key: the day's secret.
        context: the window's release; the audience is not part of it.
        digest: digest of the sums that the noise is for.
        variances: σ'² of each audience, at least one, in any order.
        n: number of nodes.

    Raises:
        UsageError: no variance, one that is too small, or two that are too close to each other.
    """
    check_chain(variances)
    finest, *_ = ascending = sorted(set(variances))
    noise = {finest: _drawn(key, context, digest, Draw.CHANGES, (finest,), finest, n)}
    for finer, coarser in pairwise(ascending):
        step = _drawn(key, context, digest, Draw.CHANGES_ADD, (finer, coarser), coarser - finer, n)
        noise[coarser] = noise[finer] + step
    return noise


def check_chain(variances: Sequence[Fraction]) -> None:
    """Raise UsageError where the variances of audiences, or of their steps, are too small for a known law."""
    ascending = sorted(set(variances))
    if not ascending:
        raise UsageError("variances must not be empty")
    for least in (ascending[0], *(coarser - finer for finer, coarser in pairwise(ascending))):
        if least < _LEAST_STEP:
            raise UsageError(
                f"variances of two audiences must be equal or differ by at least {_LEAST_STEP}, "
                f"and be as large, got {', '.join(map(str, ascending))}"
            )


def _drawn(
    key: bytes, context: Context, digest: bytes, draw: Draw, names: tuple[Fraction, ...], variance: Fraction, n: int
) -> Ints:
    """Return one draw for each node; each place has a label of its own."""
    total, unit = np.zeros(n, np.int64), 1
    for place, part in enumerate(_places(variance)):
        label = context.label(draw, *names, Fraction(place), digest=digest)
        total += unit * discrete_gaussian(key, label, part, n)
        unit *= _BASE
    return total


def _places(variance: Fraction) -> Iterator[Fraction]:
    """Yield the variance of each place, the lowest first."""
    while variance > _WIDE:
        yield _LOW
        variance = (variance - _LOW) / _BASE**2
    yield variance
