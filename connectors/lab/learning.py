"""Learn models of dependent attributes and of movement from a restricted history: a restricted report.

A model learnt from people's days is personal data, and so is every figure computed from it: its conditional
probabilities can be computed exactly from two factors. The report therefore is one file that only its owner can read.
Nothing of it is published, enters the account or changes a policy.

Attributes are computed from the history's counts by the stage that releases them; each zone and day is one record.
Every window of the history counts as covered. Movement is computed from stays: a device's states, outside included, at
the ticks of the UTC days on which it was seen.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from connectors.sources.recordings.replay import RestrictedHistory
from stream.accounting.costs import coalition_cost, readers_of
from stream.accounting.leakage.dependence import Counts, count_patterns, learn, revise
from stream.accounting.leakage.entries import Floats
from stream.accounting.leakage.guard import may_query, pattern_factors, permitted, releasable, worst_factors
from stream.accounting.leakage.information import attribute_information, bits
from stream.accounting.leakage.queries import optimise
from stream.accounting.leakage.temporal import (
    learn_transitions,
    loss,
    reversed_in_time,
    stationary,
    supremum,
    total_supremum,
)
from stream.errors import UsageError
from stream.operators import scan
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.policy.fields import EVERYBODY
from stream.records import DAY, DayAttribute, JsonObject, Micros, OccupancyWindow
from stream.release.validation import Policy
from stream.schemas import json_float
from stream.sensing.day_attributes import DayAttributes

PSEUDO = 0.5
"""Pseudo-count of every pattern and every move."""
FALSE_ALARM = 1e-3
"""Probability of reporting a change of dependencies when there is none."""
NOTICE = (
    "Personal data: computed from people's days, and every number in it reveals something about them. Protect it like "
    "the raw data. Do not publish it, and do not choose a released epsilon, cap or guard from it."
)
States = Literal["floors", "zones"]
Report = JsonObject
"""The restricted report, or a part of it, as its file contains it."""


def report_of(policy: Policy, history: RestrictedHistory, states: States = "floors") -> Report:
    """Return the restricted report: learnt models of attributes and movement, and their consequences."""
    releases = [release for release in policy.release if isinstance(release, AttributeRelease)]
    return {
        "v": 1,
        "restricted": True,
        "notice": NOTICE,
        "policy_version": policy.version,
        "pseudo_count": PSEUDO,
        "attributes": {release.name: attribute_report(policy, release, history) for release in releases},
        "mobility": {site: mobility_report(policy, site, history, states) for site in history.windows},
    }


# --- attributes ---------------------------------------------------------------------------------------


def day_attributes(policy: Policy, release: AttributeRelease, history: RestrictedHistory) -> dict[str, list[list[int]]]:
    """Return, per day in order, a record of digits per zone: 0 where the attribute was sensitive, 1 where not."""
    days: dict[str, dict[tuple[str, str], dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for site, windows in history.windows.items():
        covered = {zone.id for zone in policy.zones_of(release, site)}
        for record in _closed(policy, site, release, windows, covered):
            days[record.day][site, record.zone][record.attribute] = int(not _sensitive(release, record))
    return {
        day: [[zone[name] for name in release.attributes] for zone in zones.values()]
        for day, zones in sorted(days.items())
    }


def _closed(
    policy: Policy, site: str, release: AttributeRelease, windows: list[OccupancyWindow], covered: set[str]
) -> Iterator[DayAttribute]:
    declared = policy.site[site]
    stage = DayAttributes(
        site=site,
        zones=tuple((zone.id, index) for index, zone in enumerate(declared.zones) if zone.id in covered),
        timezone=declared.timezone,
        tick_length=declared.tick,
        working_hours=declared.working_hours,
        attributes=tuple(release.attributes),
    )
    for day in scan(stage, windows)[1]:
        yield from day.attributes


def _sensitive(release: AttributeRelease, record: DayAttribute) -> bool:
    if record.value is None:
        return release.absent == "sensitive"
    return release.attributes[record.attribute].sensitive.holds(record.value)


def attribute_report(policy: Policy, release: AttributeRelease, history: RestrictedHistory) -> Report:
    """Return the learnt joint distribution of a release's attributes, whether it changed, and its consequences."""
    days = list(day_attributes(policy, release, history).values())
    order: list[str] = list(release.attributes)
    halves = [
        count_patterns((record for day in part for record in day), len(order))
        for part in (days[: len(days) // 2], days[len(days) // 2 :])
    ]
    in_force, revision = _revised(*halves)
    joint = learn(in_force, PSEUDO)
    cap = release.cap if release.cap is not None else math.log(policy.privacy.max_factor)
    readers = readers_of(audience.name for audience in policy.audience)
    epsilons = {reader: _epsilons(release, audiences) for reader, audiences in readers.items()}
    return {
        "attributes": order,
        "days": len(days),
        "records": int(in_force.sum()),
        "revision": revision,
        "joint": {_digits(index): float(p) for index, p in np.ndenumerate(joint)},
        "readers": {reader: _exposed(joint, order, e) for reader, e in epsilons.items() if e.any()},
        "guard": _guard(joint, order, epsilons[EVERYBODY], cap),
        "optimal": _optimal(joint, order, release.information_target),
    }


def _revised(before: Counts, after: Counts) -> tuple[Counts, Report]:
    """Return the counts to learn from: all of them, or those after the last significant change of dependencies."""
    figures: Report = {"false_alarm": FALSE_ALARM, "records": [int(before.sum()), int(after.sum())]}
    if not before.sum() or not after.sum():
        return before + after, figures | {"changed": None, "p_value": None}
    revision = revise(before, after, false_alarm=FALSE_ALARM)
    return revision.counts, figures | {"changed": revision.changed, "p_value": revision.p_value}


def _epsilons(release: AttributeRelease, audiences: frozenset[str]) -> Floats:
    return np.array(
        [
            max((float(e) for name, e in rule.epsilon.items() if name in audiences), default=0.0)
            for rule in release.attributes.values()
        ]
    )


def _exposed(joint: Floats, order: list[str], epsilon: Floats) -> Report:
    """Return the factors of every possible pattern (1: published), the largest of them, and the information."""
    queried = (epsilon > 0).astype(np.int64)
    by_pattern = np.moveaxis(pattern_factors(joint, epsilon, queried), 0, -1)
    information = attribute_information(joint, epsilon, queried)
    return {
        "epsilon": dict(zip(order, epsilon.tolist(), strict=True)),
        "patterns": {
            _digits(pattern): dict(zip(order, _plain(by_pattern[pattern].tolist()), strict=True))
            for pattern in product((0, 1), repeat=len(order))
            if not np.isnan(by_pattern[pattern]).any()
        },
        "worst_factor": dict(zip(order, _plain(worst_factors(joint, epsilon, queried).tolist()), strict=True)),
        "information_bits": dict(zip(order, [bits(float(nats)) for nats in information], strict=True)),
        "information_bits_total": bits(math.fsum(information)),
    }


def _guard(joint: Floats, order: list[str], epsilon: Floats, cap: float) -> Report:
    """Return what a guard under this model would decide; no released guard may depend on it."""
    once = np.ones(len(order), dtype=np.int64)
    decisions = []
    for place, name in enumerate(order):
        for shown in product((0, 1), repeat=place):
            if any(bit and epsilon[a] == 0 for a, bit in enumerate(shown)):
                continue
            queries, released = (np.zeros(len(order), dtype=np.int64) for _ in range(2))
            queries[:place], released[:place] = 1, shown
            allowed = may_query(joint, epsilon, queries, released, attribute=place, cap=cap)
            after = {earlier: "shown" if bit else "withheld" for earlier, bit in zip(order, shown, strict=False)}
            decisions.append({"attribute": name, "after": after, "allowed": allowed})
    return {
        "cap": cap,
        "static": [order[a] for a in permitted(joint, epsilon, once, cap)],
        "releasable": [order[a] for a in releasable(joint, cap)],
        "adaptive": decisions,
    }


def _optimal(joint: Floats, order: list[str], target: float | None) -> Report | None:
    """Return the epsilons for the release's information target, by both objectives; None without a target."""
    if target is None:
        return None
    patterns = {_digits(index): float(p) for index, p in np.ndenumerate(joint)}
    figures: Report = {"target_bits": target}
    releases = optimise(joint=patterns, budget=target / bits(1.0), objective="releases")
    for best in (releases, releases["other"]):
        figures[best["maximises"]] = {
            "epsilon": dict(zip(order, _plain(best["epsilon"]), strict=True)),
            "objective": _plain([best["objective"]])[0],
            "upper_bound": _plain([best["upper_bound"]])[0],
            "information_bits": bits(best["leakage_total"]),
            "expected_releases": best["expected_releases"],
            "expected_releases_each": dict(zip(order, best["expected_releases_each"], strict=True)),
        }
    return figures


def _digits(index: Sequence[int]) -> str:
    return "".join(map(str, index))


def _plain(values: list[float]) -> list[float | str | None]:
    return [json_float(value) for value in values]


# --- movement -----------------------------------------------------------------------------------------


def moves(policy: Policy, site: str, history: RestrictedHistory, states: States) -> tuple[list[str], NDArray[np.int64]]:
    """Return the states, ``outside`` first, and how often a device moved between two of them from tick to tick."""
    declared = policy.site[site]
    place_of = {zone.id: zone.floor if states == "floors" else zone.id for zone in declared.zones}
    names = ["outside", *dict.fromkeys(place_of.values())]
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    devices: dict[str, list[tuple[int, Micros, Micros]]] = defaultdict(list)
    for of, device, zone, start, end in history.stays:
        if of == site:
            devices[device].append((names.index(place_of[zone], 1), start, end))
    for stays in devices.values():
        first = min(start for _, start, _ in stays) // DAY * DAY // declared.tick
        last = -(-max(end for _, _, end in stays) // DAY) * DAY // declared.tick
        path = np.zeros(last - first + 1, dtype=np.int64)
        for state, start, end in stays:
            path[-(-start // declared.tick) - first : -(-end // declared.tick) - first] = state
        np.add.at(counts, (path[:-1], path[1:]), 1)
    return names, counts


def mobility_report(policy: Policy, site: str, history: RestrictedHistory, states: States) -> Report:
    """Return the learnt transition matrix of a site and the temporal leakage of its count releases."""
    names, counts = moves(policy, site, history, states)
    forward = learn_transitions(counts, PSEUDO)
    before, after = loss(reversed_in_time(forward, stationary(forward))), loss(forward)
    figures = {}
    for reader, audiences in readers_of(audience.name for audience in policy.audience).items():
        epsilon = float(_per_tick(policy, site, audiences))
        if epsilon:
            suprema = [supremum(before, epsilon), supremum(after, epsilon), total_supremum(before, after, epsilon)]
            backward, forwards, total = _plain(suprema)
            figures[reader] = {"epsilon": epsilon, "backward": backward, "forward": forwards, "total": total}
    return {"states": names, "moves": int(counts.sum()), "forward": forward.tolist(), "supremum": figures}


def _per_tick(policy: Policy, site: str, audiences: frozenset[str]) -> Fraction:
    costs = [
        coalition_cost(release.mechanism, (e for name, e in release.epsilon.items() if name in audiences))
        for release in policy.release
        if isinstance(release, CountRelease) and policy.zones_of(release, site)
    ]
    return sum(costs, Fraction(0))


# --- the file -----------------------------------------------------------------------------------------


def write_report(report: Report, out: Path) -> None:
    """Write the report so that only its owner can read it, from its first byte on, in any folder.

    Raises:
        UsageError: the file cannot be created, or not with mode 0600 (a file system without modes); then no part of
            it remains.
    """
    partial = out.with_name(f".{out.name}.partial")
    try:
        with suppress(FileNotFoundError):
            partial.unlink()
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            if os.fstat(handle).st_mode & 0o077:
                partial.unlink()
                raise UsageError(
                    f"{out}: must be readable by its owner alone (mode 0600), which this file system does not support"
                )
            file.write(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        partial.replace(out)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror})") from None
