"""Bounded counts: at most K ticks of a device's privacy day.

At a tick of the day (S, E] a device counts in the zone of its last observation at or before the tick, if that
observation lies in the day and is still valid, and if the device has counted at fewer than K ticks of the day so far.
If residents are ignored, a device that is present at a tick of the day's first 30 minutes (a printer, an access point,
a machine that runs all night) counts only after it was absent at six ticks in a row; a tick at which it is not counted
does not use any of its K ticks. The counting of a device never depends on another device or on another day. Adding or
removing one device's day therefore changes at most K counts, all of that day.

The counters of a day are one run: they continue across restarts, and across changes of policy that keep their
definition (``ContributionBound``). When the definition changes, or part of the log or of the devices is lost, nothing
is counted until the next day begins: two runs in one day could count one device twice as often as promised.

| symbol | name              |
|--------|-------------------|
| S, E   | day.start, day.end |
| K      | most              |
"""

from __future__ import annotations

from collections.abc import Container, Hashable, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from stream.policy.privacy_days import EARLY, PrivacyDays
from stream.records import Micros, PrivacyDay

EMPTY_TICKS = 6
"""A resident that is absent at this many consecutive ticks has left; it counts after its return."""


class DayBound(Protocol):
    """What the definitions of all counters of a privacy day contain."""

    @property
    def day_starts(self) -> str:
        """Site-local time of day, ``HH:MM``."""

    @property
    def timezone(self) -> str:
        """IANA name."""

    @property
    def ignore_residents(self) -> bool:
        """Whether residents count only after they have left."""

    @property
    def logins(self) -> str | None:
        """What decides which messages belong to one login; None: devices count, each by itself."""


class ContributionBound(NamedTuple):
    """The definition of the counters; another definition is another run."""

    day_starts: str
    """Site-local time of day, ``HH:MM``."""
    timezone: str
    """IANA name."""
    most: int
    """K: ticks of a day at which a device counts at most; 0: the site bounds no counts by ticks."""
    ignore_residents: bool
    tick_length: Micros
    validity: Micros
    logins: str | None = None
    """Where logins count instead of devices, what decides which messages belong to one (``Site.login_terms``)."""


@dataclass(slots=True)
class DayCounter:
    """The counters of the current privacy day; they are discarded at the first tick of the next."""

    definition: Any
    """A ``ContributionBound`` or ``VisitBound``; None if the site no longer bounds counts but did so earlier in the
    day."""
    day: PrivacyDay | None = None
    """The day of the last tick; None before the first."""
    resumes: Micros | None = None
    """Counting resumes with the first day that starts at this time or later; None: the counters are counting."""
    counted: dict[str, int] = field(default_factory=dict, repr=False)
    """Device that was present at a tick of the day -> number of ticks at which it has counted."""
    residents: dict[str, int] = field(default_factory=dict, repr=False)
    """Resident device that does not count yet -> number of ticks in a row, up to the last one, at which it was
    absent."""

    @property
    def seen(self) -> KeysView[str]:
        """The devices that were present at a tick of the day."""
        return self.counted.keys()

    def clear(self) -> None:
        """Forget all devices."""
        self.counted, self.residents = {}, {}

    def suspend_until(self, until: Micros) -> None:
        """Forget all devices, and count nothing before the first day that starts at ``until`` or later."""
        self.clear()
        self.resumes = until if self.resumes is None else max(self.resumes, until)

    def is_over(self, tick: Micros) -> bool:
        """Whether a site without a definition no longer needs these counters: the day they wait for is over."""
        return self.resumes is None or tick >= self.resumes

    def to_plain(self) -> list[Any]:
        """Return lists, numbers and strings, in one fixed order."""
        definition, day = plain_definition(self.definition), None if self.day is None else list(self.day)
        return [definition, day, self.resumes, sorted(self.counted.items()), sorted(self.residents.items())]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> DayCounter:
        """Return the counters that ``to_plain`` has written; ValueError or TypeError for anything else."""
        definition, day, resumes, counted, residents = plain
        return cls(
            None if definition is None else ContributionBound(*definition),
            None if day is None else PrivacyDay(*day),
            resumes,
            dict(counted),
            dict(residents),
        )


def plain_definition(definition: Any) -> list[Any] | None:
    """Return the fields of a definition; that of logins only if there are any, as it came later than the others."""
    if definition is None:
        return None
    fields = definition._asdict()
    return [fields[name] for name in fields if name != "logins" or fields[name] is not None]


class DayCounts:
    """The privacy day of each tick, and the devices that its counters consider; ticks come in order."""

    def __init__(self, bound: DayBound) -> None:
        self._ignore_residents = bound.ignore_residents and bound.logins is None  # else ``sensing.logins`` does
        self.days = PrivacyDays(bound.day_starts, bound.timezone)

    def suspend(self, tally: DayCounter, next_tick: Micros | None) -> None:
        """Stop counting for the privacy days of the last and of the next tick."""
        over = [day.end for day in (tally.day, next_tick and self.days.at(next_tick)) if day]
        if over:
            tally.suspend_until(max(over))

    def present_today(
        self, tally: DayCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]]
    ) -> dict[str, int] | None:
        """Return device -> zone of the devices present at the next tick by the day's data; note which are residents.

        None while the counters may not count.
        """
        start = self._day_of(tally, tick).start
        if tally.resumes is not None:
            return None
        here = {device: zone for device, (zone, time) in present.items() if time > start}
        if self._ignore_residents:
            note_residents(tally.residents, tally.seen, here, early=tick <= start + EARLY)
        return here

    def _day_of(self, tally: DayCounter, tick: Micros) -> PrivacyDay:
        """Return the day of a tick; if it is not the day of the counters, reset them for it.

        Under newer time zone data the new day may share ticks with the previous one; then the previous one must be over
        before counting resumes.
        """
        day = self.days.at(tick)
        if day != tally.day:
            if tally.day is not None and day.start < tally.day.end:
                tally.suspend_until(tally.day.end)
            tally.clear()
            tally.day = day
            if tally.resumes is not None and day.start >= tally.resumes:
                tally.resumes = None
        return day


class BoundedCounts(DayCounts):
    """Computes the bounded counts of each tick from the devices present; ticks come in order."""

    def __init__(self, definition: ContributionBound) -> None:
        super().__init__(definition)
        self.definition = definition

    def initial(self) -> DayCounter:
        """Return the counters of a site before its first message; they count from its first tick on."""
        return DayCounter(self.definition)

    def count(
        self, tally: DayCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]], zones: int
    ) -> tuple[int, ...] | None:
        """Count the next tick and update the counters, in place.

        Args:
            tally: the counters up to the previous tick.
            tick: microseconds, later than any before.
            present: device -> (zone, time of its last observation), all still valid at the tick.
            zones: number of zones.

        Returns:
            One count per zone; None while the counters may not count, and without a bound by ticks.
        """
        if not self.definition.most:
            self._day_of(tally, tick)
            return None
        here = self.present_today(tally, tick, present)
        if here is None:
            return None
        counts = [0] * zones
        for device, zone in here.items():
            before = tally.counted.setdefault(device, 0)
            if before < self.definition.most and device not in tally.residents:
                tally.counted[device] = before + 1
                counts[zone] += 1
        return tuple(counts)


DeviceT = TypeVar("DeviceT", bound=Hashable)


def note_residents(
    residents: dict[DeviceT, int], seen: Container[DeviceT], here: Mapping[DeviceT, object], *, early: bool
) -> None:
    """Add the devices that are resident at this tick, and remove those that were absent for long enough.

    Args:
        residents: resident that does not count yet -> number of ticks in a row at which it was absent.
        seen: the devices that were present at an earlier tick of the day.
        here: the devices that are present at this tick.
        early: whether the tick lies in the first minutes of the day (``EARLY``).
    """
    if early:
        residents |= {device: 0 for device in here if device not in seen}
    for device, absent in list(residents.items()):
        residents[device] = 0 if device in here else absent + 1
        if residents[device] == EMPTY_TICKS:
            del residents[device]


def migrated_counter(
    stored: DayCounter | None, definition: ContributionBound | None, reach: Micros | None
) -> DayCounter | None:
    """Return the counters with which a site resumes from a stored state.

    The time at which counting resumes follows from policy and clock alone, never from observations: otherwise one
    device could decide which windows are released.

    Args:
        stored: the counters in the state; None if it has none.
        definition: the definition from now on; None: counts are not bounded.
        reach: an upper bound on the times of the observations that the site keeps, whether it keeps any or not; None
            if it keeps none.

    Returns:
        The stored counters if their definition is the same. Otherwise counters that resume with the first day that
        starts after the day of the stored ones is over and after all observations under other pseudonyms; None if there
        is nothing to wait for and nothing to count.
    """
    if stored is not None and stored.definition == definition:
        return stored
    renamed = definition is not None and changes_pseudonyms(stored, definition)
    resumes = resumption(stored, reach if renamed else None)
    return None if definition is None and resumes is None else DayCounter(definition, resumes=resumes)


def resumption(stored: DayCounter | None, reach: Micros | None) -> Micros | None:
    """Return when counters of another definition may resume, with the first day that starts then or later.

    Args:
        stored: the counters so far; None if there are none.
        reach: an upper bound on the times of observations under other pseudonyms; None if there are none.
    """
    over = [reach] if stored is None else [stored.resumes, stored.day and stored.day.end, reach]
    return max((each for each in over if each is not None), default=None)


def changes_pseudonyms(stored: DayCounter | None, definition: ContributionBound | None) -> bool:
    """Whether devices change pseudonyms at other times under this definition than under that of the counters."""
    return _name_period(None if stored is None else stored.definition) != _name_period(definition)


def _name_period(definition: ContributionBound | None) -> tuple[str, str] | None:
    """Return the fields that determine when a device's pseudonym changes."""
    return None if definition is None else (definition.day_starts, definition.timezone)
