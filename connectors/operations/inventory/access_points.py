"""Read access points from a controller's CSV export or from a recording.

The meaning of columns is declared, never guessed. An inventory describes equipment, not people, so errors show line,
column and value. The module also normalises names of places to names that a policy accepts.
"""

from __future__ import annotations

import csv
import difflib
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from connectors.sources.ingest.addresses import address_of, colons
from connectors.sources.recordings.dialect import OWN, Dialect
from connectors.sources.recordings.text_rows import TOO_LONG, lines_in_memory, lines_of, open_text, rows_of
from stream.errors import DataError, UsageError

# Names of places, as a policy accepts them.

LONGEST = 63
_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss", "æ": "ae", "ø": "o", "ł": "l"}
)
_OTHERS = re.compile(r"[^A-Za-z0-9._]+")
_HIERARCHY = re.compile(r"\s*[>|/\\]\s*")


def name_of(text: str) -> str:
    """Return a text as a name: ``Hörsaal 1 (Süd)`` is ``Hoersaal-1-Sued``; empty if no valid character remains."""
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode()
    return _OTHERS.sub("-", plain).strip("._-")[:LONGEST].rstrip("._-")


def kind_of(text: str) -> str:
    """Return a text as a kind of zone, in lower case: ``Lecture Hall`` is ``lecture-hall``."""
    return re.sub(r"[._-]+", "-", name_of(text).lower())


def last_part(text: str) -> str:
    """Return the last part of a hierarchical place: the floor of ``Campus > Library > Floor 2``."""
    return _HIERARCHY.split(text.strip())[-1]


def stem(name: str) -> str:
    """Return an access point's name without its last part: the stem of ``lib-2-reading-ap03`` is ``lib-2-reading``."""
    head = re.split(r"[-_. ][^-_. ]*$", name.strip())[0]
    return head if head != name else name


FIELDS = ("ap", "name", "site", "floor", "zone", "kind", "capacity")
"""What a row may say of an access point; only ``ap`` must be there."""
LARGEST_CAPACITY = 100_000
MOST_REPORTED = 20
LONGEST_NAME = 64
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """A row of an inventory; missing texts are empty, a missing capacity is None."""

    line: int
    radio: str
    """Its address, as policies write it."""
    name: str = ""
    site: str = ""
    floor: str = ""
    zone: str = ""
    kind: str = ""
    capacity: int | None = None


def columns_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Return field -> column from ``ap=Radio MAC,name=AP Name``; UsageError if the text is malformed."""
    columns: dict[str, str] = {}
    for pair in (part for text in texts for part in text.split(",")):
        field, equals, column = (part.strip() for part in pair.partition("="))
        if not equals or not column or field not in FIELDS or field in columns:
            rule = f"must be FIELD=COLUMN, each of {', '.join(FIELDS)} once, with commas between"
            raise UsageError(f"--columns: {rule}, got {pair.strip()!r}")
        columns[field] = column
    if columns and "ap" not in columns:
        raise UsageError("--columns: must say which column has the access points' addresses, as in ap=Radio MAC")
    return columns


def read_inventory(path: Path, columns: Mapping[str, str]) -> tuple[list[AccessPoint], list[str]]:
    """Return the access points of a CSV file, and the columns that were not read.

    Args:
        path: its first line contains the names of the columns. Commas, semicolons or tabs separate cells.
        columns: field -> column. If it is empty, every column must have a field's name: otherwise a misspelt column
            would be skipped silently.

    Raises:
        UsageError: the file cannot be read, or rows break rules; each with its line and column.
    """
    lines = _lines(path, set(columns.values()) or {"ap"})
    first, header = lines[0]
    places = _places(path, first, header, columns)
    reader = _Reader(header, places)
    for line, cells in lines[1:]:
        reader.add_row(line, cells)
    if not reader.rows and not reader.problems:
        reader.problems.append(f"line {first}: must be followed by at least one access point")
    if reader.problems:
        more = len(reader.problems) - MOST_REPORTED
        report = reader.problems[:MOST_REPORTED] + ([f"and {more} more like these"] if more > 0 else [])
        raise UsageError("\n".join(f"{path}: {problem}" for problem in report))
    return reader.rows, [name for place, name in enumerate(header) if place not in places.values()]


DELIMITERS = ",;\t"
_PASTED = re.compile(r"show ap summary|^\s*Number of APs|^\s*AP Name {2,}", flags=re.IGNORECASE | re.MULTILINE)
_PASTED_LINES = 20


def _lines(path: Path, needed: Collection[str]) -> list[tuple[int, list[str]]]:
    """Return the cells of each non-empty line, by line number; ``needed`` are columns that the file must have."""
    reader = csv.reader(())
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            whole = list(_whole(path, file))
        reader = csv.reader(whole, strict=True, delimiter=_delimiter(path, whole, needed))
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: must be text in UTF-8") from None
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num}: must be CSV ({error})") from None
    lines = [(line, cells) for line, cells in lines if any(cells)]
    if not lines:
        raise UsageError(f"{path}: line 1: must name the columns")
    return lines


def _delimiter(path: Path, lines: Sequence[str], needed: Collection[str]) -> str:
    """Return what separates the cells: that with which the first line has the needed columns.

    Raises:
        UsageError: nothing does, and the file is the output of a controller's command.
    """
    first = next((line for line in lines if line.strip()), "")
    for delimiter in DELIMITERS:
        if {cell.strip().strip('"') for cell in first.split(delimiter)}.issuperset(needed):
            return delimiter
    if _PASTED.search("".join(lines[:_PASTED_LINES])):
        raise UsageError(
            f"{path}: line 1: must be CSV with the names of the columns, but is the output of 'show ap summary', whose "
            "columns are separated by spaces; write a first line such as AP Name,Radio MAC,Location and a line for "
            "each access point, with commas between"
        )
    return max(DELIMITERS, key=first.count)


def _whole(path: Path, file: IO[str]) -> Iterator[str]:
    """Yield lines; UsageError if a line, or the file, is too large."""
    try:
        for number, line in enumerate(lines_in_memory(path, lines_of(path, file)), 1):
            if line is None:
                raise UsageError(f"{path}: line {number}: {TOO_LONG}")
            yield line
    except DataError as error:
        raise UsageError(str(error)) from None


def _places(path: Path, line: int, header: list[str], columns: Mapping[str, str]) -> dict[str, int]:
    """Return field -> index of its column."""
    where = f"{path}: line {line}"
    if repeated := sorted({name for name in header if header.count(name) > 1 and name in (columns.values() or FIELDS)}):
        raise UsageError(f"{where}: column {repeated[0]!r} must appear once")
    if columns:
        for field, name in columns.items():
            if name not in header:
                known = ", ".join(filter(None, header))
                raise UsageError(f"{where}: must have the column {name!r} (for {field}); it has: {known}")
        return {field: header.index(name) for field, name in columns.items()}
    for name in header:
        if name not in FIELDS:
            near = difflib.get_close_matches(name.lower(), FIELDS, n=1)
            meant = f", perhaps {near[0]!r} is meant" if near else ""
            raise UsageError(
                f"{where}: column {_cut(name)} is none of {', '.join(FIELDS)}{meant}; --columns says what others mean"
            )
    if "ap" not in header:
        raise UsageError(f"{where}: must have the column 'ap', the addresses of the access points")
    return {name: place for place, name in enumerate(header)}


class _Reader:
    """The rows read so far, and their errors."""

    def __init__(self, header: list[str], places: Mapping[str, int]) -> None:
        self.rows: list[AccessPoint] = []
        self.problems: list[str] = []
        self._header = header
        self._places = places
        self._radios: dict[str, int] = {}
        self._names: dict[str, int] = {}

    def add_row(self, line: int, cells: list[str]) -> None:
        if len(cells) != len(self._header):
            rule = f"must have {len(self._header)} fields as the first line has"
            self.problems.append(f"line {line}: {rule}, got {len(cells)}")
            return
        fields = {field: cells[place] for field, place in self._places.items()}
        before = len(self.problems)
        radio, capacity = self._radio(line, fields["ap"]), self._capacity(line, fields.pop("capacity", ""))
        self._check_name(line, fields.get("name", ""))
        for field in ("site", "floor", "zone", "kind"):
            if fields.get(field) and not name_of(fields[field]):
                self._refuse(line, field, "must contain a letter a to z or a digit", fields[field])
        if len(self.problems) == before:
            del fields["ap"]
            if _is_default_location(fields.get("floor", "")):
                fields["floor"] = ""
            self.rows.append(AccessPoint(line, radio, capacity=capacity, **fields))

    def _radio(self, line: int, text: str) -> str:
        address = address_of(text)
        if address is None:
            self._refuse(line, "ap", "must be a radio address such as '5c:52:1e:00:20:65'", text)
            return ""
        if address[0] & 1 or not any(address):
            self._refuse(line, "ap", "must be the address of one radio, neither of a group nor empty", text)
        radio = colons(address)
        self._once(line, "ap", radio, self._radios)
        return radio

    def _check_name(self, line: int, name: str) -> None:
        if len(name) > LONGEST_NAME or not name.isprintable():
            self._refuse(line, "name", f"must be at most {LONGEST_NAME} printable characters", name)
        elif name:
            self._once(line, "name", name.casefold(), self._names)

    def _capacity(self, line: int, text: str) -> int | None:
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) <= LARGEST_CAPACITY or len(text) > 6:
            self._refuse(line, "capacity", f"must be a whole number from 1 to {LARGEST_CAPACITY:,}", text)
            return None
        return int(text)

    def _once(self, line: int, field: str, value: str, seen: dict[str, int]) -> None:
        other = seen.setdefault(value, line)
        if other != line:
            self._refuse(line, field, f"must be listed once, but line {other} lists it too", value)

    def _refuse(self, line: int, field: str, rule: str, value: str) -> None:
        column = self._header[self._places[field]]
        self.problems.append(f"line {line}, column {column!r}: {rule}, got {_cut(value)}")


def _is_default_location(text: str) -> bool:
    """Whether a floor is the text that Cisco's controllers show for an access point whose place nobody has set."""
    return re.split(r"[\s_-]+", text.lower()) == ["default", "location"]


def _cut(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")


# The access points of a recording, for a laboratory that has no list of them.


def recorded_access_points(path: Path, dialect: Dialect = OWN) -> list[AccessPoint]:
    """Return the access points at which a recording has observed devices, sorted by site and address.

    Their number and names depend on people. Rows without an access point's address are skipped.

    Raises:
        UsageError: the file cannot be read or has other columns.
        DataError: it cannot be read to its end, or no row names an access point.
    """
    seen: dict[tuple[str, str], AccessPoint] = {}
    with open_text(path) as file:
        for _, fields in rows_of(path, lines_of(path, file), dialect.names):
            if isinstance(fields, str) or not all(isinstance(field, str) for field in fields[2:]):
                continue
            radio, site = address_of(fields[2]), fields[3].strip() if dialect.names_sites else ""
            if radio is not None and not radio[0] & 1:
                seen.setdefault((site, colons(radio)), AccessPoint(0, colons(radio), site=site))
    if not seen:
        raise DataError(f"{path}: no row names an access point by its address")
    return [seen[key] for key in sorted(seen)]
