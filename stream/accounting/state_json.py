"""The JSON forms in which snapshots store the ledger, the charge history and the account.

Only this module knows them. Fractions are stored as text, noise as a name and its size, and windows at equal distances
that cost the same as one row. What is encoded is decoded to an equal value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypedDict, TypeVar

from stream.accounting.account_state import AccountState, LatestCharges, ReaderTotals, RunKey, WindowRun
from stream.accounting.adversaries import Habit, HabitKey, Habits
from stream.accounting.charge_history import AudienceCharges, ChargeHistory, ChargeLine, Window
from stream.accounting.charge_runs import ChargeRun, add_window
from stream.accounting.composition import EpsilonEvent, Gaussian, Laplace, Noise
from stream.accounting.costs import NOTHING, Cost, NoiseMultiset
from stream.accounting.day_charges import DayCharge, DaySpend, PaidDay
from stream.accounting.ledger import BudgetView, LedgerState, Spending
from stream.accounting.units import Day
from stream.policy.mechanisms import mechanism_named
from stream.records import DayTerms, Micros, PrivacyDay

Value = TypeVar("Value")

# The ledger.


class LedgerDocument(TypedDict):
    """A ledger state."""

    sequence: int
    head: str
    spent: dict[str, list[tuple[int, int]]]
    """Account -> UTC day and nano-epsilon."""
    recent: dict[str, list[tuple[int, ...]]]
    """Account -> the fields of each ``ChargeRun``."""
    zones: dict[str, tuple[str, ...]]


def encode_ledger(state: LedgerState) -> LedgerDocument:
    """Return the JSON form of a ledger state."""
    accounts = sorted(state.budgets.accounts.items())
    return {
        "sequence": state.sequence,
        "head": state.head,
        "spent": {name: sorted(spending.days.items()) for name, spending in accounts},
        "recent": {name: [tuple(run) for run in spending.windows] for name, spending in accounts},
        "zones": {name: spending.zones for name, spending in accounts if spending.zones},
    }


def decode_ledger(data: LedgerDocument) -> LedgerState:
    """Return the ledger state of its JSON form."""
    accounts = {
        name: Spending(
            tuple(data["zones"].get(name, ())),
            dict(days),
            [ChargeRun(*row) for row in data["recent"][name]],
        )
        for name, days in data["spent"].items()
    }
    return LedgerState(data["sequence"], data["head"], BudgetView(accounts))


# The charge history.

LineRow = tuple[str, int, tuple[str, ...]] | tuple[str, int, tuple[str, ...], int]
"""Mechanism, w, zones, and the number of the privacy day if a whole day is paid."""
WindowsRow = tuple[Micros, Micros, int, list[tuple[str, list[tuple[str, str]]]]]
"""First end, distance, number of windows, and what each of them was charged: line, and epsilon of each audience."""


class HistoryDocument(TypedDict):
    """A charge history."""

    lines: dict[str, LineRow]
    windows: list[WindowsRow]


def encode_history(history: ChargeHistory) -> HistoryDocument:
    """Return the JSON form of a charge history; consecutive equal windows at equal distances form one row."""
    rows: list[tuple[Micros, Micros, int, Window]] = []
    for end, window in sorted((end, window) for each in history.days.values() for end, window in each.items()):
        if rows and rows[-1][3] is window and (rows[-1][2] == 1 or end == rows[-1][0] + rows[-1][2] * rows[-1][1]):
            first, step, number, _ = rows[-1]
            rows[-1] = (first, step or end - first, number + 1, window)
        else:
            rows.append((end, 0, 1, window))
    return {
        "lines": {name: _line_row(line) for name, line in sorted(history.lines.items())},
        "windows": [
            (first, step, number, [(name, [(who, str(epsilon)) for who, epsilon in paid]) for name, paid in window])
            for first, step, number, window in rows
        ],
    }


def _line_row(line: ChargeLine) -> LineRow:
    row = (line.mechanism, line.w, line.zones)
    return row if line.day is None else (*row, line.day)


def decode_history(data: HistoryDocument) -> ChargeHistory:
    """Return the history of its JSON form; UsageError where a line belongs to an undeclared mechanism."""
    history = ChargeHistory()
    for name, (mechanism, w, zones, *day) in data["lines"].items():
        mechanism_named(mechanism)
        history.lines[name] = ChargeLine(mechanism, w, tuple(zones), *day)
    for first, step, number, charged in data["windows"]:
        window = tuple((name, _payments(paid)) for name, paid in charged)
        for place in range(number):
            history.put(first + place * step, window)
    return history


def _payments(rows: Iterable[tuple[str, str]]) -> AudienceCharges:
    return tuple((audience, Fraction(epsilon)) for audience, epsilon in rows)


# Noise and costs.

NoiseDocument = dict[str, int]
"""Kind and size of a noise -> number of values."""


def encode_noise(noises: NoiseMultiset) -> NoiseDocument:
    """Return the JSON form of a multiset."""
    return dict(sorted((_name(noise), number) for noise, number in noises.items()))


def decode_noise(data: NoiseDocument) -> NoiseMultiset:
    """Return the multiset of its JSON form."""
    return {_noise(name): number for name, number in data.items()}


def _name(noise: Noise) -> str:
    if isinstance(noise, Gaussian):
        return f"gaussian {noise.variance}"
    return f"{'pure' if isinstance(noise, EpsilonEvent) else 'laplace'} {noise.epsilon}"


@lru_cache(maxsize=1024)
def _noise(name: str) -> Noise:
    kind, _, size = name.partition(" ")
    if kind == "gaussian":
        return Gaussian(Fraction(size))
    return (EpsilonEvent if kind == "pure" else Laplace)(Decimal(size))


# Totals of readers, and runs of w windows.

LatestRow = tuple[Micros, Micros, int, Micros, Any]
"""First end, distance, number of windows, the time for which an observation counted, and the charge in its own form."""
EpsilonRow = tuple[str, str, list[LatestRow]]
"""Total, largest and latest windows, in epsilons."""
NoiseRow = tuple[NoiseDocument, list[LatestRow]]
"""Total and latest windows, as noise multisets."""
RunRow = tuple[str, int, int, int, list[LatestRow]]
"""Epsilon, w, windows, restarts, and latest windows with the restarts before each."""


def _encode_latest(latest: LatestCharges[Value], write: Callable[[Value], Any]) -> list[LatestRow]:
    return [(run.first, run.step, run.windows, run.charge[0], write(run.charge[1])) for run in latest.runs]


def _decode_latest(rows: Iterable[LatestRow], read: Callable[[Any], Value]) -> LatestCharges[Value]:
    return LatestCharges(
        tuple(ChargeRun(first, step, n, (reach, read(charge))) for first, step, n, reach, charge in rows)
    )


def encode_totals(totals: ReaderTotals) -> tuple[EpsilonRow, NoiseRow]:
    """Return the JSON forms of the epsilons and of the noisy values."""
    epsilons = _encode_latest(totals.latest, lambda cost: str(cost.pure))
    noises = _encode_latest(totals.latest, lambda cost: encode_noise(cost.noises))
    return (str(totals.total.pure), str(totals.largest), epsilons), (encode_noise(totals.total.noises), noises)


def decode_totals(epsilons: EpsilonRow, noises: NoiseRow) -> ReaderTotals:
    """Return the totals from their JSON forms; equal epsilons may have been paid for different noise."""
    total, largest, by_epsilon = epsilons
    values, by_noise = noises
    if [row[:4] for row in by_epsilon] == [row[:4] for row in by_noise]:
        rows = ((*row[:4], (row[4], noise[4])) for row, noise in zip(by_epsilon, by_noise, strict=True))
        latest = _decode_latest(rows, lambda pair: Cost(Fraction(pair[0]), decode_noise(pair[1])))
    else:
        latest = _latest_of(_decode_latest(by_epsilon, Fraction), _decode_latest(by_noise, decode_noise))
    return ReaderTotals(Cost(Fraction(total), decode_noise(values)), Fraction(largest), latest)


def _latest_of(epsilons: LatestCharges[Fraction], noises: LatestCharges[NoiseMultiset]) -> LatestCharges[Cost]:
    """Combine runs that were stored apart and split at different windows."""
    values = {end: noise for end, (_, noise) in noises.windows()}
    runs: list[ChargeRun[tuple[Micros, Cost]]] = []
    for end, (reach, epsilon) in epsilons.windows():
        add_window(runs, end, (reach, Cost(epsilon, values.get(end, NOTHING))))
    return LatestCharges(tuple(runs))


# Paid days.

TermsRow = tuple[tuple[int, Micros, Micros], str, list[str], int]
"""Day, noise, parameters, and number of ticks or changes."""


class DaysDocument(TypedDict):
    """The paid days of all readers."""

    held: list[tuple[str, int, Micros, dict[str, TermsRow]]]
    """Release, attempt, end of the last window, and the terms of each audience."""
    totals: dict[str, tuple[str, NoiseDocument]]
    """Reader -> epsilon, which may be ``inf``, and noise."""


def encode_day_spend(spend: DaySpend) -> DaysDocument:
    """Return the JSON form of paid days."""
    return {
        "held": [
            (line.release, line.attempt, paid.end, {who: _terms_row(each) for who, each in sorted(paid.terms.items())})
            for line, paid in sorted(spend.paid_days.items())
        ],
        "totals": {
            reader: (str(cost.pure), encode_noise(cost.noises)) for reader, cost in sorted(spend.totals.items())
        },
    }


def decode_day_spend(data: DaysDocument) -> DaySpend:
    """Return the paid days of their JSON form."""
    days: dict[DayCharge, PaidDay] = {}
    for release, attempt, end, by_audience in data["held"]:
        paid = PaidDay({who: _terms(row) for who, row in by_audience.items()}, end)
        days[DayCharge.of(release, attempt, next(iter(paid.terms.values())))] = paid
    totals = {
        reader: Cost(float(pure) if pure == "inf" else Fraction(pure), decode_noise(noise))
        for reader, (pure, noise) in data["totals"].items()
    }
    return DaySpend(days, totals)


def _terms_row(terms: DayTerms) -> TermsRow:
    return (*terms.day,), terms.noise, [str(each) for each in terms.parameters], terms.ticks


def _terms(row: TermsRow) -> DayTerms:
    day, noise, parameters, ticks = row
    return DayTerms(PrivacyDay(*day), noise, tuple(Fraction(each) for each in parameters), ticks)


# Habits.

HabitRow = tuple[tuple[str, ...], str, str, int, str]
"""Zones, attribute, reader, days and exponent."""


def encode_habits(habits: Habits) -> list[HabitRow]:
    """Return the JSON form of habits."""
    return [(*of, habit.days, str(habit.exponent)) for of, habit in sorted(habits.items())]


def decode_habits(rows: Iterable[HabitRow]) -> Habits:
    """Return the habits of their JSON form."""
    return {
        HabitKey(tuple(zones), attribute, reader): Habit(days, Fraction(exponent))
        for zones, attribute, reader, days, exponent in rows
    }


# The account.


class AccountDocument(TypedDict):
    """An account state; epsilons and noise of the totals are stored apart."""

    sums: dict[str, EpsilonRow]
    habits: list[HabitRow]
    runs: dict[str, RunRow]
    charged: HistoryDocument
    tallies: dict[str, NoiseRow]
    lines: DaysDocument
    days: list[tuple[Micros, Micros]]


def encode_account(state: AccountState) -> AccountDocument:
    """Return the JSON form of an account state."""
    totals = {reader: encode_totals(each) for reader, each in sorted(state.totals.items())}
    return {
        "sums": {reader: epsilons for reader, (epsilons, _) in totals.items()},
        "habits": encode_habits(state.habits),
        "runs": {name: _run_row(run) for name, run in sorted((str(key), run) for key, run in state.runs.items())},
        "charged": encode_history(state.charged),
        "tallies": {reader: noises for reader, (_, noises) in totals.items()},
        "lines": encode_day_spend(state.day_spend),
        "days": [(day.start, day.end) for day in state.days],
    }


def decode_account(data: AccountDocument) -> AccountState:
    """Return the account state of its JSON form."""
    return AccountState(
        {reader: decode_totals(sums, data["tallies"][reader]) for reader, sums in data["sums"].items()},
        decode_habits(data["habits"]),
        {RunKey.parse(name): _run(row) for name, row in data["runs"].items()},
        decode_history(data["charged"]),
        decode_day_spend(data["lines"]),
        tuple(Day(*day) for day in data["days"]),
    )


def _run_row(run: WindowRun) -> RunRow:
    return str(run.epsilon), run.w, run.total, run.restarts, _encode_latest(run.latest, int)


def _run(row: RunRow) -> WindowRun:
    epsilon, w, total, restarts, latest = row
    return WindowRun(Fraction(epsilon), w, total, restarts, _decode_latest(latest, int))
