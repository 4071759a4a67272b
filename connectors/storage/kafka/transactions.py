"""Transactions: all records of one are readable or none is, and only the newest producer of an id may write.

A producer that starts under a transactional id fences every earlier one, and the broker ends the transaction that such
a producer has left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from connectors.storage.kafka.aiokafka_errors import log_takeovers_as_information, write_failure
from connectors.storage.kafka.client import close, connect, producer_of
from connectors.storage.kafka.timeouts import COMMIT_TIMEOUT, TRANSACTION_TIMEOUT

log_takeovers_as_information()


async def transactional(bootstrap: str, name: str) -> Any:
    """Return the one producer of a transactional id; every earlier one is fenced, and its transaction ended.

    TimeoutError if no broker does that in time.
    """
    producer = producer_of(
        bootstrap, transactional_id=name, transaction_timeout_ms=int(TRANSACTION_TIMEOUT * 1000)
    )  # fmt: skip
    try:
        await connect(producer, bootstrap)
    except BaseException:
        await close(producer)
        raise
    return producer


@asynccontextmanager
async def transaction(producer: Any) -> AsyncIterator[None]:
    """Write all records that are sent in this context, or none; after an interruption the caller needs a new producer.

    Raises:
        FencedError: another producer has taken over the transactional id.
        InterruptedWriteError: the broker did not report the result.
    """
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            await producer.begin_transaction()
            yield
            await producer.commit_transaction()
    except Exception as error:
        failure = write_failure(error)
        if failure is None:
            raise
        raise failure from error
