"""Which epsilon makes a release good enough: for each release and level, the least whose error reaches a target.

Tried are epsilons of two digits, for one day of noise says no more; each gets the noise that its price buys (for a
day of gaussian noise the sigma of the fixed grid, ``calibrate``), always drawn with the keys that everybody knows. A
larger epsilon does not always have the smaller error, as its noise is another draw, so what is found is an epsilon that
reaches the target beside one of the same grid that does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from connectors.reports.quality import ByLevelQuality, expected_quality
from connectors.reports.tried_days import Windows
from stream.accounting.charged import coalition_cost
from stream.accounting.device_day import whole_day
from stream.errors import UsageError
from stream.policy.document import CountRelease, Policy, decimal_string
from stream.policy.sites import Site

TRIED = tuple(Fraction(digits) * Fraction(10) ** power for power in (-3, -2, -1, 0) for digits in range(10, 100))
"""Epsilons, ascending: all numbers of two digits from 0.01 to 99."""


def targets(
    policy: Policy, days: Windows, target: Fraction, tick: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Return, per site, release and level, the least epsilon whose mean error is at most ``target`` of the mean count.

    Args:
        policy: whose releases are tried, each with one audience and without budgets.
        days: what they are tried on.
        target: a part of the mean count, above 0.
        tick: called after each epsilon that was tried.
    """
    return [
        row
        for site in policy.site
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for row in _rows(policy, site, release, _tried(policy, site, release, days, tick), target)
    ]


Errors = Callable[[Fraction], ByLevelQuality]
"""Epsilon -> how good the release is; nothing where its noise cannot be made."""


def _tried(policy: Policy, site: str, release: CountRelease, days: Windows, tick: Callable[[], None]) -> Errors:
    """Return what tries a release at an epsilon, each once: its levels are looked for one after another."""
    held: dict[Fraction, ByLevelQuality] = {}

    def errors(epsilon: Fraction) -> ByLevelQuality:
        if epsilon not in held:
            held[epsilon] = _at(policy, site, release, epsilon, days)
            tick()
        return held[epsilon]

    return errors


def _at(policy: Policy, site: str, release: CountRelease, epsilon: Fraction, days: Windows) -> ByLevelQuality:
    alone = {"epsilon": {next(iter(release.epsilon)): epsilon}, "daily_budget": {}, "w_budget": {}}
    try:
        return expected_quality(policy, site, release.model_copy(update=alone), epsilon, days)
    except UsageError:
        return {}


def _rows(
    policy: Policy, site: str, release: CountRelease, errors: Errors, target: Fraction
) -> Iterator[dict[str, Any]]:
    for level in release.levels_up:
        found = bisect_left(TRIED, True, key=partial(_reached, errors, level, target))
        epsilon = TRIED[found] if found < len(TRIED) else None
        row = {"site": site, "release": release.name, "level": level, "unit": release.unit}
        yield row | {"reached": epsilon is not None} | _figures(policy.site[site], release, epsilon, errors, level)


def _reached(errors: Errors, level: str, target: Fraction, epsilon: Fraction) -> bool:
    found = errors(epsilon).get(level)
    return found is not None and found.error <= float(target) * found.mean


def _figures(site: Site, release: CountRelease, epsilon: Fraction | None, errors: Errors, level: str) -> dict[str, Any]:
    if epsilon is None:
        return {"epsilon": None, "epsilon_a_day": None, "mean_absolute_error": None, "mean_count": None}
    expected = errors(epsilon)[level]
    return {
        "epsilon": decimal_string(epsilon),
        "epsilon_a_day": decimal_string(_of_device_day(site, release, epsilon)),
        "mean_absolute_error": round(expected.error, 4),
        "mean_count": round(expected.mean, 4),
    }


def _of_device_day(site: Site, release: CountRelease, epsilon: Fraction) -> Fraction:
    """Return what a device's day costs: epsilon where it pays for one, else that of all its windows together."""
    if release.by_day:
        return epsilon
    cells = whole_day(site.tick, site.ticks_per_observation)
    return cells.cost(coalition_cost(release.mechanism, [epsilon]), release.windows_paid)
