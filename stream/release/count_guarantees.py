"""The guarantees of count releases: what they cost each privacy unit, and what they reveal of an attribute.

``count_guarantees`` returns the cost of each privacy unit, for each audience and for all together. For a release that
is paid by the day, units smaller than a day (one observation, w windows) cost as much as a replaced day
(``accounting.day_charges``). Its epsilons come with a delta, so they are listed beside those that add up. Threshold
streams that pay for runs cost the same units; ``threshold_guarantees`` has what they promise of their decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream.accounting.adversaries import Knowledge
from stream.accounting.costs import Epsilon, UnitCost, coalition_cost
from stream.accounting.day_charges import day_units, finest
from stream.accounting.units import DeviceCosts, GroupSizes, day_cells
from stream.errors import PolicyError, UsageError
from stream.policy.counts import CountRelease
from stream.policy.document import PolicyDocument, audiences_of
from stream.policy.fields import EVERYBODY
from stream.policy.sites import Site
from stream.records import DAY, LONGEST_DAY, DayTerms, PrivacyDay
from stream.release.prices import DayPrices, RunPrice, paid_thresholds

ANY_DAY = PrivacyDay(0, 0, DAY)
"""Each day of a release is paid on the same terms."""


@dataclass(frozen=True, slots=True)
class CountGuarantee:
    """The cost of one count release for one reader, per privacy unit, in epsilons."""

    site: str
    release: str
    reader: str
    mechanism: str
    zones: int
    units: Mapping[str, Epsilon]
    """Sums of pure epsilons; infinite where the noise has no pure epsilon."""
    terms: DayTerms | None = None
    """The terms that a day's price pays for; only for a release that is paid per day."""
    tight: Mapping[str, float] = field(default_factory=dict)
    """For such a release, epsilon at ``delta`` in each unit; equal to ``units`` if that holds without a delta."""
    delta: Fraction = Fraction(0)
    scales: tuple[float, ...] = ()
    """Where changes are paid for, the largest standard deviation of each level's noisy counts within a day, for the
    reader with the least noise."""


def count_guarantees(policy: PolicyDocument) -> list[CountGuarantee]:
    """Return the cost of every count release, and of every threshold stream, for each audience and for all together."""
    return [*_of_counts(policy), *_of_thresholds(policy)]


def _of_counts(policy: PolicyDocument) -> list[CountGuarantee]:
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


def _of_thresholds(policy: PolicyDocument) -> Iterator[CountGuarantee]:
    """Yield the cost of decision streams: all audiences receive the same records, so the coalition pays no more."""
    for site in policy.site:
        for release in paid_thresholds(policy, site):
            price = RunPrice.of(policy, release, site)
            terms = price.terms(ANY_DAY, price.most)
            pure = {unit: cost.pure for unit, cost in _units_of(terms, policy.site[site], policy).items()}
            tight, zones = {unit: float(cost) for unit, cost in pure.items()}, len(policy.zones_of(release, site))
            for reader in (*release.audiences, EVERYBODY):
                yield CountGuarantee(site, release.name, reader, release.mechanism, zones, pure, terms, tight)


def _by_window(
    policy: PolicyDocument, site_id: str, release: CountRelease, reader: str, names: tuple[str, ...]
) -> CountGuarantee:
    site, ticks = policy.site[site_id], policy.site[site_id].ticks_per_observation
    cost = coalition_cost(release.mechanism, (release.epsilon[name] for name in names))

    def of(windows: int, *, in_a_day: bool = False) -> Fraction:
        return _consecutive(policy, site, release, names, windows, in_a_day=in_a_day)

    # The windows of a UTC day, one before it and some after it; see ``whole_day``.
    day = of(1) + of(DAY // site.tick, in_a_day=True) + of(ticks - 1) + of(ticks)
    if release.windows_paid > 1:
        day = day_cells(site.tick, ticks).cost(cost, release.windows_paid)
    costs = DeviceCosts(cost, of(ticks), of(policy.privacy.w), day)
    units = costs.units(policy.privacy.devices_per_person)
    zones = len(policy.zones_of(release, site_id))
    return CountGuarantee(site_id, release.name, reader, release.mechanism, zones, units)


def _consecutive(
    policy: PolicyDocument, site: Site, release: CountRelease, names: tuple[str, ...], windows: int, *, in_a_day: bool
) -> Fraction:
    """Return the largest cost of this number of consecutive windows for some audiences, within the budgets.

    Audiences of equal epsilon receive a window all together or not at all. Others may receive different windows, each
    of which then costs separately.

    Args:
        in_a_day: whether all of them begin in one UTC day.
    """
    epsilons = {release.epsilon[name] for name in names}
    together = coalition_cost(release.mechanism, epsilons)
    if release.windows_paid > 1:
        return -(-windows // release.windows_paid) * together
    # The largest number of periods of a daily budget that contain one of the windows.
    periods = 1 if in_a_day else (release.refresh + (windows - 2) * site.tick) // release.refresh + 1
    alone = Fraction(0)
    for epsilon in epsilons:
        paid = windows
        for name in (name for name in audiences_of(release) if release.epsilon[name] == epsilon):
            if name in release.daily_budget:
                paid = min(paid, periods * int(release.daily_budget[name] / release.charge(name)))
            if name in release.w_budget:
                paid = min(paid, -(-windows // policy.privacy.w) * int(release.w_budget[name] / release.charge(name)))
        alone += paid * coalition_cost(release.mechanism, [epsilon])
    return min(windows * together, alone)


def _by_day(
    policy: PolicyDocument, site_id: str, release: CountRelease, reader: str, names: tuple[str, ...]
) -> CountGuarantee:
    site, days = policy.site[site_id], DayPrices.of(policy, release, site_id)
    terms = finest(days.prices[name].terms(ANY_DAY) for name in names)
    units = _units_of(terms, site, policy)
    pure = {unit: cost.pure for unit, cost in units.items()}
    if terms.noise == "laplace":
        delta, tight = Fraction(0), {unit: float(cost) for unit, cost in pure.items()}
    else:
        delta = release.delta or policy.privacy.delta
        tight = {unit: cost.composed(delta) for unit, cost in units.items()}
    zones = len(policy.zones_of(release, site_id))
    scales = tuple(min(days.prices[name].scales for name in names)) if release.by_changes else ()
    return CountGuarantee(site_id, release.name, reader, release.mechanism, zones, pure, terms, tight, delta, scales)


def _units_of(terms: DayTerms, site: Site, policy: PolicyDocument) -> dict[str, UnitCost]:
    group_sizes = GroupSizes(policy.privacy.devices_per_person, site.counts_logins)
    return day_units(terms, policy.privacy.w * site.tick, group_sizes)


def counts_exponent(policy: PolicyDocument, site: str, zone: str, audiences: frozenset[str]) -> Fraction:
    """Return Σ k n ε over the count releases of a zone that these audiences receive together.

    If an ε pays for w windows, n is the number of ε that n ticks of a day may cost (``Mechanism.epsilons_for``). If
    an ε pays for a privacy day, a changed reading may change the whole day, and a local day may overlap two privacy
    days: the sum then counts twice the loss that such a day does not exceed.
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
        covered = {each.id for each in policy.zones_of(stream, site)}
        if zone in covered and audiences & set(stream.audiences):
            total += _days_touched(policy, site) * 2 * RunPrice.of(policy, stream, site).day
    return total * policy.privacy.devices_per_person


def _of_changed_day(policy: PolicyDocument, site: str, release: CountRelease, seen: list[str]) -> Fraction:
    prices = DayPrices.of(policy, release, site).prices
    return _days_touched(policy, site) * max((prices[name].changed for name in seen), default=Fraction(0))


def _days_touched(policy: PolicyDocument, site: str) -> int:
    """Return how many privacy days a local day may overlap."""
    return 1 if policy.site[site].day_starts == "00:00" else 2


def _of_ticks(policy: PolicyDocument, site: str, release: CountRelease, seen: list[str]) -> Fraction:
    ticks, windows = policy.privacy.ticks_per_attribute, LONGEST_DAY // policy.site[site].tick
    paid = release.declared.epsilons_for(release.windows_paid, ticks, windows)
    return paid * coalition_cost(release.mechanism, (release.epsilon[name] for name in seen))


def counts_of(policy: PolicyDocument, site: str) -> Iterator[CountRelease]:
    """Yield the count releases that cover a zone of a site."""
    return (r for r in policy.release if isinstance(r, CountRelease) and policy.zones_of(r, site))


def check_knowledge(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError when no leakage can be computed from the declared mobility model."""
    try:
        Knowledge.of(policy.privacy)
    except UsageError as error:
        msg = f"{file}: privacy.mobility.{error}"
        raise PolicyError(msg) from None
