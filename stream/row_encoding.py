"""The byte form of a batch's rows: by column, in the message and in the engine, which creates no object per row.

    form (1) | count (4) | width of a place (1) | width of a time (1) | base (8) | devices | places | times | table

Devices are pseudonyms of 8 bytes. A place is an index into the table, which is JSON: access points, and null for the
end of a stay. A time is 4 bytes relative to the base, or 8 absolute bytes if the times of a batch span more than an
hour. All integers are little-endian. Where the site counts logins, another form byte says so, and a column of logins, 8
bytes each and zeros for none, precedes the table. Rows that do not fit such columns are JSON behind a third form byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import orjson

from stream.records import LATEST, Columns, Row

LONGEST = 64
"""Largest number of characters of a device or an access point."""
ROWS, COLUMNS, LOGIN_COLUMNS = 0, 1, 2
"""Form bytes."""
_NO_LOGIN = "0" * 16
_HEAD = struct.Struct("<BIBBq")
_DEVICE = 8
_NARROW = {1: 1 << 8, 2: 1 << 16}
"""Width of a place in bytes -> number of different places."""


Problem = tuple[int, str]
"""Row number and field that broke a rule."""


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Return the byte form of rows: columns if they fit, as those of a connector always do.

    Raises:
        ValueError, TypeError, OverflowError: they have logins and do not fit.
    """
    columns = Columns.of(rows)
    try:
        return _encoded(columns)
    except (ValueError, TypeError, OverflowError):
        if columns.logins is not None:
            raise
        return bytes((ROWS,)) + orjson.dumps(tuple(rows), default=tuple)  # rows are named tuples


def _encoded(columns: Columns) -> bytes:
    """Return the byte form by column; ValueError, TypeError or OverflowError if the rows do not fit."""
    count, devices = len(columns), _octets(columns.devices)
    logins = b"" if columns.logins is None else _octets([login or _NO_LOGIN for login in columns.logins])
    width = min(width for width, most in _NARROW.items() if len(columns.table) <= most)
    times = np.array(columns.times, dtype=np.int64)
    base = int(times.min()) if count else 0
    wide = bool(count) and int(times.max()) - base >= 1 << 32
    form = COLUMNS if columns.logins is None else LOGIN_COLUMNS
    return b"".join((
        _HEAD.pack(form, count, width, 8 if wide else 4, 0 if wide else base),
        devices,
        np.array(columns.places, dtype=f"<u{width}").tobytes(),
        times.astype("<i8").tobytes() if wide else (times - base).astype("<u4").tobytes(),
        logins,
        orjson.dumps(tuple(columns.table)),
    ))  # fmt: skip


def _octets(names: Sequence[str]) -> bytes:
    """Return pseudonyms as octets; ValueError or TypeError if one is not of 16 lower-case hexadecimal digits."""
    octets = bytes.fromhex("".join(names))
    if len(octets) != _DEVICE * len(names) or _names(octets) != list(names):
        raise ValueError("devices")
    return octets


def _names(devices: bytes) -> list[str]:
    return devices.hex(" ", _DEVICE).split(" ") if devices else []


def decode_rows(data: bytes) -> tuple[Sequence[Row], list[Problem]]:
    """Return the valid rows of a byte form, and the problems of the others; ValueError if it is not such a form."""
    if data[:1] == bytes((ROWS,)):
        raw = orjson.loads(data[1:])
        if type(raw) is not list:
            raise ValueError("rows")
        return good_rows(raw)
    try:
        form, count, place_width, time_width, base = _HEAD.unpack_from(data)
        ends = [_HEAD.size]
        for width in (_DEVICE, place_width, time_width, _DEVICE if form == LOGIN_COLUMNS else 0):
            ends.append(ends[-1] + count * width)
        if ends[-1] > len(data):
            raise ValueError("columns")
        devices, places, times, logins = (data[low:high] for low, high in pairwise(ends))
        table = orjson.loads(data[ends[-1] :])
    except struct.error:
        form = -1
    if (
        form not in (COLUMNS, LOGIN_COLUMNS)
        or place_width not in _NARROW
        or time_width not in (4, 8)
        or type(table) is not list
    ):
        raise ValueError("columns")
    return _checked(
        _names(devices), np.frombuffer(places, f"<u{place_width}"), table, _times(times, time_width, base),
        [None if login == _NO_LOGIN else login for login in _names(logins)] if form == LOGIN_COLUMNS else None,
    )  # fmt: skip


def _times(data: bytes, width: int, base: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the times; with an invalid base they are all invalid."""
    if width == 8:
        return np.frombuffer(data, "<i8")
    base = base if 0 <= base < LATEST else LATEST
    return np.frombuffer(data, "<u4") + np.int64(base)


def _checked(
    devices: list[str], places: np.ndarray[tuple[int], np.dtype[np.unsignedinteger]], table: list[object],
    times: np.ndarray[tuple[int], np.dtype[np.int64]], logins: list[str | None] | None,
) -> tuple[Columns, list[Problem]]:  # fmt: skip
    """Return the rows with a valid place and a valid time, and the problems of the others."""
    sound = np.array([*map(_is_point, table)], dtype=bool)
    columns = Columns(devices, places.tolist(), cast("list[str | None]", table), times.tolist(), logins)
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
    """Return the valid rows among rows from JSON, and the invalid field of each other one."""
    found = [(number, problem) for number, row in enumerate(raw) if (problem := row_problem(row)) is not None]
    bad = {number for number, _ in found}
    return tuple(Row._make(row) for number, row in enumerate(raw) if number not in bad), found  # type: ignore[arg-type]


def row_problem(row: object) -> str | None:
    """Return the invalid field of a row, or None for a valid row."""
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
