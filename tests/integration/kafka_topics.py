"""Topics of a real cluster that tests create and delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from connectors.storage.kafka.aiokafka_client import brokers_without
from connectors.storage.kafka.connection import Access


@asynccontextmanager
async def administrator(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Give a client that administers a cluster, as whom settings say."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, **Access().arguments())
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create_as_given(bootstrap: str, *topics: NewTopic) -> None:
    """Create topics that the product would create otherwise, and wait until every broker knows them."""
    async with administrator(bootstrap) as admin:
        await admin.create_topics(list(topics))
        while await brokers_without(admin, [topic.name for topic in topics]):
            await asyncio.sleep(0.1)


async def clear_topics(bootstrap: str) -> None:
    """Delete every topic of the product: an earlier test's releases belong to another cluster than the next one's."""
    async with administrator(bootstrap) as admin:
        there = [name for name in await admin.list_topics() if name.startswith("tacet.")]
    await delete_topics(bootstrap, there)


async def delete_topics(bootstrap: str, names: Iterable[str]) -> None:
    """Delete those topics that exist, and wait until they are gone."""
    async with administrator(bootstrap) as admin:
        while there := sorted(set(names) & set(await admin.list_topics())):
            await admin.delete_topics(there)
            await asyncio.sleep(0.3)
