"""A process waits once for a broker that hangs; a slow broker is not taken for one."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v1
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from connectors.cli import options
from connectors.storage.kafka import client, topics
from connectors.storage.kafka.aiokafka_client import BROKER_HEALTH, AnsweringClient, AnsweringConnection
from connectors.storage.kafka.timeouts import (
    BROKER_PATIENCE,
    CHECKPOINT_TIMEOUT,
    CLOSE_TIMEOUT,
    COMMIT_TIMEOUT,
    FETCH_WAIT_MS,
    LEAVE_TIMEOUT,
    PRODUCER_REQUEST_MS,
    SESSION_PARTS,
    TRANSACTION_TIMEOUT,
)
from connectors.storage.kafka.worker import WorkerClients
from stream.runners.faust_app import StrictThread, StrictTransport
from stream.settings import SHORTEST_SESSION, Settings

VERSIONS, METADATA = 18, 3
SHORT, ENDLESS = 0.02, 20.0
"""Seconds: for a broker that answers not at all, and for one that does, however late."""


class FakeBroker:
    """Speaks as much of Kafka's protocol as is asked of it; holds every answer back, or that of some requests."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.awake.set()
        self.told = asyncio.Event()
        """Set where it answers what it is asked about the cluster, and not only whether it is there."""
        self.told.set()
        self.greetings = 0
        self.members: list[FakeBroker] = [self]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.address = ("127.0.0.1", self.port)

    async def stop(self) -> None:
        self.awake.set()
        self.told.set()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                key, _, number = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
                self.greetings += key == VERSIONS
                await self.awake.wait()
                if key == METADATA:
                    await self.told.wait()
                body = struct.pack(">i", number) + self._answer(key)
                writer.write(struct.pack(">i", len(body)) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, key: int) -> bytes:
        if key == VERSIONS:
            return bytes(ApiVersionResponse_v0(0, [(VERSIONS, 0, 0), (METADATA, 1, 1)]).encode())
        brokers = [(number, *broker.address, None) for number, broker in enumerate(self.members, 1)]
        return bytes(MetadataResponse_v1(brokers, 1, []).encode())


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    """Two brokers of one cluster, and a process that knows nothing of them yet and has all the time there is."""
    for wait in ("silence", "answer_timeout"):
        monkeypatch.setattr(BROKER_HEALTH, wait, ENDLESS)
    brokers = FakeBroker(), FakeBroker()
    for broker in brokers:
        await broker.start()
        broker.members = list(brokers)
    yield brokers
    for broker in brokers:
        await broker.stop()


def hang(broker: FakeBroker) -> None:
    """Let it answer nothing any more; from now on the process finds out soon."""
    broker.awake.clear()
    BROKER_HEALTH.silence = BROKER_HEALTH.answer_timeout = SHORT


def connection(broker: FakeBroker, **given: Any) -> AnsweringConnection:
    return AnsweringConnection(*broker.address, **given)


def client_of(*brokers: FakeBroker) -> AnsweringClient:
    made = AnsweringClient(bootstrap_servers=[f"127.0.0.1:{broker.port}" for broker in brokers])
    made._retry_backoff = 0.01
    return made


async def question(asked: AnsweringConnection) -> Any:
    return await asked.send(MetadataRequest([]))


async def test_an_answer_that_is_held_back_is_waited_for_while_the_broker_is_there(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """As by a leader whose follower hangs: it has to be asked many times whether it is there."""
    broker, _ = pair
    query = connection(broker)
    await query.connect()
    broker.told.clear()
    BROKER_HEALTH.silence = SHORT
    waiting = asyncio.create_task(question(query))
    while broker.greetings < 6:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    broker.told.set()
    assert [found[0] for found in (await waiting).brokers] == [1, 2]
    assert not BROKER_HEALTH.hangs(broker.address)
    query.close()


async def test_a_connection_on_which_nothing_comes_back_ends_when_the_broker_says_nothing_either(
    pair: tuple[FakeBroker, FakeBroker], caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = pair
    query = connection(broker)
    await query.connect()
    hang(broker)
    with pytest.raises(TimeoutError):
        await question(query)
    assert BROKER_HEALTH.hangs(broker.address)
    output = f"a broker at 127.0.0.1:{broker.port} hangs; nothing waits for it until it answers"
    assert [line for line in caplog.messages if "hangs" in line] == [output]


async def test_what_one_connection_finds_out_ends_the_waiting_on_all_others(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """One of them has an endless patience of its own: it is told."""
    broker, _ = pair
    patient, other = connection(broker), connection(broker)
    await patient.connect()
    await other.connect()
    hang(broker)
    patient._greeted = False  # so it asks nobody
    waiting = asyncio.create_task(question(patient))
    with pytest.raises(TimeoutError):
        await question(other)
    with pytest.raises(KafkaConnectionError):
        await waiting
    assert not patient.connected()


async def test_a_greeting_that_is_not_answered_says_the_same(pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker, _ = pair
    hang(broker)
    with pytest.raises(TimeoutError):
        await connection(broker).connect()
    assert BROKER_HEALTH.hangs(broker.address)


async def test_who_refuses_does_not_hang(pair: tuple[FakeBroker, FakeBroker]) -> None:
    broker, _ = pair
    BROKER_HEALTH.record_hanging(broker.address)
    await broker.stop()
    with pytest.raises(ConnectionRefusedError):
        await connection(broker).connect()
    assert not BROKER_HEALTH.hangs(broker.address)


async def test_a_client_waits_for_no_broker_that_hangs_and_has_it_back_when_it_answers(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """It is asked beside the work, by one question at a time however often it is wanted."""
    hanging, awake = pair
    made = client_of(awake)
    await made.bootstrap()
    hanging.awake.clear()
    BROKER_HEALTH.record_hanging(hanging.address)
    for _ in range(20):
        assert not await made.ready(1)
        assert await made.ready(2)
    while not hanging.greetings:
        await asyncio.sleep(0.01)
    assert hanging.greetings == 1
    hanging.awake.set()
    while not await made.ready(1):
        await asyncio.sleep(0.01)
    assert await made.ready(1, group=ConnectionGroup.COORDINATION)
    await made.close()


async def test_every_client_of_a_process_begins_with_a_broker_that_answers(
    pair: tuple[FakeBroker, FakeBroker],
) -> None:
    """Of a hundred none asks the server or the node that hangs, though they are tried in any order."""
    hanging, awake = pair
    hanging.awake.clear()
    BROKER_HEALTH.record_hanging(hanging.address)
    for _ in range(100):
        made = client_of(hanging, awake)
        await made.bootstrap()
        assert made.get_random_node() == 2
        await made.close()
    assert hanging.greetings == 0


@pytest.mark.parametrize("while_it", ["is greeted", "tells of the cluster"])
async def test_a_start_that_is_given_up_leaves_no_connection(
    pair: tuple[FakeBroker, FakeBroker], monkeypatch: pytest.MonkeyPatch, while_it: str
) -> None:
    """As by a rebalance that overtakes an opening."""
    broker, _ = pair
    made: list[AnsweringConnection] = []
    connect = AnsweringConnection.connect

    async def noted(self: AnsweringConnection) -> Any:
        made.append(self)
        return await connect(self)

    monkeypatch.setattr(AnsweringConnection, "connect", noted)
    (broker.awake if while_it == "is greeted" else broker.told).clear()
    starting = asyncio.create_task(client_of(broker).bootstrap())
    while not (made and made[0].connected() and made[0]._greeted == (while_it != "is greeted")):
        await asyncio.sleep(0.01)
    starting.cancel()
    await asyncio.wait({starting})
    assert [each.connected() for each in made] == [False]


async def test_no_server_that_answers_is_an_error(pair: tuple[FakeBroker, FakeBroker]) -> None:
    for broker in pair:
        hang(broker)
    with pytest.raises(KafkaError, match="no server answers of 2"):
        await client_of(*pair).bootstrap()


async def test_every_client_goes_by_it(pair: tuple[FakeBroker, FakeBroker]) -> None:
    """Producers, readers, administrators."""
    servers = f"127.0.0.1:{pair[0].port}"
    async with client.reader_of(servers) as reader:
        assert type(reader._client) is AnsweringClient
        await asyncio.sleep(0)  # aiokafka stops none of its tasks well that has not begun
    producer, admin = client.producer_of(servers), topics._admin(servers)
    assert type(producer.client) is AnsweringClient
    assert type(admin._client) is AnsweringClient
    await producer.stop()


async def test_the_workers_consumer_goes_by_it_and_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust makes it; what Faust alone would make of it is taken over."""
    consumer = AIOKafkaConsumer(fetch_max_wait_ms=1500)
    monkeypatch.setattr(AIOKafkaConsumerThread, "_create_worker_consumer", lambda *_: consumer)
    thread: Any = object.__new__(StrictThread)
    thread.app = SimpleNamespace(clients=WorkerClients())
    made = StrictThread._create_worker_consumer(thread, object.__new__(StrictTransport))
    assert made is consumer
    assert type(made._client) is AnsweringClient
    assert made._fetch_max_wait_ms == FETCH_WAIT_MS


async def test_no_group_offset_is_committed_when_every_partition_was_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rebalance may come between the decision to commit and the commit; aiokafka refuses an empty one."""
    consumer = AIOKafkaConsumer("observations", group_id="workers")
    thread: Any = object.__new__(StrictThread)
    monkeypatch.setattr(StrictThread, "assignment", lambda _: set())
    monkeypatch.setattr(StrictThread, "_ensure_consumer", lambda _: consumer)
    assert await StrictThread._commit(thread, {TP("observations", 0): 7})


def test_every_wait_is_a_part_of_the_one_session_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that stays open and the one after it, whether the broker is there: half of it together."""
    for wait in ("silence", "answer_timeout"):
        monkeypatch.setattr(BROKER_HEALTH, wait, ENDLESS)
    options.bootstrap(Settings(session_timeout=24.0), "127.0.0.1:9")
    assert BROKER_HEALTH.silence == BROKER_HEALTH.answer_timeout == 24.0 / SESSION_PARTS
    assert BROKER_HEALTH.silence + BROKER_HEALTH.answer_timeout == 24.0 / 2


def test_a_commit_is_given_up_before_the_broker_ends_its_transaction() -> None:
    assert COMMIT_TIMEOUT < TRANSACTION_TIMEOUT < PRODUCER_REQUEST_MS / 1000


def test_a_broker_that_is_away_does_not_use_up_the_time_for_opening() -> None:
    assert Settings().open_timeout > 4 * BROKER_PATIENCE
    with pytest.raises(ValueError, match="open_timeout"):
        Settings(open_timeout=BROKER_PATIENCE - 1)


def test_a_worker_ends_before_a_supervisor_kills_it() -> None:
    """Kubernetes waits for 30 s by default."""
    assert CHECKPOINT_TIMEOUT + LEAVE_TIMEOUT + CLOSE_TIMEOUT < 30


def test_a_session_timeout_too_short_for_its_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 6"):
        Settings(session_timeout=SHORTEST_SESSION - 0.1)
