"""D'²: the largest |C'd|² of one device's day at one level, certified.

The bounds hold for every day of at most so many visits at all nodes of the level together, however they are divided
among the nodes, and for shorter days too: |C'd|² has one more square for each further tick. ``certificate`` proves
them; they are at most 1.5 % (in D') above a day that exists. A level of one node needs less than one of
several, where visits at different nodes do not lower each other's part.
"""

from __future__ import annotations

from stream.mechanisms.changes.factor import Factor

SEVERAL = 2
"""Stands for any number of nodes above 1."""

ONE_NODE: dict[int, tuple[int, ...]] = {
    300: (34121500000, 51696752910, 107134215407, 121736682573, 134941448612, 146880279859, 157500000000, 167291259927),
}
"""Ticks -> D'² of 1 to 8 visits at a level of one node, in units of u' squared."""

SEVERAL_NODES: dict[int, tuple[int, ...]] = {
    300: (34121500000, 59230382955, 139378300452, 165692815146, 189041213109, 210246341537, 230000000000, 248053984016),
}
"""The same at a level of several nodes."""


def squared_sensitivity(factor: Factor, nodes: int) -> int:
    """Return D'² of a level with this number of nodes, in units of u' squared."""
    table = ONE_NODE if nodes == 1 else SEVERAL_NODES
    ticks = min(ticks for ticks in table if ticks >= factor.ticks)
    return table[ticks][factor.visits - 1]
