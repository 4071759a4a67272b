"""The storm on three brokers with TLS, SCRAM and an authorizer, whose partitions are also given other leaders.

Workers are programs of the engine's user. In this process each task is a user: the ingests are ingest, all else is who
administers the cluster, makes its topics and looks at what has come out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

from connectors.storage.kafka import connection
from connectors.storage.kafka.acls import users
from stream.release.validation import load_policy
from stream.schemas import OBSERVATIONS, SNAPSHOT
from tests.integration.engine_storm import EngineStorm
from tests.integration.kafka_brokers import JavaCluster, find_cluster
from tests.integration.kafka_topics import administrator
from tests.integration.one_process import policy_text
from tests.integration.secured_kafka import ADMIN, Secured, asked, give_rules
from tests.integration.storm import Faults, Field

ACTING: ContextVar[str] = ContextVar("acting", default=ADMIN)
"""Who this task is to brokers."""
NO_TAGS: dict[int, bytes] = {}
MOVED = (OBSERVATIONS, SNAPSHOT, "__transaction_state")
"""Of these the leaders are moved: of what is read, of what says how far, and of who may write."""


@contextmanager
def secured_brokers(folder: Path) -> Iterator[JavaCluster]:
    """Three brokers with the users and rules of the storm's policy; NoKafkaError where there is no Java for them."""
    policy = load_policy(policy_text())
    secured = Secured(folder, policy)
    cluster = find_cluster(secured)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in secured.variables("tacet-engine").items():
                patch.setenv(name, value)
            patch.setattr(connection, "Settings", lambda: secured.known_as(ACTING.get()))
            asyncio.run(give_rules(cluster.bootstrap, secured, asked(users(policy))))
            yield cluster
    finally:
        cluster.close()


class SecuredStorm(EngineStorm):
    """The engine's storm, in which everybody is somebody."""

    async def feed(self, enough: asyncio.Event) -> None:
        """Send as the ingest's user."""
        ACTING.set("tacet-ingest")
        await super().feed(enough)

    async def twin(self, field: Field) -> None:
        """A second ingest is the same user."""
        ACTING.set("tacet-ingest")
        await super().twin(field)

    async def lead(self, field: Field) -> None:
        """Put another broker first among those that hold a partition: it becomes the leader, and none has died."""
        topic, turn = field.random.choice(MOVED), field.random.randint(1, 2)
        try:
            await self._lead(topic, turn)
            self.outcomes[f"led anew {topic}"] += 1
        except (KafkaError, ConnectionError, TimeoutError):
            self.outcomes["not led anew, a broker was away"] += 1

    async def _lead(self, topic: str, turn: int) -> None:
        async with administrator(self.broker.bootstrap) as admin:
            (reported,) = await admin.describe_topics([topic])
            stored = [(part["partition"], part["replicas"]) for part in reported["partitions"]]
            orders = [(number, replicas[turn:] + replicas[:turn], NO_TAGS) for number, replicas in stored]
            answer = await admin._send_to_controller(
                AlterPartitionReassignmentsRequest(10_000, [(topic, orders, NO_TAGS)], NO_TAGS)
            )
        assert answer.error_code == 0, answer

    def more(self) -> Faults:
        """Return the faults of this scenario besides."""
        return dict(super().more()) | {"lead": self.lead}
