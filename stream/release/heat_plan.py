"""The heat map of a count release as a stream: each window's released values in ten colours, free.

Its records have a topic of their own, ``values`` of 1 … 10 and, in ``usual`` and ``usual_deviation``, by what they are
coloured. All of it follows from what the audience was given before, and from the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from stream.errors import PolicyError
from stream.local_time import MIDNIGHT, slot_of
from stream.mechanisms.colours import Floats
from stream.mechanisms.contract import Values
from stream.mechanisms.heatmap import HeatMap, Passed, Past, Shown
from stream.policy.document import CountRelease, Policy, Site, decimal_string
from stream.policy.queries import Query
from stream.records import Micros, OccupancyWindow, ReleaseId
from stream.release.count_plan import CountPlan, rounded_coverage
from stream.release.issuer import Head
from stream.schemas import CountRecord

_DECIMALS = 3
"""Of what is usual, as records tell it."""


class HeatPlan:
    """The heat map of one count release at a site."""

    def __init__(self, plan: CountPlan, query: Query, site: Site) -> None:
        self.plan = plan
        self.query = query
        self.stage = HeatMap(len(plan.names), query.windows)
        self._timezone, self._day_starts = site.timezone, site.day_starts or MIDNIGHT

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's past is kept."""
        return f"{self.query.name}/{decimal_string(epsilon)}"

    def tells(self, audience: str) -> bool:
        """Whether an audience is told: everybody who is given the counts."""
        return audience in self.plan.release.epsilon

    def step(
        self, state: Past | None, values: Values | None, end: Micros, epsilon: Fraction | None = None
    ) -> tuple[Past, Shown | None]:
        """Take a window's values (None: denied) and its end; return the next state and the colours, None while too few
        windows are known. Nothing depends on ``epsilon`` but by the values."""
        del epsilon
        told = None if values is None else values.values[: len(self.plan.names)]
        item = Passed(slot_of(end, self._timezone, self._day_starts), told)
        after, [shown] = self.stage.step(self.stage.initial() if state is None else state, item)
        return after, shown

    def record(
        self, head: Head, window: OccupancyWindow, audience: str, shown: Shown | None, reason: str | None
    ) -> CountRecord:
        """Return the record of a window's colours, or one without them that says why."""
        plan, release, name = self.plan, self.plan.release, self.query.name
        epsilon = release.epsilon[audience]
        record = CountRecord(
            release_id=str(ReleaseId(plan.site, name, audience, head.window_end, head.attempt)),
            site=head.site,
            audience=audience,
            release=name,
            window_start=head.window_start,
            window_end=head.window_end,
            values=None if shown is None else plan.by_name(shown.colours.tolist()),
            released=shown is not None,
            reason=reason or ("too_early" if shown is None else None),
            mechanism=f"{release.mechanism}/{self.query.kind}",
            epsilon=decimal_string(epsilon),
            spend="0",
            noise_scale=plan.by_name(plan.scales(plan.mechanisms[epsilon])),
            half_width_95=None,
            half_width_kind="noise",
            usual=None if shown is None else plan.by_name(_rounded(shown.usual.mean)),
            usual_deviation=None if shown is None else plan.by_name(_rounded(shown.usual.deviation)),
            coverage=rounded_coverage(window.coverage),
            policy_version=head.policy_version,
            laboratory=head.laboratory,
        )
        if plan.days is None:
            return record
        price = plan.days.prices[audience]
        return record.of_day(price.noise, decimal_string(price.delta))


LARGEST_HELD = 16 << 20
"""Bytes, before they are compressed, that may be held of a site's heat maps: no snapshot is larger."""


def check_heat_maps(policy: Policy, file: str = "policy") -> None:
    """Raise PolicyError where what has to be held of a site's heat maps would not fit a snapshot."""
    for name, site in policy.site.items():
        size = sum(
            HeatMap(len(plan.names), query.windows).most_bytes(site.tick) * len(plan.mechanisms)
            for release in policy.release
            if isinstance(release, CountRelease) and release.queries and policy.zones_of(release, name)
            for plan in [CountPlan(policy, release, name)]
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
