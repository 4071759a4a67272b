"""``recover``: what prevents a run, every remedy, and the remedies that change something."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.operations.recovery.mark import rebuild_mark
from connectors.operations.recovery.store import store_obstacles
from connectors.secrets import private_files
from connectors.storage.embedded.reader import read_outbox
from connectors.storage.embedded.rollback_mark import mark_path
from connectors.storage.embedded.runner import embedded
from stream.errors import AuditError, DataError, FinalityError, TacetError, UsageError
from stream.records import DAY, MINUTE, Heartbeat, Micros, ObservationBatch, Row
from stream.schemas import rfc3339
from tests.acceptance.command_line import run
from tests.support.small_building import COUNTS, SITE, SOURCES, access_point, building, messages, people, policy_text

POLICY = building(releases=COUNTS)
OTHER = building(releases=COUNTS.replace('"0.5"', '"0.4"'))
LOG = list(messages(people(hours=2, devices=3), POLICY))


def reached(message: ObservationBatch | Heartbeat) -> Micros:
    assert isinstance(message, Heartbeat)
    return message.watermark


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``scenario``, for all tests."""
    folder = tmp_path_factory.mktemp("made")
    key_files.create(folder / "key", laboratory=False)
    for part, name in ((LOG[: len(LOG) // 2], "half"), (LOG[len(LOG) // 2 :], "heads")):
        with embedded(POLICY, folder / "key", folder / "store") as runner:
            for message in part:
                runner.process(message, durable=False)
        if name == "half":
            shutil.copytree(folder / "store", folder / "half")
            note_heads(folder, "early.json")
    note_heads(folder, "heads.json")
    return folder


@pytest.fixture
def scenario(made: Path, tmp_path: Path) -> Path:
    """Return a folder with a production key and a store that has released, and ``half`` its earlier copy."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def note_heads(scenario: Path, name: str) -> None:
    (scenario / name).write_text(run("audit", "verify", "--store", scenario / "store", "--json").out)


def set_back(scenario: Path) -> None:
    shutil.rmtree(scenario / "store")
    shutil.copytree(scenario / "half", scenario / "store")


def found(scenario: Path, policy: Any = POLICY) -> dict[str, list[str]]:
    return {
        each.what: [way.do for way in each.remedies]
        for each in store_obstacles(scenario / "store", scenario / "key", policy)
    }


def test_a_closed_site_is_named_and_continues_when_it_is_reopened(scenario: Any) -> None:
    small = building(releases=COUNTS, site="max_devices = 1")
    (scenario / "policy.toml").write_text(policy_text(COUNTS, site="max_devices = 1"))
    begin = reached(LOG[-1])
    rows = tuple(Row(f"{n:016x}", access_point("a"), begin + 1) for n in range(2))
    with embedded(small, scenario / "key", scenario / "store", accept_policy=True) as runner:
        runner.process(ObservationBatch(SITE, SOURCES[0], 1, 1000, rows))
    state = json.loads(run("status", "--store", scenario / "store", "--json").out)
    assert state["partitions"][0]["sites"][SITE]["closed"]
    words = ("--store", scenario / "store", "--key-file", scenario / "key", "--policy", scenario / "policy.toml")
    assert f"--policy {scenario / 'policy.toml'} --reopen {SITE}" in run("recover", *words).out
    what, ways = only(scenario, small)
    assert (what, ways[0].split("'")[1].split()[-2:]) == (
        f"site {SITE}: is suspended; it would have held more devices than max_devices", ["--reopen", SITE]
    )  # fmt: skip

    given = ("--store", scenario / "store", "--key-file", scenario / "key", "--policy", scenario / "policy.toml")
    unknown = run("recover", *given, "--reopen", "elsewhere")
    assert (unknown.code, "must name a site of the policy (dbh), got 'elsewhere'" in unknown.problem) == (2, True)
    assert run("recover", *given, "--reopen", SITE).out == "nothing prevents a run from continuing\n"
    twice = run("recover", *given, "--reopen", SITE)
    assert (twice.code, "must be one that has shut" in twice.problem) == (2, True)
    with embedded(small, scenario / "key", scenario / "store") as runner:
        before = len(read_outbox(scenario / "store", "board", 0))
        for source in SOURCES:
            runner.process(Heartbeat(SITE, source, 1, begin + 2 * 15 * MINUTE, 0), durable=False)
    shares = [orjson.loads(value)["coverage"] for _, value in read_outbox(scenario / "store", "board", 0)[before:]]
    assert shares
    assert set(shares) == {0.0}


def only(scenario: Path, policy: Any = POLICY) -> tuple[str, list[str]]:
    ((what, ways),) = found(scenario, policy).items()
    return what, ways


def test_nothing_is_found_where_nothing_is_wrong(scenario: Any) -> None:
    assert found(scenario) == {}
    done = run("recover", "--store", scenario / "store", "--key-file", scenario / "key", "--json")
    assert json.loads(done.out) == {"ok": True, "findings": []}


def test_a_store_that_was_set_back_has_three_remedies_with_prices(scenario: Any) -> None:
    set_back(scenario)
    what, ways = only(scenario)
    assert f"site {SITE}: the store was set back; it knows of " in what
    assert [way.split()[0] for way in ways] == ["put", "'tacet", "begin"]
    done = run("recover", "--store", scenario / "store", "--key-file", scenario / "key")
    assert done.out.count("price: ") == 3
    assert done.code == 0


def test_the_same_observations_lead_a_store_that_was_set_back_to_where_it_was(scenario: Any) -> None:
    before = read_outbox(scenario / "store", "board", 0)
    set_back(scenario)
    with embedded(POLICY, scenario / "key", scenario / "store") as runner:
        for message in LOG[len(LOG) // 2 :]:
            runner.process(message, durable=False)
    assert found(scenario) == {}
    assert read_outbox(scenario / "store", "board", 0) == before


def test_a_store_that_was_set_back_names_recover_when_it_stops(scenario: Any) -> None:
    set_back(scenario)

    def start_and_stop() -> None:
        with embedded(POLICY, scenario / "key", scenario / "store"):
            pass

    with pytest.raises(FinalityError, match=r"set back.*'tacet recover' lists the remedies"):
        start_and_stop()


def test_a_store_that_contradicts_the_mark_has_no_remedy_that_forks(scenario: Any) -> None:
    document = json.loads(mark_path(scenario / "key").read_text())
    ((_, sites),) = document["stores"].items()
    sites[SITE][1] = "0" * 64
    private_files.replace_file(mark_path(scenario / "key"), document)
    what, ways = only(scenario)
    assert "must be the one that the mark knows: the store is not the one that released" in what
    assert [way.split()[0] for way in ways] == ["put", "begin"]


def test_a_lost_store_is_named_with_the_entries_of_the_mark(scenario: Any) -> None:
    shutil.rmtree(scenario / "store")
    what, ways = only(scenario)
    assert "there is no store; the mark beside the key knows of " in what
    assert [way.split()[0] for way in ways] == ["put", "begin"]


def test_missing_entries_are_named(scenario: Any) -> None:
    with closing(sqlite3.connect(scenario / "store" / "store.sqlite", isolation_level=None)) as connection:
        connection.execute("DELETE FROM outputs WHERE topic = 'tacet.audit.v1' AND id = 'dbh/9'")
    assert any("entry 9 must be there" in what for what in found(scenario))


def test_another_policy_is_named_with_both_versions(scenario: Any) -> None:
    what, ways = only(scenario, OTHER)
    assert f"continues under policy {POLICY.version}, which it keeps; the given policy is {OTHER.version}" in what
    assert "'tacet run --accept-policy'" in ways


def test_a_key_of_another_store_is_named(scenario: Any) -> None:
    key_files.create(scenario / "key2", laboratory=False)
    with embedded(POLICY, scenario / "key2", scenario / "store2"):
        pass
    (found,) = store_obstacles(scenario / "store", scenario / "key2", POLICY)
    assert "belongs to store" in found.what
    assert [remedy.do.split()[0] for remedy in found.remedies] == ["use", "if", "begin"]


@pytest.mark.parametrize("laboratory", [False, True])
def test_a_key_that_was_never_used_is_no_key_of_a_store_that_has_released(scenario: Any, laboratory: bool) -> None:
    key_files.create(scenario / "unused", laboratory=laboratory)
    (found,) = store_obstacles(scenario / "store", scenario / "unused", POLICY)
    assert found.what == f"{scenario / 'unused'}: is not the key with which store {scenario / 'store'} was begun"
    assert f"'tacet key retire --store {scenario / 'store'} --lost" in found.remedies[1].do


# --- files that cannot be read --------------------------------------------------------------------------


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def starts(scenario: Path) -> str:
    """Return what a start on the store says, "" when nothing keeps it from going on."""
    try:
        with embedded(POLICY, scenario / "key", scenario / "store"):
            return ""
    except TacetError as problem:
        return str(problem)


@pytest.mark.parametrize(
    ("damage", "first_words"),
    [
        (lambda g: (g / "store/store.sqlite").write_bytes(bytes(range(256)) * 99), ["put", "begin"]),
        (lambda g: os.truncate(g / "store/store.sqlite", 40_000), ["put", "begin"]),
        (lambda g: (g / "store/private/board.sqlite").write_bytes(bytes(range(256)) * 99), ["put", "move"]),
        (lambda g: change(g / "store/private/board.sqlite", "UPDATE records SET value = x'7b7d'"), ["put", "move"]),
        (lambda g: (g / "store").chmod(0o755), ["'chmod"]),
        (lambda g: (g / "store/private").chmod(0o750), ["'chmod"]),
        (lambda g: (g / "key").unlink(), ["put", "if", "begin"]),
        (lambda g: (g / "key").write_text("{"), ["put", "if", "begin"]),
        (lambda g: (g / "key").chmod(0o644), ["put", "if", "begin"]),
        (lambda g: mark_path(g / "key").write_text("{"), ["put", "'tacet", "begin"]),
    ],
    ids=[
        "store",
        "store cut",
        "outbox",
        "another's outbox",
        "folder",
        "folder of outboxes",
        "no key",
        "key",
        "key open to all",
        "mark",
    ],
)
def test_whatever_prevents_a_start_has_remedies(scenario: Any, damage: Any, first_words: Any) -> None:
    assert starts(scenario) == ""
    for shared in (*(scenario / "store").rglob("*-wal"), *(scenario / "store").rglob("*-shm")):
        shared.unlink()
    damage(scenario)
    assert starts(scenario)
    _, ways = only(scenario)
    assert [way.split()[0] for way in ways] == first_words


def test_an_unreadable_key_and_a_missing_store_are_both_named(scenario: Any) -> None:
    shutil.rmtree(scenario / "store")
    (scenario / "key").chmod(0o644)
    key, store = store_obstacles(scenario / "store", scenario / "key", POLICY)
    assert "readable by its owner only" in key.what
    assert store.what == f"{scenario / 'store'}: there is no store"
    assert [remedy.do.split()[0] for remedy in store.remedies] == ["put", "begin"]


def test_a_start_that_finds_no_store_leaves_none_that_hides_the_loss(scenario: Any) -> None:
    shutil.rmtree(scenario / "store")
    assert "a new ledger needs a new key; 'tacet recover' lists the remedies" in starts(scenario)
    what, ways = only(scenario)
    assert "there is no store; the mark beside the key knows of " in what
    assert [way.split()[0] for way in ways] == ["put", "begin"]


def test_the_same_observations_are_no_remedy_once_the_key_of_their_day_is_destroyed(scenario: Any) -> None:
    set_back(scenario)
    assert len(only(scenario)[1]) == 3
    key_files.FileKeys(scenario / "key").forget_before(reached(LOG[-1]) // DAY + 2)
    assert "must contain the requested day" in starts_with(scenario, LOG[len(LOG) // 2 :])
    assert [way.split()[0] for way in only(scenario)[1]] == ["put", "begin"]


def starts_with(scenario: Path, log: list[ObservationBatch | Heartbeat]) -> str:
    try:
        with embedded(POLICY, scenario / "key", scenario / "store") as runner:
            for message in log:
                runner.process(message, durable=False)
    except TacetError as problem:
        return str(problem)
    return ""


def test_a_clock_that_is_behind_the_store_has_remedies(scenario: Any) -> None:
    now = reached(LOG[-1])
    assert store_obstacles(scenario / "store", scenario / "key", POLICY, now) == []
    (finding,) = store_obstacles(scenario / "store", scenario / "key", POLICY, now - MINUTE)
    assert finding.what.startswith(f"clock: is at {rfc3339(now - MINUTE)}, but site {SITE} has reached ")
    assert [way.do.split()[0] for way in finding.remedies] == ["set", "wait", "begin"]


# --- a mark that is gone --------------------------------------------------------------------------------


def test_a_missing_mark_is_rebuilt_from_recorded_heads(scenario: Any) -> None:
    kept = mark_path(scenario / "key").read_bytes()
    mark_path(scenario / "key").unlink()
    assert "is missing" in only(scenario)[0]
    done = run(
        "recover", "--store", scenario / "store", "--key-file", scenario / "key", "--heads", scenario / "heads.json"
    )
    assert (done.code, done.out) == (0, "nothing prevents a run from continuing\n")
    assert json.loads(mark_path(scenario / "key").read_bytes()) == json.loads(kept)
    with embedded(POLICY, scenario / "key", scenario / "store"):
        pass


def test_a_damaged_mark_is_rebuilt_like_a_missing_one(scenario: Any) -> None:
    kept = mark_path(scenario / "key").read_bytes()
    mark_path(scenario / "key").write_bytes(kept[:30])
    assert "is damaged, so it is unknown whether the store was set back" in only(scenario)[0]
    rebuild_mark(scenario / "store", scenario / "key", scenario / "heads.json")
    assert json.loads(mark_path(scenario / "key").read_bytes()) == json.loads(kept)


def test_older_heads_suffice_if_the_store_contains_them(scenario: Any) -> None:
    kept = mark_path(scenario / "key").read_bytes()
    mark_path(scenario / "key").unlink()
    rebuild_mark(scenario / "store", scenario / "key", scenario / "early.json")
    assert json.loads(mark_path(scenario / "key").read_bytes()) == json.loads(kept)


def test_a_store_that_was_set_back_does_not_contain_newer_heads(scenario: Any) -> None:
    set_back(scenario)
    mark_path(scenario / "key").unlink()
    with pytest.raises(AuditError, match="is missing; the mark knows of"):
        rebuild_mark(scenario / "store", scenario / "key", scenario / "heads.json")
    assert not mark_path(scenario / "key").exists()


def test_an_existing_mark_is_never_overwritten(scenario: Any) -> None:
    before = mark_path(scenario / "key").read_bytes()
    with pytest.raises(UsageError, match="whose mark is gone"):
        rebuild_mark(scenario / "store", scenario / "key", scenario / "heads.json")
    assert mark_path(scenario / "key").read_bytes() == before


def test_heads_must_name_every_site_of_the_store(scenario: Any) -> None:
    mark_path(scenario / "key").unlink()
    (scenario / "none.json").write_bytes(orjson.dumps({"sites": {}}))
    with pytest.raises(UsageError, match="must have the head of every site of the store, lacks dbh"):
        rebuild_mark(scenario / "store", scenario / "key", scenario / "none.json")


@pytest.mark.parametrize(
    ("content", "error", "rule"),
    [
        (None, UsageError, r"heads of today: cannot be read \(No such file or directory\)"),
        ("{", DataError, "heads of today: must be what 'tacet audit verify --json' printed"),
        ("[]", DataError, "must be what"),
        ("{}", DataError, "must be what"),
        ('{"sites": []}', DataError, "must be what"),
        ('{"sites": {"dbh": {"head": "ab"}}}', DataError, "must be what"),
        ('{"sites": {"dbh": {"sequence": "x", "head": "ab"}}}', DataError, "must be what"),
    ],
)
def test_heads_that_are_not_those_of_a_verification_rebuild_nothing(
    scenario: Any, content: str | None, error: type[TacetError], rule: str
) -> None:
    mark_path(scenario / "key").unlink()
    if content is not None:
        (scenario / "heads of today").write_text(content)
    with pytest.raises(error, match=rule):
        rebuild_mark(scenario / "store", scenario / "key", scenario / "heads of today")
    assert not mark_path(scenario / "key").exists()


def test_the_verb_needs_the_key_for_heads(scenario: Any) -> None:
    done = run("recover", "--store", scenario / "store", "--heads", scenario / "heads.json")
    assert (done.code, "--heads needs --key-file" in done.problem) == (2, True)
