"""The byte form of messages: batches of observations, heartbeats and counted windows.

A connector writes these bytes and the engine reads them. A heartbeat is one JSON object. A batch is an envelope. Its
clear part is one JSON object with site, source, session and number; its rows are encrypted under the data key of the
day of the latest row. A counted window has the same form. Readers skip fields that they do not know.

Every later version keeps the part that names the sender: a JSON object, or an envelope up to its clear part, with
``v``, ``site``, ``source`` and ``session``. A message of a later version stops its reader. So only a message that names
a sender counts as one; any other is rejected like every unreadable message.

The form of rows is in ``row_encoding``.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from stream.encryption import VERSION, Kind, Vault, clear_of, seal, unseal, version_of
from stream.errors import DataError, DestroyedKeyError, LaterVersionError, TacetError
from stream.keys import key_day_of
from stream.records import (
    LARGEST_COUNT,
    LATEST,
    CountedWindow,
    Heartbeat,
    JsonObject,
    Message,
    Micros,
    ObservationBatch,
    PrivacyDay,
    Rejected,
)
from stream.row_encoding import Problem, decode_rows, encode_rows

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
    window_end = head["window_end"]
    if type(window_end) is not int or not 0 <= window_end < LATEST or type(counts) is not dict:
        return _unreadable(sender.source, "type", "window_end or counts")
    good = tuple((zone, n) for zone, n in counts.items() if type(n) is int and 0 <= n <= LARGEST_COUNT)
    rejected = [Rejected(sender.source, "row", "counts")] * (len(counts) - len(good))
    return CountedWindow(*sender, window_end, good), rejected


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
