"""``tacet attack membership``: runs stay below the promised epsilon, and halved noise is detected.

Noise follows from the seed, so nothing here varies from run to run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from connectors.lab.attacks.membership import charged_threshold_releases, threshold_run_scores, threshold_worlds
from connectors.lab.attacks.recording import days_of, record
from connectors.sources.recordings.dialect import OWN
from stream.lab.attackers.membership import most_shown
from stream.records import MINUTE
from stream.release.validation import load_policy
from tests.acceptance.command_line import Done, run
from tests.support.attacked_building import with_bad_rows
from tests.support.small_building import SITE as BUILDING
from tests.support.small_building import people, policy_text, write_csv

RELEASES = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { facilities = "2", public = "1" }

[[release]]
name = "grouped"
query = "count"
mechanism = "pegasus"
zones = { kind = "hall" }
epsilon = { facilities = "1" }

[[release]]
name = "any-six"
query = "count"
mechanism = "ba"
zones = { kind = "hall" }
w = 6
epsilon = { board = "2" }

[[release]]
name = "days"
query = "count"
mechanism = "laplace"
noise = "gaussian"
unit = "device_day"
zones = { kind = "lobby" }
epsilon = { board = "2" }
delta = "1e-6"

[[release]]
name = "full"
query = "threshold"
zones = { kind = "lobby" }
threshold = 5
events = 1
within = "30min"
epsilon = { board = "4" }

[[release]]
name = "office-day"
query = "attributes"
zones = { kind = "office" }
[release.attributes.arrival]
epsilon = { board = "1" }
sensitive = { after = "10:00" }
[release.attributes.occupancy_level]
epsilon = { board = "0.5" }
sensitive = { below = 0.3 }
"""
SITE = 'day_starts = "04:00"\ncontribution = "2h"\nresidents = "ignore"'


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("members")
    (folder / "policy.toml").write_text(policy_text(RELEASES, site=SITE, head="[privacy]\nmax_factor = 1e30\n"))
    write_csv(folder / "observations.csv", people(1, hours=76, devices=12, every=9 * MINUTE))
    return folder


def membership(folder: Path, *more: str | Path) -> Done:
    files = ("--observations", folder / "observations.csv", "--policy", folder / "policy.toml")
    return run("attack", "membership", *files, *more)


@pytest.fixture(scope="module", params=[50, pytest.param(200, marks=pytest.mark.long)])
def shown(request: pytest.FixtureRequest, scenario: Path) -> dict[tuple[str, str], dict[str, Any]]:
    answer = membership(scenario, "--runs", f"{request.param}", "--json").answer
    assert answer["releases"] == 7
    return by_name(answer)


def by_name(answer: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(each["release"], each["audience"]): each for each in answer["tried"]}


def test_nothing_shows_more_than_it_promises(shown: dict[tuple[str, str], dict[str, Any]]) -> None:
    promised = {key: each["epsilon"] for key, each in shown.items()}
    assert promised == {
        ("plain", "facilities"): 2.0, ("plain", "public"): 1.0, ("grouped", "facilities"): 1.0,
        ("any-six", "board"): 2.0, ("days", "board"): 2.0, ("office-day", "board"): 1.5, ("full", "board"): 4.0,
    }  # fmt: skip
    for each in shown.values():
        assert 0 <= each["shown"] <= each["epsilon"]
        assert not each["exceeded"]


def test_bad_rows_are_named_after_the_answer(scenario: Path, tmp_path: Path) -> None:
    with_bad_rows(scenario, tmp_path)
    few = ("--runs", "10", "--release", "plain", "--json")
    good, done = membership(scenario, *few), membership(tmp_path, *few)
    assert done.code == 3
    assert "4 bad rows were left out" in done.problem
    assert json.loads(done.out) == good.answer


def test_bad_rows_hide_no_broken_promise(scenario: Path, tmp_path: Path) -> None:
    with_bad_rows(scenario, tmp_path)
    loose = (scenario / "policy.toml").read_text().replace('facilities = "2", public', 'facilities = "30", public')
    (tmp_path / "loose.toml").write_text(loose)
    files = ("--observations", tmp_path / "observations.csv", "--policy", tmp_path / "loose.toml")
    promised = ("--promised", scenario / "policy.toml", "--release", "plain", "--runs", "100")
    done = run("attack", "membership", *files, *promised)
    assert done.code == 1
    assert "shows more than it promises" in done.problem
    assert "4 bad rows were left out" in done.problem


def test_what_can_be_shown_is_shown(scenario: Path) -> None:
    """Noise and coins of the promised size leave little room: a bound of 0 would say that nothing was attacked."""
    named = ("--release", "plain", "--release", "grouped", "--release", "office-day")
    shown = by_name(membership(scenario, *named, "--runs", "200", "--json").answer)
    assert shown["plain", "facilities"]["shown"] > 1.0
    assert shown["plain", "public"]["shown"] > 0.2
    assert shown["grouped", "facilities"]["shown"] > 0
    assert shown["office-day", "board"]["shown"] > 0.7


def test_exact_ratios_are_those_of_the_noise_that_was_paid_for(shown: dict[tuple[str, str], dict[str, Any]]) -> None:
    ratios = {key: each["largest_ratio"] for key, each in shown.items()}
    assert ratios["plain", "facilities"] == pytest.approx(2.0)
    assert ratios["plain", "public"] == pytest.approx(1.0)
    assert ratios["grouped", "facilities"] == pytest.approx(0.8)  # four fifths pay for noise, the rest for groups
    assert ratios["office-day", "board"] == pytest.approx(1.5)
    assert ratios["any-six", "board"] is None
    assert shown["any-six", "board"]["score"] == "values"
    assert ratios["full", "board"] is None
    assert 0.5 < ratios["days", "board"] < 2.5  # gaussian noise has no largest one


def test_a_table_says_how_much_so_many_runs_can_show_at_most(scenario: Path) -> None:
    """The more releases are tried together, the less can be shown of each."""
    most = []
    for release in ("office-day", "plain"):  # to one audience, and to two
        told = membership(scenario, "--release", release, "--runs", "50")
        (number,) = re.findall(r"can show at most (\d+\.\d\d)\.", " ".join(told.out.split()))
        most.append(float(number))
    assert most[0] == pytest.approx(most_shown(50), abs=0.005)
    assert most[0] > most[1] > 0


def test_a_device_that_decides_makes_a_stream_alert_more_often(scenario: Path) -> None:
    policy = load_policy((scenario / "policy.toml").read_text())
    recorded = record(scenario / "observations.csv", policy, BUILDING, 1, OWN, lambda *_: None)
    (stream,) = charged_threshold_releases(policy, BUILDING)
    both = threshold_worlds(policy, recorded, days_of(recorded)[-1], stream)
    assert {sum(b.counts) - sum(a.counts) for a, b in zip(both.away, both.there, strict=True)} == {1}
    assert len(both.there) == 8  # two hours of ticks
    alerts = [
        sum(threshold_run_scores(policy, BUILDING, stream, windows, f"{run}")["board"][0] > 0 for run in range(80))
        for windows in (both.there, both.away)
    ]
    assert alerts[0] > alerts[1] > 0


def test_halved_noise_is_found_out(scenario: Path) -> None:
    """The same releases at twice the epsilon, held against the promises of the first."""
    louder = scenario / "louder.toml"
    text = (scenario / "policy.toml").read_text()
    louder.write_text(text.replace('facilities = "2", public = "1"', 'facilities = "4", public = "2"'))
    files = (
        "--observations",
        scenario / "observations.csv",
        "--policy",
        louder,
        "--promised",
        scenario / "policy.toml",
    )
    done = run("attack", "membership", *files, "--release", "plain", "--runs", "150")
    assert done.code == 1
    assert "release 'plain' for 'facilities' shows more than it promises" in done.problem
    assert done.out.count("BROKEN") == 2


def test_the_same_seed_shows_the_same(scenario: Path) -> None:
    once, again = (membership(scenario, "--release", "plain", "--runs", "40", "--json").answer for _ in range(2))
    other = membership(scenario, "--release", "plain", "--runs", "40", "--seed", "2", "--json").answer
    assert once == again
    assert other != once


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--release", "nothing"), "--release: must be a release of the policy"),
        (("--runs", "9"), "--runs"),
        (("--site", "elsewhere"), "--site: must be one of the policy's sites"),
    ],
)
def test_what_cannot_be_tried_is_refused(scenario: Path, more: tuple[str, ...], said: str) -> None:
    done = membership(scenario, *more)
    assert done.code == 2
    assert said in done.problem


def test_a_release_without_a_promise_is_refused(scenario: Path) -> None:
    fewer = scenario / "fewer.toml"
    fewer.write_text(
        (scenario / "policy.toml").read_text().replace('facilities = "2", public = "1"', 'facilities = "2"')
    )
    policy = scenario / "policy.toml"
    # The recording is not there: what is promised is compared before it is read.
    done = run(
        "attack", "membership", "--observations", scenario / "nowhere.csv", "--policy", policy, "--promised", fewer
    )
    assert done.code == 2
    assert "--promised: must have release 'plain' for audience 'public' too" in done.problem
