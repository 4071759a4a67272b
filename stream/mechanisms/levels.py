"""Floors and buildings: sums over zones of what was released anyway, so they cost nothing more.

    symbol   meaning
    E_i      sum over floor i of the values before rounding and clamping, since clamped zones add up to a bias
    B        the building: Σ E_i, rounded half to even, and at least 0
    F_i      max(0, E_i)
    q_i      F_i B / Σ F: the floors, scaled to the building

Published are B and the q_i, each rounded down or up so that they make B exactly: the largest remainders up, of equal
ones that of the first floor. So floors and building never contradict each other; all of it is exact arithmetic. With
``laplace``, which is published as it is, nothing is clamped, and floors and building are the plain sums. Zones stay as
they are: they are rounded and clamped one by one, and their sum is not the building.

The noise of a sum is that of the zones' independent noises. What scaling has moved a floor comes on top of its
half-width, so that this errs to the safe side: with t the truth, published - t is at most as far from 0 as
F_i - t, which clamping has only made smaller, and what F_i was moved by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from stream.mechanisms.contract import CountMechanism, Values


class LevelSums(NamedTuple):
    """Sums of one window, and their 95 % half-widths."""

    building: int
    building_width: int
    floors: tuple[int, ...]
    floor_widths: tuple[int, ...]


def level_sums(
    mechanism: CountMechanism, values: Values, floors: Sequence[Sequence[int]], *, clamped: bool
) -> LevelSums:
    """Return the sums over each floor's zones, given by their places, and over all of them.

    Args:
        mechanism: made the values.
        values: of one window.
        floors: the places of each floor's zones.
        clamped: whether the mechanism's values are never negative, and so no sum either.
    """
    sums = [exact_sum(values, members) for members in floors]
    members = [place for floor in floors for place in floor]
    widths = [level_half_width(mechanism, values, floor) for floor in floors]
    building, width = round(sum(sums, Fraction(0))), level_half_width(mechanism, values, members)
    if not clamped:
        return LevelSums(building, width, tuple(round(each) for each in sums), tuple(widths))
    held = [max(Fraction(0), each) for each in sums]
    shared = shared_out(max(0, building), held)
    moved = [math.floor(abs(made - before)) for made, before in zip(shared, held, strict=True)]
    floor_widths = tuple(own + more for own, more in zip(widths, moved, strict=True))
    return LevelSums(max(0, building), width, shared, floor_widths)


def exact_sum(values: Values, members: Sequence[int]) -> Fraction:
    """Return the sum over some zones before rounding and clamping."""
    top, bottom = (part[list(members)].tolist() for part in values.exact)
    common = math.lcm(*bottom)
    return Fraction(sum(t * (common // b) for t, b in zip(top, bottom, strict=True)), common)


def shared_out(total: int, parts: Sequence[Fraction]) -> tuple[int, ...]:
    """Return whole numbers in the ratio of ``parts`` that make ``total``: the largest remainders are rounded up.

    Args:
        total: at least 0; 0 where all parts are.
        parts: at least 0.
    """
    whole = sum(parts, Fraction(0))
    scaled = [part * total / whole if whole else part for part in parts]
    shared = [math.floor(each) for each in scaled]
    by_remainder = sorted(range(len(parts)), key=lambda place: (shared[place] - scaled[place], place))
    for place in by_remainder[: total - sum(shared)]:
        shared[place] += 1
    return tuple(shared)


def level_half_width(mechanism: CountMechanism, values: Values, members: Sequence[int]) -> int:
    """Return the 95 % half-width of a plain sum: of the summed noise, or the sum of posterior half-widths."""
    if mechanism.half_width_kind == "posterior":
        return int(sum(int(values.half_width[i]) for i in members))
    return (values.noise or mechanism.noise).sum_half_width_95(len(members))
