"""Tables of counts: bad rows, distinct times, and what is reported."""

from __future__ import annotations

import csv
import gzip
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result

from connectors.cli.main import tacet
from connectors.keys import key_files
from connectors.tables.counts import LARGEST_COUNT, Table, TableRelease, read_table, release_file
from stream.errors import DataError, UsageError
from stream.keys import LaboratoryKeys
from stream.mechanisms.noise_parameters import laplace_noise
from stream.records import DAY
from stream.schemas import parse_time, rfc3339
from tests.support.small_building import laboratory

UTC, WEST = ZoneInfo("UTC"), ZoneInfo("America/Los_Angeles")
T = [f"2026-03-02T10:{minute:02d}:00Z" for minute in (0, 5, 10)]
GOOD = [f"{time},{zone},{4 + place}" for time in T for place, zone in enumerate("ab")]


def table(tmp_path: Path, *lines: str, header: str = "time,zone,count", name: str = "c.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def report(made: Table) -> tuple[list[str], list[list[int]], list[str], int]:
    return [rfc3339(int(time)) for time in made.times], made.counts.tolist(), made.tally.problems, made.left_out


def release(path: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "mechanism": "laplace", "smoother": "median", "calendar": True, "noise": laplace_noise(Fraction(1)),
        "max_count": None, "timezone": "UTC",
    }  # fmt: skip
    return release_file(path, path.with_name("out.csv"), laboratory(), TableRelease(**settings | changes))


TIME = "time must be RFC 3339 with an offset (or local to --timezone without one), from 1970 to 2254"
ZONE = "zone must be a name"
COUNT = "count must be a whole number from 0 to 1000000000"
FIELDS = "must have the fields that the first line names"

BAD = [
    (f"{T[1]},b,-77", COUNT),
    (f"{T[1]},b,7.5", COUNT),
    (f"{T[1]},b,", COUNT),
    (f"{T[1]},b,\u00b2", COUNT),
    (f"{T[1]},b,{LARGEST_COUNT + 1}", COUNT),
    (f"{T[1]},b,{'7' * 23}", COUNT),
    (f"{T[1]},b,{'7' * 5000}", COUNT),
    (f"{T[1]},,5", ZONE),
    (f"{T[1]},b\ufffd,5", ZONE),
    ("yesterday,b,5", TIME),
    ("0001-01-01T00:00:00+14:00,b,5", TIME),
    ("9999-12-31T23:59:59-12:00,b,5", TIME),
    ("0001-01-01T00:00:00,b,5", TIME),
    (f"{T[1]},b", FIELDS),
    (f"{T[1]},b,5,6", FIELDS),
    ('"' + "x" * 200_000 + '"', FIELDS),
    ('"' + GOOD[3], FIELDS),
    (GOOD[3] + "x" * (1 << 20), "must be at most 1 MiB long"),
]


@pytest.mark.parametrize(("line", "field"), BAD, ids=range(len(BAD)))
def test_a_bad_row_costs_its_time_at_all_zones_and_nothing_else(tmp_path: Path, line: str, field: str) -> None:
    """A count that is not there must not pass for 0, and so neither may its zone's neighbours be told alone."""
    made = read_table(table(tmp_path, *GOOD[:3], line, *GOOD[4:]), UTC)
    assert report(made) == ([T[0], T[2]], [[4, 5], [4, 5]], [f"line 5: {field}"], 1)


def test_a_byte_that_is_no_text_costs_its_time(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(
        "\n".join(["time,zone,count", *GOOD]).encode().replace(f"{T[1]},b".encode(), f"{T[1]},\xe9".encode("latin-1"))
    )
    assert report(read_table(path, UTC))[2:] == ([f"line 5: {ZONE}"], 1)


def test_of_two_counts_of_a_zone_at_a_time_neither_is_taken(tmp_path: Path) -> None:
    made = read_table(table(tmp_path, *GOOD, f"{T[1]},b,9"), UTC)
    assert report(made) == ([T[0], T[2]], [[4, 5]] * 2, ["line 8: each pair of time and zone must appear once"], 1)


def test_a_time_without_every_zone_is_left_out_though_no_row_is_bad(tmp_path: Path) -> None:
    made = release(table(tmp_path, *GOOD[:3], *GOOD[4:]))
    assert (made.windows, made.bad, made.left_out) == (2, 0, 1)
    assert str(made.problem) == "1 time was left out, at which not every zone has one good count"


def test_what_is_left_of_a_table_is_released_and_the_bad_rows_end_it_with_code_3(tmp_path: Path) -> None:
    bad, key, out = table(tmp_path, *GOOD[:3], f"{T[1]},b,-77123", *GOOD[4:]), tmp_path / "key", tmp_path / "new.csv"
    key_files.create(key, laboratory=True)
    assert str(release(bad).problem) == (
        f"1 bad row was left out:\n  line 5: {COUNT}\n"
        "1 time was left out, at which not every zone has one good count"
    )  # fmt: skip
    done = run(bad, key, out, "--mechanism", "laplace", "--epsilon", "1")
    assert isinstance(done.exception, DataError)
    assert "77123" not in str(done.exception) + done.output
    with out.open() as file:
        assert [row["time"] for row in csv.DictReader(file)] == [T[0], T[0], T[2], T[2]]


def test_a_bad_row_without_a_time_is_reported_although_all_times_are_released(tmp_path: Path) -> None:
    made = release(table(tmp_path, *GOOD, "yesterday,b,5"))
    assert (made.windows, made.left_out) == (3, 0)
    assert str(made.problem).startswith(f"1 bad row was left out:\n  line 8: {TIME}")
    assert release(table(tmp_path, *GOOD)).problem is None


def test_the_noise_of_a_window_is_of_the_day_in_which_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows are as long as the shortest time between two of them, and five minutes if there is only one."""
    days: list[int] = []
    noise_key = LaboratoryKeys.noise_key

    def noted(keys: LaboratoryKeys, day: int) -> bytes:
        days.append(day)
        return noise_key(keys, day)

    monkeypatch.setattr(LaboratoryKeys, "noise_key", noted)
    first = parse_time("2026-03-02T00:00:00Z") // DAY
    for times, wanted in (
        (("2026-03-02T23:30:00Z", "2026-03-03T00:30:00Z", "2026-03-03T02:30:00Z"), {first, first + 1}),
        (("2026-03-02T23:30:00Z", "2026-03-03T00:30:00Z"), {first}),
        (("2026-03-03T00:30:00Z",), {first + 1}),
    ):
        days.clear()
        release(table(tmp_path, *(f"{time},a,1" for time in times)))
        assert set(days) == wanted


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "must have at least one row"),
        (["x,a,1"], "no time has one good count of every zone; 1 bad row was left out:\n  line 2: time must"),
        ([f"{T[0]},a,1", f"{T[1]},a,1", f"{T[2]},b,1"], "every zone must have a count at every time; one zone has 1"),
    ],
)
def test_a_table_of_which_nothing_is_left_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_table(table(tmp_path, *lines), UTC)


def test_the_hour_that_comes_twice_is_two_hours(tmp_path: Path) -> None:
    clock = ("00:30", "01:00", "01:30", "01:00", "01:30", "02:00")
    local = [f"2018-11-04T{time}:00,{zone},{place}" for place, time in enumerate(clock) for zone in "ab"]
    times = [f"2018-11-04T{time}:00Z" for time in ("07:30", "08:00", "08:30", "09:00", "09:30", "10:00")]
    offsets = [line.replace(":00,", f":00{'-07:00' if place < 6 else '-08:00'},") for place, line in enumerate(local)]
    for name, lines in (("local.csv", local), ("offset.csv", offsets)):
        made = read_table(table(tmp_path, *lines, name=name), WEST)
        assert report(made) == (times, [[place] * 2 for place in range(6)], [], 0)


def test_a_local_time_that_the_clocks_skip_is_no_time(tmp_path: Path) -> None:
    made = read_table(table(tmp_path, "2018-03-11T02:30:00,a,1", "2018-03-11T03:30:00,a,2"), WEST)
    assert report(made) == (["2018-03-11T10:30:00Z"], [[2]], [f"line 2: {TIME}"], 0)


FIVE = [f"2026-03-02T{hour:02d}:{minute:02d}:00Z" for hour in (10, 11, 12) for minute in range(0, 60, 5)]


@pytest.mark.parametrize("span", ["1h", "1d"])
def test_revised_values_are_written_for_every_time_and_nearer(tmp_path: Path, span: str) -> None:
    path = table(tmp_path, *(f"{time},{zone},{8 if '11:' in time else 2}" for time in FIVE for zone in "ab"))
    stored = {}
    for revise in (None, span):
        release(path, mechanism="filter", noise=laplace_noise(Fraction(1, 4)), revise=revise)
        rows = list(csv.DictReader((tmp_path / "out.csv").open()))
        assert [(row["time"], row["zone"]) for row in rows] == [(time, zone) for time in FIVE for zone in "ab"]
        error = sum(abs(int(row["value"]) - (8 if "11:" in row["time"] else 2)) for row in rows)
        stored[revise] = error, sum(int(row["half_width"]) for row in rows)
    assert stored[span] < stored[None]
    assert stored[span][1] < stored[None][1]


def test_only_the_filter_revises_a_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="revise must be used with filter"):
        release(table(tmp_path, *GOOD), mechanism="pegasus", revise="1h")


@pytest.mark.parametrize("form", ["mark", "packed", "lines of other systems"])
def test_tables_of_other_systems_are_read(tmp_path: Path, form: str) -> None:
    path, text = table(tmp_path, *GOOD), "\n".join(["time,zone,count", *GOOD])
    wanted = report(read_table(path, UTC))
    other = tmp_path / ("o.csv.gz" if form == "packed" else "o.csv")
    other.write_bytes(
        {"mark": ("\ufeff" + text).encode(), "packed": gzip.compress(text.encode()),
         "lines of other systems": text.replace("\n", "\r\n").encode()}[form]
    )  # fmt: skip
    assert report(read_table(other, UTC)) == wanted


def test_the_largest_count_is_released_without_wrapping(tmp_path: Path) -> None:
    path = table(tmp_path, *(f"{time},a,{LARGEST_COUNT}" for time in T))
    for mechanism in ("laplace", "pegasus"):
        release(path, mechanism=mechanism)
        with (tmp_path / "out.csv").open() as file:
            assert all(abs(int(row["value"]) - LARGEST_COUNT) < 1000 for row in csv.DictReader(file))


def test_a_grid_that_would_not_end_asks_for_max_count_and_tells_no_value(tmp_path: Path) -> None:
    path = table(tmp_path, *(f"{time},a,{LARGEST_COUNT}" for time in T))
    with pytest.raises(UsageError, match="give --max-count: the noisy counts exceed 1,048,576, the largest") as caught:
        release(path, mechanism="filter")
    assert "999" not in str(caught.value)
    assert "1000" not in str(caught.value)


def test_an_epsilon_that_pegasus_cannot_work_with_is_told_as_the_policy_tells_it(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=True)
    done = run(
        table(tmp_path, *GOOD), tmp_path / "key", tmp_path / "o", "--mechanism", "pegasus", "--epsilon", "0.000001"
    )
    assert str(done.exception) == "--epsilon: must be at least 0.00005 with pegasus, got '0.000001'"


def run(path: Path, key: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(tacet, ["release", str(path), "--key-file", str(key), "--out", str(out), *more])
