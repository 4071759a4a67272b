"""The metadata topic: the newest message of each site, written only when it says something new."""

from __future__ import annotations

import pytest

from connectors.storage.kafka import metadata
from connectors.storage.kafka.topic_readers import end_offsets
from connectors.storage.kafka.topics import create_topics
from connectors.storage.site_metadata import SiteMetadata
from connectors.subscribe.subscriber import read_metadata
from tests.support.any_broker import AnyBroker, on_any_broker


def sites(**names: str) -> dict[str, SiteMetadata]:
    return {
        site: {"v": 1, "site": site, "name": name, "timezone": "UTC", "tick_seconds": 300, "zones": []}
        for site, name in names.items()
    }


@on_any_broker
async def test_the_newest_of_each_site_is_read_and_nothing_is_written_twice(
    broker: AnyBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "METADATA", prefix)
    await create_topics(broker.bootstrap, [prefix])
    for given in (sites(east="East", west="West"), sites(east="East", west="West"), sites(east="Orient")):
        await metadata.publish(broker.bootstrap, given)
    assert await read_metadata(kafka=broker.bootstrap) == sites(east="Orient", west="West")
    assert sum((await end_offsets(broker.bootstrap, prefix)).values()) == 3


@on_any_broker
async def test_a_cluster_without_the_topic_has_none_and_gets_none(
    broker: AnyBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "METADATA", prefix)
    await metadata.publish(broker.bootstrap, sites(east="East"))
    assert await read_metadata(kafka=broker.bootstrap) == {}
