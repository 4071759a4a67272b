"""The envelope around everything that holds people's data: states, snapshots, observations, true counts.

It says which form the content has, so that a later version can read an earlier one's store. Content is encrypted under
the data key of a day where there is one; beside it may stand a part that is left clear, for those who hold no key.

    magic (6) | 2 | kind (1) | compression (1) | 0 | 0 | content
    magic (6) | 3 | kind (1) | compression (1) | length, key id | length of clear (4) | clear | length, nonce | content

The second form is written where there is a key or a clear part. All that stands before the nonce is bound to the
content: who moves content under another key, kind or clear part has bytes that do not open. The nonce follows from it
too, so the same content in the same place gives the same bytes. Before it is encrypted, content is padded, so that its
size says little, and states are compressed; what came from outside never is, or it might swell without end where it is
opened. Version 1 had no envelope: such bytes are their own content.

Content that has parts of its own is one line of JSON, and the parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import orjson
from cramjam import DecompressionError, zstd

from stream.errors import DataError, KeyFileError, LaterVersionError
from stream.vault import Lock, Vault

VERSION = 3
"""The latest form; it and those before it are read."""
_PLAIN = 2
"""The form of what is neither encrypted nor has a clear part."""
_MAGIC = b"\x89TACET"  # neither JSON nor a form of parts begins so
_PREFIX = len(_MAGIC) + 3
_LENGTH = 4
PADDED = 256
"""Encrypted content is this long at least; where it is longer, its length has at most eight values an octave."""


class Kind(IntEnum):
    """What is inside."""

    SNAPSHOT = 1
    """Position and sites of a partition; each site is an envelope of its own."""
    SITE = 2
    """The states of one site's stages; clear: its books, and where its clock stands."""
    MESSAGE = 3
    """A batch or heartbeat that waits to be consumed."""
    RESTRICTED = 4
    """A record of true stays or true counts; clear: of which window."""
    OBSERVATIONS = 5
    """The rows of a batch; clear: whose they are, session and number."""


_COMPRESSIBLE = frozenset({Kind.SNAPSHOT, Kind.SITE})
"""What only this program makes."""


class _Compression(IntEnum):
    NONE = 0
    ZSTD = 1


@dataclass(frozen=True, slots=True)
class _Form:
    """An envelope, taken apart."""

    compressed: bool
    key_id: bytes
    clear: bytes
    nonce: bytes
    body: bytes
    bound: bytes


def seal(
    kind: Kind, content: bytes, *, clear: bytes = b"", compress: bool = False, lock: Lock | None = None
) -> bytes:  # fmt: skip
    """Return the content in an envelope, encrypted where a lock is given."""
    compression = _Compression.ZSTD if compress else _Compression.NONE
    body = bytes(zstd.compress(content, level=1)) if compress else content
    if lock is None and not clear:
        return b"".join((_MAGIC, bytes((_PLAIN, kind, compression)), b"\0\0", body))
    key_id = b"" if lock is None else lock.key_id
    kept = bytes(zstd.compress(clear, level=1)) if compress else clear
    bound = b"".join((
        _MAGIC, bytes((VERSION, kind, compression, len(key_id))), key_id, len(kept).to_bytes(_LENGTH), kept
    ))  # fmt: skip
    if lock is None:
        return bound + b"\0" + body
    nonce = hashlib.blake2b(bound, digest_size=12).digest()
    return b"".join((bound, bytes((len(nonce),)), nonce, lock.encrypt(nonce, _padded(body), bound)))


def _padded(body: bytes) -> bytes:
    """Return the body behind its length, followed by zeros up to a length that many others have as well."""
    length = len(body) + _LENGTH
    step = max(PADDED, 1 << max(length.bit_length() - 4, 0))
    return len(body).to_bytes(_LENGTH) + body.ljust(-(-length // step) * step - _LENGTH, b"\0")


def version_of(data: bytes) -> int:
    """Return the version of stored bytes: 1 where they have no envelope."""
    return data[len(_MAGIC)] if data.startswith(_MAGIC) and len(data) > len(_MAGIC) else 1


def is_encrypted(data: bytes) -> bool:
    """Whether bytes are an envelope whose content is encrypted."""
    return version_of(data) == VERSION and len(data) > _PREFIX and data[_PREFIX] > 0


def unseal(kind: Kind, data: bytes, vault: Vault | None = None) -> bytes:
    """Return what is inside; bytes of version 1 as they are.

    Raises:
        DataError: of a version to come, of another kind, damaged or moved.
        KeyFileError: it is encrypted, and there is no vault, or not the one.
    """
    if version_of(data) == 1:
        return data
    form = _form_of(kind, data)
    if not form.key_id:
        return _expanded(kind, form.body, compressed=form.compressed)
    if vault is None:
        msg = f"{kind.name.lower()}: is encrypted; must be read with a key file that holds the data key"
        raise KeyFileError(msg)
    padded = vault.open(form.key_id, form.nonce, form.body, form.bound)
    end = _LENGTH + int.from_bytes(padded[:_LENGTH])
    return _expanded(kind, padded[_LENGTH:end], compressed=form.compressed)


def clear_of(kind: Kind, data: bytes) -> bytes:
    """Return the part that needs no key, empty where there is none; DataError as for ``unseal``."""
    if version_of(data) == 1:
        return b""
    form = _form_of(kind, data)
    return _expanded(kind, form.clear, compressed=form.compressed and bool(form.clear))


def _form_of(kind: Kind, data: bytes) -> _Form:
    """Take an envelope apart; DataError where it is none of this kind."""
    version = version_of(data)
    if version not in (_PLAIN, VERSION):
        msg = f"{kind.name.lower()}: must be of version {VERSION} or before, got version {version}"
        raise LaterVersionError(msg) if version > VERSION else DataError(msg)
    try:
        found, compression = data[len(_MAGIC) + 1], _Compression(data[len(_MAGIC) + 2])
        key_id, place = _field(data, _PREFIX)
        clear = b""
        if version == VERSION:
            end = place + _LENGTH + int.from_bytes(data[place : place + _LENGTH])
            clear, place = data[place + _LENGTH : end], end
        bound = data[:place]
        nonce, place = _field(data, place)
    except (IndexError, ValueError):
        found = -1
    if found != kind or (version == _PLAIN and key_id) or (compression and kind not in _COMPRESSIBLE):
        raise _not_whole(kind)
    return _Form(compression is _Compression.ZSTD, key_id, clear, nonce, data[place:], bound)


def _expanded(kind: Kind, body: bytes, *, compressed: bool) -> bytes:
    try:
        return bytes(zstd.decompress(body)) if compressed else body
    except DecompressionError:
        raise _not_whole(kind) from None


def _not_whole(kind: Kind) -> DataError:
    return DataError(f"{kind.name.lower()}: must be a whole envelope of its kind")


def _field(data: bytes, place: int) -> tuple[bytes, int]:
    """Return a field of at most 255 bytes that its length precedes, and the place behind it."""
    end = place + 1 + data[place]
    if end > len(data):
        raise IndexError
    return data[place + 1 : end], end


# --- parts --------------------------------------------------------------------------------------------


def join_parts(head: dict[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """Return one byte form of a JSON object and named binary parts.

    The object in one line, with the parts' names and lengths under ``parts``; a line feed; the parts.
    """
    lengths = [[name, len(part)] for name, part in parts.items()]
    return b"".join((orjson.dumps(head | {"parts": lengths}), b"\n", *parts.values()))


def split_parts(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the object and the parts of :func:`join_parts`; DataError when the bytes are no such form."""
    try:
        place = data.index(b"\n") + 1  # JSON writes a line feed of its own as an escape
        head = orjson.loads(data[:place])
        parts: dict[str, bytes] = {}
        for name, length in head.pop("parts"):
            parts[name] = data[place : place + length]
            place += length
    except (ValueError, KeyError, TypeError, AttributeError):
        place = -1
    if place != len(data):
        msg = "state: must be one line of JSON and the parts that it lists"
        raise DataError(msg)
    return head, parts
