"""Observations by column: what a batch holds on the wire and in the engine, where no row is made of them.

    form (1) | count (4) | width of a place (1) | width of a time (1) | base (8) | devices | places | times | table

Devices are pseudonyms of 8 bytes; a place is an index into the table, JSON of access points and null for the end of a
stay; a time is 4 bytes from the base on, or 8 bytes by itself where a batch spans more than an hour. All integers are
little-endian. Rows that do not fit such columns are JSON behind another form byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, pairwise
from typing import cast, overload

import numpy as np
import orjson

from stream.records import LATEST, Micros, Row

LONGEST = 64
"""Characters of a device or an access point, at most."""
COLUMNS, ROWS = 1, 0
"""Form bytes."""
_HEAD = struct.Struct("<BIBBq")
_DEVICE = 8
_NARROW = {1: 1 << 8, 2: 1 << 16}
"""Width of a place -> so many places."""


class Columns(Sequence[Row]):
    """Rows of a batch, each column by itself; read as a sequence it makes its rows."""

    __slots__ = ("devices", "places", "table", "times")

    def __init__(
        self, devices: Sequence[str], places: Sequence[int], table: Sequence[str | None], times: Sequence[Micros]
    ) -> None:
        """Take columns of one length; ``places`` are indices into ``table``."""
        self.devices, self.places, self.table, self.times = devices, places, table, times

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Columns:
        """Return rows by column; columns are their own."""
        if isinstance(rows, Columns):
            return rows
        if not rows:
            return cls((), (), (), ())
        devices, points, times = zip(*rows, strict=True)
        number = {point: place for place, point in enumerate(dict.fromkeys(points))}
        return cls(devices, [*map(number.__getitem__, points)], tuple(number), times)

    def where(self, keep: Iterable[object]) -> Columns:
        """Return the rows for which ``keep`` is true."""
        chosen = list(keep)
        devices, places, times = (
            compress(self.devices, chosen),
            compress(self.places, chosen),
            compress(self.times, chosen),
        )
        return Columns([*devices], [*places], self.table, [*times])

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, place: int | slice) -> Row | tuple[Row, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        return Row(self.devices[place], self.table[self.places[place]], self.times[place])

    def __iter__(self) -> Iterator[Row]:
        return map(Row, self.devices, map(self.table.__getitem__, self.places), self.times)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Columns | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Columns(of {len(self)} rows)"


Problem = tuple[int, str]
"""Row and field that broke a rule."""


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Return the byte form of rows: columns where they fit, which those of a connector always do."""
    try:
        return _encoded(Columns.of(rows))
    except (ValueError, TypeError, OverflowError):
        return bytes((ROWS,)) + orjson.dumps(tuple(rows), default=tuple)  # rows are named tuples


def _encoded(columns: Columns) -> bytes:
    """Return the byte form by columns; ValueError, TypeError or OverflowError where they do not fit."""
    count, devices = len(columns), bytes.fromhex("".join(columns.devices))
    if _names(devices) != list(columns.devices):
        raise ValueError("devices")
    width = min(width for width, most in _NARROW.items() if len(columns.table) <= most)
    times = np.array(columns.times, dtype=np.int64)
    base = int(times.min()) if count else 0
    wide = bool(count) and int(times.max()) - base >= 1 << 32
    return b"".join((
        _HEAD.pack(COLUMNS, count, width, 8 if wide else 4, 0 if wide else base),
        devices,
        np.array(columns.places, dtype=f"<u{width}").tobytes(),
        times.astype("<i8").tobytes() if wide else (times - base).astype("<u4").tobytes(),
        orjson.dumps(tuple(columns.table)),
    ))  # fmt: skip


def _names(devices: bytes) -> list[str]:
    return devices.hex(" ", _DEVICE).split(" ") if devices else []


def decode_rows(data: bytes) -> tuple[Sequence[Row], list[Problem]]:
    """Return the good rows of a byte form, and what was wrong with each other one; ValueError when it is none."""
    if data[:1] == bytes((ROWS,)):
        raw = orjson.loads(data[1:])
        if type(raw) is not list:
            raise ValueError("rows")
        return good_rows(raw)
    try:
        form, count, place_width, time_width, base = _HEAD.unpack_from(data)
        ends = [_HEAD.size]
        for width in (_DEVICE, place_width, time_width):
            ends.append(ends[-1] + count * width)
        if ends[-1] > len(data):
            raise ValueError("columns")
        devices, places, times = (data[low:high] for low, high in pairwise(ends))
        table = orjson.loads(data[ends[-1] :])
    except struct.error:
        form = -1
    if form != COLUMNS or place_width not in _NARROW or time_width not in (4, 8) or type(table) is not list:
        raise ValueError("columns")
    return _checked(
        _names(devices), np.frombuffer(places, f"<u{place_width}"), table, _times(times, time_width, base)
    )  # fmt: skip


def _times(data: bytes, width: int, base: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return times; those of a base that is no time are none either."""
    if width == 8:
        return np.frombuffer(data, "<i8")
    base = base if 0 <= base < LATEST else LATEST
    return np.frombuffer(data, "<u4") + np.int64(base)


def _checked(
    devices: list[str], places: np.ndarray[tuple[int], np.dtype[np.unsignedinteger]], table: list[object],
    times: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> tuple[Columns, list[Problem]]:  # fmt: skip
    """Return the rows whose place is in the table, and whose time there is."""
    sound = np.array([*map(_is_point, table)], dtype=bool)
    columns = Columns(devices, places.tolist(), cast("list[str | None]", table), times.tolist())
    if not len(columns) or (
        sound.all() and places.max() < len(table) and times.min() >= 0 and times.max() < LATEST
    ):  # fmt: skip
        return columns, []
    placed = places < len(table)
    placed[placed] = sound[places[placed]]
    timed = (times >= 0) & (times < LATEST)
    problems = [
        (int(number), ".access_point" if not placed[number] else ".time")
        for number in np.flatnonzero(~(placed & timed))
    ]
    columns.table = ["" if bad else point for point, bad in zip(columns.table, ~sound, strict=True)]
    return columns.where((placed & timed).tolist()), problems


def _is_point(point: object) -> bool:
    return point is None or (type(point) is str and len(point) <= LONGEST)


def good_rows(raw: Sequence[object]) -> tuple[tuple[Row, ...], list[Problem]]:
    """Return the good ones of rows as JSON has them, and which field of each other one is wrong."""
    found = [(number, problem) for number, row in enumerate(raw) if (problem := row_problem(row)) is not None]
    bad = {number for number, _ in found}
    return tuple(Row._make(row) for number, row in enumerate(raw) if number not in bad), found  # type: ignore[arg-type]


def row_problem(row: object) -> str | None:
    """Return which field of a row is wrong, or None for a good row."""
    if type(row) is not list or len(row) != 3:
        return ""
    device, access_point, time = row
    if type(device) is not str or not 0 < len(device) <= LONGEST:
        return ".device"
    if not _is_point(access_point):
        return ".access_point"
    if type(time) is not int or not 0 <= time < LATEST:
        return ".time"
    return None
