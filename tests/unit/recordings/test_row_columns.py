"""Rows read by column equal rows read one by one, bad ones included."""

from __future__ import annotations

import gzip
import random
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from connectors.sources.recordings import observations, playback
from connectors.sources.recordings.dialect import Dialect, instants
from connectors.sources.recordings.observations import PAUSE_ROWS, ObservationFile
from connectors.sources.recordings.row_sort import RowSort
from connectors.sources.recordings.rows import MOST_KNOWN, Known, RowColumns, RowRules, plain_instants
from stream.encoding import encode_message
from stream.records import Heartbeat, ObservationBatch
from stream.release.validation import load_policy
from stream.schemas import parse_time, rfc3339

TEXT = """
[site.hall]
sources = ["10.2.0.5", "10.2.0.6"]
timezone = "Europe/Berlin"
zones = [{ id = "a", capacity = 4, access_points = ["02:00:00:00:00:01"], access_point_names = ["Foyer"] },
         { id = "b", capacity = 4, base_radio = "02:00:00:00:01:00/44" }]
[site.annex]
sources = ["10.2.0.5"]
tick = "15min"
day_starts = "04:00"
contribution = "6h"
zones = [{ id = "c", capacity = 4, access_points = ["02:00:00:00:00:03"] }]
"""
AUDIENCE = """
[[audience]]
name = "public"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""
POLICY = load_policy(TEXT + AUDIENCE)
KEY = bytes(32)
BEGIN = parse_time("2026-03-29T00:30:00Z")
"""An hour before the clocks of both sites are set forward, and some before a privacy day starts."""
SPAN = 4 * 3600 * 10**6

PLAIN = (
    "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z", "2026-03-02T12:00:00Z", "2026-03-02T23:59:59.999999Z",
    "2024-02-29T00:00:00Z", "2254-12-31T23:59:59Z", "2000-02-29T12:34:56.123456Z",
)  # fmt: skip
OTHERS = (
    "", "soon", "2026-03-02T12:00:00", "2026-03-02 12:00:00Z", "2026-03-02T12:00:00z",
    "2026-03-02T12:00:00+01:00", "2026-03-02T12:00:00.5Z", "2026-03-02T12:00:00.123Z",
    "2026-03-02T12:00:00,123456Z", "2026-02-30T12:00:00Z", "2025-02-29T00:00:00Z", "2026-13-02T12:00:00Z",
    "2026-00-02T12:00:00Z", "2026-03-00T12:00:00Z", "0000-01-01T00:00:00Z", "2026-03-02T24:00:00Z",
    "2026-03-02T12:60:00Z", "2026-03-02T12:00:60Z", "1969-12-31T23:59:59Z", "2256-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "2026-03-02T12:00:00Z\0", "2026-03-02T12:00:00Z ",
    "2026-03-02T12:00:00.000000Z\0", "2026-03-02T12:00:00.000000Zx", "２026-03-02T12:00:00Z",
    "2026-03-02T12:00:00.00000xZ", "2026/03/02T12:00:00Z", "2026-03-02T12-00-00Z", "-026-03-02T12:00:00Z",
    "2026-03-02T1 :00:00Z", "20260302T120000.000Z", "2026-W10-1T12:00:00Z",
)  # fmt: skip


def test_plain_instants_are_those_of_each_text_by_itself() -> None:
    times, plain = plain_instants([*PLAIN, *OTHERS])
    assert plain.tolist() == [True] * len(PLAIN) + [False] * len(OTHERS)
    expected = [instants(text, ZoneInfo("UTC")) for text in PLAIN]
    assert [(time,) for time in times[: len(PLAIN)].tolist()] == expected


def test_what_looks_plain_is_an_instant_and_any_digit_may_be_wrong() -> None:
    rng = random.Random(1)
    texts = []
    for _ in range(20_000):
        letters = list(rng.choice(PLAIN))
        for _ in range(rng.randrange(1, 3)):
            letters[rng.randrange(len(letters))] = rng.choice("00112233456789:-TZ. \0٣")
        texts.append("".join(letters))
    times, plain = plain_instants(texts)
    assert 0.1 < plain.mean() < 0.9, "both kinds must be tried"
    for text, time, well in zip(texts, times.tolist(), plain.tolist(), strict=True):
        if well:
            assert instants(text, ZoneInfo("UTC")) == (time,), text


# --- a whole file -------------------------------------------------------------------------------------

DEVICES = [f"a4:00:00:00:00:{number:02x}" for number in range(40)] + ["A600.0000.0001", "a6-00-00-00-00-02"]
POINTS = ("02:00:00:00:00:01", "02-00-00-00-00-01", "foyer", "02:00:00:00:01:07", "02:00:00:00:00:03")
SITES = ("hall", "hall", "hall", "hall", "annex")
BAD: tuple[tuple[int, tuple[Any, ...]], ...] = (
    (0, ("soon", "2026-03-29T02:30:00", "2026-03-29T01:00:00", "2026-03-02T12:00:00Z\0", "")),
    (1, ("a4", "", "a4:00:00:00:00:zz", "somebody")),
    (2, ("02:00:00:00:0f:0f", "nowhere", "")),
    (3, ("hall", "annex", "elsewhere", "")),
)


def fields(rng: random.Random) -> list[Any]:
    at = rng.randrange(len(POINTS))
    time = BEGIN + rng.randrange(SPAN) // 10 ** rng.choice([0, 6]) * 10 ** rng.choice([0, 6])
    row: list[Any] = [rfc3339(min(time, BEGIN + SPAN)), rng.choice(DEVICES), POINTS[at], SITES[at]]
    if rng.random() < 0.1:
        place, values = rng.choice(BAD)
        row[place] = rng.choice(values)
    return row


def recording(folder: Path, seed: int, kind: str, rows: int = 3 * PAUSE_ROWS + 7) -> Path:
    rng = random.Random(seed)
    made = [fields(rng) for _ in range(rows)]
    if kind == "jsonl":
        for row in rng.sample(made, 20):
            row[rng.randrange(4)] = rng.choice([None, 7, ["x"], {"x": 1}, True, 1.5])
        names = ("time", "device", "access_point", "site")
        lines = [orjson.dumps(dict(zip(names, row, strict=True))).decode() for row in made]
        lines[5], lines[-1] = "[1]", "{"
    else:
        lines = ["time,device,access_point,site", *(",".join(row) for row in made)]
        lines[7], lines[9], lines[-1] = "a,b", "", '"' + made[0][0] + '",' + ",".join(made[0][1:])
    path = folder / f"rows.{kind}"
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    return path


def read(path: Path, **asked: Any) -> tuple[list[Any], dict[str, Any], list[str]]:
    file = ObservationFile(path, POLICY, KEY, **asked)
    messages = [each if isinstance(each, Heartbeat) else (each, tuple(each.rows)) for each in file.messages()]
    return messages, file.tally.figures(), file.tally.problems


ASKED: tuple[dict[str, int], ...] = (
    {},
    {"since": BEGIN + SPAN // 3 // 900_000_000 * 900_000_000, "until": BEGIN + SPAN // 2},
)


@pytest.mark.parametrize("ttl", [None, "1h"])
@pytest.mark.parametrize("few", [1, 16])
def test_names_that_turn_over_amid_it_end_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, ttl: str | None
) -> None:
    rng = random.Random(few)
    policy = (
        POLICY
        if ttl is None
        else load_policy(TEXT.partition("[site.annex]")[0] + AUDIENCE + f'[pseudonym]\nttl = "{ttl}"\n')
    )
    start = parse_time("2026-03-30T01:30:00Z") if ttl is None else BEGIN
    at = ("02:00:00:00:00:03", "annex") if ttl is None else ("02:00:00:00:00:01", "hall")
    times = [start + rng.randrange(SPAN) for _ in range(4000)]
    lines = [f"{rfc3339(time)},{rng.choice(DEVICES[:30])},{at[0]},{at[1]}" for time in times]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["time,device,access_point,site", *lines]) + "\n")
    monkeypatch.setattr(playback, "_FEW", few)
    by_column = list(ObservationFile(path, policy, KEY).messages())
    monkeypatch.setattr(playback, "_FEW", 1 << 30)
    by_row = list(ObservationFile(path, policy, KEY).messages())
    assert by_column == by_row
    ends = [
        row for each in by_column if isinstance(each, ObservationBatch) for row in each.rows if row.access_point is None
    ]
    assert ends, "names must end"
    assert [encode_message(each) for each in by_column] == [encode_message(each) for each in by_row]


@pytest.mark.parametrize("held", [1 << 17, 700, 100], ids=["held", "two runs", "many runs"])
def test_more_rows_than_are_held_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    path = recording(tmp_path, 4, "csv")
    whole = read(path)
    monkeypatch.setattr(observations, "RowSort", partial(RowSort, held, 64))
    assert read(path) == whole


@pytest.mark.parametrize("asked", ASKED, ids=["all", "range"])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl"])
@pytest.mark.parametrize("seed", range(2))
def test_a_file_gives_the_same_messages_and_problems_by_column_and_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kind: str, asked: dict[str, Any]
) -> None:
    path = recording(tmp_path, seed, kind)
    by_column = read(path, **asked)
    monkeypatch.setattr(RowColumns, "read", lambda _, rows: (None, rows))
    monkeypatch.setattr(playback, "_FEW", 1 << 30)
    assert by_column == read(path, **asked)
    assert by_column[1]["rows"] > 3 * PAUSE_ROWS
    assert by_column[1]["bad"] > 60
    assert len(by_column[2]) >= 5
    assert by_column[1]["unknown_access_points"] > 0
    assert by_column[1]["locally_administered"] > 0


def test_most_rows_are_read_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recording(tmp_path, 1, "csv")
    alone: list[int] = []
    one = ObservationFile._read_row

    def counted(self: ObservationFile, line: int, *row: object) -> str | None:
        alone.append(line)
        return one(self, line, *row)

    monkeypatch.setattr(ObservationFile, "_read_row", counted)
    messages, figures, _ = read(path)
    assert messages
    assert len(alone) <= figures["bad"] + figures["unknown_access_points"] + 20


def test_a_dialect_that_names_no_site_or_counts_seconds_is_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    mapped = {"time": "time", "device": "device", "access_point": "access_point"}
    for dialect, when in (
        (Dialect(mapped), rfc3339),
        (Dialect(mapped, times="seconds"), lambda time: f"{time / 10**6:.6f}"),
        (Dialect(mapped, devices="opaque"), rfc3339),
    ):
        lines = [f"{when(BEGIN + rng.randrange(SPAN))},{rng.choice(DEVICES)},{rng.choice(POINTS)}" for _ in range(3000)]
        path = tmp_path / "theirs.csv"
        path.write_text("\n".join(["time,device,access_point", *lines]) + "\n")
        by_column = read(path, dialect=dialect)
        with monkeypatch.context() as patch:
            patch.setattr(RowColumns, "read", lambda _, rows: (None, rows))
            assert read(path, dialect=dialect) == by_column
        assert by_column[1]["bad"] == 0


def test_rows_are_handed_on_in_small_numbers_to_a_caller_with_other_things_to_do(tmp_path: Path) -> None:
    path = recording(tmp_path, 1, "csv", rows=5 * PAUSE_ROWS)
    file = ObservationFile(path, POLICY, KEY)
    steps = file.steps()
    for turn in range(1, 4):
        assert next(steps) is None
        assert file.tally.rows == turn * PAUSE_ROWS


def test_what_is_known_is_bounded() -> None:
    known: Known[int, int] = Known(lambda key: -key)
    assert [known[number] for number in range(MOST_KNOWN + 5)] == [-number for number in range(MOST_KNOWN + 5)]
    assert len(known) == 5


def test_a_certain_row_is_what_the_rules_say_it_is() -> None:
    rules = RowRules(POLICY)
    row = ("2026-03-29T01:00:00Z", "a4:00:00:00:00:01", "foyer", "hall")
    found, others = RowColumns(rules, Dialect()).read([(2, row)])
    assert found is not None
    assert not others
    sighting = rules.read(*row)
    assert sighting == (found.times[0], found.addresses[0], found.places[0])
