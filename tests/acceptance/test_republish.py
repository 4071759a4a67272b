"""Lost private records: 'audit verify', 'recover' and 'doctor' report them; 'republish' restores the same bytes."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.storage.embedded.reader import read_outbox, read_state_and_entries
from stream.schemas import LEAKAGE
from tests.acceptance.command_line import Done, run
from tests.support.small_building import people, policy_text, write_csv

SEEN = people(hours=12, devices=6)
LOSSES = {
    "in the middle": "DELETE FROM records WHERE seq BETWEEN 5 AND 12",
    "at the end": "DELETE FROM records WHERE seq > 7",
    "all": "DELETE FROM records",
}
RELEASES = """
[[release]]
name = "smooth"
query = "count"
mechanism = "filter"
epsilon = { board = "1" }
[[release]]
name = "grouped"
query = "count"
mechanism = "laplace"
epsilon = { board = "0.5", public = "1" }
daily_budget = { public = "30" }
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with policy, key, recording and a store in which half a day has been released."""
    folder = tmp_path_factory.mktemp("republish")
    (folder / "policy.toml").write_text(policy_text(RELEASES))
    key_files.create(folder / "key", laboratory=True)
    write_csv(folder / "rows.csv", SEEN)
    done = on(folder, "run", "--key-file", folder / "key", "--observations", folder / "rows.csv")
    assert done.code == 0, done.problem
    return folder


@pytest.fixture
def scenario(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def on(folder: Path, verb: str, *words: object) -> Done:
    return run(verb, *map(str, words), "--policy", f"{folder}/policy.toml", "--store", f"{folder}/store")


def republish(folder: Path, *words: object) -> Done:
    return on(folder, "republish", folder / "rows.csv", "--key-file", folder / "key", *words)


def verified(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("audit", "verify", "--store", f"{folder}/store", "--json").out)
    return found


def lose(folder: Path, statement: str, audience: str = "board") -> None:
    """Take records out of an outbox, and none is in the store on its way there."""
    for file, change in (
        (folder / "store" / "private" / f"{audience}.sqlite", statement),
        (folder / "store" / "store.sqlite", "DELETE FROM outputs WHERE topic LIKE 'tacet.private.%'"),
    ):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(change)


def held(folder: Path) -> dict[str, list[bytes]]:
    return {name: sorted(value for _, value in read_outbox(folder / "store", name, 0)) for name in ("board", "public")}


@pytest.mark.parametrize("statement", LOSSES.values(), ids=LOSSES)
def test_records_that_are_lost_are_missed_and_put_back_byte_for_byte_at_no_cost(scenario: Path, statement: str) -> None:
    """54 and 432 records were gone, and all was well for recover, doctor and audit verify."""
    before, (_, entries) = held(scenario), read_state_and_entries(scenario / "store")
    assert verified(scenario)["missing"] == []
    lose(scenario, statement)
    lost = len(before["board"]) - len(held(scenario)["board"])
    found = verified(scenario)
    assert not found["ok"]
    assert sum(each["records"] for each in found["missing"]) == lost
    assert {(each["site"], each["audience"]) for each in found["missing"]} == {("dbh", "board")}
    findings = json.loads(run("recover", "--store", f"{scenario}/store", "--json").out)["findings"]
    assert [each["what"].partition(" of windows")[0] for each in findings] == [
        f"site dbh: {each['records']} published record(s) of release {each['release']} for board are missing,"
        for each in found["missing"]
    ]
    assert any("tacet republish" in way["do"] for way in findings[0]["ways"])
    doctor = json.loads(on(scenario, "doctor", "--json").out)["findings"]
    assert "wrong" in {each["state"] for each in doctor if each["check"] == "published records"}
    done = republish(scenario, "--json")
    assert (done.code, json.loads(done.out)["republished"]) == (0, lost), done.problem
    assert held(scenario) == before
    assert verified(scenario)["ok"]
    assert read_state_and_entries(scenario / "store")[1] == entries
    assert json.loads(republish(scenario, "--json").out)["republished"] == 0


def test_other_observations_put_back_only_what_they_prove(scenario: Path) -> None:
    """Up to the first window that they change they make the same ledger, and behind it nothing is proven."""
    before = held(scenario)
    lose(scenario, LOSSES["all"])
    write_csv(scenario / "rows.csv", SEEN[: len(SEEN) // 2])
    done = republish(scenario)
    assert done.code == 3
    assert "site dbh: " in done.problem
    assert "reproduce the whole ledger" in done.problem
    assert 0 < len(held(scenario)["board"]) < len(before["board"])
    assert set(held(scenario)["board"]) <= set(before["board"])
    write_csv(scenario / "rows.csv", SEEN)
    assert republish(scenario).code == 0
    assert held(scenario) == before


@pytest.mark.parametrize("change", [SEEN[1:], [*SEEN[1:2], *SEEN]], ids=["one less", "one more"])
def test_nothing_is_put_back_behind_a_window_of_other_observations(scenario: Path, change: Sequence[Any]) -> None:
    before = held(scenario)
    lose(scenario, LOSSES["all"])
    write_csv(scenario / "rows.csv", change)
    assert republish(scenario).code in (0, 3)
    assert set(held(scenario)["board"]) <= set(before["board"])


def test_another_key_puts_nothing_back(scenario: Path) -> None:
    lose(scenario, LOSSES["all"])
    key_files.create(scenario / "another", laboratory=True)
    done = on(scenario, "republish", scenario / "rows.csv", "--key-file", scenario / "another")
    assert done.code == 2
    assert held(scenario)["board"] == []


def test_a_record_that_is_there_and_differs_ends_it_and_nothing_is_published(scenario: Path) -> None:
    lose(scenario, "DELETE FROM records WHERE seq < 5")
    lose(scenario, "UPDATE records SET value = CAST(replace(value, '\"coverage\":1.0', '\"coverage\":0.9') AS BLOB)")
    before = held(scenario)
    done = republish(scenario)
    assert (done.code, "was published and would now differ" in done.problem) == (2, True), done.problem
    assert held(scenario) == before


@pytest.mark.parametrize("statement", ["seq > (SELECT max(seq) - 20 FROM outputs WHERE topic = ?1)", "TRUE"])
def test_an_account_that_ends_before_its_ledger_says_that_its_sums_may_be_too_small(
    scenario: Path, statement: str
) -> None:
    """On Kafka an unclean election takes the newest records away, and an account made anew has none."""
    words = ("account", "--store", f"{scenario}/store", "--json")
    assert run(*words).problem == ""
    whole = json.loads(run(*words, "--tight").out)["sites"]["dbh"]["last"]["window_end"]
    with closing(sqlite3.connect(scenario / "store" / "store.sqlite")) as connection, connection:
        connection.execute(f"DELETE FROM outputs WHERE topic = ?1 AND {statement}", (LEAKAGE,))
    assert f"the ledger goes on to {whole}: records are missing" in run(*words).problem
    done = run(*words, "--tight")
    assert (done.problem, json.loads(done.out)["sites"]["dbh"]["last"]["window_end"]) == ("", whole)


def test_a_store_on_which_several_mechanism_versions_have_worked_is_refused_and_nothing_is_published(
    scenario: Path,
) -> None:
    """An entry does not show the noise, so equal entries would not prove equal records."""
    lose(scenario, LOSSES["all"])
    with closing(sqlite3.connect(scenario / "store" / "store.sqlite")) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('mechanisms/another', '')")
    done = republish(scenario)
    assert (done.code, "another" in done.problem, "which of them made the entries" in done.problem) == (
        2,
        True,
        True,
    )
    assert held(scenario)["board"] == []
