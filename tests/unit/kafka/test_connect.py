"""What of a client's errors and answers means that no broker answers, so that the caller tries again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from connectors.storage.kafka.client import AbsentTopicError, connect, partitions_of


class Client:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def start(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [KafkaConnectionError("closed"), KafkaError("KafkaConnectionError('Connection at broker-3:9092 closed')")],
    ids=["a refused connection", "one that breaks while the coordinator is looked for"],
)
async def test_a_broken_connection_means_that_no_broker_answers(error: Exception) -> None:
    with pytest.raises(ConnectionError, match="no Kafka broker answers at localhost:9092"):
        await connect(Client(error), "localhost:9092")


async def test_what_a_broker_answers_is_raised_as_it_is() -> None:
    with pytest.raises(TopicAuthorizationFailedError):
        await connect(Client(TopicAuthorizationFailedError("observations")), "localhost:9092")


@pytest.mark.parametrize(
    ("answered", "error"),
    [(False, ConnectionError), (True, AbsentTopicError)],
    ids=["no broker answers", "a broker answers that it does not know it"],
)
async def test_a_topic_is_absent_only_if_a_broker_says_so(answered: bool, error: type[Exception]) -> None:
    async def update() -> bool:
        return answered

    cluster = SimpleNamespace(partitions_for_topic=lambda _: None, unauthorized_topics=set())
    client = SimpleNamespace(add_topic=lambda _: None, force_metadata_update=update, cluster=cluster)
    with pytest.raises(error, match=r"topic tacet\.audit\.v1"):
        await partitions_of(SimpleNamespace(_client=client), "tacet.audit.v1")
