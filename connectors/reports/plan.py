"""What a day under a policy will cost and how good its releases will be, before anything runs.

Errors come from the day that ``tacet simulate --seed 1`` makes: its exact counts go through the release's own
mechanism under a key that everybody knows. A zone of the policy stands for the simulated zone of the same id and
kind; one that the simulated building does not have, for the next of the same kind; one of an unknown kind, for the
next that is no office.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from stream.accounting.day_units import Epsilon
from stream.accounting.device_day import whole_day
from stream.keys import LaboratoryKeys, subkey
from stream.local_time import slot_of
from stream.mechanisms.counts import Naming
from stream.mechanisms.noise import Ints
from stream.policy.document import EVERYBODY, CountRelease, Policy, Zone, audiences_of, decimal_string
from stream.records import DAY, MINUTE, Heartbeat, Micros, ObservationBatch, OccupancyWindow, Row
from stream.release.budgets import companions
from stream.release.count_plan import CountPlan
from stream.release.count_promises import CountPromise, count_promises
from stream.release.promises import attribute_promises
from stream.schemas import json_float
from stream.sensing.occupancy import Sense
from stream.simulator.building import OFFICE
from stream.simulator.events import SimulatorConfig, simulate

SEED = 1
KEY = b"a plan draws the same noise again"


def plan(policy: Policy) -> dict[str, Any]:
    """Return, per site, release and audience: epsilons, costs per unit, releases that fit, expected error."""
    promises = {(p.site, p.release, p.reader): p for p in count_promises(policy)}
    counts = [
        _count_row(policy, site, release, audience, promises[site, release.name, audience])
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
    }  # fmt: skip


def _count_row(
    policy: Policy, site: str, release: CountRelease, audience: str, promise: CountPromise
) -> dict[str, Any]:
    epsilon = release.epsilon[audience]
    windows = DAY // policy.site[site].tick
    fit = windows if release.by_day else releases_that_fit(release, audience, windows, policy.privacy.w)
    expected = expected_quality(policy, site, release, epsilon)
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
        "expected_mean_absolute_error": round(expected.error, 4),
        "expected_mean_count": round(expected.mean, 4),
        "worse_than_zero": expected.worse_than_zero,
    }


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


class Quality(NamedTuple):
    """How good a release is on the simulated day, per value and window."""

    error: float
    """Mean absolute error."""
    mean: float
    """Mean true count: the error of whoever always says 0."""

    @property
    def worse_than_zero(self) -> bool:
        """Whether always saying 0 would be nearer to the truth."""
        return self.error > self.mean


Qualities = dict[tuple[str, str, str], Quality]
"""Site, release and audience -> how good its counts are expected to be."""


def qualities(policy: Policy) -> Qualities:
    """Return how good a policy's count releases are expected to be."""
    return {
        (site, release.name, audience): expected_quality(policy, site, release, release.epsilon[audience])
        for site in policy.site
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
        for audience in audiences_of(release)
    }


def expected_quality(policy: Policy, site: str, release: CountRelease, epsilon: Fraction) -> Quality:
    """Return error and mean count per value and window of a release on the simulated day."""
    place, counted = policy.site[site], CountPlan(policy, release, site)
    day = simulated_day(place.tick, place.validity)
    rows = day.counts[:, stand_ins(place.zones, day.zones, day.kinds)].tolist()
    exact = [counted.counts(OccupancyWindow(site, 0, tuple(row), Fraction(1))) for row in rows]
    timezone = ZoneInfo(place.timezone)
    keys = LaboratoryKeys(KEY, "plan", KEY)
    naming = Naming(
        site=site, release=release.name, zones=counted.names, window=place.tick,
        day_key=lambda key_day: subkey(keys.noise_key(key_day), "noise"),
        slot=lambda instant: slot_of(instant, timezone),
    )  # fmt: skip
    mechanism, errors = counted.mechanisms[epsilon], []
    state, today = mechanism.initial(), None
    for end, row in zip(day.times.tolist(), exact, strict=True):
        if today != naming.key_day(end):
            state, today = mechanism.pause(state), naming.key_day(end)
        state, [made] = mechanism.step(state, naming.input_of(mechanism, end, row))
        errors.append(np.abs(made.values[: len(row)] - row))
    return Quality(float(np.mean(errors)), float(np.mean(exact)))


def stand_ins(zones: Sequence[Zone], names: Sequence[str], kinds: Sequence[str]) -> list[int]:
    """Return the simulated zone, by its place, whose counts stand for each zone of a policy.

    Args:
        zones: those of the policy's site, in registry order.
        names: ids of the simulated zones.
        kinds: their kinds.
    """
    known = {named: place for place, named in enumerate(zip(names, kinds, strict=True))}
    of_kind = {kind: [place for place, other in enumerate(kinds) if other == kind] for kind in kinds}
    public = [place for place, kind in enumerate(kinds) if kind != OFFICE]
    nexts = {kind: count() for kind in ("", *of_kind)}
    chosen = []
    for zone in zones:
        place = known.get((zone.id, zone.kind))
        if place is None:
            like, kind = of_kind.get(zone.kind, public), zone.kind if zone.kind in of_kind else ""
            place = like[next(nexts[kind]) % len(like)]
        chosen.append(place)
    return chosen


class SimulatedDay(NamedTuple):
    """Exact counts of the simulated building on its day; nobody's, so anybody may see them."""

    zones: tuple[str, ...]
    kinds: tuple[str, ...]
    times: Ints
    """Ends of the windows in microseconds, shape [T]."""
    counts: Ints
    """Shape [T, zones]."""


@lru_cache(maxsize=4)
def simulated_day(tick_length: Micros = 5 * MINUTE, validity: Micros = 10 * MINUTE) -> SimulatedDay:
    """Return the simulated day as a site would count it that has this tick length and validity."""
    made = simulate(SimulatorConfig(seed=SEED))
    site, building = made.config.site, made.building
    sense = Sense(
        site=site, zones=building.zones, sources=("simulated",), max_devices=200_000,
        access_points=dict(zip(building.access_points, building.zones, strict=True)),
        tick_length=tick_length, validity=validity, lateness=30_000_000,
    )  # fmt: skip
    state, outputs = sense.initial(), list[object]()
    columns = zip(made.device.tolist(), made.access_point.tolist(), made.time.tolist(), strict=True)
    rows = tuple(Row(made.devices[device], building.access_points[point], time) for device, point, time in columns)
    batch = ObservationBatch(site, "simulated", 0, 0, rows)
    for item in (batch, Heartbeat(site, "simulated", 0, made.start), Heartbeat(site, "simulated", 0, made.end)):
        state, produced = sense.step(state, item)
        outputs += produced
    windows = [output for output in outputs if isinstance(output, OccupancyWindow)]
    times = np.array([window.window_end for window in windows], dtype=np.int64)
    counts = np.array([window.counts for window in windows], dtype=np.int64)
    return SimulatedDay(building.zones, building.kinds, times, counts)


def _covered(policy: Policy, site: str, release: str) -> int:
    return next(len(policy.zones_of(r, site)) for r in policy.release if r.name == release)


def _decimal(value: Fraction | None) -> str | None:
    return None if value is None else decimal_string(value)


def _decimals(units: Mapping[str, Epsilon]) -> dict[str, str]:
    return {unit: decimal_string(value) for unit, value in units.items()}
