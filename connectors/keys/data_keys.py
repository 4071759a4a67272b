"""The data key: stored data is encrypted under the key of its day, with AES-GCM-SIV.

The key of a day follows from that of the day before by a one-way step, so a file that has stepped forward opens nothing
of earlier days. The chain begins with day 0, 1970-01-01, so a new file has the key of every day. AES-GCM-SIV is used
because the same content in the same place must give the same bytes again after a crash, and it remains safe if a nonce
is used twice (RFC 8452).
"""

from __future__ import annotations

import hmac

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.backends.openssl import backend
from cryptography.hazmat.primitives.ciphers import aead

from stream.domains import Purpose
from stream.errors import DataError, DestroyedKeyError, KeyFileError, UsageError
from stream.keys import ratchet, subkey
from stream.records import DAY, LATEST

_LAST = LATEST // DAY
_DAY_BYTES, _CHECK_BYTES = 4, 8
_HELD = 8
"""Number of days whose ciphers are cached."""


class DayLock:
    """The data key of one day, ready to encrypt."""

    def __init__(self, key_day: int, key: bytes) -> None:
        """Set the key of a UTC day; UsageError if the library has no AES-GCM-SIV."""
        self.key_id = key_day.to_bytes(_DAY_BYTES) + subkey(key, Purpose.DATA_KEY_ID)[:_CHECK_BYTES]
        self._cipher = _cipher(subkey(key, Purpose.DATA_ENCRYPTION))

    def encrypt(self, nonce: bytes, content: bytes, bound: bytes) -> bytes:
        """Encrypt the content and bind it to ``bound``: it opens only with the key and the same ``bound``."""
        return self._cipher.encrypt(nonce, content, bound)

    def decrypt(self, nonce: bytes, secret: bytes, bound: bytes) -> bytes:
        """Return the decrypted content; DataError if it is damaged, or does not belong to ``bound``."""
        try:
            return self._cipher.decrypt(nonce, secret, bound)
        except (InvalidTag, ValueError):
            msg = "encrypted value: is damaged, or was copied from another place"
            raise DataError(msg) from None


class DataKeys:
    """The data keys of a day and all later ones (see ``stream.encryption.Vault``)."""

    def __init__(self, first: int, key: bytes) -> None:
        """Set the key of a UTC day, the oldest one that is available; UsageError if the library has no AES-GCM-SIV."""
        _cipher(bytes(32))  # a program that cannot encrypt is refused at its start, not at its first record
        self.first = first
        self._keys = {first: key}
        self._locks: dict[int, DayLock] = {}

    def __repr__(self) -> str:
        return f"DataKeys(first={self.first})"

    def lock(self, key_day: int) -> DayLock:
        """Return the cipher of a UTC day, or of the oldest available day if that is later."""
        wanted = min(max(key_day, self.first), _LAST)
        lock = self._locks.get(wanted)
        if lock is None:
            while len(self._locks) >= _HELD:
                del self._locks[next(iter(self._locks))]
            lock = self._locks[wanted] = DayLock(wanted, self.key_of(wanted))
        return lock

    def open(self, key_id: bytes, nonce: bytes, secret: bytes, bound: bytes) -> bytes:
        """Return the decrypted content.

        Raises:
            DestroyedKeyError: the key of that day has been destroyed.
            KeyFileError: it was encrypted under another data key.
            DataError: it is damaged, or does not belong to ``bound``.
        """
        key_day = int.from_bytes(key_id[:_DAY_BYTES])
        if len(key_id) != _DAY_BYTES + _CHECK_BYTES or key_day > _LAST:
            raise DataError("encrypted value: must name the day of its key")
        if key_day < self.first:
            msg = f"data key: must contain the requested day, which was {self.first - key_day} days before its oldest"
            raise DestroyedKeyError(msg)
        lock = self.lock(key_day)
        if not hmac.compare_digest(lock.key_id, key_id):
            msg = (
                "data key: must be the one under which this was encrypted, got another; ingest and worker need files "
                "of one key ('tacet key export'), after 'tacet key retire' those of the new one"
            )
            raise KeyFileError(msg)
        return lock.decrypt(nonce, secret, bound)

    def key_of(self, key_day: int) -> bytes:
        """Return the key of an available day; it is cached for the days after it."""
        day = max(known for known in self._keys if known <= key_day)
        key = self._keys[day]
        for _ in range(key_day - day):
            key = ratchet(key)
        self._keys = {self.first: self._keys[self.first], key_day: key}
        return key

    def forget_before(self, key_day: int) -> None:
        """Drop the keys of all earlier days."""
        if key_day > self.first:
            key = self.key_of(min(key_day, _LAST))
            self.first = min(key_day, _LAST)
            self._keys = {self.first: key}
            self._locks = {day: lock for day, lock in self._locks.items() if day >= self.first}


def _cipher(key: bytes) -> aead.AESGCMSIV:
    try:
        return aead.AESGCMSIV(key)
    except (UnsupportedAlgorithm, AttributeError):
        msg = (
            "cryptography: must have AES-GCM-SIV, which OpenSSL has from 3.2 on, got "
            f"{backend.openssl_version_text()}; install its wheel with 'pip install cryptography'"
        )
        raise UsageError(msg) from None
