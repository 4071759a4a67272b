"""Rows of text files: CSV or JSON lines, packed or not, and the account of those that are bad.

A bad row loses only itself. What is reported of it is its line and the rule that it broke, once for each rule;
never what is in it.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from stream.errors import DataError, UsageError

LONGEST_LINE = 1 << 20
"""Characters; a longer line is a bad row, and is never held whole."""

TOO_LONG = "must be at most 1 MiB long"
UNLIKE_HEADER = "must have the fields that the first line names"
NO_OBJECT = "must be a JSON object"

Line = str | None
"""None stands for a line that is too long."""
Fields = tuple[Any, ...]


@dataclass(slots=True)
class Problem:
    """Bad rows that broke the same rule."""

    line: int
    """The first of them."""
    rows: int = 1


@dataclass(slots=True)
class Tally:
    """What became of the rows of a file."""

    rows: int = 0
    bad: int = 0
    rules: dict[str, Problem] = field(default_factory=dict)
    """Rule -> the bad rows that broke it."""
    strays: int = 0
    """Of the bad rows, those too far from all others."""
    outside: int = 0
    """Good rows that no window of the range can hold; they are left out."""
    leading: int = 0
    """Good rows up to the begin of the range: whoever they are about may still be there then."""
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

    def figures(self) -> dict[str, Any]:
        """Return what programs are given."""
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


def named(tally: Tally) -> str:
    """Return the number of bad rows, and below it each rule that was broken, with the first line that broke it."""
    rows = "1 bad row was" if tally.bad == 1 else f"{tally.bad:,} bad rows were"
    return "\n  ".join([f"{rows} left out:", *tally.problems])


# --- lines --------------------------------------------------------------------------------------------


def open_text(path: Path) -> IO[str]:
    """Open a file of text, packed or not, with or without a byte order mark.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
        return path.open(encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise UsageError(msg) from None


def lines_of(path: Path, file: IO[str]) -> Iterator[Line]:
    """Yield a file's lines.

    Raises:
        UsageError: not even its first line can be read.
        DataError: it is damaged further on, so that nothing shows what came after.
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


def rows_of(path: Path, lines: Iterable[Line], columns: tuple[str, ...]) -> Iterator[tuple[int, Fields | str]]:
    """Yield each line's number and these columns' values, or the rule that the line as a whole breaks.

    The file's name says whether it holds CSV or JSON lines; raises what ``csv_rows`` does.
    """
    jsonl = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson"))
    yield from _json_rows(lines, columns) if jsonl else csv_rows(path, lines, columns)


def csv_rows(path: Path, lines: Iterable[Line], columns: tuple[str, ...]) -> Iterator[tuple[int, Fields | str]]:
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
    """Return a line's fields, None where it has none that can be made out: one line never takes in another."""
    if '"' not in line:
        return line.rstrip("\r\n").split(",")
    try:
        return next(csv.reader([line]), None)
    except csv.Error:
        return None


def _json_rows(lines: Iterable[Line], columns: tuple[str, ...]) -> Iterator[tuple[int, Fields | str]]:
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
