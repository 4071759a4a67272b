"""Queries of a count release's values: window sums, jumps, low signals, heat maps.

Each query has its own private topic and costs nothing: it reads released values, or the noisy values of PeGaSus'
groups, and never a count. After a denied window a query restarts from an empty state.

**Heat maps** (``HeatPlan``). Each window's released values become colours 1 … 10 (``values``); ``usual`` and
``usual_deviation`` contain the mean and deviation by which they are coloured. They follow from earlier releases to
the same audience, and from the clock.

**Half-widths of window sums**, of their noise (w windows, k the half-width of one value):

    laplace, uniform, pegasus, filter   of w independent noises, as if nothing were smoothed
    shares                              the same at the zones' share, or √w k where consistency has made k small
    sample, ba                          a draw that is repeated for n windows counts n k, as its noise is n times as
                                        large; several draws are independent
    prune                               k of each window as independent; where a zone is 0, as if it were skipped each
                                        time: that error always has the same sign, and adds up
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np

from stream.errors import PolicyError
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.base import CountMechanism, Ratio, Values
from stream.mechanisms.exact import Floats, Ints
from stream.mechanisms.heatmap import HeatMap, HeatMapInput, HeatMapState, HeatMapWindow
from stream.mechanisms.hierarchy import Hierarchy
from stream.mechanisms.noise import sum_half_width_95
from stream.mechanisms.queries import STATISTICS, GroupWindowSum, JumpDrop, LowSignal, QueryHistory, WindowSum, rounded
from stream.operators import Operator
from stream.policy.counts import CountRelease, Query
from stream.policy.document import PolicyDocument
from stream.policy.fields import decimal_string
from stream.policy.sites import Site
from stream.policy.thresholds import ThresholdRelease
from stream.records import Micros
from stream.release.count_plan import CountPlan, count_plan
from stream.release.count_records import day_fields
from stream.release.ledger_writer import RecordHeader
from stream.schemas import CountRecord, ThresholdRecord

# Heat maps.

_DECIMALS = 3
"""Decimals of ``usual`` and ``usual_deviation`` in records."""


class HeatPlan:
    """The heat map of one count release at a site."""

    def __init__(self, plan: CountPlan, query: Query, site: Site) -> None:
        self.plan = plan
        self.query = query
        self.operator = HeatMap(len(plan.names), query.windows)
        self._timezone, self._day_starts = site.timezone, site.day_starts or MIDNIGHT

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's history is stored."""
        return f"{self.query.name}/{decimal_string(epsilon)}"

    def publishes_to(self, audience: str) -> bool:
        """Whether an audience receives the heat map: every audience of the counts does."""
        return audience in self.plan.release.epsilon

    def step(
        self, state: HeatMapState | None, values: Values | None, end: Micros, epsilon: Fraction | None = None
    ) -> tuple[HeatMapState, HeatMapWindow | None]:
        """Process a window's values (None: denied) and its end; return the next state and the colours, None while
        too few windows are known. The result depends on ``epsilon`` through the values only."""
        del epsilon
        released = None if values is None else values.values[: len(self.plan.names)]
        item = HeatMapInput(slot_of(end, self._timezone, self._day_starts), released)
        after, [shown] = self.operator.step(self.operator.initial() if state is None else state, item)
        return after, shown

    def record(
        self, header: RecordHeader, audience: str, shown: HeatMapWindow | None, reason: str | None
    ) -> CountRecord:
        """Return the record of a window's colours, or a record without them that contains the reason."""
        plan, release = self.plan, self.plan.release
        epsilon = release.epsilon[audience]
        return CountRecord(
            **header.fields(self.query.name, audience),
            values=None if shown is None else plan.by_name(shown.colours.tolist()),
            released=shown is not None,
            reason=reason or ("too_early" if shown is None else None),
            mechanism=f"{release.mechanism}/{self.query.kind}",
            epsilon=decimal_string(epsilon),
            spend="0",
            noise_scale=plan.by_name(plan.scales(epsilon)),
            half_width_95=None,
            half_width_kind="noise",
            usual=None if shown is None else plan.by_name(_rounded(shown.usual.mean)),
            usual_deviation=None if shown is None else plan.by_name(_rounded(shown.usual.deviation)),
            **day_fields(plan, audience),
        )


LARGEST_HELD = 16 << 20
"""Limit for the uncompressed heat map state of a site, in bytes: no snapshot is larger."""


def check_heat_maps(policy: PolicyDocument, file: str = "policy") -> None:
    """Raise PolicyError where a site's heat map state would not fit a snapshot."""
    for name, site in policy.site.items():
        size = sum(
            HeatMap(len(plan.names), query.windows).most_bytes(site.tick) * len(plan.mechanisms)
            for release in policy.release
            if isinstance(release, CountRelease) and release.queries and policy.zones_of(release, name)
            for plan in [count_plan(policy, release, name)]
            for query in release.queries
            if query.kind == "heatmap"
        )
        if size > LARGEST_HELD:
            raise PolicyError(
                f"{file}: heat maps must hold at most {LARGEST_HELD >> 20} MiB of a site's past, hold "
                f"{size / 2**20:.1f} at {name}; give fewer releases one, or fewer epsilons"
            )


def _rounded(numbers: Floats) -> Sequence[float]:
    return [round(number, _DECIMALS) for number in numbers.tolist()]


# Window sums, jumps and low signals.
QueryOperator = WindowSum | GroupWindowSum | JumpDrop | LowSignal


class QueryResult(NamedTuple):
    """An answer, and the values that determine the quality of its record."""

    numbers: Any
    """Exact sums, or signs; one entry per name."""
    values: Values
    """Values of the newest window."""
    history: QueryHistory


class QueryPlan:
    """One query of one count release at a site."""

    def __init__(self, plan: CountPlan, query: Query) -> None:
        self.plan = plan
        self.query = query
        self.operator = self._operator()

    def _operator(self) -> QueryOperator:
        release, query = self.plan.release, self.query
        zones, windows = len(self.plan.names), query.windows
        grouped = release.declared.grouped and not release.shares
        self._by_group = grouped and release.smoother in STATISTICS and query.kind != "jump"
        self._cached_widths = query.kind == "window-sum" and (release.declared.carries or release.prune is not None)
        if self._cached_widths:
            return WindowSum(2 * zones, windows)
        sums = GroupWindowSum(zones, windows, release.smoother) if self._by_group else WindowSum(zones, windows)
        if query.kind == "window-sum":
            return sums
        threshold = Fraction(query.threshold or 0)
        return JumpDrop(zones, windows, threshold) if query.kind == "jump" else LowSignal(sums, threshold)

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's history is stored."""
        return f"{self.query.name}/{decimal_string(epsilon)}"

    def publishes_to(self, audience: str) -> bool:
        """Whether an audience receives the answers: every audience of the counts does."""
        return audience in self.plan.release.epsilon

    def step(
        self, state: Any, values: Values | None, end: Micros, epsilon: Fraction | None = None
    ) -> tuple[Any, QueryResult | None]:
        """Process a window's values (None: denied); return the next state and the answer, None while too early.

        The answer does not depend on the window's ``end``, and depends on ``epsilon`` through the values only.
        """
        del end, epsilon
        item = None if values is None else self._item(values)
        after, [numbers] = self.operator.step(self.operator.initial() if state is None else state, item)
        return after, None if values is None or numbers is None else QueryResult(numbers, values, after)

    def _item(self, values: Values) -> Any:
        """Return the operator's input for a window; where half-widths are kept, they follow the values."""
        n = len(self.plan.names)
        if self._by_group:
            return values.groups
        exact = Ratio(*(part[:n] for part in values.exact))
        if not self._cached_widths:
            return exact
        width = values.half_width[:n] if values.noise is None else np.full(n, values.noise.half_width_95)
        widths = (width, np.ones(n, np.int64))
        return Ratio(*(np.concatenate(parts) for parts in zip(exact, widths, strict=True)))

    def record(
        self, header: RecordHeader, audience: str, answer: QueryResult | None, reason: str | None
    ) -> CountRecord:
        """Return the record; its values are sums, or -1, 0 and 1 for drop, no change and jump, or 0 and 1."""
        release, query = self.plan.release, self.query
        epsilon = release.epsilon[audience]
        mechanism = self.plan.mechanisms[epsilon]
        reason = reason or ("too_early" if answer is None else None)
        return CountRecord(
            **header.fields(query.name, audience),
            values=None if answer is None else self.plan.by_name(self._numbers(answer)),
            released=answer is not None,
            reason=reason,
            mechanism=f"{release.mechanism}/{query.kind}",
            epsilon=decimal_string(epsilon),
            spend="0",
            noise_scale=self.plan.by_name(self.plan.scales(epsilon, None if answer is None else answer.values)),
            half_width_95=self._half_widths(mechanism, answer) if query.kind == "window-sum" else None,
            half_width_kind="noise",
        )

    def _numbers(self, answer: QueryResult) -> list[int]:
        numbers = answer.numbers
        if self.query.kind == "window-sum":
            release = self.plan.release
            numbers = rounded(numbers, negative=not release.declared.clamped and not release.shares)
        return [int(number) for number in numbers[: len(self.plan.names)]]

    def _half_widths(self, mechanism: CountMechanism, answer: QueryResult | None) -> dict[str, float] | None:
        if answer is None:
            return None
        return self.plan.by_name([float(width) for width in self._widths(mechanism, answer)])

    def _widths(self, mechanism: CountMechanism, answer: QueryResult) -> list[int]:
        """Return the 95 % half-width of each name's sum; see the module docstring."""
        n, windows = len(self.plan.names), self.query.windows
        if self._cached_widths:
            values, widths = answer.history.numerator[:n], answer.history.numerator[n:]
            return (pruned_half_widths if self.plan.release.prune else repeated_half_widths)(values, widths)
        if isinstance(mechanism, Hierarchy):
            own = sum_half_width_95(mechanism.budget.noise_at(0), windows)
        else:
            own = mechanism.noise.sum_half_width_95(windows)
        if self.plan.is_made_consistent(mechanism):
            return [min(own, _root(windows * k * k)) for k in answer.values.half_width[:n].tolist()]
        return [own] * n


def repeated_half_widths(values: Ints, widths: Ints) -> list[int]:
    """Return the 95 % half-width of each name's sum over windows in which draws are repeated.

    A sum of independent Laplace noises, each with its own weight, has a half-width of at most the root of the sum of
    their squared half-widths, since a single noise has the heaviest tail. For integer noise each half-width counts
    1 more. The half-width is also at most the sum of the half-widths.

    Args:
        values: published values, shape [names, windows]; consecutive windows with equal columns share a draw.
        widths: the half-width of each value, same shape.
    """
    both = np.vstack([values, widths])
    first = np.flatnonzero(np.append(True, (both[:, 1:] != both[:, :-1]).any(axis=0)))
    lengths, drawn = np.diff(np.append(first, both.shape[1])), widths[:, first]
    together, apart = (drawn * lengths).sum(axis=1), (((drawn + 1) * lengths) ** 2).sum(axis=1)
    return [min(most, _root(squares)) for most, squares in zip(together.tolist(), apart.tolist(), strict=True)]


def pruned_half_widths(values: Ints, widths: Ints) -> list[int]:
    """Return the 95 % half-width of each name's sum over windows in some of which its zone was skipped.

    Args:
        values: published values, shape [names, windows]; 0 where the zone was skipped.
        widths: the half-width of each value, same shape.
    """
    skipped, noisy = np.where(values == 0, widths, 0).sum(axis=1), np.where(values == 0, 0, widths**2).sum(axis=1)
    return [sure + _root(squares) for sure, squares in zip(skipped.tolist(), noisy.tolist(), strict=True)]


def _root(square: int) -> int:
    """Return the square root, rounded up."""
    return 1 + math.isqrt(square - 1) if square else 0


class FreeQuery(Protocol):
    """One query of one count release at a site."""

    @property
    def plan(self) -> CountPlan:
        """The plan of the count release."""

    @property
    def query(self) -> Query | ThresholdRelease:
        """The query in the policy."""

    @property
    def operator(self) -> Operator[Any, Any, Any]:
        """The operator of its history."""

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's history is stored."""

    def publishes_to(self, audience: str) -> bool:
        """Whether an audience receives the answers."""

    def step(self, state: Any, values: Values | None, end: Micros, epsilon: Fraction) -> tuple[Any, Any]:
        """Process a window's values (None: denied) at an epsilon, and the window's end.

        Returns:
            The next state and the answer; None if it is too early, or denied.
        """

    def record(
        self, header: RecordHeader, audience: str, answer: Any, reason: str | None
    ) -> CountRecord | ThresholdRecord:
        """Return the record of an answer; a record without an answer contains the reason."""


def free_queries(plan: CountPlan, site: Site) -> list[FreeQuery]:
    """Return the queries of a release, in the order of the policy."""
    return [
        HeatPlan(plan, query, site) if query.kind == "heatmap" else QueryPlan(plan, query)
        for query in plan.release.queries
    ]
