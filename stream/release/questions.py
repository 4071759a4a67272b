"""What is asked of a count release's values, for nothing: sums, jumps, low signals, heat maps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol

from stream.mechanisms.contract import Values
from stream.operators import Operator
from stream.policy.document import Site, ThresholdRelease
from stream.policy.queries import Query
from stream.records import Micros, OccupancyWindow
from stream.release.count_plan import CountPlan
from stream.release.heat_plan import HeatPlan
from stream.release.issuer import Head
from stream.release.query_plan import QueryPlan
from stream.schemas import CountRecord, ThresholdRecord


class Question(Protocol):
    """One question about one count release at a site."""

    @property
    def plan(self) -> CountPlan:
        """Of the release."""

    @property
    def query(self) -> Query | ThresholdRelease:
        """As the policy has it."""

    @property
    def stage(self) -> Operator[Any, Any, Any]:
        """What its history belongs to."""

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's history is kept."""

    def tells(self, audience: str) -> bool:
        """Whether an audience is told."""

    def step(self, state: Any, values: Values | None, end: Micros, epsilon: Fraction) -> tuple[Any, Any]:
        """Take a window's values (None: denied) at an epsilon, and its end.

        Returns:
            The next state and the answer, None: too early, or denied.
        """

    def record(
        self, head: Head, window: OccupancyWindow, audience: str, answer: Any, reason: str | None
    ) -> CountRecord | ThresholdRecord:
        """Return the record of an answer; without one it says why there is none."""


def questions_of(plan: CountPlan, site: Site) -> list[Question]:
    """Return the questions about a release, in the order of the policy."""
    return [
        HeatPlan(plan, query, site) if query.kind == "heatmap" else QueryPlan(plan, query)
        for query in plan.release.queries
    ]
