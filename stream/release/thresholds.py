"""Threshold streams: decisions on windows of counts.

``ThresholdReleases`` runs the streams that pay per run: it queries a sparse vector, charges the runs that it opens,
and publishes. ``FreeDecision`` decides on the noisy values of a count release; like the queries of such a release, it
is free.

All paid streams of a site share one set of terms per privacy day: the terms under which its first window was queried.
A change of any stream (a name, a threshold, a price, the zones) takes effect when the next day begins. Until then all
of them wait, since the runs of one device's day are charged once and its events are counted once. A stream therefore
does not restart under another name, or after a loss of its state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import orjson

from stream.accounting.charge_history import ChargeLine
from stream.domains import Purpose, Suffix
from stream.keys import key_day_of, subkey
from stream.mechanisms.base import Values, noisy_of
from stream.mechanisms.exact import Ints
from stream.mechanisms.noise_labels import Context, counts_digest
from stream.mechanisms.noise_parameters import NoiseParameter, least_shift
from stream.mechanisms.noisy_alarm import AlarmOutput, Noisy, NoisyAlarm
from stream.mechanisms.run_distribution import RunDistribution
from stream.mechanisms.sparse_vector import SparseVector, SparseVectorInput, SparseVectorOutput
from stream.policy.fields import decimal_string
from stream.policy.mechanisms import SPARSE_VECTOR
from stream.policy.thresholds import ThresholdRelease, nodes_of, thresholds_of
from stream.records import EPOCH, WAITING, CountCharge, Micros, OccupancyWindow, PrivacyDay, Published
from stream.release.budgets import Budgets
from stream.release.count_plan import CountPlan
from stream.release.ledger_writer import LedgerWriter, RecordHeader
from stream.release.paid_days import STREAMS, DayPaymentStatus
from stream.release.prices import RunPrice, paid_thresholds, thresholds_at
from stream.release.state import ReleaseState
from stream.release.validation import Policy
from stream.schemas import Levels, ThresholdRecord

# Plans: the nodes of a stream, its schedule, and the shape of its records.
NODE = {"zone": "zone:{}", "floor": "floor:{}", "building": "building"}
"""Names of nodes by level, for places where several levels may occur together."""


class ThresholdPrice(NamedTuple):
    """The price fields of a record."""

    mechanism: str
    unit: str
    epsilon: Fraction
    """Upper bound for a device's whole privacy day; for decisions on paid counts, the epsilon of these counts."""
    spend: Fraction
    scale: float
    """Scale of the noise of one query."""


class ThresholdPlan:
    """A threshold stream at a site, fixed before the first window."""

    def __init__(self, policy: Policy, release: ThresholdRelease, site: str) -> None:
        self.release = release
        self.site = site
        self._place = policy.site[site]
        self._timezone = ZoneInfo(self._place.timezone)
        zones = policy.zones_of(release, site)
        registry = [zone.id for zone in self._place.zones]
        self.covered = tuple(zone.id for zone in zones)
        self._nodes = nodes_of(release, zones)
        self.names = tuple(NODE[release.level].format(node) for node in self._nodes)
        """The nodes, in order: the registry in the labels of noise."""
        self.thresholds = tuple(thresholds_of(release, zones).values())
        self.bounded_to = self._place.bounded_to
        """How long a device is counted within a privacy day; None: every device is counted."""
        self._counted = self._place.counted_in_records
        self._columns = [[registry.index(zones[place].id) for place in places] for places in self._nodes.values()]
        self.terms = self._terms()
        """Digest of everything that determines the payment of the stream's day."""

    @property
    def tick(self) -> Micros:
        """Length of a window."""
        return self._place.tick

    @property
    def members(self) -> Sequence[tuple[int, ...]]:
        """For each node, the positions of its zones among those covered."""
        return tuple(self._nodes.values())

    def counts(self, bounded: Sequence[int]) -> Ints:
        """Return the nodes' counts from the site's, in registry order."""
        return np.array([sum(bounded[column] for column in columns) for columns in self._columns], dtype=np.int64)

    def scheduled(self, end: Micros) -> tuple[bool, ...]:
        """Return which nodes the schedule queries at a window's end."""
        if not self.release.schedule:
            return (True,) * len(self.names)
        local = (EPOCH + timedelta(microseconds=end)).astimezone(self._timezone)
        now = {booking.zone for booking in self.release.schedule if booking.holds(local)}
        return tuple(node in now for node in self._nodes)

    def _terms(self) -> str:
        terms = [
            self.release.model_dump(mode="json"), self.names, self.thresholds, self.covered, self._place.day_terms
        ]  # fmt: skip
        return hashlib.sha256(orjson.dumps(terms, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]

    def window_record(
        self, header: RecordHeader, audience: str, outcomes: Mapping[str, bool | None] | None,
        denied: Mapping[str, str], reason: str | None, price: ThresholdPrice,
    ) -> ThresholdRecord:  # fmt: skip
        """Return the record of a window; without answers if there is a ``reason``."""
        known = {name: int(above) for name, above in (outcomes or {}).items() if above is not None}
        zones = {name.removeprefix("zone:"): each for name, each in known.items() if name.startswith("zone:")}
        record = ThresholdRecord(
            **header.fields(self.release.name, audience),
            values=None if outcomes is None else zones,
            released=outcomes is not None,
            reason=reason,
            mechanism=price.mechanism,
            unit=price.unit,
            epsilon=decimal_string(price.epsilon),
            spend=decimal_string(price.spend),
            noise_scale=dict.fromkeys(self._nodes, price.scale) if self.release.level == "zone" else {},
            half_width_95=None,
            half_width_kind="noise",
            alert=self.release.alert,
            thresholds=dict(zip(self.names, self.thresholds, strict=True)),
            above=dict.fromkeys(self.names) if outcomes is None else dict(outcomes),
            denied=dict(denied),
        )
        if self._counted:
            record = record.model_copy(update={"counted": self._counted})
        if self.bounded_to is not None:
            record = record.model_copy(update={"bounded_to": self.bounded_to})
        if self.release.level == "zone":
            return record
        levels = None if outcomes is None else self._levels(known)
        return record.model_copy(update={"levels": levels})

    @staticmethod
    def _levels(known: Mapping[str, int]) -> Levels:
        floors = {name.removeprefix("floor:"): each for name, each in known.items() if name.startswith("floor:")}
        levels: Levels = {"floor": floors} if floors else {}
        return levels | ({"building": known["building"]} if "building" in known else {})


# Decisions on the noisy values of a count release.


class FreeDecision(ThresholdPlan):
    """One stream that decides on a count release at a site."""

    def __init__(self, policy: Policy, plan: CountPlan, release: ThresholdRelease) -> None:
        super().__init__(policy, release, plan.site)
        self.plan = plan
        self.bounded_to = plan.bounded_to
        self.query = release
        self._at = [plan.names.index(zone) for zone in self.covered]
        self._alarms = {epsilon: self._alarm(epsilon) for epsilon in plan.mechanisms}
        self.operator = next(iter(self._alarms.values()))

    def _alarm(self, epsilon: Fraction) -> NoisyAlarm:
        release, law = self.release, self.plan.mechanisms[epsilon].noise
        windows = release.windows(self.tick)
        shifts = {n: least_shift(law, n, release.miss, windows) for n in {len(each) for each in self.members}}
        return NoisyAlarm(
            self.thresholds, release.alert == "above", tuple(shifts[len(each)] for each in self.members),
            release.cooldown, release.hysteresis,
        )  # fmt: skip

    def alarm(self, audience: str) -> NoisyAlarm:
        """Return the operator that decides for an audience."""
        return self._alarms[self.plan.release.epsilon[audience]]

    def noise_parameter(self, audience: str) -> NoiseParameter:
        """Return the noise of each zone on which an audience's decisions depend."""
        return self.plan.mechanisms[self.plan.release.epsilon[audience]].noise

    def publishes_to(self, audience: str) -> bool:
        """Whether an audience receives the decisions."""
        return audience in self.release.audience

    def state_name(self, epsilon: Fraction) -> str:
        """Return the name under which an epsilon's alarms are stored."""
        return f"{self.release.name}/{decimal_string(epsilon)}"

    def step(self, state: Any, values: Values | None, end: Micros, epsilon: Fraction) -> tuple[Any, AlarmOutput | None]:
        """Process a window's values (None: denied) and its end; return the next state and the answer."""
        alarm = self._alarms[epsilon]
        item = None if values is None else Noisy(self._counts(values), end, self.scheduled(end))
        after, [decision] = alarm.step(alarm.initial() if state is None else state, item)
        return after, decision

    def _counts(self, values: Values) -> Sequence[int]:
        noisy = values.values if self.plan.release.declared.plain else noisy_of(values)
        zones = [int(noisy[at]) for at in self._at]
        return [sum(zones[place] for place in places) for places in self.members]

    def record(
        self, header: RecordHeader, audience: str, answer: AlarmOutput | None, reason: str | None
    ) -> ThresholdRecord:
        """Return the record of a window."""
        counts = self.plan.release
        law = self.plan.mechanisms[counts.epsilon[audience]].noise
        price = ThresholdPrice(
            f"{counts.mechanism}/threshold", counts.unit, counts.epsilon[audience], Fraction(0), law.scale
        )
        above = None if answer is None else dict(zip(self.names, answer.above, strict=True))
        denied = {} if answer is None else {self.names[place]: why for place, why in answer.denied.items()}
        return self.window_record(header, audience, above, denied, reason, price)


def free_decisions(policy: Policy, plan: CountPlan) -> list[FreeDecision]:
    """Return the streams that decide on a count release, in the order of the policy."""
    streams = free_thresholds(policy, plan.site, plan.release.name)
    return [FreeDecision(policy, plan, release) for release in streams]


def free_thresholds(policy: Policy, site: str, counts: str) -> list[ThresholdRelease]:
    """Return a site's streams that decide on a count release, in the order of the policy."""
    return [release for release in thresholds_at(policy, site) if release.counts == counts]


class RunPlan(ThresholdPlan):
    """A stream that pays for its runs, and its sparse vector."""

    def __init__(self, policy: Policy, release: ThresholdRelease, site: str) -> None:
        super().__init__(policy, release, site)
        place, price = policy.site[site], RunPrice.of(policy, release, site)
        self.price = price
        law, miss = RunDistribution(price.run), release.miss / release.events
        self.vector = SparseVector(
            law, self.thresholds, release.alert == "above", law.least_shift(miss, release.windows(place.tick)),
            release.events, place.contribution_ticks, release.cooldown, release.hysteresis,
            price.most if release.unit == "run" else None, self.terms,
        )  # fmt: skip
        self.state_name = f"{release.name}/runs"

    def price_fields(self, runs: int) -> ThresholdPrice:
        """Return the price fields of a window's record, in which this number of runs was charged."""
        scale = float(1 / self.vector.run_distribution.half)
        return ThresholdPrice(SPARSE_VECTOR, "device_day", self.price.day, runs * self.price.run, scale)


def run_plans(policy: Policy, site: str) -> tuple[RunPlan, ...]:
    """Return a site's streams that pay for runs, in the order of the policy."""
    return tuple(RunPlan(policy, release, site) for release in paid_thresholds(policy, site))


class ThresholdReleases:
    """The threshold streams of one site that pay for runs."""

    def __init__(self, policy: Policy, writer: LedgerWriter) -> None:
        self._writer = writer
        self._budgets = Budgets(policy, writer.site, writer.attempt)
        self.plans = run_plans(policy, writer.site)
        self._terms = hashlib.sha256("/".join(plan.terms for plan in self.plans).encode()).hexdigest()[:32]

    def window(self, state: ReleaseState, window: OccupancyWindow) -> Iterator[Published | CountCharge]:
        """Decide on one window; windows come in order."""
        if not self.plans:
            return
        day = window.privacy_day
        status = DayPaymentStatus.OTHER_TERMS if day is None else state.paid_days.status(STREAMS, day, self._terms)
        if day is None or window.bounded is None or status is DayPaymentStatus.OTHER_TERMS:
            for plan in self.plans:
                yield from self._records(state, plan, window, None, WAITING)
            return
        if status is DayPaymentStatus.UNPAID:
            state.paid_days.record_payment(STREAMS, day, self._terms)
        for plan in self.plans:
            reason = self._reason(state, plan, window, day, begins=status is DayPaymentStatus.UNPAID)
            output = self._query(state, plan, window, day) if reason is None else None
            yield from self._records(state, plan, window, output, reason)

    def _reason(
        self, state: ReleaseState, plan: RunPlan, window: OccupancyWindow, day: PrivacyDay, *, begins: bool
    ) -> str | None:
        """Return the reason why a window is not queried; depends on policy, ledger and clock alone."""
        runs = state.runs.get(plan.state_name)
        if not begins and (runs is None or runs.day != day.number):
            return WAITING
        line = ChargeLine(SPARSE_VECTOR, 1, plan.covered, day=day.number)
        changed = dict.fromkeys(plan.release.audiences, 2 * plan.price.day)  # largest loss of a partly changed day
        recorded = self._budgets.record_within_factor(state, window.window_end, plan.release.name, line, changed)
        return None if recorded else "factor"

    def _query(
        self, state: ReleaseState, plan: RunPlan, window: OccupancyWindow, day: PrivacyDay
    ) -> SparseVectorOutput:
        writer, end = self._writer, window.window_end
        key = subkey(writer.keys.noise_key(key_day_of(end - writer.tick_length)), Purpose.NOISE)
        suffix = f"{Suffix.DAY} {day.number}/{plan.terms}"
        context = Context(writer.site, plan.release.name, end, writer.attempt, plan.names, suffix)
        assert window.bounded is not None  # noqa: S101
        item = SparseVectorInput(plan.counts(window.bounded), end, day.number, plan.scheduled(end), key, context)
        runs = state.runs.get(plan.state_name) or plan.vector.initial()
        state.runs[plan.state_name], [output] = plan.vector.step(runs, item)
        return output

    def _records(
        self,
        state: ReleaseState,
        plan: RunPlan,
        window: OccupancyWindow,
        output: SparseVectorOutput | None,
        reason: str | None,
    ) -> Iterator[Published | CountCharge]:
        end, release = window.window_end, plan.release
        key_day = key_day_of(end - self._writer.tick_length)
        header = self._writer.header(end - self._writer.tick_length, end, window.coverage)
        commitment = self._writer.commitment(key_day, release.name, end, counts_digest(self._read(plan, window)))
        runs = 0 if output is None else output.charged
        above = None if output is None else dict(zip(plan.names, output.above, strict=True))
        denied = {} if output is None else {plan.names[place]: why for place, why in output.denied.items()}
        for audience in release.audiences:
            record = plan.window_record(header, audience, above, denied, reason, plan.price_fields(runs))
            yield from self._writer.publish(state, record, end=end, key_day=key_day, commitment=commitment)
        day = window.privacy_day
        for audience in release.audiences:
            yield CountCharge(
                release.name, audience, SPARSE_VECTOR, runs * plan.price.run, reason=reason or "",
                attempt=self._writer.attempt,
                terms=None if output is None or day is None else plan.price.terms(day, runs),
            )  # fmt: skip

    @staticmethod
    def _read(plan: RunPlan, window: OccupancyWindow) -> Ints:
        return np.zeros(0, np.int64) if window.bounded is None else plan.counts(window.bounded)

    # --- state between windows ------------------------------------------------------------------------

    def operators(self) -> dict[str, SparseVector]:
        """Return the operators of the runs' states, by name."""
        return {plan.state_name: plan.vector for plan in self.plans}

    def carry_over(self, state: ReleaseState, parts: Mapping[str, bytes]) -> None:
        """Continue the runs of another policy if the terms are equal."""
        for plan in self.plans:
            part = parts.get(plan.state_name)
            if part is not None and plan.vector.fits(part):
                state.runs[plan.state_name] = plan.vector.decode(part)
