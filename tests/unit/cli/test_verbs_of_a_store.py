"""Verbs on one small store, in this process: what they print, as JSON and for people, and what they leave alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from click import BadParameter

from connectors.cli import poll as poll_verb
from connectors.cli import recover as recover_verb
from connectors.cli import status as status_verb
from connectors.cli.backfill import StoreHistory, cost_line
from connectors.cli.options import read_policy
from connectors.cli.poll import _entry, _print
from connectors.cli.report import MonthType, site_of
from connectors.cli.run import _counts_source, _RunSetup
from connectors.cli.source_options import CounterOptions, communities, communities_now
from connectors.cli.subscribe import one_line
from connectors.documents.month import Month
from connectors.keys import key_files
from connectors.monitoring.monitor import Monitor
from connectors.operations.doctor.findings import findings_of, fine
from connectors.operations.recovery.obstacles import Obstacle, Remedy
from connectors.operations.status import SiteStatus, Status
from connectors.runtime.clock import wall_clock
from connectors.sources.ingest.access_points import AccessPoints
from connectors.sources.polls.client_tables import AssociatedClient
from connectors.sources.polls.service import DryRun
from connectors.sources.recorded import TopicSource
from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.snmp.communities import CommunityFile
from connectors.storage.embedded.reader import read_outbox, read_snapshot, read_topic
from connectors.storage.embedded.runner import opened
from connectors.storage.kafka import republication
from stream.encoding import encode_message
from stream.engine.backfill import BackfillCost
from stream.errors import TacetError, UsageError
from stream.records import Micros
from stream.release.stage import MECHANISM_VERSION
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from stream.settings import Settings
from tests.acceptance.command_line import OBSERVATIONS, POLICY, TICKS, here, run
from tests.support.day_policies import day_release
from tests.support.small_building import policy_text


class World(NamedTuple):
    policy: Path
    key: Path
    rows: Path
    store: Path

    @property
    def inputs(self) -> tuple[str | Path, ...]:
        return "--policy", self.policy, "--key-file", self.key


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("store")
    made = World(*(folder / name for name in ("policy.toml", "key", "rows.csv", "store")))
    made.policy.write_text(POLICY)
    made.rows.write_text(OBSERVATIONS)
    here("key", "create", made.key, "--laboratory")
    here("run", "--observations", made.rows, *made.inputs, "--store", made.store)
    return made


# --- status ---------------------------------------------------------------------------------------------


def test_status_has_the_progress_of_each_site(world: World) -> None:
    [part] = run("status", "--store", world.store, "--policy", world.policy, "--json").answer["partitions"]
    east = part["sites"]["east"]
    assert (part["partition"], part["lag"], sorted(part["sites"])) == (0, 0, ["east", "west"])
    assert (east["last_window"], east["closed"]) == (TICKS[-1], False)
    assert parse_time(east["watermark"]) >= parse_time(east["last_window"])
    assert east["ledger_entries"] > len(TICKS)
    assert east["releases_left_today"] == {"occupancy/facilities": None, "occupancy/public": 0}
    assert "releases_left_today" not in str(run("status", "--store", world.store, "--json").answer)


def test_a_site_that_the_policy_lacks_has_no_releases_left(world: World, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.partition("[site.west]")[0] + POLICY[POLICY.index("[[audience]]") :])
    words = ("status", "--store", world.store, "--policy", tmp_path / "policy.toml", "--json")
    sites = run(*words).answer["partitions"][0]["sites"]
    assert ["releases_left_today" in sites[name] for name in ("east", "west")] == [True, False]


def test_status_is_a_table_for_people(world: World, tmp_path: Path) -> None:
    said = " ".join(run("status", "--store", world.store, "--policy", world.policy).out.split())
    assert "partition 0: next message" in said
    assert "occupancy/facilities: no limit" in said
    assert "occupancy/public: 0" in said
    assert " days" in said, "the recording is of long ago"


def test_times_stand_in_one_line_beside_long_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    at = "2026-03-02T10:00:00Z"
    monkeypatch.setattr("connectors.cli.status.time.time", lambda: parse_time(at) / 1e6 + 30 * 86_400)
    site: SiteStatus = {
        "watermark": at, "last_window": at, "ledger_entries": 1_234_567, "closed": True,
        "releases_left_today": {"occupancy-by-floor/facility-management": 288},
    }  # fmt: skip
    status = Status(next=123_456_789, policy_version="1", sites={"headquarters-building-north": site})
    status_verb._print_status([status_verb.PartitionStatus(status, 0, 0)])
    said = capsys.readouterr().out
    assert f"{at}     30 days" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize(("ago", "text"), [(90.4, "90 s"), (2 * 86_400 - 1, "172,799 s"), (3 * 86_400, "3 days")])
def test_how_far_a_site_is_behind(monkeypatch: pytest.MonkeyPatch, ago: float, text: str) -> None:
    watermark = "2026-03-02T10:00:00Z"
    monkeypatch.setattr("connectors.cli.status.time.time", lambda: parse_time(watermark) / 1e6 + ago)
    assert status_verb._behind(watermark) == text
    assert status_verb._behind(None) == "-"


def test_status_of_a_cluster_has_each_partition_with_progress(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without a snapshot has processed nothing."""
    snapshot, _ = read_snapshot(world.store)
    [stored] = run("status", "--store", world.store, "--json").answer["partitions"]

    async def end_offsets(*_: Any) -> dict[int, int]:
        return {0: 7, 1: stored["next"] + 3}

    async def last_snapshots(_: str) -> dict[int, bytes | None]:
        return {1: snapshot}

    monkeypatch.setattr(status_verb, "end_offsets", end_offsets)
    monkeypatch.setattr(status_verb, "last_snapshots", last_snapshots)
    [part] = run("status", "--kafka", "broker:9092", "--json").answer["partitions"]
    assert part == stored | {"partition": 1, "lag": 3}


def test_status_of_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    status_verb._print_status([])
    assert capsys.readouterr().out == "Nothing has been processed yet.\n"


# --- recordings -----------------------------------------------------------------------------------------


def test_a_released_recording_is_repeated_at_no_cost_into_a_file_of_its_owner(world: World, tmp_path: Path) -> None:
    words = ("backfill", world.rows, *world.inputs, "--store", world.store, "--out", tmp_path / "again")
    answer = run(*words, "--json").answer
    assert (answer["released_now"], answer["charges"], answer["not_compared"], answer["left_to_run"]) == (0, 0, 0, 0)
    assert answer["released_before"] == 2 * len(TICKS)
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o600
    assert len((tmp_path / "again").read_text().splitlines()) > answer["released_before"]
    said = run(*words[:-1], tmp_path / "third").out
    assert f"{2 * len(TICKS)}  windows that were released before, repeated" in said


LOGINS = 'day_starts = "04:00"\ncontribution = "8h"\nidentity = "login"\nothers = "count"\n'


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (policy_text(site='opt_out = "list"\n'), "must have opt_out = 'none' to release a recording"),
        (policy_text(day_release(), tick="1h", site=LOGINS), "must have identity = 'device' to release a recording"),
    ],
)
def test_a_recording_is_not_released_late_where_it_lacks_who_opted_out_or_logged_in(
    world: World, tmp_path: Path, text: str, rule: str
) -> None:
    policy, key, store = (tmp_path / name for name in ("policy.toml", "key", "store"))
    policy.write_text(text)
    key_files.create(key, laboratory=True)
    with opened(read_policy(policy), key, store):
        pass  # made, with nothing in it
    done = run("backfill", world.rows, "--policy", policy, "--key-file", key, "--store", store)
    assert (done.code, rule in done.problem) == (2, True), done


def test_a_sites_ledger_is_its_own() -> None:
    entries = [b'{"site":"east","n":1}', b'{"site":"west","n":2}', b'{"site":"east","n":3}']
    store: Any = type(
        "Store", (), {"earlier": lambda _: entries[:1], "records": lambda _, topic: enumerate(entries[1:])}
    )()
    assert [entry["n"] for entry in StoreHistory(store).entries("east")] == [1, 3]


def test_the_price_of_late_releases_is_said_with_its_day() -> None:
    price = BackfillCost("east", "occupancy", "public", 1_200, Fraction(120), Fraction(24))
    line = cost_line(price)
    assert line == (
        "east: release occupancy will charge public at most 120 epsilon for 1,200 records, and at most 24 epsilon on "
        "one UTC day"
    )


def test_replay_counts_rows_windows_and_denials(world: World, tmp_path: Path) -> None:
    done = run("replay", world.rows, *world.inputs, "--out", tmp_path / "out", "--json")
    assert done.answer["windows"] == 2 * len(TICKS)
    assert done.answer["tally"]["rows"] == 5
    assert not (tmp_path / "out" / "occupancy.csv").exists()
    said = run(
        "replay", world.rows, *world.inputs, "--out", tmp_path / "all", "--include-restricted", "--to", TICKS[3]
    ).out  # fmt: skip
    assert f"5 rows, 8 windows, {done.answer['refused'] and 0} denied by budget" in said
    assert (tmp_path / "all" / "occupancy.csv").exists()


def test_replay_names_rows_that_it_dropped_and_rows_that_are_bad(world: World, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    elsewhere = "2026-03-02T10:32:00Z,00:00:5e:00:53:04,02:00:00:00:ff:01,east\n"
    rows.write_text(f"{OBSERVATIONS}{elsewhere}yesterday,00:00:5e:00:53:04,02:00:00:00:0e:01,east\n")
    done = run("replay", rows, *world.inputs, "--out", tmp_path / "out")
    assert "1  rows dropped: access point in no zone of the policy" in done.out
    assert (done.code, "line 8" in done.problem) == (3, True), done.problem


# --- lost records ---------------------------------------------------------------------------------------


def records_of(store: Path) -> list[bytes]:
    return sorted(value for audience in ("facilities", "public") for _, value in read_outbox(store, audience, 0))


@pytest.fixture
def robbed(world: World, tmp_path: Path) -> Path:
    """Return a copy of the store that lacks the records of an audience."""
    store = Path(shutil.copytree(world.store, tmp_path / "robbed"))
    for file, statement in (
        (store / "private" / "facilities.sqlite", "DELETE FROM records"),
        (store / "store.sqlite", "DELETE FROM outputs WHERE topic LIKE 'tacet.private.%'"),
    ):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(statement)
    return store


def test_lost_records_are_published_again_in_the_store_and_counted_by_topic(world: World, robbed: Path) -> None:
    words = ("republish", world.rows, *world.inputs, "--store", robbed)
    topic = "tacet.private.facilities.occupancy.v1"
    lost = 2 * len(TICKS)
    assert run(*words).out == f"{lost:>8,}  {topic}\n{lost:>8,}  records published again\n"
    assert records_of(robbed) == records_of(world.store)
    assert len(read_outbox(robbed, "facilities", 0, "occupancy")) == lost
    assert run(*words, "--json").answer == {"republished": 0, "stopped": {}, "topics": {}}


def lose_on_kafka(world: World, patch: pytest.MonkeyPatch, *versions: str) -> list[Any]:
    """Give a cluster the ledger of the store and none of its private records; return what is put back."""
    policy, put_back = load_policy(POLICY), list[Any]()
    file = ObservationFile(world.rows, policy, key_files.pseudonym_key(world.key))
    appended = parse_time(TICKS[-1]) // 1000
    stored = [
        SimpleNamespace(key=each.site.encode(), value=encode_message(each), timestamp_ms=appended)
        for each in file.messages()
    ]

    async def ledger_of(_: str) -> Any:
        state = SimpleNamespace(versions=versions, accepted=lambda: [policy])
        return state, list(read_topic(world.store, AUDIT)), {}

    async def observations(_: str) -> AsyncIterator[Any]:
        for record in stored:
            yield record

    async def put(servers: str, records: list[Any]) -> None:
        put_back.append((servers, sorted(each.value for each in records)))

    for name, instead in (("ledger_of", ledger_of), ("observations", observations), ("put_back", put)):
        patch.setattr(republication, name, instead)
    return put_back


@pytest.mark.parametrize("from_topic", [False, True], ids=["a recording", "the topic of observations"])
def test_lost_records_are_published_again_on_kafka(
    world: World, monkeypatch: pytest.MonkeyPatch, from_topic: bool
) -> None:
    put_back = lose_on_kafka(world, monkeypatch)
    rows = () if from_topic else (world.rows,)
    done = run("republish", *rows, *world.inputs, "--kafka", "broker:9092", "--json")
    assert done.answer["stopped"] == {}
    assert put_back == [("broker:9092", records_of(world.store))]


def test_a_cluster_on_which_several_mechanism_versions_have_worked_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal entries would not prove equal records."""
    put_back = lose_on_kafka(world, monkeypatch, MECHANISM_VERSION, "another")
    done = run("republish", world.rows, *world.inputs, "--kafka", "broker:9092")
    assert (done.code, "another" in done.problem, put_back) == (2, True, []), done.problem


def test_a_new_store_has_lost_nothing(world: World, tmp_path: Path) -> None:
    done = run("republish", world.rows, *world.inputs, "--store", tmp_path / "new", "--json")
    assert done.answer == {"republished": 0, "stopped": {}, "topics": {}}


@pytest.mark.parametrize("kept", [0, 3])
def test_a_ledger_that_the_observations_do_not_reproduce_is_named_by_its_sites(
    world: World, robbed: Path, tmp_path: Path, kept: int
) -> None:
    header, *rows = OBSERVATIONS.splitlines(keepends=True)
    (tmp_path / "rows.csv").write_text("".join([header, *rows[:kept]]))
    done = run("republish", tmp_path / "rows.csv", *world.inputs, "--store", robbed)
    why = "its next entry was made from other" if kept else "the observations end before its ledger does"
    assert done.code == 3
    assert f"must reproduce the whole ledger; site east: {why}" in done.problem


# --- recovery -------------------------------------------------------------------------------------------


def test_a_store_that_can_continue_has_no_obstacle(world: World) -> None:
    words = ("recover", "--store", world.store, "--key-file", world.key, "--policy", world.policy)
    assert run(*words).out == "nothing prevents a run from continuing\n"
    assert run(*words, "--json").answer == {"ok": True, "findings": []}


def test_an_obstacle_of_a_cluster_is_printed_with_the_price_of_each_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    def cluster_obstacles(servers: str, key_file: Path | None, policy: Policy | None) -> list[Obstacle]:
        asked.append((servers, key_file, policy and policy.version))
        return [Obstacle("the control topic is gone", (Remedy("begin again", "all budgets"),))]

    monkeypatch.setattr(recover_verb, "cluster_obstacles", cluster_obstacles)
    words = ("recover", "--kafka", "broker:9092", "--key-file", world.key, "--policy", world.policy)
    assert run(*words).out == "the control topic is gone\n  * begin again\n    price: all budgets\n"
    finding = {"what": "the control topic is gone", "ways": [{"do": "begin again", "price": "all budgets"}]}
    assert run(*words, "--json").answer == {"ok": False, "findings": [finding]}
    assert asked == [("broker:9092", world.key, load_policy(POLICY).version)] * 2


@pytest.mark.parametrize(
    ("site", "rule"),
    [("nowhere", "--reopen: must name a site of the policy (east, west), got 'nowhere'"),
     ("east", "site 'east': must be one that has shut at max_devices")],
)  # fmt: skip
def test_only_a_suspended_site_of_the_policy_is_reopened(world: World, site: str, rule: str) -> None:
    words = ("recover", "--store", world.store, "--key-file", world.key, "--policy", world.policy)
    done = run(*words, "--reopen", site)
    assert (done.code, rule in done.problem) == (2, True), done.problem


# --- readers --------------------------------------------------------------------------------------------


def test_a_reader_with_a_cursor_is_shown_each_release_once(world: World, tmp_path: Path) -> None:
    words = ("subscribe", "--store", world.store, "--audience", "facilities", "--until-end")
    cursor = ("--cursor", tmp_path / "cursor")
    first, second = run(*words, *cursor), run(*words, *cursor)
    assert (len(first.out.splitlines()), second.out) == (2 * len(TICKS), "")
    assert first.problem == second.problem == ""
    assert run(*words, "--from-start").out == first.out
    assert not run(*words, "--from-start").problem


def test_a_reader_who_begins_and_ends_at_the_present_is_told_why_nothing_came(world: World) -> None:
    words = ("subscribe", "--store", world.store, "--audience", "facilities", "--until-end")
    done = run(*words)
    assert (done.out, "--until-end without --from-start or --after" in done.problem) == ("", True)


def test_releases_are_lines_for_people_and_objects_for_programs(world: World) -> None:
    words = ("subscribe", "--store", world.store, "--audience", "facilities", "--from-start", "--until-end")
    for_people, for_programs = run(*words).out.splitlines(), run(*words, "--json").out.splitlines()
    records = [json.loads(line) for line in for_programs]
    assert for_people == [one_line(record) for record in records]
    assert {record["laboratory"] for record in records} == {True}
    assert all(line.endswith("(laboratory)") for line in for_people)


# --- backups --------------------------------------------------------------------------------------------


def test_a_backup_and_what_is_restored_of_it_have_the_links_of_the_store(world: World, tmp_path: Path) -> None:
    sites = run("store", "backup", "--store", world.store, "--out", tmp_path / "copy", "--json").answer["sites"]
    assert sorted(sites) == ["east", "west"]
    entries = sum(link["sequence"] for link in sites.values())
    said = run("store", "backup", "--store", world.store, "--out", tmp_path / "second").out
    assert f"{entries:,} ledger entries, checked" in said
    restored = run("store", "restore", tmp_path / "copy", "--store", tmp_path / "new", "--key-file", world.key)
    assert restored.out == f"{tmp_path / 'new'}: restored\n"
    words = ("store", "restore", tmp_path / "second", "--store", tmp_path / "other", "--key-file", world.key)
    assert run(*words, "--json").answer == {"lost": {}}


# --- reports --------------------------------------------------------------------------------------------


def test_a_month_is_named_or_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def now() -> Micros:
        return parse_time("2026-01-15T00:00:00Z")

    monkeypatch.setattr("connectors.cli.report.wall_clock", now)
    month = MonthType()
    assert month.convert("last", None, None) == Month(2025, 12)
    assert month.convert(Month(2026, 3), None, None) == month.convert("2026-03", None, None) == Month(2026, 3)
    with pytest.raises(BadParameter, match="must be a month such as 2026-03, or last"):
        month.convert("march", None, None)


def test_a_report_is_of_the_only_site_or_of_the_one_that_is_named() -> None:
    hall: Any = {"site": "hall"}
    assert site_of({"hall": hall}, None) is site_of({"hall": hall, "shed": hall}, "hall") is hall
    for sites, name, got in (({"hall": hall, "shed": hall}, None, "none"), ({"hall": hall}, "shed", "'shed'")):
        with pytest.raises(UsageError, match=f"--site: must be one of .*got {got}"):
            site_of(sites, name)
    with pytest.raises(UsageError, match="no site at all"):
        site_of({}, None)


def test_a_report_goes_to_one_place(world: World, tmp_path: Path) -> None:
    words = ("report", "--store", world.store, "--audience", "public", "--site", "east", "--month", "2026-03")
    assert "give either --out or --folder" in run(*words, "--out", tmp_path / "a", "--folder", tmp_path).problem
    done = run(*words, "--folder", tmp_path / "reports")
    assert done.code == 0, done.problem
    [made] = (tmp_path / "reports").iterdir()
    assert made.name == "east-2026-03.html"
    assert made.read_text().startswith("<!DOCTYPE html>")
    assert "March 2026" in done.out
    assert run(*words).out.startswith("# ")


def test_a_report_is_of_the_months_released_windows(world: World) -> None:
    words = ("report", "--store", world.store, "--audience", "facilities", "--site", "east", "--month")
    assert f"{len(TICKS)} of 8928 windows were released" in run(*words, "2026-03").out
    assert "0 of 8640 windows were released" in run(*words, "2026-04").out


# --- sources --------------------------------------------------------------------------------------------


def test_counts_come_from_a_file_or_a_topic() -> None:
    settings = Settings(kafka="broker:9092")
    assert _counts_source(settings, CounterOptions(Path("c.csv"), None), None) == Path("c.csv")
    topic = _counts_source(settings, CounterOptions(None, "counters"), None)
    assert isinstance(topic, TopicSource)
    assert topic[:2] == ("broker:9092", "counters")


def test_a_recording_that_cannot_be_read_binds_no_key(world: World, tmp_path: Path) -> None:
    here("key", "create", tmp_path / "key")
    (tmp_path / "rows.csv").write_text("time,mac\n")
    words = ("--observations", tmp_path / "rows.csv", "--from", TICKS[0], "--to", TICKS[-1])
    done = run(
        "run", "--policy", world.policy, "--key-file", tmp_path / "key", "--store", tmp_path / "store", *words
    )  # fmt: skip
    assert (done.code, key_files.store_of(tmp_path / "key")) == (2, None), done.problem
    assert not (tmp_path / "store").exists()


def test_a_run_monitors_its_store_and_its_engine(world: World) -> None:
    policy, monitor = load_policy(POLICY), Monitor("run", None, None, wall_clock)
    setup = _RunSetup(
        policy, key_files.pseudonym_key(world.key), partial(opened, policy, world.key, world.store), world.store,
        monitor,
    )  # fmt: skip
    with setup.opened(clock=None, live=False):
        monitor.run_checks()
    shown = {family.metric.name for family in monitor.metrics.families() if family.values}
    assert {"tacet_store_size_bytes", "tacet_ledger_entries"} <= shown


@pytest.mark.parametrize(("names", "accepted"), [(["one", "two"], (b"one", b"two")), ([], None)])
def test_communities_are_those_of_their_file_which_is_looked_at_again_while_a_receiver_listens(
    tmp_path: Path, names: list[str], accepted: tuple[bytes, ...] | None
) -> None:
    """Where users of SNMPv3 are named and no communities, none is accepted; where neither is, nobody can send."""
    file = tmp_path / "communities"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}\n" for name in names))
    settings = Settings(snmp_communities_file=file) if names else Settings(snmp_users_file=tmp_path / "users")
    assert communities(settings) == (accepted or ())
    assert isinstance(communities_now(settings), CommunityFile if names else tuple)
    for read in (communities, communities_now):
        with pytest.raises(UsageError, match="TACET_SNMP_COMMUNITIES_FILE: must name a file"):
            read(Settings())


@pytest.mark.parametrize(("outcome", "code"), [("complete", 0), ("no_answer", 2)])
def test_a_tried_poll_is_printed_and_fails_where_a_table_was_not_read_whole(
    world: World, monkeypatch: pytest.MonkeyPatch, outcome: Any, code: int
) -> None:
    source: Any = SimpleNamespace(site="east", source="192.0.2.9")

    async def read_once(_: Any) -> DryRun:
        return DryRun(source, outcome, 1.0, None)

    monkeypatch.setattr(poll_verb, "polled_sources", lambda *_: [source])
    monkeypatch.setattr(poll_verb, "read_once", read_once)
    words = ("poll", "--policy", world.policy, "--dry-run")
    for_people, for_programs = run(*words), run(*words, "--json")
    assert for_people.code == for_programs.code == code
    assert for_people.out.startswith(f"192.0.2.9 (east): {outcome.replace('_', ' ')}\n")
    assert [entry["outcome"] for entry in json.loads(for_programs.out)] == [outcome]
    assert ("poll of 192.0.2.9: must read the whole table, but no answer" in for_people.problem) is (code == 2)


def test_an_access_point_that_reports_only_its_name_is_the_one_of_the_policy() -> None:
    radio = 'access_points = ["02:00:00:00:0e:02"]'
    named = POLICY.replace(radio, f'{radio}\naccess_point_names = ["attic"]')
    listed = AccessPoints.of_policy(load_policy(named))
    source: Any = SimpleNamespace(site="east", source="127.0.0.1")
    rows = [AssociatedClient(bytes.fromhex("3c0000000001"), b"", name) for name in (b"attic", b"cellar")]
    for row, unknown in zip(rows, ((), ("cellar",)), strict=True):
        table: Any = SimpleNamespace(rows=[row], requests=1)
        assert _entry(DryRun(source, "complete", 1.0, table), listed).unknown == unknown


def test_a_tried_poll_counts_devices_and_names_unlisted_access_points(capsys: pytest.CaptureFixture[str]) -> None:
    """A device in two rows is one device, and access points are network equipment, which may be named."""
    listed = AccessPoints.of_policy(load_policy(POLICY.replace('["127.0.0.1"]', '["192.0.2.9"]', 1)))
    here_, away = bytes.fromhex("020000000e01"), bytes.fromhex("02000000ff01")
    devices = [bytes.fromhex(f"3c0000000{n}01") for n in range(3)]
    rows = [
        AssociatedClient(devices[0], here_), AssociatedClient(devices[1], away), AssociatedClient(devices[1], away),
        AssociatedClient(devices[2], b"", b"attic"),
    ]  # fmt: skip
    source: Any = type("Source", (), {"site": "east", "source": "192.0.2.9"})
    table: Any = type("Table", (), {"rows": rows, "requests": 4})
    entry = _entry(DryRun(source, "complete", 1.23456, table), listed)
    assert entry.to_json() == {
        "site": "east", "source": "192.0.2.9", "outcome": "complete", "rows": 3, "rows_at_listed_access_points": 1,
        "unknown_access_points": ["02:00:00:00:ff:01", "attic"], "requests": 4, "seconds": 1.235,
    }  # fmt: skip
    _print(replace(entry, seconds=60.0))
    said = capsys.readouterr().out
    assert "the policy lacks attic" in said
    assert "too slow for interval = '2min'" in said
    _print(_entry(DryRun(source, "no_answer", 2.0, None), listed))
    said = capsys.readouterr().out
    assert said.startswith("192.0.2.9 (east): no answer\n")
    assert "too slow" not in said


def test_the_uptime_clock_needs_a_start(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "communities").write_text("public\n")
    (tmp_path / "communities").chmod(0o600)
    monkeypatch.setenv("TACET_SNMP_COMMUNITIES_FILE", str(tmp_path / "communities"))
    words = ("--store", tmp_path / "store", "--udp", "127.0.0.1:0", "--clock", "uptime")
    done = run("run", *world.inputs, *words)
    assert (done.code, "--clock uptime needs --start" in done.problem) == (2, True), done.problem


def test_a_poll_is_tried_or_handed_over(world: World) -> None:
    for words in ((), ("--to", "socket", "--dry-run")):
        assert "give either --to, or --dry-run" in run("poll", "--policy", world.policy, *words).problem


# --- checks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TacetError("no such file"), OSError("no such file")])
def test_a_check_that_fails_is_its_last_finding(error: Exception) -> None:
    def look() -> Any:
        yield fine("store", "whole")
        raise error

    assert [(each.state, each.text) for each in findings_of("store", look)] == [
        ("fine", "whole"), ("wrong", "no such file")
    ]  # fmt: skip


# --- simulated buildings --------------------------------------------------------------------------------


def test_a_simulation_writes_what_is_asked_for_and_counts_it(tmp_path: Path) -> None:
    files = {"csv": "rows.csv", "jsonl": "rows.jsonl"}
    small = ("simulate", "--zones", "2", "--scale", "0.05", "--seed", "3", "--start", "2026-03-02", "--json")
    for form, name in files.items():
        options = ("--truth", tmp_path / "truth.csv", "--policy-out", tmp_path / "policy.toml") if form == "csv" else ()
        answer = run(*small, "--out", tmp_path / name, "--format", form, *options).answer
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert answer["events"] == len(rows) - 1 == len((tmp_path / "rows.jsonl").read_text().splitlines())
    assert {json.loads(line)["time"][:10] for line in (tmp_path / "rows.jsonl").read_text().splitlines()} <= {
        "2026-03-02", "2026-03-03"
    }  # fmt: skip
    assert (tmp_path / "truth.csv").read_text().startswith("device,zone,start,end,class\n")
    assert load_policy((tmp_path / "policy.toml").read_text()).site["dbh"].zones


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--start", "1969-01-01"), "--start: must be from 1970-01-02 to 2240-01-01"),
        (("--heard", "roams", "--out", "rows.csv"), "--heard: must be often with --out"),
        (("--faults", "gremlins"), "faults: each must be one of"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_is_written(words: tuple[str, ...], rule: str) -> None:
    done = run("simulate", "--zones", "1", *words)
    assert (done.code, rule in done.problem) == (2, True), done.problem
    assert not Path("rows.csv").exists()
