"""``tacet attack``: which people it finds in releases of a policy, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import connectors.cli.attack
from connectors.lab.attacks.recording import opened_at_random, record
from connectors.lab.attacks.report import report
from connectors.lab.attacks.study import AttackTerms, attack_day
from connectors.sources.recordings.dialect import OWN
from stream.records import MINUTE
from stream.release.validation import load_policy
from tests.acceptance.command_line import Done, run
from tests.support.attacked_building import RELEASES, with_bad_rows, written
from tests.support.small_building import SITE

FIGURES = {f"{name}.{kind}" for name in ("found", "found-single-run", "followed") for kind in ("png", "svg")}


def attack(folder: Path, out: Path, *more: str, attacker: str = "external") -> Done:
    files = ("--observations", folder / "observations.csv", "--policy", folder / "policy.toml")
    return run("attack", *files, "--attacker", attacker, "--out", out, "--span", "15", *more)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked")
    written(folder)
    return folder


@pytest.fixture(scope="module", params=["named", pytest.param("drawn", marks=pytest.mark.long)], ids=["named", "drawn"])
def found(request: pytest.FixtureRequest, scenario: Path) -> tuple[Path, dict[str, Any]]:
    """What is found; each night with what Matplotlib draws, of which else there are the names."""
    out = scenario / f"out-{request.param}"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "named":
            patch.setattr(Figure, "savefig", lambda _, path, **__: path.touch())
        answer: dict[str, Any] = attack(scenario, out, "--runs", "3", "--json").answer
    return out, answer


def row(answer: dict[str, Any], **wanted: object) -> dict[str, Any]:
    """Return the one attack that reads what is asked for."""
    rows = [each for each in answer["attacks"] if all(each.get(name) == value for name, value in wanted.items())]
    (only,) = rows
    return dict(only)


def test_it_writes_what_it_found_for_its_owner_alone_and_draws_it(found: tuple[Path, dict[str, Any]]) -> None:
    out, answer = found
    assert {path.name for path in out.iterdir()} == {"found.json"} | FIGURES
    assert json.loads((out / "found.json").read_text()) == answer
    assert answer["restricted"] is True
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}


def test_every_way_of_reading_is_attacked(found: tuple[Path, dict[str, Any]]) -> None:
    _, answer = found
    exact = [("plain", "facilities", "values"), ("plain", "public", "values"), ("grouped", "facilities", "noisy")]
    for release, audience, reads in exact:
        row(answer, release=release, audience=audience, reads=reads, law="exact")
    for release, audience in (("plain", "facilities"), ("plain", "public"), ("grouped", "facilities")):
        for width in ("n^-1/5", "0.1"):
            row(answer, release=release, audience=audience, reads="values", width=width)
        for observed in ("one", "all"):
            row(answer, release=release, audience=audience, reads="bound", observed=observed)
    assert len(answer["attacks"]) == 2 + 2 + 3 + 6 + 6  # prior, counts, TTL by two widths, and these


def test_each_attack_is_told_by_time_and_class_over_its_runs(found: tuple[Path, dict[str, Any]]) -> None:
    _, answer = found
    people = np.array(answer["people"])
    for each in answer["attacks"]:
        guessed, sure = (np.array(each["found"][name]) for name in ("by_guess", "by_confidence"))
        assert guessed.shape == sure.shape == (96, 6)
        assert (guessed.sum(axis=1) <= people + 1e-9).all()
        assert (sure.sum(axis=1) <= people + 1e-9).all()
        assert each["success"]["low"] <= each["success"]["share"] <= each["success"]["high"]
        assert each["success"]["tried"] == people.sum() * each["runs"]
        assert 0 < each["control"]["tried"] < each["success"]["tried"]
    assert row(answer, reads="values", law="exact", release="plain", audience="public")["runs"] == 3


def test_less_noise_lets_more_be_found_and_nothing_lets_more_be_found_than_the_counts(
    found: tuple[Path, dict[str, Any]],
) -> None:
    _, answer = found
    shares = [
        row(answer, **reads)["success"]["share"]
        for reads in (
            {"reads": "nothing"},
            {"release": "plain", "audience": "facilities", "reads": "values", "law": "exact"},
            {"reads": "counts"},
        )
    ]
    assert shares == sorted(shares)
    assert shares[-1] > shares[0]


def test_who_knows_all_others_follows_people_best_and_within_the_temporal_bound(
    found: tuple[Path, dict[str, Any]],
) -> None:
    _, answer = found
    followed = {(each["release"], each["audience"]): each for each in answer["followed"]}
    assert set(followed) == {("plain", "facilities"), ("plain", "public"), ("grouped", "facilities")}
    for each in followed.values():
        assert each["mobility"]["share"] < each["knowing"]["share"]
        assert each["victims"] > 10
        assert each["knowing"]["believed"] <= each["believed_at_most"]
    assert followed["plain", "public"]["knowing"]["share"] < followed["plain", "facilities"]["knowing"]["share"]


def test_the_same_seed_finds_the_same_and_another_other_noise(
    found: tuple[Path, dict[str, Any]], scenario: Path
) -> None:
    """Without figures, whose bytes ``test_plots.py`` compares."""
    policy, shut = load_policy((scenario / "policy.toml").read_text()), np.zeros(6, dtype=bool)
    wanted = {"release": "plain", "audience": "facilities", "reads": "values", "law": "exact"}
    single = []
    for seed in (1, 2):
        recorded = record(scenario / "observations.csv", policy, SITE, seed, OWN, lambda *_: None)
        made = attack_day(policy, recorded, shut, AttackTerms(15 * MINUTE, 1, seed, 7, ()), lambda _: None)
        single.append(row(report(made, "external", 15), **wanted)["single_run"])
    assert single[0] == row(found[1], **wanted)["single_run"]
    assert single[1] != single[0]


def test_zones_may_be_opened_at_random_for_a_share_of_people(scenario: Path) -> None:
    policy = load_policy((scenario / "policy.toml").read_text())
    recorded = record(scenario / "observations.csv", policy, SITE, 1, OWN, lambda *_: None)
    numbers = [int(opened_at_random(recorded, share, 1).sum()) for share in (0, 0.5, 0.9)]
    assert numbers[0] == 0 < numbers[1] < numbers[2] < 6
    assert opened_at_random(recorded, 0.5, 1).tolist() != opened_at_random(recorded, 0.5, 3).tolist()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figures, which take longer than the attack."""
    monkeypatch.setattr(connectors.cli.attack, "draw", lambda *_: None)


@pytest.mark.usefixtures("undrawn")
def test_people_read_tables_and_who_sees_zones_looks_for_fewer(scenario: Path) -> None:
    done = attack(scenario, scenario / "seen", "--runs", "1", "--open", "lobby", attacker="student")
    assert done.code == 0
    assert "student, 2026-03-05: 1 of 6 zones open" in done.out
    assert "plain, public: exact law" in done.out
    assert max(map(len, done.out.splitlines()[:-1])) <= 80
    assert "a4:00" not in done.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--span", "7"), "--span: must divide a day and be a multiple of the tick (15 min), got 7"),
        (("--open", "hall", "--open", "lobby", "--open", "office"), "at least one zone must be closed"),
        (("--open", "lounge"), "--open: must be a kind of the site's zones (hall, lobby, office), got 'lounge'"),
        (("--site", "elsewhere"), "--site: must be one of the policy's sites (dbh), got 'elsewhere'"),
    ],
)
def test_what_cannot_be_attacked_is_refused_and_nothing_written(
    scenario: Path, more: tuple[str, ...], said: str
) -> None:
    out = scenario / "refused"
    done = attack(scenario, out, *more)
    assert done.code == 2
    assert said in done.problem
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--span", "7"), "--span: must divide a day"),
        (("--open", "hall", "--open", "lobby", "--open", "office"), "at least one zone must be closed"),
        (("--open", "lounge"), "--open: must be a kind"),
        (("--site", "elsewhere"), "--site: must be one of"),
    ],
)
def test_options_are_checked_before_the_recording_is_read(
    scenario: Path, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    """The recording is not there, and that is not what is said."""
    (tmp_path / "policy.toml").write_text((scenario / "policy.toml").read_text())
    done = attack(tmp_path, tmp_path / "out", *more)
    assert done.code == 2
    assert said in done.problem


def test_a_folder_that_cannot_be_used_is_refused_before_the_recording_is_read(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text((scenario / "policy.toml").read_text())
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    assert "must be a folder that only its owner can enter" in attack(tmp_path, tmp_path / "open").problem
    assert "--out: must be a folder that can be written" in attack(tmp_path, tmp_path / "policy.toml" / "out").problem


@pytest.mark.usefixtures("undrawn")
def test_bad_rows_are_named_after_the_answer(
    scenario: Path, found: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """A bad row loses only itself."""
    with_bad_rows(scenario, tmp_path)
    done = attack(tmp_path, tmp_path / "out", "--runs", "3", "--json")
    assert done.code == 3
    assert "4 bad rows were left out" in done.problem
    assert "yesterday" not in done.problem
    assert json.loads(done.out) == found[1]
    assert (tmp_path / "out" / "found.json").exists()


def test_a_recording_of_bad_rows_alone_is_refused_with_them_named(scenario: Path, tmp_path: Path) -> None:
    with_bad_rows(scenario, tmp_path, good=0)
    done = attack(tmp_path, tmp_path / "out")
    assert done.code == 3
    assert "4 bad rows were left out" in done.problem


def test_a_recording_of_one_day_has_nothing_to_learn_from(tmp_path: Path) -> None:
    written(tmp_path, RELEASES, hours=42)
    done = attack(tmp_path, tmp_path / "out")
    assert done.code == 3
    assert "must contain two whole local days, one to learn from and one to attack; it has 1" in done.problem


def test_a_folder_that_is_in_use_is_left_alone(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    assert attack(scenario, tmp_path).code == 2
    assert (tmp_path / "mine").read_text() == "kept"


def test_without_its_files_it_says_which_it_needs() -> None:
    done = run("attack")
    assert done.code == 2
    assert "give --observations, --policy, --attacker and --out, or membership" in done.problem
