"""Floors and building as sums of zones' released values.

Without shares of their own, these sums cost nothing more than the zones.

    symbol   meaning
    E_i      sum over floor i of the values before rounding and clamping, since clamped zones add up to a bias
    B        the building: Σ E_i, rounded half to even, and at least 0
    F_i      max(0, E_i)
    q_i      F_i B / Σ F: the floors, scaled to the building

Published are B and the q_i, each rounded down or up so that they make B exactly: the largest remainders up, of
equal ones that of the first floor. So floors and building never contradict each other; all of it is exact
arithmetic. With ``laplace``, which is published as it is, nothing is clamped, and floors and building are the plain
sums. Zones stay as they are: they are rounded and clamped one by one, and their sum is not the building.

The noise of a sum is that of the zones' independent noises. Errors of smoothed values are not quite independent: where
many zones fill at once, all filters and groups follow late. A mechanism that knows more about sums than about zones
gives their half-widths itself (``Values.sums``): ``filter`` from the difference between noisy and filtered values
(:mod:`stream.mechanisms.filter.residuals`), ``sample`` and ``ba`` from the changes of sums
(:mod:`stream.mechanisms.wevent`). Otherwise the half-widths w_i (of groups: deviations) are summed as those of errors
with a correlation ρ, √((1 - ρ) Σw² + ρ (Σw)²). ρ is a constant; it was measured, and is larger in some buildings
(``docs/bands.md``). With groups the absolute sum of the expected errors is added. A floor's half-width also
contains the distance by which scaling has moved it, so that this errs to the safe side: with t the truth, published - t
is at most as far from 0 as F_i - t, which clamping has only made smaller, and that distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from stream.mechanisms.base import CountMechanism, Values
from stream.mechanisms.exact import deviation_of_sum, ordered_sum


class LevelSums(NamedTuple):
    """Sums of one window, and their 95 % half-widths."""

    building: int
    building_width: int
    floors: tuple[int, ...]
    floor_widths: tuple[int, ...]


def level_sums(
    mechanism: CountMechanism, values: Values, floors: Sequence[Sequence[int]], *, clamped: bool
) -> LevelSums:
    """Return the sums over each floor's zones, given by their positions, and over all of them.

    Args:
        mechanism: the mechanism of the values.
        values: of one window.
        floors: the positions of each floor's zones.
        clamped: whether the mechanism's values, and so the sums, are never negative.
    """
    sums = [exact_sum(values, members) for members in floors]
    members = [place for floor in floors for place in floor]
    widths = [level_half_width(mechanism, values, floor) for floor in floors]
    building, width = round(sum(sums, Fraction(0))), level_half_width(mechanism, values, members)
    if not clamped:
        return LevelSums(building, width, tuple(round(each) for each in sums), tuple(widths))
    clamped_sums = [max(Fraction(0), each) for each in sums]
    shared = shared_out(max(0, building), clamped_sums)
    moved = [math.floor(abs(made - before)) for made, before in zip(shared, clamped_sums, strict=True)]
    floor_widths = tuple(own + more for own, more in zip(widths, moved, strict=True))
    return LevelSums(max(0, building), width, shared, floor_widths)


def exact_sum(values: Values, members: Sequence[int]) -> Fraction:
    """Return the sum over some zones before rounding and clamping."""
    top, bottom = (part[list(members)].tolist() for part in values.exact)
    common = math.lcm(*bottom)
    return Fraction(sum(t * (common // b) for t, b in zip(top, bottom, strict=True)), common)


def shared_out(total: int, parts: Sequence[Fraction]) -> tuple[int, ...]:
    """Return integers in the ratio of ``parts`` with the sum ``total``: the largest remainders are rounded up.

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


ALIKE_REVISED, ALIKE_GROUPED = 0.03, 0.05
"""ρ of revised values and of groups: the assumed correlation of the errors of two zones (module docstring)."""


def level_half_width(mechanism: CountMechanism, values: Values, members: Sequence[int]) -> int:
    """Return the 95 % half-width of a plain sum: the mechanism's own, of summed noise, or of errors that are alike."""
    if values.sums is not None:
        return values.sums.half_width(members)
    if mechanism.half_width_kind == "noise":
        return (values.noise or mechanism.noise).sum_half_width_95(len(members))
    places = list(members)
    if len(places) == 1:
        return int(values.half_width[places[0]])
    if values.errors is None:
        return math.ceil(deviation_of_sum(values.half_width[places].astype(np.float64), ALIKE_REVISED))
    bias = abs(float(ordered_sum(values.errors.mean[places])))
    deviation = deviation_of_sum(values.errors.deviation[places], ALIKE_GROUPED)
    return math.ceil(max(_TWO_SIDED * deviation, bias + _ONE_SIDED * deviation) - 0.5)


_TWO_SIDED, _ONE_SIDED = 2.17, 1.88
"""A normal error exceeds the first multiple of its deviation in 3 % of cases on both sides together, the second one in
3 % on one side: ``group_errors.BAND``."""
