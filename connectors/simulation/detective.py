"""The detective's questions (Ghayyur, thesis, section 3.2.1): four, on private series whose truth is known here.

Everything follows from the round's number, the terms of release and the run, so nothing is kept of who plays. Two
things are planted into the simulated counts, as in the study: a sensor that breaks, and people who
come each week at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from connectors.simulation.lessons import (
    EPSILONS,
    LARGEST_ROOM,
    WINDOW,
    WINDOWS,
    Epsilon,
    Ints,
    Lessons,
    Mechanism,
    lessons,
    released,
)
from stream.errors import UsageError
from stream.evaluation.tasks import (
    WORTHLESS,
    Score,
    by_occupancy,
    event_start,
    places_off,
    score,
    stuck_from,
    windows_above,
)
from stream.records import HOUR, MINUTE

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


class Terms(NamedTuple):
    """How the counts of a question are released."""

    epsilon: str
    """Of a window, decimal."""
    mechanism: Mechanism = MECHANISM
    run: int = 0
    """Another run has other noise."""


class Series(NamedTuple):
    """A private series as the player sees it, and what is behind it."""

    name: str
    ends: Ints
    values: Ints
    half_widths: Ints
    truth: Ints
    """For those who have answered."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question: what is shown, what is true, and what the values alone would answer."""

    task: Task
    place: str
    series: tuple[Series, ...]
    truth: str
    machine: str
    """What the same function answers from the released values."""
    off: Callable[[str], int]
    """How far off an answer is; UsageError where it is none."""
    limit: int | None = None
    options: tuple[str, ...] = ()

    def score(self, answer: str) -> Score:
        """Return what an answer is worth; UsageError where it is no answer to this question."""
        return score(self.off(answer), WORTHLESS[self.task])


@lru_cache(maxsize=len(TASKS) * ROUNDS * len(EPSILONS))  # all there are: who asks on and on is no work
def case(task: Task, number: int, epsilon: Epsilon) -> Case:
    """Return a question of a round of the game, released at an epsilon a window."""
    return drawn(task, number, Terms(epsilon))


def drawn(task: Task, number: int, terms: Terms) -> Case:
    """Return a question of a round (0 … 11), released on given terms."""
    return {"above": _above, "region": _region, "stuck": _stuck, "event": _event}[task](lessons(), number, terms)


def _teaching_day(of: Lessons, number: int) -> int:
    """Return a weekday of the simulated weeks, another one for each round."""
    weekdays = [day for day in range(len(of.ends) // WINDOWS) if not of.slot(int(of.ends[day * WINDOWS])).weekend]
    return weekdays[number % len(weekdays)]


def _noisy(of: Lessons, number: int, name: str, shown: tuple[list[str], slice, Ints], terms: Terms) -> list[Series]:
    places, windows, truth = shown
    ends, name = of.ends[windows], f"{name}-{number}" + (f"/{terms.run}" if terms.run else "")
    values, widths, _ = released(of, name, places, ends, truth, (terms.mechanism, terms.epsilon), LARGEST_ROOM)
    return [Series(place, ends, values[:, i], widths[:, i], truth[:, i]) for i, place in enumerate(places)]


def _above(of: Lessons, number: int, terms: Terms) -> Case:
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


def _region(of: Lessons, number: int, terms: Terms) -> Case:
    day = _teaching_day(of, number)
    night = slice(day * WINDOWS + 18 * HOUR // WINDOW, (day + 1) * WINDOWS + 6 * HOUR // WINDOW)
    at_night = of.counts[night]
    order = np.argsort(-at_night.sum(axis=0), kind="stable")
    chosen = sorted(order[number % REGIONS : number % REGIONS + REGIONS].tolist())  # alike, not always the same
    truth, places = at_night[:, chosen], [of.zones[zone] for zone in chosen]
    series = _noisy(of, number, "region", (places, night, truth), terms)
    ranks = by_occupancy({place: truth[:, i] for i, place in enumerate(places)})
    told = by_occupancy({each.name: each.values for each in series})

    def off(answer: str) -> int:
        return places_off(ranks, answer)

    return Case("region", "building", tuple(series), ranks[0], told[0], off, options=tuple(places))


def _stuck(of: Lessons, number: int, terms: Terms) -> Case:
    room = of.busiest("classroom", "open")[3 + number % 3]
    day = of.of_day(_teaching_day(of, number + 1))
    truth = of.counts[day][:, [room]].copy()
    truth[(10 * 60 + 25 * number) * MINUTE // WINDOW :] = 0
    [seen] = _noisy(of, number, "stuck", ([of.zones[room]], day, truth), terms)
    broken = stuck_from(truth[:, 0])
    told = stuck_from(seen.values, at_most=2 * int(seen.half_widths[-1]))
    return Case(
        "stuck", of.zones[room], (seen,), _clock(broken or 0), _clock(WINDOWS - 1 if told is None else told),
        lambda answer: abs(_window(answer) - (broken or 0)),
    )  # fmt: skip


def _event(of: Lessons, number: int, terms: Terms) -> Case:
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
    told = event_start(np.stack(weeks), SPAN)
    return Case(
        "event", of.zones[room], tuple(series), _clock(start), _clock(told),
        lambda answer: abs(_window(answer) - start),
    )  # fmt: skip


def _visitors(number: int, week: int, start: int) -> Ints:
    """Return how many of the event's people are there: some come a window late, and all leave within four."""
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
