"""Files of observations: rows, closing of windows, and bad rows."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from connectors.keys import key_files
from connectors.sources.recordings import observations, text_rows
from connectors.sources.recordings.dialect import FIELDS as COLUMNS
from connectors.sources.recordings.observations import ObservationFile, RecordedDays, shortfall
from stream.errors import DataError, UsageError
from stream.pipeline import Options, Pipeline
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Heartbeat, ObservationBatch
from stream.release.validation import load_policy
from stream.schemas import AUDIT, parse_time, rfc3339
from tests.support.patience import PATIENCE
from tests.support.small_building import (
    EVENING,
    PLAIN,
    SITE,
    SOURCES,
    Seen,
    access_point,
    bodies,
    building,
    laboratory,
    mac,
    people,
    policy_text,
    write_csv,
)

POLICY = building()
KEY = bytes(range(32))
V = POLICY.site[SITE].validity
TICK = POLICY.site[SITE].tick


def read(path: Path, policy: Any = POLICY) -> tuple[ObservationFile, list[Any]]:
    file = ObservationFile(path, policy, KEY)
    return file, list(file.messages())


def rows_of(messages: list[Any], site: str = SITE) -> list[Any]:
    return [row for item in messages if isinstance(item, ObservationBatch) and item.site == site for row in item.rows]


def text(tmp_path: Path, *lines: str, name: str = "o.csv", header: str = "time,device,access_point,site") -> Path:
    path = tmp_path / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


GOOD = f"{rfc3339(EVENING)},{mac(1)},{access_point('a')},{SITE}"
LATER = f"{rfc3339(EVENING + MINUTE)},{mac(2)},{access_point('b')},{SITE}"


# --- time ----------------------------------------------------------------------------------------------


def test_every_source_of_every_site_beats_at_each_tick_and_once_at_each_end(tmp_path: Path) -> None:
    policy = building(sites=(SITE, "dbh1"))
    first, last = EVENING + 100 * SECOND, EVENING + 50 * MINUTE
    _, made = read(
        write_csv(tmp_path / "o.csv", [Seen(first, mac(1), access_point("a")), Seen(last, mac(1), access_point("a"))]),
        policy,
    )
    beats = [(item.site, item.source, item.watermark - EVENING) for item in made if isinstance(item, Heartbeat)]
    end = 50 * MINUTE + V + 30 * SECOND
    for site in policy.site:
        for source in SOURCES:
            marks = [mark for of, by, mark in beats if (of, by) == (site, source)]
            assert marks == [100 * SECOND, 15 * MINUTE, 30 * MINUTE, 45 * MINUTE, 60 * MINUTE, end]


def test_each_site_beats_at_its_own_ticks_wherever_the_rows_are(tmp_path: Path) -> None:
    fast, _, both = policy_text(sites=("dbh1", SITE)).partition(f"[site.{SITE}]")
    policy = load_policy(fast.replace('tick = "15min"', 'tick = "5min"') + f"[site.{SITE}]" + both)
    rows = [Seen(EVENING + at * MINUTE, mac(1), access_point("a", 1)) for at in (1, 12, 20)]
    _, made = read(write_csv(tmp_path / "o.csv", rows), policy)
    beats = [item for item in made if isinstance(item, Heartbeat) and item.source == SOURCES[0]]
    for site, ticks in (("dbh1", (5, 10, 15, 20, 25, 30)), (SITE, (15, 30))):
        marks = [beat.watermark - EVENING for beat in beats if beat.site == site]
        assert marks == [MINUTE, *(tick * MINUTE for tick in ticks), 20 * MINUTE + V + 30 * SECOND]
    assert [beat.watermark for beat in beats] == sorted(beat.watermark for beat in beats)


def test_rows_come_before_the_heartbeat_of_their_tick_and_not_before_the_last_one(tmp_path: Path) -> None:
    seen = people(hours=14)
    _, made = read(write_csv(tmp_path / "o.csv", seen))
    mark = 0
    for item in made:
        if isinstance(item, Heartbeat):
            mark = item.watermark
        else:
            assert all(mark <= row.time <= mark // TICK * TICK + TICK for row in item.rows)


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (6 * MINUTE, TICK), (TICK - 1, TICK), (TICK, TICK)])
def test_the_first_window_is_the_first_tick_at_or_after_the_first_row(tmp_path: Path, offset: Any, first: Any) -> None:
    path = write_csv(tmp_path / "o.csv", [Seen(EVENING + offset, mac(1), access_point("a"))])
    made = Pipeline(POLICY, SITE, laboratory())
    states, outputs = made.initial(), []
    for item in read(path)[1]:
        states, more = made.step(states, item)
        outputs += more
    ends = sorted({parse_time(body["window_end"]) for body in bodies(outputs, AUDIT)})
    assert ends[0] == EVENING + first
    assert ends[-1] <= EVENING + offset + V
    assert ends == list(range(ends[0], EVENING + offset + V, TICK))


def test_at_the_end_nobody_is_left(tmp_path: Path) -> None:
    seen = people(hours=14)
    path = write_csv(tmp_path / "o.csv", seen)
    policy = building(tick="5min", releases=PLAIN)
    made = Pipeline(policy, SITE, laboratory(), Options(occupancy=True))
    states, outputs = made.initial(), []
    for item in read(path, policy)[1]:
        states, more = made.step(states, item)
        outputs += more
    windows = bodies(outputs, "tacet.occupancy.v1")
    last = parse_time(windows[-1]["window_end"])
    assert last < seen[-1].time + V <= last + 5 * MINUTE
    assert sum(windows[-1]["counts"].values()) > 0
    assert {window["coverage"] for window in windows} == {1.0}


def test_the_same_file_gives_the_same_messages_and_its_session_is_its_first_row(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "o.csv", people(hours=14))
    one, other = read(path)[1], read(path)[1]
    assert one == other
    assert {item.session for item in one} == {EVENING + 1_000}
    sequences = [item.sequence for item in one if isinstance(item, ObservationBatch)]
    assert sequences == list(range(len(sequences)))


def test_no_batch_holds_more_than_a_thousand_rows(tmp_path: Path) -> None:
    seen = [Seen(EVENING + n, mac(n), access_point("a")) for n in range(5000)]
    batches = [item for item in read(write_csv(tmp_path / "o.csv", seen))[1] if isinstance(item, ObservationBatch)]
    assert max(len(batch.rows) for batch in batches) <= 1000
    assert len(rows_of(batches)) == 5000


def test_a_gap_of_a_night_is_closed_window_by_window(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "o.csv", [Seen(EVENING, mac(1), access_point("a")), Seen(EVENING + DAY, mac(1), access_point("a"))]
    )
    beats = [item.watermark for item in read(path)[1] if isinstance(item, Heartbeat) and item.source == SOURCES[0]]
    assert sorted({mark for mark in beats if mark % TICK == 0}) == list(range(EVENING, EVENING + DAY + 1, TICK))


# --- names ---------------------------------------------------------------------------------------------


def test_devices_are_named_and_addresses_do_not_pass(tmp_path: Path) -> None:
    _, made = read(write_csv(tmp_path / "o.csv", people(hours=14)))
    names = {row.device for row in rows_of(made)}
    assert all(len(name) == 16 and set(name) <= set("0123456789abcdef") for name in names)
    assert "a4:00" not in repr(made)
    assert "a40000" not in repr(made)


def test_at_midnight_utc_the_old_name_ends_where_the_new_one_begins(tmp_path: Path) -> None:
    midnight = parse_time("2026-03-03T00:00:00Z")
    seen = [Seen(midnight - MINUTE, mac(1), access_point("a")), Seen(midnight + MINUTE, mac(1), access_point("b"))]
    names = Pseudonyms.daily(KEY)
    day = midnight // DAY
    address = bytes.fromhex(mac(1).replace(":", ""))
    wanted = [
        (names.name(address, day - 1), access_point("a"), midnight - MINUTE),
        (names.name(address, day - 1), None, midnight + MINUTE),
        (names.name(address, day), access_point("b"), midnight + MINUTE),
    ]
    assert rows_of(read(write_csv(tmp_path / "o.csv", seen))[1]) == wanted
    late = [seen[0], seen[1]._replace(time=midnight - MINUTE + V + 1)]
    assert len(rows_of(read(write_csv(tmp_path / "o.csv", late))[1])) == 2, "its stay has ended by itself"


def test_a_name_ends_at_the_site_where_it_was_seen(tmp_path: Path) -> None:
    """Seen at two sites around midnight: at neither of them is the device there under two names."""
    policy = building(sites=(SITE, "dbh1"))
    midnight = parse_time("2026-03-03T00:00:00Z")
    seen = [
        Seen(midnight - 2 * MINUTE, mac(1), access_point("a")),
        Seen(midnight + MINUTE, mac(1), access_point("a", 1), "dbh1"),
        Seen(midnight + 3 * MINUTE, mac(1), access_point("a")),
    ]
    made = read(write_csv(tmp_path / "o.csv", seen), policy)[1]
    assert [row.access_point is None for row in rows_of(made)] == [False, True, False]
    assert [row.access_point is None for row in rows_of(made, "dbh1")] == [False]


# --- bad rows ---------------------------------------------------------------------------------------------

TIME = "time must be RFC 3339 with an offset (or local to the site without one), from 1970 to 2254"
TWICE = "time must have an offset in the hour in which the site's clocks are set back"
DEVICE = "device must be a MAC address, such as a4:00:00:00:00:01 or a400.0000.0001"
RADIO = "access_point must be a radio address such as 5c:52:1e:00:20:65, or a name that the policy lists"
PLACE = "site must be one of the policy's"
FIELDS = "must have the fields that the first line names"
STRAY = "time must be at most 7 days from the rest of the recording if --to is not given"

BAD = [
    (f"yesterday,{mac(1)},{access_point('a')},{SITE}", TIME),
    (f"2026-03-08T02:30:00,{mac(1)},{access_point('a')},{SITE}", TIME),
    (f"2026-11-01T01:30:00,{mac(1)},{access_point('a')},{SITE}", TWICE),
    (f"1969-12-31T23:59:59Z,{mac(1)},{access_point('a')},{SITE}", TIME),
    (f"9999-01-01T00:00:00Z,{mac(1)},{access_point('a')},{SITE}", TIME),
    (f"{rfc3339(EVENING)},somebody,{access_point('a')},{SITE}", DEVICE),
    (f"{rfc3339(EVENING)},a4-00-00:00-00-01,{access_point('a')},{SITE}", DEVICE),
    (f"{rfc3339(EVENING)},{mac(1)},lobby,{SITE}", RADIO),
    (f"{rfc3339(EVENING)},{mac(1)},{access_point('a')},elsewhere", PLACE),
    (f"{rfc3339(EVENING)},{mac(1)},{access_point('a')}", FIELDS),
    (f"{rfc3339(EVENING)},{mac(1)},{access_point('a')},{SITE},more", FIELDS),
    ('"' + GOOD, FIELDS),
    ('"' + "x" * 200_000 + '"' + GOOD, FIELDS),
    ("\0\0\0", FIELDS),
    ("x" * (1 << 20) + GOOD, "must be at most 1 MiB long"),
]


@pytest.mark.parametrize(("line", "rule"), BAD, ids=range(len(BAD)))
def test_a_bad_row_loses_only_itself_and_is_named_by_line_and_rule(tmp_path: Path, line: Any, rule: Any) -> None:
    file, made = read(text(tmp_path, GOOD, line, LATER))
    assert (file.tally.rows, file.tally.bad, file.tally.problems) == (3, 1, [f"line 3: {rule}"])
    assert [row.time for row in rows_of(made)] == [EVENING, EVENING + MINUTE]
    problem = str(shortfall(file.tally))
    assert problem == f"1 bad row was left out:\n  line 3: {rule}"


def test_many_bad_rows_are_told_once_for_each_rule_with_the_first_line_and_their_number(tmp_path: Path) -> None:
    wrong = f"yesterday,{mac(1)},{access_point('a')},{SITE}"
    file, _ = read(text(tmp_path, *["bad"] * 5001, wrong, GOOD, "bad"))
    assert str(shortfall(file.tally)) == (
        f"5,003 bad rows were left out:\n  line 2: {FIELDS}; 5,001 like it\n  line 5003: {TIME}"
    )
    assert shortfall(read(text(tmp_path, GOOD))[0].tally) is None


def test_the_figures_of_a_file_s_rows_are_told_to_programs(tmp_path: Path) -> None:
    file, _ = read(text(tmp_path, f"{rfc3339(EVENING)},{mac(1)},{access_point('a')},{SITE}", "soon,x,y,z"))
    figures = file.tally.figures()
    assert figures == {
        "rows": 2, "bad": 1, "strays": 0, "incomplete": 0, "outside": 0, "unknown_access_points": 0,
        "locally_administered": file.tally.locally_administered, "problems": file.tally.problems,
    }  # fmt: skip
    assert len(figures["problems"]) == 1


def test_a_site_that_closed_is_told_however_few_rows_came_after(tmp_path: Path) -> None:
    tally = read(text(tmp_path, *[GOOD] * 500))[0].tally
    assert shortfall(tally, {"late": 1}) is None
    problem = str(shortfall(tally, {"site_shut": 1}))
    assert problem == "A site has more devices than its max_devices: it was suspended, and 1 rows were dropped."


@pytest.mark.parametrize("value", ["[1]", "5", "null", "{}", '"x"', "true", "1e400", "{"])
@pytest.mark.parametrize("field", COLUMNS)
def test_a_bad_value_in_json_lines_loses_only_its_row(tmp_path: Path, field: Any, value: Any) -> None:
    good = {"time": rfc3339(EVENING), "device": mac(1), "access_point": access_point("a"), "site": SITE}
    bad = json.dumps(good | {field: "@"}).replace('"@"', value)
    path = tmp_path / "o.jsonl"
    path.write_text(f"{json.dumps(good)}\n\n{bad}\n{json.dumps(good)}\n")
    file, made = read(path)
    assert len(rows_of(made)) == 2
    assert file.tally.bad == 1
    assert file.tally.problems[0].startswith("line 3: ")


def test_an_access_point_of_another_site_is_a_bad_row_and_an_unlisted_one_is_counted(tmp_path: Path) -> None:
    policy = building(sites=(SITE, "dbh1"))
    foreign = f"{rfc3339(EVENING)},{mac(1)},{access_point('a', 1)},{SITE}"
    unlisted = f"{rfc3339(EVENING)},{mac(1)},02:ff:ff:ff:ff:ff,{SITE}"
    file, made = read(text(tmp_path, GOOD, foreign, unlisted), policy)
    assert (file.tally.bad, file.tally.unknown_access_points, len(rows_of(made))) == (1, 1, 1)


# --- times that cannot be ---------------------------------------------------------------------------------


def sightings(tmp_path: Path, *offsets: int) -> Path:
    """Write a file with a row at each of these offsets from the evening."""
    return write_csv(tmp_path / "o.csv", [Seen(EVENING + offset, mac(1), access_point("a")) for offset in offsets])


DENSE = tuple(n * MINUTE for n in range(60))
YEAR = 365 * DAY


@pytest.mark.parametrize("wrong", [YEAR, 200 * YEAR, 7 * DAY + 60 * MINUTE])
@pytest.mark.parametrize("place", [0, 1, 12, 30, 60])
def test_a_row_more_than_a_week_ahead_loses_only_itself_wherever_it_stands(
    tmp_path: Path, wrong: Any, place: Any
) -> None:
    file, made = read(sightings(tmp_path, *DENSE[:place], wrong, *DENSE[place:]))
    assert file.tally.problems == [f"line {place + 2}: {STRAY}"]
    assert [row.time - EVENING for row in rows_of(made)] == list(DENSE)
    assert max(item.watermark for item in made if isinstance(item, Heartbeat)) < EVENING + DAY
    assert file.first == EVENING


@pytest.mark.parametrize("place", [0, 1, 12])
def test_a_first_row_of_last_year_does_not_begin_the_recording(tmp_path: Path, place: Any) -> None:
    file, made = read(sightings(tmp_path, *DENSE[:place], -YEAR, *DENSE[place:]))
    assert (file.first, file.tally.strays, len(rows_of(made))) == (EVENING, 1, len(DENSE))


def test_a_gap_of_a_week_is_a_gap(tmp_path: Path) -> None:
    file, made = read(sightings(tmp_path, *DENSE, DENSE[-1] + 7 * DAY))
    assert (file.tally.bad, len(rows_of(made))) == (0, len(DENSE) + 1)


def test_a_longer_gap_is_told_with_its_way_out_and_believed_where_until_covers_it(tmp_path: Path) -> None:
    after = tuple(10 * DAY + offset for offset in DENSE)
    path = sightings(tmp_path, *DENSE, *after, 30 * DAY)
    file, made = read(path)
    assert (file.tally.strays, len(rows_of(made))) == (len(DENSE) + 1, len(DENSE))
    assert str(shortfall(file.tally)) == (
        f"61 bad rows were left out:\n  line 62: {STRAY}; 60 like it\n"
        "Give --to to accept a gap of more than 7 days, or put the rows after it into another file."
    )
    until = ObservationFile(path, POLICY, KEY, until=EVENING + 11 * DAY)
    assert len(rows_of(list(until.messages()))) == 2 * len(DENSE)
    assert (until.tally.bad, until.tally.outside) == (0, 1)


def test_a_file_that_is_taken_from_a_time_on_begins_there(tmp_path: Path) -> None:
    path = sightings(tmp_path, *DENSE)
    late = ObservationFile(path, POLICY, KEY, since=EVENING + 2 * TICK)
    assert late.begin() == EVENING + 2 * TICK
    made = list(late.messages())
    assert {item.session for item in made} == {EVENING + 2 * TICK}
    assert min(item.watermark for item in made if isinstance(item, Heartbeat)) == EVENING + 2 * TICK


def test_a_file_of_bad_rows_gives_its_reader_pauses(tmp_path: Path) -> None:
    path = text(tmp_path, *[GOOD] * 30, *["bad"] * 10_000, GOOD)
    steps = list(ObservationFile(path, POLICY, KEY).steps())
    assert steps.count(None) > 15


def test_each_pass_over_the_rows_is_reported_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "PROGRESS_ROWS", 1)
    reported = list[tuple[Any, ...]]()
    list(
        ObservationFile(
            text(tmp_path, GOOD, LATER), POLICY, KEY, progress=lambda *each: reported.append(each)
        ).messages()
    )
    assert reported == [(2,), (2, 2, "rows counted")]


# --- forms ------------------------------------------------------------------------------------------------


def test_columns_may_come_in_any_order_quoted_with_others_and_in_any_case(tmp_path: Path) -> None:
    path = text(
        tmp_path, f'"x","{SITE}","{access_point("a").upper()}",{mac(1).upper()},{rfc3339(EVENING)}',
        header="note,site,access_point,device,time",
    )  # fmt: skip
    assert rows_of(read(path)[1]) == rows_of(read(text(tmp_path, GOOD, name="p.csv"))[1])


@pytest.mark.parametrize("prefix", ["\ufeff", ""])
def test_marks_and_line_ends_of_other_systems_are_read(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "o.csv"
    path.write_bytes((prefix + "time,device,access_point,site\r\n" + GOOD + "\r\n\r\n" + LATER).encode())
    file, made = read(path)
    assert (len(rows_of(made)), file.tally.bad) == (2, 0)


def test_a_packed_file_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    plain = write_csv(tmp_path / "o.csv", people(hours=14))
    packed = tmp_path / "o.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read(packed)[1] == read(plain)[1]
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-2000])
    with pytest.raises(DataError, match=r"o\.csv\.gz: cannot be read to its end; nothing is released"):
        next(ObservationFile(packed, POLICY, KEY).messages())
    packed.write_bytes(plain.read_bytes())
    with pytest.raises(UsageError, match=r"o\.csv\.gz: cannot be read"):
        read(packed)


@pytest.mark.parametrize("name", ["o.csv.gz", "o.jsonl.gz"])
def test_a_line_without_end_in_a_packed_file_is_a_bad_row_and_never_held_whole(
    tmp_path: Path, name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty kilobytes of it unpack to fifty megabytes: less than what is refused as a bomb."""
    good = {"time": rfc3339(EVENING), "device": mac(1), "access_point": access_point("a"), "site": SITE}
    lines = [json.dumps(good)] if "jsonl" in name else ["time,device,access_point,site", GOOD]
    path, stored = tmp_path / name, []
    with gzip.open(path, "wt") as file:
        file.write("\n".join([*lines, ""]))
        for _ in range(50):
            file.write("x" * (1 << 20))
        file.write("\n" + lines[-1] + "\n")
    real = io.TextIOWrapper.readline
    opened = text_rows.open_text

    def watched(path: Path) -> Any:
        file = opened(path)
        assert isinstance(file, io.TextIOWrapper)

        def readline(size: int) -> str:
            stored.append(real(file, size))
            return stored[-1]

        return SimpleNamespace(readline=readline)

    monkeypatch.setattr("connectors.sources.recordings.observations.open_text", lambda path: nullcontext(watched(path)))
    found, made = read(path)
    assert (len(rows_of(made)), found.tally.problems) == (2, [f"line {len(lines) + 1}: must be at most 1 MiB long"])
    assert max(map(len, stored)) <= (1 << 20) + 1


def test_a_missing_column_or_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must name the columns time, device, access_point, site; device is missing"):
        read(text(tmp_path, header="time,mac,access_point,site"))
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none.csv")
    assert read(text(tmp_path))[1] == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_recording_covers_its_longest_period_whether_rows_come_one_by_one_or_together(at_once: bool) -> None:
    days, times = RecordedDays(), np.array([DAY + 1, DAY + 2, 10 * DAY + 5, 10 * DAY + 3, 10 * DAY + 9], dtype=np.int64)
    if at_once:
        days.add_all(times)
    else:
        for time in times.tolist():
            days.add(time)
    assert days.span(None, None) == (10 * DAY + 3, 10 * DAY + 9)


def test_bad_rows_end_the_command_with_code_3_after_the_rest_was_done(tmp_path: Path) -> None:
    path = text(tmp_path, GOOD, "nonsense,a4:5e:60:c0:ff:ee,x,y", LATER)
    (tmp_path / "p.toml").write_text(policy_text())
    tacet = [sys.executable, "-m", "connectors"]
    key_files.create(tmp_path / "k", laboratory=True)
    done = subprocess.run(
        [*tacet, "replay", str(path), "--policy", "p.toml", "--key-file", "k", "--out", "out"],
        cwd=tmp_path, timeout=PATIENCE, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "line 3: time" in done.stderr
    assert "nonsense" not in done.stderr + done.stdout
    assert "c0:ff:ee" not in done.stderr + done.stdout
    assert (tmp_path / "out" / "audit.jsonl").exists()
