"""Rows that do not fit into memory are sorted by time and line, and are encrypted on disk."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from connectors.sources.recordings.row_sort import Packed, RowSort, unpacked
from stream.errors import TacetError


def made(count: int, seed: int = 1, times: int = 50) -> list[Packed]:
    """Return rows in the order of their lines, many of them of the same time."""
    rng = random.Random(seed)
    return [
        (
            rng.randrange(times),
            rng.randrange(3),
            bytes([0, rng.randrange(256)]) * 4,
            line,
            rng.randrange(-(2**63), 2**63),
        )
        for line in range(2, count + 2)
    ]


def in_order(sort: RowSort) -> list[Packed]:
    return [row for block in sort.blocks() for row in unpacked(block)]


def through(rows: list[Packed], run_rows: int = 64, block_rows: int = 16) -> list[Packed]:
    sort = RowSort(run_rows, block_rows)
    for row in rows:
        sort.add(row)
    assert sort.rows == len(rows)
    return in_order(sort)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize("order", ["random", "sorted", "newest first"])
def test_rows_come_back_in_their_order_however_many_runs_there_are(count: Any, order: Any) -> None:
    rows = made(count, times=10**9 if order == "random" else 50)
    if order != "random":
        times = sorted((row[0] for row in rows), reverse=order == "newest first")
        rows = [(time, *row[1:]) for time, row in zip(times, rows, strict=True)]
    assert through(rows) == sorted(rows)


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_the_same_time_come_by_place_and_name_and_copies_by_line(seed: Any) -> None:
    rows = made(500, seed, times=3)
    assert through(rows, 32, 8) == sorted(rows)


def test_a_sorted_file_needs_no_merge() -> None:
    sort = RowSort(16, 4)
    for line in range(160):
        sort.add((line, 0, b"12345678", line, 0))
    in_order(sort)
    assert len(sort._lanes) == 1


def test_on_the_disk_rows_have_no_name_and_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed, so that neither a crash nor the free blocks of a disk give away what was sorted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files: list[Any] = []
    make = tempfile.TemporaryFile

    def kept(*arguments: Any, **options: Any) -> Any:
        files.append(make(*arguments, **options))
        return files[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", kept)
    sort = RowSort(64, 16)
    rows = [(line, 7, b"pseudony", line, 0x4142434445464748) for line in range(256)]
    for row in rows:
        sort.add(row)
    assert list(tmp_path.iterdir()) == []
    (file,) = files
    file.seek(0)
    raw = file.read()
    assert len(raw) == 256 * 36
    assert b"pseudony" not in raw
    assert b"HGFEDCBA" not in raw
    assert len({raw[place : place + 36] for place in range(0, len(raw), 36)}) == 256
    first, second = (raw[place : place + 16 * 36] for place in (0, 16 * 36))
    equal = [one == other for one, other in zip(first, second, strict=True)]
    assert sum(equal) < 16 * 36 // 8, "two blocks of nearly equal rows have nothing in common"
    assert in_order(sort) == rows
    assert file.closed


def test_a_full_disk_is_reported_with_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(TacetError, match=r"rows cannot be written here for sorting \(No space left on device\)"):
        through(made(100))
