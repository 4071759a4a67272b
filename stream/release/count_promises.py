"""What a policy's count releases promise: the cost of each privacy unit, for each audience and for all together.

Of a release that is paid by the day, whoever is told less than a day (one observation, w windows) is told what a day
replaced costs (``accounting.day_units``). Its epsilons come with a delta, so they stand beside those that add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream.accounting.charged import coalition_cost
from stream.accounting.costs import Epsilon, UnitCost
from stream.accounting.day_units import day_units, finest
from stream.accounting.device_day import whole_day
from stream.accounting.units import DeviceCosts
from stream.policy.document import EVERYBODY, CountRelease, Policy, Site, audiences_of
from stream.records import DAY, HOUR, DayTerms, Micros
from stream.release.paid_by_day import PaidByDay
from stream.release.run_prices import RunPrice, paid_thresholds

LONGEST_DAY: Micros = DAY + HOUR
"""A local day on which the clocks are put back."""


@dataclass(frozen=True, slots=True)
class CountPromise:
    """What one reader's count release costs, per privacy unit, in epsilons."""

    site: str
    release: str
    reader: str
    mechanism: str
    zones: int
    units: Mapping[str, Epsilon]
    """Added up; infinite where the noise has no such epsilon."""
    terms: DayTerms | None = None
    """Of a release that is paid by the day: what a day's price is for."""
    tight: Mapping[str, float] = field(default_factory=dict)
    """Of such a release: epsilon at ``delta``, in each unit; ``units`` again where that holds without a delta."""
    delta: Fraction = Fraction(0)


def count_promises(policy: Policy) -> list[CountPromise]:
    """Return the cost of every count release, and of every threshold stream, for each audience and for all together."""
    return [*_of_counts(policy), *_of_thresholds(policy)]


def _of_counts(policy: Policy) -> list[CountPromise]:
    return [
        _by_day(policy, site_id, release, reader, names)
        if release.by_day
        else _by_window(policy, site_id, release, reader, names)
        for site_id in policy.site
        for release in counts_of(policy, site_id)
        for reader, names in [
            *((name, (name,)) for name in audiences_of(release)), (EVERYBODY, tuple(audiences_of(release)))
        ]
    ]  # fmt: skip


def _of_thresholds(policy: Policy) -> Iterator[CountPromise]:
    """Yield what streams of decisions cost: all audiences are told the same, and so all together no more."""
    for site in policy.site:
        for release in paid_thresholds(policy, site):
            price = RunPrice.of(policy, release, site)
            terms = price.terms(0, price.most)
            pure = {unit: cost.pure for unit, cost in _units_of(terms, policy.site[site], policy).items()}
            tight, zones = {unit: float(cost) for unit, cost in pure.items()}, len(policy.zones_of(release, site))
            for reader in (*release.audiences, EVERYBODY):
                yield CountPromise(site, release.name, reader, release.mechanism, zones, pure, terms, tight)


def _by_window(
    policy: Policy, site_id: str, release: CountRelease, reader: str, names: tuple[str, ...]
) -> CountPromise:
    site, w, paid = policy.site[site_id], policy.privacy.w, release.windows_paid
    cost, ticks = (
        coalition_cost(release.mechanism, (release.epsilon[name] for name in names)),
        site.ticks_per_observation,
    )
    observation, sliding = (-(-n // paid) * cost for n in (ticks, w))
    costs = DeviceCosts(cost, observation, sliding, day=whole_day(site.tick, ticks).cost(cost, paid))
    units = costs.units(policy.privacy.devices_per_person)
    zones = len(policy.zones_of(release, site_id))
    return CountPromise(site_id, release.name, reader, release.mechanism, zones, units)


def _by_day(policy: Policy, site_id: str, release: CountRelease, reader: str, names: tuple[str, ...]) -> CountPromise:
    site, days = policy.site[site_id], PaidByDay.of(policy, release, site_id)
    terms = finest(days.paid(name, 0) for name in names)
    units = _units_of(terms, site, policy)
    pure = {unit: cost.pure for unit, cost in units.items()}
    if terms.noise == "laplace":
        delta, tight = Fraction(0), {unit: float(cost) for unit, cost in pure.items()}
    else:
        delta = release.delta or policy.privacy.delta
        tight = {unit: cost.composed(delta) for unit, cost in units.items()}
    zones = len(policy.zones_of(release, site_id))
    return CountPromise(site_id, release.name, reader, release.mechanism, zones, pure, terms, tight, delta)


def _units_of(terms: DayTerms, site: Site, policy: Policy) -> dict[str, UnitCost]:
    return day_units(terms, policy.privacy.w * site.tick, policy.privacy.devices_per_person)


def counts_exponent(policy: Policy, site: str, zone: str, audiences: frozenset[str]) -> Fraction:
    """Return Σ k n ε over the count releases of a zone that these audiences see together.

    Where an ε pays for w windows, n is the number of ε that n ticks of a day may cost (``Mechanism.epsilons_for``).
    Where it pays for a privacy day, a changed reading may move all of the day, and of the two that a local day may
    lie in: twice the loss that such a day does not exceed.
    """
    total = Fraction(0)
    for release in counts_of(policy, site):
        if zone in {covered.id for covered in policy.zones_of(release, site)}:
            seen = [name for name in audiences_of(release) if name in audiences]
            total += (
                _of_changed_day(policy, site, release, seen)
                if release.by_day
                else _of_ticks(policy, site, release, seen)
            )
    for stream in paid_thresholds(policy, site):
        told = zone in {covered.id for covered in policy.zones_of(stream, site)} and audiences & set(stream.audiences)
        if told:
            total += _days_touched(policy, site) * 2 * RunPrice.of(policy, stream, site).day
    return total * policy.privacy.devices_per_person


def _of_changed_day(policy: Policy, site: str, release: CountRelease, seen: list[str]) -> Fraction:
    prices = PaidByDay.of(policy, release, site).prices
    return _days_touched(policy, site) * max((prices[name].changed for name in seen), default=Fraction(0))


def _days_touched(policy: Policy, site: str) -> int:
    """Return how many privacy days a local day may lie in."""
    return 1 if policy.site[site].day_starts == "00:00" else 2


def _of_ticks(policy: Policy, site: str, release: CountRelease, seen: list[str]) -> Fraction:
    ticks, windows = policy.privacy.ticks_per_attribute, LONGEST_DAY // policy.site[site].tick
    paid = release.declared.epsilons_for(release.windows_paid, ticks, windows)
    return paid * coalition_cost(release.mechanism, (release.epsilon[name] for name in seen))


def counts_of(policy: Policy, site: str) -> Iterator[CountRelease]:
    """Yield the count releases that cover a zone of a site."""
    return (r for r in policy.release if isinstance(r, CountRelease) and policy.zones_of(r, site))
