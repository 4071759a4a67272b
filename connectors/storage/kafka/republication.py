"""Republication on a cluster: what it reads, and how it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping

from connectors.storage.kafka.client import close, connect, partition_of, partitions_of, producer_of
from connectors.storage.kafka.cluster import read
from connectors.storage.kafka.topic_readers import begin_offsets, topic_names
from connectors.storage.kafka.topic_tail import Record, by_sequence, consume
from connectors.storage.kafka.writers import headers_of
from stream.engine.cluster_state import ClusterState
from stream.engine.outputs import OutputRecord
from stream.engine.ports import LossError
from stream.schemas import AUDIT, OBSERVATIONS, is_private, parse_record


async def ledger_of(servers: str) -> tuple[ClusterState, list[bytes], dict[str, bytes]]:
    """Return the control state, the committed ledger entries, and the private records by release id.

    The records are read last: a charge and its record are one transaction.
    """
    control = await read(servers)
    entries = [record.value async for record in consume(servers, AUDIT, until_end=True, identity=by_sequence)]
    published: dict[str, bytes] = {}
    for topic in [name for name in await topic_names(servers) if is_private(name)]:
        async for record in consume(servers, topic, until_end=True):
            published[parse_record(record.value)["release_id"]] = record.value
    return control, entries, published


async def observations(servers: str) -> AsyncIterator[Record]:
    """Yield every message of the observations topic, each partition in order; LossError if its first ones are gone."""
    for partition, begin in (await begin_offsets(servers, OBSERVATIONS)).items():
        if begin > 0:
            msg = (
                f"partition {partition} of {OBSERVATIONS}: begins at offset {begin}, so that the first observations "
                "are gone; give a recording of all of them"
            )
            raise LossError(msg)
    async for record in consume(servers, OBSERVATIONS, until_end=True, identity=_place):
        yield record


def _place(record: Record) -> tuple[int, int]:
    return record.partition, record.offset


async def put_back(servers: str, records: Iterable[OutputRecord]) -> None:
    """Append records to their topics. AbsentTopicError if one of these topics is missing."""
    records = list(records)
    producer = producer_of(servers)
    try:
        await connect(producer, servers)
        counts: Mapping[str, int] = {
            topic: len(await partitions_of(producer, topic)) for topic in sorted({each.topic for each in records})
        }
        for each in records:
            await producer.send_and_wait(
                each.topic, each.value, key=each.key, partition=partition_of(each.key.decode(), counts[each.topic]),
                timestamp_ms=each.timestamp_ms, headers=headers_of(each),
            )  # fmt: skip
    finally:
        await close(producer)
