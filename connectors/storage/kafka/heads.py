"""Signed audit heads in a topic of the cluster.

The signer is a separate user, and only that user may use the transactional id of its writes. If two signers run at the
same time, the earlier one is fenced, so heads never fork here. All heads are on one partition, in the order of their
numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka.errors import TransactionalIdAuthorizationFailed

from connectors.storage.kafka.client import close
from connectors.storage.kafka.topic_readers import partition_counts, read_range
from connectors.storage.kafka.transactions import transaction, transactional
from stream.accounting.signed_heads import SignedHead, parse_head
from stream.engine.ports import FencedError, InterruptedWriteError, LossError
from stream.errors import TacetError, UsageError
from stream.schemas import HEADS

FENCE = "tacet-heads"
PARTITION = 0


class HeadsTopic:
    """The heads in a cluster (see ``connectors.operations.audit.signed_heads.HeadsCopy``)."""

    name = f"topic {HEADS}"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def read(self) -> list[SignedHead]:
        """Return all heads; UsageError if there is no such topic, or it does not begin with its first record."""
        return asyncio.run(self._read())

    def exists(self) -> bool:
        """Return whether the topic exists, as far as this user can see."""
        return HEADS in asyncio.run(partition_counts(self._bootstrap))

    def add(self, known: int, heads: Sequence[SignedHead]) -> None:
        """Add heads after those that were read; TacetError if another process has added some since."""
        asyncio.run(self._add(known, heads))

    async def _read(self) -> list[SignedHead]:
        if HEADS not in await partition_counts(self._bootstrap):
            msg = f"{self.name}: does not exist, or is not open to this user; 'tacet topics create' makes it"
            raise UsageError(msg)
        try:
            values, _ = await read_range(self._bootstrap, HEADS, PARTITION, 0)
        except LossError:
            msg = f"{self.name}: must hold every head from the first on, but its beginning was deleted"
            raise UsageError(msg) from None
        return list(map(parse_head, values))

    async def _add(self, known: int, heads: Sequence[SignedHead]) -> None:
        try:
            producer = await transactional(self._bootstrap, FENCE)
        except TransactionalIdAuthorizationFailed:
            msg = f"{self.name}: is not open to this user for writing; heads have a user of their own, tacet-signer"
            raise UsageError(msg) from None
        try:
            if len(await self._read()) != known:
                raise TacetError(f"{self.name}: another signer has signed in the meantime; sign again")
            async with transaction(producer):
                for head in heads:
                    key = str(head.number).encode()
                    await producer.send_and_wait(HEADS, head.to_bytes(), key=key, partition=PARTITION)
        except (FencedError, InterruptedWriteError) as problem:
            raise TacetError(f"{self.name}: {problem}; sign again") from None
        finally:
            await close(producer)
