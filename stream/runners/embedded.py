"""The embedded runner: the engine of one partition over a store.

Every message is durable before it is acknowledged. A commit, which each closed window causes, has these steps:

1. Read the mark again; FinalityError if another process has moved it.
2. Write outputs, ledger, state and position in one transaction of the store.
3. Advance the mark.
4. Fill the audiences' outboxes from the store. This step is idempotent and is repeated at each start.
5. Destroy the keys of days that no unfinished release needs.

The mark is a file beside the key that records how far each site's hash chain has been published. By it the runner
detects a store that was set back to an earlier copy. Such a store must reproduce its chains up to the mark; nothing is
written or published before that, and a chain that differs ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from stream.encoding import encode_message
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.errors import FinalityError, UsageError
from stream.records import Message, Micros
from stream.release.stage import MECHANISM_VERSION
from stream.schemas import AUDIT, parse_record

Chains = dict[str, tuple[int, str]]
"""Site -> (number of ledger entries, hash of the last)."""


class Store(Protocol):
    """The store of an embedded runner; every call returns when its effect is durable."""

    def append(self, value: bytes, stamp: Micros | None) -> int:
        """Store one message and its receive time; return its position, counted from 0."""

    def snapshot(self) -> bytes | None:
        """Return the last committed state, None at first."""

    def pending_messages(self, start: int) -> Iterable[tuple[int, bytes, Micros | None]]:
        """Return the stored messages from position ``start`` on with their stamps, in order."""

    def commit(self, outputs: Sequence[OutputRecord], snapshot: bytes, position: int) -> None:
        """Write outputs and state in one transaction and delete the messages before ``position``."""

    def keep_policy(self, version: str, document: bytes) -> None:
        """Store a policy for the account; one that is stored already stays unchanged."""

    def chain_hash(self, site: str, sequence: int) -> str | None:
        """Return the hash of a committed ledger entry."""

    def deliver(self) -> None:
        """Bring every outbox up to date; FinalityError when an outbox has a record with other bytes."""


class Mark(Protocol):
    """How far each site's hash chain has been published; stored apart from the store."""

    def read(self) -> Chains:
        """Return the mark; empty at first."""

    def mechanism_version(self) -> str | None:
        """Return the mechanism version that published last; None if that is not known."""

    def check_unmoved(self) -> None:
        """Raise FinalityError if anything else has moved the mark since this process did."""

    def advance(self, chains: Chains) -> None:
        """Move the mark forward; FinalityError as for ``check_unmoved``."""


class KeyHolder(Protocol):
    """A key file that can destroy the keys of past days."""

    def forget_before(self, key_day: int) -> None:
        """Destroy the keys of earlier days."""


CommitObserver = Callable[[PartitionEngine, Sequence[OutputRecord]], None]
"""Called with a commit's outputs when they are in the outboxes; at a start with none."""


class Embedded:
    """Processes the messages of one partition from a store and commits at each closed window."""

    def __init__(
        self, partition: PartitionEngine, store: Store, mark: Mark, keys: KeyHolder,
        clock: Callable[[], Micros] | None = None,
    ) -> None:  # fmt: skip
        """``clock`` gives the receive time of live messages; None for recordings, whose times are not bounded."""
        self.partition = partition
        self._clock = clock
        self._store = store
        self._mark = mark
        self._keys = keys
        self._pending: list[OutputRecord] = []
        self._position = 0
        self._unreached: Chains = {}
        """The marks that the sites' chains have not reached yet; nothing is committed while there is one."""
        self._unfinished: Iterator[None] = iter(())
        """The remaining steps of the last message."""
        self._message_complete = True
        self.observers: list[CommitObserver] = []

    def start(self) -> None:
        """Resume after the last committed transaction.

        Raises:
            UsageError: the state belongs to another policy, mechanism version or key, or another version published
                entries beyond it.
            FinalityError: a site's hash chain contradicts the mark.
        """
        position = self.partition.restore(self._store.snapshot())
        self._position = position or 0
        self._compare_with_mark()
        self._refuse_other_version()
        self._store.keep_policy(self.partition.policy.version, self.partition.policy.document())
        if not self._unreached:
            self._publish(())
        for offset, value, stamp in self._store.pending_messages(self._position):
            self._unfinished = self._process_in_steps(offset, value, stamp)
            self._finish()

    def process(self, message: Message, *, durable: bool = True) -> None:
        """Process one message. It is stored first, unless its source can send it again (``durable`` False)."""
        for _ in self.steps(message, durable=durable):
            pass

    def steps(self, message: Message, *, durable: bool = True) -> Iterator[None]:
        """Process one message in steps of a bounded number of windows, and commit after each that closed any.

        If the caller stops between two steps, the remaining steps run before the next message; after a restart, they
        run when the message is read from the store or passed again.
        """
        self._finish()
        value = encode_message(message, self.partition.vault if durable else None)
        stamp = None if self._clock is None or not durable else self._clock()
        self._unfinished = self._process_in_steps(self._store.append(value, stamp) if durable else None, value, stamp)
        for _ in self._unfinished:  # not "yield from": the generator would be closed when the caller stops
            yield

    def resume(self, site: str) -> None:
        """Resume a site that was suspended at ``max_devices``; UsageError when it is not suspended."""
        self.partition.sites.resume(site)

    def enqueue(self, message: Message) -> None:
        """Store one message without processing it; the next start processes it in its order."""
        self._store.append(
            encode_message(message, self.partition.vault), None if self._clock is None else self._clock()
        )

    @property
    def unfinished(self) -> bool:
        """Whether the last message still has windows to close."""
        return not self._message_complete

    def _finish(self) -> None:
        for _ in self._unfinished:
            pass

    def publish(self, outputs: Sequence[OutputRecord]) -> None:
        """Commit and publish outputs that did not come from the stream, such as those of a backfill."""
        self._pending += outputs
        self._commit()

    def stop(self) -> None:
        """Commit everything that was processed since the last commit.

        Raises:
            FinalityError: the store was set back and has not reproduced everything that was published.
        """
        if self._unreached:
            raise _unreached(min(self._unreached))
        self._commit()

    def _process_in_steps(self, offset: int | None, value: bytes, stamp: Micros | None) -> Iterator[None]:
        for outputs, last in self.partition.process_in_steps(0 if offset is None else offset, None, value, stamp):
            self._message_complete = last
            self._compare_outputs(outputs)
            self._pending += outputs
            if offset is not None and last:
                self._position = offset + 1
            if any(output.checkpoint for output in outputs):
                self._commit()
            yield

    def _commit(self) -> None:
        if self._unreached:
            return
        self._mark.check_unmoved()
        snapshot = self.partition.snapshot(self._position, 0)
        self._store.commit(self._pending, snapshot, self._position)
        committed, self._pending = self._pending, []
        self._publish(committed)

    def _publish(self, committed: Sequence[OutputRecord]) -> None:
        self._mark.advance(self.partition.sites.chains())
        self._store.deliver()
        key_day = self.partition.sites.oldest_key_day_needed()
        if key_day is not None:
            self._keys.forget_before(key_day)
        for observer in self.observers:
            observer(self.partition, committed)

    # --- the mark -------------------------------------------------------------------------------------

    def _compare_with_mark(self) -> None:
        chains = self.partition.sites.chains()
        for site, (entries, head) in self._mark.read().items():
            if entries > chains.get(site, (0, ""))[0]:
                self._unreached[site] = (entries, head)
            elif entries and self._store.chain_hash(site, entries - 1) != head:
                raise _contradiction(site, entries)

    def _refuse_other_version(self) -> None:
        """Refuse to reproduce records of another mechanism version: a hash chain does not show the noise."""
        others = {self.partition.mechanism_version, self._mark.mechanism_version()} - {None, MECHANISM_VERSION}
        if self._unreached and others:
            msg = (
                f"mechanism version: must be {min(map(str, others))}, which had a part in what was published beyond "
                f"this store, got {MECHANISM_VERSION}; the store was set back, 'tacet recover' lists the remedies"
            )
            raise UsageError(msg)

    def _compare_outputs(self, outputs: Sequence[OutputRecord]) -> None:
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
        "published ends; nothing is released, 'tacet recover' lists the remedies"
    )


def _contradiction(site: str, entries: int) -> FinalityError:
    return FinalityError(
        f"site {site}: the store was set back, and its ledger entry {entries - 1} now differs from what was "
        "published; nothing is released, 'tacet recover' lists the remedies"
    )
