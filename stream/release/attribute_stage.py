"""A site-local day becomes private attribute records: ask, charge, toss the permanent coin, publish.

An attribute record is shown or withheld by its permanent coin; both cost its epsilon. A zone's day is asked once,
for good; a second attempt asks no attributes. What counts and attributes say together stays within ``max_factor``,
by what the ledger has charged and not by what the policy plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from zoneinfo import ZoneInfo

from stream.keys import key_day_of
from stream.local_time import span_of_day
from stream.policy.document import Policy
from stream.records import AttributeCharge, DayAttribute, DayClosed, Published
from stream.release.asked import EVERY_ZONE, LocalDay
from stream.release.attribute_plan import AttributeOutcome, AttributePlan
from stream.release.factor_limit import FactorLimit
from stream.release.issuer import Issuer
from stream.release.promises import log_largest_factor
from stream.release.state import ReleaseState
from stream.schemas import private_topic


class AttributeReleases:
    """The attribute releases of one site."""

    def __init__(self, policy: Policy, issuer: Issuer, plans: tuple[AttributePlan, ...]) -> None:
        self._issuer = issuer
        self._timezone = ZoneInfo(policy.site[issuer.site].timezone)
        self._limit = FactorLimit(policy.privacy)
        self._plans = plans
        self._alone = {plan.release.name: log_largest_factor(plan.release) for plan in plans}

    def day(self, state: ReleaseState, closed: DayClosed) -> Iterator[Published | AttributeCharge]:
        """Release one day; a day that the site has released, or has come past, is left alone."""
        day = LocalDay(closed.local_day, *span_of_day(closed.local_day, self._timezone))
        if closed.window_end <= state.through or closed.local_day <= state.closed or self._issuer.attempt > 1:
            return
        state.closed = closed.local_day
        unasked = {plan.release.name: self._not_asked(state, plan, day) for plan in self._plans}
        for plan in self._plans:
            name = plan.release.name
            for record, outcome in plan.outcomes(closed, day.start, unasked[name]):
                if outcome.reason is None:
                    state.asked.note(day, record.zone, record.attribute, self._alone[name])
                yield from self._attribute(state, plan, record, outcome, day)
        state.asked.forget(closed.local_day)

    def _not_asked(self, state: ReleaseState, plan: AttributePlan, day: LocalDay) -> dict[str, str]:
        """Return, by zone, why none of a release's attributes is asked: by what was asked and charged before alone."""
        release, alone = plan.release, self._alone[plan.release.name]
        other_days = state.asked.in_month(day.local_day, plan.zones, release.attributes)
        over = release.days_per_month is not None and other_days >= release.days_per_month
        unasked = dict.fromkeys(plan.zones, "month") if over else {}
        asked = state.asked.zones_of(day)
        for zone in plan.zones:
            if zone in asked or EVERY_ZONE in asked:
                unasked[zone] = "asked"
            elif self._limit.passed(state.charged, day, zone, alone):
                unasked[zone] = "factor"
        return unasked

    def _attribute(
        self, state: ReleaseState, plan: AttributePlan, read: DayAttribute, outcome: AttributeOutcome, local: LocalDay
    ) -> Iterator[Published | AttributeCharge]:
        release, key_day, end = plan.release, key_day_of(local.start), local.end
        head = self._issuer.head(local.start, end)
        record = plan.record(head, read, outcome, state.coverage.get(local.local_day, Fraction(0)))
        commitment = self._issuer.commitment(key_day, release.name, end, outcome.read)
        yield self._issuer.charge(state, record, end=end, key_day=key_day, commitment=commitment)
        topic = private_topic(outcome.audience, release.name)
        yield Published(topic, head.site, record.to_bytes(), read.closed, record.release_id)
        yield AttributeCharge(
            release.name, outcome.audience,
            outcome.epsilon if outcome.reason is None else Fraction(0), reason=outcome.reason or "",
            zone=record.zone, attribute=record.attribute, day=record.day, span=local.span, shown=outcome.public,
        )  # fmt: skip
