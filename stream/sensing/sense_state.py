"""What the sensing of a site remembers between items, and its stable byte form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from stream.errors import DataError
from stream.records import CountedWindow, Message, Micros, ObservationBatch
from stream.sensing import presence, watermark
from stream.sensing.contribution import Tally
from stream.sensing.waiting import END, Entry, Present, Stamp, Waiting
from stream.sensing.watermark import SiteClock

FORMS = 1, 2, 3
"""Versions of the state's byte form. The second is written where there is no tally of a privacy day, the third where
there is one; all are read."""


@dataclass(slots=True)
class SenseState:
    """What a site remembers between items; never more than ``max_devices`` devices."""

    clock: SiteClock = field(default_factory=SiteClock)
    next_tick: Micros | None = None
    """The window to close next; None until the site has a watermark."""
    closed: Micros | None = None
    """The last closed window."""
    current: Present = field(default_factory=dict, repr=False)
    """Who is present by the observations up to ``closed`` that are valid then."""
    pending: dict[Micros, Waiting] = field(default_factory=dict, repr=False)
    """Window -> what has been observed in it, for windows not yet closed."""
    rows: dict[Micros, dict[tuple[str, Micros], Entry]] = field(default_factory=dict, repr=False)
    """Window -> (device, time) -> last entry of that instant; filled only when stays are wanted."""
    stays_open: dict[str, presence.OpenStay] = field(default_factory=dict, repr=False)
    shut: bool = False
    """The site would have held more than ``max_devices``: nothing goes in or out until it is reopened."""
    counters: Counter[str] = field(default_factory=Counter, repr=False)
    """``rows`` seen = ``accepted`` + the rows of every reason for which rows were dropped."""
    known: set[str] = field(default_factory=set, repr=False, compare=False)
    """The devices of ``current``, ``pending`` and ``tally``; follows from them."""
    tally: Tally | None = None
    """How often each device has counted this privacy day; None where the site bounds nothing."""

    def count(self, batch: ObservationBatch, dropped: Counter[str]) -> None:
        """Count the rows of a batch: those that each reason dropped, the others as accepted."""
        self.counters["rows"] += len(batch.rows)
        self.counters["accepted"] += len(batch.rows) - dropped.total()
        self.counters.update(dropped)

    def count_dropped(self, item: Message, reason: str) -> None:
        """Count a whole batch as dropped, in rows."""
        if isinstance(item, ObservationBatch):
            self.count(item, Counter({reason: len(item.rows)}))
        elif isinstance(item, CountedWindow):
            self.counters.update({"rows": len(item.counts), reason: len(item.counts)})

    def forget_devices(self) -> None:
        """Forget everybody, and nothing else."""
        self.current, self.pending, self.rows, self.stays_open, self.known = {}, {}, {}, {}, set()

    def note_known(self) -> None:
        """Let ``known`` follow from what it follows from."""
        self.known = set(self.current).union(*(waiting.devices() for waiting in self.pending.values()))
        if self.tally is not None:
            self.known |= self.tally.counted.keys()

    def latest(self) -> Micros | None:
        """Return the time of the latest observation that is held; None where none is."""
        held = (*(time for _, time in self.current.values()), *(entry[0] for entry in _entries(self)))
        return max(held, default=None)


def encode(state: SenseState, zones: tuple[str, ...]) -> bytes:
    """Return the stable byte form: JSON in one fixed order, whatever order things arrived in."""
    stamps = sorted({entry[1] for entry in _entries(state)})
    number = {stamp: i for i, stamp in enumerate(stamps)}
    plain = {
        "form": 2 if state.tally is None else 3,
        "clock": watermark.to_plain(state.clock),
        "ticks": [state.next_tick, state.closed, state.shut],
        "zones": zones,
        "current": [[device, *where] for device, where in sorted(state.current.items())],
        "stamps": stamps,
        "pending": [[tick, _flat(waiting.entries, number)] for tick, waiting in sorted(state.pending.items())],
        "rows": [[tick, _flat(entries, number)] for tick, entries in sorted(state.rows.items())],
        "stays": [[device, *stay] for device, stay in sorted(state.stays_open.items())],
        "counters": sorted(state.counters.items()),
    }
    return orjson.dumps(plain if state.tally is None else plain | {"tally": state.tally.to_plain()})


def decode(data: bytes, zones: tuple[str, ...]) -> SenseState:
    """Return the state whose byte form is ``data``; ``DataError`` when it is not one.

    Zones are known by name: where the registry has changed, devices in zones that are gone are let go.
    """
    try:
        return _state_of(orjson.loads(data), zones)
    except (ValueError, TypeError, KeyError, IndexError):
        raise DataError("sense state: not the byte form of a state") from None


def _entries(state: SenseState) -> list[Entry]:
    pending = [entry for waiting in state.pending.values() for entry in waiting.entries.values()]
    return pending + [entry for entries in state.rows.values() for entry in entries.values()]


def _flat(entries: Mapping[Any, Entry], number: Mapping[Stamp, int]) -> list[list[Any]]:
    """Entries as rows [key, time, stamp number, row, zone], in the order of their keys."""
    return [[key, time, number[stamp], row, zone] for key, (time, stamp, row, zone) in sorted(entries.items())]


class Standing(NamedTuple):
    """Where a site's sensing stands: nothing in it is of anybody."""

    watermark: Micros | None
    last_window: Micros | None
    """End of the window that closed last."""
    shut: bool
    """Whether the site has closed at ``max_devices``."""
    reached: Micros
    """The time that it has come to by its own clock."""


def standing(data: bytes) -> Standing:
    """Return where the sensing stands whose byte form is ``data``, of this form or an earlier one, without its zones.

    Raises:
        DataError: it is no such form.
    """
    try:
        plain = orjson.loads(data)
        _, closed, shut, *_ = plain["ticks"]
        clock = watermark.from_plain(plain["clock"], form=plain["form"])
        return Standing(clock.watermark, closed, plain["form"] > 1 and shut, watermark.reached(clock))
    except (ValueError, TypeError, KeyError, IndexError):
        raise DataError("sense state: not the byte form of a state") from None


def _state_of(plain: dict[str, Any], zones: tuple[str, ...]) -> SenseState:
    if plain["form"] not in FORMS:
        raise ValueError("form")
    stamps: list[Stamp] = [(source, session, sequence) for source, session, sequence in plain["stamps"]]
    index = {zone: i for i, zone in enumerate(zones)}
    now = {i: index.get(zone, END) for i, zone in enumerate(plain["zones"])} | {END: END}
    next_tick, closed, shut, *_ = plain["ticks"]
    state = SenseState(watermark.from_plain(plain["clock"], form=plain["form"]), next_tick, closed)
    state.shut = plain["form"] > 1 and shut
    state.current = {dev: (now[zone], time) for dev, zone, time in plain["current"] if now[zone] != END}
    for tick, entries in plain["pending"]:
        waiting = {key: (time, stamps[s], row, now[zone]) for key, time, s, row, zone in entries}
        state.pending[tick] = Waiting(tick, waiting)
    for tick, entries in plain["rows"]:
        state.rows[tick] = {tuple(k): (time, stamps[s], row, now[zone]) for k, time, s, row, zone in entries}
    state.stays_open = {device: presence.OpenStay(*stay) for device, *stay in plain["stays"]}
    state.counters = Counter(dict(plain["counters"]))
    state.tally = Tally.from_plain(plain["tally"]) if plain["form"] == 3 else None
    state.note_known()
    return state
