"""The running account: what all releases together have cost, per privacy unit, reader and coalition.

An epsilon means nothing without its unit. For validity V and tick T one raw observation is counted at
n = ceil(V/T) ticks; with releases that cost e per tick the units cost

    presence_tuple        e       one device's presence at one tick added or removed
    tuple_moved           2 e     the same device somewhere else at that tick
    observation           2 n e   one raw observation added or removed
    observation_moved     4 n e   one raw observation replaced
    device_w_event        sum of e over the last w windows; twice that (device_w_event_moved) if replaced
    device_day            sum of e over the counts of one device's UTC day so far (``device_day``): of the day at
                          hand, or of the day before while that costs more and still counts; twice that
                          (device_day_moved) if replaced
    device_total          sum of e since the ledger began
    person_*              devices_per_person times the device's

and to an adversary with knowledge that the policy declares: ``temporal``, the supremum for one presence tuple
at the largest e so far, and ``meeting``, for one member of the meeting that leaks most, at this tick.

Readers who collude on releases that share one chain of noise learn what the finest of them knows; PeGaSus'
groupers are separate for each epsilon, so there a coalition pays max(0.8 e) + sum(0.2 e).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import orjson

from stream.accounting.charged import (
    ChargedWindows,
    Line,
    coalition_cost,
    decode_charged,
    encode_charged,
    line_name,
)
from stream.accounting.device_day import Cells, cost_of_days, days_of
from stream.accounting.exposure import AttributeAccount, CountExponents
from stream.accounting.habit import Habits, habit_rows, habits_of, habits_renamed
from stream.accounting.knowledge import Knowledge
from stream.policy.document import decimal_string
from stream.records import WAITING, Charge, Micros, Published, Spent
from stream.schemas import LEAKAGE, rfc3339

COALITION = "all"
"""Everybody together."""

Readers = Mapping[str, frozenset[str]]
"""Name of a reader or coalition -> the audiences it reads as."""


def readers_of(audiences: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return each audience alone, and all together."""
    names = list(audiences)
    return {name: frozenset([name]) for name in names} | {COALITION: frozenset(names)}


@dataclass(slots=True)
class Sums:
    """What one reader's view has cost so far, per presence tuple."""

    days: dict[int, Fraction] = field(default_factory=dict)
    """UTC day -> what one device's day has cost, of the days that counted at the latest window."""
    total: Fraction = Fraction(0)
    largest: Fraction = Fraction(0)
    recent: tuple[tuple[Micros, Fraction], ...] = ()
    """(end, cost) of the last w windows."""

    def at(self, end: Micros) -> Fraction:
        """Return what a window has cost, if it is the latest."""
        return self.recent[-1][1] if self.recent and self.recent[-1][0] == end else Fraction(0)


@dataclass(frozen=True, slots=True)
class Run:
    """The windows of a release whose epsilon pays for any w of them: n cost at most ceil(n / w) epsilons."""

    epsilon: Fraction
    w: int
    total: int = 0
    days: Mapping[int, Cells] = field(default_factory=dict)
    """UTC day -> counts of one device's day, of the days that counted at the latest window."""

    def and_one(self, cells: Mapping[int, Cells]) -> Run:
        """Return the run with one more window, which belongs to these days."""
        held = {day: self.days.get(day, Cells(0)) for day in cells}
        days = {day: Cells(held[day].less + each.less, held[day].more + each.more) for day, each in cells.items()}
        return replace(self, total=self.total + 1, days=days)

    def cost(self, windows: int) -> Fraction:
        """Return the most that so many windows can cost."""
        return -(-windows // self.w) * self.epsilon

    def broken_off(self) -> Run:
        """Return the run after which the mechanism may begin anew: the next window pays for itself."""
        days = {day: cells.rounded(self.w) for day, cells in self.days.items()}
        return replace(self, total=-(-self.total // self.w) * self.w, days=days)

    def cost_of(self, day: int) -> Fraction:
        """Return the most that one device's day can have cost so far."""
        return self.days[day].cost(self.epsilon, self.w) if day in self.days else Fraction(0)


@dataclass(slots=True)
class AccountState:
    """Sums per reader, and how much of people's habits attributes have told."""

    sums: dict[str, Sums] = field(default_factory=dict)
    habits: Habits = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    """``release/audience/epsilon/w/attempt`` of every release with a w-event mechanism."""
    charged: ChargedWindows = field(default_factory=ChargedWindows)
    """What the latest days' count releases were charged."""

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Go on with what was told and charged of zones under every name that they have now (``zones_now``)."""
        self.habits = habits_renamed(self.habits, now)
        self.charged.rename(now)

    def break_off(self, waiting: Iterable[Charge]) -> None:
        """Let no window to come be paid by one before where a release waits, which then begins anew."""
        anew = {f"{charge.release}/{charge.audience}/" for charge in waiting}
        self.runs = {
            name: run.broken_off() if any(name.startswith(each) for each in anew) else run
            for name, run in self.runs.items()
        }


@dataclass(frozen=True, slots=True)
class Account:
    """The stage that turns charges into one account record after each release of a site.

    Windows come in their order. One that comes again holds further charges, of an operator-requested re-release.
    """

    site: str
    readers: Readers
    ticks_per_observation: int
    devices_per_person: int
    ticks_per_attribute: int
    tick: Micros
    w: int
    knowledge: Knowledge
    attributes: AttributeAccount
    zones: Mapping[str, tuple[str, ...]]
    """Count release -> its zones."""
    policy_version: str
    laboratory: bool

    def initial(self) -> AccountState:
        """Return an account of nothing."""
        return AccountState()

    def step(self, state: AccountState, item: Spent) -> tuple[AccountState, list[Published]]:
        """Add the charges of one release; return the record of the account as it stands."""
        days = days_of(item.window_end, self.tick, self.ticks_per_observation)
        of_day = any(charge.attribute for charge in item.charges)
        costs = {reader: _cost(item.charges, members) for reader, members in self.readers.items()}
        if not of_day:
            state.sums |= {
                reader: self._add(state.sums.get(reader), days, item.window_end, cost) for reader, cost in costs.items()
            }
        held = {reader: state.sums.get(reader, Sums()) for reader in self.readers}
        now = {reader: sums.at(item.window_end) for reader, sums in held.items()}
        state.break_off(charge for charge in item.charges if charge.reason == WAITING)
        paid = {} if of_day else _paid_runs(state, item.charges, days)
        if not of_day:
            self._note(state.charged, item)
        state.runs |= paid
        units = {
            reader: self._units(*self._with_runs(now[reader], held[reader], _seen(state.runs, members), paid, days))
            for reader, members in self.readers.items()
        }
        body: dict[str, Any] = {
            "v": 1,
            "site": self.site,
            "window_end": rfc3339(item.window_end),
            "kind": "attributes" if of_day else "counts",
            "audiences": {reader: cost for reader, cost in units.items() if reader != COALITION},
            "coalition": units.get(COALITION),
            "left": {
                f"{charge.release}/{charge.audience}": charge.left
                for charge in item.charges
                if not charge.attribute and charge.left is not None
            },
            "refused": _unreleased(item.charges),
            "attributes": {},
        }
        if of_day:
            counts = self._counts(state.charged, item.charges)
            body |= self.attributes.of_day(item.charges, self.readers, state.habits, counts)
        body |= {"policy_version": self.policy_version, "laboratory": self.laboratory}
        identity = f"{self.site}/{body['window_end']}/{body['kind']}"
        return state, [Published(LEAKAGE, self.site, orjson.dumps(body), item.window_end, identity)]

    def _note(self, charged: ChargedWindows, item: Spent) -> None:
        for charge in item.charges:
            name = line_name(charge.release, self.policy_version, charge.attempt)
            line = Line(charge.mechanism, charge.w, self.zones[charge.release])
            charged.note(item.window_end, name, line, {charge.audience: charge.epsilon})
        charged.forget(item.window_end)

    def _counts(self, charged: ChargedWindows, charges: Iterable[Charge]) -> CountExponents:
        """Return ln of what the counts of each zone's day add for each reader: k E."""
        spans = {((charge.day, charge.zone), charge.span) for charge in charges}
        return {
            (zone_day, reader): self.devices_per_person
            * charged.exponent(charged.covering(zone_day[1]), span, self.ticks_per_attribute, members)
            for zone_day, span in sorted(spans)
            for reader, members in self.readers.items()
        }

    def _add(self, held: Sums | None, days: Mapping[int, Cells], end: Micros, cost: Fraction) -> Sums:
        held = held or Sums()
        window = held.at(end) + cost
        recent = [row for row in held.recent if end - self.w * self.tick < row[0] < end]
        today = cost_of_days(held.days, days, cost)
        return Sums(today, held.total + cost, max(held.largest, window), (*recent, (end, window)))

    def _with_runs(
        self, now: Fraction, sums: Sums, runs: Mapping[str, Run], paid: Mapping[str, Run], days: Iterable[int]
    ) -> tuple[Fraction, Fraction, Sums]:
        """Return e, the sum of it over the ticks of one observation, and the sums, w-event mechanisms included.

        Of the sums over a device's day only those of ``days``, which count at this window, are left.
        """
        ticks = self.ticks_per_observation
        each, in_force = list(runs.values()), [run for name, run in runs.items() if name in paid]
        observed = ticks * now + sum((run.cost(ticks) for run in in_force), Fraction(0))
        now += sum((run.epsilon for run in in_force), Fraction(0))
        return (
            now,
            observed,
            Sums(
                {d: sums.days.get(d, Fraction(0)) + sum((run.cost_of(d) for run in each), Fraction(0)) for d in days},
                sums.total + sum((run.cost(run.total) for run in each), Fraction(0)),
                sums.largest + sum((run.epsilon for run in each), Fraction(0)),
                (*sums.recent, (0, sum((run.cost(min(run.total, self.w)) for run in each), Fraction(0)))),
            ),
        )

    def _units(self, now: Fraction, observed: Fraction, sums: Sums) -> dict[str, Any]:
        devices, sliding = self.devices_per_person, sum((cost for _, cost in sums.recent), Fraction(0))
        day = max(sums.days.values())
        units = {
            "presence_tuple": now,
            "tuple_moved": 2 * now,
            "observation": 2 * observed,
            "observation_moved": 4 * observed,
            "device_w_event": sliding,
            "device_w_event_moved": 2 * sliding,
            "person_w_event": devices * sliding,
            "device_day": day,
            "device_day_moved": 2 * day,
            "person_day": devices * day,
            "device_total": sums.total,
            "person_total": devices * sums.total,
        }
        report: dict[str, Any] = {unit: decimal_string(value) for unit, value in units.items()}
        temporal = self.knowledge.temporal(float(sums.largest))
        meeting = self.knowledge.meeting(float(now))
        if temporal is not None:
            report["temporal"] = round(temporal, 6) if math.isfinite(temporal) else "inf"
        if meeting is not None:
            report["meeting"] = round(meeting, 6)
        return report

    def encode(self, state: AccountState) -> bytes:
        """Return the state's bytes."""
        sums = {
            reader: [
                [[day, str(cost)] for day, cost in sorted(s.days.items())],
                str(s.total), str(s.largest), [[end, str(cost)] for end, cost in s.recent],
            ]
            for reader, s in sorted(state.sums.items())
        }  # fmt: skip
        habits = habit_rows(state.habits)
        runs = {
            name: [str(run.epsilon), run.w, run.total, [[day, *cells] for day, cells in sorted(run.days.items())]]
            for name, run in sorted(state.runs.items())
        }
        charged = encode_charged(state.charged)
        return orjson.dumps({"sums": sums, "habits": habits, "runs": runs, "charged": charged})

    def decode(self, data: bytes) -> AccountState:
        """Return the state of these bytes; readers that are new to it begin at nothing."""
        body = orjson.loads(data)
        sums = {
            reader: Sums(
                {day: Fraction(cost) for day, cost in days}, Fraction(total), Fraction(largest),
                tuple((end, Fraction(cost)) for end, cost in recent),
            )
            for reader, (days, total, largest, recent) in body["sums"].items()
        }  # fmt: skip
        habits = habits_of(body["habits"])
        runs = {
            name: Run(Fraction(epsilon), w, total, {day: Cells(*cells) for day, *cells in days})
            for name, (epsilon, w, total, days) in body["runs"].items()
        }
        return AccountState(sums, habits, runs, decode_charged(body["charged"]))


def _paid_runs(state: AccountState, charges: tuple[Charge, ...], days: Mapping[int, Cells]) -> dict[str, Run]:
    """Return the runs of the w-event releases that were paid for this window, with this window in them."""
    paid = {}
    for charge in charges:
        if charge.w > 1 and charge.epsilon > 0:
            name = f"{charge.release}/{charge.audience}/{decimal_string(charge.epsilon)}/{charge.w}/{charge.attempt}"
            paid[name] = state.runs.get(name, Run(charge.epsilon, charge.w)).and_one(days)
    return paid


def _seen(runs: Mapping[str, Run], members: frozenset[str]) -> dict[str, Run]:
    return {name: run for name, run in runs.items() if name.split("/")[1] in members}


def _cost(charges: tuple[Charge, ...], members: frozenset[str]) -> Fraction:
    """Epsilon per presence tuple that the count releases of this item cost a reader."""
    releases: dict[tuple[str, str, int], list[Fraction]] = {}
    for charge in charges:
        if not charge.attribute and charge.w == 1 and charge.audience in members:
            releases.setdefault((charge.release, charge.mechanism, charge.attempt), []).append(charge.epsilon)
    costs = (coalition_cost(mechanism, epsilons) for (_, mechanism, _), epsilons in releases.items())
    return sum(costs, Fraction(0))


def _unreleased(charges: tuple[Charge, ...]) -> list[dict[str, str]]:
    """Return what was denied or not asked and why, attributes by name and not by zone."""
    found = {
        (f"{charge.release}/{charge.audience}", charge.attribute, charge.reason) for charge in charges if charge.reason
    }
    return [
        {"release": release, "reason": reason} | ({"attribute": attribute} if attribute else {})
        for release, attribute, reason in sorted(found)
    ]
