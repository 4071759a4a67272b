"""The account of some days, recomputed from the audit log by independent arithmetic.

``added_up`` reads ledger entries and a few numbers that stand in the policy; it shares no code with the
account. It must end where the stream's last record ends: every unit, every audience, all together, the
sliding and daily sums, what is left, and what was refused. ``exposed`` does the same for attributes, from the
entries, the values that were shown and the declared model: every factor of every day, habits, information.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from connectors.lab.simulation.policy import policy_text
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.pipeline import Pipeline
from stream.records import MINUTE, Heartbeat, ObservationBatch, Row
from stream.release.validation import load_policy
from stream.schemas import LEAKAGE
from tests.support.small_building import audit_of, bodies, laboratory, run
from tests.support.window_policies import by_window

DAYS, TICK, W, DEVICES = 4, 15, 12, 3
ASKED = 3
"""Days of a month on which attributes may be asked about."""
MECHANISM = {"occupancy": "pegasus", "floors": "pegasus", "plain": "laplace"}
BUDGET = {("plain", "facilities"): Decimal(30), ("occupancy", "facilities"): Decimal(288)}
BUDGET[("floors", "public")] = Decimal("28.8")
READERS = {"facilities": {"facilities"}, "public": {"public"}, "all": {"facilities", "public"}}
ATTRIBUTES = ("arrival", "departure", "breaks", "occupancy_level")
CLASSES = ("012", "01", "01", "01")
"""Arrival before 9:00, up to 10:00, later (sensitive); of the others 0 is sensitive."""
SENSITIVE = ("2", "0", "0", "0")
BUSY = ((0.5, 0.4, 0.1), (0.2, 0.8), (0.1, 0.9), (0.1, 0.9))
LAZY = ((0.1, 0.3, 0.6), (0.6, 0.4), (0.3, 0.7), (0.7, 0.3))
"""Per attribute the probabilities of its classes, on two kinds of days."""
JOINT = {
    "".join(pattern): round(sum(share * math.prod(p[int(d)] for p, d in zip(kind, pattern, strict=True))
                                for share, kind in ((0.6, BUSY), (0.4, LAZY))), 6)
    for pattern in product(*CLASSES)
}  # fmt: skip
MODEL = f"""absent = "sensitive"
days_per_month = {ASKED}
information_target = 2.5
model.cuts = {{ arrival = ["09:00", "10:01"] }}
model.joint = {{ {", ".join(f'"{pattern}" = {p}' for pattern, p in JOINT.items())} }}
"""
MORE = """
[privacy]
w = 12
[privacy.mobility]
forward = [[0.995, 0.005], [0.05, 0.95]]
[[privacy.meetings]]
size = 5
correlation = 0.5
presence = 0.3

[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = ["classroom", "open", "corridor"] }
epsilon = { facilities = "0.5", public = "0.125" }
daily_budget = { facilities = "30" }
w_budget = { public = "1.125" }
"""


@pytest.fixture(scope="module")
def period() -> Any:
    """Run some days of a small building through the stages; return (audit entries, account records, shown values)."""
    made = simulate(SimulatorConfig(seed=3, days=DAYS + 1, zones=8, scale=0.06, timezone="America/Los_Angeles"))
    text = by_window(policy_text(made)).replace('tick = "5min"', f'tick = "{TICK}min"')
    text = text.replace('absent = "sensitive"', MODEL)
    policy = load_policy(text + MORE)
    building, site = made.building, made.config.site
    columns = zip(made.device.tolist(), made.access_point.tolist(), made.time.tolist(), strict=True)
    rows = [Row(made.devices[device], building.access_points[point], time) for device, point, time in columns]
    rows.sort(key=lambda row: row.time)

    def log() -> Iterable[ObservationBatch | Heartbeat]:
        place, sequence = 0, 0
        yield Heartbeat(site, "127.0.0.1", 1, made.start, 0)
        for due in range(made.start + TICK * MINUTE, made.end, TICK * MINUTE):
            first = place
            while place < len(rows) and rows[place].time <= due:
                place += 1
            if place > first:
                yield ObservationBatch(site, "127.0.0.1", 1, sequence, tuple(rows[first:place]))
                sequence += 1
            yield Heartbeat(site, "127.0.0.1", 1, due, 0)

    outputs = run(Pipeline(policy, site, laboratory()), log())
    private = bodies(outputs, "private")
    shown = {body["release_id"]: body["value"] for body in private if "attribute" in body and body["released"]}
    return audit_of(outputs), bodies(outputs, LEAKAGE), shown


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def cost(mechanism: str, epsilons: set[Decimal]) -> Decimal:
    """Return what these epsilons of one release and window cost those who hold all of them."""
    if not epsilons:
        return Decimal(0)
    shared = max(epsilons)
    return shared * Decimal("0.8") + sum(epsilons) * Decimal("0.2") if mechanism == "pegasus" else shared


def added_up(entries: list[Mapping[str, Any]], last_end: str) -> dict[str, Any]:
    """Return per reader the units that the account should end with, and what is left of budgets."""
    paid: dict[str, dict[str, dict[str, set[Decimal]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(set)))
    spent: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    windows = sorted({entry["window_end"] for entry in entries if entry["release"] in MECHANISM}, key=instant)
    for entry in entries:
        if entry["release"] not in MECHANISM or entry["outcome"] != "released":
            continue
        epsilon = Decimal(entry["epsilon"])
        assert entry["nano"] == epsilon * 10**9
        day = (instant(entry["window_end"]) - timedelta(minutes=TICK)).date().isoformat()
        spent[entry["release"], entry["audience"], day] += epsilon
        for reader in (entry["audience"], "all"):
            paid[reader][entry["window_end"]][entry["release"]].add(epsilon)
    today = (instant(last_end) - timedelta(minutes=TICK)).date()
    report: dict[str, Any] = {}
    for reader in ("facilities", "public", "all"):
        per_window = {
            end: sum((cost(MECHANISM[release], held) for release, held in paid[reader][end].items()), Decimal(0))
            for end in windows
        }
        now, sliding = per_window[last_end], sum(per_window[end] for end in windows[-W:])
        edge = timedelta(minutes=TICK)  # an observation counts at one tick
        open_days = {instant(last_end).date(), (instant(last_end) - edge).date()}
        by_day = max(of_device_day(per_window, of, edge) for of in open_days)
        total = sum(per_window.values())
        report[reader] = {
            "presence_tuple": now, "tuple_moved": 2 * now,
            "observation": 2 * now, "observation_moved": 4 * now,  # one tick an observation: 10 min in 15
            "device_w_event": sliding, "device_w_event_moved": 2 * sliding, "person_w_event": DEVICES * sliding,
            "device_day": by_day, "device_day_moved": 2 * by_day, "person_day": DEVICES * by_day,
            "device_total": total, "person_total": DEVICES * total,
        }  # fmt: skip
        report[reader]["largest"] = max(per_window.values())
    left = {}
    for (release, audience), budget in BUDGET.items():
        epsilon = next(
            Decimal(e["epsilon"]) for e in entries if (e["release"], e["audience"]) == (release, audience)
        )  # fmt: skip
        left[f"{release}/{audience}"] = int((budget - spent[release, audience, today.isoformat()]) / epsilon)
    return {"units": report, "left": left}


def of_device_day(per_window: Mapping[str, Decimal], day: date, edge: timedelta) -> Decimal:
    """Every tick of the UTC day and those after it at which its last observation counts, the first ones twice."""
    since = {end: instant(end) - datetime.combine(day, time(), UTC) for end in per_window}
    once = sum(c for end, c in per_window.items() if timedelta(0) <= since[end] < timedelta(days=1) + edge)
    return Decimal(once + sum(c for end, c in per_window.items() if timedelta(0) <= since[end] < edge))


def test_the_last_account_record_is_what_the_audit_log_adds_up_to(period: Any) -> None:
    entries, records, _ = period
    last = next(record for record in reversed(records) if record["kind"] == "counts")
    mine = added_up(entries, last["window_end"])
    streamed = {**last["audiences"], "all": last["coalition"]}
    for reader, units in streamed.items():
        wanted = {name: value for name, value in mine["units"][reader].items() if name != "largest"}
        assert {name: Decimal(value) for name, value in units.items() if isinstance(value, str)} == wanted
    assert last["left"] == mine["left"]
    assert len({record["window_end"] for record in records if record["kind"] == "counts"}) > DAYS * 96 - 10


def test_every_record_of_a_day_is_what_the_log_until_then_adds_up_to(period: Any) -> None:
    """Also in the middle of a day on which a budget has run out, and across midnight."""
    entries, records, _ = period
    counts = [record for record in records if record["kind"] == "counts"]
    for place in (0, 1, 11, 12, 70, 95, 96, 97, 350):
        until = counts[place]["window_end"]
        mine = added_up([e for e in entries if instant(e["window_end"]) <= instant(until)], until)
        for reader, units in {**counts[place]["audiences"], "all": counts[place]["coalition"]}.items():
            assert Decimal(units["device_day"]) == mine["units"][reader]["device_day"], (until, reader)
            assert Decimal(units["device_w_event"]) == mine["units"][reader]["device_w_event"]
            assert Decimal(units["device_total"]) == mine["units"][reader]["device_total"]
        assert counts[place]["left"] == mine["left"]


def test_budgets_held_on_every_day_and_in_every_run_of_windows(period: Any) -> None:
    entries, _, _ = period
    daily: dict[str, Decimal] = defaultdict(Decimal)
    paid: dict[datetime, Decimal] = defaultdict(Decimal)
    refused: defaultdict[Any, Any] = defaultdict(int)
    for entry in entries:
        if entry["release"] == "plain":
            end = instant(entry["window_end"])
            if entry["audience"] == "facilities":
                daily[(end - timedelta(minutes=TICK)).date().isoformat()] += Decimal(entry["nano"]) / 10**9
            else:
                paid[end] += Decimal(entry["nano"]) / 10**9
            refused[entry["audience"], entry["outcome"]] += 1
    assert max(daily.values()) == 30
    ends = sorted(paid)
    runs = [sum(paid[end] for end in ends[n : n + W]) for n in range(len(ends) - W + 1)]
    assert set(runs) == {Decimal("1.125")}
    assert refused["facilities", "budget"] > 0
    assert refused["public", "w_budget"] == pytest.approx(len(ends) / 4, abs=3)


def test_leakage_to_adversaries_with_knowledge_follows_from_the_sums(period: Any) -> None:
    """Supremum of a two-state Markov chain and a meeting of five, from their formulas written out once more."""
    entries, records, _ = period
    counts = [record for record in records if record["kind"] == "counts"]
    short = next(r for r in counts if {"release": "plain/facilities", "reason": "budget"} in r["refused"])
    for last in (short, counts[-1]):
        until = [e for e in entries if instant(e["window_end"]) <= instant(last["window_end"])]
        mine = added_up(until, last["window_end"])["units"]
        for reader, units in {**last["audiences"], "all": last["coalition"]}.items():
            largest, now = float(mine[reader]["largest"]), float(mine[reader]["presence_tuple"])
            # The Markov chain is reversible, so both directions are alike; rows (.995, .005) and (.05, .95).
            once = largest
            for _ in range(4_000):
                grown = math.expm1(once)
                pairs = ((0.995, 0.05), (0.95, 0.005))
                once = largest + max(math.log((q * grown + 1) / (d * grown + 1)) for q, d in pairs)
            assert units["temporal"] == pytest.approx(2 * once - largest, abs=2e-5)
            there, away = 0.3 + 0.5 * 0.7, 0.3 * 0.5
            tails = [
                (1 - there + there * math.exp(now)) / (1 - away + away * math.exp(now)),
                (1 - away + away * math.exp(-now)) / (1 - there + there * math.exp(-now)),
            ]
            assert units["meeting"] == pytest.approx(now + 4 * math.log(max(tails)), abs=1e-6)
    assert short["audiences"]["facilities"]["presence_tuple"] == "1"  # and it has been 1.5


def test_what_was_refused_is_what_the_log_says_of_that_window_or_day(period: Any) -> None:
    entries, records, _ = period
    reasons = set()
    refused: dict[tuple[datetime, str], set[tuple[str, str, str]]] = defaultdict(set)
    for entry in entries:
        if entry["outcome"] != "released":
            daily = entry["release"] == "office-day"
            attribute = entry["release_id"].split("/")[5] if daily else ""
            where = instant(entry["window_end"]), "attributes" if daily else "counts"
            refused[where].add((f"{entry['release']}/{entry['audience']}", entry["outcome"], attribute))
            reasons.add(entry["outcome"])
    for record in records:
        report = [(row["release"], row["reason"], row.get("attribute", "")) for row in record["refused"]]
        assert len(report) == len(set(report))
        assert set(report) == refused.pop((instant(record["window_end"]), record["kind"]), set())
    assert not refused
    assert reasons == {"budget", "w_budget", "month"}


# --- attributes ---------------------------------------------------------------------------------------


def exposed(
    entries: list[Mapping[str, Any]], shown: Mapping[str, Any]
) -> dict[tuple[str, str, str], tuple[dict[str, float], dict[str, Any]]]:
    """Return (epsilons of what was asked, values of what was shown) by day, zone and reader."""
    seen: dict[tuple[str, str, str], tuple[dict[str, float], dict[str, Any]]] = defaultdict(lambda: ({}, {}))
    for entry in entries:
        if entry["release"] == "office-day" and entry["outcome"] == "released":
            day, zone, attribute = entry["release_id"].split("/")[3:6]
            for reader, audiences in READERS.items():
                if entry["audience"] in audiences:
                    epsilon, values = seen[day, zone, reader]
                    epsilon[attribute] = max(epsilon.get(attribute, 0.0), float(entry["epsilon"]))
                    if entry["release_id"] in shown:
                        values[attribute] = shown[entry["release_id"]]
    return seen


def class_of(attribute: str, value: Any) -> str:
    """Return the class of a value that was shown, and so is not sensitive."""
    return ("0" if value < "09:00" else "1") if attribute == "arrival" else "1"


def posterior_over_prior(epsilon: Mapping[str, float], values: Mapping[str, Any], place: int) -> float:
    """Add up Bayes' rule pattern by pattern: odds that one attribute is sensitive, after over before."""
    sums = {late: [0.0, 0.0] for late in (True, False)}
    for pattern, p in JOINT.items():
        likelihood = 1.0
        for attribute, digit, sensitive in zip(ATTRIBUTES, pattern, SENSITIVE, strict=True):
            if attribute in values:
                coin = 1 - math.exp(-epsilon[attribute])
                likelihood *= coin if digit == class_of(attribute, values[attribute]) else 0.0
            elif attribute in epsilon:
                likelihood *= 1.0 if digit == sensitive else math.exp(-epsilon[attribute])
        cell = sums[pattern[place] == SENSITIVE[place]]
        cell[0] += p
        cell[1] += p * likelihood
    return (sums[True][1] / sums[False][1]) / (sums[True][0] / sums[False][0])


def bits_told(epsilon: Mapping[str, float]) -> float:
    """Return the sum over asked i and all j of I(X_j; was i shown), in bits, from the table of both."""
    total = 0.0
    for i, attribute in enumerate(ATTRIBUTES):
        for j in range(len(ATTRIBUTES)):
            both: dict[tuple[bool, bool], float] = defaultdict(float)
            for pattern, p in JOINT.items():
                hidden = pattern[i] == SENSITIVE[i]
                coin = 0.0 if hidden else 1 - math.exp(-epsilon.get(attribute, 0.0))
                both[pattern[j] == SENSITIVE[j], True] += p * coin
                both[pattern[j] == SENSITIVE[j], False] += p * (1 - coin)
            scale = sum(both.values())
            for (x, m), p in both.items():
                alone = sum(q for (y, _), q in both.items() if y == x) * sum(q for (_, n), q in both.items() if n == m)
                total += p / scale * math.log2(p * scale / alone) if p else 0.0
    return total


def test_factors_of_every_day_follow_from_log_values_and_model(period: Any) -> None:
    entries, records, shown = period
    seen = exposed(entries, shown)
    days = [record for record in records if record["kind"] == "attributes"]
    compared = 0
    for record in days:
        for name, figures in record["attributes"].items():
            day, zone, attribute = name.split("/")
            place = ATTRIBUTES.index(attribute)
            for reader in figures["exact"]:
                epsilon, values = seen[day, zone, reader]
                mine = {"theorem_1": 0.0 if attribute in values else math.exp(epsilon.get(attribute, 0.0))}
                mine["exact"] = mine["with_counts"] = posterior_over_prior(epsilon, values, place)
                bound = math.inf if values else math.exp(math.fsum(epsilon.values()))
                mine["bound"] = 0.0 if attribute in values else bound
                report = {figure: float(factors[reader]) for figure, factors in figures.items()}
                assert report == pytest.approx(mine, abs=2e-9), (name, reader)
                compared += 1
    assert compared == len(seen) * len(ATTRIBUTES)
    exact = {r["attributes"][n]["exact"]["facilities"] for r in days for n in r["attributes"]}
    assert min(exact) == 0
    assert max(exact) > math.exp(0.5)
    assert len(exact) > ASKED


def test_habits_grow_by_the_largest_factor_of_each_day_on_which_they_were_asked_about(period: Any) -> None:
    """A day counts at least e^epsilon; no zone's own product of exact factors is larger."""
    entries, records, shown = period
    seen = exposed(entries, shown)
    report = [record for record in records if record["kind"] == "attributes" and record["habit"]][-1]["habit"]
    days, zones = ({key[n] for key in seen} for n in (0, 1))
    assert len(days) == ASKED
    assert len(zones) > 1
    more = 0
    for attribute, (reader, audiences) in product(ATTRIBUTES, READERS.items()):
        if attribute != "arrival" and audiences == {"public"}:
            assert reader not in report[f"office-day/{attribute}"]
            continue
        factor, alone, own = 1.0, 1.0, dict.fromkeys(zones, 1.0)
        for day in days:
            epsilon = max(seen[day, zone, reader][0][attribute] for zone in zones)
            exact = {
                zone: posterior_over_prior(*seen[day, zone, reader], ATTRIBUTES.index(attribute)) for zone in zones
            }
            factor *= max(math.exp(epsilon), *exact.values())
            alone *= math.exp(epsilon)
            own = {zone: held * (exact[zone] or 1.0) for zone, held in own.items()}
        row = report[f"office-day/{attribute}"][reader]
        assert row == {"days": ASKED, "factor": pytest.approx(factor, rel=1e-9)}
        assert row["factor"] >= max(own.values()) * (1 - 1e-9)
        more += row["factor"] > 1.01 * alone
    assert more > 3
    assert {e["outcome"] for e in entries if e["release"] == "office-day"} == {"released", "month"}


def test_information_follows_from_epsilons_and_model(period: Any) -> None:
    entries, records, shown = period
    seen = exposed(entries, shown)
    days = {day for day, _, _ in seen}
    report = [record["information"]["office-day"] for record in records if record.get("information")]
    assert len(report) == len(days) == ASKED
    for reader in READERS:
        bits = max(bits_told(epsilon) for (_, _, who), (epsilon, _) in seen.items() if who == reader)
        assert [row[reader] for row in report] == [{"bits": pytest.approx(bits, abs=1e-8), "target": 2.5}] * ASKED
