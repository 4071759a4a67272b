"""A recording as an attack needs it: true counts, sightings, and training days.

A tenth of the devices, selected by their names, are excluded from everything that is counted and released. They are the
control group: an attack makes the same statements about people who were never counted. All of it is restricted.
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

from connectors.sources.recordings.dialect import Dialect
from connectors.sources.recordings.observations import ObservationFile, shortfall
from stream.domains import Domain
from stream.errors import DataError
from stream.keys import LaboratoryKeys
from stream.lab.attackers.beliefs import Flags, Ints, opened_for
from stream.local_time import span_of_day
from stream.pipeline import Options, build_stages
from stream.policy.sites import Site
from stream.pseudonyms.rotation import Sightings, counts_under_names
from stream.records import EPOCH, Message, Micros, ObservationBatch, OccupancyWindow, Row
from stream.release.validation import Policy
from stream.sensing.state import dropped_rows

CONTROL = 10
"""One of this many devices is excluded from what is released."""
MICROS = timedelta(microseconds=1)


class RecordedSightings(NamedTuple):
    """The recording of one site."""

    site: Site
    name: str
    windows: list[OccupancyWindow]
    """In order, of all devices but the control."""
    sightings: Sightings
    """Sightings of the devices that are counted."""
    control: Sightings
    """Sightings of the excluded devices."""
    names: list[str]
    """Names of all devices, by their number."""
    problem: DataError | None = None
    """What to report of rows that were bad or lost, once the answer is printed."""


class Day(NamedTuple):
    """One local day of a recording."""

    date: str
    windows: list[OccupancyWindow]
    ticks: Ints
    counts: Ints
    """True counts, shape [ticks, zones]."""


def laboratory(seed: int, of: str = "") -> LaboratoryKeys:
    """Return keys made from a seed: their noise is reproducible, and they are useless outside a laboratory."""
    root = hashlib.sha256(Domain.ATTACK + f"{seed} {of}".encode()).digest()
    return LaboratoryKeys(root, "laboratory", hashlib.sha256(Domain.ATTACK_AUDIT + root).digest())


def record(
    path: Path, policy: Policy, name: str, seed: int, dialect: Dialect, progress: Callable[..., None]
) -> RecordedSightings:
    """Read a recording of observations.

    Raises:
        UsageError: the file cannot be read.
        DataError: it cannot be read to its end, or yields no window.
    """
    file = ObservationFile(path, policy, laboratory(seed, "names").root, dialect=dialect, progress=progress)
    sense = build_stages(policy, name, laboratory(seed), Options(), keep_presence=False).occupancy
    state, windows, sorted_out = sense.initial(), list[OccupancyWindow](), _Sorted(policy.site[name])
    for message in file.messages():
        if message.site == name:
            state, made = sense.step(state, sorted_out.counted(message))
            windows += [each for each in made if isinstance(each, OccupancyWindow)]
    problem = shortfall(file.tally, dropped_rows(state.counters))
    if not windows:
        raise problem or DataError(f"{path}: the file contains no window of site '{name}'")
    seen, control = sorted_out.sightings()
    return RecordedSightings(policy.site[name], name, windows, seen, control, list(sorted_out.numbers), problem)


class _Sorted:
    """Sightings, separated into counted devices and the control group."""

    def __init__(self, site: Site) -> None:
        self._zone_of = {radio: place for place, zone in enumerate(site.zones) for radio in zone.radios}
        self.numbers: dict[str, int] = {}
        self._rows = (array("q"), array("q"))  # time, device and zone of each row in sequence

    def counted(self, message: Message) -> Message:
        """Store a message's rows; return it without the rows of the control group."""
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
        """Return the sightings of the counted devices, and those of the control group."""
        columns = [np.array(rows, dtype=np.int64).reshape(-1, 3).T for rows in self._rows]
        return Sightings(*columns[0]), Sightings(*columns[1])


def is_control(device: str) -> bool:
    """Whether a device with this name belongs to the control group, a share of ``CONTROL``."""
    return int(device[:8], 16) % CONTROL == 0


def days_of(recorded: RecordedSightings) -> list[Day]:
    """Return the whole local days of a recording, in order; the last one is attacked.

    Raises:
        DataError: there are fewer than two, so there is no training day.
    """
    zone, tick = ZoneInfo(recorded.site.timezone), recorded.site.tick
    by_date: dict[str, list[OccupancyWindow]] = {}
    for window in recorded.windows:
        date = (EPOCH + window.window_end * MICROS).astimezone(zone).date().isoformat()
        by_date.setdefault(date, []).append(window)
    whole = [_day(date, windows) for date, windows in by_date.items() if len(windows) == _ticks(date, zone, tick)]
    if len(whole) < 2:
        raise DataError(
            f"the recording must contain two whole local days, one to learn from and one to attack; it has {len(whole)}"
        )
    return whole


def _ticks(date: str, zone: ZoneInfo, tick: Micros) -> int:
    """Return the number of ticks of a local date."""
    start, end = span_of_day(date, zone)
    return -(-end // tick) - -(-start // tick)


def opened_at_random(recorded: RecordedSightings, share: float, seed: int) -> Flags:
    """Open zones in a random order (by seed) until they contain a share of the people of earlier days; return them."""
    people = np.sum([day.counts.sum(axis=0) for day in days_of(recorded)[:-1]], axis=0)
    drawn = [hashlib.sha256(f"{seed} open {zone.id}".encode()).digest() for zone in recorded.site.zones]
    return opened_for(people, np.array(sorted(range(len(drawn)), key=drawn.__getitem__)), share)


def _day(date: str, windows: list[OccupancyWindow]) -> Day:
    ticks = np.array([window.window_end for window in windows], dtype=np.int64)
    return Day(date, windows, ticks, np.array([window.counts for window in windows], dtype=np.int64))


def control_counts(recorded: RecordedSightings, day: Day) -> Ints:
    """Return how many devices of the control group are in each zone at each tick of a day, shape [ticks, zones]."""
    site = recorded.site
    return counts_under_names(recorded.control, day.ticks, len(site.zones), site.counts_for, None)


def renamed_counts(recorded: RecordedSightings, day: Day, life: Micros) -> Ints:
    """Return a day's counts if pseudonyms lived for ``life``, shape [ticks, zones]."""
    site = recorded.site
    return counts_under_names(recorded.sightings, day.ticks, len(site.zones), site.counts_for, life)


def spans_of(recorded: RecordedSightings, day: Day, length: Micros) -> Ints:
    """Return the span of the local day that contains each tick, shape [ticks]; spans are ``length`` microseconds."""
    zone = ZoneInfo(recorded.site.timezone)
    local = [(EPOCH + tick * MICROS).astimezone(zone) for tick in day.ticks.tolist()]
    return np.array([((t.hour * 60 + t.minute) * 60 + t.second) * 1_000_000 // length for t in local])
