"""aiokafka's client, changed so that a process waits only once for a broker that hangs; all that uses its internals.

A request without an answer does not prove that a broker hangs (``broker_health``). A healthy leader delays an answer
until its followers have the record. So when a request waits for long, the client probes the broker over a connection of
its own. How long a request may wait before the probe, and how long the probe may take, both follow from the session
timeout.

Each connection is made with the options that ``connection`` reads at that time, not with those of the client's
constructor: so an exchanged password or certificate takes effect without a restart.

The rest of the project uses ``answering``, ``prepare_worker``, ``ended_tasks``, ``topic_partitions``,
``partition_counts``, ``brokers_without``, ``fetched_offsets`` and ``BROKER_HEALTH``. It calls nothing else but the
public methods of consumers, producers and administrators.

Internals of aiokafka 0.14.0 (pinned exactly) that are overridden or used, and why:

- ``_client`` (``_client_of``): consumers and administrators give no public access to their client.
- ``client.add_topic``, ``force_metadata_update``, ``fetch_all_metadata`` and ``cluster`` (``topic_partitions``,
  ``partition_counts``): the public methods give a topic's partitions only after a subscription, and do not say whether
  a topic is absent or closed to this user.
- ``client.__class__`` (``answering``): aiokafka creates its client itself and accepts no other, so a client that has
  not started is turned into an ``AnsweringClient``.
- ``AIOKafkaConsumer._fetch_max_wait_ms`` (``prepare_worker``): Faust fixes 1500 ms; seeks and requests for offsets wait
  that long behind a fetch.
- ``_fetcher._fetch_task``, ``_coordinator._coordination_task`` and ``_client._sync_task`` (``ended_tasks``): aiokafka
  does not report the end of one of these tasks.
- ``AIOKafkaClient.hosts``: aiokafka tries bootstrap servers in any order; here those that hang come last.
- ``AIOKafkaClient.get_random_node``: aiokafka picks any broker; here it picks one that does not hang, if there is one.
- ``AIOKafkaClient.bootstrap``: aiokafka connects with the options of its constructor and reports every failure alike;
  here options are read afresh, and a refused user or certificate raises an error of its own. It sets ``_conns`` and
  starts ``_md_synchronizer`` as ``_sync_task``, as the original does.
- ``AIOKafkaClient._get_conn``: for the same reason, and so that a hanging broker is probed in the background instead of
  being waited for. It uses ``_conns``, ``_get_conn_lock``, ``_on_connection_closed`` and the options ``_client_id``,
  ``_request_timeout_ms`` and ``_connections_max_idle_ms``.
- ``AIOKafkaConnection.connect``: aiokafka's timeout keeps running while the process is paused; here only the loop's own
  time counts, and the result is recorded in ``BROKER_HEALTH``.
- ``AIOKafkaConnection.send``: aiokafka only waits for the request timeout; here a long wait also probes the broker.
- ``AIOKafkaConnection._writer``: ``abort`` cuts the transport, without waiting for bytes that are not sent yet.
- ``client.send(MetadataRequest)`` (``brokers_without``): an administrator asks one broker, which it picks at random.
- ``client.send(FetchRequest)`` and ``MemoryRecords`` (``fetched_offsets``): a consumer does not report which offsets it
  passes over.

No other module of the project imports ``aiokafka.client``, ``aiokafka.conn``, ``aiokafka.protocol`` or
``aiokafka.record``; ruff checks it (``banned-api``).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.memory_records import MemoryRecords

from connectors.storage.kafka.broker_health import Address, BrokerHealth, within
from connectors.storage.kafka.connection import Access, AccessRefusedError
from connectors.storage.kafka.timeouts import FETCH_WAIT_MS

log = logging.getLogger(__name__)
T = TypeVar("T")

NO_LEADER = -1
"""The number by which metadata say that a partition has no leader."""
BROKER_HEALTH = BrokerHealth()
"""That of this process."""


async def answered(answer: asyncio.Future[T]) -> T:
    """Return an answer; KafkaConnectionError if the answer was cancelled and its caller was not."""
    await asyncio.wait({answer})
    if answer.cancelled():
        raise KafkaConnectionError("the connection was cut")
    return answer.result()


_probes: dict[Address, asyncio.Task[None]] = {}
"""Background probes of brokers that hang."""


class AnsweringConnection(AIOKafkaConnection):  # type: ignore[misc]
    """A connection that probes its broker when an answer takes long."""

    def __init__(self, host: str, port: int, **options: Any) -> None:
        super().__init__(host, port, **options)
        self.address: Address = (host, port)
        self.loop = asyncio.get_running_loop()
        self._options = options
        self._greeted = False

    async def connect(self) -> Any:
        """Connect and exchange greetings; TimeoutError if the broker hangs."""
        connecting = asyncio.ensure_future(super().connect())
        try:
            if not await within(BROKER_HEALTH.answer_timeout, connecting):
                BROKER_HEALTH.record_hanging(self.address)
                raise TimeoutError
            streams = await self._connected(connecting)
        except BaseException:  # a cancelled caller leaves no connection either
            connecting.cancel()
            self.close()
            raise
        self._greeted = True
        BROKER_HEALTH.record_open(self)
        return streams

    async def _connected(self, connecting: asyncio.Future[Any]) -> Any:
        try:
            return await answered(connecting)
        except TimeoutError as error:  # aiokafka's own timeout keeps running while this process is paused
            raise KafkaConnectionError("no connection in time") from error
        except OSError:
            BROKER_HEALTH.record_refusal(self.address)
            raise

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:
        """Send a request; return its answer to be awaited, for as long as the broker is alive."""
        answer: Awaitable[Any] = super().send(request, expect_response)
        return self._answered(answer) if self._greeted else answer

    async def _answered(self, answer: Awaitable[Any]) -> Any:
        waiting = asyncio.ensure_future(answer)
        try:
            while not await within(BROKER_HEALTH.silence, waiting):
                await self._check_alive()
            return await answered(waiting)
        finally:
            waiting.cancel()

    async def _check_alive(self) -> None:
        """Check whether the broker is alive, over another connection; TimeoutError if it hangs."""
        probe = AnsweringConnection(*self.address, **self._options | {"on_close": None})
        try:
            await probe.connect()
        except TimeoutError:
            raise
        except (OSError, KafkaError) as error:  # the broker is gone; the waiting connection will fail as well
            log.info("a request to a broker failed: %s", type(error).__name__)
        finally:
            probe.close()

    def abort(self) -> None:
        """Cut the connection; callers that wait for an answer fail at once. Unsent bytes are dropped."""
        if self._writer is not None:
            self._writer.transport.abort()
            self.close(reason=CloseReason.CONNECTION_TIMEOUT)


class AnsweringClient(AIOKafkaClient):  # type: ignore[misc]
    """A client that prefers brokers that answer and waits for none that hangs."""

    _sync_task: Any

    @functools.cached_property
    def access(self) -> Access:
        """Address options and credentials for brokers; UsageError if settings or files break a rule."""
        return Access()

    @property
    def hosts(self) -> list[Any]:
        """The bootstrap servers in any order, but those that hang last."""
        return sorted(super().hosts, key=lambda host: BROKER_HEALTH.hangs((host[0], host[1])))

    def get_random_node(self) -> Any:
        """Return any broker's number, preferably of one that answers; None if none is known."""
        awake = [broker for broker in self.cluster.brokers() if not BROKER_HEALTH.hangs((broker.host, broker.port))]
        return random.choice(awake).nodeId if awake else super().get_random_node()

    async def bootstrap(self) -> None:
        """Fetch the cluster's brokers from the first server that answers.

        Raises:
            AccessRefusedError: no server answers, and one refuses this user or fails this user's checks.
            KafkaConnectionError: no server answers.
        """
        refused: AccessRefusedError | None = None
        for host, port, _ in self.hosts:
            connection = self._connection(host, port)
            try:
                await connection.connect()
                self.cluster.update_metadata(await connection.send(MetadataRequest([])))
            except (OSError, KafkaError) as error:
                log.warning("no answer from %s:%d: %s", host, port, type(error).__name__)
                refused = self.access.refusal(f"{host}:{port}", error) or refused
                connection.close()
                continue
            except BaseException:
                connection.close()
                raise
            if self.cluster.brokers():
                connection.close()
            else:  # a cluster without topics may name no broker: then this connection is the only one
                self._conns["bootstrap", ConnectionGroup.DEFAULT] = connection
            if self._sync_task is None:
                self._sync_task = asyncio.create_task(self._md_synchronizer())
            return
        if refused is not None:
            raise refused
        msg = f"no server answers of {len(self.hosts)}"
        raise KafkaConnectionError(msg)

    async def _get_conn(
        self, node_id: int, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """Return a connection to a broker, None if there is none; a broker that hangs is probed in the background."""
        if self._has((node_id, group)):
            return self._conns[node_id, group]
        async with self._get_conn_lock:
            if self._has((node_id, group)):
                return self._conns[node_id, group]
            broker = self.cluster.broker_metadata(node_id)
            if broker is not None:
                connection = self._connection(broker.host, broker.port, on_close=self._on_connection_closed)
                if await self._made(connection):
                    self._conns[node_id, group] = connection
                    return connection
        self.force_metadata_update()  # a broker without a connection may have been replaced
        return None

    def _has(self, name: tuple[int, ConnectionGroup]) -> bool:
        return name in self._conns and self._conns[name].connected()

    async def _made(self, connection: AnsweringConnection) -> bool:
        if BROKER_HEALTH.hangs(connection.address):
            _probe_in_background(connection)
            return False
        try:
            await connection.connect()
        except (OSError, KafkaError) as error:
            host, port = connection.address
            refused = self.access.refusal(f"{host}:{port}", error)
            log.warning("no connection to %s:%d: %s", host, port, refused or type(error).__name__)
            return False
        return True

    def _connection(self, host: str, port: int, **options: Any) -> AnsweringConnection:
        return AnsweringConnection(
            host,
            port,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            max_idle_ms=self._connections_max_idle_ms,
            **self.access.arguments(),
            **options,
        )


def _probe_in_background(connection: AnsweringConnection) -> None:
    """Probe a broker that hangs, one probe at a time, without blocking the caller."""
    probe = _probes.get(connection.address)
    if probe is None or probe.done():
        _probes[connection.address] = asyncio.create_task(_probe_once(connection))


async def _probe_once(connection: AnsweringConnection) -> None:
    with suppress(OSError, KafkaError):
        await connection.connect()
    connection.close()


def _client_of(owner: Any) -> Any:
    """Return the client of an aiokafka consumer, producer or administrator."""
    return owner.client if isinstance(owner, AIOKafkaProducer) else owner._client  # noqa: SLF001


def answering(owner: Any) -> None:
    """Turn the client of an aiokafka consumer, producer or administrator into an ``AnsweringClient``.

    The owner must not have been started. The client uses the credentials of the settings.
    """
    _client_of(owner).__class__ = AnsweringClient


def prepare_worker(consumer: Any) -> None:
    """Prepare the consumer of a worker, which has not been started."""
    consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
    answering(consumer)


def ended_tasks(consumer: Any) -> list[str]:
    """Return which of a consumer's own tasks have ended: without any one of them no more messages arrive."""
    own = {
        "aiokafka's fetcher": consumer._fetcher._fetch_task,  # noqa: SLF001
        "aiokafka's group member": consumer._coordinator._coordination_task,  # noqa: SLF001
        "aiokafka's look at the cluster": consumer._client._sync_task,  # noqa: SLF001
    }
    return [name for name, task in own.items() if task is not None and task.done()]


async def topic_partitions(owner: Any, topic: str) -> set[int] | None:
    """Return the numbers of a topic's partitions, none if it does not exist; None if this user may not see it.

    ConnectionError if no broker answers, so that nobody knows whether it exists.
    """
    client = _client_of(owner)
    client.add_topic(topic)
    await client.force_metadata_update()
    known = client.cluster.partitions_for_topic(topic)
    if known is None and not await client.force_metadata_update():  # that answer may belong to an earlier request
        raise ConnectionError(f"topic {topic}: no broker answers whether it exists")
    if topic in client.cluster.unauthorized_topics:
        return None
    return set(client.cluster.partitions_for_topic(topic) or ())


async def partition_counts(owner: Any) -> dict[str, int]:
    """Return the number of partitions of every topic that this user may see."""
    cluster = await _client_of(owner).fetch_all_metadata()
    return {name: len(cluster.partitions_for_topic(name) or ()) for name in cluster.topics()}


async def brokers_without(owner: Any, topics: Iterable[str]) -> list[int]:
    """Return the numbers of those brokers that do not know one of these topics yet, or no leader of a partition.

    A broker that does not answer is left out: it reads the cluster's state before it serves again.

    Raises:
        KafkaConnectionError: no broker answers.
    """
    client, wanted, codes_of = _client_of(owner), list(topics), dict[int, set[int]]()
    await client.force_metadata_update()
    for broker in client.cluster.brokers():
        try:
            answer = await client.send(broker.nodeId, MetadataRequest(wanted, allow_auto_topic_creation=False))
        except (OSError, KafkaError):
            continue
        places = [place for _, _, _, places in answer.topics for place in places]
        codes_of[broker.nodeId] = {topic[0] for topic in answer.topics} | {place[0] for place in places}
    if not codes_of:
        raise KafkaConnectionError
    unknown = {UnknownTopicOrPartitionError.errno, LeaderNotAvailableError.errno}
    return sorted(number for number, codes in codes_of.items() if codes & unknown)


async def fetched_offsets(owner: Any, at: TopicPartition, offset: int, most_bytes: int) -> tuple[list[int], int]:
    """Fetch once from an offset on; return the offsets of the records, and the offset after them.

    Records of aborted transactions and marks of transactions are included, which a consumer passes over. If nothing
    came, the list is empty and the second value 0.

    Raises:
        KafkaError: the partition has no leader at the moment, or the leader refuses.
    """
    client = _client_of(owner)
    node = client.cluster.leader_for_partition(at)
    if node is None or node == NO_LEADER:
        await client.force_metadata_update()
        raise LeaderNotAvailableError
    wanted = [(at.topic, [(at.partition, offset, most_bytes)])]
    answer = await client.send(node, FetchRequest(FETCH_WAIT_MS, 1, most_bytes, READ_UNCOMMITTED, wanted, rack_id=""))
    ((_, ((_, code, *rest),)),) = answer.topics
    if code:
        raise for_code(code)
    records, offsets, after = MemoryRecords(bytes(rest[-1] or b"")), list[int](), 0
    while records.has_next():
        batch = records.next_batch()
        offsets += [record.offset for record in batch]
        after = max(after, batch.next_offset)
    return offsets, after
