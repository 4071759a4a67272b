"""What encrypts at rest, as the core knows it: whoever runs a pipeline hands it in with the keys."""

from __future__ import annotations

from typing import Protocol


class Lock(Protocol):
    """The data key of one day."""

    @property
    def key_id(self) -> bytes:
        """Which key it is; tells nothing of it."""

    def encrypt(self, nonce: bytes, content: bytes, bound: bytes) -> bytes:
        """Return the content as nobody reads it without the key, nor as part of anything but ``bound``."""


class Vault(Protocol):
    """The data keys: encrypts, and opens what was encrypted."""

    def lock(self, key_day: int) -> Lock:
        """Return what encrypts under the key of a UTC day, or of the oldest day that is held where that is later."""

    def open(self, key_id: bytes, nonce: bytes, secret: bytes, bound: bytes) -> bytes:
        """Return what was encrypted.

        Raises:
            GoneKeyError: the key of that day has been destroyed.
            KeyFileError: it was encrypted under another data key.
            DataError: it is damaged, or does not belong to ``bound``.
        """
