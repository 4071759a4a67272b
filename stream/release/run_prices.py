"""What a threshold stream's runs cost at a site: the price of one, and the most that a day can cost one device."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream.errors import PolicyError, UsageError
from stream.mechanisms.run_law import RunLaw
from stream.policy.document import NANO, Policy, ThresholdRelease
from stream.policy.threshold_release import nodes_of
from stream.records import PURE, DayTerms

STREAMS = "#thresholds"
"""Under this name, which no release can have, ``PaidDays`` knows the terms of a site's streams together."""


@dataclass(frozen=True, slots=True)
class RunPrice:
    """Prices of one stream at one site."""

    run: Fraction
    """Epsilon of one run, for a device of which all changes have one sign."""
    most: int
    """Runs that a device's day is charged for at most."""
    unlimited: int
    """The same if no budget ended it."""

    @property
    def day(self) -> Fraction:
        """The most that a device's privacy day costs, added or removed."""
        return self.most * self.run

    @classmethod
    def of(cls, policy: Policy, release: ThresholdRelease, site: str) -> RunPrice:
        """Return the prices of a release that pays by the run or by the day."""
        nodes = len(nodes_of(release, policy.zones_of(release, site)))
        vectors = 1 if release.hysteresis is None else 2
        runs = min(policy.site[site].contribution_ticks, vectors * release.events * nodes)
        if release.unit == "device_day":
            return cls(Fraction(int(release.price * NANO / runs), NANO), runs, runs)
        budget = release.budget
        most = runs if budget is None else min(runs, int(budget / release.price))
        return cls(release.price, most, runs)

    def terms(self, day: int, runs: int) -> DayTerms:
        """Return what so many runs on a privacy day are charged for."""
        return DayTerms(day, PURE, (self.run,), runs)


def paid_thresholds(policy: Policy, site: str) -> list[ThresholdRelease]:
    """Return a site's threshold streams that pay for runs, in the order of the policy."""
    return [r for r in thresholds_at(policy, site) if not r.free]


def thresholds_at(policy: Policy, site: str) -> list[ThresholdRelease]:
    """Return the threshold streams of a site, in the order of the policy."""
    return [r for r in policy.release if isinstance(r, ThresholdRelease) and policy.zones_of(r, site)]


def check_runs(policy: Policy, file: str = "policy") -> None:
    """Raise PolicyError where a price leaves a run too little to ask with."""
    for site in policy.site:
        for release in paid_thresholds(policy, site):
            price = RunPrice.of(policy, release, site)
            try:
                RunLaw(price.run).least_shift(release.miss / release.events, release.windows(policy.site[site].tick))
            except UsageError as error:
                each = f", {float(price.run):g} for each of {price.most} runs" if release.unit == "device_day" else ""
                msg = f"{file}: release '{release.name}' at {site}: {error}{each}"
                raise PolicyError(msg) from None
