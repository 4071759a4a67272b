"""The nodes of a record: zones, floors and the building, each value with its band.

Nodes are called ``zone:2011``, ``floor:2`` and ``building``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

BUILDING = "building"


class NodeValue(NamedTuple):
    """A released value of one node; ``low`` and ``high`` are the ends of its band, None if it has none.

    The band is one of 95 % for counts, and of 90 % for estimates of people, which have no half-width.
    """

    node: str
    value: float
    low: float | None
    high: float | None
    half_width: float | None


def bound_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the record's contribution bound under its own field name; nothing for records without a bound."""
    return {name: record[name] for name in ("bounded_to",) if name in record}


def counted_in(record: Mapping[str, Any]) -> str:
    """Return what a record's numbers count: ``people``, ``logins``, ``logins and devices``, or, where it does not say,
    ``devices``."""
    return str(record.get("counted", "devices"))


def node_values(record: Mapping[str, Any]) -> Iterator[NodeValue]:
    """Yield the nodes of a record of counts or people in its order; nothing for a window without values.

    A negative value (plain noise may give one) is as released; no end of its band is below 0.
    """
    if counted_in(record) == "people":
        yield from _estimates(record)
        return
    levels = [("zone:", record.get("values"), record.get("half_width_95"))]
    level_values, widths = record.get("levels") or {}, record.get("levels_half_width_95") or {}
    levels.append(("floor:", level_values.get("floor"), widths.get("floor")))
    building = {BUILDING: level_values[BUILDING]} if BUILDING in level_values else {}
    levels.append(("", building, widths))
    for prefix, values, half_widths in levels:
        for name, value in (values or {}).items():
            yield _banded(prefix + name, value, (half_widths or {}).get(name))


def _estimates(record: Mapping[str, Any]) -> Iterator[NodeValue]:
    """Yield the nodes of a record of people, each with the band that it states."""
    values, low, high = ({**(record.get(part) or {})} for part in ("values", "low", "high"))
    for name, value in values.items():
        yield NodeValue(f"zone:{name}", value, low[name], high[name], None)
    levels, low, high = ({**(record.get(part) or {})} for part in ("levels", "levels_low", "levels_high"))
    for name, value in levels.get("floor", {}).items():
        yield NodeValue(f"floor:{name}", value, low["floor"][name], high["floor"][name], None)
    if BUILDING in levels:
        yield NodeValue(BUILDING, levels[BUILDING], low[BUILDING], high[BUILDING], None)


def _banded(node: str, value: float, half_width: float | None) -> NodeValue:
    """Return a value with its band. Both ends are at least 0, as counts are."""
    if half_width is None:
        return NodeValue(node, value, None, None, None)
    return NodeValue(node, value, max(0, value - half_width), max(0, value + half_width), half_width)
