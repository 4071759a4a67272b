"""Questions answered from what a count release gives anyway: window sums, jumps and drops, low signals.

Each has its own private topic and costs nothing: it reads released values, or the noisy values of PeGaSus'
groups, and never a count. After a window that was refused a question begins anew.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from stream.count_plan import CountPlan, release_id
from stream.mechanisms.counts import CountMechanism, Laplace, Values
from stream.mechanisms.levels import sum_half_width_95
from stream.mechanisms.queries import STATISTICS, GroupWindowSum, JumpDrop, LowSignal, WindowSum, rounded
from stream.policy import decimal_string
from stream.policy_releases import Query
from stream.records import OccupancyWindow
from stream.schemas import rfc3339

Stage = WindowSum | GroupWindowSum | JumpDrop | LowSignal


class QueryPlan:
    """One question about one count release at a site."""

    def __init__(self, plan: CountPlan, query: Query) -> None:
        self.plan = plan
        self.query = query
        self.stage = self._stage()

    def _stage(self) -> Stage:
        zones, windows = len(self.plan.names), self.query.windows
        grouped = self.plan.release.mechanism == "pegasus" and not self.plan.release.shares
        smoother = self.plan.release.smoother
        self._by_group = grouped and smoother in STATISTICS and self.query.kind != "jump"
        sums = GroupWindowSum(zones, windows, smoother) if self._by_group else WindowSum(zones, windows)
        if self.query.kind == "window-sum":
            return sums
        threshold = Fraction(self.query.threshold or 0)
        return JumpDrop(zones, windows, threshold) if self.query.kind == "jump" else LowSignal(sums, threshold)

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's history is kept."""
        return f"{self.query.name}/{decimal_string(epsilon)}"

    def step(self, state: Any, values: Values | None) -> tuple[Any, Any]:
        """Take a window's values (None: refused); return the next state and the answer, None while too early."""
        n = len(self.plan.names)
        item: Any = None
        if values is not None:
            item = values.groups if self._by_group else type(values.exact)(*(part[:n] for part in values.exact))
        after, [answer] = self.stage.step(self.stage.initial() if state is None else state, item)
        return after, answer

    def record(
        self, window: OccupancyWindow, audience: str, attempt: int, answer: Any, reason: str | None
    ) -> dict[str, Any]:
        """Return the record's fields; its values are sums, or -1, 0 and 1 for drop, nothing and jump, or 0 and 1."""
        release, query = self.plan.release, self.query
        epsilon = release.epsilon[audience]
        mechanism = self.plan.mechanisms[epsilon]
        reason = reason or ("too_early" if answer is None else None)
        return {
            "release_id": release_id(self.plan.site, query.name, audience, rfc3339(window.window_end), attempt),
            "audience": audience,
            "release": query.name,
            "values": None if answer is None else self._named(self._numbers(mechanism, answer)),
            "released": answer is not None,
            "reason": reason,
            "mechanism": f"{release.mechanism}/{query.kind}",
            "epsilon": decimal_string(epsilon),
            "spend": "0",
            "noise_scale": self._named([float(1 / mechanism.noise_epsilon)] * len(self.plan.names)),
            "half_width_95": self._named(self._widths(mechanism)) if query.kind == "window-sum" else None,
            "half_width_kind": mechanism.half_width_kind,
            "coverage": round(float(window.coverage), 4),
        }

    def _numbers(self, mechanism: CountMechanism, answer: Any) -> list[int]:
        if self.query.kind == "window-sum":
            answer = rounded(answer, negative=isinstance(mechanism, Laplace))
        return [int(number) for number in answer]

    def _widths(self, mechanism: CountMechanism) -> list[float]:
        """Return half-widths as if no smoothing had brought the windows' noise together."""
        width = sum_half_width_95(mechanism.noise_epsilon, self.query.windows)
        return [float(width)] * len(self.plan.names)

    def _named(self, entries: list[Any]) -> dict[str, Any]:
        return dict(zip(self.plan.names, entries, strict=True))
