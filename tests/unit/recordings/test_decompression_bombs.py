"""Files that unpack to too much, or whose lines never end, are refused with little memory."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connectors.operations.inventory.access_points import read_inventory
from connectors.sources.recordings import text_rows
from connectors.sources.recordings.replay import read_history
from connectors.sources.recordings.text_rows import csv_rows, lines_in_memory, lines_of, open_text
from connectors.tables.decisions import read_counts, read_thresholds, read_values
from stream.errors import DataError, UsageError
from tests.support.small_building import building

MIB = 1 << 20


@contextmanager
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()


def packed(path: Path, head: bytes, line: bytes, size: int) -> Path:
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(head)
        piece = line * (MIB // len(line))
        for _ in range(size // len(piece)):
            file.write(piece)
    return path


def rows(path: Path) -> int:
    with open_text(path) as file:
        return sum(1 for _ in csv_rows(path, lines_of(path, file), ("predicate",)))


@pytest.mark.parametrize("line", [b"a,1\n", b"\n", bytes(1000), b'"', b"a" * 1000])
def test_what_unpacks_to_much_more_than_its_size_is_refused(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_rows, "FREELY_UNPACKED", MIB)
    path = packed(tmp_path / "rows.csv.gz", b"predicate,count\n", line, 8 * MIB)
    with pytest.raises(DataError, match="must not unpack to more than 200 times its size"):
        rows(path)


def test_an_ordinary_packed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("predicate,count\n")
        file.writelines(f"predicate-{n * 7919},{n}\n" for n in range(100_000))
    assert rows(path) == 100_000


@pytest.mark.parametrize(
    ("read", "head"),
    [(read_counts, "predicate,count\n"), (read_thresholds, "predicate,threshold\n")],
)
def test_a_file_that_is_held_in_memory_has_a_largest_size(
    read: Callable[[Path], Any], head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_rows, "LARGEST_HELD", MIB)
    path = tmp_path / "rows.csv"
    with path.open("w") as file:
        file.write(head)
        file.writelines(f"predicate-{n},1\n" for n in range(100_000))
    with pytest.raises(DataError, match="must have at most 1 MiB of text"):
        read(path)


def test_values_are_read_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "LARGEST_HELD", 1)
    (tmp_path / "values.csv").write_text("predicate,value\na,1\na,2\n")
    assert len(list(read_values(tmp_path / "values.csv"))) == 2
    assert next(lines_in_memory(tmp_path, ["x"])) == "x"


def endless(path: Path, head: str) -> Path:
    """Write a line that is as long as the file."""
    with path.open("w") as file:
        file.write(head)
        for _ in range(40):
            file.write("a" * MIB)
    return path


def test_a_line_without_end_is_not_held(tmp_path: Path) -> None:
    readers: list[tuple[str, str, Callable[[Path], Any]]] = [
        ("rows.csv", "predicate,count\n", read_counts),
        ("aps.csv", "ap,name\n", lambda path: read_inventory(path, {})),
        ("occupancy.csv", "window_end,site,zone,count\n", lambda path: read_history(path.parent, building())),
    ]
    for name, head, read in readers:
        with little_memory(), pytest.raises((DataError, UsageError), match="line 2: must be at most 1 MiB long"):
            read(endless(tmp_path / name, head))


@pytest.mark.parametrize("cell", ["a" * 200_000, "\0", '"' + "a" * 200_000, "9" * 5000])
def test_a_history_with_a_bad_cell_is_refused_by_name(cell: str, tmp_path: Path) -> None:
    for column in range(4):
        cells = ["2026-01-05T10:00:00Z", "dbh", "2011", "1"]
        cells[column] = cell
        (tmp_path / "occupancy.csv").write_text("window_end,site,zone,count\n" + ",".join(cells) + "\n")
        with pytest.raises(DataError, match="line 2: "):
            read_history(tmp_path, building())
