"""Counts to which a device adds at no more than K ticks of its privacy day, by what that day alone says of it.

At a tick of the day (S, E] a device counts where its last observation at or before the tick put it, if that
observation lies in the day and is still valid, and if it has counted at fewer than K ticks of the day before.
With residents ignored, a device present at a tick of the day's first 30 minutes (a printer, an access point, a
machine that runs all night) counts only after it was absent at six ticks in a row; what is not counted uses up
nothing. Whether a device counts never depends on another device or on another day, so one device's day, taken
away or put in, changes at most K counts, all of that day.

The counters of a day are one run: they go on over restarts and changes of policy that leave their definition
alone. Where it changes, or where a part of the log or of the devices is lost, nothing is counted until the next
day begins: two runs in one day would count one device twice as often as was promised.

| symbol | name              |
|--------|-------------------|
| S, E   | day.start, day.end |
| K      | most              |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stream.policy.privacy_day import EARLY, PrivacyDays
from stream.records import Micros, PrivacyDay

EMPTY_TICKS = 6
"""Absent at so many ticks in a row, a resident has left and counts from when it is back."""


class Definition(NamedTuple):
    """What counters count under; under another definition it is another run."""

    day_starts: str
    """Site-local time of day, ``HH:MM``."""
    timezone: str
    """IANA name."""
    most: int
    """K: ticks of a day at which a device counts at most."""
    ignore_residents: bool
    tick_length: Micros
    validity: Micros


@dataclass(slots=True)
class Tally:
    """The counters of the privacy day at hand; they are let go at the first tick of the next."""

    definition: Definition | None
    """None where the site bounds nothing any more, but has within the day."""
    day: PrivacyDay | None = None
    """The day of the last tick; None before the first."""
    resumes: Micros | None = None
    """Counts only from the first day on that starts then or later; None: counts now."""
    counted: dict[str, int] = field(default_factory=dict, repr=False)
    """Each device that was present at a tick of the day -> the ticks at which it has counted."""
    residents: dict[str, int] = field(default_factory=dict, repr=False)
    """Those of them that do not count yet -> the ticks in a row, up to the last one, at which they were absent."""

    def break_off(self, until: Micros) -> None:
        """Forget everybody and count nothing before the first day that starts at ``until`` or later."""
        self.counted, self.residents = {}, {}
        self.resumes = until if self.resumes is None else max(self.resumes, until)

    def is_over(self, tick: Micros) -> bool:
        """Whether the day is over that a site without a definition waits for."""
        return self.resumes is None or tick >= self.resumes

    def to_plain(self) -> list[Any]:
        """Return lists, numbers and strings, in one fixed order."""
        definition, day = (None if each is None else list(each) for each in (self.definition, self.day))
        return [definition, day, self.resumes, sorted(self.counted.items()), sorted(self.residents.items())]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Tally:
        """Return what ``to_plain`` has put down; ValueError or TypeError where it is nothing of that kind."""
        definition, day, resumes, counted, residents = plain
        return cls(
            None if definition is None else Definition(*definition),
            None if day is None else PrivacyDay(*day),
            resumes,
            dict(counted),
            dict(residents),
        )


class BoundedCounts:
    """From who is present at each tick, in order, to the bounded counts of its privacy day."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.days = PrivacyDays(definition.day_starts, definition.timezone)

    def initial(self) -> Tally:
        """Return the counters of a site of which nothing has been heard; they count from its first tick on."""
        return Tally(self.definition)

    def break_off(self, tally: Tally, next_tick: Micros | None) -> None:
        """Let the counters count nothing more of the day of their last tick, nor of that of the next."""
        over = [day.end for day in (tally.day, next_tick and self.days.at(next_tick)) if day]
        if over:
            tally.break_off(max(over))

    def count(
        self, tally: Tally, tick: Micros, present: Mapping[str, tuple[int, Micros]], zones: int
    ) -> tuple[int, ...] | None:
        """Count the next tick into the tally, in place.

        Args:
            tally: the counters up to the tick before.
            tick: microseconds, later than any before.
            present: device -> (zone, time of its last observation), all still valid at the tick.
            zones: how many zones there are.

        Returns:
            One count a zone; None while the counters may not count.
        """
        start = self._turn(tally, tick).start
        if tally.resumes is not None:
            return None
        here = {device: zone for device, (zone, time) in present.items() if time > start}
        if self.definition.ignore_residents:
            _note_residents(tally, here, early=tick <= start + EARLY)
        counts = [0] * zones
        for device, zone in here.items():
            before = tally.counted.setdefault(device, 0)
            if before < self.definition.most and device not in tally.residents:
                tally.counted[device] = before + 1
                counts[zone] += 1
        return tuple(counts)

    def _turn(self, tally: Tally, tick: Micros) -> PrivacyDay:
        """Return the day of a tick; where it is not that of the tally, begin it with nobody in it.

        Under newer data of the time zone it may share ticks with the one before; then that has to be over first.
        """
        day = self.days.at(tick)
        if day != tally.day:
            if tally.day is not None and day.start < tally.day.end:
                tally.break_off(tally.day.end)
            tally.day, tally.counted, tally.residents = day, {}, {}
            if tally.resumes is not None and day.start >= tally.resumes:
                tally.resumes = None
        return day


def _note_residents(tally: Tally, here: Mapping[str, int], *, early: bool) -> None:
    """Take in who is resident at this tick, and let go of who has been absent for long enough."""
    if early:
        tally.residents |= dict.fromkeys(here.keys() - tally.counted.keys(), 0)
    for device, absent in list(tally.residents.items()):
        tally.residents[device] = 0 if device in here else absent + 1
        if tally.residents[device] == EMPTY_TICKS:
            del tally.residents[device]


def adopted(held: Tally | None, definition: Definition | None, latest: Micros | None) -> Tally | None:
    """Return the counters with which a site goes on from a state.

    Args:
        held: the state's; None where it had none.
        definition: what is counted under from now on; None: nothing is.
        latest: time of the last observation in the state, which bears a name of its own definition; None where
            it has no observation.

    Returns:
        The same where they count under that definition. Otherwise counters that count from the first day on that
        starts when the day of the others is over, and with names of its own alone; None where there is nothing to
        wait for and nothing to count.
    """
    if held is None:
        return None if definition is None else Tally(definition, resumes=latest)
    if held.definition == definition:
        return held
    over = [held.resumes, held.day and held.day.end]
    if _names(held.definition) != _names(definition):
        over.append(latest)
    resumes = max((each for each in over if each is not None), default=None)
    return None if definition is None and resumes is None else Tally(definition, resumes=resumes)


def _names(definition: Definition | None) -> tuple[str, str] | None:
    """Return what decides when a device's name changes."""
    return None if definition is None else (definition.day_starts, definition.timezone)
