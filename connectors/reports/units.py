"""Privacy units in words: the same in 'account', 'policy show' and the demo, by the names that records have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

UNITS = {
    "presence_tuple": "one device at one tick",
    "tuple_moved": "one device at one tick, elsewhere instead",
    "observation": "one trap",
    "observation_moved": "one trap, another instead",
    "device_w_event": "one device, {w} windows",
    "device_w_event_moved": "one device, {w} windows, elsewhere instead",
    "person_w_event": "one person, {w} windows",
    "device_day": "one device, one day",
    "device_day_moved": "one device, one day, elsewhere instead",
    "person_day": "one person, one day",
    "device_total": "one device, in all",
    "person_total": "one person, in all",
    "temporal": "one tick, to who knows how people move",
    "meeting": "one tick, to who knows who meets whom",
}

COUNTED = {
    "presence_tuple": "one person in one cell: one zone at one tick",
    "tuple_moved": "one person in one cell, in another instead",
    "device_w_event": "one person, one cell in each of {w} windows",
    "device_w_event_moved": "one person, one cell in each of {w} windows, others instead",
    "device_day": "one person, one day",
    "device_day_moved": "one person, one day, elsewhere instead",
    "device_total": "one person, in all",
    "temporal": UNITS["temporal"],
    "meeting": UNITS["meeting"],
}
"""The units of a site that is told counts, which knows no device: a count is of people, each of whom is one."""


def unit_words(unit: str, w: int | str = "w", *, counted: bool = False) -> str:
    """Return a unit in words, ``counted`` at a site that is told counts; a unit that is not known keeps its own."""
    return (COUNTED if counted else UNITS).get(unit, unit.replace("_", " ")).format(w=w)


def unit_rows(
    readers: Sequence[Mapping[str, Any]], only: Collection[str] = UNITS, *, counted: bool = False
) -> Iterator[list[str]]:
    """Yield a row for each unit of an account: its name, and what it has cost each reader.

    Where a unit has an epsilon at delta that comes first, with its delta: it is never the larger one. Readers have
    the same units. Of a site that is told counts (``counted``) those of devices are left out.
    """
    known = [unit for unit in readers[0] if unit in only and (not counted or unit in COUNTED)]
    for unit in known:
        tight = [units.get("tight", {}).get(unit) for units in readers]
        if any(tight):
            delta = next(one["delta"] for one in tight if one)
            yield [f"{unit_words(unit, counted=counted)}, δ = {delta:g}", *(_at_delta(one) for one in tight)]
        yield [unit_words(unit, counted=counted), *(str(units[unit]) for units in readers)]


def _at_delta(tight: Mapping[str, float] | None) -> str:
    """Return an epsilon, rounded up to three decimals."""
    return "-" if tight is None else f"{math.ceil(tight['epsilon'] * 1000) / 1000:g}"
