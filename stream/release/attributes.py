"""A day's attributes: which are asked, which are shown, and what each record says.

A record is shown or withheld by its permanent coin; both cost its epsilon. Some are not asked at all, and
then cost nothing and are no evidence: of a zone's day that was asked before (``asked``), where counts were charged
so much that some odds could pass ``max_factor`` (``factor``), beyond the days of a month (``month``), or where the
declared model says that an outcome could raise some odds above the cap (``guard``). None depends on values
that were not published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

import orjson

from stream.accounting.attribute_model import (
    DayModel,
    Value,
    asked_attributes,
    day_model,
    largest_epsilons,
)
from stream.keys import Keys, key_day_of, subkey
from stream.mechanisms.labels import label
from stream.mechanisms.osdprr import released
from stream.policy.document import Attribute, AttributeRelease, Policy, decimal_string
from stream.records import DayAttribute, DayClosed, Micros, ReleaseId, ZoneDayAttribute
from stream.release.count_plan import rounded_coverage
from stream.release.issuer import Head
from stream.schemas import AttributeRecord

ABSENT = "absent"
"""Stands in the account for the value of a zone that was empty, where that is public."""


@dataclass(frozen=True, slots=True)
class AttributeOutcome:
    """One record for one audience."""

    audience: str
    epsilon: Fraction
    reason: str | None
    """Why it was not asked; None when it was."""
    shown: bool
    value: str | int | float | None
    read: bytes
    """Digest of what the record was made from; restricted."""

    @property
    def public(self) -> Value | None:
        """What its reader has seen: the value, ``ABSENT`` for an empty zone, None where it was withheld."""
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
        self._asked = asked_attributes(release, self._model)

    def outcomes(
        self, closed: DayClosed, start: Micros, unasked: Mapping[str, str]
    ) -> Iterator[tuple[DayAttribute, AttributeOutcome]]:
        """Yield every record of the day, in the order of zones and attributes.

        Args:
            closed: the day.
            start: its first instant; the key day is the UTC day of it.
            unasked: zone -> why none of its attributes is asked.
        """
        seen: dict[str, dict[str, Value | None]] = {}
        for record in self._covered(closed):
            guarded = self._guarded(record.attribute, seen.setdefault(record.zone, {}))
            reason = unasked.get(record.zone, guarded)
            for outcome in self._of_record(record, key_day_of(start), reason):
                if outcome.reason is None:
                    held = seen[record.zone].get(record.attribute)
                    seen[record.zone][record.attribute] = outcome.public if held is None else held
                yield record, outcome

    def record(self, head: Head, read: DayAttribute, outcome: AttributeOutcome, coverage: Fraction) -> AttributeRecord:
        """Return the record of an outcome; ``coverage`` is the day's least."""
        release, epsilon = self.release, decimal_string(outcome.epsilon)
        which = ZoneDayAttribute(read.day, read.zone, read.attribute)
        record = AttributeRecord(
            release_id=str(ReleaseId(self._site, release.name, outcome.audience, str(which))),
            site=head.site,
            audience=outcome.audience,
            release=release.name,
            window_start=head.window_start,
            window_end=head.window_end,
            day=read.day,
            zone=read.zone,
            attribute=read.attribute,
            released=outcome.shown,
            reason=outcome.reason,
            mechanism=release.mechanism,
            epsilon=epsilon,
            spend="0" if outcome.reason else epsilon,
            coverage=rounded_coverage(coverage),
            policy_version=head.policy_version,
            laboratory=head.laboratory,
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
        if attribute not in self._asked:
            return "guard"
        if self._model is None or cap is None or self.release.guard == "static":
            return None
        return None if self._model.may_ask(attribute, self._largest, seen, cap) else "guard"

    def _of_record(self, record: DayAttribute, key_day: int, reason: str | None) -> Iterator[AttributeOutcome]:
        rule: Attribute = self.release.attributes[record.attribute]
        absent = self.release.absent == "sensitive"
        sensitive = absent if record.value is None else rule.sensitive.holds(record.value)
        coins = subkey(self._keys.noise_key(key_day), "coins")
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
    """Return the digest of what a record is made from; restricted."""
    return sha256(label(record.zone, record.attribute, record.day, orjson.dumps(record.value))).digest()
