"""The command line's public contract: verbs, files, fields and exit codes."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet as verbs
from tests.acceptance.command_line import OBSERVATIONS, POLICY, PRESENT, TICKS, TIMEOUT, command, pin, together
from tests.acceptance.command_line import here as tacet
from tests.support.verb_tree import all_commands, subcommands

COUNT_FIELDS = [
    "v", "release_id", "site", "audience", "release", "window_start", "window_end", "values", "levels", "released",
    "reason", "mechanism", "epsilon", "spend", "noise_scale", "half_width_95", "half_width_kind",
    "levels_half_width_95", "coverage", "policy_version", "laboratory",
]  # fmt: skip
ATTRIBUTE_FIELDS = [
    "v", "release_id", "site", "audience", "release", "window_start", "window_end", "day", "zone", "attribute",
    "released", "reason", "mechanism", "epsilon", "spend", "coverage", "policy_version", "laboratory",
]  # fmt: skip


class World(NamedTuple):
    """Two tiny buildings, written by hand, through replay and through run."""

    folder: Path
    policy: Path
    key: Path
    observations: Path
    out: Path
    store: Path


class Day(NamedTuple):
    """A simulated building's day, through replay and through run."""

    observations: Path
    truth: Path
    policy: Path
    out: Path
    store: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("world")
    made = World(folder, *(folder / name for name in ("policy.toml", "key", "observations.csv", "out", "store")))
    made.policy.write_text(POLICY)
    made.observations.write_text(OBSERVATIONS)
    tacet("key", "create", made.key, "--laboratory")
    pin(made.key)
    together(
        ["replay", made.observations, "--policy", made.policy, "--key-file", made.key, "--out", made.out,
         "--include-restricted"],
        ["run", "--observations", made.observations, "--policy", made.policy, "--key-file", made.key,
         "--store", made.store],
    )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory, world: World) -> Day:
    folder = tmp_path_factory.mktemp("day")
    made = Day(*(folder / name for name in ("observations.csv", "truth.csv", "policy.toml", "out", "store")))
    tacet(
        "simulate", "--days", "1", "--seed", "5", "--zones", "8", "--scale", "0.5", "--out", made.observations,
        "--truth", made.truth, "--policy-out", made.policy,
    )  # fmt: skip
    made.policy.write_text(made.policy.read_text().replace('tick = "5min"', 'tick = "30min"'))
    released = (made.observations, "--policy", made.policy, "--key-file", world.key)
    tacet("replay", *released, "--out", made.out)
    tacet("run", "--observations", *released, "--store", made.store)
    return made


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- keys ---------------------------------------------------------------------------------------------


def test_key_file_is_for_its_owner_only(world: World) -> None:
    assert mode(world.key) == 0o600


def test_key_create_never_writes_over_a_file(world: World) -> None:
    before = world.key.read_bytes()
    assert "never overwritten" in tacet("key", "create", world.key, code=2).stderr
    assert world.key.read_bytes() == before


def test_key_that_others_can_read_is_refused_without_a_word_of_it(world: World, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(world.key.read_bytes())
    key.chmod(0o640)
    done = replay(world, key=key, out=tmp_path / "out", code=2)
    assert "0640" in done.stderr
    assert not any(secret in done.stderr + done.stdout for secret in secrets(world.key))
    assert not (tmp_path / "out").exists()


def test_replay_and_release_refuse_a_production_key(world: World, tmp_path: Path) -> None:
    key = tmp_path / "key"
    tacet("key", "create", key)
    assert "laboratory" in replay(world, key=key, out=tmp_path / "out", code=2).stderr
    counts = tmp_path / "counts.csv"
    counts.write_text("time,zone,count\n2026-03-02T10:00:00Z,a,1\n")
    done = tacet(
        "release", counts, "--mechanism", "laplace", "--epsilon", "1", "--key-file", key,
        "--out", tmp_path / "released.csv", code=2,
    )  # fmt: skip
    assert "laboratory" in done.stderr
    assert not (tmp_path / "released.csv").exists()


def secrets(key: Path) -> list[str]:
    document = json.loads(key.read_text())
    return [document["pseudonym"], document["audit"], document["noise"]["root"]]


def replay(world: World, *, out: Path, code: int, key: Path | None = None, observations: Path | None = None) -> Any:
    return tacet(
        "replay", observations or world.observations, "--policy", world.policy, "--key-file", key or world.key,
        "--out", out, "--json", code=code,
    )  # fmt: skip


# --- simulate -----------------------------------------------------------------------------------------


def test_simulate_writes_ordered_observations_with_their_columns(day: Day) -> None:
    with day.observations.open() as file:
        assert file.readline() == "time,device,access_point,site\n"
    made = rows(day.observations)
    assert len(made) > 500
    times = [row["time"] for row in made]
    assert times == sorted(times)
    assert all(time.endswith("Z") for time in times)


def test_simulate_writes_the_truth_and_a_policy_of_the_same_building(day: Day) -> None:
    report = json.loads(tacet("policy", "check", day.policy, "--json").stdout)
    assert report["valid"] is True
    devices = {row["device"] for row in rows(day.truth)}
    assert {row["device"] for row in rows(day.observations)} <= devices
    assert list(rows(day.truth)[0]) == ["device", "zone", "start", "end", "class"]


def test_simulate_gives_the_same_rows_in_every_format(tmp_path: Path) -> None:
    files = {form: tmp_path / f"observations.{form}" for form in ("csv", "jsonl", "snmptrapd")}
    for form, path in files.items():
        tacet("simulate", "--zones", "4", "--scale", "0.1", "--seed", "3", "--format", form, "--out", path)
    table = rows(files["csv"])
    assert objects(files["jsonl"]) == table
    assert len(files["snmptrapd"].read_text().splitlines()) == len(table) > 0


# --- replay -------------------------------------------------------------------------------------------


def test_replay_lays_out_its_files_for_the_owner_only(world: World) -> None:
    files = {path.relative_to(world.out).as_posix() for path in world.out.rglob("*") if path.is_file()}
    assert files == {
        "private/facilities/occupancy.jsonl", "private/public/occupancy.jsonl", "leakage.jsonl", "audit.jsonl",
        "presence.csv", "occupancy.csv",
    }  # fmt: skip
    folders = [world.out, *(path for path in world.out.rglob("*") if path.is_dir())]
    assert {mode(path) for path in folders} == {0o700}
    assert {mode(world.out / path) for path in files} == {0o600}


def test_replay_writes_restricted_files_only_when_asked(day: Day) -> None:
    assert {path.name for path in day.out.iterdir()} == {"private", "leakage.jsonl", "audit.jsonl"}


def test_every_zone_has_its_count_at_every_tick(world: World) -> None:
    table = {
        (row["window_end"], row["site"], row["zone"]): int(row["count"]) for row in rows(world.out / "occupancy.csv")
    }
    wanted = {
        (tick, site, zone): dict(enumerate(counts)).get(place, 0)
        for (site, zone), counts in PRESENT.items()
        for place, tick in enumerate(TICKS)
    }
    assert table == wanted


def test_stays_are_joined_tuples_under_pseudonyms(world: World) -> None:
    stays = rows(world.out / "presence.csv")
    assert list(stays[0]) == ["site", "device", "zone", "start", "end"]
    day = "2026-03-02T"
    assert sorted((s["site"], s["zone"], s["start"], s["end"]) for s in stays) == [
        ("east", "hall", f"{day}10:02:00Z", f"{day}10:08:30Z"),
        ("east", "hall", f"{day}10:04:00Z", f"{day}10:14:00Z"),
        ("east", "loft", f"{day}10:08:30Z", f"{day}10:18:30Z"),
        ("west", "hall", f"{day}10:07:00Z", f"{day}10:17:00Z"),
        ("west", "hall", f"{day}10:31:00Z", f"{day}10:41:00Z"),
    ]
    assert not any("5e" in stay["device"] and ":" in stay["device"] for stay in stays)


def test_records_come_by_window_then_site(world: World) -> None:
    records = objects(world.out / "private/facilities/occupancy.jsonl")
    assert [(r["window_end"], r["site"]) for r in records] == [(t, s) for t in TICKS for s in ("east", "west")]
    for name in ("leakage.jsonl", "audit.jsonl"):
        order = [(r["window_end"], r["site"]) for r in objects(world.out / name)]
        assert order == sorted(order)


def test_replaying_again_gives_the_same_bytes(world: World, tmp_path: Path) -> None:
    report = json.loads(replay(world, out=tmp_path / "out", code=0).stdout)
    assert report["windows"] == 2 * len(TICKS)
    for name in (
        "private/facilities/occupancy.jsonl",
        "private/public/occupancy.jsonl",
        "audit.jsonl",
        "leakage.jsonl",
    ):
        assert (tmp_path / "out" / name).read_bytes() == (world.out / name).read_bytes()


def test_replay_refuses_a_folder_in_use(world: World) -> None:
    assert "new or empty" in replay(world, out=world.out, code=2).stderr


def test_bad_rows_are_named_by_line_and_rule_never_by_value(world: World, tmp_path: Path) -> None:
    file = tmp_path / "observations.csv"
    secret = "00:00:5e:00:53:7b"
    file.write_text(
        f"{OBSERVATIONS}"
        f"yesterday-secret,{secret},02:00:00:00:0e:01,east\n"
        "2026-03-02T10:32:00Z,secret-device,02:00:00:00:0e:01,east\n"
        f"2026-03-02T10:32:00Z,{secret},secret-radio,east\n"
        f"2026-03-02T10:32:00Z,{secret},02:00:00:00:0e:01,secret-site\n"
    )
    done = replay(world, out=tmp_path / "out", observations=file, code=3)
    for place in ("line 7: time must", "line 8: device must", "line 9: access_point must", "line 10: site must"):
        assert place in done.stderr
    assert "secret" not in done.stderr + done.stdout
    assert secret not in done.stderr + done.stdout
    assert "5e:00:53" not in done.stderr + done.stdout
    assert json.loads(done.stdout)["tally"]["bad"] == 4
    name = "private/facilities/occupancy.jsonl"
    assert (tmp_path / "out" / name).read_bytes() == (world.out / name).read_bytes()


# --- released records ---------------------------------------------------------------------------------


def test_count_record_has_its_fields_and_no_others(world: World) -> None:
    record = objects(world.out / "private/facilities/occupancy.jsonl")[0]
    assert list(record) == COUNT_FIELDS
    assert record["release_id"] == f"east/occupancy/facilities/{TICKS[0]}"
    assert (record["window_start"], record["window_end"]) == ("2026-03-02T10:00:00Z", TICKS[0])
    assert set(record["values"]) == set(record["noise_scale"]) == set(record["half_width_95"]) == {"hall", "loft"}
    assert all(type(value) is int for value in record["values"].values())
    assert set(record["levels"]) == {"floor", "building"}
    assert set(record["levels"]["floor"]) == {"0", "1"}
    assert (record["epsilon"], record["spend"], record["coverage"]) == ("2", "2", 1.0)
    assert (record["released"], record["reason"], record["half_width_kind"]) == (True, None, "noise")
    assert record["laboratory"] is True


def test_a_window_beyond_its_budget_is_refused_in_the_same_shape(world: World) -> None:
    records = [r for r in objects(world.out / "private/public/occupancy.jsonl") if r["site"] == "east"]
    assert [r["released"] for r in records] == [True] * 4 + [False] * 4
    refused = records[4]
    assert list(refused) == COUNT_FIELDS
    assert (refused["values"], refused["spend"], refused["reason"]) == (None, "0", "budget")


def test_attribute_record_has_its_fields_and_a_value_only_when_released(day: Day) -> None:
    records = objects(day.out / "private/facilities/office-day.jsonl")
    assert {r["released"] for r in records} == {True, False}
    for record in records:
        fields = [f for f in record if f != "value"]
        assert fields == ATTRIBUTE_FIELDS
        assert ("value" in record) == record["released"]
        parts = (record["site"], record["release"], record["audience"], record["day"], record["zone"])
        assert record["release_id"] == "/".join((*parts, record["attribute"]))


# --- run, subscribe, account, status ------------------------------------------------------------------


def test_run_and_subscribe_give_the_lines_of_replay(day: Day) -> None:
    counts = {"facilities": "occupancy", "public": "floors"}
    wanted = [(audience, release) for audience in counts for release in (counts[audience], "office-day")]
    span = ("--from-start", "--until-end", "--json")
    printed = [
        tacet("subscribe", "--store", day.store, "--audience", audience, "--release", release, *span).stdout
        for audience, release in wanted
    ]
    for (audience, release), lines in zip(wanted, printed, strict=True):
        assert lines == (day.out / "private" / audience / f"{release}.jsonl").read_text(), (audience, release)
    assert printed[0]


def test_subscribe_after_a_release_gives_what_came_behind_it(day: Day) -> None:
    records = (day.out / "private/public/floors.jsonl").read_text().splitlines(keepends=True)
    last = json.loads(records[-4])["release_id"]
    done = tacet(
        "subscribe", "--store", day.store, "--audience", "public", "--release", "floors", "--after", last,
        "--until-end", "--json",
    )  # fmt: skip
    assert done.stdout == "".join(records[-3:])


def test_subscribe_after_something_unknown_is_wrong_usage(world: World) -> None:
    done = tacet(
        "subscribe", "--store", world.store, "--audience", "public", "--after", "east/never", "--until-end", code=2
    )
    assert "--after" in done.stderr


def test_subscribe_refuses_a_folder_without_a_store_and_an_audience_that_has_none(world: World, tmp_path: Path) -> None:
    for store, audience, said in (
        (tmp_path, "public", f"{tmp_path}: must be a store made by 'tacet run'"),
        (world.store, "nosuch", "audience nosuch: must be an audience of this store"),
    ):
        for more in ((), ("--until-end",)):
            done = tacet("subscribe", "--store", store, "--audience", audience, "--from-start", *more, code=2)
            assert said in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_subscribe_says_so_when_nothing_was_there(world: World) -> None:
    shared = ("subscribe", "--store", world.store, "--audience", "public", "--until-end")
    done = tacet(*shared, "--from-start", "--release", "nosuch")
    assert done.stderr == "tacet: no release 'nosuch' has been published for audience 'public' yet\n"
    assert "starts and ends at the present" in tacet(*shared).stderr
    assert tacet(*shared, "--from-start").stderr == ""


def test_subscribe_does_not_wait_for_ever_behind_something_unknown(world: World) -> None:
    done = tacet("subscribe", "--store", world.store, "--audience", "public", "--after", "east/never", code=2)
    assert "--after: must be a release id" in done.stderr


def test_an_audience_may_be_followed_before_its_first_release(world: World, tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("time,device,access_point,site\n")
    tacet(
        "run", "--observations", tmp_path / "none.csv", "--policy", world.policy, "--key-file", world.key,
        "--store", tmp_path / "store",
    )  # fmt: skip
    done = tacet(
        "subscribe", "--store", tmp_path / "store", "--audience", "public", "--from-start", "--until-end", "--json"
    )
    assert (done.stdout, done.stderr) == ("", "tacet: no release has been published for audience 'public' yet\n")


GARBAGE = b"secret-device " * 1000


@pytest.mark.parametrize(
    ("verb", "file", "content"),
    [
        ("run", "store.sqlite", GARBAGE),
        ("run", "private/public.sqlite", GARBAGE),
        ("status", "store.sqlite", GARBAGE),
        ("status", "store.sqlite", b""),
        ("account", "store.sqlite", GARBAGE),
        ("account", "store.sqlite", b""),
        ("subscribe", "private/public.sqlite", GARBAGE),
    ],
)
def test_a_damaged_file_of_a_store_is_told_in_one_line(
    world: World, tmp_path: Path, verb: str, file: str, content: bytes
) -> None:
    shutil.copytree(world.store, tmp_path / "store")
    shutil.copy(world.key, tmp_path / "key")
    (tmp_path / "store" / file).write_bytes(content)
    words = {
        "run": ("run", "--observations", world.observations, "--policy", world.policy, "--key-file", tmp_path / "key"),
        "subscribe": ("subscribe", "--audience", "public", "--from-start", "--until-end"),
    }.get(verb, (verb,))
    done = tacet(*words, "--store", tmp_path / "store", code=1)
    assert done.stderr.startswith(f"tacet: {tmp_path / 'store' / file}: must be a complete, writable file of a store")
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


def test_subscribe_without_json_prints_a_line_a_release(world: World) -> None:
    done = tacet("subscribe", "--store", world.store, "--audience", "public", "--from-start", "--until-end")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(TICKS)
    assert "not released: budget" in lines[-1]


def test_account_is_one_object_with_every_reader_and_unit(world: World) -> None:
    report = json.loads(tacet("account", "--store", world.store, "--json").stdout)
    assert set(report["sites"]) == {"east", "west"}
    last = report["sites"]["east"]["last"]
    assert last["window_end"] == TICKS[-1]
    assert set(last["audiences"]) == {"facilities", "public"}
    assert last["audiences"]["facilities"]["presence_tuple"] == "2"
    assert last["audiences"]["facilities"]["device_total"] == "16"
    assert last["audiences"]["public"]["device_total"] == "2"
    assert last["coalition"]["device_total"] == "16"  # one noise chain: together they know what the finest does


def test_status_tells_where_each_site_stands_and_what_is_left(world: World) -> None:
    report = json.loads(tacet("status", "--store", world.store, "--policy", world.policy, "--json").stdout)
    (part,) = report["partitions"]
    assert (part["partition"], part["lag"]) == (0, 0)
    assert set(part["sites"]) == {"east", "west"}
    east = part["sites"]["east"]
    assert east["last_window"] == TICKS[-1]
    assert east["releases_left_today"] == {"occupancy/facilities": None, "occupancy/public": 0}


def test_run_again_goes_on_and_releases_nothing_twice(world: World) -> None:
    before = tacet("subscribe", "--store", world.store, "--audience", "public", "--from-start", "--until-end").stdout
    tacet(
        "run", "--observations", world.observations, "--policy", world.policy, "--key-file", world.key,
        "--store", world.store,
    )  # fmt: skip
    after = tacet("subscribe", "--store", world.store, "--audience", "public", "--from-start", "--until-end").stdout
    assert after == before


EAST = """\
time,device,access_point,site
2026-03-02T{0}:02:00Z,00:00:5e:00:53:01,02:00:00:00:0e:01,east
2026-03-02T{1}:04:00Z,00:00:5e:00:53:02,02:00:00:00:0e:01,east
"""


def run(world: World, store: Path, file: Path, *more: str, code: int = 0) -> Any:
    return tacet(
        "run", "--observations", file, "--policy", world.policy, "--key-file", world.key, "--store", store, *more,
        code=code,
    )  # fmt: skip


def test_run_tells_what_sensing_dropped_in_this_run(world: World, tmp_path: Path) -> None:
    file, late, store = tmp_path / "file.csv", tmp_path / "late.csv", tmp_path / "store"
    file.write_text(EAST.format("10", "12"))
    late.write_text(EAST.format("11", "11"))
    run(world, store, file)
    assert "2  rows dropped: repeated batch" in run(world, store, file).stdout
    done = run(world, store, late, "--json", code=3)
    assert json.loads(done.stdout) == {
        "rows": 2, "bad": 0, "unknown_access_points": 0, "outside": 0, "dropped": {"late": 2}, "stopped": False,
    }  # fmt: skip
    assert done.stderr == "tacet: 2 of 2 good rows were dropped: late\n"


def test_run_refuses_a_file_that_begins_before_the_last_one_and_goes_on_from_where_the_store_is(
    world: World, tmp_path: Path
) -> None:
    """Sensing would drop all of it as a restart that came before the one it knows, and say nothing."""
    noon, day, store = tmp_path / "noon.csv", tmp_path / "day.csv", tmp_path / "store"
    noon.write_text(EAST.format("11", "11"))
    day.write_text(EAST.format("10", "13"))
    run(world, store, noon)
    before = status(store)
    for _ in range(2):
        said = run(world, store, day, code=2).stderr
        assert said.startswith(f"tacet: {day}: begins before the last window of site east, so all of it would be")
        assert "'tacet backfill'" in said
        assert status(store) == before
    took_up = said.split("--from ")[1].split()[0]
    assert took_up == "2026-03-02T11:15:00Z"
    run(world, store, noon)
    assert "1  rows left out: outside --from and --to" in run(world, store, day, "--from", took_up).stdout
    assert status(store)["sites"]["east"]["last_window"] == "2026-03-02T13:10:00Z"
    coverage = {r["window_end"]: r["coverage"] for r in subscribed(store) if r["site"] == "east"}
    assert coverage["2026-03-02T11:15:00Z"] == coverage["2026-03-02T13:00:00Z"] == 1


def test_run_from_a_time_on_gives_what_replay_gives(world: World, tmp_path: Path) -> None:
    since = ("--from", "2026-03-02T10:10:00Z")
    run(world, tmp_path / "store", world.observations, *since)
    tacet(
        "replay",
        world.observations,
        "--policy",
        world.policy,
        "--key-file",
        world.key,
        "--out",
        tmp_path / "out",
        *since,
    )
    assert subscribed(tmp_path / "store") == objects(tmp_path / "out/private/facilities/occupancy.jsonl")


@pytest.mark.parametrize("end", ["10:05", "10:20", "10:40"])
def test_a_run_up_to_a_time_leaves_what_is_later_to_the_next(world: World, tmp_path: Path, end: str) -> None:
    """10:05 and 10:20 lie between rows; at 10:40 the last row has come, and somebody is still there."""
    upto = ("--to", f"2026-03-02T{end}:00Z")
    run(world, tmp_path / "parts", world.observations, *upto)
    ends = {r["window_end"] for r in subscribed(tmp_path / "parts")}
    assert max(ends) == upto[1]
    tacet(
        "replay", world.observations, "--policy", world.policy, "--key-file", world.key,
        "--out", tmp_path / "out", *upto,
    )  # fmt: skip
    assert subscribed(tmp_path / "parts") == objects(tmp_path / "out/private/facilities/occupancy.jsonl")
    run(world, tmp_path / "parts", world.observations)
    assert subscribed(tmp_path / "parts") == subscribed(world.store)


def test_a_run_up_to_a_time_after_the_recording_releases_the_empty_windows_too(world: World, tmp_path: Path) -> None:
    run(world, tmp_path / "store", world.observations, "--to", "2026-03-02T11:30:00Z")
    last = subscribed(tmp_path / "store")[-1]
    assert (last["window_end"], last["coverage"]) == ("2026-03-02T11:30:00Z", 1)


@pytest.mark.parametrize("wrong", ["no file", "other columns", "no communities", "port in use"])
def test_a_first_start_that_fails_leaves_a_production_key_to_any_store(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.delenv("TACET_SNMP_COMMUNITIES_FILE", raising=False)
    key, other = tmp_path / "key", tmp_path / "other.csv"
    tacet("key", "create", key)
    other.write_text("time,mac\n")
    shared = ("--policy", world.policy, "--key-file", key)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        if wrong == "port in use":
            (tmp_path / "communities").touch(mode=0o600)
            (tmp_path / "communities").write_text("one\n")
            monkeypatch.setenv("TACET_SNMP_COMMUNITIES_FILE", str(tmp_path / "communities"))
        words = {
            "no file": ("--observations", tmp_path / "none.csv", "--from", TICKS[0], "--to", TICKS[-1]),
            "other columns": ("--observations", other, "--from", TICKS[0], "--to", TICKS[-1]),
        }.get(wrong, ("--udp", port))  # fmt: skip
        tacet("run", *shared, "--store", tmp_path / "one", *words, code=1 if wrong == "port in use" else 2)
    bounds = ("--from", TICKS[0], "--to", TICKS[-1])
    tacet("run", *shared, "--store", tmp_path / "two", "--observations", world.observations, *bounds)


def status(store: Path) -> Any:
    return json.loads(tacet("status", "--store", store, "--json").stdout)["partitions"][0]


def subscribed(store: Path) -> list[dict[str, Any]]:
    words = ("subscribe", "--store", store, "--audience", "facilities", "--from-start", "--until-end", "--json")
    return sorted(map(json.loads, tacet(*words).stdout.splitlines()), key=lambda r: (r["window_end"], r["site"]))


@pytest.mark.parametrize("verb", ["replay", "simulate", "backfill"])
def test_ctrl_c_ends_a_verb_without_end_and_without_a_traceback(
    day: Day, world: World, tmp_path: Path, verb: str
) -> None:
    """Each has work without end: rows that never stop coming, or a day sent in real time."""
    rows = tmp_path / "rows.csv"
    os.mkfifo(rows)
    shared = ("--policy", day.policy, "--key-file", world.key)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as controller:
        controller.bind(("127.0.0.1", 0))
        controller.settimeout(TIMEOUT)
        udp = f"127.0.0.1:{controller.getsockname()[1]}"
        words = {
            "replay": ("replay", rows, *shared, "--out", tmp_path / "out"),
            "backfill": ("backfill", rows, *shared, "--store", day.store),
            "simulate": ("simulate", "--udp", udp, "--scale", "0.5", "--speed", "60"),
        }[verb]
        process = subprocess.Popen(command(words), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            if verb == "simulate":
                controller.recv(65_535)
            else:
                feed_until_read(rows, day.observations.read_bytes())
            process.send_signal(signal.SIGINT)
            _, report = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130
    assert "Traceback" not in report


def feed_until_read(pipe: Path, data: bytes) -> None:
    """Write into a pipe until somebody has read more than it holds; nobody is told that it ends."""
    patience = time.monotonic() + TIMEOUT
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # so that it has a writer for as long as the test runs
    written = 0
    while written <= 1 << 20:
        assert time.monotonic() < patience, "it was never read"
        try:
            written += os.write(handle, data[:4096])
        except BlockingIOError:
            time.sleep(0.01)


# --- release ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["laplace", "pegasus", "filter"])
def test_release_of_a_table_has_a_value_and_a_half_width_for_each_count(
    world: World, tmp_path: Path, mechanism: str
) -> None:
    counts, out = tmp_path / "counts.csv", tmp_path / "released.csv"
    times = [f"2026-03-02T{hour:02d}:{minute:02d}:00Z" for hour in (10, 11) for minute in range(0, 60, 5)]
    counts.write_text("time,zone,count\n" + "".join(f"{t},{zone},40\n" for t in times for zone in ("a", "b")))
    done = tacet(
        "release", counts, "--mechanism", mechanism, "--epsilon", "1", "--max-count", "100", "--key-file", world.key,
        "--out", out, "--json",
    )  # fmt: skip
    assert json.loads(done.stdout) == {
        "rows": 48, "zones": 2, "windows": 24, "bad": 0, "left_out": 0, "laboratory": True,
    }  # fmt: skip
    table = rows(out)
    assert list(table[0]) == ["time", "zone", "value", "half_width"]
    assert [(r["time"], r["zone"]) for r in table] == [(t, zone) for t in times for zone in ("a", "b")]
    values = [int(row["value"]) for row in table]
    if mechanism == "laplace":
        assert len(set(values)) > 1, "noise is 0 in all 48 places with probability 1e-16"
    # Noise of forty has probability e^-32 at most; the filter finds the level within two windows.
    assert all(abs(value - 40) < 40 for value in values[4:])
    widths = [float(row["half_width"]) for row in table]
    # A filter that has seen one level for an hour may have 96 % of its posterior at one number.
    assert all(width > 0 for width in (widths[:2] if mechanism == "filter" else widths))
    assert all(width >= 0 for width in widths)


def test_release_names_a_bad_count_by_line_and_field(world: World, tmp_path: Path) -> None:
    counts = tmp_path / "counts.csv"
    counts.write_text("time,zone,count\n2026-03-02T10:00:00Z,a,1\n2026-03-02T10:05:00Z,a,-77123\n")
    done = tacet(
        "release", counts, "--mechanism", "laplace", "--epsilon", "1", "--key-file", world.key,
        "--out", tmp_path / "released.csv", code=3,
    )  # fmt: skip
    assert "line 3: count" in done.stderr
    assert "77123" not in done.stderr


# --- policy, usage, help ------------------------------------------------------------------------------


def test_policy_show_tells_the_promise_of_every_reader(day: Day) -> None:
    report = json.loads(tacet("policy", "show", day.policy, "--json").stdout)
    counts = {(row["release"], row["reader"]): row["epsilon"]["presence_tuple"] for row in report["counts"]}
    assert counts == {
        ("occupancy", "facilities"): "1", ("occupancy", "all"): "1", ("floors", "public"): "inf",
        ("floors", "all"): "inf",
    }  # fmt: skip
    factors = {(row["attribute"], row["reader"]): row["factor"] for row in report["attributes"]}
    assert factors["arrival", "public"] == pytest.approx(1.2214, abs=1e-4)


def test_policy_check_names_file_key_rule_and_value(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.replace('public = "0.5"', 'public = "-3"'))
    done = tacet("policy", "check", policy, code=2)
    for part in (str(policy), "epsilon.public", "positive", "-3"):
        assert part in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fly"], "No such command"),
        (["replay", "x.csv"], "--policy"),
        (["run", "--policy", "{policy}", "--key-file", "{key}", "--store", "{folder}/s"], "either --observations"),
        (["replay", "{folder}/none.csv", "--policy", "{policy}", "--key-file", "{key}", "--out", "{folder}/o"], "none"),
        (
            ["replay", "{observations}", "--policy", "{folder}/no", "--key-file", "{key}", "--out", "{folder}/o"],
            "policy",
        ),
        (
            ["replay", "{observations}", "--policy", "{policy}", "--key-file", "{folder}/no", "--out", "{folder}/o"],
            "key",
        ),
        (["account"], "TACET_KAFKA"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what(world: World, arguments: list[str], said: str) -> None:
    done = tacet(*(part.format(**world._asdict()) for part in arguments), code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_version_is_the_distributions(world: World) -> None:
    del world
    assert tacet("--version").stdout.strip() == f"tacet, version {version('tacet-occupancy')}"


@pytest.mark.parametrize("path", all_commands(verbs), ids=" ".join)
def test_every_verb_explains_itself(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(verbs, [*path, "--help"])
    assert done.exit_code == 0
    first = done.output.split("\n\n")[1].strip()
    assert len(first) > 20, "one sentence that says what it does"


def test_all_verbs_are_there() -> None:
    wanted = {
        "demo", "run", "ingest", "worker", "simulate", "replay", "release", "subscribe", "account", "status", "key",
        "policy", "topics",
    }  # fmt: skip
    assert wanted <= set(subcommands(verbs))


@pytest.mark.parametrize("verb", ["worker", "ingest", "topics", "subscribe", "status", "account"])
def test_a_broker_that_does_not_answer_is_told_in_one_line(world: World, verb: str) -> None:
    shared = ("--policy", str(world.policy), "--key-file", str(world.key))
    words = {
        "worker": ("worker", *shared),
        "ingest": ("ingest", *shared, "--observations", str(world.observations)),
        "topics": ("topics", "create", "--policy", str(world.policy)),
        "subscribe": ("subscribe", "--audience", "public", "--until-end"),
        "status": ("status",),
        "account": ("account",),
    }[verb]
    result = tacet(*words, "--kafka", "127.0.0.1:1", code=1)
    assert result.stderr.splitlines()[-1] == "tacet: no Kafka broker answers at 127.0.0.1:1"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", ["worker", "ingest"])
def test_a_service_that_is_told_to_stop_while_it_starts_exits_0(world: World, verb: str) -> None:
    shared = ("--policy", world.policy, "--key-file", world.key)
    feed = ("--observations", world.observations) if verb == "ingest" else ()
    with socket.create_server(("127.0.0.1", 0)) as mute:  # a broker that accepts and never says a word
        mute.settimeout(TIMEOUT)
        kafka = f"127.0.0.1:{mute.getsockname()[1]}"
        process = subprocess.Popen(command([verb, *shared, *feed, "--kafka", kafka]), stderr=subprocess.PIPE)
        try:
            talk, _ = mute.accept()
            process.terminate()
            assert process.wait(TIMEOUT) == 0
            talk.close()
        finally:
            process.kill()
            _, report = process.communicate()
    assert b"Traceback" not in report
