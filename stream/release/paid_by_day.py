"""How much noise a day's price leaves for a window, and what else of a device that price has to cover.

    symbol   here              meaning
    ε, δ     epsilon, delta    what one device's privacy day costs
    K        ticks             windows of a day at which one device counts at most
    f_l      shares[l]         part of the day that pays for level l, leaves first; 1 without shares
    σ²       variance          of gaussian noise on a level that is paid alone

Take one device's day away, and at most K cells of each level change, by one each. With ``laplace`` a window of
level l has f_l ε / K, so that the day costs ε exactly, with no δ. With ``gaussian`` σ² is the least of a fixed grid for
which K windows of all levels cost at most (ε, δ), and level l has variance σ² / f_l: shares are shares of ρ.

Whatever is smaller than a day (one observation, one tick) may move all K cells of it elsewhere: it is priced as a day
replaced, by 2 K cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from stream.accounting.calibration import calibrate
from stream.accounting.day_units import changed_loss
from stream.policy.document import CountRelease, Policy
from stream.records import DayTerms, NoiseKind
from stream.release.paid_days import terms_digest


@dataclass(frozen=True)
class DayPrice:
    """What one audience's day of a release costs at a site."""

    noise: NoiseKind
    epsilon: Fraction
    delta: Fraction
    """0 for noise whose epsilon holds exactly."""
    ticks: int
    shares: tuple[Fraction, ...] = (Fraction(1),)
    factor_delta: Fraction | None = None
    """Probability with which ``changed`` may be passed."""
    devices: int = 1
    """Of one person, that may change the same values."""

    @cached_property
    def parameters(self) -> tuple[Fraction, ...]:
        """The noise of each level that is measured: epsilon of one window, or sigma squared."""
        if self.noise == "laplace":
            return tuple(share * self.epsilon / self.ticks for share in self.shares)
        return tuple(calibrate(self.epsilon, self.delta, self.ticks, share) for share in self.shares)

    @cached_property
    def changed(self) -> Fraction:
        """What each device of a person adds to the loss that changed parts of their day do not exceed together.

        With gaussian noise it may be passed with probability ``factor_delta``.

        ``CERTAIN`` where no loss is the largest, and none may be passed.
        """
        return changed_loss(self.noise, self.parameters, self.ticks, self.factor_delta, self.devices)


@dataclass(frozen=True)
class PaidByDay:
    """A release's days at a site: what they cost, and what a price buys."""

    prices: Mapping[str, DayPrice]
    """By audience."""
    ticks: int
    terms: str = field(repr=False)
    """Digest of everything that a day's price is for (``paid_days``)."""

    @classmethod
    def of(cls, policy: Policy, release: CountRelease, site: str) -> PaidByDay:
        """Return those of a policy's release."""
        shares = tuple(release.shares[level] for level in release.levels_up if level in release.shares) or (
            Fraction(1),
        )
        delta = Fraction(0) if release.noise == "laplace" else release.delta or policy.privacy.delta
        ticks, privacy = policy.site[site].contribution_ticks, policy.privacy
        prices = {
            audience: DayPrice(
                release.noise, epsilon, delta, ticks, shares, privacy.factor_delta, privacy.devices_per_person
            )
            for audience, epsilon in release.epsilon.items()
        }
        return cls(prices, ticks, terms_digest(policy, release, site))

    def suffix(self, day: int) -> str:
        """Return what the labels of a day's noise hold besides: no two days, and no two bounds, share a draw."""
        return f"/day {day}/{self.ticks}"

    def paid(self, audience: str, day: int) -> DayTerms:
        """Return what an audience paid for when it paid a day."""
        price = self.prices[audience]
        return DayTerms(day, price.noise, price.parameters, price.ticks)
