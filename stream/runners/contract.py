"""What a worker is given and may raise: the engine of a partition, its one writer, and the errors of a log.

Both homes of a log and every test bring their own; who holds a partition knows them by these alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

from stream.errors import TacetError
from stream.records import Micros

Bounds = Callable[[], Awaitable[tuple[int, int]]]
"""Asks which offsets [begin, end) a log holds."""


class LossError(TacetError):
    """Part of a log that is still needed is gone; the message names partition and how much."""


class FencedError(TacetError):
    """Another owner has taken the partition; what this one had not committed is the other's to make again."""


class InterruptedWriteError(TacetError):
    """It is not known what became of a transaction: the partition must be opened anew to find out."""


class DeliveryError(TacetError):
    """A message did not follow the one before it; nothing of it was processed."""


class Output(Protocol):
    """One record to be published on the partition's number of a topic."""

    @property
    def topic(self) -> str:
        """Where it goes."""

    @property
    def key(self) -> bytes:
        """The site, or a quarantine record's source."""

    @property
    def value(self) -> bytes:
        """The record's bytes."""

    @property
    def timestamp_ms(self) -> int:
        """Its Kafka CreateTime: the window's end, never the time of publication."""

    @property
    def checkpoint(self) -> bool:
        """Whether a window closed here: publish, take a snapshot, acknowledge."""

    @property
    def id(self) -> str:
        """Of a private record its release id; copies have the same."""


class Engine(Protocol):
    """Everything of one partition of the observations: its sites' state, and what follows from a message."""

    unsaved: bool
    """Whether the restored state must be saved before anything is published that follows from it."""

    def restore(self, snapshot: bytes | None) -> int | None:
        """Forget all, take a snapshot's state; return the next offset, None when nothing was read yet."""

    def audit_offset(self) -> int:
        """Return the offset in the audit partition up to which the restored state knows; 0 at first."""

    def published(self, entries: Iterable[bytes], *, whole: bool = False) -> None:
        """Learn audit records that the log holds; a re-run that differs raises ``FinalityError``.

        ``whole`` says that these are all: ``LossError`` when one is missing that the restored state has published.
        """

    def has_unreplayed_entries(self) -> bool:
        """Return whether some of what was published has not come out again yet."""

    def adopted(self) -> bool:
        """Return whether the restored state was taken over by consent: another policy or mechanism version made it."""

    def last_read(self) -> int | None:
        """Return the offset of the last message that the state holds; None where that is not known."""

    def recognises(self, key: bytes | None, value: bytes) -> bool:
        """Return whether this is the last message that the state holds."""

    def resume_after_loss(self, next_offset: int) -> None:
        """Learn that everything before ``next_offset`` which was not read is lost for good, by consent."""

    def fold(
        self, offset: int, key: bytes | None, value: bytes, stamp: Micros | None
    ) -> Iterator[tuple[Sequence[Output], bool]]:
        """Fold one message in by steps of a bounded number of windows, at least one step.

        ``stamp`` is when the broker appended the message, None where it does not say. Yields what each step
        publishes, in order, and whether it was the last. After any other step the state may be saved too,
        with this message's offset as the next one: folding the message again goes on there.
        """

    def snapshot(self, next_offset: int, audit_offset: int) -> bytes:
        """Return the state of all sites with both positions, in a stable byte form."""


class Writer(Protocol):
    """The one writer of a partition, and what it reads besides the input."""

    async def last_snapshot(self) -> bytes | None:
        """Return the newest committed snapshot, None if there never was one; ``LossError`` when there was."""

    async def audit_since(self, offset: int) -> tuple[list[bytes], int]:
        """Return the audit records from ``offset`` on, uncommitted ones too, and the offset after the last.

        ``LossError`` when the log does not reach so far, or no longer back to it.
        """

    async def message(self, offset: int) -> tuple[bytes | None, bytes] | None:
        """Return key and value of one message of the input; None where there is none at this offset."""

    async def released(self) -> str | None:
        """Return a topic of results that holds, or has held, a record of this partition; None if none does."""

    async def commit(self, outputs: Sequence[Output], snapshot: bytes) -> int | None:
        """Write records in order and the snapshot, all or none; return the offset after the last audit record.

        ``FencedError`` when another owner has taken the partition, ``InterruptedWriteError`` when the outcome
        is not known.
        """

    async def close(self) -> None:
        """Let go of the connection; what was not committed is void."""


class Journal(Protocol):
    """Where partitions are taken."""

    async def take(self, partition: int) -> Writer:
        """Become the partition's one writer: from now on every earlier owner's writes are refused."""
