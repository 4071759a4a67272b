"""``tacet tune``: its output for a recording, what it refuses, and the same output for the same files and key."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.command_line import Done, run


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune")
    assert run("key", "create", folder / "key", "--laboratory").code == 0
    made = run(
        "simulate", "--days", "3", "--zones", "8", "--out", folder / "seen.csv", "--policy-out", folder / "policy.toml"
    )
    assert made.code == 0
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text().replace('tick = "5min"', 'tick = "15min"'))
    return folder


def ask(folder: Path, *words: str, key: str = "key", policy: str = "policy.toml") -> Done:
    files: list[str | Path] = [
        "--observations",
        folder / "seen.csv",
        "--policy",
        folder / policy,
        "--key-file",
        folder / key,
    ]
    return run("tune", *files, *words)


def building(folder: Path, *words: str) -> dict[str, Any]:
    done = ask(folder, "--task", "building", "--json", "--epsilon-min", "0.2", "--epsilon-max", "20", *words)
    assert done.code == 0, done.problem
    return dict(done.answer)


def test_it_finds_for_each_mechanism_what_is_reached_beside_what_is_not(scenario: Path) -> None:
    """Each epsilon's error is that of a window: smaller for a larger one, but for what groups and smoothers gain."""
    answer = building(scenario, "--mechanism", "laplace", "--mechanism", "ttl", "--utility", "0.9")
    assert (answer["site"], answer["task"], answer["confidence"]) == ("dbh", "building", 0.99)
    assert answer["restricted"]
    assert answer["laboratory"]
    laplace, ttl = answer["answers"]
    assert laplace["status"] == ttl["status"] == "found"
    assert float(laplace["next_below"]["epsilon"]) < float(laplace["epsilon"])
    assert laplace["epsilon_a_day"] == f"{98 * float(laplace['epsilon']):g}"
    assert laplace["measured"]["reached"] > laplace["measured"]["runs"] / 2
    assert laplace["measured"]["utility"] == pytest.approx(0.9, abs=0.03)
    assert (ttl["measured"]["runs"], ttl["epsilon_a_day"], ttl["measured"]["between_runs"]) == (1, None, 0)
    assert ttl["next_below"]["ttl_seconds"] < ttl["ttl_seconds"]


@pytest.mark.long
def test_the_same_seed_finds_the_same(scenario: Path) -> None:
    words = ("--mechanism", "laplace", "--mechanism", "ttl", "--utility", "0.9")
    assert building(scenario, *words) == building(scenario, *words)


def test_what_cannot_be_reached_and_what_always_is_are_said(scenario: Path) -> None:
    [always] = building(scenario, "--mechanism", "ttl", "--utility", "0.0001")["answers"]
    assert (always["status"], always["ttl_seconds"], always["next_below"]) == ("boundary", 1.0, None)
    [never] = building(scenario, "--mechanism", "laplace", "--utility", "0.999", "--epsilon-max", "0.3")["answers"]
    assert (never["status"], never["epsilon"], never["measured"]) == ("unreachable", None, None)
    assert {each["verdict"] for each in never["tried"]} == {"missed"}


def test_a_day_s_epsilon_buys_bounded_counts_with_gaussian_noise(scenario: Path) -> None:
    [row] = building(
        scenario, "--mechanism", "laplace", "--utility", "0.5", "--unit", "device_day", "--epsilon-max", "100"
    )["answers"]
    assert row["status"] == "found"
    assert row["epsilon_a_day"] == row["epsilon"]
    assert row["thesis"] is None


def test_people_are_told_beside_the_thesis_and_warned(scenario: Path) -> None:
    words = ["--task", "heatmap", "--mechanism", "ttl", "--utility", "0.9", "--period", "day", "--period", "night"]
    done = ask(scenario, *words)
    assert done.code == 0, done.problem
    assert "thesis" in done.out
    assert "2 min" in done.out
    assert "Restricted" in done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--utility", "0"], "--utility: must be above 0"),
        (["--utility", "1.2"], "--utility: must be above 0"),
        (["--utility", "0.9", "--confidence", "1"], "--confidence: must be above 0 and below 1"),
        (["--utility", "0.9", "--unit", "device_day"], "which has none"),
        (["--utility", "0.9", "--days", "9"], "at least 9 whole days of windows, got 3"),
        (["--utility", "0.9", "--site", "elsewhere"], "--site: must be one of the policy's sites (dbh)"),
    ],
)
def test_what_does_not_go_together_is_refused(scenario: Path, words: list[str], said: str) -> None:
    done = ask(scenario, "--task", "building", "--mechanism", "ttl", *words)
    assert done.code in (2, 3)
    assert said in " ".join(done.problem.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--unit", "device_day", "--mechanism", "ttl"], "which has none"),
        (["--task", "tasks", "--period", "day"], "period must not be given with tasks"),
        (["--epsilon-min", "2", "--epsilon-max", "1"], "none from 2 to 1 does"),
        (["--runs", "5"], "runs must be at least 18"),
        (["--site", "elsewhere"], "--site: must be one of the policy's sites (dbh)"),
    ],
)
def test_options_are_checked_before_the_recording_is_read(scenario: Path, words: list[str], said: str) -> None:
    """The recording is not there, and that is not what is said."""
    files = ("--observations", scenario / "nowhere.csv", "--policy", scenario / "policy.toml")
    done = run("tune", *files, "--task", "building", "--mechanism", "laplace", "--utility", "0.9", *words)
    assert done.code == 2
    assert said in " ".join(done.problem.split())


def test_bad_rows_are_named_after_the_answer(scenario: Path, tmp_path: Path) -> None:
    """As 'replay' does: a bad row loses only itself."""
    words = ["--task", "building", "--mechanism", "ttl", "--utility", "0.9", "--json"]
    good = ask(scenario, *words)
    rows = (scenario / "seen.csv").read_text()
    broken = tmp_path / "seen.csv"
    broken.write_text(rows + "yesterday,a4:00:00:00:00:01,a4:00:00:00:00:02,dbh\n" * 4)
    done = run("tune", "--observations", broken, "--policy", scenario / "policy.toml", *words)
    assert done.code == 3
    assert "4 bad rows were left out" in done.problem
    assert f"line {len(rows.splitlines()) + 1}" in done.problem
    assert "yesterday" not in done.problem
    assert json.loads(done.out) == good.answer


def test_no_optional_library_is_needed(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So there is none to be missed after the recording has been read."""
    for name in ("matplotlib", "pandas", "httpx", "aiomqtt", "standardwebhooks"):
        monkeypatch.setitem(sys.modules, name, None)
    words = ["--task", "tasks", "--mechanism", "ttl", "--mechanism", "laplace", "--runs", "4", "--days", "2"]
    limits = ["--confidence", "0.5", "--epsilon-min", "10", "--epsilon-max", "10"]
    done = ask(scenario, *words, "--utility", "0.9", *limits)
    assert done.code == 0, done.problem


def test_too_few_runs_for_the_confidence_are_refused_with_their_number(scenario: Path) -> None:
    done = ask(scenario, "--task", "building", "--mechanism", "laplace", "--utility", "0.9", "--runs", "5")
    assert done.code == 2
    assert "runs must be at least 18" in done.problem


def test_a_site_without_privacy_days_has_no_day_to_be_paid(scenario: Path) -> None:
    lines = (scenario / "policy.toml").read_text().split("# Anyone may see")[0].splitlines()
    days = ("day_starts", "contribution", "residents")  # and without the release that is paid by the day
    (scenario / "plain.toml").write_text("\n".join(line for line in lines if not line.startswith(days)))
    words = ["--task", "building", "--mechanism", "laplace", "--utility", "0.9", "--unit", "device_day"]
    done = ask(scenario, *words, policy="plain.toml")
    assert done.code == 2
    assert "must be used with a site that has day_starts" in done.problem


def test_only_a_laboratory_key_is_taken(scenario: Path) -> None:
    assert run("key", "create", scenario / "real").code == 0
    done = ask(scenario, "--task", "building", "--mechanism", "laplace", "--utility", "0.9", key="real")
    assert done.code == 2
    assert "laboratory" in done.problem


def test_tasks_are_looked_at_by_attackers_without_what_was_planted(scenario: Path) -> None:
    """Two days are measured, and one before them is learnt from: what is planted into the two has no place in that."""
    done = ask(scenario, "--task", "tasks", "--mechanism", "ttl", "--utility", "0.1", "--days", "2", "--json")
    [row] = dict(done.answer)["answers"]
    assert row["status"] == "boundary"
    assert set(row["attackers"]) == {"external", "student", "admin"}
    assert 0 <= row["attackers"]["external"]["success"] <= 1
