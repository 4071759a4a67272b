"""How a connector's messages are written: where to, and by whose clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connectors.storage.kafka import message_sink
from connectors.storage.kafka.client import MAX_MESSAGE, MAX_RECORD, partition_of
from connectors.storage.kafka.message_sink import KafkaSink
from stream.encoding import encode_message
from stream.errors import UsageError
from stream.records import Heartbeat
from stream.schemas import OBSERVATIONS

MESSAGE = Heartbeat("dbh", "192.0.2.1", 1, 2, 0)
CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""As brokers number them."""


class Producer:
    """A producer whose broker dates records in one way."""

    def __init__(self, dated: int) -> None:
        self.dated, self.sent, self.stopped = dated, list[tuple[str, bytes, bytes, int]](), False

    async def send(self, topic: str, value: bytes, *, key: bytes, partition: int) -> Any:
        self.sent.append((topic, value, key, partition))

        async def acknowledged() -> Any:
            return SimpleNamespace(timestamp_type=self.dated)

        return acknowledged()

    async def stop(self) -> None:
        self.stopped = True


async def started(monkeypatch: pytest.MonkeyPatch, producer: Producer, **given: Any) -> KafkaSink:
    async def connect(*_: Any) -> None:
        pass

    async def partitions_of(*_: Any) -> list[int]:
        return list(range(12))

    monkeypatch.setattr(message_sink, "producer_of", lambda _: producer)
    monkeypatch.setattr(message_sink, "connect", connect)
    monkeypatch.setattr(message_sink, "partitions_of", partitions_of)
    sink = KafkaSink("servers", **given)
    await sink.start()
    return sink


async def test_a_message_is_written_to_the_partition_of_its_site(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(LOG_APPEND_TIME)
    sink = await started(monkeypatch, producer)
    await sink.append(MESSAGE)
    assert producer.sent == [(OBSERVATIONS, encode_message(MESSAGE), b"dbh", partition_of("dbh", 12))]
    assert not producer.stopped
    await sink.stop()
    assert producer.stopped


async def test_observations_that_the_broker_does_not_date_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the broker's time bounds what a message may claim."""
    sink = await started(monkeypatch, Producer(CREATE_TIME))
    with pytest.raises(UsageError, match=r"must have message\.timestamp\.type=LogAppendTime"):
        await sink.append(MESSAGE)
    other = await started(monkeypatch, Producer(CREATE_TIME), topic="another")
    await other.append(MESSAGE)


async def test_a_sink_that_was_not_started_stops() -> None:
    await KafkaSink("servers").stop()


@pytest.mark.parametrize(
    ("site", "hash_"), [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)]
)
def test_a_site_has_the_partition_that_any_client_of_kafka_gives_its_name(site: str, hash_: int) -> None:
    """Hashes are those of Kafka's own tests."""
    assert [partition_of(site, number) for number in (1, 12, 50)] == [(hash_ & 0x7FFFFFFF) % n for n in (1, 12, 50)]


def test_a_record_may_have_16_mib_beside_what_kafka_adds() -> None:
    assert (MAX_RECORD, MAX_MESSAGE) == (16_777_216, 16_842_752)
