"""What a message may claim, measured against the time at which its log took it.

A log stamps every message when it takes it (Kafka's append time, the receive time in the embedded store). No
connector is ahead of that by more than its clock is wrong, so nothing in a message may lie further than
``AHEAD`` beyond it: one forged or mistaken heartbeat would otherwise close the windows of years to come, and
one session of the future shut out every connector after it. The stamp is kept with the message, so a re-run of
the log decides the same. Recordings have no stamp, and no bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stream.columns import Columns
from stream.records import MINUTE, CountedWindow, Heartbeat, Message, Micros, ObservationBatch, Rejected

AHEAD: Micros = 5 * MINUTE
"""What lies so far ahead of its stamp is rejected."""
REASON = "ahead"


def bounded(message: Message, stamp: Micros | None) -> tuple[Message | None, list[Rejected]]:
    """Return what of a message may be taken, None for nothing, and what of it lies too far ahead of its stamp."""
    if stamp is None:
        return message, []
    latest = stamp + AHEAD
    for field, claimed in _claims(message):
        if claimed > latest:
            return None, [Rejected(message.source, REASON, field)]
    if not isinstance(message, ObservationBatch):
        return message, []
    columns = Columns.of(message.rows)
    if max(columns.times, default=latest) <= latest:
        return message, []
    early = [number for number, time in enumerate(columns.times) if time > latest]
    rows = columns.where(time <= latest for time in columns.times)
    return replace(message, rows=rows), [Rejected(message.source, REASON, f"rows[{number}].time") for number in early]


def _claims(message: Message) -> Iterator[tuple[str, Micros]]:
    """Yield the times that a message as a whole claims, by field."""
    yield "session", message.session
    if isinstance(message, Heartbeat):
        yield "watermark", message.watermark
    elif isinstance(message, CountedWindow):
        yield "window_end", message.window_end
