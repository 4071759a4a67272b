"""Signed audit heads in a topic of the cluster, beside the copies that are kept elsewhere.

Who signs is a user of its own, and its transactions have a name that only it may use: of two that sign at the same time
the one that came first is fenced, so heads never fork here. They lie on one partition, in the order of their numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka.errors import TransactionalIdAuthorizationFailed

from connectors.audit_chains import parse_entries
from connectors.kafka.bounded import partition_counts, read_range
from connectors.kafka.closing import close
from connectors.kafka.writers import transaction, transactional
from stream.accounting.signed_heads import SignedHead, parse_head
from stream.errors import TacetError, UsageError
from stream.runners.contract import FencedError, InterruptedWriteError, LossError
from stream.schemas import HEADS

FENCE = "tacet-heads"
PARTITION = 0


class TopicOfHeads:
    """The heads that a cluster holds (see ``connectors.reports.heads_files.CopyOfHeads``)."""

    name = f"topic {HEADS}"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def read(self) -> list[SignedHead]:
        """Return all heads; UsageError where there is no such topic, or it does not begin with its first record."""
        return asyncio.run(self._read())

    def exists(self) -> bool:
        """Whether there is such a topic, as far as this user sees."""
        return HEADS in asyncio.run(partition_counts(self._bootstrap))

    def add(self, known: int, heads: Sequence[SignedHead]) -> None:
        """Add heads behind those that were read; TacetError where another has added some since."""
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
        return [parse_head(record) for record in parse_entries(values)]

    async def _add(self, known: int, heads: Sequence[SignedHead]) -> None:
        try:
            producer = await transactional(self._bootstrap, FENCE)
        except TransactionalIdAuthorizationFailed:
            msg = f"{self.name}: is not open to this user for writing; heads have a user of their own, tacet-signer"
            raise UsageError(msg) from None
        try:
            if len(await self._read()) != known:
                raise TacetError(f"{self.name}: another has signed meanwhile; sign again")
            async with transaction(producer):
                for head in heads:
                    key = str(head.number).encode()
                    await producer.send_and_wait(HEADS, head.to_bytes(), key=key, partition=PARTITION)
        except (FencedError, InterruptedWriteError) as problem:
            raise TacetError(f"{self.name}: {problem}; sign again") from None
        finally:
            await close(producer)
