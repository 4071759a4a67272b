"""Days on which a plan is tried: the simulated one, which is nobody's, or what was recorded, which is restricted.

The simulated day is the demo's, in the site's own time zone: sensed with the site's tick, validity and privacy day.
A zone of the policy stands for the simulated zone of the same id and kind; one that the simulated building does not
have, for the next of the same kind; one of an unknown kind, for the next that is no office.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, groupby
from pathlib import Path
from typing import NamedTuple

from connectors.files.dialect import OWN, Dialect
from connectors.files.observations import ObservationFile
from connectors.files.shortfall import NO_DROPS, shortfall
from stream.errors import DataError
from stream.keys import LaboratoryKeys
from stream.pipeline import Pipeline, definition_of
from stream.policy.document import Policy, Zone
from stream.policy.privacy_day import PrivacyDays
from stream.policy.sites import Site
from stream.records import MINUTE, Heartbeat, Micros, ObservationBatch, OccupancyWindow, Row
from stream.sensing.contribution import Definition
from stream.sensing.occupancy import Sense
from stream.simulator.building import OFFICE
from stream.simulator.events import DAY_SHOWN, Simulation, simulate

KEY = b"a plan draws the same noise again"
"""Everybody knows it: what is drawn with it hides nothing."""

Windows = Mapping[str, Sequence[OccupancyWindow]]
"""Site -> its windows, in order."""


def plan_keys() -> LaboratoryKeys:
    """Return the keys with which a plan draws."""
    return LaboratoryKeys(KEY, "plan", KEY)


def simulated_windows(policy: Policy) -> Windows:
    """Return the simulated day as each site of a policy would count it."""
    return {name: _as_site(name, site) for name, site in policy.site.items()}


def _as_site(name: str, site: Site) -> list[OccupancyWindow]:
    day = simulated_day(site.tick, site.validity, site.timezone, definition_of(site))
    places = stand_ins(site.zones, day.zones, day.kinds)
    return [
        replace(
            window,
            site=name,
            counts=tuple(window.counts[place] for place in places),
            bounded=None if window.bounded is None else tuple(window.bounded[place] for place in places),
        )
        for window in day.windows
    ]


def observed_windows(
    policy: Policy,
    path: Path,
    progress: Callable[..., None] | None = None,
    dialect: Dialect = OWN,
    heard: Callable[[ObservationBatch], None] = lambda _: None,
) -> Windows:
    """Return the windows of a recording, sensed as a replay would: restricted, as their counts are true ones.

    Devices get names that nobody keeps. Each batch is also handed to ``heard``.

    Raises:
        UsageError: the file cannot be read.
        DataError: it cannot be read to its end, no window comes of it, or many of its rows were lost.
    """
    file = ObservationFile(path, policy, secrets.token_bytes(32), dialect=dialect, progress=progress)
    stages = {site: Pipeline(policy, site, plan_keys()).table.sense for site in policy.site}
    states = {site: sense.initial() for site, sense in stages.items()}
    windows: dict[str, list[OccupancyWindow]] = {site: [] for site in policy.site}
    for message in file.messages():
        if isinstance(message, ObservationBatch):
            heard(message)
        states[message.site], made = stages[message.site].step(states[message.site], message)
        windows[message.site] += [each for each in made if isinstance(each, OccupancyWindow)]
    dropped = Counter[str]()
    for state in states.values():
        dropped.update({reason: rows for reason, rows in state.counters.items() if reason not in NO_DROPS})
    problem = shortfall(file.tally, dropped)
    if problem is None and not any(windows.values()):
        problem = DataError("no window comes of this file")
    if problem is not None:
        raise problem
    return windows


class SimulatedDay(NamedTuple):
    """A simulated building on its day; nobody's, so anybody may see its counts."""

    zones: tuple[str, ...]
    kinds: tuple[str, ...]
    windows: tuple[OccupancyWindow, ...]


@lru_cache(maxsize=4)
def simulated_day(
    tick_length: Micros = 5 * MINUTE,
    validity: Micros = 10 * MINUTE,
    timezone: str = "America/Los_Angeles",
    by_day: Definition | None = None,
) -> SimulatedDay:
    """Return the simulated day as a site would count it that has this tick, validity, time zone and privacy day."""
    return sensed(simulate(replace(DAY_SHOWN, timezone=timezone)), tick_length, validity, by_day)


def sensed(made: Simulation, tick_length: Micros, validity: Micros, by_day: Definition | None) -> SimulatedDay:
    """Return a simulated run as a site would count it that has this tick, validity and privacy day."""
    site, building = made.config.site, made.building
    sense = Sense(
        site=site, zones=building.zones, sources=("simulated",), max_devices=200_000,
        access_points=dict(zip(building.access_points, building.zones, strict=True)),
        tick_length=tick_length, validity=validity, lateness=30_000_000, by_day=by_day,
    )  # fmt: skip
    state, windows = sense.initial(), list[OccupancyWindow]()
    beats = (Heartbeat(site, "simulated", 0, made.start), Heartbeat(site, "simulated", 0, made.end))
    items: tuple[ObservationBatch | Heartbeat, ...] = (*_batches(made, by_day), *beats)
    for item in items:
        state, produced = sense.step(state, item)
        windows += [output for output in produced if isinstance(output, OccupancyWindow)]
    return SimulatedDay(building.zones, building.kinds, tuple(windows))


def _batches(made: Simulation, by_day: Definition | None) -> Iterator[ObservationBatch]:
    """Yield what was observed, one batch for each privacy day."""
    days = None if by_day is None else PrivacyDays(by_day.day_starts, by_day.timezone)
    columns = zip(made.device.tolist(), made.access_point.tolist(), made.time.tolist(), strict=True)
    rows = (Row(made.devices[device], made.building.access_points[point], time) for device, point, time in columns)
    of_days = groupby(rows, lambda row: None if days is None else days.at(row.time))
    for number, (day, held) in enumerate(of_days):
        yield ObservationBatch(made.config.site, "simulated", 0, number, tuple(held), day)


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
