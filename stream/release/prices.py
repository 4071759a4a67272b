"""Prices: a window's noise under a day's or run's price.

**The price of a day.**

    symbol   here              meaning
    ε, δ     epsilon, delta    cost of one device's privacy day
    K        ticks             the largest number of windows of a day at which one device counts
    f_l      shares[l]         share of the day that pays for level l, leaves first; 1 without shares
    σ²       variance          of gaussian noise, on a level before it is divided by its share

Removing one device's day changes at most K cells of each level, by one each. With ``laplace`` a window of level l has
f_l ε / K, so that the day costs ε exactly, with no δ. With ``gaussian`` level l has variance σ² / f_l (its share of ρ),
and σ² is the smallest value of a fixed grid for which K windows of all these levels cost at most (ε, δ).

A unit smaller than a day (one observation, one tick) may move all K cells of the day elsewhere. Its price is that of a
replaced day, with 2 K cells.

With ``count = "changes"`` the day pays for at most 2 V changes of a device's counts at each level, V its visits,
however long it stays (``mechanisms.changes``). The parameters of such a price are the squared shift mu² of each level.

**Threshold streams.** ``RunPrice`` has the price of one run, and the most that a day can cost one device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import orjson

from stream.accounting.calibration import calibrate
from stream.accounting.day_charges import changed_loss
from stream.errors import PolicyError, UsageError
from stream.mechanisms.changes.calibration import changes_variances, squared_shift
from stream.mechanisms.changes.factor import MatrixFactor, factor_of
from stream.mechanisms.changes.mechanism import Changes
from stream.mechanisms.changes.noise import check_chain
from stream.mechanisms.gaussian import check_steps
from stream.mechanisms.noise_parameters import NoiseParameter, laplace_noise
from stream.mechanisms.run_distribution import RunDistribution
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument
from stream.policy.fields import NANO
from stream.policy.thresholds import ThresholdRelease, nodes_of
from stream.records import CHANGES, PURE, DayTerms, NoiseKind, PrivacyDay


def terms_digest(policy: PolicyDocument, release: CountRelease, site: str) -> str:
    """Return the digest of the terms of a release's day at a site."""
    place = policy.site[site]
    zones = [(zone.id, zone.floor, zone.largest) for zone in policy.zones_of(release, site)]
    day = list(place.day_terms)
    if release.by_changes:
        day[2:3] = [place.visits, place.gap_ticks]
    terms = [release.model_dump(mode="json"), zones, day, str(policy.privacy.delta)]
    return hashlib.sha256(orjson.dumps(terms, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


@dataclass(frozen=True)
class DayPrice:
    """The price of one audience's day of a release at a site."""

    noise: NoiseKind
    epsilon: Fraction
    delta: Fraction
    """0 for noise with a pure epsilon."""
    ticks: int
    shares: tuple[Fraction, ...] = (Fraction(1),)
    factor_delta: Fraction | None = None
    """Probability with which the loss may exceed ``changed``."""
    devices: int = 1
    """Devices of one person that may change the same values."""
    matrix_factor: MatrixFactor | None = None
    """Where the day pays for changes, the factor of their noise; ``ticks`` is then the number of changes."""
    nodes: tuple[int, ...] | None = None
    """Where the day pays for changes, the number of nodes of each level."""

    @cached_property
    def variances(self) -> tuple[Fraction, ...]:
        """Where the day pays for changes, the variance of each level's noise, in the factor's unit; otherwise none."""
        if self.matrix_factor is None:
            return ()
        return changes_variances(self.epsilon, self.delta, self.matrix_factor, self.shares, self.nodes)

    @property
    def scales(self) -> tuple[float, ...]:
        """Where the day pays for changes, the largest standard deviation of each level's noisy counts within a day."""
        if self.matrix_factor is None:
            return ()
        return tuple(Changes(self.matrix_factor, each, (each,), (1,)).noise.scale for each in self.variances)

    @cached_property
    def parameters(self) -> tuple[Fraction, ...]:
        """The parameter of each measured level: epsilon of one window, sigma squared, or the squared shift of a day."""
        if self.matrix_factor is not None:
            nodes = self.nodes or (None,) * len(self.variances)
            return tuple(
                squared_shift(self.matrix_factor, (variance,), None if count is None else (count,))
                for variance, count in zip(self.variances, nodes, strict=True)
            )
        if self.noise == "laplace":
            return tuple(share * self.epsilon / self.ticks for share in self.shares)
        return calibrate(self.epsilon, self.delta, self.ticks, self.shares)

    @cached_property
    def changed(self) -> Fraction:
        """Bound on the privacy loss of changed parts of a day, for each device of a person.

        With gaussian noise the loss may exceed the bound with probability ``factor_delta``. ``CERTAIN`` if the loss is
        not bounded and no bound may be exceeded.
        """
        noise = self.noise if self.matrix_factor is None else CHANGES
        return changed_loss(noise, self.parameters, self.ticks, self.factor_delta, self.devices)

    def terms(self, day: PrivacyDay) -> DayTerms:
        """Return the terms of a payment for a day."""
        return DayTerms(day, self.noise if self.matrix_factor is None else CHANGES, self.parameters, self.ticks)


@dataclass(frozen=True)
class DayPrices:
    """The days of a release at a site: their cost, and the terms that a price pays for."""

    prices: Mapping[str, DayPrice]
    """By audience."""
    ticks: int
    """K, or the largest number of changes."""
    terms_digest: str = field(repr=False)
    """Digest of everything that a day's price pays for (``PaidDays``)."""

    @property
    def matrix_factor(self) -> MatrixFactor:
        """The factor of the noise on changes; UsageError where the days do not pay for changes."""
        factors = {price.matrix_factor for price in self.prices.values()}
        if len(factors) != 1 or None in factors:
            raise UsageError("days must pay for changes, with one factor for all audiences")
        (factor,) = factors
        assert factor is not None  # noqa: S101
        return factor

    @classmethod
    def of(cls, policy: PolicyDocument, release: CountRelease, site: str) -> DayPrices:
        """Return the day prices of a policy's release."""
        shares = tuple(release.shares[level] for level in release.levels_up if level in release.shares) or (
            Fraction(1),
        )
        delta = Fraction(0) if release.noise == "laplace" else release.delta or policy.privacy.delta
        place, privacy, factor, nodes = policy.site[site], policy.privacy, None, None
        ticks = place.contribution_ticks
        if release.by_changes:
            ticks, factor = 2 * place.visits, factor_of(place.visits, place.tick)
            covered = policy.zones_of(release, site)
            sizes = {"zone": len(covered), "floor": len({zone.floor for zone in covered}), "building": 1}
            nodes = tuple(sizes[level] for level in release.levels_up)
        prices = {
            audience: DayPrice(
                release.noise,
                epsilon,
                delta,
                ticks,
                shares,
                privacy.factor_delta,
                privacy.devices_per_person,
                factor,
                nodes,
            )
            for audience, epsilon in release.epsilon.items()
        }
        return cls(prices, ticks, terms_digest(policy, release, site))


# The noise of each audience of a count release, at each level.

Laws = Mapping[Fraction, tuple[NoiseParameter, ...]]
"""Epsilon of an audience -> the noise parameter of each measured level, leaves first; a single one where levels are
sums of measured values."""


def noise_laws(release: CountRelease, days: DayPrices | None, multiplicity: int = 1) -> Laws:
    """Return the noise parameters of a release at a site.

    Args:
        release: of counts.
        days: cost and terms of a day; None if epsilon pays for windows, which have Laplace noise.
        multiplicity: the largest number of names under which one device is counted at once.
    """
    if days is not None:
        prices = days.prices.values()
        return {p.epsilon: tuple(NoiseParameter(p.noise, exact) for exact in p.parameters) for p in prices}
    shares = [release.shares[level] for level in release.levels_up if level in release.shares] or [Fraction(1)]
    return {
        epsilon: tuple(laplace_noise(share * epsilon / multiplicity) for share in shares)
        for epsilon in set(release.epsilon.values())
    }


def check_noise(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError if no noise fits a day's price, or the audiences' noises form no chain of known law."""
    for release in policy.release:
        if isinstance(release, CountRelease) and release.by_day:
            for site in policy.site:
                if policy.zones_of(release, site):
                    _check_days(policy, release, site, file)


def _check_days(policy: PolicyDocument, release: CountRelease, site: str, file: str) -> None:
    try:
        days = DayPrices.of(policy, release, site)
        if release.by_changes:
            for shared in zip(*(price.variances for price in days.prices.values()), strict=True):
                check_chain(shared)
            return
        laws = noise_laws(release, days)
        if release.noise == "gaussian":
            for level in zip(*laws.values(), strict=True):
                check_steps([law.exact for law in level])
    except UsageError as error:
        msg = f"{file}: release '{release.name}' at {site}: noise = '{release.noise}': {error}"
        raise PolicyError(msg) from None


# Prices of threshold streams.


@dataclass(frozen=True, slots=True)
class RunPrice:
    """Prices of one stream at one site."""

    run: Fraction
    """Epsilon of one run, for a device whose changes all have the same sign."""
    most: int
    """The largest number of runs for which a device's day is charged."""

    @property
    def day(self) -> Fraction:
        """The largest cost of a device's privacy day, added or removed."""
        return self.most * self.run

    @classmethod
    def of(cls, policy: PolicyDocument, release: ThresholdRelease, site: str) -> RunPrice:
        """Return the prices of a release that pays per run or per day."""
        nodes = len(nodes_of(release, policy.zones_of(release, site)))
        vectors = 1 if release.hysteresis is None else 2
        runs = min(policy.site[site].contribution_ticks, vectors * release.events * nodes)
        if release.unit == "device_day":
            return cls(Fraction(int(release.price * NANO / runs), NANO), runs)
        budget = release.budget
        most = runs if budget is None else min(runs, int(budget / release.price))
        return cls(release.price, most)

    def terms(self, day: PrivacyDay, runs: int) -> DayTerms:
        """Return the terms of a charge for this number of runs on a privacy day."""
        return DayTerms(day, PURE, (self.run,), runs)


def paid_thresholds(policy: PolicyDocument, site: str) -> list[ThresholdRelease]:
    """Return a site's threshold streams that pay for runs, in the order of the policy."""
    return [r for r in thresholds_at(policy, site) if not r.free]


def thresholds_at(policy: PolicyDocument, site: str) -> list[ThresholdRelease]:
    """Return the threshold streams of a site, in the order of the policy."""
    return [r for r in policy.release if isinstance(r, ThresholdRelease) and policy.zones_of(r, site)]


def check_runs(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError if a price leaves too little epsilon for a run."""
    for site in policy.site:
        for release in paid_thresholds(policy, site):
            price = RunPrice.of(policy, release, site)
            try:
                RunDistribution(price.run).least_shift(
                    release.miss / release.events, release.windows(policy.site[site].tick)
                )
            except UsageError as error:
                each = f", {float(price.run):g} for each of {price.most} runs" if release.unit == "device_day" else ""
                msg = f"{file}: release '{release.name}' at {site}: {error}{each}"
                raise PolicyError(msg) from None
