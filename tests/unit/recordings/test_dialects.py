"""Recordings in other formats: their columns, times and device names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.cli.options import read_policy
from connectors.keys import key_files
from connectors.sources.recordings.dialect import OWN, Dialect, dialect_of
from connectors.sources.recordings.observations import ObservationFile
from stream.errors import UsageError
from stream.records import MINUTE, ObservationBatch, Row
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time
from tests.support.small_building import EVENING, SITE, access_point, building, mac, people, policy_text, write_csv

KEY = bytes(32)
MAPPED = ("device=mac,access_point=ap", "time=when")
NAMED = policy_text().replace(
    f'access_points = ["{access_point("a")}"]',
    f'access_points = ["{access_point("a")}"]\naccess_point_names = ["AP-1"]',
)
assert policy_text() != NAMED


def rows(path: Path, dialect: Dialect, policy: Policy | None = None) -> tuple[list[Row], ObservationFile]:
    """Return the good rows of a file, as the log has them, and the file with its account of the bad ones."""
    file = ObservationFile(path, policy or building(), KEY, dialect=dialect)
    made = [row for item in file.messages() if isinstance(item, ObservationBatch) for row in item.rows]
    return made, file


def recording(folder: Path, *lines: str, header: str = "when,ap,mac") -> Path:
    path = folder / "theirs.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def spoken(path: Path, dialect: Dialect, policy: Policy | None = None) -> list[str]:
    """Return what is said of the bad rows."""
    return rows(path, dialect, policy)[1].tally.problems


# --- columns ------------------------------------------------------------------------------------------


def test_columns_are_those_that_are_declared_and_the_access_point_says_which_site(tmp_path: Path) -> None:
    lines = (f"2026-03-02T20:0{n}:00-08:00,{access_point('b', n)},{mac(1)},x" for n in (0, 1))
    path = recording(tmp_path, *lines, header="when,ap,mac,more")
    file = ObservationFile(path, building(sites=(SITE, "dbh1")), KEY, dialect=dialect_of(MAPPED))
    batches = [item for item in file.messages() if isinstance(item, ObservationBatch)]
    found = {(batch.site, row.access_point, row.time) for batch in batches for row in batch.rows}
    assert found == {(SITE, access_point("b"), EVENING), ("dbh1", access_point("b", 1), EVENING + MINUTE)}


def test_a_site_that_is_named_has_to_be_that_of_the_access_point(tmp_path: Path) -> None:
    path = recording(tmp_path, f"2026-03-02T20:00:00Z,{access_point('b')},{mac(1)},west", header="when,ap,mac,at")
    assert spoken(path, dialect_of([*MAPPED, "site=at"])) == ["line 2: site must be one of the policy's"]


@pytest.mark.parametrize(
    "columns",
    [
        "device",
        "device=",
        "device=a,device=b",
        "mac=device",
        "device=a,access_point=b",
        "device=a,access_point=a,time=c",
    ],
)
def test_columns_that_do_not_say_what_is_what_are_refused(columns: str) -> None:
    with pytest.raises(UsageError, match=r"^--columns: must "):
        dialect_of([columns])


def test_a_column_that_is_declared_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must name the columns when, mac, ap; when is missing"):
        rows(recording(tmp_path, header="time,mac,ap"), dialect_of(MAPPED))


def test_the_dialect_of_own_files_is_that_which_needs_no_declaration() -> None:
    assert dialect_of() == OWN


# --- times --------------------------------------------------------------------------------------------

AT = (
    ("rfc3339", "2026-03-03T04:00:00Z"),
    ("seconds", "1772510400"),
    ("seconds", "1772510400.000000"),
    ("milliseconds", "1772510400000"),
    ("milliseconds", "1772510400000.0009"),
)


@pytest.mark.parametrize(("times", "text"), AT)
def test_times_are_read_as_they_are_declared(tmp_path: Path, times: Any, text: str) -> None:
    made, _ = rows(recording(tmp_path, f"{text},{access_point('a')},{mac(1)}"), dialect_of(MAPPED, times=times))
    assert [row.time for row in made] == [EVENING]


@pytest.mark.parametrize(("value", "micros"), [(1772510400, 0), (1772510400.25, 250_000), ("1772510400.000001", 1)])
def test_numbers_of_json_lines_are_times_to_the_microsecond(tmp_path: Path, value: Any, micros: int) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text(json.dumps({"when": value, "ap": access_point("a"), "mac": mac(1)}) + "\n")
    made, _ = rows(path, dialect_of(MAPPED, times="seconds"))
    assert [row.time for row in made] == [EVENING + micros]


NO_TIMES = (
    ("seconds", "2026-03-03T04:00:00Z", "seconds"),
    ("seconds", "-1", "seconds"),
    ("seconds", "1e9", "seconds"),
    ("seconds", "1772510400000000", "seconds"),
    ("milliseconds", "1772510400000000000", "milliseconds"),
)


@pytest.mark.parametrize(("times", "text", "unit"), NO_TIMES)
def test_what_is_no_number_of_the_declared_unit_is_a_bad_row(tmp_path: Path, times: Any, text: str, unit: str) -> None:
    path = recording(tmp_path, f"{text},{access_point('a')},{mac(1)}")
    assert spoken(path, dialect_of(MAPPED, times=times)) == [
        f"line 2: time must be a number of {unit} since 1970, before 2255"
    ]


def test_a_time_without_an_offset_is_local_to_the_declared_zone_and_else_to_the_site(tmp_path: Path) -> None:
    path = recording(tmp_path, f"2026-03-02 20:00:00,{access_point('a')},{mac(1)}")
    assert rows(path, dialect_of(MAPPED))[0][0].time == EVENING
    berlin = rows(path, dialect_of(MAPPED, "Europe/Berlin"))[0][0].time
    assert berlin == parse_time("2026-03-02T20:00:00+01:00")


def test_an_offset_that_is_written_wins_over_the_declared_zone(tmp_path: Path) -> None:
    path = recording(tmp_path, f"2026-03-02T20:00:00-08:00,{access_point('a')},{mac(1)}")
    assert rows(path, dialect_of(MAPPED, "Europe/Berlin"))[0][0].time == EVENING


CLOCKS = (
    ("2026-03-29T02:30:00", "line 2: time must be RFC 3339 with an offset (or local to --timezone without one), from "),
    ("2026-10-25T02:30:00", "line 2: time must have an offset in the hour in which the site's clocks are set back"),
)


@pytest.mark.parametrize(("text", "rule"), CLOCKS)
def test_a_local_time_that_does_not_exist_or_exists_twice_is_a_bad_row(tmp_path: Path, text: str, rule: str) -> None:
    path = recording(tmp_path, f"{text},{access_point('a')},{mac(1)}")
    (problem,) = spoken(path, dialect_of(MAPPED, "Europe/Berlin"))
    assert problem.startswith(rule)


def test_a_zone_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--timezone: must be a name such as 'Europe/Berlin', got 'CET\+1'"):
        dialect_of(timezone="CET+1")


# --- devices and access points ------------------------------------------------------------------------

SPELT = ("A4-00-00-00-00-01", "a400.0000.0001", "a40000000001", "0xA40000000001", "a4:0:0:0:0:1")


@pytest.mark.parametrize("text", SPELT)
def test_however_an_address_is_spelt_it_is_the_same_device_at_the_same_place(tmp_path: Path, text: str) -> None:
    plain = recording(tmp_path, f"2026-03-02T20:00:00-08:00,{access_point('a')},{mac(1)}")
    expected, _ = rows(plain, dialect_of(MAPPED))
    radio = access_point("a").replace(":", "-").upper()
    assert rows(recording(tmp_path, f"2026-03-02T20:00:00-08:00,{radio},{text}"), dialect_of(MAPPED))[0] == expected


def test_an_access_point_may_be_named_as_the_policy_lists_it(tmp_path: Path) -> None:
    path = recording(tmp_path, f"2026-03-02T20:00:00-08:00,ap-1,{mac(1)}", f"2026-03-02T20:01:00-08:00,ap-9,{mac(1)}")
    made, file = rows(path, dialect_of(MAPPED), load_policy(NAMED))
    assert [row.access_point for row in made] == [access_point("a")]
    assert (file.tally.bad, file.tally.unknown_access_points) == (0, 1)


OPAQUE = Dialect(dialect_of(MAPPED).columns, devices="opaque")


def test_a_device_may_have_an_id_that_is_no_address(tmp_path: Path) -> None:
    line = "2026-03-02T20:0{}:00-08:00,{},{}"
    path = recording(tmp_path, *(line.format(n, access_point("ab"[n % 2]), f"visitor-{n // 2}") for n in range(4)))
    made, _ = rows(path, OPAQUE)
    assert [made[n].device == made[0].device for n in range(4)] == [True, True, False, False]
    assert "visitor" not in repr(made)


def test_an_id_that_looks_like_an_address_is_not_the_device_that_has_it(tmp_path: Path) -> None:
    path = recording(tmp_path, f"2026-03-02T20:00:00-08:00,{access_point('a')},{mac(1)}")
    assert rows(path, OPAQUE)[0][0].device != rows(path, dialect_of(MAPPED))[0][0].device
    assert rows(path, OPAQUE)[1].tally.locally_administered == 0


def test_an_id_may_be_a_number_in_json_lines_and_may_not_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    lines = [
        {"when": "2026-03-02T20:00:00-08:00", "ap": access_point("a"), "mac": each} for each in (17, "", "x" * 257)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made, file = rows(path, OPAQUE)
    assert (len(made), file.tally.problems) == (1, ["line 2: device must be an id of 1 to 256 characters; 1 like it"])


def test_without_a_declaration_an_id_is_a_bad_row(tmp_path: Path) -> None:
    path = recording(tmp_path, f"2026-03-02T20:00:00-08:00,{access_point('a')},visitor-1")
    (problem,) = spoken(path, dialect_of(MAPPED))
    assert problem.startswith("line 2: device must be a MAC address")
    assert "visitor" not in problem


# --- the verbs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy, a laboratory key, own observations, and the same in somebody else's dialect."""
    folder = tmp_path_factory.mktemp("dialects")
    (folder / "policy.toml").write_text(policy_text())
    key_files.create(folder / "key", laboratory=True)
    seen = people(hours=13, devices=4)
    write_csv(folder / "own.csv", seen)
    lines = (f"{row.time / 1000:.3f},{row.access_point.replace(':', '')},{row.device.upper()}" for row in seen)
    recording(folder, *lines)
    return folder


DECLARED = ("--columns", MAPPED[0], "--columns", MAPPED[1], "--times", "milliseconds")


def ran(scenario: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(tacet, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_replay_of_the_same_sightings_in_another_dialect_makes_the_same_bytes(scenario: Path) -> None:
    common = ("--policy", str(scenario / "policy.toml"), "--key-file", str(scenario / "key"), "--out")
    ran(scenario, "replay", str(scenario / "own.csv"), *common, str(scenario / "out-own"))
    ran(scenario, "replay", str(scenario / "theirs.csv"), *common, str(scenario / "out-theirs"), *DECLARED)
    own = files(scenario / "out-own")
    assert own == files(scenario / "out-theirs")
    assert sum(map(len, own.values())) > 10_000


def test_a_run_and_a_plan_take_the_same_dialect(scenario: Path) -> None:
    common = ("--policy", str(scenario / "policy.toml"), "--json")
    theirs = ("--observations", str(scenario / "theirs.csv"), *DECLARED)
    done = ran(
        scenario, "run", *common, "--key-file", str(scenario / "key"), "--store", str(scenario / "store"), *theirs
    )
    figures = json.loads(done.stdout)
    assert figures["bad"] == 0 < figures["rows"]
    (scenario / "init.toml").unlink(missing_ok=True)
    first = ("--from-observations", str(scenario / "theirs.csv"), "--columns", MAPPED[0], "--columns", MAPPED[1])
    ran(scenario, "policy", "init", *first, "--out", str(scenario / "init.toml"))
    assert read_policy(scenario / "init.toml").access_points().keys() <= {access_point(zone) for zone in "abcdxy"}


def test_a_dialect_without_a_recording_is_refused(scenario: Path) -> None:
    arguments = ["run", "--policy", str(scenario / "policy.toml"), "--key-file", str(scenario / "key"), "--store",
                 str(scenario / "none"), "--udp", "127.0.0.1:0", "--timezone", "UTC"]  # fmt: skip
    done = CliRunner().invoke(tacet, arguments)
    assert done.exit_code == 2
    assert "must be used with --observations" in done.output
