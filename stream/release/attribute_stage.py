"""Release of a local day as private attribute records.

The permanent coin decides whether an attribute record is shown or withheld; both outcomes cost its epsilon. A zone's
day is queried once only; a second attempt queries no attributes. Counts and attributes together stay within
``max_factor``: the counts as charged in the ledger, the attributes at the release's epsilons.

Some attributes are not queried. They cost nothing and are no evidence. The reasons:

    asked    the zone's day was queried before
    factor   counts were charged so much that some odds could pass ``max_factor``
    month    the month's limit of days is reached
    guard    under the declared model, some outcome could raise some odds above the cap

No reason depends on values that were not published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from zoneinfo import ZoneInfo

import orjson

from stream.accounting.attribute_leakage import DayModel, Value, day_model, largest_epsilons, queried_attributes
from stream.domains import Purpose
from stream.keys import Keys, key_day_of, subkey
from stream.local_time import span_of_day
from stream.mechanisms.noise_labels import label
from stream.mechanisms.osdprr import released
from stream.policy.attributes import Attribute, AttributeRelease
from stream.policy.fields import decimal_string
from stream.records import AttributeCharge, DayAttribute, DayClosed, Micros, Published, ZoneDayAttribute
from stream.release.attribute_guarantees import log_largest_factor
from stream.release.budgets import Budgets
from stream.release.ledger_writer import LedgerWriter, RecordHeader
from stream.release.state import LocalDay, ReleaseState
from stream.release.validation import Policy
from stream.schemas import AttributeRecord

# Plans: which attributes are queried, which are shown, and the records that result.

ABSENT = "absent"
"""The account's placeholder for the value of an empty zone, where emptiness is public."""


def attribute_price(epsilon: Fraction, reason: str | None) -> Fraction:
    """Return what one attribute record charges, in the ledger and in the streamed account.

    The account's odds follow from this price, those of ``policy show`` and ``max_factor`` from epsilon itself.

    Args:
        epsilon: of the record's audience, nats.
        reason: why the attribute was not queried; without one it was queried, and a withheld value costs the same as a
            shown one.
    """
    return Fraction(0) if reason else epsilon


@dataclass(frozen=True, slots=True)
class AttributeOutcome:
    """One record for one audience."""

    audience: str
    epsilon: Fraction
    reason: str | None
    """The reason why the attribute was not queried; None if it was queried."""
    shown: bool
    value: str | int | float | None
    read: bytes
    """Digest of the record's input; restricted."""

    @property
    def price(self) -> Fraction:
        """What the record charges."""
        return attribute_price(self.epsilon, self.reason)

    @property
    def public(self) -> Value | None:
        """The outcome as its reader sees it: the value, ``ABSENT`` for an empty zone, None if it was withheld."""
        return None if not self.shown else ABSENT if self.value is None else self.value


class AttributePlan:
    """One attribute release at a site."""

    def __init__(self, policy: Policy, release: AttributeRelease, site: str, keys: Keys) -> None:
        self.release = release
        self._site = site
        self._keys = keys
        self.zones = tuple(zone.id for zone in policy.zones_of(release, site))
        self._model: DayModel | None = day_model(release)
        self._largest = largest_epsilons(release)
        self._queried = queried_attributes(release, self._model)

    def outcomes(
        self, closed: DayClosed, start: Micros, not_queried: Mapping[str, str]
    ) -> Iterator[tuple[DayAttribute, AttributeOutcome]]:
        """Yield every record of the day, in the order of zones and attributes.

        Args:
            closed: the day.
            start: its first instant; the key day is the UTC day of it.
            not_queried: zone -> the reason why none of its attributes is queried.
        """
        seen: dict[str, dict[str, Value | None]] = {}
        for record in self._covered(closed):
            guarded = self._guarded(record.attribute, seen.setdefault(record.zone, {}))
            reason = not_queried.get(record.zone, guarded)
            for outcome in self._of_record(record, key_day_of(start), reason):
                if outcome.reason is None:
                    before = seen[record.zone].get(record.attribute)
                    seen[record.zone][record.attribute] = outcome.public if before is None else before
                yield record, outcome

    def record(self, header: RecordHeader, read: DayAttribute, outcome: AttributeOutcome) -> AttributeRecord:
        """Return the record of an outcome."""
        which = ZoneDayAttribute(read.day, read.zone, read.attribute)
        record = AttributeRecord(
            **header.fields(self.release.name, outcome.audience, str(which)),
            day=read.day,
            zone=read.zone,
            attribute=read.attribute,
            released=outcome.shown,
            reason=outcome.reason,
            mechanism=self.release.mechanism,
            epsilon=decimal_string(outcome.epsilon),
            spend=decimal_string(outcome.price),
        )
        return record.showing(outcome.value) if outcome.shown else record

    def records(self, closed: DayClosed) -> Iterator[tuple[DayAttribute, str]]:
        """Yield (record, audience) of every record of the day, in the order in which they are published."""
        for record in self._covered(closed):
            for audience in sorted(self.release.attributes[record.attribute].epsilon):
                yield record, audience

    def _covered(self, closed: DayClosed) -> Iterator[DayAttribute]:
        for record in closed.attributes:
            if record.zone in self.zones and record.attribute in self.release.attributes:
                yield record

    def _guarded(self, attribute: str, seen: dict[str, Value | None]) -> str | None:
        cap = self.release.cap
        if attribute not in self._queried:
            return "guard"
        if self._model is None or cap is None or self.release.guard == "static":
            return None
        return None if self._model.may_query(attribute, self._largest, seen, cap) else "guard"

    def _of_record(self, record: DayAttribute, key_day: int, reason: str | None) -> Iterator[AttributeOutcome]:
        rule: Attribute = self.release.attributes[record.attribute]
        absent = self.release.absent == "sensitive"
        sensitive = absent if record.value is None else rule.sensitive.holds(record.value)
        coins = subkey(self._keys.noise_key(key_day), Purpose.COINS)
        read = read_digest(record)
        where = {"site": self._site, "zone": record.zone, "attribute": record.attribute, "day": record.day}
        for audience, epsilon in sorted(rule.epsilon.items()):
            shown = reason is None and not sensitive and released(coins, **where, epsilon=epsilon)
            yield AttributeOutcome(audience, epsilon, reason, shown, record.value, read)


def attribute_plans(policy: Policy, site: str, keys: Keys) -> tuple[AttributePlan, ...]:
    """Return the attribute releases of a site, in the order of the policy."""
    return tuple(
        AttributePlan(policy, release, site, keys)
        for release in policy.release
        if isinstance(release, AttributeRelease) and policy.zones_of(release, site)
    )


def read_digest(record: DayAttribute) -> bytes:
    """Return the digest of a record's input; restricted."""
    return sha256(label(record.zone, record.attribute, record.day, orjson.dumps(record.value))).digest()


class AttributeReleases:
    """The attribute releases of one site."""

    def __init__(self, policy: Policy, writer: LedgerWriter, plans: tuple[AttributePlan, ...]) -> None:
        self._writer = writer
        self._timezone = ZoneInfo(policy.site[writer.site].timezone)
        self._budgets = Budgets(policy, writer.site, writer.attempt)
        self._plans = plans
        self._alone = {plan.release.name: log_largest_factor(plan.release) for plan in plans}

    def day(self, state: ReleaseState, closed: DayClosed) -> Iterator[Published | AttributeCharge]:
        """Release one day; skip a day that the site has released already, or that lies before the latest one."""
        day = LocalDay(closed.local_day, *span_of_day(closed.local_day, self._timezone))
        if closed.window_end <= state.released_until or closed.local_day <= state.closed or self._writer.attempt > 1:
            return
        state.closed = closed.local_day
        not_queried = {plan.release.name: self._reasons_not_queried(state, plan, day) for plan in self._plans}
        for plan in self._plans:
            name = plan.release.name
            for record, outcome in plan.outcomes(closed, day.start, not_queried[name]):
                if outcome.reason is None:
                    state.queried_days.note(day, record.zone, record.attribute, self._alone[name])
                yield from self._attribute(state, plan, record, outcome, day)
        state.queried_days.forget(closed.local_day)

    def _reasons_not_queried(self, state: ReleaseState, plan: AttributePlan, day: LocalDay) -> dict[str, str]:
        """Return zone -> the reason why no attribute of a release is queried; depends only on the ledger."""
        release, alone = plan.release, self._alone[plan.release.name]
        other_days = state.queried_days.in_month(day.local_day, plan.zones, release.attributes)
        over = release.days_per_month is not None and other_days >= release.days_per_month
        reasons = dict.fromkeys(plan.zones, "month") if over else {}
        queried = state.queried_days.zones_of(day)
        for zone in plan.zones:
            if zone in queried:
                reasons[zone] = "asked"
            elif self._budgets.exceeds_factor(state.charged, day, zone, alone):
                reasons[zone] = "factor"
        return reasons

    def _attribute(
        self, state: ReleaseState, plan: AttributePlan, read: DayAttribute, outcome: AttributeOutcome, local: LocalDay
    ) -> Iterator[Published | AttributeCharge]:
        release, key_day, end = plan.release, key_day_of(local.start), local.end
        header = self._writer.header(local.start, end, state.coverage.get(local.local_day, Fraction(0)))
        record = plan.record(header, read, outcome)
        commitment = self._writer.commitment(key_day, release.name, end, outcome.read)
        yield from self._writer.publish(
            state, record, end=end, key_day=key_day, commitment=commitment, time=read.closed
        )
        yield AttributeCharge(
            release.name, outcome.audience, outcome.price, reason=outcome.reason or "",
            zone=record.zone, attribute=record.attribute, day=record.day, span=local.span, shown=outcome.public,
        )  # fmt: skip
