"""Which noise each audience of a count release gets at each level: what its epsilon buys."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from stream.errors import PolicyError, UsageError
from stream.mechanisms.gaussian_chain import check_steps
from stream.mechanisms.parameter import NoiseParameter, laplace_noise
from stream.policy.count_release import CountRelease
from stream.policy.document import Policy
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


def check_noise(policy: Policy, file: str = "policy") -> None:
    """Raise PolicyError where a day's price buys no noise that can be made, or two audiences' no chain of known law."""
    for release in policy.release:
        if isinstance(release, CountRelease) and release.by_day:
            for site in policy.site:
                if policy.zones_of(release, site):
                    _check_days(policy, release, site, file)


def _check_days(policy: Policy, release: CountRelease, site: str, file: str) -> None:
    try:
        laws = noise_laws(release, PaidByDay.of(policy, release, site))
        if release.noise == "gaussian":
            for level in zip(*laws.values(), strict=True):
                check_steps([law.exact for law in level])
    except UsageError as error:
        msg = f"{file}: release '{release.name}' at {site}: noise = '{release.noise}': {error}"
        raise PolicyError(msg) from None
