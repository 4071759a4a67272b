"""Whether the logs still are the ones that a state was made from: what it needs of them, and what they hold.

A topic can be cut off, deleted and made anew, or put back from a mirror. Offsets then stand for other records; what
the state keeps of the message it read last, and of its ledgers' hash chains, tells.
"""

from __future__ import annotations

from stream.runners.contract import Engine, LossError, Writer


async def loss_of(
    partition: int, engine: Engine, writer: Writer, position: int, bounds: tuple[int, int]
) -> LossError | None:
    """Return what is missing between a state's position and the log; None where the log goes on from it."""
    begin, end = bounds
    if not begin <= position <= end:
        return _outside(partition, position, begin, end)
    last = engine.last_read()
    if last is None or last < begin:  # what was read is past its time in the log, as it should be one day
        return None
    message = await writer.message(last)
    if message is not None and engine.recognises(*message):
        return None
    return LossError(
        f"partition {partition} of the observations: offset {last} holds another message than the one that was "
        "read there; the topic was made anew, and what was not read before is gone"
    )


def _outside(partition: int, position: int, begin: int, end: int) -> LossError:
    where = f"partition {partition} of the observations: offset {position} is next"
    if position < begin:
        return LossError(f"{where}, but the log begins at {begin}: {begin - position} messages are gone")
    return LossError(f"{where}, but the log ends at {end}: {position - end} messages that were read are gone")


async def audit_beyond(engine: Engine, writer: Writer) -> tuple[list[bytes], int]:
    """Let an engine learn the audit records beyond its state; return them, and the offset after the last.

    A topic that was put back from a mirror has smaller offsets, for marks of transactions are not mirrored: it is
    read from its beginning. LossError when it does not hold all that the state has published.
    """
    try:
        entries, end = await writer.audit_since(engine.audit_offset())
    except LossError as loss:
        entries, end = await writer.audit_since(0)
        try:
            engine.published(entries, whole=True)
        except LossError:
            raise loss from None
    else:
        engine.published(entries)
    return entries, end


def refuse_audit_made_anew(partition: int, before: int, now: int) -> None:
    """Raise LossError when the audit's records end before they did; both are offsets after the last of them."""
    if now <= before:
        msg = (
            f"partition {partition} of the audit: its records end at {now}, where {before} had been written; the topic "
            "was made anew, 'tacet recover --kafka' says what can be done"
        )
        raise LossError(msg)
