"""policy plan --target-error and --observations: which epsilon suffices, and what that reveals about whom."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from connectors.cli import main
from connectors.cli.policy import NOTICE
from connectors.operations.policy.plan import TRIED, plan, targets
from connectors.operations.policy.quality import expected_quality, observed_windows, simulated_windows
from stream.policy.counts import CountRelease
from stream.release.validation import load_policy
from tests.support.day_policies import day_release, day_site, shared
from tests.support.small_building import SITE, building, people, policy_text, write_csv

DAYS, LONG_DAYS = day_site("2h"), day_site("12h")
ZONES = 'zones = { kind = ["hall", "lobby"] }\n'
RELEASE = day_release("r", public="1", more=ZONES + shared(floor="0.5", building="0.5"))
BY_WINDOW = """
[[release]]
name = "r"
query = "count"
mechanism = "laplace"
zones = { kind = ["hall", "lobby"] }
epsilon = { public = "1" }
daily_budget = { public = "10" }
"""


def called(tmp_path: Path, text: str, *arguments: Any) -> Any:
    (tmp_path / "policy.toml").write_text(text)
    done = CliRunner().invoke(
        main.tacet, ["policy", "plan", "--policy", str(tmp_path / "policy.toml"), *map(str, arguments)]
    )
    assert done.exit_code == 0, done.output
    return done.output


def recorded(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "observations.csv", people())


def test_the_epsilon_found_reaches_the_target_and_the_one_before_it_does_not() -> None:
    policy = building(releases=RELEASE, site=DAYS)
    days = simulated_windows(policy)
    rows = {row["level"]: row for row in targets(policy, days, Fraction(1, 2)).figures()["targets"]}
    assert set(rows) == {"floor", "building"}
    [release] = policy.release
    assert isinstance(release, CountRelease)
    for level, row in rows.items():
        found = TRIED.index(Fraction(row["epsilon"]))
        assert row["epsilon_a_day"] == row["epsilon"]
        for epsilon, reached in ((TRIED[found], True), (TRIED[found - 1], False)):
            alone = release.model_copy(update={"epsilon": {"public": epsilon}})
            expected = expected_quality(policy, SITE, alone, epsilon, days)[level]
            assert (expected.error <= expected.mean / 2) == reached
    assert Fraction(rows["building"]["epsilon"]) < Fraction(rows["floor"]["epsilon"])


def test_a_smaller_error_takes_a_larger_epsilon_until_none_is_enough() -> None:
    policy = building(releases=RELEASE, site=LONG_DAYS)
    days = simulated_windows(policy)
    of_building = [targets(policy, days, Fraction(part, 1000)).figures()["targets"][1] for part in (800, 300, 1)]
    loose, strict, none = of_building
    assert Fraction(loose["epsilon"]) < Fraction(strict["epsilon"])
    assert (none["reached"], none["epsilon"], none["epsilon_a_day"]) == (False, None, None)


def test_an_epsilon_of_windows_is_told_with_what_a_devices_day_costs_of_them() -> None:
    """96 windows of 15 min, and one at either edge; budgets do not shorten the day that is tried."""
    policy = building(releases=BY_WINDOW)
    [row] = targets(policy, simulated_windows(policy), Fraction(1, 2)).figures()["targets"]
    assert row["unit"] == "window"
    assert Fraction(row["epsilon_a_day"]) == 98 * Fraction(row["epsilon"])


def test_the_verb_says_what_was_found_and_what_is_out_of_reach(tmp_path: Path) -> None:
    text = policy_text(RELEASE, site=LONG_DAYS)
    report = orjson.loads(called(tmp_path, text, "--target-error", "50%", "--json"))
    assert report["target_error"] == 0.5
    assert [row["level"] for row in report["targets"]] == ["floor", "building"]
    assert "restricted" not in report
    table = called(tmp_path, text, "--target-error", "0.1%")
    assert table.count("unreachable") == 2
    assert "simulated day" in table
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize("given", ["10", "0%", "101%", "-5%", "ten%"])
def test_what_is_no_percentage_is_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "policy.toml").write_text(policy_text(RELEASE, site=DAYS))
    done = CliRunner().invoke(main.tacet, ["policy", "plan", str(tmp_path / "policy.toml"), f"--target-error={given}"])
    assert done.exit_code == 2
    assert "must be a percentage above 0% and up to 100%" in done.output


def test_the_policy_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(policy_text(RELEASE, site=DAYS))
    for arguments in ([], [str(path), "--policy", str(path)]):
        done = CliRunner().invoke(main.tacet, ["policy", "plan", *arguments])
        assert done.exit_code == 2
        assert "give the policy once" in done.output


# --- recordings ---------------------------------------------------------------------------------------


def test_a_recording_is_sensed_as_a_replay_would(tmp_path: Path) -> None:
    policy = load_policy(policy_text(RELEASE, site=DAYS))
    windows = observed_windows(policy, recorded(tmp_path)).windows[SITE]
    assert len(windows) > 100
    assert all(window.privacy_day is not None for window in windows)
    device_ticks = sum(sum(window.bounded or ()) for window in windows)
    assert 0 < device_ticks < sum(sum(window.counts) for window in windows), "8 ticks a day at most"


def test_what_is_said_of_a_recording_is_restricted_and_says_so(tmp_path: Path) -> None:
    text, file = policy_text(RELEASE, site=DAYS), recorded(tmp_path)
    for more in ((), ("--target-error", "50%")):
        report = orjson.loads(called(tmp_path, text, "--observations", file, *more, "--json"))
        assert (report["restricted"], report["notice"]) == (True, NOTICE)
        printed = " ".join(called(tmp_path, text, "--observations", file, *more).split())
        assert NOTICE in printed
        assert "simulated day" not in printed


def test_another_recording_gives_another_plan_and_the_same_one_the_same(tmp_path: Path) -> None:
    policy = load_policy(policy_text(RELEASE, site=DAYS))
    file = recorded(tmp_path)
    once, again = (plan(policy, observed_windows(policy, file).windows).figures() for _ in range(2))
    assert once == again, "names of devices are drawn anew, and decide nothing"
    assert once["counts"][0]["levels"] != plan(policy).figures()["counts"][0]["levels"]


def test_a_recording_of_which_no_window_comes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(policy_text(RELEASE, site=DAYS))
    empty = tmp_path / "empty.csv"
    empty.write_text("time,device,access_point,site\n")
    done = CliRunner().invoke(
        main.tacet, ["policy", "plan", str(tmp_path / "policy.toml"), "--observations", str(empty)]
    )
    assert done.exit_code != 0
