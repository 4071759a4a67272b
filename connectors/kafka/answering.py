"""aiokafka's client, except that nobody waits for a broker that hangs (see ``hanging``).

Each of its connections is made by what ``connection`` says at that time, whatever the client was made with.

A request that waits is no sign of that: a healthy leader holds an answer back until its followers have the
record. So what waits for long makes the broker be asked, over a connection of its own, whether it is there.

aiokafka makes its client itself and takes no other; ``answering`` turns the client that it made into this one.
The internals overridden are those of aiokafka 0.14.0, pinned exactly.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from connectors.kafka.connection import Access, AccessRefusedError
from connectors.kafka.hanging import BROKERS, Address

log = logging.getLogger(__name__)

_asking: dict[Address, asyncio.Task[None]] = {}
"""Brokers that hang, and are being asked whether they answer again."""


class AnsweringConnection(AIOKafkaConnection):  # type: ignore[misc]
    """A connection on which a long silence makes the broker be asked whether it is there."""

    def __init__(self, host: str, port: int, **options: Any) -> None:
        super().__init__(host, port, **options)
        self.address: Address = (host, port)
        self.loop = asyncio.get_running_loop()
        self._options = options
        self._greeted = False

    async def connect(self) -> Any:
        """Connect and exchange greetings; TimeoutError when the broker hangs."""
        try:
            async with asyncio.timeout(BROKERS.patience):
                streams = await super().connect()
        except TimeoutError:
            BROKERS.hung(self.address)
            raise
        except OSError:
            BROKERS.refused(self.address)
            raise
        self._greeted = True
        BROKERS.opened(self)
        return streams

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:
        """Send a request; return its answer to be awaited, for as long as the broker is there."""
        answer: Awaitable[Any] = super().send(request, expect_response)
        return self._answered(answer) if self._greeted else answer

    async def _answered(self, answer: Awaitable[Any]) -> Any:
        waiting = asyncio.ensure_future(answer)
        try:
            while not (await asyncio.wait({waiting}, timeout=BROKERS.silence))[0]:
                await self._ask()
            return waiting.result()
        finally:
            waiting.cancel()

    async def _ask(self) -> None:
        """Ask the broker whether it is there; TimeoutError when it hangs."""
        question = AnsweringConnection(*self.address, **self._options | {"on_close": None})
        try:
            await question.connect()
        except TimeoutError:
            raise
        except (OSError, KafkaError) as error:  # it has just gone, which this connection will be told as well
            log.info("a broker could not be asked: %s", type(error).__name__)
        finally:
            question.close()

    def abort(self) -> None:
        """Cut it; whoever waits for an answer is told at once. What is not sent yet is not waited for."""
        if self._writer is not None:
            self._writer.transport.abort()
            self.close(reason=CloseReason.CONNECTION_TIMEOUT)


class AnsweringClient(AIOKafkaClient):  # type: ignore[misc]
    """A client that asks brokers that answer first, and waits for none that hangs."""

    _sync_task: Any

    @functools.cached_property
    def access(self) -> Access:
        """How brokers are reached, and as whom; UsageError where settings or files break a rule."""
        return Access()

    @property
    def hosts(self) -> list[Any]:
        """The bootstrap servers in any order, but those that hang last."""
        return sorted(super().hosts, key=lambda host: BROKERS.hangs((host[0], host[1])))

    def get_random_node(self) -> Any:
        """Return any broker's number, one that answers if there is one; None where none is known."""
        awake = [broker for broker in self.cluster.brokers() if not BROKERS.hangs((broker.host, broker.port))]
        return random.choice(awake).nodeId if awake else super().get_random_node()

    async def bootstrap(self) -> None:
        """Learn the cluster's brokers from the first server that answers.

        Raises:
            AccessRefusedError: none does, and one does not take this user, or is not taken by it.
            KafkaConnectionError: none does.
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
            if self.cluster.brokers():
                connection.close()
            else:  # a cluster without topics may name no broker: then this connection is all there is
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
        """Return a connection to a broker, None where there is none; one that hangs is asked beside the work."""
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
        self.force_metadata_update()  # a broker that cannot be had may have been replaced
        return None

    def _has(self, name: tuple[int, ConnectionGroup]) -> bool:
        return name in self._conns and self._conns[name].connected()

    async def _made(self, connection: AnsweringConnection) -> bool:
        if BROKERS.hangs(connection.address):
            _ask_beside(connection)
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


def _ask_beside(connection: AnsweringConnection) -> None:
    """Ask a broker that hangs whether it answers again, one question at a time, while the work goes on."""
    asked = _asking.get(connection.address)
    if asked is None or asked.done():
        _asking[connection.address] = asyncio.create_task(_asked_again(connection))


async def _asked_again(connection: AnsweringConnection) -> None:
    with suppress(OSError, KafkaError):
        await connection.connect()
    connection.close()


def answering(client: Any) -> None:
    """Let an aiokafka client that has not been started ask as ``AnsweringClient`` does, and as whom settings say."""
    client.__class__ = AnsweringClient
