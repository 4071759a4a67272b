"""Two worlds that differ by one device of greatest contribution: a canary, and what it changes.

| what epsilon pays for | the canary                                                              |
|-----------------------|-------------------------------------------------------------------------|
| a window              | is there at one tick, in one zone                                        |
| any w windows         | is there at w ticks, one after another                                   |
| a device's day        | is there all day, so that it counts at as many ticks as a device may     |
| attributes of a day   | is in an office all working hours, where else nobody is                  |

Others are those of a recording. A device adds to counts whatever others do, so the worlds are added up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from connectors.attacks.recording import Day, Recorded, laboratory
from stream.errors import DataError, UsageError
from stream.pipeline import Options, table
from stream.policy.count_release import CountRelease
from stream.policy.document import AttributeRelease, Policy
from stream.records import (
    EPOCH,
    HOUR,
    DayClosed,
    Heartbeat,
    Message,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    Row,
)

NAME = "c0ffee0000000000"
AFTER = 2
"""Windows that are released before and after those in which the canary is."""


class Worlds(NamedTuple):
    """The same windows with the canary and without it."""

    there: list[OccupancyWindow]
    away: list[OccupancyWindow]
    zone: int
    """Where the canary is."""


def worlds(policy: Policy, recorded: Recorded, day: Day, release: CountRelease) -> Worlds:
    """Return both worlds for a release of counts: the canary is in the fullest zone that the release covers.

    Raises:
        DataError: the recording has no day whose counts are bounded, where a whole day is paid for.
    """
    covered = [i for i, zone in enumerate(recorded.site.zones) if release.zones.covers(zone)]
    zone = max(covered, key=lambda place: int(day.counts[:, place].sum()))
    if release.by_day:
        return _all_day(policy, recorded, day, zone)
    first = int(day.counts[:, zone].argmax())
    held = range(first, first + release.windows_paid)
    shown = day.windows[max(0, first - AFTER) : held.stop + AFTER]
    ticks = {window.window_end for window in day.windows[held.start : held.stop]}
    return Worlds([_with(window, zone) if window.window_end in ticks else window for window in shown], shown, zone)


def _with(window: OccupancyWindow, zone: int) -> OccupancyWindow:
    return replace(window, counts=_one_more(window.counts, zone))


def _one_more(counts: tuple[int, ...], zone: int) -> tuple[int, ...]:
    return (*counts[:zone], counts[zone] + 1, *counts[zone + 1 :])


def _all_day(policy: Policy, recorded: Recorded, day: Day, zone: int) -> Worlds:
    days = recorded.site.privacy_days
    if days is None:
        raise UsageError("a release that is paid by the day must be of a site with privacy days")
    privacy_day = days.at(int(day.ticks[len(day.ticks) // 2]))
    shown = [w for w in recorded.windows if privacy_day.start < w.window_end <= privacy_day.end]
    alone = {window.window_end: window for window in _alone(policy, recorded, zone, shown)}
    there, last = [], 0
    for place, window in enumerate(shown):
        mine = alone.get(window.window_end)
        if window.bounded is None or mine is None or mine.bounded is None:
            there.append(window)
            continue
        counts, bounded = (_sum(a, b) for a, b in ((window.counts, mine.counts), (window.bounded, mine.bounded)))
        there.append(replace(window, counts=counts, bounded=bounded))
        last = place if any(mine.bounded) else last
    if not last:
        raise DataError("the recording must hold a whole privacy day; the canary counted in no window of it")
    first = next(place for place, (a, b) in enumerate(zip(there, shown, strict=True)) if a.bounded != b.bounded)
    return Worlds(there[first : last + 1], shown[first : last + 1], zone)


def _sum(counts: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(counts, more, strict=True))


def _alone(policy: Policy, recorded: Recorded, zone: int, shown: Sequence[OccupancyWindow]) -> list[OccupancyWindow]:
    """Return the windows of a building in which there is the canary alone, from an hour after the day's start on."""
    sense = table(policy, recorded.name, laboratory(0), Options(), keep_presence=False).sense
    state, made = sense.initial(), list[OccupancyWindow]()
    for message in _messages(recorded, zone, shown[0].window_end, shown[-1].window_end):
        state, out = sense.step(state, message)
        made += [each for each in out if isinstance(each, OccupancyWindow)]
    return made


def _messages(recorded: Recorded, zone: int, first: Micros, last: Micros) -> Iterator[Message]:
    site, name, days = recorded.site, recorded.name, recorded.site.privacy_days
    radio, sequence = site.zones[zone].radios[0], 0
    for tick in range(first - site.tick, last + 1, site.tick):
        if tick > first + HOUR:  # residents are whoever is there in the day's first half hour
            rows = (Row(NAME, radio, tick),)
            epoch = None if days is None else days.at(tick)
            yield ObservationBatch(name, site.sources[0], 1, sequence, rows, epoch)
            sequence += 1
        for source in site.sources:
            yield Heartbeat(name, source, 1, tick, first - 2 * site.tick)
    for source in site.sources:
        yield Heartbeat(name, source, 1, last + site.lateness + 1, first - 2 * site.tick)


class Attributed(NamedTuple):
    """A local day with somebody in an office, and with nobody there."""

    there: DayClosed
    """The canary came: what is told of it may not be sensitive."""
    away: DayClosed
    """Nobody came."""
    zone: str


def attributed(policy: Policy, recorded: Recorded, day: Day, release: AttributeRelease) -> Attributed:
    """Return both days for a release of attributes, of the first zone that it covers.

    Raises:
        DataError: no day comes of these windows.
    """
    site = recorded.site
    place = next(i for i, zone in enumerate(site.zones) if release.zones.covers(zone))
    opens, closes = (int(text[:2]) * 60 + int(text[3:]) for text in site.working_hours)
    local = ZoneInfo(site.timezone)
    empty, full = [], []
    after = replace(day.windows[-1], window_end=day.windows[-1].window_end + site.tick)
    for window in [*day.windows, after]:
        at = (EPOCH + timedelta(microseconds=window.window_end)).astimezone(local)
        counts = (*window.counts[:place], 0, *window.counts[place + 1 :])
        empty.append(replace(window, counts=counts))
        works = opens <= at.hour * 60 + at.minute < closes
        full.append(replace(window, counts=_one_more(counts, place) if works else counts))
    there, away = (_closed(policy, recorded.name, windows) for windows in (full, empty))
    return Attributed(there, away, site.zones[place].id)


def _closed(policy: Policy, site: str, windows: Sequence[OccupancyWindow]) -> DayClosed:
    stage = table(policy, site, laboratory(0), Options(), keep_presence=False).attributes
    state, made = stage.initial(), list[DayClosed]()
    for window in windows:
        state, out = stage.step(state, window)
        made += out
    if not made:
        raise DataError("the recording must hold a whole local day for attributes")
    return made[0]
