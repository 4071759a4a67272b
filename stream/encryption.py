"""The envelope around all data about people: states, snapshots, observations, true counts.

The envelope names the version of its form. The content is encrypted under the data key of a day, if there is one. The
envelope may also have a clear part, for readers without a key.

    magic (6) | 1 | kind (1) | compression (1) | length, key id | length of clear (4) | clear | length, nonce | content

Content that is not encrypted has neither key id nor nonce. All bytes before the nonce are authenticated together with
encrypted content: content that is moved under another key, kind or clear part cannot be decrypted. The nonce is derived
from these bytes, so the same content in the same place gives the same bytes. Before encryption the content is padded,
so that its size reveals little. States are compressed. Data from outside is never compressed, because it could expand
without limit when it is opened.

Content that consists of parts is one line of JSON followed by the parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import orjson
from cramjam import DecompressionError, zstd

from stream.domains import Magic
from stream.errors import DataError, KeyFileError, LaterVersionError
from stream.records import JsonObject

# --- the interface of encryption, which runners pass in with the keys ---------------------------------


class Lock(Protocol):
    """The data key of one day."""

    @property
    def key_id(self) -> bytes:
        """Identifier of the key; it reveals nothing about the key."""

    def encrypt(self, nonce: bytes, content: bytes, bound: bytes) -> bytes:
        """Return the encrypted content; it can be decrypted only with the key and together with ``bound``."""


class Vault(Protocol):
    """The data keys: creates locks for encryption, and decrypts."""

    def lock(self, key_day: int) -> Lock:
        """Return the lock of a UTC day, or of the oldest day that still has a key if that is later."""

    def open(self, key_id: bytes, nonce: bytes, secret: bytes, bound: bytes) -> bytes:
        """Return the decrypted content.

        Raises:
            DestroyedKeyError: the key of that day has been destroyed.
            KeyFileError: the content was encrypted under another data key.
            DataError: the content is damaged, or does not belong to ``bound``.
        """


VERSION = 1
"""The version of the form."""
_MAGIC = Magic.ENVELOPE.value
_PREFIX = len(_MAGIC) + 3
_LENGTH = 4
PADDED = 256
"""Least length of encrypted content; longer content has at most eight different lengths per factor of two."""


class Kind(IntEnum):
    """The kind of an envelope's content."""

    SNAPSHOT = 1
    """Position and sites of a partition; each site has its own envelope."""
    SITE = 2
    """The states of one site's stages; clear: ledger and account, and the state of its clock."""
    MESSAGE = 3
    """A batch or heartbeat that is stored until it is processed."""
    RESTRICTED = 4
    """A record of true stays or true counts; clear: its window."""
    OBSERVATIONS = 5
    """The rows of a batch; clear: site, source, session and number."""


_COMPRESSIBLE = frozenset({Kind.SNAPSHOT, Kind.SITE})
"""Kinds that only this program creates."""


class _Compression(IntEnum):
    NONE = 0
    ZSTD = 1


@dataclass(frozen=True, slots=True)
class _Form:
    """The fields of an envelope."""

    compressed: bool
    key_id: bytes
    clear: bytes
    nonce: bytes
    body: bytes
    bound: bytes


def seal(
    kind: Kind, content: bytes, *, clear: bytes = b"", compress: bool = False, lock: Lock | None = None
) -> bytes:  # fmt: skip
    """Return the content in an envelope, encrypted if a lock is given."""
    compression = _Compression.ZSTD if compress else _Compression.NONE
    body = bytes(zstd.compress(content, level=1)) if compress else content
    key_id = b"" if lock is None else lock.key_id
    stored = bytes(zstd.compress(clear, level=1)) if compress and clear else clear
    bound = b"".join((
        _MAGIC, bytes((VERSION, kind, compression, len(key_id))), key_id, len(stored).to_bytes(_LENGTH), stored
    ))  # fmt: skip
    if lock is None:
        return bound + b"\0" + body
    nonce = hashlib.blake2b(bound, digest_size=12).digest()
    return b"".join((bound, bytes((len(nonce),)), nonce, lock.encrypt(nonce, _padded(body), bound)))


def _padded(body: bytes) -> bytes:
    """Return the length of the body, the body, and zeros up to a length that many other bodies have too."""
    length = len(body) + _LENGTH
    step = max(PADDED, 1 << max(length.bit_length() - 4, 0))
    return len(body).to_bytes(_LENGTH) + body.ljust(-(-length // step) * step - _LENGTH, b"\0")


def version_of(data: bytes) -> int | None:
    """Return the version of an envelope; None for bytes without one."""
    return data[len(_MAGIC)] if data.startswith(_MAGIC) and len(data) > len(_MAGIC) else None


def is_encrypted(data: bytes) -> bool:
    """Whether bytes are an envelope whose content is encrypted."""
    return version_of(data) == VERSION and len(data) > _PREFIX and data[_PREFIX] > 0


def unseal(kind: Kind, data: bytes, vault: Vault | None = None) -> bytes:
    """Return the content of an envelope.

    Raises:
        DataError: the bytes are no envelope of this version and kind, or the envelope is damaged, or was moved.
        KeyFileError: the content is encrypted, and there is no vault, or the vault has other keys.
    """
    form = _form_of(kind, data)
    if not form.key_id:
        return _expanded(kind, form.body, compressed=form.compressed)
    if vault is None:
        msg = f"{kind.name.lower()}: is encrypted; give a key file that contains the data key"
        raise KeyFileError(msg)
    padded = vault.open(form.key_id, form.nonce, form.body, form.bound)
    end = _LENGTH + int.from_bytes(padded[:_LENGTH])
    return _expanded(kind, padded[_LENGTH:end], compressed=form.compressed)


def clear_of(kind: Kind, data: bytes, *, later: bool = False) -> bytes:
    """Return the clear part, empty if there is none; DataError as for ``unseal``.

    ``later`` also reads it in later versions, which keep the layout up to this part.
    """
    form = _form_of(kind, data, later=later)
    return _expanded(kind, form.clear, compressed=form.compressed and bool(form.clear))


def _form_of(kind: Kind, data: bytes, *, later: bool = False) -> _Form:
    """Return the fields of an envelope; DataError if it is not one of this kind."""
    version = version_of(data)
    if version is None:
        raise _incomplete(kind)
    version = min(version, VERSION) if later else version
    if version != VERSION:
        msg = f"{kind.name.lower()}: must be of version {VERSION}, got version {version}"
        raise LaterVersionError(msg) if version > VERSION else DataError(msg)
    try:
        found, compression = data[len(_MAGIC) + 1], _Compression(data[len(_MAGIC) + 2])
        key_id, place = _field(data, _PREFIX)
        end = place + _LENGTH + int.from_bytes(data[place : place + _LENGTH])
        clear, bound = data[place + _LENGTH : end], data[:end]
        nonce, place = _field(data, end)
    except (IndexError, ValueError):
        found = -1
    if found != kind or bool(key_id) != bool(nonce) or (compression and kind not in _COMPRESSIBLE):
        raise _incomplete(kind)
    return _Form(compression is _Compression.ZSTD, key_id, clear, nonce, data[place:], bound)


def _expanded(kind: Kind, body: bytes, *, compressed: bool) -> bytes:
    try:
        return bytes(zstd.decompress(body)) if compressed else body
    except DecompressionError:
        raise _incomplete(kind) from None


def _incomplete(kind: Kind) -> DataError:
    return DataError(f"{kind.name.lower()}: must be a complete envelope of its kind")


def _field(data: bytes, place: int) -> tuple[bytes, int]:
    """Return a field of at most 255 bytes, which follows its length, and the position after it."""
    end = place + 1 + data[place]
    if end > len(data):
        raise IndexError
    return data[place + 1 : end], end


# --- parts --------------------------------------------------------------------------------------------


def join_parts(head: JsonObject, parts: Mapping[str, bytes]) -> bytes:
    """Return one byte form of a JSON object and named binary parts.

    The form is the object in one line, with the names and lengths of the parts under ``parts``; a line feed; the parts.
    """
    lengths = [[name, len(part)] for name, part in parts.items()]
    return b"".join((orjson.dumps(head | {"parts": lengths}), b"\n", *parts.values()))


def split_parts(data: bytes) -> tuple[JsonObject, dict[str, bytes]]:
    """Return the object and the parts of :func:`join_parts`; DataError if the bytes do not have this form."""
    try:
        place = data.index(b"\n") + 1  # a line feed within JSON is escaped
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
