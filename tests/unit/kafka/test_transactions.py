"""What an error in a transaction means for its writer: another owner, an unknown outcome, or the error as it is."""

from __future__ import annotations

import pytest
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    TransactionCoordinatorFenced,
)

from connectors.storage.kafka.transactions import transaction
from stream.engine.ports import FencedError, InterruptedWriteError

SENT = "the text of a record"

FENCED = [
    IllegalOperation, ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState,
    OutOfOrderSequenceNumber, TransactionCoordinatorFenced, AssertionError,
]  # fmt: skip
UNKNOWN = [
    KafkaConnectionError, KafkaTimeoutError, TimeoutError, RequestTimedOutError, NotLeaderForPartitionError, KafkaError,
]  # fmt: skip
AS_IT_IS = [MessageSizeTooLargeError, TopicAuthorizationFailedError, TransactionalIdAuthorizationFailed, ValueError]


class Producer:
    def __init__(self, error: Exception, method: str) -> None:
        self.error = error
        self.method = method

    async def begin_transaction(self) -> None:
        if self.method == "begin":
            raise self.error

    async def commit_transaction(self) -> None:
        if self.method == "commit":
            raise self.error


@pytest.mark.parametrize("method", ["begin", "send", "commit"])
@pytest.mark.parametrize(
    ("kind", "meaning"),
    [(kind, FencedError) for kind in FENCED]
    + [(kind, InterruptedWriteError) for kind in UNKNOWN]
    + [(kind, kind) for kind in AS_IT_IS],
)
async def test_each_error_has_one_meaning(kind: type[Exception], meaning: type[Exception], method: str) -> None:
    error = kind(SENT)

    async def write() -> None:
        async with transaction(Producer(error, method)):
            if method == "send":
                raise error

    with pytest.raises((meaning, kind)) as raised:
        await write()
    assert type(raised.value) is meaning
    if meaning is not kind:
        assert raised.value.__cause__ is error
        assert SENT not in str(raised.value)
