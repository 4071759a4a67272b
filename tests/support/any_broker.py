"""Tests of Kafka's clients that run on a simulated broker, and each night on a real one.

``on_any_broker`` lets an asynchronous test that asks for the fixture ``broker`` run as a process of a simulated world:
what it waits for takes virtual time. On a real broker the same test runs as it stands.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from tests.integration.kafka_brokers import Broker

Test = Callable[..., Awaitable[None]]


class AnyBroker(Protocol):
    """A broker that runs, in this world or in a simulated one."""

    bootstrap: str

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        """Run a test to its end."""

    async def kill(self) -> None:
        """End it without warning."""

    async def hang(self) -> None:
        """Let it answer nothing, with its connections open."""

    async def recover(self) -> None:
        """Let it answer again; what was written is there."""


def on_any_broker(test: Test) -> Callable[..., None]:
    """Return a test that runs where its broker is."""

    @functools.wraps(test)
    def run(broker: AnyBroker, **given: Any) -> None:
        broker.run(lambda: test(broker, **given))

    return run


class SimulatedBroker:
    """The first broker of a simulated cluster."""

    def __init__(self, brokers: int = 1) -> None:
        from tests.simulation.kafka_brokers import Cluster
        from tests.simulation.network import Network
        from tests.simulation.processes import World

        self._world = World(1)
        cluster = Cluster(self._world, Network(self._world), brokers)
        self._broker, self.bootstrap = cluster.brokers[1], cluster.bootstrap

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        from tests.simulation.occupancy import GLOBALS
        from tests.simulation.processes import Process, guarded

        async def main() -> int:
            await test()
            return 0

        with guarded(self._world):
            process = Process(self._world, "test", GLOBALS)
            process.start(main)
            ended = self._world.run(lambda: process.exit_code is not None, 10 * PATIENCE)
            if process.failure is not None:
                raise process.failure
        assert ended, "the test waits for ever"

    async def kill(self) -> None:
        self._broker.kill()

    async def hang(self) -> None:
        self._broker.hang()

    async def recover(self) -> None:
        self._broker.recover()


class RealBroker:
    """A broker of this machine."""

    def __init__(self, kafka: Broker) -> None:
        self._kafka, self.bootstrap = kafka, kafka.bootstrap
        self._back: Callable[[], None] = kafka.resume

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await test()

        asyncio.run(main())

    async def kill(self) -> None:
        self._back = self._kafka.start
        await asyncio.to_thread(self._kafka.kill)

    async def hang(self) -> None:
        self._back = self._kafka.resume
        self._kafka.pause()

    async def recover(self) -> None:
        await asyncio.to_thread(self._back)
