"""Privacy settings for all releases: bounds, adversaries, payment per device day.

With ``unit = "device_day"`` one epsilon pays for everything that a release publishes about one device's privacy day.
This is proven for mechanisms whose values for a window depend on the noisy counts of that window and on earlier
published values, and on nothing else. A mechanism that also reads true counts (PeGaSus' grouper, pruning, publications
that are carried over) is refused. Budgets are refused too: the day is paid before its first window, so no window of it
is denied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated

from pydantic import Field, FiniteFloat, field_validator

from stream.policy.counts import LONGEST_W, CountRelease
from stream.policy.fields import Delta, Frozen, decimal_string
from stream.policy.mechanisms import names_where
from stream.policy.sites import Site


class Mobility(Frozen):
    """A model of how a person moves from one tick to the next, known to the adversary; declared, and so public."""

    forward: tuple[tuple[Annotated[float, Field(ge=0, le=1)], ...], ...] = Field(min_length=2, max_length=512)
    """Row a: probabilities of the state at the next tick, given state a; each row adds up to 1."""

    @field_validator("forward")
    @classmethod
    def _stochastic(cls, value: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        for number, row in enumerate(value):
            if len(row) != len(value) or abs(sum(row) - 1) > 1e-9:
                msg = f"row {number} must have {len(value)} probabilities that add up to 1, got {list(row)}"
                raise ValueError(msg)
        return value


class Meeting(Frozen):
    """A group of people who come and go together; ``correlation`` is that of each other person with the first."""

    size: int = Field(ge=2, le=10_000, strict=True)
    correlation: float = Field(ge=0, le=1, strict=True)
    presence: float = Field(gt=0, lt=1, strict=True)
    """Probability that one of them is present at a tick."""


class Privacy(Frozen):
    """Bounds that hold for every release."""

    devices_per_person: int = Field(default=3, ge=1, le=100, strict=True)
    max_factor: FiniteFloat = Field(default=math.exp(3), gt=1, strict=True)
    """Largest posterior-odds factor that any coalition may reach on one attribute, with counts of the same zone
    only."""
    ticks_per_attribute: int = Field(default=12, ge=1, le=1440, strict=True)
    """Number of ticks at which counts may differ between a sensitive and a non-sensitive value."""
    w: int = Field(default=12, ge=1, le=LONGEST_W, strict=True)
    """Length of the sliding w-event unit, in windows."""
    delta: Delta = Fraction(1, 1_000_000)
    """Delta of every (epsilon, delta) figure, unless a release has its own; public."""
    factor_delta: Delta | None = None
    """Probability with which ``max_factor`` may fail where counts have an unbounded loss; None: it may not fail."""
    mobility: Mobility | None = None
    meetings: tuple[Meeting, ...] = ()


# --- payment per window and per device day ------------------------------------------------------------


def check_unit(release: CountRelease, sites: Mapping[str, Site]) -> None:
    """Raise ValueError if unit, noise and other keys of a release are not compatible with each other or its sites."""
    for holds, rule in _rules_of_day(release) if release.by_day else _rules_of_window(release):
        if not holds:
            msg = f"release '{release.name}': {rule}"
            raise ValueError(msg)
    if release.by_day:
        for name, site in sites.items():
            _check_site(release, name, site)


def _rules_of_window(release: CountRelease) -> Iterator[tuple[bool, str]]:
    yield not release.by_changes, "count = 'changes' must be used with unit = 'device_day'"
    day = "unit = 'device_day', whose price decides how much noise there is"
    yield release.noise == "laplace", f"noise = '{release.noise}' must be used with {day}"
    yield release.delta is None, "delta must be used with unit = 'device_day' and noise = 'gaussian'"


def _rules_of_day(release: CountRelease) -> Iterator[tuple[bool, str]]:
    proven = " or ".join(names_where("by_day"))
    yield release.declared.by_day, f"unit = 'device_day' must be used with {proven}, got {release.mechanism}"
    yield release.prune is None, "prune must not be used with unit = 'device_day': its tests have no proof for a day"
    yield not release.states, "states must not be used with unit = 'device_day': one device may be in several of them"
    kinds = {query.kind for query in release.queries}
    yield kinds <= {"heatmap"}, "queries other than heatmap must not be used with unit = 'device_day'"
    for key in ("daily_budget", "w_budget", "refresh"):
        unused = getattr(release, key) == CountRelease.model_fields[key].default
        yield unused, f"{key} must not be used with unit = 'device_day': each day is paid for before it begins"
    exact = release.noise == "gaussian" or release.delta is None
    yield exact, "delta must be used with noise = 'gaussian': laplace keeps its epsilon exactly"
    if release.by_changes:
        yield from _rules_of_changes(release)


def _rules_of_changes(release: CountRelease) -> Iterator[tuple[bool, str]]:
    proven = " or ".join(names_where("by_changes"))
    yield release.declared.by_changes, f"count = 'changes' must be used with {proven}, got {release.mechanism}"
    yield release.noise == "gaussian", f"count = 'changes' must be used with noise = 'gaussian', got {release.noise}"
    one = release.levels == ("zone",) or bool(release.shares)
    yield one, "levels other than zone must have shares with count = 'changes': visits are counted for each level"
    yield not release.queries, "queries must not be used with count = 'changes': its noise is not that of one window"
    yield (
        "1h" not in release.revise,
        "revise must be '1d' with count = 'changes', whose noise runs through a day",
    )


def _check_site(release: CountRelease, name: str, site: Site) -> None:
    """Raise ValueError unless a site has privacy days, and so bounds the contribution of a device to a day."""
    if site.day_starts is None:
        msg = f"release '{release.name}': site.{name}.day_starts must be given with unit = 'device_day'"
        raise ValueError(msg)
    if release.by_changes:
        _check_site_of_changes(release, name, site)
        return
    if site.contribution is None:
        msg = f"release '{release.name}': site.{name}.contribution must be given with count = 'ticks'"
        raise ValueError(msg)
    _check_parts(release, name, site)


def _check_site_of_changes(release: CountRelease, name: str, site: Site) -> None:
    """Raise ValueError unless the visits of devices can be counted at a site."""
    whole = all(release.zones.covers(zone) for zone in site.zones)
    rules = (
        (site.feed == "devices", "feed must be 'devices' with count = 'changes': people counters do not count visits"),
        (
            site.residents == "ignore",
            "residents must be 'ignore' with count = 'changes': machines that are always on would count all day",
        ),
        (
            whole or release.levels == ("zone",),
            "zones must all be in a release with count = 'changes' that has floors or the building, "
            "whose visits are those of the whole site",
        ),
    )
    for holds, rule in rules:
        if not holds:
            msg = f"release '{release.name}': site.{name}.{rule}"
            raise ValueError(msg)


def _check_parts(release: CountRelease, name: str, site: Site) -> None:
    """Raise ValueError if a window's part of a day's epsilon is too small for the noise sampler."""
    if release.noise != "laplace":
        return
    least = release.declared.smallest
    for audience, epsilon in release.epsilon.items():
        for share in release.shares.values() or (Fraction(1),):
            if epsilon * share / site.contribution_ticks < least:
                rule = f"must leave each of a day's {site.contribution_ticks} windows at least {decimal_string(least)}"
                msg = f"release '{release.name}': epsilon.{audience} {rule} at {name}, got {decimal_string(epsilon)}"
                raise ValueError(msg)
