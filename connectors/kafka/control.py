"""The control topic on Kafka: read whole, and changed only by who fences every other writer meanwhile."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import stamina
from aiokafka.errors import KafkaError

from connectors.kafka.bounded import partition_counts, read_keyed
from connectors.kafka.client import BROKER_PATIENCE
from connectors.kafka.closing import close
from connectors.kafka.writers import transaction, transactional
from stream.errors import TacetError, UsageError
from stream.runners.agreement import Control, Records, found, refuse_other_counts
from stream.runners.contract import FencedError, InterruptedWriteError
from stream.runners.retirement import refuse_other_key
from stream.schemas import CONTROL, OBSERVATIONS

log = logging.getLogger(__name__)

FENCE = "tacet-control"
TRIES = 20
FIRST_WAIT, LONGEST_WAIT = 0.1, 0.5
"""Seconds between two attempts; chance adds up to the first, so that two that met do not meet again."""


async def read(bootstrap: str) -> Control:
    """Return what stands in the control topic; UsageError when there is no such topic."""
    control = Control()
    for key, value, stamp_ms in await read_keyed(bootstrap, CONTROL, 0):
        control.apply(key.decode(errors="replace"), value, stamp_ms * 1000)
    return control


async def decide(bootstrap: str, rule: Callable[[Control], Records]) -> Control:
    """Write what a rule makes of all that was written before; return what stands then.

    Nobody else writes between reading and writing: who came later has fenced this one, which then reads again.
    """
    deciding = stamina.AsyncRetryingCaller(
        attempts=TRIES, timeout=None, wait_initial=FIRST_WAIT, wait_max=LONGEST_WAIT, wait_jitter=FIRST_WAIT
    )
    try:
        return await deciding((FencedError, InterruptedWriteError), _decided, bootstrap, rule)
    except (FencedError, InterruptedWriteError):
        msg = "control topic: must be free to write to, but others were writing all the time"
        raise TacetError(msg) from None


async def _decided(bootstrap: str, rule: Callable[[Control], Records]) -> Control:
    producer = await _taken(bootstrap)
    try:
        control = await read(bootstrap)
        records = rule(control)
        if records:
            async with transaction(producer):
                for key, value in records.items():
                    await producer.send_and_wait(CONTROL, value, key=key.encode(), partition=0)
        for key, value in records.items():
            control.apply(key, value, 0)
        return control
    finally:
        await close(producer)


async def _taken(bootstrap: str) -> Any:
    try:
        return await asyncio.wait_for(transactional(bootstrap, FENCE), BROKER_PATIENCE)
    except TimeoutError:
        msg = (
            f"Kafka: must be able to begin a transaction within {BROKER_PATIENCE:.0f} s; are there as many brokers as "
            "transaction.state.log.replication.factor asks for?"
        )
        raise TacetError(msg) from None


async def refuse_ended(bootstrap: str, key: str, ledger: str) -> None:
    """Raise UsageError where the cluster goes on with another key than this fingerprint's; who is idle asks for it.

    Where no broker answers there is nothing to tell: it is asked again.
    """
    try:
        control = await read(bootstrap)
    except (KafkaError, ConnectionError, TimeoutError) as error:
        log.info("the control topic was not read: %s", type(error).__name__)
        return
    refuse_other_key(control, key, ledger)


async def found_cluster(bootstrap: str, partitions: int) -> Control:
    """Give the cluster its identity, if it has none."""
    return await decide(bootstrap, lambda control: found(control, partitions, secrets.token_hex(8)))


async def checked(bootstrap: str) -> Control:
    """Return the cluster's record after comparing all topics with it; a cluster without one is given it.

    UsageError when a topic has another number of partitions, or does not exist.
    """
    counts = await engine_counts(bootstrap)
    if CONTROL not in counts or OBSERVATIONS not in counts:
        missing = CONTROL if OBSERVATIONS in counts else OBSERVATIONS
        msg = f"topic {missing}: does not exist; create it with 'tacet topics create'"
        raise UsageError(msg)
    control = await read(bootstrap)
    if control.partitions is None:
        control = await found_cluster(bootstrap, counts[OBSERVATIONS])
    refuse_other_counts(control, {name: count for name, count in counts.items() if name != CONTROL})
    return control


async def looked_at(bootstrap: str) -> Control:
    """Return the cluster's record after comparing the topics that can be seen with it; for who only reads.

    UsageError when the control topic cannot be seen, or a topic has another number of partitions.
    """
    counts = await engine_counts(bootstrap)
    if CONTROL not in counts:
        msg = f"topic {CONTROL}: does not exist, or is not open to this user"
        raise UsageError(msg)
    control = await read(bootstrap)
    refuse_other_counts(control, {name: count for name, count in counts.items() if name != CONTROL})
    return control


async def refuse_grown(bootstrap: str, topics: Iterable[str]) -> None:
    """Raise UsageError when one of these topics has another number of partitions than the cluster.

    Nothing is compared where the control topic cannot be seen: who reads private topics need not see it.
    """
    counts = await engine_counts(bootstrap)
    if CONTROL in counts:
        refuse_other_counts(await read(bootstrap), {name: counts[name] for name in topics if name in counts})


async def engine_counts(bootstrap: str) -> Mapping[str, int]:
    """Return the number of partitions of every topic of ours that can be seen."""
    return {name: count for name, count in (await partition_counts(bootstrap)).items() if name.startswith("tacet.")}
