"""Privacy units in words: the same in 'account', 'policy show' and the demo, by the names that records have."""

from __future__ import annotations

UNITS = {
    "presence_tuple": "one device at one tick",
    "tuple_moved": "one device at one tick, elsewhere instead",
    "observation": "one trap",
    "observation_moved": "one trap, another instead",
    "device_w_event": "one device, {w} windows",
    "device_w_event_moved": "one device, {w} windows, elsewhere instead",
    "person_w_event": "one person, {w} windows",
    "device_day": "one device, one UTC day",
    "device_day_moved": "one device, one UTC day, elsewhere instead",
    "person_day": "one person, one UTC day",
    "device_total": "one device, in all",
    "person_total": "one person, in all",
    "temporal": "one tick, to who knows how people move",
    "meeting": "one tick, to who knows who meets whom",
}


def unit_words(unit: str, w: int | str = "w") -> str:
    """Return a unit in words; a unit that is not known keeps its own."""
    return UNITS.get(unit, unit.replace("_", " ")).format(w=w)


def worse_than_zero(release: str, audience: str, error: float, mean: float) -> str:
    """Return what to say of counts that say less than the number 0 does."""
    return (
        f"{release} for {audience}: the mean error, {error:.2f}, is more than the mean count, {mean:.2f}. "
        "Always saying 0 would be nearer to the truth."
    )
