"""The files of a replay: what a restricted history must contain, and what a failed replay leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.sources.recordings.replay import _all_or_nothing, read_history, refuse_used
from stream.errors import DataError, UsageError
from stream.records import MINUTE
from stream.release.validation import Policy, load_policy
from stream.schemas import parse_time

POLICY = """
[site.dbh]
sources = ["10.2.0.5"]
zones = [
    { id = "hall", capacity = 30, access_points = ["5c:52:1e:00:20:01"] },
    { id = "lab", capacity = 30, access_points = ["5c:52:1e:00:20:02"] },
]
[[audience]]
name = "public"
[[release]]
name = "occupancy"
query = "count"
mechanism = "laplace"
epsilon = { public = "0.1" }
"""
TIMES = ["2026-03-02T12:00:00Z", "2026-03-02T12:05:00Z"]
COUNTS = [f"{time},dbh,{zone},{count}" for time in TIMES for zone, count in (("lab", 2), ("hall", 1))]
STAYS = ["dbh,p,hall,2026-03-02T12:00:00Z,2026-03-02T12:10:00Z"]


@pytest.fixture(name="policy")
def _policy() -> Policy:
    return load_policy(POLICY)


def history(folder: Path, counts: list[str], stays: list[str]) -> Path:
    (folder / "occupancy.csv").write_text("\n".join(["window_end,site,zone,count", *counts]) + "\n")
    (folder / "presence.csv").write_text("\n".join(["site,device,zone,start,end", *stays]) + "\n")
    return folder


def test_windows_are_in_order_and_have_the_zones_order(tmp_path: Path, policy: Policy) -> None:
    found = read_history(history(tmp_path, COUNTS[::-1], STAYS), policy)
    first = parse_time(TIMES[0])
    assert [(each.window_end, each.counts) for each in found.windows["dbh"]] == [
        (first, (1, 2)),
        (first + 5 * MINUTE, (1, 2)),
    ]
    assert found.stays == [("dbh", "p", "hall", first, first + 10 * MINUTE)]


@pytest.mark.parametrize(
    ("counts", "stays", "rule"),
    [
        (COUNTS[:-1], STAYS, "every zone of a site must have a count at every window"),
        ([f"{TIMES[0]},other,lab,2"], STAYS, "line 2: site must be one of the policy"),
        ([f"{TIMES[0]},dbh,other,2"], STAYS, "line 2: zone must be one of its site in the policy"),
        ([f"{TIMES[0]},dbh,lab,-2"], STAYS, "line 2: count must be a whole number of at least 0"),
        ([f"{TIMES[0]},dbh,lab,{'9' * 13}"], STAYS, "line 2: count must be a whole number of at least 0"),
        (["secret,dbh,lab,2"], STAYS, "line 2: window_end must be"),
        ([*COUNTS, "too,few"], STAYS, "line 6: must have the fields that the first line names"),
        (COUNTS, [f"dbh,p,hall,{TIMES[1]},{TIMES[1]}"], "line 2: end must be after start"),
        (COUNTS, [f"dbh,p,hall,secret,{TIMES[1]}"], "line 2: start must be"),
    ],
)
def test_a_bad_row_is_refused_by_file_line_and_field(
    tmp_path: Path, policy: Policy, counts: list[str], stays: list[str], rule: str
) -> None:
    with pytest.raises(DataError, match=rule) as error:
        read_history(history(tmp_path, counts, stays), policy)
    assert "secret" not in str(error.value)


def test_a_folder_without_a_history_is_refused(tmp_path: Path, policy: Policy) -> None:
    with pytest.raises(UsageError, match=r"occupancy\.csv: cannot be read; make it with"):
        read_history(tmp_path, policy)


@pytest.mark.parametrize("existed", [True, False])
def test_a_replay_that_fails_leaves_the_folder_as_it_was(tmp_path: Path, existed: bool) -> None:
    out = tmp_path / "out"
    if existed:
        out.mkdir(mode=0o700)

    def write() -> None:
        with _all_or_nothing(out):
            (out / "private").mkdir()
            (out / "private" / "audit.jsonl").write_text("{}")
            (out / "leakage.jsonl").write_text("{}")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write()
    assert out.exists() is existed
    assert not existed or not any(out.iterdir())


def test_only_a_new_or_empty_folder_is_written_to(tmp_path: Path) -> None:
    refuse_used(tmp_path / "new")
    refuse_used(tmp_path)
    (tmp_path / "file").touch()
    for used in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match="must be a new or empty folder"):
            refuse_used(used)
