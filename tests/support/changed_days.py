"""Days of exact counts through the sums of changes and the mechanism that publishes them."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from stream.mechanisms.base import TickInput, Values, WeekSlot
from stream.mechanisms.changes.calibration import changes_variances
from stream.mechanisms.changes.factor import factor_of
from stream.mechanisms.changes.mechanism import Changes, ChangeState, ChangeSums, DayChanges, DayTick
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise_labels import Context
from stream.records import MINUTE, Micros

TICK: Micros = 5 * MINUTE
MILLIONTH = Fraction(1, 10**6)
A_DAY = 288


def mechanism(
    nodes: int = 1, epsilon: Fraction = Fraction(2), others: Iterable[Fraction] = (), visits: int = 4, most: int = 1200
) -> Changes:
    """Return the mechanism at an epsilon, in a release that other audiences read too."""
    factor = factor_of(visits, TICK)
    own, *more = (changes_variances(e, MILLIONTH, factor, nodes=(nodes,))[0] for e in (epsilon, *others))
    return Changes(factor, own, (own, *more), (most,) * nodes)


def item(made: Changes, day: int, position: int, sums: Ints, key: bytes = b"k" * 32) -> TickInput:
    """Return the input of one tick: day 0 is a Tuesday."""
    end = (day * A_DAY + position + 1) * TICK
    names = tuple(f"n{node}" for node in range(made.nodes))
    slot = WeekSlot(min(position // 6, 47), min(position // 12, 23), (day + 1) % 7 >= 5, day)
    return TickInput(sums, np.zeros_like(sums), key, Context("site", "counts", end, 1, names), slot, position)


class Run:
    """A mechanism and its sums, tick after tick."""

    def __init__(self, made: Changes, key: bytes = b"k" * 32) -> None:
        self.mechanism, self.key = made, key
        self.sums = ChangeSums(made.factor, made.nodes)
        self.exact: DayChanges = self.sums.initial()
        self.state: ChangeState = made.initial()

    def tick(self, day: int, position: int, counts: Ints) -> Values:
        """Release the counts of one tick."""
        self.exact, [sums] = self.sums.step(self.exact, DayTick(day, position, counts))
        self.state, [values] = self.mechanism.step(self.state, item(self.mechanism, day, position, sums, self.key))
        return values

    def restart(self) -> None:
        """Continue from the byte forms of both states."""
        self.exact = self.sums.decode(self.sums.encode(self.exact))
        self.state = self.mechanism.decode(self.mechanism.encode(self.state))
