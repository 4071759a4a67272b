"""The account: the cost of all releases so far, per privacy unit, reader and coalition.

An epsilon has a meaning only together with its unit. With validity V and tick T one raw observation is counted at
n = ceil(V/T) ticks. With releases that cost e per tick the units cost

    presence_tuple        e       one device's presence at one tick added or removed
    tuple_moved           2 e     the same device somewhere else at that tick
    observation           2 n e   one raw observation added or removed
    observation_moved     4 n e   one raw observation replaced
    device_w_event        sum of e over the last w windows; twice that (device_w_event_moved) if replaced
    device_day            sum of e over the counts of one device's day so far: of the current day, or of the day
                          before while that costs more and still counts; twice that (device_day_moved) if replaced
    device_total          sum of e since the ledger began
    person_*              devices_per_person times the device's

The account also contains figures for adversaries with knowledge that the policy declares: ``temporal``, the supremum
for one presence tuple at the largest e so far, and ``meeting``, for one member of the meeting that leaks most, at this
tick.

A day is a UTC day, or the site's privacy day. If a site redefines its days, a day counts under each definition that was
in effect at one of its windows, until the day is over. The cost of each such day is the sum over all windows that it
can change, under any definition (``AccountState.days``, ``LatestCharges``). No device's day therefore costs more than
the account reports.

A coalition of readers of releases that share one noise chain learns as much as its finest member; PeGaSus' groupers are
separate for each epsilon, so there a coalition pays max(0.8 e) + sum(0.2 e).

Each unit has two figures: a sum of pure epsilons, and an epsilon at delta (``tight``). Two kinds of releases add up.
Releases that pay per window cost a unit as much as its values cost (``units``); a moved unit is removed in one place
and added in another. Releases that pay for a day cost each day that a unit touches (``day_charges.day_units``); a unit
smaller than a day costs as much as a replaced day, for any new place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypedDict

import orjson

from stream.accounting.account_state import AccountState, ReaderTotals, RunKey, WindowRun
from stream.accounting.adversaries import Knowledge
from stream.accounting.attribute_leakage import AttributeAccount, CountExponents
from stream.accounting.charge_history import ChargeHistory, ChargeLine, line_name
from stream.accounting.composition import running_price
from stream.accounting.costs import Cost, Epsilon, Readers, UnitCost, compose_costs, is_infinite, window_cost
from stream.accounting.count_exponent import count_exponent
from stream.accounting.day_charges import KEPT, DaySpend, changed_loss, cost_of_days
from stream.accounting.state_json import decode_account, encode_account
from stream.accounting.units import (
    PRESENCE_TUPLE,
    UNITS,
    Day,
    GroupSizes,
    Neighbours,
    Scope,
    added_or_replaced,
    days_at,
    device_costs,
)
from stream.errors import UsageError
from stream.policy.fields import EVERYBODY, decimal_string
from stream.policy.privacy_days import PrivacyDays
from stream.records import (
    PURE,
    WAITING,
    AttributeCharge,
    Charge,
    CountCharge,
    JsonObject,
    Micros,
    Published,
    WindowCharges,
)
from stream.schemas import LEAKAGE, json_float, rfc3339

# Privacy units of one reader.


@dataclass(frozen=True, slots=True)
class ReaderSpend:
    """The payments of one reader at the end of a window: per window, in runs, and for whole days."""

    end: Micros
    totals: ReaderTotals
    runs: tuple[WindowRun, ...]
    """Every run that the reader sees."""
    in_force: tuple[WindowRun, ...]
    """The runs among them that paid for this window."""
    day_spend: DaySpend
    reader: str
    audiences: frozenset[str]
    ticks_per_observation: int
    w: int

    @property
    def largest(self) -> Epsilon:
        """The largest sum of epsilons of one presence tuple at any window, without whole days."""
        return self.totals.largest + sum((run.epsilon for run in self.runs), Fraction(0))

    def units(
        self, days: Iterable[Day], since: Micros, span: Micros, group_sizes: GroupSizes, delta: Fraction
    ) -> dict[str, UnitCost]:
        """Return unit -> cost.

        Args:
            days: those that count at this window, of every definition.
            since: the last w windows end after it.
            span: of w windows.
            group_sizes: how many devices or logins change together in a unit.
            delta: at which two days without a pure epsilon are compared.
        """
        window, n = self.totals.at(self.end), self.ticks_per_observation
        tick = compose_costs([window, *(run.cost(1) for run in self.in_force)])
        observation = compose_costs([window.times(n), *(run.cost(n) for run in self.in_force)])
        sliding = compose_costs([self.totals.since(since), *(run.cost(min(run.total, self.w)) for run in self.runs)])
        total = compose_costs([self.totals.total, *(run.cost(run.total) for run in self.runs)])
        total = total.plus(self.day_spend.totals.get(self.reader, Cost()))
        day, day_moved = max((self._day(day) for day in days), key=lambda pair: _dearness(pair[0], delta))
        now, touched = self._changed(self.end - 1), self._changed(self.end - span)
        twice = observation.twice()
        costs = {
            Scope.TICK: added_or_replaced(tick.plus(now), tick.twice().plus(now)),
            Scope.OBSERVATION: added_or_replaced(twice.plus(now), twice.twice().plus(now)),
            Scope.WINDOWS: added_or_replaced(sliding.plus(touched), sliding.twice().plus(touched)),
            Scope.DAY: added_or_replaced(day, day_moved),
            Scope.TOTAL: {Neighbours.ADD_OR_REMOVE: total},
        }
        return {name: UnitCost(cost, group_sizes(unit)) for name, unit, cost in device_costs(costs)}

    def _changed(self, start: Micros) -> Cost:
        """Return the cost of replacing the paid days that have windows after ``start``."""
        return cost_of_days(self.day_spend.since(start, self.audiences), replaced=True)

    def _day(self, day: Day) -> tuple[Cost, Cost]:
        """Return the cost of one device's day, added or removed, and of the same day moved elsewhere."""
        windows = compose_costs([self.totals.on_day(day), *(run.cost_of(day) for run in self.runs)])
        paid, moved = (self.day_spend.of_day(day, self.audiences, moved=moved) for moved in (False, True))
        return windows.plus(paid), windows.twice().plus(moved)


def _dearness(cost: Cost, delta: Fraction) -> tuple[Epsilon, float]:
    return cost.pure, running_price(cost.noises, delta) if is_infinite(cost.pure) else 0.0


class EpsilonAtDelta(TypedDict):
    """An epsilon at a delta."""

    epsilon: float
    delta: float


UnitReport = dict[str, str | float | dict[str, EpsilonAtDelta] | None]
"""Unit -> sum of epsilons, as text; ``tight`` -> unit -> epsilon at delta; and the figures of informed adversaries."""


def written(units: Mapping[str, UnitCost], delta: Fraction, *, exact: bool) -> UnitReport:
    """Return the fields of an account: unit -> sum of epsilons, and ``tight`` with an epsilon at delta.

    Args:
        units: of one reader.
        delta: of the policy.
        exact: whether to use ``composition.compose``; otherwise ``running_price``, which is at most 7 % above it.
    """
    pure = {unit: cost.pure for unit, cost in units.items()}
    at = float(delta)
    tight: dict[str, EpsilonAtDelta] = {
        unit: {"epsilon": _price(cost, pure[unit], delta, exact=exact), "delta": at}
        for unit, cost in units.items()
        if UNITS[unit].scope.accumulates or is_infinite(pure[unit])
    }
    return {**{unit: decimal_string(epsilon) for unit, epsilon in pure.items()}, "tight": tight}


def _price(unit: UnitCost, pure: Epsilon, delta: Fraction, *, exact: bool) -> float:
    quick = running_price(unit.cost.noises, delta, unit.group, pure)
    if not exact:
        return quick
    try:
        return min(quick, math.ceil(unit.composed(delta) * 1e6) / 1e6)
    except UsageError:  # the distribution is too large for a point-by-point representation
        return quick


@dataclass(frozen=True, slots=True)
class Account:
    """The stage that turns charges into one account record after each release of a site.

    Windows come in order. A window that comes again contains further charges, of an operator-requested re-release.
    """

    site: str
    readers: Readers
    ticks_per_observation: int
    devices_per_person: int
    ticks_per_attribute: int
    tick_length: Micros
    w: int
    knowledge: Knowledge
    attributes: AttributeAccount
    zones: Mapping[str, tuple[str, ...]]
    """Count release -> its zones."""
    policy_version: str
    laboratory: bool
    plain: Mapping[str, tuple[Fraction, ...]] = field(default_factory=dict)
    """Count release -> share of epsilon of each level with separate noise, if all of it is plain noise."""
    delta: Fraction = Fraction(1, 1_000_000)
    """The delta of ``tight``."""
    factor_delta: Fraction | None = None
    """Probability with which a day's noise may reveal more of an attribute than the account counts."""
    privacy_days: PrivacyDays | None = None
    """Days of the site; without them, UTC days."""
    exact_from: Micros | None = None
    """First window whose epsilons at delta are computed exactly, which takes longer; None: never."""
    counts_logins: bool = False
    """Whether the site counts logins, so that one message may change the days of two."""

    def initial(self) -> AccountState:
        """Return an empty account."""
        return AccountState()

    def step(self, state: AccountState, item: WindowCharges) -> tuple[AccountState, list[Published]]:
        """Add the charges of one release; return the account record after it."""
        counts = [charge for charge in item.charges if isinstance(charge, CountCharge)]
        attributes = [charge for charge in item.charges if isinstance(charge, AttributeCharge)]
        state.days = self._days(state, item.window_end)
        paid: frozenset[RunKey] = frozenset() if attributes else self._add_window(state, item.window_end, counts)
        units = {
            reader: self._units(state, reader, item.window_end, paid, state.days, counted=not attributes)
            for reader in self.readers
        }
        body: JsonObject = {
            "v": 1,
            "site": self.site,
            "window_end": rfc3339(item.window_end),
            "kind": "attributes" if attributes else "counts",
            "audiences": {reader: cost for reader, cost in units.items() if reader != EVERYBODY},
            "coalition": units.get(EVERYBODY),
            "left": {f"{c.release}/{c.audience}": c.left for c in counts if c.left is not None},
            "refused": _unreleased(item.charges),
            "attributes": {},
        }
        if attributes:
            exponents = self._exponents(state.charged, attributes)
            body |= self.attributes.of_day(attributes, self.readers, state.habits, exponents)
        body |= {"policy_version": self.policy_version, "laboratory": self.laboratory}
        identity = f"{self.site}/{body['window_end']}/{body['kind']}"
        return state, [Published(LEAKAGE, self.site, orjson.dumps(body), item.window_end, identity)]

    def spend_at(self, state: AccountState, end: Micros) -> dict[str, UnitReport]:
        """Return reader -> unit -> cost, as in the record of the latest window, which ended at ``end``.

        The state does not contain which runs paid for that window. All runs that paid for any window of its day count,
        so that the units of one tick are never reported too low.
        """
        days = self._days(state, end)
        paid = frozenset(key for key, run in state.runs.items() if any(run.epsilons_of(day) for day in days))
        return {reader: self._units(state, reader, end, paid, days) for reader in self.readers}

    def _add_window(self, state: AccountState, end: Micros, charges: list[CountCharge]) -> frozenset[RunKey]:
        """Add the charges of a window to the state; return the runs that were paid for it."""
        oldest = end - max(self._span, KEPT + self._reach)
        for reader, audiences in self.readers.items():
            before, cost = state.totals.get(reader, ReaderTotals()), window_cost(charges, audiences, self.plain)
            state.totals[reader] = before.with_window(end, cost, self._reach, oldest)
        state.day_spend.pay(charges, end, self.readers)
        state.day_spend.forget(end, self._span)
        state.end_runs(charge for charge in charges if charge.reason == WAITING)
        for charge in charges:
            self._note(state.charged, end, charge, state.day_spend)
        state.charged.forget(end)
        return state.pay_runs(charges, end, self._reach, oldest)

    @property
    def _span(self) -> Micros:
        """Length of w windows."""
        return self.w * self.tick_length

    @property
    def _reach(self) -> Micros:
        """How long one observation counts, in whole ticks."""
        return self.ticks_per_observation * self.tick_length

    def _days(self, state: AccountState, end: Micros) -> tuple[Day, ...]:
        """Return the days that count at a window: the site's, and unfinished days of earlier definitions."""
        before = {day for day in state.days if day.reaches(end, self._reach)}
        return tuple(sorted(before.union(days_at(end, self.privacy_days, self._reach))))

    def _note(self, charged: ChargeHistory, end: Micros, charge: CountCharge, day_spend: DaySpend) -> None:
        """Record how much a window of counts can reveal of an attribute."""
        terms, loss = charge.terms, charge.epsilon
        if terms is not None and terms.noise == PURE:  # the day's total so far: runs are charged one by one
            terms, loss = day_spend.so_far(charge), Fraction(0)
        if terms is not None and (charge.epsilon > 0 or terms.noise == PURE):
            loss = changed_loss(terms.noise, terms.parameters, terms.ticks, self.factor_delta, self.devices_per_person)
        day = None if terms is None else terms.day.number
        name = line_name(charge.release, self.policy_version, charge.attempt, day)
        line = ChargeLine(charge.mechanism, charge.w, self.zones[charge.release], day)
        charged.note(end, name, line, {charge.audience: loss})

    def _exponents(self, charged: ChargeHistory, charges: Iterable[AttributeCharge]) -> CountExponents:
        """Return k E for each zone's day and reader: ln of the factor that counts add."""
        spans = {((charge.day, charge.zone), charge.span) for charge in charges}
        return {
            (zone_day, reader): self.devices_per_person
            * count_exponent(charged, zone_day[1], span, self.ticks_per_attribute, audiences)
            for zone_day, span in sorted(spans)
            for reader, audiences in self.readers.items()
        }

    def _reader(self, state: AccountState, reader: str, end: Micros, paid: frozenset[RunKey]) -> ReaderSpend:
        """Return a reader's payments at the end of a window that these runs paid for."""
        audiences = self.readers[reader]
        seen = {key: run for key, run in state.runs.items() if key.audience in audiences}
        return ReaderSpend(
            end, state.totals.get(reader, ReaderTotals()),
            tuple(seen.values()), tuple(run for key, run in seen.items() if key in paid),
            state.day_spend, reader, audiences, self.ticks_per_observation, self.w,
        )  # fmt: skip

    def _units(
        self,
        state: AccountState,
        reader: str,
        end: Micros,
        paid: frozenset[RunKey],
        days: tuple[Day, ...],
        *,
        counted: bool = True,
    ) -> UnitReport:
        """Return unit -> cost for a reader, and the figures of informed adversaries; attributes come before counts."""
        spend = self._reader(state, reader, end, paid)
        since = end - self._span if counted else end - self._span - self.tick_length
        group_sizes = GroupSizes(self.devices_per_person, self.counts_logins)
        units = spend.units(days, since, self._span, group_sizes, self.delta)
        report = written(units, self.delta, exact=self.exact_from is not None and end >= self.exact_from)
        tick = float(units[PRESENCE_TUPLE].pure)
        temporal = self.knowledge.temporal(max(float(spend.largest), tick))
        meeting = self.knowledge.meeting(tick)
        if temporal is not None:
            report["temporal"] = json_float(round(temporal, 6))
        if meeting is not None:
            report["meeting"] = json_float(round(meeting, 6))
        return report

    def encode(self, state: AccountState) -> bytes:
        """Return the state's bytes."""
        return orjson.dumps(encode_account(state))

    def decode(self, data: bytes) -> AccountState:
        """Decode a state; readers that it does not contain start at zero."""
        return decode_account(orjson.loads(data))


def _unreleased(charges: Iterable[Charge]) -> list[dict[str, str]]:
    """Return the denied or unqueried releases with their reasons; attributes by name and not by zone."""
    found = {
        (f"{charge.release}/{charge.audience}", _attribute(charge), charge.reason)
        for charge in charges
        if charge.reason
    }
    return [
        {"release": release, "reason": reason} | ({"attribute": attribute} if attribute else {})
        for release, attribute, reason in sorted(found)
    ]


def _attribute(charge: Charge) -> str:
    return charge.attribute if isinstance(charge, AttributeCharge) else ""
