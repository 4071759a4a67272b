"""The expected cost of a day, and the quality of its releases.

Errors are measured on the day that ``tacet simulate --seed 1`` makes, or on a recording, at each level that a release
publishes. A release that is charged per day and omits zones is also tried with zones, with equal shares of the price
for all levels: if zones are not worth publishing at that price, the plan says so.

``targets`` finds, for each release and level, the least epsilon whose error reaches a target. It tries epsilons of two
significant digits, since one day of noise supports no more. Each gets the noise that its price buys (for a day of
gaussian noise the sigma of the fixed grid, ``calibrate``), always drawn with public keys. A larger epsilon may have a
larger error, because its noise is another draw; the result therefore is an epsilon that reaches the target, next to one
of the same grid that does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from connectors.operations.policy.quality import (
    ByLevelQuality,
    Quality,
    Windows,
    expected_quality,
    simulated_windows,
    tried_windows,
)
from stream.accounting.calibration import LeastNoiseError
from stream.accounting.costs import Epsilon, coalition_cost
from stream.accounting.units import day_cells
from stream.errors import UsageError
from stream.policy.counts import CountRelease
from stream.policy.document import audiences_of
from stream.policy.fields import EVERYBODY, decimal_string
from stream.policy.sites import Site
from stream.records import DAY, JsonObject
from stream.release.attribute_guarantees import AttributeGuarantee, attribute_guarantees
from stream.release.budgets import companions
from stream.release.count_guarantees import CountGuarantee, count_guarantees
from stream.release.prices import DayPrices
from stream.release.threshold_guarantees import ThresholdGuarantee, threshold_guarantees
from stream.release.validation import Policy
from stream.schemas import json_float


@dataclass(frozen=True, slots=True)
class PlannedCounts:
    """The cost and the quality of a day of one count release at one site, for one audience."""

    site: str
    release: CountRelease
    audience: str
    guarantee: CountGuarantee
    windows_per_day: int
    releases_that_fit: int
    """The windows of a day that the budgets pay."""
    cost: Mapping[str, Epsilon]
    """Of a window, of the day, and in each privacy unit."""
    levels: ByLevelQuality
    """Empty if no window was tried."""
    left_out: ByLevelQuality
    """Of zones that the release omits, as if all levels had equal shares of its price."""

    def figures(self) -> JsonObject:
        """Return the machine-readable form."""
        release, audience = self.release, self.audience
        return {
            "site": self.site, "release": release.name, "audience": audience, "mechanism": release.mechanism,
            "epsilon": decimal_string(release.epsilon[audience]), "windows_per_day": self.windows_per_day,
            "daily_budget": _decimal(release.daily_budget.get(audience)), "refresh_days": release.refresh_days,
            "w_budget": _decimal(release.w_budget.get(audience)), "releases_that_fit": self.releases_that_fit,
            "unit": release.unit, "cost": _decimals(self.cost),
            "tight": {
                unit: {"epsilon": round(epsilon, 6), "delta": float(self.guarantee.delta)}
                for unit, epsilon in self.guarantee.tight.items()
            },
            **_errors(next(iter(self.levels.values()), None)),
            "levels": {level: _level_figures(quality) for level, quality in self.levels.items()},
            "left_out": {level: _level_figures(quality) for level, quality in self.left_out.items()},
        }  # fmt: skip


def _level_figures(quality: Quality) -> dict[str, float | bool | None]:
    median = {"median_error": round(quality.median, 4), "worse_than_median": quality.worse_than_median}
    return _errors(quality) | median


def _errors(quality: Quality | None) -> dict[str, float | bool | None]:
    return {
        "expected_mean_absolute_error": None if quality is None else round(quality.error, 4),
        "expected_mean_count": None if quality is None else round(quality.mean, 4),
        "worse_than_zero": quality is not None and quality.worse_than_zero,
    }


@dataclass(frozen=True, slots=True)
class PlannedAttribute:
    """The cost of one attribute of a site's days, for one audience."""

    guarantee: AttributeGuarantee
    zones: int
    """How many zones it is released for."""

    def figures(self) -> JsonObject:
        """Return the machine-readable form."""
        each = self.guarantee
        return {
            "site": each.site, "release": each.release, "attribute": each.attribute, "audience": each.reader,
            "epsilon": decimal_string(each.epsilon), "zones": self.zones, "factor": each.factor,
            "exact": json_float(each.exact), "with_counts": json_float(each.with_counts),
            "habit": {str(days): json_float(factor) for days, factor in each.habit.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """The expected cost and quality of a day under a policy."""

    policy_version: str
    counts: list[PlannedCounts]
    coalitions: list[CountGuarantee]
    """The cost of each count release for all audiences together."""
    attributes: list[PlannedAttribute]
    thresholds: list[ThresholdGuarantee]

    def figures(self) -> JsonObject:
        """Return the machine-readable form."""
        return {
            "policy_version": self.policy_version,
            "counts": [each.figures() for each in self.counts],
            "coalitions": [
                {"site": p.site, "release": p.release, "reader": p.reader, "cost": _decimals(p.units)}
                for p in self.coalitions
            ],
            "attributes": [each.figures() for each in self.attributes],
            "thresholds": [each.figures() for each in self.thresholds],
        }


def plan(policy: Policy, days: Windows | None = None, tick: Callable[[], None] = lambda: None) -> Plan:
    """Return, per site, release and audience: epsilons, costs per unit, releases that fit, expected error.

    Args:
        policy: what is planned.
        days: what it is tried on, None for the simulated day; of recorded ones the result is restricted, too.
        tick: called after each window that was tried; ``windows_to_try`` says how often.
    """
    tried = simulated_windows(policy) if days is None else days
    guarantees = {(p.site, p.release, p.reader): p for p in count_guarantees(policy)}
    return Plan(
        policy.version,
        counts=[
            _planned_counts(policy, site, release, audience, guarantees[site, release.name, audience], tried, tick)
            for site, release, audience in _planned(policy)
        ],
        coalitions=[guarantee for guarantee in guarantees.values() if guarantee.reader == EVERYBODY],
        attributes=[
            PlannedAttribute(guarantee, _covered(policy, guarantee.site, guarantee.release))
            for guarantee in attribute_guarantees(policy)
            if guarantee.reader != EVERYBODY
        ],
        thresholds=threshold_guarantees(policy),
    )


def windows_to_try(policy: Policy, days: Windows) -> int:
    """Return how many windows a plan tries, once for each release and audience, and again with zones left out."""
    return sum(
        len(tried_windows(release, days[site])) * (2 if _hides_zones(release) else 1)
        for site, release, _ in _planned(policy)
    )


def _planned(policy: Policy) -> Iterator[tuple[str, CountRelease, str]]:
    """Yield each site, release and audience that gets counts."""
    for site in policy.site:
        for release in policy.release:
            if isinstance(release, CountRelease) and policy.zones_of(release, site):
                yield from ((site, release, audience) for audience in audiences_of(release))


def _planned_counts(
    policy: Policy, site: str, release: CountRelease, audience: str, guarantee: CountGuarantee, days: Windows,
    tick: Callable[[], None],
) -> PlannedCounts:  # fmt: skip
    epsilon = release.epsilon[audience]
    windows = DAY // policy.site[site].tick
    fit = windows if release.by_day else releases_that_fit(release, audience, windows, policy.privacy.w)
    levels = expected_quality(policy, site, release, epsilon, days, tick)
    all_levels = (
        expected_quality(policy, site, _with_zones(release), epsilon, days, tick) if _hides_zones(release) else {}
    )
    cost = (
        _cost_of_day(guarantee, epsilon) if release.by_day else _cost_of_windows(policy, site, release, audience, fit)
    )
    return PlannedCounts(
        site, release, audience, guarantee,
        windows_per_day=windows, releases_that_fit=fit, cost={**guarantee.units, **cost}, levels=levels,
        left_out={level: quality for level, quality in all_levels.items() if level == "zone"},
    )  # fmt: skip


def _hides_zones(release: CountRelease) -> bool:
    """Whether a release omits zones at a price that is charged per day."""
    return release.by_day and "zone" not in release.levels


def _with_zones(release: CountRelease) -> CountRelease:
    """Return a release with the zones that it omits, and equal shares for all levels."""
    levels = ("zone", *release.levels)
    return release.model_copy(update={"levels": levels, "shares": dict.fromkeys(levels, Fraction(1, len(levels)))})


def _cost_of_day(guarantee: CountGuarantee, epsilon: Fraction) -> dict[str, Epsilon]:
    """Return the costs of a day and of a further window: a release that is charged per day charges the day at once."""
    return {"window": Fraction(0), "day": epsilon, "device_day": guarantee.units["device_day"]}


def _cost_of_windows(policy: Policy, site: str, release: CountRelease, audience: str, fit: int) -> dict[str, Epsilon]:
    """Return the cost of a window, and the maximal cost per unit in the windows of a day that budgets pay."""
    epsilon, charge = release.epsilon[audience], release.charge(audience)
    of_day = day_cells(policy.site[site].tick, policy.site[site].ticks_per_observation, fit)
    person, w = policy.privacy.devices_per_person, policy.privacy.w
    budgets = [release.w_budget[name] for name in companions(release, audience) if name in release.w_budget]
    sliding = -(-w // release.windows_paid) * epsilon
    longest = {"day": of_day.cost(epsilon, release.windows_paid), "w_event": min([sliding, *budgets])}
    whole = day_cells(policy.site[site].tick, policy.site[site].ticks_per_observation).cost(
        epsilon, release.windows_paid
    )
    longest["day"] = min(longest["day"], whole)
    spans = {
        f"{of}_{span}": n * most for span, most in longest.items() for of, n in (("device", 1), ("person", person))
    }
    spans |= {f"device_{span}_moved": 2 * most for span, most in longest.items()}
    return {"window": charge, "day": charge * fit, **spans}


def releases_that_fit(release: CountRelease, audience: str, windows: int, w: int) -> int:
    """Return the most windows of one day that the budgets pay, on the first day of a budget period.

    Audiences of equal epsilon read the same value, so each gets what the smallest of their budgets can pay.
    """
    return min(_paid(release, name, windows, w) for name in companions(release, audience))


def _paid(release: CountRelease, audience: str, windows: int, w: int) -> int:
    """Return the windows of a day that an audience's own budgets pay."""
    charge, fit = release.charge(audience), windows
    if audience in release.daily_budget:
        fit = min(fit, int(release.daily_budget[audience] / charge))
    if audience in release.w_budget:
        each = min(w, int(release.w_budget[audience] / charge))
        fit = min(fit, windows // w * each + min(windows % w, each))
    return fit


def _covered(policy: Policy, site: str, release: str) -> int:
    return next(len(policy.zones_of(r, site)) for r in policy.release if r.name == release)


def _decimal(value: Fraction | None) -> str | None:
    return None if value is None else decimal_string(value)


def _decimals(units: Mapping[str, Epsilon]) -> dict[str, str]:
    return {unit: decimal_string(value) for unit, value in units.items()}


TRIED = tuple(Fraction(digits) * Fraction(10) ** power for power in (-3, -2, -1, 0) for digits in range(10, 100))
"""The tried epsilons, ascending: all numbers of two digits from 0.01 to 99."""


@dataclass(frozen=True, slots=True)
class Target:
    """The least epsilon with which a release reaches the wanted error at one level of a site."""

    site: str
    release: CountRelease
    level: str
    epsilon: Fraction | None = None
    """None if no tried epsilon reaches the error, and so the other figures."""
    epsilon_a_day: Fraction | None = None
    """What a device's day costs at this epsilon."""
    quality: Quality | None = None

    def figures(self) -> JsonObject:
        """Return the machine-readable form."""
        return {
            "site": self.site, "release": self.release.name, "level": self.level, "unit": self.release.unit,
            "reached": self.epsilon is not None,
            "epsilon": _decimal(self.epsilon), "epsilon_a_day": _decimal(self.epsilon_a_day),
            "mean_absolute_error": None if self.quality is None else round(self.quality.error, 4),
            "mean_count": None if self.quality is None else round(self.quality.mean, 4),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Targets:
    """The epsilons with which the releases of a policy reach an error."""

    policy_version: str
    target_error: Fraction
    """As a share of the mean count."""
    targets: list[Target]

    def figures(self) -> JsonObject:
        """Return the machine-readable form."""
        return {
            "policy_version": self.policy_version, "target_error": float(self.target_error),
            "targets": [each.figures() for each in self.targets],
        }  # fmt: skip


def targets(policy: Policy, days: Windows, target: Fraction, tick: Callable[[], None] = lambda: None) -> Targets:
    """Return, per site, release and level, the least epsilon whose mean error is at most ``target`` of the mean
    count.

    Args:
        policy: supplies the releases, each tried with one audience and without budgets.
        days: the windows to try.
        target: a fraction of the mean count, above 0.
        tick: called after each tried epsilon.
    """
    found = [
        each
        for site in policy.site
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for each in _targets(policy, site, release, _tried(policy, site, release, days, tick), target)
    ]
    return Targets(policy.version, target, found)


Errors = Callable[[Fraction], ByLevelQuality]
"""Epsilon -> quality of the release; empty if its noise cannot be drawn."""


def _tried(policy: Policy, site: str, release: CountRelease, days: Windows, tick: Callable[[], None]) -> Errors:
    """Return a function that tries a release at an epsilon, each epsilon once, because its levels are searched one
    after another."""
    by_epsilon: dict[Fraction, ByLevelQuality] = {}

    def errors(epsilon: Fraction) -> ByLevelQuality:
        if epsilon not in by_epsilon:
            by_epsilon[epsilon] = _at(policy, site, release, epsilon, days)
            tick()
        return by_epsilon[epsilon]

    return errors


def _asks_too_little(policy: Policy, site: str, release: CountRelease, epsilon: Fraction) -> bool:
    """Whether an epsilon implies less noise than is supported."""
    if not release.by_day:
        return False
    days = DayPrices.of(policy, _alone(release, epsilon), site)
    try:
        for price in days.prices.values():
            _ = price.parameters
    except LeastNoiseError:
        return True
    except UsageError:
        pass
    return False


def _alone(release: CountRelease, epsilon: Fraction) -> CountRelease:
    """Return a release with one audience and no budget."""
    alone = {"epsilon": {next(iter(release.epsilon)): epsilon}, "daily_budget": {}, "w_budget": {}}
    return release.model_copy(update=alone)


def _at(policy: Policy, site: str, release: CountRelease, epsilon: Fraction, days: Windows) -> ByLevelQuality:
    try:
        return expected_quality(policy, site, _alone(release, epsilon), epsilon, days)
    except UsageError:
        return {}


def _targets(
    policy: Policy, site: str, release: CountRelease, errors: Errors, target: Fraction
) -> Iterator[Target]:  # fmt: skip
    tried = TRIED[: bisect_left(TRIED, True, key=partial(_asks_too_little, policy, site, release))]
    for level in release.levels_up:
        found = bisect_left(tried, True, key=partial(_reached, errors, level, target))
        epsilon = tried[found] if found < len(tried) else None
        if epsilon is None:
            yield Target(site, release, level)
        else:
            a_day = _of_device_day(policy.site[site], release, epsilon)
            yield Target(site, release, level, epsilon, a_day, errors(epsilon)[level])


def _reached(errors: Errors, level: str, target: Fraction, epsilon: Fraction) -> bool:
    found = errors(epsilon).get(level)
    return found is not None and found.error <= float(target) * found.mean


def _of_device_day(site: Site, release: CountRelease, epsilon: Fraction) -> Fraction:
    """Return the cost of a device's day: epsilon if it pays for a day, else that of all its windows together."""
    if release.by_day:
        return epsilon
    cells = day_cells(site.tick, site.ticks_per_observation)
    return cells.cost(coalition_cost(release.mechanism, [epsilon]), release.windows_paid)
