"""The embedded runner: the table of stages over a local store, without a broker.

Every message is made durable before it is acknowledged. When a window closes, one transaction of the store
writes outputs, ledger, state and position; only then are the audiences' outboxes filled, which may be done
again at any time. A mark beside the key remembers how far each site's hash chain has come, so that a store that
was set back is noticed: what it makes again must end in the same hash chain, and nothing is written or published
until it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from stream.errors import FinalityError, UsageError
from stream.messages import encode_message
from stream.records import Message, Micros
from stream.release.stage import MECHANISMS
from stream.runners.emitted import Emitted
from stream.runners.partition import Partition
from stream.schemas import AUDIT, parse_record

Chains = dict[str, tuple[int, str]]
"""Site -> (number of ledger entries, hash of the last)."""


class Store(Protocol):
    """What the runner needs of its store; every call returns when its effect is durable."""

    def append(self, value: bytes, stamp: Micros | None) -> int:
        """Keep one message and when it was received; return its position, counting up from 0."""

    def snapshot(self) -> bytes | None:
        """Return the last committed state, None at first."""

    def waiting(self, start: int) -> Iterable[tuple[int, bytes, Micros | None]]:
        """Return the messages kept at ``start`` and later with their stamps, in order."""

    def commit(self, outputs: Sequence[Emitted], snapshot: bytes, position: int) -> None:
        """Write outputs and state at once and forget the messages before ``position``."""

    def keep_policy(self, version: str, document: bytes) -> None:
        """Keep a policy for the account; one that is kept already stays as it is."""

    def chain_hash(self, site: str, sequence: int) -> str | None:
        """Return the hash of a committed ledger entry."""

    def deliver(self) -> None:
        """Bring every outbox up to date; FinalityError when a record is there with other bytes."""


class Mark(Protocol):
    """How far each site's hash chain has been published, kept apart from the store."""

    def read(self) -> Chains:
        """Return the mark; empty at first."""

    def made_by(self) -> str | None:
        """Return the mechanism version that published last; None where that is not known."""

    def advance(self, chains: Chains) -> None:
        """Move the mark forward."""


class KeyHolder(Protocol):
    """A key file that can let go of days that are over."""

    def forget_before(self, key_day: int) -> None:
        """Destroy the keys of earlier days."""


Published = Callable[[Partition, Sequence[Emitted]], None]
"""Called when what a commit holds is in the outboxes; at a start with nothing."""


class Embedded:
    """Feeds one partition from a store and commits at each window."""

    def __init__(
        self, partition: Partition, store: Store, mark: Mark, keys: KeyHolder,
        clock: Callable[[], Micros] | None = None,
    ) -> None:  # fmt: skip
        """``clock`` says when a live message is received; None for recordings, which nothing bounds."""
        self.partition = partition
        self._clock = clock
        self._store = store
        self._mark = mark
        self._keys = keys
        self._pending: list[Emitted] = []
        self._position = 0
        self._unreached: Chains = {}
        self._unfinished: Iterator[None] = iter(())
        """The steps left of the last message."""
        self._whole = True
        self.observers: list[Published] = []

    def start(self) -> None:
        """Take up where the last committed transaction left off.

        Raises:
            UsageError: the state belongs to another policy, mechanism version or key, or another version has
                published what lies beyond it.
            FinalityError: a site's hash chain contradicts the mark.
        """
        position = self.partition.restore(self._store.snapshot())
        self._position = position or 0
        self._compare_with_mark()
        self._refuse_other_version()
        self._store.keep_policy(self.partition.policy.version, self.partition.policy.document())
        if not self._unreached:
            self._give_out(())
        for offset, value, stamp in self._store.waiting(self._position):
            self._unfinished = self._fold(offset, value, stamp)
            self._finish()

    def take(self, message: Message, *, durable: bool = True) -> None:
        """Process one message; unless its source can give it again (``durable`` False) keep it first."""
        for _ in self.steps(message, durable=durable):
            pass

    def steps(self, message: Message, *, durable: bool = True) -> Iterator[None]:
        """Process one message by steps of a bounded number of windows, and commit after each that closed any.

        What is left when a caller stops between two steps is done before the next message; after a stop, when
        the message is read from the store or given again.
        """
        self._finish()
        value = encode_message(message, self.partition.vault if durable else None)
        stamp = None if self._clock is None or not durable else self._clock()
        self._unfinished = self._fold(self._store.append(value, stamp) if durable else None, value, stamp)
        for _ in self._unfinished:  # not "yield from", with which it would end when the caller stops
            yield

    def reopen(self, site: str) -> None:
        """Let a site that has shut at ``max_devices`` go on; UsageError when it is not shut."""
        self.partition.sites.reopen(site)

    def keep(self, message: Message) -> None:
        """Make one message durable for the next start, which takes it up in its place."""
        self._store.append(
            encode_message(message, self.partition.vault), None if self._clock is None else self._clock()
        )

    @property
    def unfinished(self) -> bool:
        """Whether the last message has windows left to close."""
        return not self._whole

    def _finish(self) -> None:
        for _ in self._unfinished:
            pass

    def give(self, outputs: Sequence[Emitted]) -> None:
        """Commit and publish what was released besides the stream, such as a backfill."""
        self._pending += outputs
        self._commit()

    def stop(self) -> None:
        """Commit what has been taken in since the last window.

        Raises:
            FinalityError: the store was set back and has not come as far again as what was published.
        """
        if self._unreached:
            raise _unreached(min(self._unreached))
        self._commit()

    def _fold(self, offset: int | None, value: bytes, stamp: Micros | None) -> Iterator[None]:
        for outputs, last in self.partition.fold(0 if offset is None else offset, None, value, stamp):
            self._whole = last
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
        snapshot = self.partition.snapshot(self._position, 0)
        self._store.commit(self._pending, snapshot, self._position)
        committed, self._pending = self._pending, []
        self._give_out(committed)

    def _give_out(self, committed: Sequence[Emitted]) -> None:
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
        """Let no other mechanism version repeat what was published: a hash chain says nothing of the noise."""
        others = {self.partition.made_by, self._mark.made_by()} - {None, MECHANISMS}
        if self._unreached and others:
            msg = (
                f"mechanism version: must be {min(map(str, others))}, which had a part in what was published beyond "
                f"this store, got {MECHANISMS}; the store was set back, 'tacet recover' says what can be done"
            )
            raise UsageError(msg)

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
        "published ends; nothing is released, 'tacet recover' says what can be done"
    )


def _contradiction(site: str, entries: int) -> FinalityError:
    return FinalityError(
        f"site {site}: the store was set back, and its ledger entry {entries - 1} now differs from what was "
        "published; nothing is released, 'tacet recover' says what can be done"
    )
