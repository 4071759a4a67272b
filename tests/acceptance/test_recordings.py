"""Recordings on the command line: required range, order of rows, and what ends a command with 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from connectors.keys import key_files
from tests.acceptance.command_line import OBSERVATIONS, POLICY, TICKS
from tests.acceptance.command_line import here as tacet

RANGE = ("--from", TICKS[0], "--to", TICKS[-1])


class Scenario(NamedTuple):
    """A policy, keys of both kinds, and a recording in two orders."""

    folder: Path
    policy: Path
    laboratory: Path
    production: Path
    rows: Path
    newest_first: Path

    def call(self, verb: str, *words: Any, key: Path | None = None, code: int = 0) -> Any:
        """Run a verb with policy and key."""
        return tacet(verb, *words, "--policy", self.policy, "--key-file", key or self.laboratory, code=code)


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    names = ("policy.toml", "laboratory", "production", "rows.csv", "newest_first.csv")
    made = Scenario(tmp_path, *(tmp_path / name for name in names))
    made.policy.write_text(POLICY)
    key_files.create(made.laboratory, laboratory=True)
    key_files.create(made.production, laboratory=False)
    head, *rows = OBSERVATIONS.splitlines()
    made.rows.write_text(OBSERVATIONS)
    made.newest_first.write_text("\n".join([head, *reversed(rows)]) + "\n")
    return made


@pytest.mark.parametrize("verb", ["run", "ingest", "backfill"])
@pytest.mark.parametrize("missing", ["--from", "--to"])
def test_under_a_production_key_a_recording_needs_both_ends_of_its_range(
    scenario: Scenario, verb: str, missing: str
) -> None:
    store = scenario.folder / "store"
    given = [*RANGE]
    del given[given.index(missing) : given.index(missing) + 2]
    words = {
        "run": ("--observations", scenario.rows, "--store", store),
        "ingest": ("--observations", scenario.rows, "--kafka", "127.0.0.1:1"),
        "backfill": (scenario.rows, "--store", store),
    }[verb]
    done = scenario.call(verb, *words, *given, key=scenario.production, code=2)
    assert done.stderr.startswith(f"tacet: {missing}: must be given for a recording under a production key; ")
    assert not store.exists()


def test_a_newest_first_file_gives_the_bytes_of_the_sorted_one(scenario: Scenario) -> None:
    """Through replay, and through run under a production key of which there is a copy."""
    for verb, file in (("sorted", scenario.rows), ("newest", scenario.newest_first)):
        scenario.call("replay", file, "--out", scenario.folder / verb, "--include-restricted")
    names = sorted(path.relative_to(scenario.folder / "sorted") for path in (scenario.folder / "sorted").rglob("*.*"))
    assert len(names) == 6
    for path in names:
        assert (scenario.folder / "newest" / path).read_bytes() == (scenario.folder / "sorted" / path).read_bytes(), (
            path
        )
    for name, file in (("one", scenario.rows), ("two", scenario.newest_first)):
        scenario.call("run", "--observations", file, "--store", scenario.folder / name, *RANGE)
    records = [
        tacet("subscribe", "--store", scenario.folder / name, "--audience", "facilities", "--from-start", "--until-end",
              "--json").stdout
        for name in ("one", "two")
    ]  # fmt: skip
    assert records[0] == records[1]
    assert len(records[0].splitlines()) == 2 * len(TICKS)


def test_a_device_alone_makes_the_records_of_nobody(scenario: Scenario) -> None:
    """The release ids under a production key are those of the range, with rows and without any."""
    alone, nobody = scenario.folder / "alone.csv", scenario.folder / "nobody.csv"
    head, *_ = OBSERVATIONS.splitlines()
    nobody.write_text(head + "\n")
    alone.write_text(f"{head}\n2026-03-04T10:00:00Z,00:00:5e:00:53:01,02:00:00:00:0e:01,east\n")
    ids = []
    for name, file in (("all", scenario.rows), ("alone", alone), ("nobody", nobody)):
        key, store = scenario.folder / f"{name}.key", scenario.folder / f"{name}.store"
        key_files.create(key, laboratory=False)
        scenario.call("run", "--observations", file, "--store", store, *RANGE, key=key)
        lines = tacet(
            "subscribe", "--store", store, "--audience", "facilities", "--from-start", "--until-end", "--json"
        ).stdout.splitlines()
        ids.append([json.loads(line)["release_id"] for line in lines])
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 2 * len(TICKS)


def test_many_rows_at_unknown_access_points_end_a_command_with_3_and_are_told(scenario: Scenario) -> None:
    scenario.rows.write_text(OBSERVATIONS.replace("02:00:00:00:0e:01", "02:00:00:00:0e:77"))
    for verb, words in (
        ("replay", (scenario.rows, "--out", scenario.folder / "out")),
        ("run", ("--observations", scenario.rows, "--store", scenario.folder / "store")),
    ):
        done = scenario.call(verb, *words, code=3)
        assert done.stderr == "tacet: 2 of 5 good rows were at access points in no zone of the policy\n"
    assert (scenario.folder / "out" / "audit.jsonl").exists()


def test_a_replay_of_which_nothing_comes_leaves_no_folder(scenario: Scenario) -> None:
    head, *_ = OBSERVATIONS.splitlines()
    out = scenario.folder / "out"
    scenario.rows.write_text(f"{head}\nyesterday,x,y,z\n")
    done = scenario.call("replay", scenario.rows, "--out", out, code=3)
    assert done.stderr.startswith("tacet: the file contains no window; nothing was written: 1 bad row was left")
    assert not out.exists()
    scenario.rows.write_text(f"{head}\n")
    done = scenario.call("replay", scenario.rows, "--out", out, code=3)
    assert done.stderr == "tacet: the file contains no window; nothing was written\n"
    assert not out.exists()


@pytest.mark.parametrize("there", [True, False], ids=["empty folder", "no folder"])
def test_a_replay_that_fails_while_it_writes_leaves_things_as_they_were(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    from click.testing import CliRunner

    from connectors.cli.main import tacet as verbs
    from connectors.sources.recordings import replay

    out = scenario.folder / "out"
    if there:
        out.mkdir(mode=0o700)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(replay, "_write_csv", full)
    words = ["replay", scenario.rows, "--policy", scenario.policy, "--key-file", scenario.laboratory, "--out", out]
    done = CliRunner().invoke(verbs, [*map(str, words), "--include-restricted"])
    assert isinstance(done.exception, OSError)
    assert out.exists() == there
    assert not there or not list(out.iterdir())
