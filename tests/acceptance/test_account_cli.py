"""``tacet account``: as streamed, for any coalition, at any earlier time."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connectors.keys import key_files
from connectors.storage.embedded.runner import opened
from stream.policy.people import Truth
from stream.release.validation import load_policy
from tests.acceptance.command_line import run, tacet
from tests.support.people_models import HALLS, model_of, small_policy
from tests.support.small_building import ATTRIBUTES, COUNTS, SITE, messages, people, policy_text

KNOWN = """
[privacy.mobility]
forward = [[0.95, 0.05], [0.05, 0.95]]
"""
MODEL = 'zones = { kind = "office" }\nmodel.joint = { "00" = 0.3, "01" = 0.2, "10" = 0.1, "11" = 0.4 }'


class Scenario(NamedTuple):
    store: Path
    policy: Path


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """A store in which two days of a small building have been released."""
    folder = tmp_path_factory.mktemp("account")
    text = policy_text(COUNTS + ATTRIBUTES.replace('zones = { kind = "office" }', MODEL) + KNOWN)
    (folder / "policy.toml").write_text(text)
    key_files.create(folder / "key", laboratory=True)
    policy = load_policy(text)
    with opened(policy, folder / "key", folder / "store") as (runner, _):
        for message in messages(people(hours=50), policy):
            runner.process(message, durable=False)
    return Scenario(folder / "store", folder / "policy.toml")


def account(scenario: Scenario, *arguments: str) -> Any:
    done = run("account", "--store", scenario.store, "--json", *arguments)
    assert done.code == 0, done.problem
    assert done.out.count("\n") == 1
    return json.loads(done.out)["sites"].get(SITE)


def of_coalition(scenario: Scenario, members: str, *arguments: str) -> Any:
    return account(scenario, "--coalition", members, "--policy", str(scenario.policy), *arguments)


@pytest.mark.parametrize(
    ("truth", "price"),
    [(Truth(public=True), "nothing, they are public"), (Truth(public=False, epsilon="0.5"), "epsilon 0.5")],
)
def test_it_says_what_counts_of_people_have_cost(scenario: Scenario, tmp_path: Path, truth: Truth, price: str) -> None:
    model = model_of(small_policy(), truth=truth)
    (tmp_path / "people.json").write_bytes(model.to_bytes())
    people = f'\n[people]\nmodel = "people.json"\ndigest = "{model.digest}"\n'
    (tmp_path / "people.toml").write_text(policy_text(HALLS) + people)
    done = run("account", "--store", scenario.store, "--policy", tmp_path / "people.toml")
    assert done.code == 0, done.problem
    said = " ".join(done.out.split())
    assert (
        f"halls-people for facilities: the counts of people behind model {model.digest[:16]} cost {price}, for one"
        in said
    )


def test_now_it_is_the_last_record_that_streamed(scenario: Any) -> None:
    report = account(scenario)
    assert set(report["last"]["audiences"]) == {"facilities", "public", "board"}
    assert report["last"]["coalition"]["presence_tuple"] == "2.02"  # pegasus 0.8 + 0.2 x 1.1, laplace 0.5, filter 0.5
    assert report["last"]["coalition"]["temporal"] > 2
    assert {name.split("/")[1] for name in report["attributes"]} == {"x", "y"}
    assert report["information"]["office-day"]["all"]["bits"] > 0
    assert report["habit"]["office-day/arrival"]["facilities"]["days"] == 2


def test_every_audience_and_all_together_are_found_again_in_the_books(scenario: Any) -> None:
    streamed = account(scenario)
    for members, units in [*streamed["last"]["audiences"].items(), ("facilities,public,board", None)]:
        again = of_coalition(scenario, members)
        wanted = streamed["last"]["coalition"] if units is None else units
        assert again["last"]["audiences"] == {members.replace(",", "+"): wanted}
        assert again["last"]["left"] == streamed["last"]["left"]
        reader = "all" if units is None else members
        for attribute, figures in again["attributes"].items():
            for figure, factors in figures.items():
                assert factors[members.replace(",", "+")] == streamed["attributes"][attribute][figure][reader]


def test_at_an_earlier_time_it_is_the_record_of_then(scenario: Any) -> None:
    then = "2026-03-03T12:00:00Z"
    streamed = account(scenario, "--at", then)
    assert streamed["last"]["window_end"] == then
    assert (
        of_coalition(scenario, "public", "--at", then)["last"]["audiences"]["public"]
        == (streamed["last"]["audiences"]["public"])
    )
    assert float(streamed["last"]["coalition"]["device_total"]) < float(
        account(scenario)["last"]["coalition"]["device_total"]
    )
    assert account(scenario, "--at", "2020-01-01T00:00:00Z") is None


def test_a_coalition_that_never_streamed_can_be_asked_about(scenario: Any) -> None:
    report = of_coalition(scenario, "board,facilities")["last"]["audiences"]["board+facilities"]
    assert report["presence_tuple"] == "1.52"
    assert math.isfinite(report["temporal"])


def test_tight_is_worked_out_from_the_books_and_never_above_what_streamed(scenario: Any) -> None:
    streamed, exact = account(scenario)["last"], account(scenario, "--tight")["last"]
    for reader, units in [*streamed["audiences"].items(), ("all", streamed["coalition"])]:
        found = exact["coalition"] if reader == "all" else exact["audiences"][reader]
        assert {unit: value for unit, value in found.items() if unit != "tight"} == {
            unit: value for unit, value in units.items() if unit != "tight"
        }
        for unit, one in units["tight"].items():
            assert one["delta"] == found["tight"][unit]["delta"] == 1e-6
            assert 0 < found["tight"][unit]["epsilon"] <= one["epsilon"] <= 1.1 * found["tight"][unit]["epsilon"]
    coalition = of_coalition(scenario, "facilities,public,board", "--tight")["last"]["audiences"]
    assert coalition["facilities+public+board"]["tight"] == exact["coalition"]["tight"]


def test_for_people_there_are_tables(scenario: Any) -> None:
    shown = run("account", "--store", scenario.store)
    assert shown.code == 0
    assert "one device at one tick" in shown.out
    assert "one device, in all" in shown.out
    assert "δ = 1e-06" in shown.out
    assert "tuple" not in shown.out
    assert "arrival" not in shown.out, "a row for each zone and attribute would bury the rest"
    assert "--attributes lists" in shown.out
    assert "arrival" in run("account", "--store", scenario.store, "--attributes").out
    assert run("account", "--store", scenario.store, "--at", "2020-01-01T00:00:00Z").out.startswith("Nothing")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--coalition", "public,nobody"), "got 'nobody'"),
        (("--coalition", "public,nobody", "--policy", "POLICY"), "got 'nobody'"),
        (("--at", "yesterday"), "RFC 3339"),
        (("--coalition", "public", "--policy", "nowhere.toml"), "nowhere.toml"),
        (("--kafka", "127.0.0.1:1"), "--store or --kafka"),
    ],
)
def test_a_question_that_cannot_be_answered_exits_with_2(scenario: Any, arguments: Any, problem: Any) -> None:
    given = [str(scenario.policy) if word == "POLICY" else word for word in arguments]
    done = run("account", "--store", scenario.store, *given)
    assert done.code == 2
    assert problem in done.problem
    assert "Traceback" not in done.problem


def forgetful(store: Path, folder: Path) -> Path:
    """Return a copy of a store that has kept no policies, as stores of the version before have not."""
    copy = Path(shutil.copytree(store, folder / "forgetful"))
    with closing(sqlite3.connect(copy / "store.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM policies")
    return copy


def test_the_store_has_kept_the_policy(scenario: Any) -> None:
    assert account(scenario, "--coalition", "public,board") == of_coalition(scenario, "public,board")


def test_a_store_that_has_kept_no_policy_needs_the_file(scenario: Any, tmp_path: Path) -> None:
    done = run("account", "--store", forgetful(scenario.store, tmp_path), "--coalition", "public")
    assert done.code == 2
    assert "--coalition needs --policy: no policy is stored" in done.problem


def test_books_of_another_policy_are_refused(scenario: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(policy_text(COUNTS))
    store = forgetful(scenario.store, tmp_path)
    done = run("account", "--store", store, "--coalition", "public", "--policy", other)
    assert done.code == 2
    for policy in (scenario.policy, other):
        assert load_policy(policy.read_text()).version in done.problem


class Change(NamedTuple):
    store: Path
    before: Path
    after: Path


@pytest.fixture(scope="module")
def change(tmp_path_factory: pytest.TempPathFactory) -> Change:
    """A store in which the policy was changed after half a day: the same releases, with another mechanism."""
    folder = tmp_path_factory.mktemp("change")
    counts = COUNTS.replace("filter", "laplace")
    texts = [policy_text(counts.replace("pegasus", name) + ATTRIBUTES) for name in ("pegasus", "laplace")]
    paths = [folder / "before.toml", folder / "after.toml"]
    key_files.create(folder / "key", laboratory=True)
    log = list(messages(people(hours=30), load_policy(texts[0])))
    parts = log[: len(log) // 2], log[len(log) // 2 :]
    for text, path, part in zip(texts, paths, parts, strict=True):
        path.write_text(text)
        with opened(load_policy(text), folder / "key", folder / "store", accept_policy=True) as (runner, _):
            for message in part:
                runner.process(message, durable=False)
    return Change(folder / "store", *paths)


EVERYBODY = ("--coalition", "facilities,public,board")


def test_a_changed_policy_is_recomputed_from_both_of_its_versions(change: Any) -> None:
    both = ("--policy", change.after, "--policy", change.before)
    report = json.loads(run("account", "--store", change.store, *EVERYBODY, *both, "--json").out)["sites"][SITE]
    assert report == json.loads(run("account", "--store", change.store, *EVERYBODY, "--json").out)["sites"][SITE]
    streamed = json.loads(run("account", "--store", change.store, "--json").out)["sites"][SITE]
    assert report["last"]["audiences"]["facilities+public+board"] == streamed["last"]["coalition"]


@pytest.mark.parametrize("given", ["before", "after"])
def test_one_policy_of_two_is_refused_and_the_versions_are_named(change: Any, given: Any, tmp_path: Path) -> None:
    done = run("account", "--store", forgetful(change.store, tmp_path), *EVERYBODY, "--policy", getattr(change, given))
    assert done.code == 2
    assert done.out == ""
    for path in (change.before, change.after):
        assert load_policy(path.read_text()).version in done.problem


def test_the_time_before_a_change_needs_the_policy_of_then_only(change: Any, tmp_path: Path) -> None:
    before = ("--at", "2026-03-03T12:00:00Z")
    store = forgetful(change.store, tmp_path)
    report = run("account", "--store", store, *EVERYBODY, "--policy", change.before, *before, "--json")
    streamed = run("account", "--store", change.store, *before, "--json")
    last = [json.loads(done.out)["sites"][SITE]["last"] for done in (report, streamed)]
    assert last[0]["audiences"]["facilities+public+board"] == last[1]["coalition"]


def test_without_a_model_the_table_shows_what_holds_for_every_model(change: Any) -> None:
    report = json.loads(run("account", "--store", change.store, "--json").out)["sites"][SITE]["attributes"]
    shown = run("account", "--store", change.store, "--attributes").out
    for name, figures in report.items():
        row = next(line for line in shown.splitlines() if name in line)
        numbers = [figures["bound"][reader] for reader in figures["bound"]]
        assert all((n if isinstance(n, str) else f"{n:.4g}") in row for n in numbers), row


def test_a_process_of_its_own_says_the_same(scenario: Any) -> None:
    done = tacet("account", "--store", scenario.store, "--json")
    assert done.stdout == run("account", "--store", scenario.store, "--json").out
