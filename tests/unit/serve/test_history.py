"""An index of released records: each once, in the order given, with how far its sources were read."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from connectors.serve.history.index import CONFIGURATION, HistoryError, Index
from connectors.serve.history.release_history import START, ReleaseHistory
from stream.errors import DataError, FinalityError, UsageError
from tests.unit.serve.released_history import CLOCKS, MONDAY, TICK, asked, attribute, history, window

RECORDS = [window(MONDAY + n * TICK, {"2011": n}) for n in range(1, 9)]


def ids(given: list[tuple[str, bytes]]) -> list[str]:
    return [identity for identity, _ in given]


def test_an_empty_history_has_no_newest_record() -> None:
    kept: ReleaseHistory = history()
    assert kept.newest("public") == START


def test_records_are_stored_once_and_reported_as_new_once() -> None:
    kept = history()
    assert kept.add(RECORDS[:3], {"outbox:public": 3}) == RECORDS[:3]
    assert kept.add(RECORDS[1:5], {"outbox:public": 5}) == RECORDS[3:5]
    assert kept.add([RECORDS[5], RECORDS[5]], {}) == RECORDS[5:6]
    assert [value for _, value in kept.since("public", START)] == RECORDS[:6]
    assert (kept.position("outbox:public"), kept.last("outbox:public")) == (5, ids(kept.since("public", START))[4])
    assert (kept.position("outbox:facilities"), kept.last("outbox:facilities")) == (None, None)


def test_a_record_with_other_bytes_is_refused_with_its_whole_batch() -> None:
    kept = history()
    kept.add(RECORDS[:2], {"outbox:public": 2})
    for batch in (
        [RECORDS[2], window(MONDAY + TICK, {"2011": 7})],
        [RECORDS[3], window(MONDAY + 4 * TICK, {"2011": 0})],
    ):
        with pytest.raises(FinalityError, match="dbh/occupancy/public/2026-03-02T00:"):
            kept.add(batch, {"outbox:public": 9})
    assert kept.position("outbox:public") == 2
    assert [value for _, value in kept.since("public", START)] == RECORDS[:2]


@pytest.mark.parametrize(
    "value",
    [
        b"{}", b"[1]", b"\xff", b'{"release_id": "dbh/occupancy/public/x"}',
        RECORDS[0].replace(b'"audience":"public"', b'"audience":"facilities"'),
        RECORDS[0].replace(b'"window_end":"2026', b'"window_end":"now'),
        RECORDS[0].replace(b'"noise_scale":{"2011":1.0}', b'"noise_scale":{"2011":0.0}'),
    ],
)  # fmt: skip
def test_other_records_are_refused_and_not_quoted(value: bytes) -> None:
    kept = history()
    with pytest.raises(DataError, match="record: must be") as refused:
        kept.add([RECORDS[0], value], {"outbox:public": 1})
    assert "2011" not in str(refused.value)
    assert (kept.newest("public"), kept.position("outbox:public")) == (START, None)


def test_reading_resumes_exactly_after_a_record() -> None:
    kept = history()
    kept.add(RECORDS[4:], {})
    kept.add(RECORDS[:4], {})  # came late: given late
    order = RECORDS[4:] + RECORDS[:4]
    given = kept.since("public", START, 3)
    while more := kept.since("public", given[-1][0], 3):
        given += more
    assert [value for _, value in given] == order
    assert kept.newest("public") == given[-1][0]


def test_an_audience_reads_only_its_own_records() -> None:
    kept = history()
    theirs = [window(MONDAY + n * TICK, {"2011": n}, audience="facilities") for n in range(1, 4)]
    kept.add([RECORDS[0], *theirs, RECORDS[1]], {})
    assert [value for _, value in kept.since("public", START)] == RECORDS[:2]
    assert [value for _, value in kept.since("facilities", START)] == theirs
    with pytest.raises(UsageError, match="after must be the id of a release of audience public"):
        kept.since("public", ids(kept.since("facilities", START))[0])
    assert kept.rows(asked(audience="nobody")).rows == []
    assert [row[3] for row in kept.rows(asked()).rows] == [1, 2]


@pytest.mark.parametrize("after", ["", "x", "dbh/occupancy/public/2026-03-02T00:05:00Z#2", "dbh/occupancy/public/noon"])
def test_an_unknown_release_id_is_refused_as_a_start(after: str) -> None:
    kept = history()
    kept.add(RECORDS, {})
    with pytest.raises(UsageError, match="after must be the id of a release"):
        kept.since("public", after)


def test_attributes_are_in_the_order_of_all_records() -> None:
    kept = history()
    records = [RECORDS[0], attribute("2026-03-02", "2065", released=True, value="09:05"), RECORDS[1]]
    kept.add(records, {})
    middle = ids(kept.since("public", START))[1]
    assert [value for _, value in kept.since("public", middle)] == [RECORDS[1]]


def test_the_file_contains_everything_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "index" / "history.duckdb"
    kept = ReleaseHistory(path, CLOCKS)
    kept.add(RECORDS, {"outbox:public": 8})
    before = kept.rows(asked("15min")).rows
    beside = {file.name for file in path.parent.iterdir()}
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}, beside
    kept.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    again = ReleaseHistory(path, CLOCKS)
    assert (again.rows(asked("15min")).rows, again.position("outbox:public")) == (before, 8)
    assert again.add(RECORDS, {}) == []
    again.close()


def test_a_folder_that_others_enter_and_a_file_that_is_no_index_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with pytest.raises(UsageError, match="only its owner"):
        ReleaseHistory(folder / "history.duckdb", CLOCKS)
    folder.chmod(0o700)
    (folder / "history.duckdb").write_bytes(b"something else" * 1000)
    with pytest.raises(HistoryError, match=r"history\.duckdb: must be a history"):
        ReleaseHistory(folder / "history.duckdb", CLOCKS)


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_error_of_the_database_is_told_by_the_name_of_its_history_and_its_kind(
    tmp_path: Path, in_memory: bool
) -> None:
    path = None if in_memory else tmp_path / "index" / "history.duckdb"
    index = Index(path)
    name = "history" if path is None else str(path)
    with (
        pytest.raises(HistoryError, match=f"^{re.escape(name)}: must be .*OutOfMemoryException") as told,
        index.reading(),
    ):
        raise duckdb.OutOfMemoryException("zone 2011")
    assert "2011" not in str(told.value)
    index.close()


def test_spilled_data_is_in_a_folder_of_its_owner_until_the_index_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(CONFIGURATION, "memory_limit", "12MB")
    kept, names = history(), [str(number) for number in range(400)]
    for start in range(1, 289, 24):
        values = [{name: (n * 37 + int(name) * 101) % 9973 for name in names} for n in range(start, start + 24)]
        kept.add([window(MONDAY + n * TICK, own) for n, own in enumerate(values, start)], {})
    (folder,) = (tmp_path / "scratch").iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"], "nothing is left where the service runs"
    assert len(kept.rows(asked(nodes=("zone:7",))).rows) == 288
    kept.close()
    assert not folder.exists()


def cached(kept: ReleaseHistory) -> int:
    """Return how many bytes of its file an index holds in memory."""
    with kept._index.reading() as cursor:
        query = "SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'BASE_TABLE'"
        return int(cursor.execute(query).fetchall()[0][0])


def test_what_was_added_and_read_does_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seen as the least that DuckDB says it holds: with the same records, and nothing let go of, it is a multiple."""
    monkeypatch.setitem(CONFIGURATION, "checkpoint_threshold", "16kB")
    stored, names = {}, [str(number) for number in range(100)]
    for releasing in (True, False):
        with monkeypatch.context() as patch:
            if not releasing:
                patch.setattr(Index, "_release_cache", lambda _: None)
            kept = ReleaseHistory(tmp_path / str(releasing) / "history.duckdb", CLOCKS)
            sizes = []
            for n in range(1, 101):
                kept.add([window(MONDAY + n * TICK, {name: n * int(name) % 997 for name in names})], {})
                sizes.append(cached(kept))
            stored[releasing] = min(sizes[-50:])
            assert len(kept.rows(asked(nodes=("zone:7",))).rows) == 100
            with kept._index.reading() as cursor:
                assert cursor.execute("SELECT current_setting('memory_limit')").fetchall() == [("244.1 MiB",)]
            kept.close()
    assert stored[True] < stored[False] / 2


def test_the_cache_is_kept_while_there_are_readers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = ReleaseHistory(tmp_path / "index" / "history.duckdb", CLOCKS)
    monkeypatch.setattr(kept._index, "_written", [0])  # what was added has gone into the file, it seems
    with kept._index.reading():
        kept.add(RECORDS[:1], {})
        assert kept._index._written == [0], "left for next time"
    kept.add(RECORDS[1:2], {})
    assert kept._index._written != [0]
    kept.close()


def test_an_index_whose_file_was_deleted_works_until_it_is_closed(tmp_path: Path) -> None:
    """Somebody has deleted it, to have it made again at the next start."""
    kept = ReleaseHistory(tmp_path / "index" / "history.duckdb", CLOCKS)
    (tmp_path / "index" / "history.duckdb").unlink()
    assert kept.add(RECORDS[:2], {}) == RECORDS[:2]
    assert kept.add(RECORDS, {}) == RECORDS[2:]
    kept.close()


def test_readers_and_a_writer_work_concurrently_and_closing_waits_for_them(tmp_path: Path) -> None:
    kept = ReleaseHistory(tmp_path / "index" / "history.duckdb", CLOCKS)
    kept.add(RECORDS[:1], {"outbox:public": 1})
    with ThreadPoolExecutor(8) as pool:
        asked_for = [pool.submit(kept.position, "outbox:public") for _ in range(400)]
        added = [pool.submit(kept.add, [record], {"outbox:public": 1}) for record in RECORDS[1:]]
        assert {each.result() for each in asked_for} == {1}
        assert [each.result() for each in added] == [[record] for record in RECORDS[1:]]
        reading, go_on = threading.Event(), threading.Event()

        def slow() -> bool:
            with kept._index.reading() as cursor:
                reading.set()
                go_on.wait(20)
                return bool(cursor.execute("FROM record").fetchall())

        last = pool.submit(slow)
        reading.wait(20)
        closing_it = pool.submit(kept.close)
        go_on.set()
        closing_it.result()
        assert last.result()


def test_an_index_of_another_format_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "index" / "history.duckdb"
    kept = ReleaseHistory(path, CLOCKS)
    kept.add(RECORDS, {"outbox:public": 8})
    kept.close()
    with duckdb.connect(str(path)) as database:
        database.execute("UPDATE meta SET format = 0")
    anew = ReleaseHistory(path, CLOCKS)
    assert (anew.newest("public"), anew.position("outbox:public")) == (START, None)
    assert anew.add(RECORDS, {}) == RECORDS
    anew.close()


def test_a_rebuilt_index_returns_the_same_rows() -> None:
    one, other = history(), history()
    one.add(RECORDS, {})
    for record in RECORDS:
        other.add([record], {})
    for granularity in ("5min", "15min", "1h", "1d"):
        assert one.rows(asked(granularity)) == other.rows(asked(granularity))
    assert one.since("public", START) == other.since("public", START)


def test_readers_and_a_writer_do_not_disturb_each_other() -> None:
    kept = history()
    records = [window(MONDAY + n * TICK, {"2011": n, "2065": 1}) for n in range(1, 201)]

    def read(_: int) -> bool:
        rows = kept.rows(asked(nodes=("zone:2011",))).rows
        return [row[3] for row in rows] == list(range(1, len(rows) + 1))

    def write() -> int:
        return sum(len(kept.add(records[n : n + 10], {"outbox:public": n + 10})) for n in range(0, 200, 10))

    with ThreadPoolExecutor(4) as pool:
        written = pool.submit(write)
        assert all(pool.map(read, range(40)))
        assert written.result() == 200
    assert kept.position("outbox:public") == 200
    assert [value for _, value in kept.since("public", START, 1000)] == records


@pytest.mark.parametrize(
    "tables", ["CREATE TABLE mine (a INTEGER)", "CREATE TABLE meta (a INTEGER)", "CREATE VIEW mine AS SELECT 1"]
)
def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path, tables: str) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "accounts.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(tables)
    with pytest.raises(HistoryError, match="must be a history"):
        ReleaseHistory(path, CLOCKS)
    with duckdb.connect(str(path)) as database:
        named = "SELECT sql FROM duckdb_tables() UNION ALL SELECT sql FROM duckdb_views() WHERE NOT internal"
        assert len(database.execute(named).fetchall()) == 1


def test_a_kill_during_creation_leaves_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is killed at the end of the tables has none of them: they come with the format that they have."""
    path = tmp_path / "index" / "history.duckdb"
    with monkeypatch.context() as killed:
        killed.setattr("connectors.serve.history.index.FORMAT", "no number")  # the last statement is not carried out
        with pytest.raises((HistoryError, duckdb.Error)):
            ReleaseHistory(path, CLOCKS)
    with duckdb.connect(str(path)) as database:
        assert database.execute("SELECT table_name FROM duckdb_tables()").fetchall() == []
    kept = ReleaseHistory(path, CLOCKS)
    assert kept.add(RECORDS, {}) == RECORDS
    kept.close()


def test_an_index_with_other_tables_is_emptied_and_filled_again(tmp_path: Path) -> None:
    path = tmp_path / "index" / "history.duckdb"
    kept = ReleaseHistory(path, CLOCKS)
    kept.add(RECORDS, {"outbox:public": 8})
    kept.close()
    with duckdb.connect(str(path)) as database:
        database.execute("ALTER TABLE release_window RENAME TO earlier_name")
    again = ReleaseHistory(path, CLOCKS)
    assert again.position("outbox:public") is None
    assert again.add(RECORDS, {}) == RECORDS
    again.close()
