"""The interfaces between a worker's partition task and its surroundings.

A partition task uses the engine and the log only through ``Engine``, ``TransactionalWriter`` and ``WriterFactory``.
Each storage, and every test, implements them.

The functions check that the logs are still those from which a state was made. A topic can be truncated, deleted and
recreated, or restored from a mirror; offsets then refer to other records. The state identifies its logs by the last
message that it read and by the hash chains of its ledgers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from stream.errors import TacetError
from stream.records import Micros
from stream.schemas import rfc3339

Bounds = Callable[[], Awaitable[tuple[int, int]]]
"""Returns the offsets [begin, end) that a log holds."""


class LossError(TacetError):
    """Part of a log that is still needed is lost; the message names the partition and the number of messages."""


class FencedError(TacetError):
    """Another owner has the partition; it reproduces everything that this one did not commit."""


class InterruptedWriteError(TacetError):
    """The outcome of a transaction is unknown; opening the partition again determines it."""


class DeliveryError(TacetError):
    """A message did not follow the one before it; nothing of it was processed."""


class UnexpectedCancellationError(TacetError):
    """Work was cancelled without a request."""


class Output(Protocol):
    """One record to be published, on the partition of this number of its topic."""

    @property
    def topic(self) -> str:
        """The record's topic."""

    @property
    def key(self) -> bytes:
        """The site, or a quarantine record's source."""

    @property
    def value(self) -> bytes:
        """The record's bytes."""

    @property
    def timestamp_ms(self) -> int:
        """The record's Kafka CreateTime: the window's end, never the time of publication."""

    @property
    def checkpoint(self) -> bool:
        """Whether a window closed with this record, so that a checkpoint is due."""

    @property
    def id(self) -> str:
        """The release id of a private record; copies have the same id."""


class Engine(Protocol):
    """Processes the messages of one partition; has the state of all its sites."""

    @property
    def unsaved(self) -> bool:
        """Whether the restored state must be saved before any output that follows from it is published."""

    def restore(self, snapshot: bytes | None) -> int | None:
        """Replace the state by that of a snapshot; return the next offset, None if there is no snapshot."""

    def audit_offset(self) -> int:
        """Return the offset up to which the restored state contains the audit partition; 0 at first."""

    def expect_replay(self, entries: Iterable[bytes], *, complete: bool = False) -> None:
        """Pass the audit records beyond the state, which must be replayed equal; otherwise ``FinalityError``.

        ``complete`` says that these are all records of the log: ``LossError`` if one is missing that the restored state
        has published.
        """

    def has_unreplayed_entries(self) -> bool:
        """Return whether some published audit entries have not been replayed yet."""

    def adopted(self) -> bool:
        """Return whether another policy or mechanism version made the restored state, which was accepted by consent."""

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state includes; None if that is not known."""

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state includes."""

    def due(self) -> Mapping[str, Micros]:
        """Return the end of the next window of each site that has closed a window."""

    def resume_after_loss(self, next_offset: int) -> None:
        """Continue, by consent, although all unread messages before ``next_offset`` are lost.

        The state no longer names a message that it has read last: the log may hold another one at that offset.
        """

    def process_in_steps(
        self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None
    ) -> Iterator[tuple[Sequence[Output], bool]]:
        """Process one message in steps of a bounded number of windows, at least one step.

        ``stamp`` is the time at which the broker appended the message, None if it is not known. Yields the outputs of
        each step, in order, and whether it was the last. The state may be saved after any step; before the last one
        this message's offset is the next offset, and processing the message again continues after that step.
        """

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        """Return the state of all sites with both offsets, in a stable byte form."""


class TransactionalWriter(Protocol):
    """The only writer of a partition; it also reads the logs other than the input."""

    async def last_snapshot(self) -> bytes | None:
        """Return the newest committed snapshot, None if there never was one; ``LossError`` if it is lost."""

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        """Return the audit records from ``offset`` on, including uncommitted ones, and the offset after the last.

        ``LossError`` if the log ends before that offset, or begins after it.
        """

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        """Return key and value of one message of the input; None if there is none at this offset."""

    async def missing(self, start: int, end: int) -> int:
        """Return how many offsets of the input in [start, end) hold neither a message nor a transaction marker."""

    async def released(self) -> str | None:
        """Return a topic of results that contains, or has contained, a record of this partition; None if none does."""

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        """Write records in order and the snapshot, all or none; return the offset after the last audit record.

        ``FencedError`` if another owner has the partition, ``InterruptedWriteError`` if the outcome is not known.
        """

    async def close(self) -> None:
        """Close the connection; records that were not committed are void."""


class WriterFactory(Protocol):
    """Creates the writers of partitions."""

    async def acquire(self, partition: int) -> TransactionalWriter:
        """Become the partition's only writer: from now on the writes of every earlier owner are refused."""


async def loss_of(
    partition: int, engine: Engine, writer: TransactionalWriter, position: int, bounds: Bounds
) -> LossError | None:
    """Return the loss between a state's position and the log; None if the log continues from that position."""
    begin, end = await bounds()
    if not begin <= position <= end:
        return position_outside_log(partition, position, begin, end)
    last = engine.last_read()
    if last is None or last < begin:  # the message has passed the topic's retention time, as expected
        return None
    message = await writer.message(last)
    if message is None:  # it may have passed that time since the bounds were read
        begin, end = await bounds()
        if last < begin <= position <= end:
            return None
    elif engine.recognises(*message):
        return None
    return LossError(
        f"partition {partition} of the observations: offset {last} holds another message than the one that was "
        "read there; the topic was made anew, and what was not read before is gone"
    )


def position_outside_log(partition: int, position: int, begin: int, end: int) -> LossError:
    """Return the loss for a position that the log of observations does not hold."""
    where = f"partition {partition} of the observations: offset {position} is next"
    if position < begin:
        return LossError(f"{where}, but the log begins at {begin}: {begin - position} messages are gone")
    return LossError(f"{where}, but the log ends at {end}: {position - end} messages that were read are gone")


def hole(partition: int, position: int, offset: int, missing: int) -> LossError:
    """Return the description of a loss inside the log: messages are missing before the one at ``offset``."""
    return LossError(
        f"partition {partition} of the observations: offset {position} is next, but {missing} messages between it and "
        f"offset {offset} are gone; a topic that is compacted loses all but the newest message of each site"
    )


def refusal_of(loss: LossError, due: Mapping[str, Micros]) -> LossError:
    """Return the error for a loss, with remedy and cost; ``due`` is the end of each site's first unreleased window."""
    return LossError(
        f"{loss}; 'tacet worker --accept-loss' continues from the first message that is left: {price_of(due)}; "
        "'tacet recover --kafka' shows up to which window, and lists the other remedies"
    )


def unrepeatable(loss: LossError) -> LossError:
    """Return the error for a loss of messages from which entries beyond the state were made.

    Records of the same windows would come out again with another coverage, so that the loss cannot be accepted.
    """
    return LossError(
        f"{loss}; ledger entries beyond the state were made from them, and their records cannot be made again with the "
        "same bytes; 'tacet recover --kafka' lists the remedies"
    )


def price_of(due: Mapping[str, Micros]) -> str:
    """Describe the cost of continuing after a loss of observations."""
    first = [f"of site {site} from the one that ends at {rfc3339(end)}" for site, end in sorted(due.items())]
    windows = f"the windows {', '.join(first)} on," if due else "the windows"
    return f"{windows} up to the first heartbeat that is left, have coverage 0, and are charged"


async def audit_beyond(engine: Engine, writer: TransactionalWriter) -> tuple[list[bytes], int]:
    """Pass an engine the audit records beyond its state; return them, and the offset after the last.

    A topic that was restored from a mirror has smaller offsets, because transaction markers are not mirrored. It is
    then read from its beginning. LossError if it does not contain everything that the state has published.
    """
    try:
        entries, end = await writer.audit_since(engine.audit_offset())
    except LossError as loss:
        entries, end = await writer.audit_since(0)
        try:
            engine.expect_replay(entries, complete=True)
        except LossError:
            raise loss from None
    else:
        engine.expect_replay(entries)
    return entries, end


def check_audit_not_recreated(partition: int, before: int, written: int, end: int) -> None:
    """Raise LossError if records were written before the end that the audit topic had.

    Args:
        partition: the partition.
        before: the offset after its last record, before the write.
        written: the number of records that were written.
        end: the offset after the last of them.
    """
    if end - written < before:
        msg = (
            f"partition {partition} of the audit: its records end at {end}, {written} of them new, where {before} had "
            "been written; the topic was made anew, or a broker without its last records was elected; 'tacet recover "
            "--kafka' lists the remedies"
        )
        raise LossError(msg)
