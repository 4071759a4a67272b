"""The byte form of messages: batches of observations, heartbeats and counted windows.

A connector writes these bytes and the engine reads them. A heartbeat is one JSON object. A batch is an envelope. Its
clear part is one JSON object with site, source, session and number; its rows are encrypted under the data key of the
day of the latest row. A counted window has the same form. Readers skip fields that they do not know.

Every later version keeps the part that names the sender: a JSON object, or an envelope up to its clear part, with
``v``, ``site``, ``source`` and ``session``. A message of a later version stops its reader. So only a message that names
a sender counts as one; any other is rejected like every unreadable message.

Rows are stored by column, in the message and in the engine, which creates no object per row:

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
from typing import NamedTuple, cast

import numpy as np
import orjson

from stream.encryption import VERSION, Kind, Vault, clear_of, seal, unseal, version_of
from stream.errors import DataError, DestroyedKeyError, LaterVersionError, TacetError
from stream.keys import key_day_of
from stream.records import (
    LARGEST_COUNT,
    LATEST,
    Columns,
    CountedWindow,
    Heartbeat,
    JsonObject,
    Message,
    Micros,
    ObservationBatch,
    PrivacyDay,
    Rejected,
    Row,
)

# --- counted windows ----------------------------------------------------------------------------------

CountsSender = tuple[str, str, int]
"""Site, source and session of a message."""


def counts_message(
    sender: CountsSender, window_end: object, counts: object, latest: int
) -> tuple[CountedWindow | None, list[Rejected]]:
    """Return the message with its valid counts, and the rejections; all times must be before ``latest``."""
    if type(window_end) is not int or not 0 <= window_end < latest or type(counts) is not dict:
        return None, [Rejected(sender[1], "type", "window_end or counts")]
    good = tuple((zone, n) for zone, n in counts.items() if type(n) is int and 0 <= n <= LARGEST_COUNT)
    rejected = [Rejected(sender[1], "row", "counts")] * (len(counts) - len(good))
    return CountedWindow(*sender, window_end, good), rejected


# --- rows by column -----------------------------------------------------------------------------------

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


# --- messages -----------------------------------------------------------------------------------------

LATEST_VERSION = 1
"""Version of messages that this program writes and reads."""
LAST_VERSION = 99
"""Largest number that counts as a later version."""
Read = tuple[Message | None, list[Rejected]]
"""A message with its valid rows, None if it cannot be read at all; and the rejections."""


class Sender(NamedTuple):
    """The sender of a message."""

    site: str
    source: str
    session: Micros


class LaterMessageError(LaterVersionError):
    """A message that a later version of this program wrote; ``sender`` is the sender that it names."""

    def __init__(self, sender: Sender, version: int, latest: int) -> None:
        super().__init__(
            f"message: must be of version {latest}, got {version}, which a later version of the program "
            f"wrote for source {sender.source} of site {sender.site}; no message was skipped: upgrade this program to "
            "the version of that source's ingest, which reads it; if no ingest of yours wrote it, 'tacet recover' "
            "shows how to continue without it"
        )
        self.sender = sender


def encode_message(message: Message, vault: Vault | None = None) -> bytes:
    """Return the bytes of a batch, a heartbeat or a counted window; a vault encrypts rows and counts."""
    head = {"site": message.site, "source": message.source, "session": message.session}
    if isinstance(message, Heartbeat):
        report = {} if message.listened_since is None else {"listened_since": message.listened_since}
        head |= {"kind": "heartbeat", "watermark": message.watermark}
        return orjson.dumps({"v": LATEST_VERSION} | head | report)
    if isinstance(message, CountedWindow):
        head |= {"kind": "counts", "window_end": message.window_end}
        return _sealed(head, orjson.dumps(dict(message.counts)), vault, message.window_end - 1)
    head |= {"sequence": message.sequence}
    head |= {name: given for name in ("epoch", "identity") if (given := getattr(message, name)) is not None}
    latest = max((row.time for row in message.rows), default=0) if vault is not None else 0
    return _sealed(head, encode_rows(message.rows), vault, latest)


def _sealed(head: JsonObject, content: bytes, vault: Vault | None, latest: Micros) -> bytes:
    """Return an envelope with ``head`` as its clear part; the data key is that of the day of ``latest``."""
    clear = orjson.dumps({"v": LATEST_VERSION} | head, default=tuple)  # an epoch is a named tuple
    lock = None if vault is None else vault.lock(key_day_of(latest))
    return seal(Kind.OBSERVATIONS, content, clear=clear, lock=lock)


def decode_message(value: bytes, vault: Vault | None = None) -> Read:
    """Return the message with its valid rows, and the rejections.

    An invalid row is rejected alone. A message that cannot be read at all gives None and one rejection; so does a
    message whose day's key is destroyed, because all its windows are closed.

    Raises:
        KeyFileError: the message was encrypted under another data key, or there is no vault. It can be read with the
            right key file, so it is not skipped.
        LaterMessageError: a later version of this program wrote the message and can read it, so it is not skipped.
    """
    try:
        body = _head_of(value)
        later = _later_version(value, body)
        if later is not None and (claimed := sender_of(value)) is not None:
            raise LaterMessageError(claimed, *later)
        if later is not None or body["v"] is None:
            return _unreadable("unknown", "version", "v")
        sender = Sender(body["site"], body["source"], body["session"])
        if not _is_sound(sender):
            return _unreadable("unknown", "type", "site, source or session")
        return _of_kind(sender, body, value, vault)
    except DestroyedKeyError:
        return _unreadable(sender.source, "key_gone", "message")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return _unreadable("unknown", "json", "message")
    except LaterVersionError:
        raise
    except DataError:
        return _unreadable("unknown", "envelope", "message")


def _of_kind(sender: Sender, body: JsonObject, value: bytes, vault: Vault | None) -> Read:
    if version_of(value) is None:
        if body["kind"] == "heartbeat":
            return _heartbeat(sender, body["watermark"], body.get("listened_since"))
    elif (kind := body.get("kind", "observations")) == "counts":
        return _counts_of(sender, body, value, vault)
    elif kind == "observations":
        return _batch_of(sender, body, value, vault)
    return _unreadable("unknown", "kind", "kind")


def sender_of(value: bytes) -> Sender | None:
    """Return the sender that a message of any version names; None if it names none. No key is needed."""
    try:
        body = _head_of(value)
        sender = Sender(body["site"], body["source"], body["session"])
    except (orjson.JSONDecodeError, KeyError, TypeError, DataError):
        return None
    return sender if _is_sound(sender) else None


def later_sender_of(value: bytes) -> Sender | None:
    """Return the sender that a message of a later version names; None for any other message."""
    sender = sender_of(value)
    return None if sender is None or _later_version(value, _head_of(value)) is None else sender


def heartbeat_of(value: bytes) -> Heartbeat | None:
    """Return the heartbeat of a message; None for any other message. No key is needed."""
    if version_of(value) is not None or later_sender_of(value) is not None:
        return None
    message, _ = decode_message(value)
    return message if isinstance(message, Heartbeat) else None


def counted_of(value: bytes) -> tuple[str, Micros] | None:
    """Return site and window of a counted window; None for any other message. No key is needed."""
    sender = sender_of(value)
    if sender is None or later_sender_of(value) is not None:
        return None
    head = _head_of(value)
    window = head.get("window_end")
    return (sender.site, window) if head.get("kind") == "counts" and type(window) is int else None


def _is_sound(sender: Sender) -> bool:
    return type(sender.site) is str and type(sender.source) is str and type(sender.session) is int


def _head_of(value: bytes) -> JsonObject:
    """Return the clear part of a message; ``v`` is None unless it is the number of this or a later version."""
    form = version_of(value)
    body = orjson.loads(value if form is None else clear_of(Kind.OBSERVATIONS, value, later=True))
    version = body["v"]
    is_number = type(version) is int and LATEST_VERSION <= version <= LAST_VERSION
    return {**body, "v": version if is_number else None}


def _later_version(value: bytes, body: JsonObject) -> tuple[int, int] | None:
    """Return the later version of a message or its envelope, and the latest readable one; None if it is readable."""
    form = version_of(value)
    if form is not None and form > VERSION:
        return form, VERSION
    return (body["v"], LATEST_VERSION) if _is_later(body["v"]) else None


def _is_later(version: object) -> bool:
    """Return whether this is the number of a later version; other unknown numbers are no versions."""
    return type(version) is int and LATEST_VERSION < version <= LAST_VERSION


def _unreadable(source: str, reason: str, place: str) -> Read:
    return None, [Rejected(source, reason, place)]


def _heartbeat(sender: Sender, watermark: object, since: object) -> Read:
    if type(watermark) is not int or not 0 <= watermark < LATEST:
        return _unreadable(sender.source, "type", "watermark")
    if since is not None and (type(since) is not int or not 0 <= since < LATEST):
        return _unreadable(sender.source, "type", "listened_since")
    return Heartbeat(*sender, watermark, since), []


def _counts_of(sender: Sender, head: JsonObject, value: bytes, vault: Vault | None) -> Read:
    counts = orjson.loads(unseal(Kind.OBSERVATIONS, value, vault))
    return counts_message(sender, head["window_end"], counts, LATEST)


def _batch_of(sender: Sender, head: JsonObject, value: bytes, vault: Vault | None) -> Read:
    sequence, epoch, identity = head["sequence"], head.get("epoch"), head.get("identity")
    if type(sequence) is not int:
        return _unreadable(sender.source, "type", "sequence or rows")
    if epoch is not None and not _is_span(epoch):
        return _unreadable(sender.source, "type", "epoch")
    if identity is not None and type(identity) is not str:
        return _unreadable(sender.source, "type", "identity")
    try:
        rows, problems = decode_rows(unseal(Kind.OBSERVATIONS, value, vault))
    except ValueError as error:
        if isinstance(error, TacetError):
            raise
        return _unreadable(sender.source, "type", "sequence or rows")
    day = None if epoch is None else PrivacyDay._make(epoch)
    return ObservationBatch(*sender, sequence, rows, day, identity), [
        _bad_row(sender.source, each) for each in problems
    ]


def _bad_row(source: str, problem: Problem) -> Rejected:
    number, field = problem
    return Rejected(source, "row", f"rows[{number}]{field}")


def _is_span(epoch: object) -> bool:
    """Whether a value is a day's number, start and end, each a valid time."""
    return type(epoch) is list and len(epoch) == 3 and all(type(n) is int and abs(n) < LATEST for n in epoch)
