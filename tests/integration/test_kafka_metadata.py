"""The metadata topic: the newest message of each site, written only when it says something new."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from connectors.keys import key_files
from connectors.storage.kafka import metadata
from connectors.storage.kafka.topic_readers import end_offsets
from connectors.storage.kafka.topics import create_topics
from connectors.storage.site_metadata import SiteMetadata, site_metadata
from connectors.subscribe.service import read_metadata
from stream.release.validation import load_policy
from tests.acceptance.command_line import POLICY, command, tacet
from tests.integration.kafka_brokers import Broker, clear_topics
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.kafka


def sites(**names: str) -> dict[str, SiteMetadata]:
    return {
        site: {"v": 1, "site": site, "name": name, "timezone": "UTC", "tick_seconds": 300, "zones": []}
        for site, name in names.items()
    }


async def test_the_newest_of_each_site_is_read_and_nothing_is_written_twice(
    kafka: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "METADATA", prefix)
    await create_topics(kafka.bootstrap, [prefix])
    for given in (sites(east="East", west="West"), sites(east="East", west="West"), sites(east="Orient")):
        await metadata.publish(kafka.bootstrap, given)
    assert await read_metadata(kafka=kafka.bootstrap) == sites(east="Orient", west="West")
    assert sum((await end_offsets(kafka.bootstrap, prefix)).values()) == 3


async def test_a_cluster_without_the_topic_has_none_and_gets_none(
    kafka: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "METADATA", prefix)
    await metadata.publish(kafka.bootstrap, sites(east="East"))
    assert await read_metadata(kafka=kafka.bootstrap) == {}


def test_a_worker_publishes_its_policys_sites_when_it_starts_on_a_cluster_that_topics_create_has_made(
    kafka: Broker, tmp_path: Path
) -> None:
    asyncio.run(clear_topics(kafka.bootstrap))
    (tmp_path / "policy.toml").write_text(POLICY)
    key_files.create(tmp_path / "key", laboratory=True)
    common: list[str | Path] = ["--kafka", kafka.bootstrap, "--policy", tmp_path / "policy.toml"]
    tacet("topics", "create", *common)
    expected = site_metadata(load_policy(POLICY))
    worker = subprocess.Popen(command(["worker", *common, "--key-file", tmp_path / "key"]))
    try:
        until = time.monotonic() + PATIENCE
        while (found := asyncio.run(read_metadata(kafka=kafka.bootstrap))) != expected and time.monotonic() < until:
            time.sleep(0.5)
    finally:
        worker.terminate()
        worker.wait(timeout=PATIENCE)
    assert found == expected
