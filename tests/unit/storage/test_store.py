"""The embedded store and its runner: private, one process at a time, separate outboxes, no rewriting."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.secrets.private_files import private_folder
from connectors.sources.recordings.observations import ObservationFile
from connectors.storage.embedded.outboxes import SYNC_EVERY
from connectors.storage.embedded.reader import outboxes, read_outbox, read_snapshot, read_state_and_entries, read_topic
from connectors.storage.embedded.rollback_mark import MarkFile, mark_path
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.store import SqliteStore
from connectors.subscribe.subscriber import subscribe
from stream.engine.outputs import OutputRecord
from stream.errors import FinalityError, KeyFileError, UsageError
from stream.keys import ForwardKeys
from stream.records import DAY, MINUTE
from stream.release.validation import load_policy
from stream.runners.embedded import Embedded
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, PRESENCE, QUARANTINE, parse_record, private_topic
from tests.support.small_building import COUNTS, building, messages, people, policy_text, write_csv

POLICY = building(releases=COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0])
SEEN = people(hours=20, devices=12)
NEEDLE = private_topic("board", "plain")


def out(topic: str, value: bytes, number: int, time: int = 1) -> OutputRecord:
    return OutputRecord(topic, b"dbh", value, time, True, f"{topic}/{number}")


@pytest.fixture(scope="module")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    key_files.create(path, laboratory=True)
    return path


@pytest.fixture
def key(unused: Path, tmp_path: Path) -> Path:
    shutil.copy(unused, tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture(scope="module")
def whole(unused: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of the whole file gives out under ``key``."""
    folder = tmp_path_factory.mktemp("whole")
    shutil.copy(unused, folder / "key")
    work(folder / "whole", folder / "key")
    return given_out(folder / "whole")


@pytest.fixture
def production(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "pkey", laboratory=False)
    return tmp_path / "pkey"


def work(
    folder: Path, key: Path, seen: Any = SEEN, policy: Any = POLICY, until: int | None = None, **options: Any
) -> None:
    """Run a file into a store; ``until`` leaves off after so many messages, as a crash would."""
    file = write_csv(folder.with_suffix(".csv"), seen)
    with embedded(policy, key, folder, **options) as runner:
        for number, message in enumerate(ObservationFile(file, policy, bytes(32)).messages()):
            if number == until:
                raise Crash
            runner.process(message, durable=False)


class Crash(BaseException):
    """Stands for the end of a process."""


def given_out(folder: Path) -> dict[str, Any]:
    boxes = {name: read_outbox(folder, name, 0) for name, _ in outboxes(folder)}
    return boxes | {topic: read_topic(folder, topic) for topic in (AUDIT, LEAKAGE)}


# --- the store -------------------------------------------------------------------------------------------


def test_everything_in_a_store_is_for_its_owner_only(tmp_path: Path, key: Any) -> None:
    work(tmp_path / "store", key, SEEN[:200])
    for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path.name


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o705, 0o710, 0o701])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, mode: Any) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(UsageError, match="mode 0700"):
        private_folder(tmp_path / "open")


def test_positions_count_on_after_messages_are_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    assert [store.append(b"a"), store.append(b"b")] == [0, 1]
    store.commit([], b"state", 2)
    assert store.append(b"c") == 2
    assert list(store.pending_messages(0)) == [(2, b"c", None)]
    store.close()
    store = SqliteStore(tmp_path / "s")
    assert store.snapshot() == b"state"
    assert list(store.pending_messages(2)) == [(2, b"c", None)]
    store.close()


def test_a_commit_is_whole_or_not_at_all(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    store.append(b"a")
    broken = [out(AUDIT, b"{}", 1), OutputRecord(AUDIT, b"k", None, 1, True, "x")]  # type: ignore[arg-type]
    with pytest.raises(sqlite3.IntegrityError):
        store.commit(broken, b"state", 1)
    assert store.snapshot() is None
    assert store.records(AUDIT) == []
    assert list(store.pending_messages(0)) == [(0, b"a", None)]
    store.close()


def test_private_records_move_to_the_outbox_of_their_audience_and_no_other(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    store.commit([out(NEEDLE, b"1", 1), out(private_topic("public", "grouped"), b"2", 2)], b"", 0)
    store.deliver()
    assert read_outbox(tmp_path / "s", "board", 0) == [(1, b"1")]
    assert read_outbox(tmp_path / "s", "public", 0) == [(1, b"2")]
    assert read_outbox(tmp_path / "s", "nobody", 0) == []
    for _ in range(SYNC_EVERY + 1):
        store.commit([], b"", 0)
        store.deliver()
    assert store.records(NEEDLE) == []
    store.close()
    held = (tmp_path / "s" / "store.sqlite").read_bytes() + (tmp_path / "s" / "private" / "public.sqlite").read_bytes()
    assert NEEDLE.encode() not in held


def test_an_outbox_takes_a_copy_and_refuses_other_bytes_under_one_id(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    for _ in range(2):
        store.commit([out(NEEDLE, b"1", 1)], b"", 0)
        store.deliver()
    assert read_outbox(tmp_path / "s", "board", 0) == [(1, b"1")]
    store.commit([out(NEEDLE, b"2", 1), out(NEEDLE, b"3", 2)], b"", 0)
    with pytest.raises(FinalityError, match="was published and would now differ"):
        store.deliver()
    assert read_outbox(tmp_path / "s", "board", 0) == [(1, b"1")], "nothing of that delivery was published"
    store.close()


def test_restricted_records_are_kept_a_day_and_quarantine_a_week(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    day = DAY // 1000
    for n in range(10):
        store.commit([out(topic, b"%d" % n, n, n * day) for topic in (OCCUPANCY, QUARANTINE, AUDIT, LEAKAGE)], b"", 0)
    kept = {
        topic: [int(value) for _, value in store.records(topic)] for topic in (OCCUPANCY, QUARANTINE, AUDIT, LEAKAGE)
    }
    store.close()
    everything = list(range(10))
    assert kept == {OCCUPANCY: [8, 9], QUARANTINE: everything[2:], AUDIT: everything, LEAKAGE: everything}


def test_a_restricted_record_is_kept_for_exactly_a_day(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    day = 86_400_000
    for now, kept in ((day, 1), (day + 1, 1), (day + 2, 0)):
        store.commit([out(PRESENCE, b"stay", now, 1), out(AUDIT, b"{}", now, now)][now > day :], b"", 0)
        assert len([*store.records(PRESENCE)]) == kept
    store.close()


def test_what_was_refused_before_there_was_a_time_is_kept_a_week_from_the_first(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    day = DAY // 1000
    store.commit([out(QUARANTINE, b"refused", 1, 0)], b"", 0)
    for n in range(20_000, 20_010):
        store.commit([out(AUDIT, b"{}", n, n * day)], b"", 0)
        assert bool(store.records(QUARANTINE)) == (n <= 20_007)
    store.close()


async def test_a_window_of_several_releases_comes_in_one_order_from_every_source(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s")
    names = [("plain", None), ("day", "departure"), ("day", "arrival"), ("extra", None)]
    bodies = [
        {"release_id": f"dbh/{name}/{attribute}", "site": "dbh", "release": name, "window_end": "2026-03-02T10:05:00Z"}
        | ({} if attribute is None else {"attribute": attribute})
        for name, attribute in names
    ]
    store.commit(
        [
            out(private_topic("board", body["release"]), orjson.dumps(body), n)._replace(id=body["release_id"])
            for n, body in enumerate(bodies)
        ],
        b"",
        0,
    )
    store.deliver()
    store.close()
    found = [record["release_id"] for record in await read(tmp_path / "s", from_start=True)]
    assert found == ["dbh/day/departure", "dbh/day/arrival", "dbh/extra/None", "dbh/plain/None"]


def test_a_second_runner_on_a_store_is_refused_at_once(tmp_path: Path, key: Any) -> None:
    refusal = pytest.raises(UsageError, match="store must not be in use by another process")
    with embedded(POLICY, key, tmp_path / "s"), refusal:
        SqliteStore(tmp_path / "s")
    SqliteStore(tmp_path / "s").close()


def test_reading_a_store_that_is_none_says_so(tmp_path: Path) -> None:
    for read in (lambda: read_topic(tmp_path, AUDIT), lambda: read_snapshot(tmp_path)):
        with pytest.raises(UsageError, match="must be a store made by 'tacet run'"):
            read()


# --- the runner ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", [0, 61, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 30, 140))])
def test_a_run_left_off_anywhere_goes_on_and_ends_alike(tmp_path: Path, key: Any, whole: Any, until: Any) -> None:
    with pytest.raises(Crash):
        work(tmp_path / "cut", key, until=until)
    work(tmp_path / "cut", key)
    assert given_out(tmp_path / "cut") == whole
    assert len(given_out(tmp_path / "cut")[AUDIT]) > 200


def test_a_store_full_of_devices_goes_on_alike_after_a_crash(tmp_path: Path, key: Any) -> None:
    """Who was dropped for want of room stays dropped: what was read before the crash is not read again."""
    policy = building(site="max_devices = 6", releases=COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0])
    work(tmp_path / "whole", key, policy=policy)
    for until in (100, 120, 131, 140, 150):
        folder = tmp_path / f"cut{until}"
        with pytest.raises(Crash):
            work(folder, key, policy=policy, until=until)
        work(folder, key, policy=policy)
        assert given_out(folder) == given_out(tmp_path / "whole")


def test_a_file_run_again_over_a_finished_store_changes_nothing(tmp_path: Path, key: Any) -> None:
    work(tmp_path / "s", key)
    before = given_out(tmp_path / "s")
    work(tmp_path / "s", key)
    assert given_out(tmp_path / "s") == before


def test_a_later_file_goes_on_where_the_earlier_one_ended(tmp_path: Path, key: Any) -> None:
    work(tmp_path / "s", key)
    before = given_out(tmp_path / "s")
    later = [row._replace(time=row.time + DAY) for row in SEEN[:300]]
    work(tmp_path / "s", key, later)
    after = given_out(tmp_path / "s")
    assert after[AUDIT][: len(before[AUDIT])] == before[AUDIT]
    ends = [parse_record(value)["window_end"] for value in after[AUDIT]]
    assert ends[-1] > "2026-03-04"
    assert ends == sorted(ends)


@pytest.mark.parametrize("cuts", [(60,), pytest.param((3, 119), marks=pytest.mark.long)])
def test_messages_taken_durably_survive_a_crash(tmp_path: Path, key: Any, cuts: Any) -> None:
    log = list(messages(SEEN, POLICY))
    with embedded(POLICY, key, tmp_path / "whole") as runner:
        for message in log:
            runner.process(message)
    for cut in cuts:
        folder = tmp_path / f"cut{cut}"
        with pytest.raises(Crash), embedded(POLICY, key, folder) as runner:  # noqa: PT012
            for message in log[:cut]:
                runner.process(message)
            raise Crash
        with embedded(POLICY, key, folder) as runner:
            for message in log[cut:]:
                runner.process(message)
        assert given_out(folder) == given_out(tmp_path / "whole")


# --- restart with something changed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"), [('board = "0.25"', 'board = "0.5"'), ('mechanism = "laplace"', 'mechanism = "filter"')]
)
def test_a_changed_epsilon_or_mechanism_is_refused_and_accepted_on_order(
    tmp_path: Path, key: Any, old: Any, new: Any
) -> None:
    text = policy_text(COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0])
    changed = load_policy(text.replace(old, new))
    with pytest.raises(Crash):
        work(tmp_path / "s", key, policy=load_policy(text), until=120)
    before = given_out(tmp_path / "s")
    with pytest.raises(UsageError, match="--accept-policy"):
        work(tmp_path / "s", key, policy=changed)
    assert given_out(tmp_path / "s") == before
    work(tmp_path / "s", key, policy=changed, accept_policy=True)
    after = given_out(tmp_path / "s")
    assert after[AUDIT][: len(before[AUDIT])] == before[AUDIT]
    versions = [parse_record(value)["policy_version"] for value in after[AUDIT]]
    assert versions == sorted(versions, key=lambda version: version == changed.version)
    ids = [parse_record(value)["release_id"] for value in after[AUDIT]]
    assert len(ids) == len(set(ids))


def test_a_store_made_with_another_key_is_refused(tmp_path: Path, key: Any) -> None:
    key_files.create(tmp_path / "other", laboratory=True)
    with pytest.raises(Crash):
        work(tmp_path / "s", key, until=120)
    with pytest.raises(UsageError, match="key: must be the one this state was made with"):
        work(tmp_path / "s", tmp_path / "other")


def set_back(folder: Path, key: Path) -> dict[str, Any]:
    """Leave a store at a point of the past, with its mark and what had been published since; return that."""
    with pytest.raises(Crash):
        work(folder, key, until=130)
    shutil.copytree(folder, folder.with_name("backup"))
    with pytest.raises(Crash):
        work(folder, key, until=190)
    later = given_out(folder)
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("backup"), folder)
    assert len(given_out(folder)[AUDIT]) < len(later[AUDIT])
    return later


def test_a_store_that_was_set_back_makes_the_same_again(tmp_path: Path, key: Any, whole: Any) -> None:
    set_back(tmp_path / "s", key)
    work(tmp_path / "s", key)
    assert given_out(tmp_path / "s") == whole


def test_a_store_that_was_set_back_gives_out_nothing_that_differs(tmp_path: Path, key: Any) -> None:
    later = set_back(tmp_path / "s", key)
    old = given_out(tmp_path / "s")
    middle = SEEN[len(SEEN) * 3 // 5]
    changed = sorted(
        [*SEEN, *(middle._replace(device=f"a4:00:00:01:00:{n:02x}", time=middle.time + n) for n in range(40))]
    )
    end = parse_record(old[AUDIT][-1])["window_end"], parse_record(later[AUDIT][-1])["window_end"]
    with pytest.raises(FinalityError, match="the store was set back"):
        work(tmp_path / "s", key, changed)
    assert given_out(tmp_path / "s") == old, "not even the store itself holds what differs"
    assert end[0] < end[1]
    work(tmp_path / "s", key)
    assert given_out(tmp_path / "s")[AUDIT][: len(later[AUDIT])] == later[AUDIT]


def test_a_store_that_was_set_back_and_does_not_catch_up_says_so(tmp_path: Path, key: Any) -> None:
    set_back(tmp_path / "s", key)
    old = given_out(tmp_path / "s")
    with pytest.raises(FinalityError, match="do not lead it again to where what was published ends"):
        work(tmp_path / "s", key, SEEN[: len(SEEN) // 3])
    assert given_out(tmp_path / "s") == old


def test_a_production_key_serves_one_store(tmp_path: Path, production: Any) -> None:
    with embedded(POLICY, production, tmp_path / "one"):
        pass
    with (
        pytest.raises(UsageError, match="this production key belongs to store"),
        embedded(POLICY, production, tmp_path / "two"),
    ):
        pass
    with embedded(POLICY, production, tmp_path / "one"):
        pass


def test_a_production_key_steps_forward_with_the_store_and_the_past_cannot_be_drawn_again(
    tmp_path: Path, production: Any
) -> None:
    work(tmp_path / "s", production, SEEN[:150])
    shutil.copytree(tmp_path / "s", tmp_path / "backup")
    held = key_files.FileKeys(production).keys
    assert isinstance(held, ForwardKeys)
    first = held.first
    later = [row._replace(time=row.time + DAY) for row in SEEN[:150]]
    work(tmp_path / "s", production, later)
    keys = key_files.FileKeys(production)
    assert isinstance(keys.keys, ForwardKeys)
    assert keys.keys.first == first + 1
    with pytest.raises(KeyFileError):
        keys.noise_key(first)
    shutil.rmtree(tmp_path / "s")
    shutil.copytree(tmp_path / "backup", tmp_path / "s")
    with pytest.raises(KeyFileError, match="must contain the requested day"):
        work(tmp_path / "s", production, later)
    assert not [v for v in given_out(tmp_path / "s")[AUDIT] if parse_record(v)["laboratory"]]


def test_nothing_is_given_out_before_it_is_committed_and_marked(
    tmp_path: Path, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def noted(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            steps.append(name)
            return real(*args, **more)

        monkeypatch.setattr(owner, name, call)

    noted(SqliteStore, "commit")
    noted(SqliteStore, "deliver")
    noted(MarkFile, "advance")
    noted(key_files.FileKeys, "forget_before")
    work(tmp_path / "s", key, SEEN[:200])
    body = steps[steps.index("commit") :]
    assert len(body) > 80
    assert body == ["commit", "advance", "deliver", "forget_before"] * (len(body) // 4)


def test_a_mark_that_something_else_moves_between_two_commits_ends_the_run_before_the_second(
    tmp_path: Path, key: Any
) -> None:
    policy, before = building(), []
    coming = messages(SEEN[:200], policy)

    def going_on() -> None:
        with embedded(policy, key, tmp_path / "s") as run:
            while not read_state_and_entries(tmp_path / "s")[1]:
                run.process(next(coming))
            before.append(read_state_and_entries(tmp_path / "s"))
            mark = mark_path(key)
            mark.write_text(re.sub(r'"dbh": \[(\d+)', r'"dbh": [1\1', mark.read_text()))
            for message in coming:
                run.process(message)

    with pytest.raises(FinalityError, match=r"\.mark: was changed while a run was using the key"):
        going_on()
    assert [read_state_and_entries(tmp_path / "s")] == before


# --- subscribers -------------------------------------------------------------------------------------------


async def read(store: Path, **options: Any) -> list[dict[str, Any]]:
    return [record async for record in subscribe(store=store, audience="board", until_end=True, **options)]


async def test_a_subscriber_reads_its_outbox_alone(tmp_path: Path, key: Any) -> None:
    work(tmp_path / "s", key, SEEN[:300])
    (tmp_path / "s" / "store.sqlite").chmod(0)
    (tmp_path / "s" / "store.sqlite").rename(tmp_path / "s" / "gone")
    (tmp_path / "s" / "private" / "public.sqlite").rename(tmp_path / "gone")
    records = await read(tmp_path / "s", from_start=True)
    assert {record["audience"] for record in records} == {"board"}
    only = await read(tmp_path / "s", from_start=True, release="plain")
    assert only == [record for record in records if record["release"] == "plain"]
    assert await read(tmp_path / "s") == []


async def test_a_subscriber_goes_on_behind_a_release_at_its_site_and_begins_at_the_others(
    tmp_path: Path, key: Any
) -> None:
    policy = building(sites=("dbh", "dbh1"), releases=COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0])
    work(tmp_path / "s", key, people(hours=14, sites=2), policy=policy)
    records = await read(tmp_path / "s", from_start=True)
    at = next(n for n, record in enumerate(records) if record["site"] == "dbh" and n > 20)
    rest = await read(tmp_path / "s", after=records[at]["release_id"])
    wanted = [r for n, r in enumerate(records) if r["site"] == "dbh1" or n > at]
    assert rest == wanted
    with pytest.raises(UsageError, match="--after: must be a release id of this audience"):
        await read(tmp_path / "s", after="dbh/plain/board/2020-01-01T00:00:00Z")


def test_the_runner_is_what_the_tests_think_it_is(tmp_path: Path, key: Any) -> None:
    with embedded(POLICY, key, tmp_path / "s") as runner:
        assert isinstance(runner, Embedded)
    assert POLICY.site["dbh"].tick == 15 * MINUTE


def test_a_message_keeps_its_receive_time_over_a_restart(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "s")) as store:
        store.append(b"live", 1_772_442_000_000_000)
        store.append(b"recorded", None)
    with closing(SqliteStore(tmp_path / "s")) as store:
        assert list(store.pending_messages(0)) == [(0, b"live", 1_772_442_000_000_000), (1, b"recorded", None)]
