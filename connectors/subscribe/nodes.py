"""The nodes of a record: zones, floors and the building, each value with its band.

Nodes are called ``zone:2011``, ``floor:2`` and ``building``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

BUILDING = "building"


class NodeValue(NamedTuple):
    """A released value of one node; ``low`` and ``high`` are the ends of its 95 % band, None if it has none."""

    node: str
    value: float
    low: float | None
    high: float | None
    half_width: float | None


def bound_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record's contribution bound under its own field name; nothing for records without a bound."""
    return {name: record[name] for name in ("bounded_to",) if name in record}


def node_values(record: Mapping[str, Any]) -> Iterator[NodeValue]:
    """Yield a count record's nodes in its order; nothing for a denied window.

    A negative value (plain noise may give one) is as released; no end of its band is below 0.
    """
    levels = [("zone:", record.get("values"), record.get("half_width_95"))]
    held, widths = record.get("levels") or {}, record.get("levels_half_width_95") or {}
    levels.append(("floor:", held.get("floor"), widths.get("floor")))
    building = {BUILDING: held[BUILDING]} if BUILDING in held else {}
    levels.append(("", building, widths))
    for prefix, values, half_widths in levels:
        for name, value in (values or {}).items():
            yield _banded(prefix + name, value, (half_widths or {}).get(name))


def _banded(node: str, value: float, half_width: float | None) -> NodeValue:
    """Return a value with its band. Both ends are at least 0, as counts are."""
    if half_width is None:
        return NodeValue(node, value, None, None, None)
    return NodeValue(node, value, max(0, value - half_width), max(0, value + half_width), half_width)
