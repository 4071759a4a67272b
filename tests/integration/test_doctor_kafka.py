"""What 'tacet doctor' says of topics on a real broker: missing, as 'topics create' makes them, set otherwise."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.operations.doctor.checks import TOPICS
from connectors.storage.kafka.topic_settings import topic_config
from stream.schemas import AUDIT, SNAPSHOT
from tests.acceptance.command_line import POLICY
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import clear_topics

pytestmark = pytest.mark.kafka


def of_topics(kafka: Broker, folder: Path) -> list[dict[str, Any]]:
    query = ["doctor", "--policy", f"{folder}/policy.toml", "--kafka", kafka.bootstrap, "--json"]
    done = CliRunner().invoke(tacet, query)
    return [each for each in json.loads(done.stdout)["findings"] if each["check"] == TOPICS]


async def set_otherwise(kafka: Broker) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        for name, cleanup in ((SNAPSHOT, "delete"), (AUDIT, "compact")):
            wanted = topic_config(name) | {"cleanup.policy": cleanup}  # what is left out is set back
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, wanted)])
    finally:
        await admin.close()


def test_topics_are_missing_then_fine_then_set_otherwise(kafka: Broker, tmp_path: Path) -> None:
    asyncio.run(clear_topics(kafka.bootstrap))
    (tmp_path / "policy.toml").write_text(POLICY)
    assert "missing, such as" in of_topics(kafka, tmp_path)[0]["text"]
    made = ["topics", "create", "--policy", f"{tmp_path}/policy.toml", "--kafka", kafka.bootstrap]
    assert CliRunner().invoke(tacet, made).exit_code == 0
    assert [each["state"] for each in of_topics(kafka, tmp_path)] == ["fine"]
    asyncio.run(set_otherwise(kafka))
    found = of_topics(kafka, tmp_path)
    wrong = [each["text"] for each in found if each["state"] == "wrong"]
    assert [text.partition(";")[0] for text in wrong] == [
        f"topic {AUDIT}: must have cleanup.policy=delete, has compact"
    ]
    noted = [each["text"] for each in found if each["state"] == "note"]
    assert [text.partition(";")[0] for text in noted] == [
        f"topic {SNAPSHOT}: must have cleanup.policy=compact,delete, has delete"
    ]
    assert f"--topic {SNAPSHOT} --add-config cleanup.policy=[compact,delete]' sets it" in noted[0]
