"""A recording as an attack needs it: true counts by window, who was seen where, and days of training beside the last.

A tenth of the devices, drawn by their names, are left out of all that is counted and released. They are the control:
what an attack says of them it would say of anybody. All of it is restricted.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from connectors.files.dialect import Dialect
from connectors.files.observations import ObservationFile
from stream.attackers.priors import Flags, Ints, opened_for
from stream.errors import DataError, UsageError
from stream.keys import LaboratoryKeys
from stream.local_time import span_of_day
from stream.pipeline import Options, table
from stream.policy.document import Policy
from stream.policy.sites import Site
from stream.records import EPOCH, Message, Micros, ObservationBatch, OccupancyWindow, Row
from stream.sensing.renamed import Sightings, counts_under_names

CONTROL = 10
"""One device of so many is left out of what is released."""
MICROS = timedelta(microseconds=1)


class Recorded(NamedTuple):
    """What was recorded at a site."""

    site: Site
    name: str
    windows: list[OccupancyWindow]
    """In order, of all devices but the control."""
    seen: Sightings
    """Sightings of the devices that are counted."""
    control: Sightings
    """Of those that are left out."""
    names: list[str]
    """Of the devices of both, by their number."""


class Day(NamedTuple):
    """One local day of a recording."""

    date: str
    windows: list[OccupancyWindow]
    ticks: Ints
    counts: Ints
    """True counts, shape [ticks, zones]."""


def laboratory(seed: int, of: str = "") -> LaboratoryKeys:
    """Return keys made from a seed: what they draw can be drawn again, and is worth nothing outside a laboratory."""
    root = hashlib.sha256(f"tacet attack {seed} {of}".encode()).digest()
    return LaboratoryKeys(root, "laboratory", hashlib.sha256(b"audit" + root).digest())


def site_of(policy: Policy, asked: str | None) -> str:
    """Return the site that is attacked.

    Raises:
        UsageError: it is not in the policy, several are and none is named, or nobody's devices are counted there.
    """
    names = list(policy.site)
    if asked is None and len(names) > 1:
        raise UsageError(f"--site: must name one of the policy's sites ({', '.join(names)})")
    name = asked or names[0]
    if name not in policy.site:
        raise UsageError(f"--site: must be one of the policy's sites ({', '.join(names)}), got {name!r}")
    if policy.site[name].feed == "counts":
        raise UsageError(f"site '{name}': counters know no devices, so that nobody can be looked for there")
    return name


def record(
    path: Path, policy: Policy, name: str, seed: int, dialect: Dialect, progress: Callable[..., None]
) -> Recorded:
    """Read a recording of observations.

    Raises:
        UsageError: the file cannot be read.
        DataError: it cannot be read to its end, or no window comes of it.
    """
    file = ObservationFile(path, policy, laboratory(seed, "names").root, dialect=dialect, progress=progress)
    sense = table(policy, name, laboratory(seed), Options(), keep_presence=False).sense
    state, windows, sorted_out = sense.initial(), list[OccupancyWindow](), _Sorted(policy.site[name])
    for message in file.messages():
        if message.site == name:
            state, made = sense.step(state, sorted_out.counted(message))
            windows += [each for each in made if isinstance(each, OccupancyWindow)]
    if not windows:
        raise DataError(f"{path}: no window of site '{name}' comes of this file")
    seen, control = sorted_out.sightings()
    return Recorded(policy.site[name], name, windows, seen, control, list(sorted_out.numbers))


class _Sorted:
    """Sightings by whether their device is counted."""

    def __init__(self, site: Site) -> None:
        self._zone_of = {radio: place for place, zone in enumerate(site.zones) for radio in zone.radios}
        self.numbers: dict[str, int] = {}
        self._rows = (array("q"), array("q"))  # time, device and zone, row after row

    def counted(self, message: Message) -> Message:
        """Take note of a message; return it without the rows of the control."""
        if not isinstance(message, ObservationBatch):
            return message
        kept = []
        for row in message.rows:
            left_out = is_control(row.device)
            self._rows[left_out].extend(self._row(row))
            if not left_out:
                kept.append(row)
        return ObservationBatch(
            message.site, message.source, message.session, message.sequence, tuple(kept), message.epoch
        )

    def _row(self, row: Row) -> tuple[int, int, int]:
        zone = -1 if row.access_point is None else self._zone_of[row.access_point]
        return row.time, self.numbers.setdefault(row.device, len(self.numbers)), zone

    def sightings(self) -> tuple[Sightings, Sightings]:
        """Return those of the devices that are counted, and those of the control."""
        columns = [np.array(rows, dtype=np.int64).reshape(-1, 3).T for rows in self._rows]
        return Sightings(*columns[0]), Sightings(*columns[1])


def is_control(device: str) -> bool:
    """Whether a device of this name is left out: one in ``CONTROL``."""
    return int(device[:8], 16) % CONTROL == 0


def days_of(recorded: Recorded) -> list[Day]:
    """Return the whole local days of a recording, in order; the last is the one that is attacked.

    Raises:
        DataError: there are fewer than two: nothing to learn from.
    """
    zone, tick = ZoneInfo(recorded.site.timezone), recorded.site.tick
    by_date: dict[str, list[OccupancyWindow]] = {}
    for window in recorded.windows:
        date = (EPOCH + window.window_end * MICROS).astimezone(zone).date().isoformat()
        by_date.setdefault(date, []).append(window)
    whole = [_day(date, windows) for date, windows in by_date.items() if len(windows) == _ticks(date, zone, tick)]
    if len(whole) < 2:
        raise DataError(f"the recording must hold two whole local days, to learn from and to attack, has {len(whole)}")
    return whole


def _ticks(date: str, zone: ZoneInfo, tick: Micros) -> int:
    """Return how many ticks a local date holds."""
    start, end = span_of_day(date, zone)
    return -(-end // tick) - -(-start // tick)


def opened_at_random(recorded: Recorded, share: float, seed: int) -> Flags:
    """Return zones opened in an order that the seed draws, until a share of the people of earlier days was in them."""
    people = np.sum([day.counts.sum(axis=0) for day in days_of(recorded)[:-1]], axis=0)
    drawn = [hashlib.sha256(f"{seed} open {zone.id}".encode()).digest() for zone in recorded.site.zones]
    return opened_for(people, np.array(sorted(range(len(drawn)), key=drawn.__getitem__)), share)


def _day(date: str, windows: list[OccupancyWindow]) -> Day:
    ticks = np.array([window.window_end for window in windows], dtype=np.int64)
    return Day(date, windows, ticks, np.array([window.counts for window in windows], dtype=np.int64))


def control_counts(recorded: Recorded, day: Day) -> Ints:
    """Return how many devices of the control are in each zone at each tick of a day, shape [ticks, zones]."""
    site = recorded.site
    return counts_under_names(recorded.control, day.ticks, len(site.zones), site.validity, None)


def renamed_counts(recorded: Recorded, day: Day, life: Micros) -> Ints:
    """Return what would be counted of a day if names lived so long (TTL), shape [ticks, zones]."""
    site = recorded.site
    return counts_under_names(recorded.seen, day.ticks, len(site.zones), site.validity, life)


def spans_of(recorded: Recorded, day: Day, length: Micros) -> Ints:
    """Return the span of the local day in which each tick lies, shape [ticks]; spans are ``length`` microseconds."""
    zone = ZoneInfo(recorded.site.timezone)
    local = [(EPOCH + tick * MICROS).astimezone(zone) for tick in day.ticks.tolist()]
    return np.array([((t.hour * 60 + t.minute) * 60 + t.second) * 1_000_000 // length for t in local])
