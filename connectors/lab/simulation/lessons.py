"""Lessons on a simulated building: each mechanism's output beside the truth.

No data concern real people: devices, key and noise are made from fixed seeds, by the mechanisms that also release real
counts. Only therefore may the truth be shown beside released values.

The detective's questions (Ghayyur, thesis, section 3.2.1) are four tasks on private series whose truth is known. All of
it is a function of the round's number, the terms of release and the run, so nothing about players is stored. Two events
are inserted into the simulated counts, as in the study: a sensor that fails, and people who come each week at the same
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache, lru_cache
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.lab.evaluation import (
    WORTHLESS,
    Score,
    by_occupancy,
    event_start,
    places_off,
    score,
    stuck_from,
    windows_above,
)
from stream.lab.simulator.events import Simulation, SimulatorConfig, simulate
from stream.lab.simulator.visits import Visits
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.registry import ReleaseContext, count_mechanism, release_counts
from stream.records import DAY, HOUR, MINUTE, SECOND, Micros

Ints = NDArray[np.int64]
Epsilon = Literal["0.01", "0.03", "0.1", "0.3", "1", "3", "10"]
Mechanism = Literal["laplace", "pegasus", "filter"]
EPSILONS: tuple[Epsilon, ...] = ("0.01", "0.03", "0.1", "0.3", "1", "3", "10")
MECHANISMS: tuple[Mechanism, ...] = ("laplace", "pegasus", "filter")
WINDOW: Micros = 5 * MINUTE
WINDOWS = DAY // WINDOW
SIMULATED = SimulatorConfig(days=28, seed=2018, zones=24, scale=2.0)
"""Four weeks of February, whose days all have 24 hours."""
KEY = b"a laboratory key for lessons only"
"""A public key: nothing has to be hidden."""
LARGEST, LARGEST_ROOM = 2000, 300
"""The maximal number of devices in a place, or in a room, for mechanisms that need it."""


class Released(NamedTuple):
    """A place's counts and their released values, one entry per window."""

    ends: Ints
    """Microseconds."""
    truth: Ints
    values: Ints
    half_widths: Ints
    kind: str
    """Of the half-widths: ``noise`` or ``posterior``."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """The building, with the true counts of all of its windows."""

    simulation: Simulation
    ends: Ints
    counts: Ints
    """Shape [windows, zones]."""

    @property
    def timezone(self) -> ZoneInfo:
        """The building's time zone, which defines its days."""
        return ZoneInfo(self.simulation.config.timezone)

    @property
    def zones(self) -> tuple[str, ...]:
        """Its zones, in the order of the counts."""
        return self.simulation.building.zones

    def of_day(self, day: int) -> slice:
        """Return the windows of a day, by index."""
        return slice(day * WINDOWS, (day + 1) * WINDOWS)

    def busiest(self, *kinds: str) -> list[int]:
        """Return the zones of some kinds, in descending order of their peaks."""
        peaks = self.counts.max(axis=0)
        of_kind = [index for index, kind in enumerate(self.simulation.building.kinds) if kind in kinds]
        return sorted(of_kind, key=lambda index: (-int(peaks[index]), index))

    def slot(self, end: Micros) -> WeekSlot:
        """Return a window's slot of the local week."""
        local = datetime.fromtimestamp(end // SECOND, UTC).astimezone(self.timezone)
        return WeekSlot(local.hour * 2 + local.minute // 30, local.hour, local.weekday() >= 5)


def true_counts(visits: Visits, ends: Ints, zones: int) -> Ints:
    """Return how many stays each zone has at each tick, shape [ticks, zones]: those with start <= tick < end."""
    change = np.zeros((len(ends) + 1, zones), dtype=np.int64)
    np.add.at(change, (np.searchsorted(ends, visits.start), visits.zone), 1)
    np.add.at(change, (np.searchsorted(ends, visits.end), visits.zone), -1)
    return np.cumsum(change, axis=0)[:-1]


@cache
def lessons() -> Lessons:
    """Return the building, which is simulated at the first call."""
    simulation = simulate(SIMULATED)
    ends = np.arange(simulation.start + WINDOW, simulation.end + 1, WINDOW, dtype=np.int64)
    counts = true_counts(simulation.visits, ends, len(simulation.building.zones))
    return Lessons(simulation, ends, counts)


def released(
    of: Lessons, name: str, places: Sequence[str], ends: Ints, counts: Ints, terms: tuple[Mechanism, str],
    largest: int = LARGEST,
) -> tuple[Ints, Ints, str]:  # fmt: skip
    """Return (values, half widths, kind of these) of places that are released together, shape [windows, places].

    Args:
        of: the building.
        name: of the release, for its noise; another name has other noise.
        places: names of what is counted; a device is in one of them.
        ends: of the windows.
        counts: true ones, shape [windows, places].
        terms: mechanism, and the epsilon of a window, decimal.
        largest: the maximal number of devices in any of the places.
    """
    mechanism = count_mechanism(terms[0], epsilon=Fraction(terms[1]), max_counts=[largest] * len(places))
    naming = ReleaseContext("lesson", name, tuple(places), lambda day: KEY + day.to_bytes(8, "big"), of.slot)
    values, widths = release_counts(mechanism, naming, ends, counts)
    return values, widths, mechanism.half_width_kind


def places_shown(of: Lessons) -> dict[str, list[int]]:
    """Return the selectable places with their zones: the building, and rooms from busy to quiet."""
    rooms = of.busiest("classroom", "open", "corridor")
    chosen = (rooms[0], rooms[len(rooms) // 3], rooms[-1])
    return {"building": list(range(len(of.zones))), **{of.zones[index]: [index] for index in chosen}}


@lru_cache(maxsize=len(EPSILONS) * len(MECHANISMS) * 4)
def day_released(place: str, mechanism: Mechanism, epsilon: Epsilon) -> Released:
    """Return the first day of a place, released on its own."""
    of = lessons()
    day = of.of_day(0)
    truth = of.counts[day][:, places_shown(of)[place]].sum(axis=1, keepdims=True)
    values, widths, kind = released(of, "day", [place], of.ends[day], truth, (mechanism, epsilon))
    return Released(of.ends[day], truth[:, 0], values[:, 0], widths[:, 0], kind)


Task = Literal["above", "region", "stuck", "event"]
TASKS: tuple[Task, ...] = ("above", "region", "stuck", "event")
ROUNDS = 12
MECHANISM: Mechanism = "pegasus"
"""That of the study."""
REGIONS = 5
"""Regions to choose from."""
WEEKS, SPAN = 3, 6
"""Weeks of an event; windows within which its people come."""
COMING, STAYING = 40, 16
"""People of the weekly event, and for how many windows they stay."""


class DetectiveTerms(NamedTuple):
    """The terms of release of a question's counts."""

    epsilon: str
    """Of a window, decimal."""
    mechanism: Mechanism = MECHANISM
    run: int = 0
    """Another run has other noise."""


class Series(NamedTuple):
    """A private series as the player sees it, with its truth."""

    name: str
    ends: Ints
    values: Ints
    half_widths: Ints
    truth: Ints
    """For those who have answered."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question: what is shown, what is true, and the answer by the values alone."""

    task: Task
    place: str
    series: tuple[Series, ...]
    truth: str
    machine: str
    """The answer that the same function computes from the released values."""
    off: Callable[[str], int]
    """The distance of an answer from the truth; UsageError if it is not a possible answer."""
    limit: int | None = None
    options: tuple[str, ...] = ()

    def score(self, answer: str) -> Score:
        """Return an answer's score; UsageError if it is not a possible answer to this question."""
        return score(self.off(answer), WORTHLESS[self.task])


@lru_cache(maxsize=len(TASKS) * ROUNDS * len(EPSILONS))  # all that exist, so that repeated requests cost nothing
def case(task: Task, number: int, epsilon: Epsilon) -> Case:
    """Return a question of a round of the game, released at an epsilon per window."""
    return drawn(task, number, DetectiveTerms(epsilon))


def drawn(task: Task, number: int, terms: DetectiveTerms) -> Case:
    """Return a question of a round (0 … 11), released on given terms."""
    return {"above": _above, "region": _region, "stuck": _stuck, "event": _event}[task](lessons(), number, terms)


def _teaching_day(of: Lessons, number: int) -> int:
    """Return a weekday of the simulated weeks, a different one for each round."""
    weekdays = [day for day in range(len(of.ends) // WINDOWS) if not of.slot(int(of.ends[day * WINDOWS])).weekend]
    return weekdays[number % len(weekdays)]


def _noisy(
    of: Lessons, number: int, name: str, shown: tuple[list[str], slice, Ints], terms: DetectiveTerms
) -> list[Series]:
    places, windows, truth = shown
    ends, name = of.ends[windows], f"{name}-{number}" + (f"/{terms.run}" if terms.run else "")
    values, widths, _ = released(of, name, places, ends, truth, (terms.mechanism, terms.epsilon), LARGEST_ROOM)
    return [Series(place, ends, values[:, i], widths[:, i], truth[:, i]) for i, place in enumerate(places)]


def _above(of: Lessons, number: int, terms: DetectiveTerms) -> Case:
    room = of.busiest("classroom")[number % 3]
    day = of.of_day(_teaching_day(of, number))
    truth = of.counts[day][:, [room]]
    limit = 60 if int(truth.max()) > 70 else int(truth.max()) * 3 // 5
    [seen] = _noisy(of, number, "above", ([of.zones[room]], day, truth), terms)
    windows = windows_above(truth[:, 0], limit)

    def off(answer: str) -> int:
        return abs(_whole(answer) - windows)

    machine = str(windows_above(seen.values, limit))
    return Case("above", of.zones[room], (seen,), str(windows), machine, off, limit=limit)


def _region(of: Lessons, number: int, terms: DetectiveTerms) -> Case:
    day = _teaching_day(of, number)
    night = slice(day * WINDOWS + 18 * HOUR // WINDOW, (day + 1) * WINDOWS + 6 * HOUR // WINDOW)
    at_night = of.counts[night]
    order = np.argsort(-at_night.sum(axis=0), kind="stable")
    chosen = sorted(order[number % REGIONS : number % REGIONS + REGIONS].tolist())  # similar, not the same each round
    truth, places = at_night[:, chosen], [of.zones[zone] for zone in chosen]
    series = _noisy(of, number, "region", (places, night, truth), terms)
    ranks = by_occupancy({place: truth[:, i] for i, place in enumerate(places)})
    found = by_occupancy({each.name: each.values for each in series})

    def off(answer: str) -> int:
        return places_off(ranks, answer)

    return Case("region", "building", tuple(series), ranks[0], found[0], off, options=tuple(places))


def _stuck(of: Lessons, number: int, terms: DetectiveTerms) -> Case:
    room = of.busiest("classroom", "open")[3 + number % 3]
    day = of.of_day(_teaching_day(of, number + 1))
    truth = of.counts[day][:, [room]].copy()
    truth[(10 * 60 + 25 * number) * MINUTE // WINDOW :] = 0
    [seen] = _noisy(of, number, "stuck", ([of.zones[room]], day, truth), terms)
    broken = stuck_from(truth[:, 0])
    found = stuck_from(seen.values, at_most=2 * int(seen.half_widths[-1]))
    return Case(
        "stuck", of.zones[room], (seen,), _clock(broken or 0), _clock(WINDOWS - 1 if found is None else found),
        lambda answer: abs(_window(answer) - (broken or 0)),
    )  # fmt: skip


def _event(of: Lessons, number: int, terms: DetectiveTerms) -> Case:
    rooms = of.busiest("open")
    room, first = rooms[number % len(rooms)], _teaching_day(of, number) % 7
    start = (9 * 60 + (35 * number) % 480) * MINUTE // WINDOW
    series, weeks, truth = [], [], []
    for week in range(WEEKS):
        day = of.of_day(first + 7 * week)
        counts = of.counts[day][:, [room]].copy()
        counts[:, 0] += _visitors(number, week, start)
        [seen] = _noisy(of, number, "event", ([of.zones[room]], day, counts), terms)
        series.append(seen._replace(name=str(week + 1)))
        weeks.append(seen.values)
        truth.append(counts[:, 0])
    found = event_start(np.stack(weeks), SPAN)
    return Case(
        "event", of.zones[room], tuple(series), _clock(start), _clock(found),
        lambda answer: abs(_window(answer) - start),
    )  # fmt: skip


def _visitors(number: int, week: int, start: int) -> Ints:
    """Return how many of the event's people are present: some come a window late, and all leave within four."""
    person = np.arange(COMING)
    comes = start + ((person + number + week) % 4 == 0)
    leaves = start + STAYING + (person * 5 + number + week) % 4
    window = np.arange(WINDOWS)[:, None]
    there: Ints = ((comes <= window) & (window < leaves)).sum(axis=1)
    return there


def _clock(window: int) -> str:
    """Return the local time at which a window of a day ends."""
    minutes = (window + 1) * WINDOW // MINUTE
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _window(clock: str) -> int:
    hour, colon, minute = clock.partition(":")
    minutes = _whole(hour) * 60 + _whole(minute)
    if not colon or not 0 < minutes <= 24 * 60:
        raise UsageError(f"answer: must be a time as HH:MM, got {clock[:16]!r}")
    return (minutes * MINUTE - 1) // WINDOW


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 6):
        raise UsageError(f"answer: must be a whole number, got {text[:16]!r}")
    return int(text)
