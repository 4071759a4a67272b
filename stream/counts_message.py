"""The message that tells counts, between its record and JSON; a bad count loses only itself."""

from __future__ import annotations

from stream.records import LARGEST_COUNT, CountedWindow, Rejected

Sender = tuple[str, str, int]
"""Site, source and session of a message."""


def counts_message(
    sender: Sender, window_end: object, counts: object, latest: int
) -> tuple[CountedWindow | None, list[Rejected]]:
    """Return the message with its good counts, and what had to be rejected; ``latest`` is no time any more."""
    if type(window_end) is not int or not 0 <= window_end < latest or type(counts) is not dict:
        return None, [Rejected(sender[1], "type", "window_end or counts")]
    good = tuple((zone, n) for zone, n in counts.items() if type(n) is int and 0 <= n <= LARGEST_COUNT)
    rejected = [Rejected(sender[1], "row", "counts")] * (len(counts) - len(good))
    return CountedWindow(*sender, window_end, good), rejected
