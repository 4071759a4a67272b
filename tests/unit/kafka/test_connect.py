"""Which errors of a client that starts mean that no broker answers, so that the caller tries again."""

from __future__ import annotations

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from connectors.storage.kafka.client import connect


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
