"""The keys of an installation, and how the noise key changes by day.

There are four independent keys. One derives the pseudonyms of devices; only the connector has it. One draws noise and
coins; only the worker has it. One signs the audit chain. One encrypts data at rest (``stream/encryption.py``).

The noise key of day d+1 is derived from that of day d by a one-way function (``ratchet``), and so is the data key. A
worker that has moved to a later day can neither draw the noise of earlier days again nor read their data. A laboratory
key keeps the root of its noise keys and can draw any day again. Whoever has a day's key can subtract the noise of that
day and, even without the root, of every later day.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import Protocol

from stream.domains import Domain, Purpose
from stream.encryption import Vault
from stream.errors import KeyFileError
from stream.records import DAY, Micros


class Keys(Protocol):
    """The interface of a key file, as the pipeline needs it."""

    @property
    def laboratory(self) -> bool:
        """Whether all records made with this key are marked as laboratory records."""

    @property
    def ledger(self) -> str:
        """Public id of the ledger to which this key belongs."""

    @property
    def audit(self) -> bytes:
        """Key that signs the audit chain."""

    @property
    def vault(self) -> Vault | None:
        """The data keys, which encrypt all data about people at rest; None if nothing is stored.

        KeyFileError if the key file has none.
        """

    def noise_key(self, key_day: int) -> bytes:
        """Return the noise key of a UTC day, given by its number since 1970-01-01; KeyFileError if it is destroyed."""


def fingerprint(keys: Keys) -> str:
    """Return an identifier of a key file that reveals nothing of its keys."""
    return hmac.new(keys.audit, Domain.FINGERPRINT + keys.ledger.encode(), hashlib.sha256).hexdigest()[:16]


def key_day_of(window_start: Micros) -> int:
    """Return the key day, the UTC day counted from 1970-01-01, of a window by its start."""
    return window_start // DAY


def ratchet(key: bytes) -> bytes:
    """Return the next day's key; the function is one-way."""
    return hashlib.sha256(Domain.RATCHET + key).digest()


def subkey(key: bytes, purpose: str) -> bytes:
    """Return a key derived for one purpose only, which begins with a ``Purpose``."""
    return hmac.new(key, Domain.SUBKEY + purpose.encode(), hashlib.sha256).digest()


@dataclass(frozen=True, slots=True, repr=False)
class LaboratoryKeys:
    """Keys with their root: any day can be drawn again, and all records are marked as laboratory records."""

    root: bytes
    ledger: str
    audit: bytes
    laboratory: bool = True
    vault: Vault | None = None

    def noise_key(self, key_day: int) -> bytes:
        """Return the noise key of any day."""
        return subkey(self.root, f"{Purpose.DAY} {key_day}")


@dataclass(frozen=True, slots=True, repr=False)
class ForwardKeys:
    """Keys from day ``first`` on; the keys of earlier days are destroyed."""

    first: int
    key: bytes
    ledger: str
    audit: bytes
    laboratory: bool = False
    vault: Vault | None = None

    def noise_key(self, key_day: int) -> bytes:
        """Return the noise key of ``first`` or a later day."""
        if key_day < self.first:
            msg = f"key: must contain the requested day, which was {self.first - key_day} days before its oldest"
            raise KeyFileError(msg)
        key = self.key
        for _ in range(key_day - self.first):
            key = ratchet(key)
        return key

    def from_key_day(self, key_day: int) -> ForwardKeys:
        """Return the keys without any day before ``key_day``."""
        if key_day <= self.first:
            return self
        return replace(self, first=key_day, key=self.noise_key(key_day))
