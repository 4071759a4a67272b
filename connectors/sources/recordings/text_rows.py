"""Rows of CSV or JSON lines, and the tally of bad rows.

A bad row affects only itself. The report names its line and the rule that it broke, once for each rule; never its
content.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from stream.errors import DataError, UsageError
from stream.records import JsonObject

LONGEST_LINE = 1 << 20
"""Characters; a longer line is a bad row, and is never read into memory whole."""

MOST_EXPANSION, FREELY_UNPACKED = 200, 64 << 20
"""Limit of decompression: so many times the file's size, or so many bytes; recordings reach 5 to 50 times."""
LARGEST_HELD = 64 << 20
"""Characters of a file that is read into memory."""

TOO_LONG = "must be at most 1 MiB long"
UNLIKE_HEADER = "must have the fields that the first line names"
NO_OBJECT = "must be a JSON object"

RowLine = str | None
"""None stands for a line that is too long."""
Fields = tuple[Any, ...]


@dataclass(slots=True)
class Problem:
    """Bad rows that broke the same rule."""

    line: int
    """The first of them."""
    rows: int = 1


@dataclass(slots=True)
class RowCounts:
    """The results of a file's rows."""

    rows: int = 0
    bad: int = 0
    rules: dict[str, Problem] = field(default_factory=dict)
    """Rule -> the bad rows that broke it."""
    strays: int = 0
    """Of the bad rows, those too far from all others."""
    incomplete: int = 0
    """Windows of counts without a good row for some zone, which are refused."""
    outside: int = 0
    """Good rows that no window of the range can contain; they are left out."""
    leading: int = 0
    """Good rows up to the beginning of the range: their devices may still be present then."""
    unknown_access_points: int = 0
    locally_administered: int = 0

    def note(self, line: int, rule: str) -> None:
        """Count a bad row."""
        self.bad += 1
        problem = self.rules.get(rule)
        if problem is None:
            self.rules[rule] = Problem(line)
        else:
            problem.rows += 1
            problem.line = min(problem.line, line)

    def figures(self) -> JsonObject:
        """Return the figures for programs."""
        report = asdict(self) | {"problems": self.problems}
        del report["rules"], report["leading"]
        return report

    @property
    def problems(self) -> list[str]:
        """``line 17: time must be …; 4 like it``, one for each rule, in the order of their first lines."""
        report = []
        for rule, problem in sorted(self.rules.items(), key=lambda item: (item[1].line, item[0])):
            more = f"; {problem.rows - 1:,} like it" if problem.rows > 1 else ""
            report.append(f"line {problem.line}: {rule}{more}")
        return report


def named(tally: RowCounts) -> str:
    """Return the number of bad rows, and below it each broken rule, with the first line that broke it."""
    rows = "1 bad row was" if tally.bad == 1 else f"{tally.bad:,} bad rows were"
    return "\n  ".join([f"{rows} left out:", *tally.problems])


# --- lines --------------------------------------------------------------------------------------------


def open_text(path: Path) -> IO[str]:
    """Open a text file, compressed or not, with or without a byte order mark.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        if path.suffix == ".gz":
            return io.TextIOWrapper(_Unpacked(path), encoding="utf-8-sig", errors="replace", newline="")
        return path.open(encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None


class _Unpacked(gzip.GzipFile):
    """A compressed file; reading it raises DataError if it expands more than a recording can."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")
        self._path, self._given = path, 0
        self._most = max(FREELY_UNPACKED, MOST_EXPANSION * path.stat().st_size)

    def read1(self, size: int = -1) -> bytes:
        piece = super().read1(size)
        self._given += len(piece)
        if self._given > self._most:
            raise DataError(f"{self._path}: must not unpack to more than {MOST_EXPANSION} times its size")
        return piece


def lines_in_memory(path: Path, lines: Iterable[RowLine]) -> Iterator[RowLine]:
    """Yield the lines of a file that is read into memory; DataError if it is too large for that."""
    left = LARGEST_HELD
    for line in lines:
        left -= len(line or "")
        if left < 0:
            raise DataError(f"{path}: must have at most {LARGEST_HELD >> 20} MiB of text")
        yield line


def lines_of(path: Path, file: IO[str]) -> Iterator[RowLine]:
    """Yield a file's lines.

    Raises:
        UsageError: not even its first line can be read.
        DataError: it is damaged further on, so that the rest is unknown.
    """
    begun = False
    try:
        while line := file.readline(LONGEST_LINE + 1):
            begun = True
            if len(line) <= LONGEST_LINE or _ends(line):
                yield line
            else:
                while line and not _ends(line):
                    line = file.readline(LONGEST_LINE)
                yield None
    except (OSError, EOFError, zlib.error):
        if not begun:
            msg = f"{path}: cannot be read"
            raise UsageError(msg) from None
        msg = f"{path}: cannot be read to its end; nothing is released"
        raise DataError(msg) from None


def _ends(line: str) -> bool:
    return line.endswith(("\n", "\r"))


# --- fields -------------------------------------------------------------------------------------------


def rows_of(path: Path, lines: Iterable[RowLine], columns: tuple[str, ...]) -> Iterator[tuple[int, Fields | str]]:
    """Yield each line's number and these columns' values, or the rule that the line as a whole breaks.

    The file's name determines whether it is CSV or JSON lines; raises the same errors as ``csv_rows``.
    """
    jsonl = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))
    yield from _json_rows(lines, columns) if jsonl else csv_rows(path, lines, columns)


def csv_rows(path: Path, lines: Iterable[RowLine], columns: tuple[str, ...]) -> Iterator[tuple[int, Fields | str]]:
    """Yield each line's number and these columns' values, or the rule that the line as a whole breaks.

    Raises:
        UsageError: the first line does not name the columns.
    """
    numbered = enumerate(lines, start=1)
    header = fields_of(next(numbered, (1, ""))[1] or "") or []
    missing = [name for name in columns if name not in header]
    if missing:
        msg = f"{path}: first line must name the columns {', '.join(columns)}; {missing[0]} is missing"
        raise UsageError(msg)
    places = [header.index(name) for name in columns]
    for number, line in numbered:
        row = fields_of(line or "")
        if line is None:
            yield number, TOO_LONG
        elif row is not None and len(row) == len(header):
            yield number, tuple([row[place] for place in places])
        elif line.strip():
            yield number, UNLIKE_HEADER


def fields_of(line: str) -> list[str] | None:
    """Return a line's fields, None if it cannot be parsed: a field never continues on the next line."""
    if '"' not in line:
        return line.rstrip("\r\n").split(",")
    try:
        return next(csv.reader([line]), None)
    except csv.Error:
        return None


def _json_rows(lines: Iterable[RowLine], columns: tuple[str, ...]) -> Iterator[tuple[int, Fields | str]]:
    for number, line in enumerate(lines, start=1):
        if line is None:
            yield number, TOO_LONG
            continue
        try:
            row = orjson.loads(line)
            yield number, tuple([row.get(name) for name in columns])
        except (orjson.JSONDecodeError, AttributeError):
            if line.strip():
                yield number, NO_OBJECT
