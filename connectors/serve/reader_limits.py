"""Limits of the event streams and downloads that readers have open at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

Reader = tuple[str, str | None]
"""The name of a token, and the address of a caller without one."""


class ReaderLimit(NamedTuple):
    """Maximum numbers of long answers of one kind that are open at a time."""

    total: int
    each: int
    """Of one reader."""
    without_token: int
    """Of all readers without a token, so that they leave room for others."""

    def exceeded(self, open_: Iterable[Reader], new: Reader) -> Excess | None:
        """Return the limit that one more answer to a reader would exceed; None if there is room.

        ``open_`` contains the reader of each open answer.
        """
        readers = Counter(open_)
        if readers.total() >= self.total:
            return Excess(503, f"{self.total} at a time")
        if readers[new] >= self.each:
            return Excess(429, f"{self.each} of one reader")
        if new[1] is not None and sum(n for (_, address), n in readers.items() if address is not None) >= (
            self.without_token
        ):
            return Excess(503, f"{self.without_token} without a token")
        return None


class Excess(NamedTuple):
    """The limit that a further answer would exceed."""

    status: int
    """503 if others use the room, 429 if the reader does."""
    limit: str


STREAMS = ReaderLimit(256, 64, 192)
"""Event streams."""
DOWNLOADS = ReaderLimit(4, 2, 3)
"""Files that are being sent."""
