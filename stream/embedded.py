"""The embedded runner: the table of stages over a local store, without a broker.

Every message is made durable before it is acknowledged. When a window closes, one transaction of the store
writes outputs, ledger, state and position; only then are the audiences' outboxes filled, which may be done
again at any time. A mark beside the key remembers how far each site's chain has come, so that a store that
was set back is noticed: what it makes again must end in the same chain, and nothing is written or given out
until it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from stream.errors import FinalityError
from stream.partition import Emitted, Partition
from stream.records import Heartbeat, ObservationBatch
from stream.schemas import AUDIT, encode_message, parse_record

Chains = dict[str, tuple[int, str]]
"""Site -> (number of ledger entries, hash of the last)."""


class Store(Protocol):
    """What the runner needs of its store; every call returns when its effect is durable."""

    def append(self, value: bytes) -> int:
        """Keep one message; return its position, counting up from 0."""

    def snapshot(self) -> bytes | None:
        """Return the last committed state, None at first."""

    def waiting(self, start: int) -> Iterable[tuple[int, bytes]]:
        """Return the messages kept at ``start`` and later, in order."""

    def commit(self, outputs: Sequence[Emitted], snapshot: bytes, position: int) -> None:
        """Write outputs and state at once and forget the messages before ``position``."""

    def chain_hash(self, site: str, sequence: int) -> str | None:
        """Return the hash of a committed ledger entry."""

    def deliver(self) -> None:
        """Bring every outbox up to date; FinalityError when a record is there with other bytes."""


class Mark(Protocol):
    """How far each site's chain has been given out, kept apart from the store."""

    def read(self) -> Chains:
        """Return the mark; empty at first."""

    def advance(self, chains: Chains) -> None:
        """Move the mark forward."""


class KeyHolder(Protocol):
    """A key file that can let go of days that are over."""

    def forget_before(self, day: int) -> None:
        """Destroy the keys of earlier days."""


class Embedded:
    """Feeds one partition from a store and commits at each window."""

    def __init__(self, partition: Partition, store: Store, mark: Mark, keys: KeyHolder) -> None:
        self.partition = partition
        self._store = store
        self._mark = mark
        self._keys = keys
        self._pending: list[Emitted] = []
        self._position = 0
        self._unreached: Chains = {}

    def start(self) -> None:
        """Take up where the last committed transaction left off.

        Raises:
            UsageError: the state belongs to another policy, mechanism version or key.
            FinalityError: the store's chain contradicts the mark.
        """
        position = self.partition.restore(self._store.snapshot())
        self._position = position or 0
        self._compare_with_mark()
        if not self._unreached:
            self._give_out()
        for offset, value in self._store.waiting(self._position):
            self._feed(offset, value)

    def take(self, message: ObservationBatch | Heartbeat, *, durable: bool = True) -> None:
        """Process one message; unless its source can give it again (``durable`` False) keep it first."""
        value = encode_message(message)
        self._feed(self._store.append(value) if durable else None, value)

    async def append(self, message: ObservationBatch | Heartbeat) -> None:
        """Process one message of a live connector; when this returns it survives a crash."""
        self.take(message)

    def give(self, outputs: Sequence[Emitted]) -> None:
        """Commit and give out what was released besides the stream, such as a backfill."""
        self._pending += outputs
        self._commit()

    def stop(self) -> None:
        """Commit what has been taken in since the last window.

        Raises:
            FinalityError: the store was set back and has not come as far again as what was given out.
        """
        if self._unreached:
            raise _unreached(min(self._unreached))
        self._commit()

    def _feed(self, offset: int | None, value: bytes) -> None:
        outputs = self.partition.feed(0 if offset is None else offset, None, value)
        self._compare_outputs(outputs)
        self._pending += outputs
        if offset is not None:
            self._position = offset + 1
        if any(output.checkpoint for output in outputs):
            self._commit()

    def _commit(self) -> None:
        if self._unreached:
            return
        snapshot = self.partition.snapshot(self._position, 0)
        self._store.commit(self._pending, snapshot, self._position)
        self._pending = []
        self._give_out()

    def _give_out(self) -> None:
        self._mark.advance(self.partition.chains())
        self._store.deliver()
        day = self.partition.oldest_day_needed()
        if day is not None:
            self._keys.forget_before(day)

    # --- the mark -------------------------------------------------------------------------------------

    def _compare_with_mark(self) -> None:
        chains = self.partition.chains()
        for site, (entries, head) in self._mark.read().items():
            if entries > chains.get(site, (0, ""))[0]:
                self._unreached[site] = (entries, head)
            elif entries and self._store.chain_hash(site, entries - 1) != head:
                raise _contradiction(site, entries)

    def _compare_outputs(self, outputs: Sequence[Emitted]) -> None:
        for output in outputs:
            if output.topic == AUDIT and self._unreached:
                entry = parse_record(output.value)
                entries, head = self._unreached.get(entry["site"], (0, ""))
                if entry["sequence"] == entries - 1:
                    if entry["hash"] != head:
                        raise _contradiction(entry["site"], entries)
                    del self._unreached[entry["site"]]


def _unreached(site: str) -> FinalityError:
    return FinalityError(
        f"site {site}: the store was set back, and these observations do not lead it again to where what was "
        "given out ends; nothing is released"
    )


def _contradiction(site: str, entries: int) -> FinalityError:
    return FinalityError(
        f"site {site}: the store was set back, and its ledger entry {entries - 1} now differs from what was "
        "given out; nothing is released"
    )
