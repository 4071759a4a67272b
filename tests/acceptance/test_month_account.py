"""The account of a month, added up again from the audit log by arithmetic of its own.

``added_up`` reads ledger entries and a few numbers that stand in the policy; it shares no code with the
account. It must end where the stream's last record ends: every unit, every audience, all together, the
sliding and daily sums, what is left, habits, and what was refused.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from core_ground import audit_of, bodies, laboratory, run

from connectors.simulation_policy import policy_text
from stream.pipeline import Pipeline
from stream.policy import load_policy
from stream.records import MINUTE, Heartbeat, ObservationBatch, Row
from stream.schemas import LEAKAGE
from stream.sensing.simulator import SimulatorConfig, simulate

DAYS, TICK, W, DEVICES = 30, 15, 12, 3
MECHANISM = {"occupancy": "pegasus", "plain": "laplace"}
BUDGET = {("plain", "facilities"): Decimal(30), ("occupancy", "facilities"): Decimal(288)}
BUDGET[("occupancy", "public")] = Decimal("28.8")
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
def month():
    """Run a month of a small building through the stages; return (audit entries, account records)."""
    made = simulate(SimulatorConfig(seed=3, days=DAYS + 1, zones=8, scale=0.06, timezone="America/Los_Angeles"))
    text = policy_text(made).replace('tick = "5min"', f'tick = "{TICK}min"')
    text = text.replace('absent = "sensitive"', 'absent = "sensitive"\ndays_per_month = 20')
    policy = load_policy(text + MORE)
    building, site = made.building, made.config.site
    columns = zip(made.device.tolist(), made.access_point.tolist(), made.time.tolist(), strict=True)
    rows = [Row(made.devices[device], building.access_points[point], time) for device, point, time in columns]
    rows.sort(key=lambda row: row.time)

    def log() -> Iterable[ObservationBatch | Heartbeat]:
        place, sequence = 0, 0
        yield Heartbeat(site, "127.0.0.1", 1, made.start)
        for due in range(made.start + TICK * MINUTE, made.end, TICK * MINUTE):
            first = place
            while place < len(rows) and rows[place].time <= due:
                place += 1
            if place > first:
                yield ObservationBatch(site, "127.0.0.1", 1, sequence, tuple(rows[first:place]))
                sequence += 1
            yield Heartbeat(site, "127.0.0.1", 1, due)

    outputs = run(Pipeline(policy, site, laboratory()), log())
    return audit_of(outputs), bodies(outputs, LEAKAGE)


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
    told: dict[str, Any] = {}
    for reader in ("facilities", "public", "all"):
        per_window = {
            end: sum((cost(MECHANISM[release], held) for release, held in paid[reader][end].items()), Decimal(0))
            for end in windows
        }
        now, sliding = per_window[last_end], sum(per_window[end] for end in windows[-W:])
        day = sum(c for end, c in per_window.items() if (instant(end) - timedelta(minutes=TICK)).date() == today)
        total = sum(per_window.values())
        told[reader] = {
            "presence_tuple": now, "tuple_moved": 2 * now,
            "observation": 2 * now, "observation_moved": 4 * now,  # one tick an observation: 10 min in 15
            "device_w_event": sliding, "device_w_event_moved": 2 * sliding, "person_w_event": DEVICES * sliding,
            "device_day": day, "device_day_moved": 2 * day, "person_day": DEVICES * day,
            "device_total": total, "person_total": DEVICES * total,
        }  # fmt: skip
        told[reader]["largest"] = max(per_window.values())
    left = {}
    for (release, audience), budget in BUDGET.items():
        epsilon = next(
            Decimal(e["epsilon"]) for e in entries if (e["release"], e["audience"]) == (release, audience)
        )  # fmt: skip
        left[f"{release}/{audience}"] = int((budget - spent[release, audience, today.isoformat()]) / epsilon)
    return {"units": told, "left": left}


def test_the_last_account_record_is_what_the_audit_log_adds_up_to(month):
    entries, records = month
    last = next(record for record in reversed(records) if record["kind"] == "counts")
    mine = added_up(entries, last["window_end"])
    streamed = {**last["audiences"], "all": last["coalition"]}
    for reader, units in streamed.items():
        wanted = {name: value for name, value in mine["units"][reader].items() if name != "largest"}
        assert {name: Decimal(value) for name, value in units.items() if isinstance(value, str)} == wanted
    assert last["left"] == mine["left"]
    assert len({record["window_end"] for record in records if record["kind"] == "counts"}) > DAYS * 96 - 10


def test_every_record_of_a_day_is_what_the_log_until_then_adds_up_to(month):
    """Also in the middle of a day on which a budget has run out, and across midnight."""
    entries, records = month
    counts = [record for record in records if record["kind"] == "counts"]
    for place in (0, 1, 11, 12, 70, 95, 96, 97, 1000):
        until = counts[place]["window_end"]
        mine = added_up([e for e in entries if instant(e["window_end"]) <= instant(until)], until)
        for reader, units in {**counts[place]["audiences"], "all": counts[place]["coalition"]}.items():
            assert Decimal(units["device_day"]) == mine["units"][reader]["device_day"], (until, reader)
            assert Decimal(units["device_w_event"]) == mine["units"][reader]["device_w_event"]
            assert Decimal(units["device_total"]) == mine["units"][reader]["device_total"]
        assert counts[place]["left"] == mine["left"]


def test_budgets_held_on_every_day_and_in_every_run_of_windows(month):
    entries, _ = month
    daily: dict[str, Decimal] = defaultdict(Decimal)
    paid: dict[datetime, Decimal] = defaultdict(Decimal)
    refused = defaultdict(int)
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


def test_leakage_to_adversaries_with_knowledge_follows_from_the_sums(month):
    """Supremum of a two-state chain and a meeting of five, from their formulas written out once more."""
    entries, records = month
    counts = [record for record in records if record["kind"] == "counts"]
    short = next(r for r in counts if {"release": "plain/facilities", "reason": "budget"} in r["refused"])
    for last in (short, counts[-1]):
        until = [e for e in entries if instant(e["window_end"]) <= instant(last["window_end"])]
        mine = added_up(until, last["window_end"])["units"]
        for reader, units in {**last["audiences"], "all": last["coalition"]}.items():
            largest, now = float(mine[reader]["largest"]), float(mine[reader]["presence_tuple"])
            # The chain is reversible, so both directions are alike; rows (.995, .005) and (.05, .95).
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


def test_habits_are_the_epsilons_of_the_days_on_which_they_were_asked_about(month):
    entries, records = month
    days: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for entry in entries:
        if entry["release"] == "office-day" and entry["outcome"] == "released":
            day, _, attribute = entry["release_id"].split("/")[3:6]
            for reader in (entry["audience"], "all"):
                held = days[attribute, reader]
                held[day] = max(held.get(day, 0.0), float(entry["epsilon"]))
    told = [record for record in records if record["kind"] == "attributes" and record["habit"]][-1]["habit"]
    assert told
    for name, readers in told.items():
        for reader, row in readers.items():
            asked = days[name.split("/")[1], reader]
            assert row["days"] == len(asked) == 20
            assert row["factor"] == pytest.approx(math.exp(math.fsum(asked.values())), rel=1e-9)
    assert {e["outcome"] for e in entries if e["release"] == "office-day"} == {"released", "month"}
