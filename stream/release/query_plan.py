"""Questions about the latest windows of a count release: window sums, jumps and drops, low signals.

Each has its own private topic and costs nothing: it reads released values, or the noisy values of PeGaSus'
groups, and never a count. After a window that was denied a question begins anew.

Half-widths of window sums, of their noise (w windows, k the half-width of one value):

    laplace, uniform, pegasus, filter   of w independent noises, as if nothing were smoothed
    shares                              the same at the zones' share, or √w k where consistency has made k small
    sample, ba                          a draw that stands for n windows counts n k, as its noise is n times as large;
                                        several draws are independent
    prune                               k of each window as independent; where a zone is 0, as if it were skipped each
                                        time: that errs always to the same side, and adds up
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from stream.mechanisms.contract import CountMechanism, Values
from stream.mechanisms.hierarchy import Hierarchy
from stream.mechanisms.noise import Ints, sum_half_width_95
from stream.mechanisms.queries import (
    STATISTICS,
    GroupWindowSum,
    History,
    JumpDrop,
    LowSignal,
    WindowSum,
    rounded,
)
from stream.mechanisms.smoothers import Ratio
from stream.policy.document import decimal_string
from stream.policy.queries import Query
from stream.records import Micros, OccupancyWindow, ReleaseId
from stream.release.count_plan import CountPlan, rounded_coverage
from stream.release.issuer import Head
from stream.schemas import CountRecord

Stage = WindowSum | GroupWindowSum | JumpDrop | LowSignal


class Answer(NamedTuple):
    """An answer, and what the quality of its record follows from."""

    numbers: Any
    """Exact sums, or signs; an entry a name."""
    values: Values
    """Of the newest window."""
    history: History


class QueryPlan:
    """One question about one count release at a site."""

    def __init__(self, plan: CountPlan, query: Query) -> None:
        self.plan = plan
        self.query = query
        self.stage = self._stage()

    def _stage(self) -> Stage:
        release, query = self.plan.release, self.query
        zones, windows = len(self.plan.names), query.windows
        grouped = release.declared.grouped and not release.shares
        self._by_group = grouped and release.smoother in STATISTICS and query.kind != "jump"
        self._widths_kept = query.kind == "window-sum" and (release.declared.carries or release.prune is not None)
        if self._widths_kept:
            return WindowSum(2 * zones, windows)
        sums = GroupWindowSum(zones, windows, release.smoother) if self._by_group else WindowSum(zones, windows)
        if query.kind == "window-sum":
            return sums
        threshold = Fraction(query.threshold or 0)
        return JumpDrop(zones, windows, threshold) if query.kind == "jump" else LowSignal(sums, threshold)

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's history is kept."""
        return f"{self.query.name}/{decimal_string(epsilon)}"

    def tells(self, audience: str) -> bool:
        """Whether an audience is told: everybody who is given the counts."""
        return audience in self.plan.release.epsilon

    def step(
        self, state: Any, values: Values | None, end: Micros, epsilon: Fraction | None = None
    ) -> tuple[Any, Answer | None]:
        """Take a window's values (None: denied); return the next state and the answer, None while too early.

        No answer depends on the window's ``end``, nor on ``epsilon`` but by the values.
        """
        del end, epsilon
        item = None if values is None else self._item(values)
        after, [numbers] = self.stage.step(self.stage.initial() if state is None else state, item)
        return after, None if values is None or numbers is None else Answer(numbers, values, after)

    def _item(self, values: Values) -> Any:
        """Return what the stage reads of a window; where half-widths are kept, they stand behind the values."""
        n = len(self.plan.names)
        if self._by_group:
            return values.groups
        exact = Ratio(*(part[:n] for part in values.exact))
        if not self._widths_kept:
            return exact
        widths = (values.half_width[:n], np.ones(n, np.int64))
        return Ratio(*(np.concatenate(parts) for parts in zip(exact, widths, strict=True)))

    def record(
        self, head: Head, window: OccupancyWindow, audience: str, answer: Answer | None, reason: str | None
    ) -> CountRecord:
        """Return the record; its values are sums, or -1, 0 and 1 for drop, nothing and jump, or 0 and 1."""
        release, query = self.plan.release, self.query
        epsilon = release.epsilon[audience]
        mechanism = self.plan.mechanisms[epsilon]
        reason = reason or ("too_early" if answer is None else None)
        return CountRecord(
            release_id=str(ReleaseId(self.plan.site, query.name, audience, head.window_end, head.attempt)),
            site=head.site,
            audience=audience,
            release=query.name,
            window_start=head.window_start,
            window_end=head.window_end,
            values=None if answer is None else self.plan.by_name(self._numbers(answer)),
            released=answer is not None,
            reason=reason,
            mechanism=f"{release.mechanism}/{query.kind}",
            epsilon=decimal_string(epsilon),
            spend="0",
            noise_scale=self.plan.by_name(self.plan.scales(mechanism, None if answer is None else answer.values)),
            half_width_95=self._half_widths(mechanism, answer) if query.kind == "window-sum" else None,
            half_width_kind="noise",
            coverage=rounded_coverage(window.coverage),
            policy_version=head.policy_version,
            laboratory=head.laboratory,
        )

    def _numbers(self, answer: Answer) -> list[int]:
        numbers = answer.numbers
        if self.query.kind == "window-sum":
            release = self.plan.release
            numbers = rounded(numbers, negative=not release.declared.clamped and not release.shares)
        return [int(number) for number in numbers[: len(self.plan.names)]]

    def _half_widths(self, mechanism: CountMechanism, answer: Answer | None) -> dict[str, float] | None:
        if answer is None:
            return None
        return self.plan.by_name([float(width) for width in self._widths(mechanism, answer)])

    def _widths(self, mechanism: CountMechanism, answer: Answer) -> list[int]:
        """Return the 95 % half-width of each name's sum; see the head of this module."""
        n, windows = len(self.plan.names), self.query.windows
        if self._widths_kept:
            values, widths = answer.history.numerator[:n], answer.history.numerator[n:]
            return (pruned_half_widths if self.plan.release.prune else repeated_half_widths)(values, widths)
        if isinstance(mechanism, Hierarchy):
            own = sum_half_width_95(mechanism.budget.noise_at(0), windows)
        else:
            own = mechanism.noise.sum_half_width_95(windows)
        if self.plan.made_to_add_up(mechanism):
            return [min(own, _root(windows * k * k)) for k in answer.values.half_width[:n].tolist()]
        return [own] * n


def repeated_half_widths(values: Ints, widths: Ints) -> list[int]:
    """Return the 95 % half-width of each name's sum over windows in which draws are repeated.

    Independent Laplace noises, each with its own weight, have together no more than the root of the sum of their
    squared half-widths, since one alone has the heaviest tail; of whole numbers, each a half-width of 1 more. Nor
    have they more than the sum of their half-widths.

    Args:
        values: what was published, shape [names, windows]; windows that are alike hold the same draw.
        widths: the half-width of each value, likewise.
    """
    both = np.vstack([values, widths])
    first = np.flatnonzero(np.append(True, (both[:, 1:] != both[:, :-1]).any(axis=0)))
    lengths, drawn = np.diff(np.append(first, both.shape[1])), widths[:, first]
    together, apart = (drawn * lengths).sum(axis=1), (((drawn + 1) * lengths) ** 2).sum(axis=1)
    return [min(most, _root(squares)) for most, squares in zip(together.tolist(), apart.tolist(), strict=True)]


def pruned_half_widths(values: Ints, widths: Ints) -> list[int]:
    """Return the 95 % half-width of each name's sum over windows in some of which its zone was skipped.

    Args:
        values: what was published, shape [names, windows]; 0 where the zone was skipped.
        widths: the half-width of each value, likewise.
    """
    skipped, noisy = np.where(values == 0, widths, 0).sum(axis=1), np.where(values == 0, 0, widths**2).sum(axis=1)
    return [sure + _root(squares) for sure, squares in zip(skipped.tolist(), noisy.tolist(), strict=True)]


def _root(square: int) -> int:
    """Return the square root, rounded up."""
    return 1 + math.isqrt(square - 1) if square else 0
