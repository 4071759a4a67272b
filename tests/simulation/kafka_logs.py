"""What the brokers of one cluster store: partitions, their copies, and when a record becomes visible.

This module follows Kafka 4.1; each rule names where it comes from. Only what this project's clients use is there.

- A batch is stored as it came, with the offset, the leader's epoch and, where a topic asks for it, the time of the
  append (``LogValidator``). Its bytes are the protocol's (record batch, version 2).
- The leader appends; each follower copies after a while. The high watermark is the least end among the replicas in
  sync (``Partition.maybeIncrementLeaderHW``). Readers see nothing beyond it.
- The last stable offset is the first offset of an open transaction, or of one whose marker lies at or above the high
  watermark (``UnifiedLog.lastStableOffset``).
- Of each producer the log remembers epoch and last five batches (``ProducerStateEntry``): a repeated batch gets its
  first answer, any other must follow the last one.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c, encode_varint

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Of a batch: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, first and largest
timestamp, producer's id and epoch, base sequence, number of records.
"""
ATTRIBUTES_AT, CRC_AT, LARGEST_TIME_AT = 21, 17, 35
COMPRESSION, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
REMEMBERED = 5
"""Batches of a producer that the log remembers (``ProducerStateEntry.NUM_BATCHES_TO_RETAIN``)."""

NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
NOT_ENOUGH_REPLICAS = 19
OUT_OF_ORDER_SEQUENCE = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48


class Header(NamedTuple):
    """The head of a batch."""

    base: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_time: int
    largest_time: int
    producer: int
    epoch: int
    sequence: int
    records: int


@dataclass(slots=True)
class Batch:
    """A stored batch."""

    base: int
    last: int
    data: bytes
    producer: int
    epoch: int
    sequence: int
    attributes: int
    appended_ms: int
    """When it was appended, by no broker's clock."""

    @property
    def transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def marker(self) -> bool:
        """Whether it is the mark of a transaction's end."""
        return bool(self.attributes & CONTROL)


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """First and last sequence, and first offset."""


class Record(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    committed: bool
    appended_ms: int
    """When the leader appended it, whatever its own time says."""


class Partition:
    """One partition, with its copies."""

    def __init__(self, topic: str, number: int, replicas: list[int], config: dict[str, str]) -> None:
        self.topic, self.number, self.replicas, self.config = topic, number, replicas, config
        self.leader: int | None = replicas[0]
        self.leader_epoch = 0
        self.in_sync = list(replicas)
        self.ends = dict.fromkeys(replicas, 0)
        """The end of each broker's copy: the copy is the log up to there."""
        self.batches: list[Batch] = []
        self.removed: list[Record] = []
        """Records that retention or compaction has removed, in order."""
        self._open_and_gone: dict[int, Batch] = {}
        """By offset, the batch of a record that was removed while its transaction was open."""
        self.start = 0
        self.high_watermark = 0
        self.moved: list[Callable[[], None]] = []
        """Called once when something has become visible, or the leader has changed."""
        self._producers: dict[int, _Producer] = {}
        self.open: dict[int, int] = {}
        """First offset of the open transaction of a producer."""
        self.ended: list[tuple[int, int, int, bool]] = []
        """Transactions that have ended: producer, first offset, the marker's offset, committed."""

    # --- offsets --------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset after the leader's last record."""
        return self.batches[-1].last + 1 if self.batches else self.start

    @property
    def last_stable(self) -> int:
        """The offset before which every transaction has ended."""
        unstable = [*self.open.values(), *(first for _, first, mark, _ in self.ended if mark >= self.high_watermark)]
        return min([self.high_watermark, *unstable])

    @property
    def min_in_sync(self) -> int:
        """How many copies must be in sync for a write to be accepted."""
        return int(self.config.get("min.insync.replicas", "1"))

    # --- writing --------------------------------------------------------------------------------------

    def check(self, header: Header) -> tuple[int, int | None]:  # noqa: PLR0911 - one line for each rule
        """Return an error code, and the offset of the first copy if a batch is a repetition.

        ``ProducerAppendInfo.checkProducerEpoch`` and ``checkSequence``, ``UnifiedLog.analyzeAndValidateProducerState``.
        """
        known = self._producers.get(header.producer)
        if header.producer < 0 or known is None:
            return NONE, None
        if header.epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH, None
        last = header.sequence + header.last_delta
        if header.epoch > known.epoch:
            return (NONE if header.sequence == 0 else OUT_OF_ORDER_SEQUENCE), None
        for first_sequence, last_sequence, offset in known.batches:
            if (first_sequence, last_sequence) == (header.sequence, last):
                return NONE, offset
        if known.batches and header.sequence != known.batches[-1][1] + 1:
            return OUT_OF_ORDER_SEQUENCE, None
        if not known.batches and header.sequence != 0:
            return OUT_OF_ORDER_SEQUENCE, None
        return NONE, None

    def append(self, data: bytes, header: Header, now_ms: int, ahead_ms: int = 0) -> int:
        """Store a batch that was checked; return the offset of its first record.

        The leader's clock, which is ``ahead_ms`` ahead, gives the time of the append (``LogValidator``).
        """
        content = bytearray(data)
        base, attributes = self.end, header.attributes
        if self.config.get("message.timestamp.type") == "LogAppendTime":
            attributes |= APPEND_TIME
            struct.pack_into(">h", content, ATTRIBUTES_AT, attributes)
            struct.pack_into(">q", content, LARGEST_TIME_AT, now_ms + ahead_ms)
            struct.pack_into(">I", content, CRC_AT, calc_crc32c(bytes(content[ATTRIBUTES_AT:])))
        struct.pack_into(">q", content, 0, base)
        struct.pack_into(">i", content, 12, self.leader_epoch)
        batch = Batch(
            base, base + header.last_delta, bytes(content), header.producer, header.epoch, header.sequence, attributes,
            now_ms,
        )  # fmt: skip
        self.batches.append(batch)
        self._remember(batch)
        return base

    def mark(self, producer: int, epoch: int, now_ms: int, ahead_ms: int = 0, *, commit: bool) -> None:
        """Append the mark that ends a producer's transaction."""
        data = marker(producer, epoch, now_ms + ahead_ms, commit=commit)
        self.append(data, _marker_header(producer, epoch), now_ms, ahead_ms)

    def fill_reversed(self, former: Partition, now_ms: int) -> None:
        """Hold the transactions of another partition, the last one first; this one ends where the other one does.

        No producer is known, as in a topic that was just created.
        """
        transactions: list[list[Batch]] = [[]]
        for batch in former.batches:
            transactions[-1].append(batch)
            if batch.marker:
                transactions.append([])
        for batch in (batch for each in reversed(transactions) for batch in each):
            self.append(batch.data, header_of(batch.data), now_ms)
        self._producers.clear()
        self.ends = dict.fromkeys(self.replicas, self.end)
        self.high_watermark = self.end

    def _remember(self, batch: Batch) -> None:
        if batch.producer < 0:
            return
        known = self._producers.get(batch.producer)
        if known is None or batch.epoch > known.epoch:
            known = self._producers[batch.producer] = _Producer(batch.epoch)
        if batch.marker:
            first = self.open.pop(batch.producer, None)
            if first is not None:
                self.ended.append((batch.producer, first, batch.base, _commits(batch)))
            return
        known.batches.append((batch.sequence, batch.sequence + batch.last - batch.base, batch.base))
        if batch.transactional:
            self.open.setdefault(batch.producer, batch.base)

    def copied(self, broker: int, upto: int) -> None:
        """Take note that a broker's copy reaches an offset."""
        self.ends[broker] = max(self.ends[broker], min(upto, self.end))
        self.advance()

    def advance(self) -> None:
        """Move the high watermark to the least end among the copies in sync."""
        if self.leader is None:
            return
        self.ends[self.leader] = self.end
        least = min(self.ends[each] for each in self.in_sync)
        if least > self.high_watermark:
            self.high_watermark = least
            self.notify()

    def notify(self) -> None:
        """Wake whoever waits for this partition."""
        waiting, self.moved = self.moved, []
        for each in waiting:
            each()

    # --- leaders --------------------------------------------------------------------------------------

    def elect(self, alive: Callable[[int], bool]) -> bool:
        """Let go of copies on brokers that are away, and choose a leader; return whether acknowledged records are lost.

        A clean leader is in sync; an unclean one is any that is left (``PartitionRegistration``, ``LeaderElector``).
        The last broker in sync stays in the set while it is away.
        """
        clean = [broker for broker in self.in_sync if alive(broker)]
        if clean:
            self.in_sync = clean
        if self.leader is not None and alive(self.leader) and self.leader in self.in_sync:
            self.advance()
            return False
        candidates = [broker for broker in self.replicas if broker in clean]
        if not candidates and self.config.get("unclean.leader.election.enable") == "true":
            candidates = [broker for broker in self.replicas if alive(broker)]
            self.in_sync = candidates[:1] or self.in_sync
        self.leader = candidates[0] if candidates else None
        lost = False
        if self.leader is not None:
            self.leader_epoch += 1
            lost = self._truncate(self.ends[self.leader])
            self.advance()
        self.notify()
        return lost

    def _truncate(self, end: int) -> bool:
        """Cut the log to the new leader's copy; return whether something visible is lost."""
        lost = end < self.high_watermark
        self.batches = [batch for batch in self.batches if batch.last < end]
        self.high_watermark = min(self.high_watermark, end)
        self.ends = {broker: min(at, end) for broker, at in self.ends.items()}
        self._producers, self.open, self.ended = {}, {}, []
        for batch in self.batches:
            self._remember(batch)
        return lost

    def lose_end(self, batches: int) -> None:
        """Lose the last batches, as after an unclean election of a broker without them."""
        left = self.batches[:-batches]
        self.leader_epoch += 1
        self._truncate(left[-1].last + 1 if left else self.start)
        self.notify()

    def follow(self, broker: int) -> None:
        """Let a broker's copy catch up, and be in sync again."""
        if self.leader is not None:
            self.ends[broker] = self.end
            if broker not in self.in_sync:
                self.in_sync.append(broker)
            self.advance()

    # --- reading --------------------------------------------------------------------------------------

    def read(self, offset: int, end: int, most: int) -> list[Batch]:
        """Return batches from the one that holds ``offset`` on, those before ``end``, at least one."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.batches[middle].last < offset else (low, middle)
        found: list[Batch] = []
        size = 0
        for batch in self.batches[low:]:
            if batch.base >= end or (found and size + len(batch.data) > most):
                break
            found.append(batch)
            size += len(batch.data)
        return found

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return producer and first offset of the aborted transactions that reach into [start, end)."""
        return sorted(
            (first, producer)
            for producer, first, mark, committed in self.ended
            if not committed and mark >= start and first < end
        )

    def delete_before(self, offset: int) -> None:
        """Move the start of the log, as retention does."""
        start = max(self.start, min(offset, self.high_watermark))
        self.removed += (record for record in self.records() if record.offset < start)
        self._open_and_gone |= {
            offset: batch for batch in self.batches if not self._settled(batch)
            for offset in range(batch.base, min(batch.last + 1, start))
        }  # fmt: skip
        self.start = start
        kept = [batch for batch in self.batches if batch.last >= self.start]
        if not kept and self.batches:
            kept = self.batches[-1:]  # the end stays where it is
        self.batches = kept

    def compact(self) -> None:
        """Remove each record that a later one of its key replaces, and those of aborted transactions.

        - The active segment, here the last batch, is not cleaned, nor is what lies at or behind the last stable offset
          (``LogCleanerManager.cleanableOffsets``).
        - Offsets stay: a batch keeps its base and its last offset (``MemoryRecords.filterTo``). A batch without a
          record is removed, unless it is the last one of its producer (``Cleaner.cleanInto``).
        - Marks of transactions, and records without a value, stay for ``delete.retention.ms``, which is a day.
        """
        end = min(self.last_stable, self.batches[-1].base) if self.batches else 0
        cleaned = [batch for batch in self.batches if batch.last < end and not batch.marker]
        records = {batch.base: list(self._records_of(batch)) for batch in cleaned}
        newest = {each.key: each.offset for found in records.values() for each in found if each.committed}
        last = {batch.producer: batch.base for batch in self.batches if not batch.marker}
        for batch in cleaned:
            found = records[batch.base]
            kept = [each for each in found if each.committed and each.offset == newest[each.key]]
            if len(kept) == len(found):
                continue
            self.removed += (each for each in found if each not in kept)
            if kept or (batch.producer >= 0 and last[batch.producer] == batch.base):
                batch.data = _rewritten(batch.data, kept)
            else:
                self.batches.remove(batch)
        self.removed.sort(key=lambda record: record.offset)

    def history(self) -> list[Record]:
        """Return every record that the log has ever shown, those that are removed too."""
        gone = self._open_and_gone
        removed = [
            record._replace(committed=self._settled(gone[record.offset])) if record.offset in gone else record
            for record in self.removed
        ]
        return sorted([*removed, *self.records()], key=lambda record: record.offset)

    def records(self) -> Iterator[Record]:
        """Yield every record below the high watermark, and whether its transaction was committed."""
        for batch in self.batches:
            if not batch.marker and batch.last < self.high_watermark:
                yield from self._records_of(batch)

    def _settled(self, batch: Batch) -> bool:
        """Return whether a batch belongs to no transaction, or to one that was committed."""
        return not batch.transactional or any(
            committed
            for producer, first, mark, committed in self.ended
            if producer == batch.producer and first <= batch.base < mark
        )

    def _records_of(self, batch: Batch) -> Iterator[Record]:
        settled, start = self._settled(batch), self.start
        for offset, key, value, timestamp in _content(batch.data):
            if offset >= start:
                yield Record(offset, key, value, timestamp, settled, batch.appended_ms)


@lru_cache(maxsize=8192)
def _content(data: bytes) -> list[tuple[int, bytes | None, bytes | None, int]]:
    """Return offset, key, value and time of each record of a batch."""
    found, content = MemoryRecords(data), []
    while (each := found.next_batch()) is not None:
        content += [(record.offset, record.key, record.value, record.timestamp) for record in each]
    return content


def header_of(data: bytes) -> Header:
    """Return the head of a batch."""
    return Header(*HEADER.unpack_from(data))


def with_header(data: bytes, header: Header) -> bytes:
    """Return a batch with another head."""
    content = bytearray(HEADER.pack(*header) + data[HEADER.size :])
    struct.pack_into(">I", content, CRC_AT, calc_crc32c(bytes(content[ATTRIBUTES_AT:])))
    return bytes(content)


def _rewritten(data: bytes, kept: Sequence[Record]) -> bytes:
    """Return a batch with some of its records, uncompressed, at the offsets that they have (``MemoryRecords``)."""
    header = header_of(data)
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=len(data) + 1024 * 1024,
    )  # fmt: skip
    for record in kept:
        builder.append(record.offset - header.base, record.timestamp, record.key, record.value, [])
    made = bytes(builder.build())
    fresh = header_of(made)
    return with_header(made, header._replace(
        length=fresh.length, attributes=header.attributes & ~COMPRESSION, first_time=fresh.first_time,
        records=len(kept),
    ))  # fmt: skip


def batches_of(data: bytes) -> Iterator[bytes]:
    """Yield the batches of a produce request's records."""
    at = 0
    while at < len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        yield data[at : at + size]
        at += size


def _commits(batch: Batch) -> bool:
    """Return whether a marker commits: the key is version and kind, 1 to commit (KIP-98)."""
    records = MemoryRecords(batch.data).next_batch()
    assert records is not None
    key = next(iter(records)).key
    assert key is not None
    return int(struct.unpack(">hh", key)[1]) == 1


def _marker_header(producer: int, epoch: int) -> Header:
    return Header(0, 0, 0, 2, 0, TRANSACTIONAL | CONTROL, 0, 0, 0, producer, epoch, -1, 1)


def marker(producer: int, epoch: int, now_ms: int, *, commit: bool) -> bytes:
    """Return the batch with the mark of a transaction's end (``EndTransactionMarker``, KIP-98)."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    body = bytearray(b"\0\0\0")  # attributes, time delta 0, offset delta 0
    for part in (key, value):
        encode_varint(len(part), body.append)
        body += part
    body += b"\0"  # no headers
    record = bytearray()
    encode_varint(len(body), record.append)
    record += body
    attributes = TRANSACTIONAL | CONTROL
    size = HEADER.size + len(record) - 12
    head = HEADER.pack(0, size, 0, 2, 0, attributes, 0, now_ms, now_ms, producer, epoch, -1, 1)
    batch = bytearray(head + record)
    struct.pack_into(">I", batch, CRC_AT, calc_crc32c(bytes(batch[ATTRIBUTES_AT:])))
    return bytes(batch)
