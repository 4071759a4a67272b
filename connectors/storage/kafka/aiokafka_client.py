"""aiokafka's client, changed so that a process waits only once for a broker that hangs.

A broker hangs if its connections stay open and it answers nothing. All clients of this process share what one of them
finds out (``BROKER_HEALTH``): every open connection to that broker is cut, and until it answers again the clients treat
it like a broker that refuses connections.

A request without an answer is no proof. A healthy leader delays an answer until its followers have the record. So when
a request waits for long, the client probes the broker over a connection of its own. How long a request may wait before
the probe, and how long the probe may take, both follow from the session timeout.

Only time in which the waiting event loop itself runs counts (``within``). A process that is paused or lacks CPU has not
read its brokers' answers and must not blame them.

Each connection is made with the options that ``connection`` reads at that time, not with those of the client's
constructor: so an exchanged password or certificate takes effect without a restart.

Internals of aiokafka 0.14.0 (pinned exactly) that are overridden or used, and why:

- ``_client`` (``client_of``): consumers and administrators give no public access to their client, which alone knows a
  topic's partitions without a subscription.
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
import threading
import weakref
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.errors import KafkaConnectionError, KafkaError, LeaderNotAvailableError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.record.memory_records import MemoryRecords

from connectors.storage.kafka.connection import Access, AccessRefusedError
from connectors.storage.kafka.timeouts import FETCH_WAIT_MS, SESSION_PARTS
from stream.settings import SESSION_TIMEOUT

log = logging.getLogger(__name__)
T = TypeVar("T")

Address = tuple[str, int]
"""Host and port."""
NO_LEADER = -1
"""The number by which metadata say that a partition has no leader."""
TURNS = 10
"""Each wait is divided into so many turns; a pause of the process uses up one turn, however long it lasts."""


class Loop(Protocol):
    """The event loop of a connection."""

    def call_soon_threadsafe(self, callback: object, /) -> object:
        """Schedule a callback in the loop's own thread."""


class Connection(Protocol):
    """An open connection to a broker."""

    address: Address
    loop: Loop

    def abort(self) -> None:
        """Cut the connection; callers that wait for an answer fail at once."""


class BrokerHealth:
    """What this process knows of its brokers: which of them hang, and how long each is waited for. Thread-safe."""

    def __init__(self, session_timeout: float = SESSION_TIMEOUT) -> None:
        """Set the session timeout: the seconds after which a silent worker loses its partitions."""
        self.set_session_timeout(session_timeout)
        self._lock = threading.Lock()
        self._hanging: set[Address] = set()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()

    def set_session_timeout(self, session_timeout: float) -> None:
        """Derive how long a broker is waited for from a session timeout, in seconds."""
        self.silence = session_timeout / SESSION_PARTS
        """Seconds for which a request may wait before the broker is probed."""
        self.answer_timeout = session_timeout / SESSION_PARTS
        """Seconds within which the broker must answer a probe."""

    def hangs(self, address: Address) -> bool:
        """Return whether this broker was found to hang and has not answered since."""
        return address in self._hanging

    def record_open(self, connection: Connection) -> None:
        """Record a connection, and that its broker answers."""
        with self._lock:
            self._hanging.discard(connection.address)
            self._open.add(connection)

    def record_refusal(self, address: Address) -> None:
        """Record that a broker refuses connections: it is down, so callers fail fast."""
        with self._lock:
            self._hanging.discard(address)

    def record_hanging(self, address: Address) -> None:
        """Record that a broker does not answer, and cut every connection to it so that no caller waits any longer."""
        with self._lock:
            known = address in self._hanging
            self._hanging.add(address)
            waiting = [connection for connection in self._open if connection.address == address]
        if not known:
            log.warning("a broker at %s:%d hangs; it is waited for no more until it answers", *address)
        for connection in waiting:
            with suppress(RuntimeError):  # its loop has ended, and with it everything that waited there
                connection.loop.call_soon_threadsafe(connection.abort)


BROKER_HEALTH = BrokerHealth()
"""That of this process."""


async def within(seconds: float, answer: asyncio.Future[T]) -> bool:
    """Return whether an answer arrives within so many seconds in which this loop runs."""
    for _ in range(TURNS):
        if (await asyncio.wait({answer}, timeout=seconds / TURNS))[0]:
            return True
    return False


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
            log.info("a broker could not be asked: %s", type(error).__name__)
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


def client_of(owner: Any) -> Any:
    """Return the client of an aiokafka consumer, producer or administrator."""
    return owner.client if isinstance(owner, AIOKafkaProducer) else owner._client  # noqa: SLF001


def answering(owner: Any) -> None:
    """Turn the client of an aiokafka consumer, producer or administrator into an ``AnsweringClient``.

    The owner must not have been started. The client uses the credentials of the settings.
    """
    client_of(owner).__class__ = AnsweringClient


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


async def fetched_offsets(owner: Any, at: TopicPartition, offset: int, most_bytes: int) -> tuple[list[int], int]:
    """Fetch once from an offset on; return the offsets of the records, and the offset after them.

    Records of aborted transactions and marks of transactions are included, which a consumer passes over. If nothing
    came, the list is empty and the second value 0.

    Raises:
        KafkaError: the partition has no leader at the moment, or the leader refuses.
    """
    client = client_of(owner)
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
