"""Which noise each audience of a count release gets at each level: what its epsilon buys."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from stream.mechanisms.parameter import NoiseParameter, laplace_noise
from stream.policy.count_release import CountRelease
from stream.release.paid_by_day import PaidByDay

Laws = Mapping[Fraction, tuple[NoiseParameter, ...]]
"""Epsilon of an audience -> the law of the noise of each level that is measured, leaves first; one where levels are
sums of what is measured."""


def noise_laws(release: CountRelease, days: PaidByDay | None, multiplicity: int = 1) -> Laws:
    """Return the laws of a release's noise at a site.

    Args:
        release: of counts.
        days: what a day costs and buys; None where epsilon pays for windows, which is Laplace noise.
        multiplicity: how many of the names that are counted one device is counted under at once.
    """
    if days is not None:
        prices = days.prices.values()
        return {p.epsilon: tuple(NoiseParameter(p.noise, exact) for exact in p.parameters) for p in prices}
    shares = [release.shares[level] for level in release.levels_up if level in release.shares] or [Fraction(1)]
    return {
        epsilon: tuple(laplace_noise(share * epsilon / multiplicity) for share in shares)
        for epsilon in set(release.epsilon.values())
    }
