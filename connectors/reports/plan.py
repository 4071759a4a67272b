"""What a day under a policy will cost and how good its releases will be, before anything runs.

Errors are those on the day that ``tacet simulate --seed 1`` makes, or on a recording (``tried_days``), at each level
that a release tells of. A release that is paid by the day and leaves zones out is tried with zones, too, as if all
levels had equal shares of the price: where zones are not worth publishing at it, the plan says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from connectors.reports.quality import Quality, expected_quality
from connectors.reports.tried_days import Windows, simulated_windows
from stream.accounting.costs import Epsilon
from stream.accounting.device_day import whole_day
from stream.policy.document import EVERYBODY, CountRelease, Policy, audiences_of, decimal_string
from stream.records import DAY
from stream.release.budgets import companions
from stream.release.count_promises import CountPromise, count_promises
from stream.release.promises import attribute_promises
from stream.release.threshold_promises import threshold_promises
from stream.schemas import json_float


def plan(policy: Policy, days: Windows | None = None) -> dict[str, Any]:
    """Return, per site, release and audience: epsilons, costs per unit, releases that fit, expected error.

    ``days`` are what it is tried on, None the simulated day; of recorded ones the result is restricted, too.
    """
    tried = simulated_windows(policy) if days is None else days
    promises = {(p.site, p.release, p.reader): p for p in count_promises(policy)}
    counts = [
        _count_row(policy, site, release, audience, promises[site, release.name, audience], tried)
        for site in policy.site
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for audience in audiences_of(release)
    ]
    coalitions = [
        {"site": p.site, "release": p.release, "reader": EVERYBODY, "cost": _decimals(p.units)}
        for key, p in promises.items()
        if key[2] == EVERYBODY
    ]
    attributes = [
        {
            "site": a.site, "release": a.release, "attribute": a.attribute, "audience": a.reader,
            "epsilon": decimal_string(a.epsilon), "zones": _covered(policy, a.site, a.release),
            "factor": a.factor, "exact": json_float(a.exact), "with_counts": json_float(a.with_counts),
            "habit": {str(days): json_float(factor) for days, factor in a.habit.items()},
        }
        for a in attribute_promises(policy)
        if a.reader != EVERYBODY
    ]  # fmt: skip
    return {
        "policy_version": policy.version, "counts": counts, "coalitions": coalitions, "attributes": attributes,
        "thresholds": [promise.figures() for promise in threshold_promises(policy)],
    }  # fmt: skip


def _count_row(
    policy: Policy, site: str, release: CountRelease, audience: str, promise: CountPromise, days: Windows
) -> dict[str, Any]:
    epsilon = release.epsilon[audience]
    windows = DAY // policy.site[site].tick
    fit = windows if release.by_day else releases_that_fit(release, audience, windows, policy.privacy.w)
    levels = expected_quality(policy, site, release, epsilon, days)
    zones = expected_quality(policy, site, _of_zones(release), epsilon, days) if _hides_zones(release) else {}
    cost = _cost_of_day(promise, epsilon) if release.by_day else _cost_of_windows(policy, site, release, audience, fit)
    return {
        "site": site,
        "release": release.name,
        "audience": audience,
        "mechanism": release.mechanism,
        "epsilon": decimal_string(epsilon),
        "windows_per_day": windows,
        "daily_budget": _decimal(release.daily_budget.get(audience)),
        "refresh_days": release.refresh_days,
        "w_budget": _decimal(release.w_budget.get(audience)),
        "releases_that_fit": fit,
        "unit": release.unit,
        "cost": _decimals({**promise.units, **cost}),
        "tight": {unit: {"epsilon": round(e, 6), "delta": float(promise.delta)} for unit, e in promise.tight.items()},
        **next((_figures(expected) for expected in levels.values()), _figures(None)),
        "levels": {level: _figures(expected) | _beside(expected) for level, expected in levels.items()},
        "left_out": {level: _figures(expected) | _beside(expected) for level, expected in zones.items()},
    }


def _figures(expected: Quality | None) -> dict[str, Any]:
    """Return what is expected at one level; nothing where no window was tried."""
    return {
        "expected_mean_absolute_error": None if expected is None else round(expected.error, 4),
        "expected_mean_count": None if expected is None else round(expected.mean, 4),
        "worse_than_zero": expected is not None and expected.worse_than_zero,
    }


def _beside(expected: Quality) -> dict[str, Any]:
    return {"median_error": round(expected.median, 4), "worse_than_median": expected.worse_than_median}


def _hides_zones(release: CountRelease) -> bool:
    """Whether a release leaves out zones, at a price that is paid by the day."""
    return release.by_day and "zone" not in release.levels


def _of_zones(release: CountRelease) -> CountRelease:
    """Return the zones that a release leaves out, with the share that they would have if all levels had the same."""
    return release.model_copy(update={"levels": ("zone",), "shares": {"zone": Fraction(1, len(release.levels) + 1)}})


def _cost_of_day(promise: CountPromise, epsilon: Fraction) -> dict[str, Epsilon]:
    """Return what a day costs and a window more: a release that is paid by the day charges the day at once."""
    return {"window": Fraction(0), "day": epsilon, "device_day": promise.units["device_day"]}


def _cost_of_windows(policy: Policy, site: str, release: CountRelease, audience: str, fit: int) -> dict[str, Epsilon]:
    """Return what a window costs, and what units may cost at most in the windows of a day that budgets pay."""
    epsilon, charge = release.epsilon[audience], release.charge(audience)
    of_day = whole_day(policy.site[site].tick, policy.site[site].ticks_per_observation, fit)
    person, w = policy.privacy.devices_per_person, policy.privacy.w
    budgets = [release.w_budget[name] for name in companions(release, audience) if name in release.w_budget]
    sliding = -(-w // release.windows_paid) * epsilon
    longest = {"day": of_day.cost(epsilon, release.windows_paid), "w_event": min([sliding, *budgets])}
    whole = whole_day(policy.site[site].tick, policy.site[site].ticks_per_observation).cost(
        epsilon, release.windows_paid
    )
    longest["day"] = min(longest["day"], whole)
    spans = {
        f"{of}_{span}": n * most for span, most in longest.items() for of, n in (("device", 1), ("person", person))
    }
    spans |= {f"device_{span}_moved": 2 * most for span, most in longest.items()}
    return {"window": charge, "day": charge * fit, **spans}


def releases_that_fit(release: CountRelease, audience: str, windows: int, w: int) -> int:
    """Return the most windows of one day that the budgets pay: the first day of a refresh, from its beginning.

    Audiences of equal epsilon read the same value, so each gets what the poorest of them can pay.
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
