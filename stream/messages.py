"""Observations and heartbeats as bytes: what a connector writes and the engine reads.

A heartbeat is one JSON object. A batch is an envelope: clear in it is one JSON object that says whose it is, its
session and number; its rows are encrypted under the data key of the day of the latest of them. So is a window that
was counted. Both are read as well in the version before, JSON as a whole. Readers skip fields they do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from stream.columns import Problem, decode_rows, encode_rows, good_rows
from stream.counts_message import counts_message
from stream.envelope import Kind, clear_of, seal, unseal, version_of
from stream.errors import DataError, GoneKeyError, LaterVersionError, TacetError
from stream.keys import key_day_of
from stream.records import (
    LATEST,
    CountedWindow,
    Heartbeat,
    Message,
    Micros,
    ObservationBatch,
    PrivacyDay,
    Rejected,
    Row,
)
from stream.vault import Vault

LATEST_VERSION = 2
"""Of the messages that this program writes and reads."""
LAST_VERSION = 99
"""No version to come is taken to be beyond it."""
Read = tuple[Message | None, list[Rejected]]
"""A message with its good rows, None where it cannot be read at all; and what had to be rejected."""


class Sender(NamedTuple):
    """Whose a message is."""

    site: str
    source: str
    session: Micros


def encode_message(message: Message, vault: Vault | None = None) -> bytes:
    """Return the bytes of a batch, a heartbeat or a counted window; rows and counts are encrypted where a vault is."""
    head = {"site": message.site, "source": message.source, "session": message.session}
    if isinstance(message, Heartbeat):
        report = {} if message.listened_since is None else {"listened_since": message.listened_since}
        return orjson.dumps({"v": 1} | head | {"kind": "heartbeat", "watermark": message.watermark} | report)
    if isinstance(message, CountedWindow):
        head |= {"kind": "counts", "window_end": message.window_end}
        return _sealed(head, orjson.dumps(dict(message.counts)), vault, message.window_end - 1)
    head |= {"sequence": message.sequence} | ({} if message.epoch is None else {"epoch": message.epoch})
    latest = max((row.time for row in message.rows), default=0) if vault is not None else 0
    return _sealed(head, encode_rows(message.rows), vault, latest)


def _sealed(head: dict[str, Any], content: bytes, vault: Vault | None, latest: Micros) -> bytes:
    """Return an envelope that says in clear what ``head`` does; the key is of the day of ``latest``."""
    clear = orjson.dumps({"v": 2} | head, default=tuple)  # an epoch is a named tuple
    lock = None if vault is None else vault.lock(key_day_of(latest))
    return seal(Kind.OBSERVATIONS, content, clear=clear, lock=lock)


def decode_message(value: bytes, vault: Vault | None = None) -> Read:
    """Return the message with its good rows, and what had to be rejected.

    One bad row loses only itself; a message that cannot be read at all gives None and one rejection, also where its
    day's key is gone: then all its windows are closed.

    Raises:
        KeyFileError: it was encrypted under another data key, or there is no vault; with the right key file it can be
            read, so it is not passed over.
        LaterVersionError: a later version of this program wrote it, and can read it, so it is not passed over either.
    """
    try:
        body = _head_of(value)
        if body["v"] not in (1, 2):
            return _unreadable("unknown", "version", "v")
        sender = Sender(body["site"], body["source"], body["session"])
        if not _is_sound(sender):
            return _unreadable("unknown", "type", "site, source or session")
        return _of_kind(sender, body, value, vault)
    except GoneKeyError:
        return _unreadable(sender.source, "key_gone", "message")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return _unreadable("unknown", "json", "message")
    except LaterVersionError:
        raise
    except DataError:
        return _unreadable("unknown", "envelope", "message")


def _of_kind(sender: Sender, body: dict[str, Any], value: bytes, vault: Vault | None) -> Read:
    kind = body["kind"] if body["v"] == 1 else body.get("kind", "observations")
    if kind == "heartbeat" and body["v"] == 1:
        return _heartbeat(sender, body["watermark"], body.get("listened_since"))
    if kind == "counts":
        return _counts_of(sender, body, value, vault)
    if kind == "observations":
        return _batch_of(sender, body, value, vault)
    return _unreadable("unknown", "kind", "kind")


def sender_of(value: bytes) -> Sender | None:
    """Return whose a message says it is, which needs no key; None where it does not."""
    try:
        body = _head_of(value)
        sender = Sender(body["site"], body["source"], body["session"])
    except (orjson.JSONDecodeError, KeyError, TypeError, DataError):
        return None
    return sender if _is_sound(sender) else None


def counted_of(value: bytes) -> tuple[str, Micros] | None:
    """Return site and window of a message that tells counts, which needs no key; None for any other."""
    sender = sender_of(value)
    if sender is None:
        return None
    head = _head_of(value)
    window = head.get("window_end")
    return (sender.site, window) if head.get("kind") == "counts" and type(window) is int else None


def _is_sound(sender: Sender) -> bool:
    return type(sender.site) is str and type(sender.source) is str and type(sender.session) is int


def _head_of(value: bytes) -> dict[str, Any]:
    sealed = version_of(value) > 1
    body = orjson.loads(clear_of(Kind.OBSERVATIONS, value) if sealed else value)
    refuse_later(body["v"])
    known = sealed == (body["v"] == 2)  # each version has its form
    return {**body, **({} if known else {"v": None})}


def refuse_unread(value: bytes) -> None:
    """Raise LaterVersionError for a message of a version to come; any other is left to who reads it."""
    try:
        _head_of(value)
    except LaterVersionError:
        raise
    except (ValueError, KeyError, TypeError):
        return


def refuse_later(version: object) -> None:
    """Raise LaterVersionError for the version of a message that is to come; other numbers are nobody's versions."""
    if type(version) is int and LATEST_VERSION < version <= LAST_VERSION:
        msg = (
            f"message: must be of version {LATEST_VERSION} or before, got {version}, which a later version "
            "of the program wrote; that one reads it, and nothing was passed over: upgrade workers before ingests"
        )
        raise LaterVersionError(msg)


def _unreadable(source: str, reason: str, place: str) -> Read:
    return None, [Rejected(source, reason, place)]


def _heartbeat(sender: Sender, watermark: object, since: object) -> Read:
    if type(watermark) is not int or not 0 <= watermark < LATEST:
        return _unreadable(sender.source, "type", "watermark")
    if since is not None and (type(since) is not int or not 0 <= since < LATEST):
        return _unreadable(sender.source, "type", "listened_since")
    return Heartbeat(*sender, watermark, since), []


def _counts_of(sender: Sender, head: dict[str, Any], value: bytes, vault: Vault | None) -> Read:
    counts = head["counts"] if head["v"] == 1 else orjson.loads(unseal(Kind.OBSERVATIONS, value, vault))
    return counts_message(sender, head["window_end"], counts, LATEST)


def _batch_of(sender: Sender, head: dict[str, Any], value: bytes, vault: Vault | None) -> Read:
    sequence, epoch = head["sequence"], head.get("epoch")
    if type(sequence) is not int:
        return _unreadable(sender.source, "type", "sequence or rows")
    if epoch is not None and not _is_span(epoch):
        return _unreadable(sender.source, "type", "epoch")
    try:
        rows, problems = _rows_of(head, value, vault)
    except ValueError as error:
        if isinstance(error, TacetError):
            raise
        return _unreadable(sender.source, "type", "sequence or rows")
    day = None if epoch is None else PrivacyDay._make(epoch)
    return ObservationBatch(*sender, sequence, rows, day), [_bad_row(sender.source, each) for each in problems]


def _rows_of(head: dict[str, Any], value: bytes, vault: Vault | None) -> tuple[Sequence[Row], list[Problem]]:
    """Return the good rows, and what was wrong with others; ValueError where they are no rows."""
    if head["v"] == 2:
        return decode_rows(unseal(Kind.OBSERVATIONS, value, vault))
    if type(head["rows"]) is not list:
        raise ValueError("rows")
    return good_rows(head["rows"])


def _bad_row(source: str, problem: Problem) -> Rejected:
    number, field = problem
    return Rejected(source, "row", f"rows[{number}]{field}")


def _is_span(epoch: object) -> bool:
    """Whether a value is a day's number, start and end, each within the times that there are."""
    return type(epoch) is list and len(epoch) == 3 and all(type(n) is int and abs(n) < LATEST for n in epoch)
