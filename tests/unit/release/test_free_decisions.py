"""Threshold streams on paid counts follow from the released record, the clock and the policy."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.cli.subscribe import one_line
from connectors.records.decoding import read_record
from connectors.subscribe.nodes import node_values
from stream.errors import DataError
from stream.mechanisms.noise_parameters import laplace_noise, least_shift
from stream.mechanisms.noisy_alarm import Alarms, Noisy, NoisyAlarm
from stream.release.backfill import BackfillStage
from stream.release.state import ReleaseState
from tacet import ThresholdRecord, typed
from tests.support.day_policies import day_site
from tests.support.small_building import SITE as BUILDING
from tests.support.small_building import access_point, mac, policy_text
from tests.unit.policy.test_threshold_policies import COUNTS, FREE
from tests.unit.release.test_threshold_release import KEYS, Made, policy, released, stream, windows

DAY_COUNTS = (
    COUNTS.format(mechanism="plain")
    .replace('epsilon = { public = "0.5", facilities = "1" }', 'epsilon = { public = "4", facilities = "8" }')
    + 'unit = "device_day"\nnoise = "gaussian"\n'
)  # fmt: skip
ITEMS = windows([(n % 41, (7 * n) % 33, 0) for n in range(120)])


def decided(counts: str, free: str = FREE) -> Made:
    return released(ITEMS, policy(counts, free))


def again(records: list[dict[str, Any]], free: list[dict[str, Any]], shift: int, nodes: dict[str, list[str]]) -> None:
    """Check each decision against the noisy values that were published in the same window."""
    above, waits = dict.fromkeys(nodes, False), dict.fromkeys(nodes, -1)
    for place, (record, told) in enumerate(zip(records, free, strict=True)):
        noisy = record.get("noisy") or record["values"]
        for node, zones in nodes.items():
            if place >= waits[node]:
                above[node] = sum(noisy[zone] for zone in zones) + shift > told["thresholds"][node]
                waits[node] = place + 6 if above[node] else waits[node]
            assert told["above"][node] is above[node], (place, node)


@pytest.mark.parametrize("mechanism", ["laplace", "filter", "pegasus"])
def test_a_decision_follows_from_the_released_record_and_costs_nothing(mechanism: str) -> None:
    made = decided(COUNTS.format(mechanism=mechanism))
    counts, free = made.of("counts"), made.of("free")
    epsilon = Fraction(1, 2) * (Fraction(4, 5) if mechanism == "pegasus" else 1)
    shift = least_shift(laplace_noise(epsilon), 1, Fraction(1, 20), 1)
    again(counts, free, shift, {"zone:101": ["101"], "zone:102": ["102"]})
    assert {record["spend"] for record in free} == {"0"}
    assert not [entry for entry in made.entries if entry["release"] == "free"]
    assert not made.of("free", "facilities"), "only who is named is told"
    assert {record["mechanism"] for record in free} == {f"{mechanism}/threshold"}


def test_sums_of_zones_are_decided_on_with_the_noise_of_all() -> None:
    made = decided(COUNTS.format(mechanism="laplace"), FREE + 'level = "building"\n')
    shift = least_shift(laplace_noise(Fraction(1, 2)), 2, Fraction(1, 20), 1)
    again(made.of("counts"), made.of("free"), shift, {"building": ["101", "102"]})


def test_counts_that_are_paid_by_the_day_are_decided_on_too() -> None:
    made = decided(DAY_COUNTS)
    assert {record["unit"] for record in made.of("free")} == {"device_day"}
    assert sum(record["above"]["zone:101"] for record in made.of("free")) > 0


def test_a_denied_window_is_denied_here_too_and_changes_nothing() -> None:
    budget = COUNTS.format(mechanism="laplace") + 'daily_budget = { public = "5" }\n'
    made = decided(budget)
    reasons = [record["reason"] for record in made.of("free")]
    assert reasons == [record["reason"] for record in made.of("counts")]
    assert reasons[9:11] == [None, "budget"]
    assert made.of("free")[10]["above"] == {"zone:101": None, "zone:102": None}


def test_what_comes_late_is_decided_late_with_its_counts() -> None:
    late = BackfillStage(policy(COUNTS.format(mechanism="laplace"), FREE, stream()), "dbh", KEYS)
    ids = late.ids(ITEMS[0])
    made = late.release_late(ReleaseState(), ITEMS[0], ReleaseState())
    private = [each.id for each in made if each.topic.startswith("tacet.private")]
    assert sorted(private) == sorted(ids)
    assert any("/free/public/" in name for name in ids)
    assert not any("/crowded/" in name for name in ids)


@pytest.mark.parametrize("windows_", [1, 3])
def test_noise_is_as_far_off_as_promised(windows_: int) -> None:
    law = laplace_noise(Fraction("0.3"))
    shift = least_shift(law, 1, Fraction(1, 20), windows_)
    a = math.exp(-0.3)
    miss = (a ** (shift + 1) / (1 + a)) ** windows_
    assert miss <= 0.05 < (a**shift / (1 + a)) ** windows_


def test_its_state_has_a_byte_form() -> None:
    alarm = NoisyAlarm((5, 9), True, (0, 0), 3, None)
    state, [told] = alarm.step(alarm.initial(), Noisy([6, 9], 10, (True, True)))
    assert told is not None
    assert told.above == (True, False)
    assert alarm.decode(alarm.encode(state)) == state == Alarms([1, 0], [13, 0])


def test_no_alert_lasts_before_the_first_window() -> None:
    """An alert would go on here, since the count is not far enough on the other side to end one."""
    alarm = NoisyAlarm((5,), True, (0,), 3, 2)
    _, [told] = alarm.step(alarm.initial(), Noisy([5], 10, (True,)))
    assert told is not None
    assert told.above == (False,)


@pytest.mark.parametrize("nodes", [1, 3])
def test_the_state_of_other_nodes_is_refused(nodes: int) -> None:
    other = NoisyAlarm((5,) * nodes, True, (0,) * nodes, 3, None)
    with pytest.raises(DataError, match="must be of the same nodes"):
        NoisyAlarm((5, 9), True, (0, 0), 3, None).decode(other.encode(other.initial()))


# --- whoever reads them ---------------------------------------------------------------------------------


def test_readers_know_the_record_of_a_decision() -> None:
    made = released(windows([(60, 0, 0), (60, 0, 0)]), policy(stream(events=1, more='cooldown = "5min"')))
    first, second = made.of()
    assert one_line(first).startswith("dbh/crowded  2026-03-03T12:05:00Z above: zone:101  ε 270")
    assert "zone:101 not answered (events)" in one_line(second)
    record = typed(first)
    assert isinstance(record, ThresholdRecord)
    assert record.above == {"zone:101": True, "zone:102": False, "zone:201": False}
    assert {value.node: value.value for value in node_values(first)} == {"zone:101": 1, "zone:102": 0, "zone:201": 0}
    identity, held = read_record(orjson.dumps(second))
    assert identity.endswith("/2026-03-03T12:10:00Z")
    assert held.released


def test_a_store_runs_subscribes_and_verifies_a_stream(tmp_path: Path) -> None:
    walked = stream().replace("threshold = 20", 'zones = { kind = "hall" }\nthreshold = 3')
    (tmp_path / "policy.toml").write_text(policy_text(walked + COUNTS.format(mechanism="laplace").replace(
        'ids = ["101", "102"]', 'kind = "hall"') + FREE.replace('ids = ["101", "102"]', 'kind = "hall"'),
        site=day_site(), tick="15min"))  # fmt: skip
    lines = ["time,device,access_point,site"]
    lines += [f"2026-03-03T{h:02}:{m:02}:00Z,{mac(n)},{access_point('a')},{BUILDING}"
              for h in range(14, 20) for m in range(0, 60, 9) for n in range(12)]  # fmt: skip
    (tmp_path / "seen.csv").write_text("\n".join(lines) + "\n")
    run = CliRunner()

    def done(*words: str) -> str:
        result = run.invoke(tacet, [*words])
        assert result.exit_code == 0, result.output
        return result.output

    key, store, under = (str(tmp_path / name) for name in ("lab.key", "store", "policy.toml"))
    done("key", "create", key, "--laboratory")
    arguments = ("run", "--policy", under, "--store", store, "--key-file", key,
                 "--observations", str(tmp_path / "seen.csv"))  # fmt: skip
    done(*arguments)
    shown = done("subscribe", "--store", store, "--audience", "public", "--from-start", "--until-end", "--json")
    records = [orjson.loads(line) for line in shown.splitlines()]
    decisions = [r for r in records if r["release"] == "crowded"]
    assert len(decisions) > 20
    assert any(r["above"]["zone:a"] for r in decisions)
    verified = done("audit", "verify", "--store", store, "--key-file", key, "--json")
    assert orjson.loads(verified)["first_break"] is None
    account = orjson.loads(done("account", "--store", store, "--policy", under, "--json"))
    assert account
    before = (tmp_path / "store" / "private" / "public.sqlite").read_bytes()
    done(*arguments)
    assert (tmp_path / "store" / "private" / "public.sqlite").read_bytes() == before, "a second run releases nothing"
