"""The envelope around everything stored that holds people's data: states, snapshots, messages that wait.

It says which form the content has, so that a later version can read an earlier one's store, and has room for
the key under which the content is encrypted. Version 1 had no envelope: such bytes are their own content.

    magic (6) | version (1) | kind (1) | compression (1) | length, key id | length, nonce | content

Content that has parts of its own is one line of JSON, and the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import orjson
from cramjam import DecompressionError, zstd

from stream.errors import DataError

VERSION = 2
"""The form that is written; this one and the one before it are read."""
_MAGIC = b"\x89TACET"  # neither JSON nor a form of parts begins so


class Kind(IntEnum):
    """What is inside."""

    SNAPSHOT = 1
    """Position and sites of a partition; each site is an envelope of its own."""
    SITE = 2
    """The states of one site's stages."""
    MESSAGE = 3
    """A batch or heartbeat that waits to be consumed."""
    RESTRICTED = 4
    """A record of true stays or true counts."""


class _Compression(IntEnum):
    NONE = 0
    ZSTD = 1


def seal(kind: Kind, content: bytes, *, compress: bool = False) -> bytes:
    """Return the content in an envelope of the present version."""
    compression = _Compression.ZSTD if compress else _Compression.NONE
    body = bytes(zstd.compress(content, level=1)) if compress else content
    not_encrypted = b"\0\0"  # no key id, no nonce
    return b"".join((_MAGIC, bytes((VERSION, kind, compression)), not_encrypted, body))


def version_of(data: bytes) -> int:
    """Return the version of stored bytes: 1 where they have no envelope."""
    return data[len(_MAGIC)] if data.startswith(_MAGIC) and len(data) > len(_MAGIC) else 1


def unseal(kind: Kind, data: bytes) -> bytes:
    """Return what is inside; bytes of version 1 as they are.

    Raises:
        DataError: of a version to come, encrypted, of another kind, or damaged.
    """
    version = version_of(data)
    if version == 1:
        return data
    if version != VERSION:
        msg = f"{kind.name.lower()}: must be of version {VERSION} or {VERSION - 1}, got version {version}"
        raise DataError(msg)
    try:
        found, compression, place = data[len(_MAGIC) + 1], data[len(_MAGIC) + 2], len(_MAGIC) + 3
        encrypted, place = _field(data, place)
        _, place = _field(data, place)
        compressed = _Compression(compression) is _Compression.ZSTD
        body = bytes(zstd.decompress(data[place:])) if compressed and not encrypted else data[place:]
    except (IndexError, ValueError, DecompressionError):
        found, encrypted, body = -1, b"", b""
    if encrypted:
        msg = f"{kind.name.lower()}: must not be encrypted, of which this version knows nothing"
        raise DataError(msg)
    if found != kind:
        msg = f"{kind.name.lower()}: must be a whole envelope of its kind"
        raise DataError(msg)
    return body


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
