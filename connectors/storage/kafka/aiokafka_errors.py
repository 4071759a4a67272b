"""What aiokafka's errors and log lines mean: which class it raises for an outage and for a producer that is fenced.

The classes do not say it. aiokafka raises the bare ``KafkaError`` for a connection that breaks while a producer looks
for its coordinator, does not call a timeout retriable, and reports the use of a fenced producer in three ways.
"""

from __future__ import annotations

import logging

from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionCoordinatorFenced,
)

from stream.engine.ports import FencedError, InterruptedWriteError

log = logging.getLogger(__name__)

_FENCED = (
    IllegalOperation,  # one more record after the producer was fenced
    ProducerFenced,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)


def is_no_answer(error: KafkaError) -> bool:
    """Return whether an error of a client that starts means that no broker answers."""
    return isinstance(error, KafkaConnectionError) or type(error) is KafkaError


def write_failure(error: Exception) -> FencedError | InterruptedWriteError | None:
    """Return what an error in a transaction means for its writer; None if it is neither of the two.

    ``InterruptedWriteError`` leaves open whether the transaction was committed.
    """
    if isinstance(error, (*_FENCED, AssertionError)):  # aiokafka asserts if a fenced producer begins once more
        return FencedError("another owner has taken it")
    unanswered = isinstance(error, (KafkaTimeoutError, TimeoutError))
    if unanswered or (isinstance(error, KafkaError) and (error.retriable or is_no_answer(error))):
        return InterruptedWriteError(f"a write was interrupted ({type(error).__name__})")
    return None


class TakeoverFilter(logging.Filter):
    """Says in words of ours, and as information, what libraries call an error when partitions go to another worker."""

    TEXTS = (
        "Heartbeat failed for group %s because it is rebalancing",
        "Heartbeat failed for group %s: generation id is not",
        "Heartbeat failed: local member_id was not recognized",
        "Heartbeat session expired",
        "OffsetCommit failed for group %s due to group error",
    )

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is about something else."""
        errors = [*(record.exc_info or ()), *(record.args if isinstance(record.args, tuple) else ())]
        kinds = [error if isinstance(error, type) else type(error) for error in errors]
        fenced = any(issubclass(kind, _FENCED) for kind in kinds)
        if not fenced and not str(record.msg).startswith(self.TEXTS):
            return True
        log.info("partitions are being reassigned")
        return False


def log_takeovers_as_information() -> None:
    """Apply the filter to the libraries of a process that writes transactions."""
    for name in ("asyncio", "aiokafka.producer.sender", "aiokafka.consumer.group_coordinator"):
        logging.getLogger(name).addFilter(TakeoverFilter())
