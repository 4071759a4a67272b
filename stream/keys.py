"""Keys by day.

Four unrelated keys exist: one names devices (the connector's alone), one draws noise and coins (the worker's alone),
one signs the audit chain, one encrypts what is kept at rest (``stream/vault.py``). The noise key of day d+1 follows
from that of day d by a one-way step, and so does the data key, so a worker that has stepped forward can neither redraw
the past nor read it; a laboratory key keeps the root of its noise and can. Who has a day's key can subtract that day's
noise and, without the root, every later day's.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Protocol

from stream.errors import KeyFileError
from stream.records import DAY, Micros
from stream.vault import Vault


class Keys(Protocol):
    """What the pipeline needs of a key file."""

    @property
    def laboratory(self) -> bool:
        """Whether everything made with this key is marked as made in a laboratory."""

    @property
    def ledger(self) -> str:
        """Public id of the one ledger that this key belongs to."""

    @property
    def audit(self) -> bytes:
        """Key that signs the audit chain."""

    @property
    def vault(self) -> Vault | None:
        """The data keys, under which everything that tells of people is encrypted at rest; None where nothing is kept.

        KeyFileError where the key file has none.
        """

    def noise_key(self, key_day: int) -> bytes:
        """Return the noise key of a key day, a UTC day by its number since 1970-01-01; KeyFileError when it is gone."""


def fingerprint(keys: Keys) -> str:
    """Return what identifies a key file without revealing anything of its keys."""
    return hmac.new(keys.audit, b"tacet fingerprint v1 " + keys.ledger.encode(), hashlib.sha256).hexdigest()[:16]


def key_day_of(window_start: Micros) -> int:
    """Return the UTC day, counted from 1970-01-01, whose key a window that starts then uses."""
    return window_start // DAY


def ratchet(key: bytes) -> bytes:
    """Return the next day's key; there is no way back."""
    return hashlib.sha256(b"tacet ratchet v1" + key).digest()


def subkey(key: bytes, purpose: str) -> bytes:
    """Return the part of a key that serves one purpose alone."""
    return hmac.new(key, b"tacet purpose v1 " + purpose.encode(), hashlib.sha256).digest()


@dataclass(frozen=True, slots=True, repr=False)
class LaboratoryKeys:
    """Keys with their root: any day can be drawn again, and everything made is marked so."""

    root: bytes
    ledger: str
    audit: bytes
    laboratory: bool = True
    vault: Vault | None = None

    def noise_key(self, key_day: int) -> bytes:
        """Return the noise key of any day."""
        return subkey(self.root, f"day {key_day}")


@dataclass(frozen=True, slots=True, repr=False)
class ForwardKeys:
    """Keys from one day on; earlier ones do not exist any more."""

    first: int
    key: bytes
    ledger: str
    audit: bytes
    laboratory: bool = False
    vault: Vault | None = None

    def noise_key(self, key_day: int) -> bytes:
        """Return the noise key of ``first`` or a later day."""
        if key_day < self.first:
            msg = f"key: must hold the day asked for, which was {self.first - key_day} days before its oldest"
            raise KeyFileError(msg)
        key = self.key
        for _ in range(key_day - self.first):
            key = ratchet(key)
        return key

    def from_key_day(self, key_day: int) -> ForwardKeys:
        """Return the keys without any day before ``key_day``."""
        if key_day <= self.first:
            return self
        return ForwardKeys(key_day, self.noise_key(key_day), self.ledger, self.audit)
