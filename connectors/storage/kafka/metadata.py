"""The metadata topic: the newest message of each site is valid."""

from __future__ import annotations

from typing import cast

import orjson

from connectors.storage.kafka.client import close, connect, partition_of, producer_of
from connectors.storage.kafka.topic_readers import partition_counts, read_keyed
from connectors.storage.site_metadata import SiteMetadata, SitesMetadata
from stream.schemas import METADATA, parse_record


async def publish(bootstrap: str, sites: SitesMetadata) -> None:
    """Write the messages that differ from the present ones; nothing if the cluster has no such topic."""
    present = await read(bootstrap)
    partitions = (await partition_counts(bootstrap)).get(METADATA, 0)
    changed = {site: body for site, body in sites.items() if present.get(site) != body}
    if not changed or not partitions:
        return
    producer = producer_of(bootstrap)
    try:
        await connect(producer, bootstrap)
        for site, body in changed.items():
            value, place = orjson.dumps(body), partition_of(site, partitions)
            await producer.send_and_wait(METADATA, value, key=site.encode(), partition=place)
    finally:
        await close(producer)


async def read(bootstrap: str) -> dict[str, SiteMetadata]:
    """Return the newest message of each site; nothing if the cluster has no such topic."""
    found: dict[str, SiteMetadata] = {}
    for partition in range((await partition_counts(bootstrap)).get(METADATA, 0)):
        for key, value, _ in await read_keyed(bootstrap, METADATA, partition):
            if value is not None:
                found[key.decode(errors="replace")] = cast(SiteMetadata, parse_record(value))
    return found
