"""Models learnt from a restricted history: the report's content, and who can read it."""

from __future__ import annotations

import csv
import json
import os
import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from connectors.cli.leakage import learn as verb
from connectors.lab.learning import FALSE_ALARM, _sensitive, day_attributes, moves, report_of, write_report
from connectors.sources.recordings.replay import read_history
from stream.accounting.leakage import queries as leakage
from stream.errors import DataError, UsageError
from stream.policy.attributes import AttributeRelease
from stream.records import MINUTE, DayAttribute, Micros
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time, rfc3339
from tests.support.small_building import ATTRIBUTES, COUNTS, FLOORS, SITE, ZONES, policy_text

TICK = 15 * MINUTE
TARGET = ATTRIBUTES.replace(
    'zones = { kind = "office" }',
    'zones = { kind = "office" }\ninformation_target = 0.2\ncap = 1.4\n'
    'model.joint = { "00" = 0.25, "01" = 0.25, "10" = 0.25, "11" = 0.25 }',
)
TEXT = policy_text(COUNTS + TARGET)
LATE, EARLY, LONG, SHORT = "11:00", "09:00", 7 * 4, 4
"""Local time of arrival; ticks that the room stays occupied, from then on."""


def local(day: int, clock: str) -> Micros:
    return parse_time(f"{(date(2026, 1, 5) + timedelta(days=day)).isoformat()}T{clock}:00-08:00")


def write_history(
    folder: Path,
    days: list[tuple[tuple[str, int], tuple[str, int]]],
    stays: list[tuple[str, str, int, int]] | tuple[Any, ...] = (),
) -> Path:
    """Write counts in which office x and y have these (arrival, occupied ticks) on each day, and stays."""
    first = local(0, "00:00")
    occupied: dict[str, set[int]] = {"x": set(), "y": set()}
    for number, offices in enumerate(days):
        for zone, (arrival, ticks) in zip("xy", offices, strict=True):
            start = (local(number, arrival) - first) // TICK
            occupied[zone] |= set(range(start, start + ticks))
    folder.mkdir(exist_ok=True)
    with (folder / "occupancy.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("window_end", "site", "zone", "count"))
        for number in range(96 * len(days) + 1):
            end = rfc3339(first + number * TICK)
            writer.writerows((end, SITE, zone, int(number in occupied.get(zone, ()))) for zone in ZONES)
    with (folder / "presence.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("site", "device", "zone", "start", "end"))
        writer.writerows((SITE, device, zone, rfc3339(start), rfc3339(end)) for device, zone, start, end in stays)
    return folder


def drawn(days: int, seed: int, *, flip: bool = False) -> list[tuple[tuple[str, int], tuple[str, int]]]:
    """Draw days on which an early arrival mostly means a long one; ``flip``: a short one."""
    rng = random.Random(seed)

    def office() -> tuple[str, int]:
        early = rng.random() < 0.5
        long = (rng.random() < 0.9) == (early != flip)
        return (EARLY if early else LATE, LONG if long else SHORT)

    return [(office(), office()) for _ in range(days)]


def learnt(
    folder: Path,
    days: list[tuple[tuple[str, int], tuple[str, int]]],
    stays: list[tuple[str, str, int, int]] | tuple[Any, ...] = (),
    **options: Any,
) -> dict[str, Any]:
    policy = load_policy(TEXT)
    return report_of(policy, read_history(write_history(folder, days, stays), policy), **options)


def pattern(office: tuple[str, int]) -> str:
    return f"{int(office[0] == EARLY)}{int(office[1] == LONG)}"


def attributes_of(policy: Policy) -> AttributeRelease:
    release = policy.release[3]
    assert isinstance(release, AttributeRelease)
    return release


def test_attributes_of_every_zone_and_day_are_those_that_would_be_released(tmp_path: Path) -> None:
    days = drawn(6, 1)
    policy = load_policy(TEXT)
    found = day_attributes(policy, attributes_of(policy), read_history(write_history(tmp_path / "h", days), policy))
    assert list(found) == [(date(2026, 1, 5) + timedelta(days=n)).isoformat() for n in range(6)]
    assert ["".join(map(str, r)) for zones in found.values() for r in zones] == [
        pattern(office) for offices in days for office in offices
    ]


@pytest.mark.parametrize("absent", ["sensitive", "public"])
def test_a_day_on_which_nobody_came_is_as_sensitive_as_the_policy_says(absent: str) -> None:
    text = TARGET.replace('zones = { kind = "office" }', f'zones = {{ kind = "office" }}\nabsent = "{absent}"')
    release = attributes_of(load_policy(policy_text(COUNTS + text)))
    empty = DayAttribute(SITE, "x", "2026-01-05", "arrival", None, 0)
    assert _sensitive(release, empty) is (absent == "sensitive")


def test_the_joint_is_counts_and_pseudo_counts(tmp_path: Path) -> None:
    days = drawn(20, 2)
    report = learnt(tmp_path / "h", days)["attributes"]["office-day"]
    seen = [pattern(office) for offices in days for office in offices]
    assert report["records"] == 40
    assert report["joint"] == {
        key: pytest.approx((seen.count(key) + 0.5) / 42) for key in ("00", "01", "10", "11")
    }  # fmt: skip


def test_a_day_that_is_not_covered_whole_is_not_learnt_from(tmp_path: Path) -> None:
    folder = write_history(tmp_path / "h", drawn(4, 3))
    lines = (folder / "occupancy.csv").read_text().splitlines(keepends=True)
    second_day = 1 + len(ZONES) * (96 + 40)
    (folder / "occupancy.csv").write_text("".join(lines[:second_day] + lines[second_day + len(ZONES) :]))
    policy = load_policy(TEXT)
    found = day_attributes(policy, attributes_of(policy), read_history(folder, policy))
    assert list(found) == ["2026-01-05", "2026-01-07", "2026-01-08"]


def test_figures_are_those_of_the_learnt_joint(tmp_path: Path) -> None:
    report = learnt(tmp_path / "h", drawn(20, 2))["attributes"]["office-day"]
    joint, everybody = report["joint"], report["readers"]["all"]
    query = leakage.osdp(joint=joint, epsilon=[1, 1], released=[0, 0])
    assert everybody["epsilon"] == {"arrival": 1.0, "occupancy_level": 1.0}
    for place, name in enumerate(report["attributes"]):
        assert everybody["patterns"]["00"][name] == pytest.approx(query["attributes"][place]["factor"])
        assert everybody["worst_factor"][name] == pytest.approx(query["worst_factor"][place])
    assert set(everybody["patterns"]) == {"00", "01", "10", "11"}
    assert everybody["patterns"]["11"] == {"arrival": 0, "occupancy_level": 0}
    public = report["readers"]["public"]
    assert public["epsilon"] == {"arrival": 0.2, "occupancy_level": 0.0}
    assert set(public["patterns"]) == {"00", "10"}  # a level is never shown to the public
    assert public["information_bits_total"] < everybody["information_bits_total"]
    assert "board" not in report["readers"]


def test_the_optimiser_meets_the_information_target(tmp_path: Path) -> None:
    best = learnt(tmp_path / "h", drawn(20, 2))["attributes"]["office-day"]["optimal"]
    assert best["target_bits"] == 0.2
    for objective in ("releases", "epsilon"):
        assert best[objective]["information_bits"] == pytest.approx(0.2, abs=1e-6)
        assert best[objective]["objective"] <= best[objective]["upper_bound"] * (1 + 1e-9)


def test_guard_decisions_are_those_of_the_learnt_joint_and_the_policys_cap(tmp_path: Path) -> None:
    guard = learnt(tmp_path / "h", drawn(20, 2))["attributes"]["office-day"]["guard"]
    assert guard["cap"] == 1.4
    assert guard["static"] == ["arrival"]
    assert [(d["attribute"], d["after"]) for d in guard["adaptive"]] == [
        ("arrival", {}), ("occupancy_level", {"arrival": "withheld"}), ("occupancy_level", {"arrival": "shown"}),
    ]  # fmt: skip
    assert [d["allowed"] for d in guard["adaptive"]] == [True, False, True]


def test_what_was_learnt_before_dependencies_changed_is_dropped(tmp_path: Path) -> None:
    same = learnt(tmp_path / "same", drawn(60, 4))["attributes"]["office-day"]
    assert same["revision"]["changed"] is False
    assert same["records"] == 120
    days = drawn(30, 5) + drawn(30, 6, flip=True)
    other = learnt(tmp_path / "other", days)["attributes"]["office-day"]
    assert other["revision"]["changed"] is True
    assert other["revision"]["p_value"] <= FALSE_ALARM
    assert other["records"] == 60
    seen = [pattern(office) for offices in days[30:] for office in offices]
    assert other["joint"]["01"] == pytest.approx((seen.count("01") + 0.5) / 62)


def test_one_day_is_learnt_from_and_compared_with_nothing(tmp_path: Path) -> None:
    report = learnt(tmp_path / "h", drawn(1, 7))["attributes"]["office-day"]
    assert report["records"] == 2
    assert report["revision"]["changed"] is None


def test_moves_are_counted_tick_by_tick_outside_included(tmp_path: Path) -> None:
    start = parse_time("2026-01-06T10:00:00Z")
    stays = [
        ("d1", "a", start, start + 3 * TICK),  # three ticks on floor 1
        ("d1", "c", start + 3 * TICK, start + 4 * TICK),  # one on floor 2
        ("d2", "b", start + 1, start + TICK),  # between two ticks: never counted
    ]
    policy = load_policy(TEXT)
    history = read_history(write_history(tmp_path / "h", drawn(2, 8), stays), policy)
    names, counts = moves(policy, SITE, history, "floors")
    assert names == ["outside", *dict.fromkeys(FLOORS.values())]
    assert counts.sum() == 2 * 96
    assert counts.tolist() == [[96 + 96 - 5, 1, 0], [0, 2, 1], [1, 0, 0]]
    zones, fine = moves(policy, SITE, history, "zones")
    assert zones == ["outside", *ZONES]
    assert fine[zones.index("a"), zones.index("c")] == 1


def test_suprema_are_those_of_the_learnt_matrix_at_the_policys_epsilons(tmp_path: Path) -> None:
    start = parse_time("2026-01-06T10:00:00Z")
    stays = [(f"d{n}", "abcd"[n % 4], start + n * TICK, start + (n + 3) * TICK) for n in range(20)]
    made = learnt(tmp_path / "h", drawn(2, 9), stays)["mobility"][SITE]
    forward = np.array(made["forward"])
    assert forward.min() > 0
    assert forward.sum(axis=1) == pytest.approx(1)
    epsilon = made["supremum"]["facilities"]["epsilon"]
    assert epsilon == 1.5  # pegasus at 1 and laplace at 0.5
    again = leakage.temporal(epsilon=[epsilon], forward=made["forward"], stationary=True)["supremum"]
    for side in ("backward", "forward", "total"):
        assert made["supremum"]["facilities"][side] == pytest.approx(again[side])
    assert made["supremum"]["all"]["epsilon"] == pytest.approx(0.82 + 0.2 + 0.5 + 0.5)


def test_the_report_is_marked_and_its_owners_alone(tmp_path: Path) -> None:
    folder = write_history(tmp_path / "h", drawn(4, 3))
    (tmp_path / "policy.toml").write_text(TEXT)
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    for out in (None, tmp_path / "open" / "report.json"):
        if out is not None:
            out.write_text("older")
            out.chmod(0o644)
        arguments = [str(folder), "--policy", str(tmp_path / "policy.toml"), *([] if out is None else ["--out", out])]
        done = CliRunner().invoke(verb, list(map(str, arguments)), catch_exceptions=False)
        assert done.exit_code == 0
        assert "Personal data" in done.output
        written = out or folder / "learnt.json"
        assert written.stat().st_mode & 0o777 == 0o600
        report = json.loads(written.read_text())
        assert report["restricted"] is True
        assert "Personal data" in report["notice"]
        assert [path.name for path in written.parent.iterdir() if "partial" in path.name] == []
        shown = str(report["attributes"]["office-day"]["joint"]["00"])
        assert shown not in done.output


def test_the_screen_shows_no_figure_as_json_either(tmp_path: Path) -> None:
    folder = write_history(tmp_path / "h", drawn(4, 3))
    (tmp_path / "policy.toml").write_text(TEXT)
    done = CliRunner().invoke(verb, [str(folder), "--policy", str(tmp_path / "policy.toml"), "--json"])
    assert json.loads(done.output) == {
        "restricted": True,
        "out": str(folder / "learnt.json"),
        "policy_version": load_policy(TEXT).version,
    }


def test_a_file_system_that_cannot_keep_it_private_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat

    def loose(handle: int) -> os.stat_result:
        mode, *rest = real(handle)
        return os.stat_result((mode | 0o044, *rest))

    monkeypatch.setattr("connectors.lab.learning.os.fstat", loose)
    with pytest.raises(UsageError, match="0600"):
        write_report({"restricted": True}, tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere.*cannot be written"):
        write_report({}, tmp_path / "nowhere" / "report.json")


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("occupancy.csv", "window_end,", "when,", "window_end is missing"),
        ("occupancy.csv", f",{SITE},b,0", ",elsewhere,b,0", "line 3: site must be"),
        ("occupancy.csv", f",{SITE},b,0", f",{SITE},nowhere,0", "line 3: zone must be"),
        ("occupancy.csv", f",{SITE},b,0", f",{SITE},b,-1", "line 3: count must be"),
        ("occupancy.csv", f",{SITE},b,0", f",{SITE},b", "line 3: must have the fields"),
        ("occupancy.csv", "2026-01-05T08:00:00Z,dbh,b", "early,dbh,b", "line 3: window_end must be"),
        ("presence.csv", "10:15:00Z", "09:15:00Z", "line 2: end must be after start"),
    ],
)
def test_a_bad_field_is_named_by_line_and_not_shown(
    tmp_path: Path, file: str, old: str, new: str, problem: str
) -> None:
    start = parse_time("2026-01-06T10:00:00Z")
    folder = write_history(tmp_path / "h", drawn(1, 1), [("d1", "a", start, start + TICK)])
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises((DataError, UsageError)) as refused:
        read_history(folder, load_policy(TEXT))
    assert problem in str(refused.value)
    assert "elsewhere" not in str(refused.value)
    assert "early" not in str(refused.value)


def test_a_missing_history_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="include-restricted"):
        read_history(tmp_path, load_policy(TEXT))
