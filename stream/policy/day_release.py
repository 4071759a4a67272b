"""What may be released by the day (``unit = "device_day"``), and what has to be known for that.

One epsilon then pays for everything that a release publishes of one device's privacy day. That has a proof where each
window's values read the noisy counts of that window and what was published before, and nothing else: a mechanism that
looks at true counts besides (PeGaSus' grouper, pruning, publications that are carried) is refused. Budgets and windows
do not go with it, since the day is paid before its first window and no window of it is denied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from stream.policy.count_release import CountRelease
from stream.policy.fields import decimal_string
from stream.policy.mechanisms import names_where
from stream.policy.sites import Site


def check_unit(release: CountRelease, sites: Mapping[str, Site]) -> None:
    """Raise ValueError where unit, noise and other keys of a release do not go together, or not with its sites."""
    for holds, rule in _rules_of_day(release) if release.by_day else _rules_of_window(release):
        if not holds:
            msg = f"release '{release.name}': {rule}"
            raise ValueError(msg)
    if release.by_day:
        for name, site in sites.items():
            _check_site(release, name, site)


def _rules_of_window(release: CountRelease) -> Iterator[tuple[bool, str]]:
    day = "unit = 'device_day', whose price decides how much noise there is"
    yield release.noise == "laplace", f"noise = '{release.noise}' must go with {day}"
    yield release.delta is None, "delta must go with unit = 'device_day' and noise = 'gaussian'"


def _rules_of_day(release: CountRelease) -> Iterator[tuple[bool, str]]:
    proven = " or ".join(names_where("by_day"))
    yield release.declared.by_day, f"unit = 'device_day' must go with {proven}, got {release.mechanism}"
    yield release.prune is None, "prune must not go with unit = 'device_day': its tests have no proof for a day"
    yield not release.states, "states must not go with unit = 'device_day': one device may be in several of them"
    asked = [query.kind for query in release.queries]
    yield set(asked) <= {"heatmap"}, "queries other than heatmap must not go with unit = 'device_day'"
    for key in ("daily_budget", "w_budget", "refresh"):
        unused = getattr(release, key) == CountRelease.model_fields[key].default
        yield unused, f"{key} must not go with unit = 'device_day': each day is paid for before it begins"
    exact = release.noise == "gaussian" or release.delta is None
    yield exact, "delta must go with noise = 'gaussian': laplace keeps its epsilon exactly"


def _check_site(release: CountRelease, name: str, site: Site) -> None:
    """Raise ValueError unless a site says when its day begins, and so bounds what a device contributes to it."""
    if site.day_starts is None:
        msg = f"release '{release.name}': site.{name}.day_starts must be given with unit = 'device_day'"
        raise ValueError(msg)
    _check_parts(release, name, site)


def _check_parts(release: CountRelease, name: str, site: Site) -> None:
    """Raise ValueError where a window's part of a day's epsilon is smaller than the noise can be made for."""
    if release.noise != "laplace":
        return
    least = release.declared.smallest
    for audience, epsilon in release.epsilon.items():
        for share in release.shares.values() or (Fraction(1),):
            if epsilon * share / site.contribution_ticks < least:
                rule = f"must leave each of a day's {site.contribution_ticks} windows at least {decimal_string(least)}"
                msg = f"release '{release.name}': epsilon.{audience} {rule} at {name}, got {decimal_string(epsilon)}"
                raise ValueError(msg)
