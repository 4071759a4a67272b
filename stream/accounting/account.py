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

Readers who collude on releases that share one noise chain learn what the finest of them knows; PeGaSus'
groupers are separate for each epsilon, so there a coalition pays max(0.8 e) + sum(0.2 e).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import orjson

from stream.accounting.charged import ChargedWindows, Line, decode_charged, encode_charged, line_name
from stream.accounting.day_lines import DayLines, decode_lines, encode_lines
from stream.accounting.day_units import changed_loss
from stream.accounting.device_day import Cells, days_of, privacy_days_of
from stream.accounting.exposure import AttributeAccount, CountExponents
from stream.accounting.habit import Habits, habit_rows, habits_of, habits_renamed
from stream.accounting.knowledge import Knowledge
from stream.accounting.reader_units import ReaderUnits, written
from stream.accounting.tallies import TallySums, decode_sums, encode_sums, window_tally
from stream.accounting.views import Readers, Run, RunOf, Sums, View, window_cost
from stream.policy.fields import EVERYBODY
from stream.policy.privacy_day import PrivacyDays
from stream.records import PURE, WAITING, AttributeCharge, Charge, CountCharge, Micros, Published, Spent
from stream.schemas import LEAKAGE, json_float, rfc3339


@dataclass(slots=True)
class AccountState:
    """Sums per reader, and how much of people's habits attributes have revealed."""

    sums: dict[str, Sums] = field(default_factory=dict)
    habits: Habits = field(default_factory=dict)
    runs: dict[RunOf, Run] = field(default_factory=dict)
    """Of every release whose epsilon pays for w windows."""
    charged: ChargedWindows = field(default_factory=ChargedWindows)
    """What the latest days' count releases were charged."""
    tallies: dict[str, TallySums] = field(default_factory=dict)
    """What ``sums`` are, as noisy values."""
    lines: DayLines = field(default_factory=DayLines)
    """Of releases that are paid by the day."""

    def rename(self, now: Mapping[str, Iterable[str]]) -> None:
        """Go on with what was published and charged of zones under every name that they have now (``zones_now``)."""
        self.habits = habits_renamed(self.habits, now)
        self.charged.rename(now)

    def break_off(self, waiting: Iterable[CountCharge]) -> None:
        """Let no window to come be paid by one before where a release waits, which then begins anew."""
        anew = {(charge.release, charge.audience) for charge in waiting}
        self.runs = {
            of: run.broken_off() if (of.release, of.audience) in anew else run for of, run in self.runs.items()
        }

    def pay_runs(self, charges: Iterable[CountCharge], days: Mapping[int, Cells]) -> frozenset[RunOf]:
        """Add a window, which belongs to these days, to the runs that were paid for it; return these."""
        paid: dict[RunOf, Run] = {}
        for charge in charges:
            if charge.w > 1 and charge.epsilon > 0:
                of = RunOf.of_charge(charge)
                paid[of] = self.runs.get(of, Run(charge.epsilon, charge.w)).and_one(days)
        self.runs |= paid
        return frozenset(paid)


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
    tick_length: Micros
    w: int
    knowledge: Knowledge
    attributes: AttributeAccount
    zones: Mapping[str, tuple[str, ...]]
    """Count release -> its zones."""
    policy_version: str
    laboratory: bool
    plain: Mapping[str, tuple[Fraction, ...]] = field(default_factory=dict)
    """Count release -> share of epsilon of each level with noise of its own, where all of it is plain noise."""
    delta: Fraction = Fraction(1, 1_000_000)
    """At which epsilons are told beside those that are added up."""
    factor_delta: Fraction | None = None
    """Probability with which a day's noise may say more of an attribute than is counted."""
    privacy_days: PrivacyDays | None = None
    """Days of the site; without them, UTC days."""
    exact_from: Micros | None = None
    """From this window on epsilons at delta are worked out exactly, which takes longer; None: never."""

    def initial(self) -> AccountState:
        """Return an account of nothing."""
        return AccountState()

    def step(self, state: AccountState, item: Spent) -> tuple[AccountState, list[Published]]:
        """Add the charges of one release; return the record of the account as it stands."""
        counts = [charge for charge in item.charges if isinstance(charge, CountCharge)]
        asked = [charge for charge in item.charges if isinstance(charge, AttributeCharge)]
        days = self._days(item.window_end)
        paid: frozenset[RunOf] = frozenset() if asked else self._add_window(state, item.window_end, counts, days)
        units = {reader: self._units(state, reader, item.window_end, paid, days) for reader in self.readers}
        body: dict[str, Any] = {
            "v": 1,
            "site": self.site,
            "window_end": rfc3339(item.window_end),
            "kind": "attributes" if asked else "counts",
            "audiences": {reader: cost for reader, cost in units.items() if reader != EVERYBODY},
            "coalition": units.get(EVERYBODY),
            "left": {f"{c.release}/{c.audience}": c.left for c in counts if c.left is not None},
            "refused": _unreleased(item.charges),
            "attributes": {},
        }
        if asked:
            exponents = self._exponents(state.charged, asked)
            body |= self.attributes.of_day(asked, self.readers, state.habits, exponents)
        body |= {"policy_version": self.policy_version, "laboratory": self.laboratory}
        identity = f"{self.site}/{body['window_end']}/{body['kind']}"
        return state, [Published(LEAKAGE, self.site, orjson.dumps(body), item.window_end, identity)]

    def standing(self, state: AccountState, end: Micros) -> dict[str, dict[str, Any]]:
        """Return reader -> unit -> what it has cost, as the record of the latest window, which ended then, told it.

        Which runs paid for that window is not remembered: those that paid for any of its day's count as if they had, so
        that the units of one tick are never told too low.
        """
        days = self._days(end)
        paid = frozenset(of for of, run in state.runs.items() if days.keys() & run.days.keys())
        return {reader: self._units(state, reader, end, paid, days) for reader in self.readers}

    def _add_window(
        self, state: AccountState, end: Micros, charges: list[CountCharge], days: Mapping[int, Cells]
    ) -> frozenset[RunOf]:
        """Take the charges of a window into the state; return the runs that were paid for it."""
        for reader, audiences in self.readers.items():
            held, cost = state.sums.get(reader, Sums()), window_cost(charges, audiences)
            state.sums[reader] = held.and_window(end, cost, days, self._span)
            tallies, shown = state.tallies.get(reader, TallySums()), window_tally(charges, audiences, self.plain)
            state.tallies[reader] = tallies.and_window(end, shown, days, self._span)
        state.lines.pay(charges, end, self.readers)
        state.lines.forget(end, self._span)
        state.break_off(charge for charge in charges if charge.reason == WAITING)
        for charge in charges:
            self._note(state.charged, end, charge, state.lines)
        state.charged.forget(end)
        return state.pay_runs(charges, days)

    @property
    def _span(self) -> Micros:
        """Length of w windows."""
        return self.w * self.tick_length

    def _days(self, end: Micros) -> dict[int, Cells]:
        """Return the days whose observations can change the counts of a window, with how many of them."""
        if self.privacy_days is not None:
            return privacy_days_of(end, self.privacy_days, self.ticks_per_observation * self.tick_length)
        return days_of(end, self.tick_length, self.ticks_per_observation)

    def _note(self, charged: ChargedWindows, end: Micros, charge: CountCharge, lines: DayLines) -> None:
        """Remember what a window of counts can say of an attribute."""
        terms, loss = charge.terms, charge.epsilon
        if terms is not None and terms.noise == PURE:  # what the day has come to: runs are charged one after another
            terms, loss = lines.so_far(charge), Fraction(0)
        if terms is not None and (charge.epsilon > 0 or terms.noise == PURE):
            loss = changed_loss(terms.noise, terms.parameters, terms.ticks, self.factor_delta, self.devices_per_person)
        day = None if terms is None else terms.day
        name = line_name(charge.release, self.policy_version, charge.attempt, day)
        line = Line(charge.mechanism, charge.w, self.zones[charge.release], day)
        charged.note(end, name, line, {charge.audience: loss})

    def _exponents(self, charged: ChargedWindows, charges: Iterable[AttributeCharge]) -> CountExponents:
        """Return ln of what the counts of each zone's day add for each reader: k E."""
        spans = {((charge.day, charge.zone), charge.span) for charge in charges}
        return {
            (zone_day, reader): self.devices_per_person
            * charged.exponent(charged.covering(zone_day[1]), span, self.ticks_per_attribute, audiences)
            for zone_day, span in sorted(spans)
            for reader, audiences in self.readers.items()
        }

    def _view(self, state: AccountState, reader: str, end: Micros, paid: frozenset[RunOf]) -> View:
        """Return what a reader has paid when a window ends for which these runs were paid."""
        seen = {of: run for of, run in state.runs.items() if of.audience in self.readers[reader]}
        in_force = tuple(run for of, run in seen.items() if of in paid)
        return View(state.sums.get(reader, Sums()), end, tuple(seen.values()), in_force)

    def _units(
        self, state: AccountState, reader: str, end: Micros, paid: frozenset[RunOf], days: Iterable[int]
    ) -> dict[str, Any]:
        """Return unit -> what it has cost a reader, and what who knows people learns."""
        view, sums = self._view(state, reader, end, paid), state.tallies.get(reader, TallySums())
        held = ReaderUnits(view, sums, state.lines, reader, self.readers[reader], self.ticks_per_observation, self.w)
        units = held.of(days, self._span, self.devices_per_person, self.delta)
        report = written(units, self.delta, exact=self.exact_from is not None and end >= self.exact_from)
        tick = float(units["presence_tuple"].pure)
        temporal = self.knowledge.temporal(max(float(view.largest), tick))
        meeting = self.knowledge.meeting(tick)
        if temporal is not None:
            report["temporal"] = json_float(round(temporal, 6))
        if meeting is not None:
            report["meeting"] = json_float(round(meeting, 6))
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
            for name, run in sorted((str(of), run) for of, run in state.runs.items())
        }
        charged = encode_charged(state.charged)
        tallies = {reader: encode_sums(held) for reader, held in sorted(state.tallies.items())}
        body = {"sums": sums, "habits": habits, "runs": runs, "charged": charged, "tallies": tallies}
        return orjson.dumps(body | {"lines": encode_lines(state.lines)})

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
            RunOf.parse(name): Run(Fraction(epsilon), w, total, {day: Cells(*cells) for day, *cells in days})
            for name, (epsilon, w, total, days) in body["runs"].items()
        }
        if "tallies" not in body:  # written before tallies were kept: what was paid counts as it was added up
            tallies = {reader: TallySums.of_sums(held) for reader, held in sums.items()}
            return AccountState(sums, habits, runs, decode_charged(body["charged"]), tallies)
        tallies = {reader: decode_sums(held) for reader, held in body["tallies"].items()}
        charged, lines = decode_charged(body["charged"]), decode_lines(body["lines"])
        return AccountState(sums, habits, runs, charged, tallies, lines)


def _unreleased(charges: Iterable[Charge]) -> list[dict[str, str]]:
    """Return what was denied or not asked and why, attributes by name and not by zone."""
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
