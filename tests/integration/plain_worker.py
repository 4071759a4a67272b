"""The twin that must fail: the same engine, snapshots and order of writing, on Faust's own consumer.

``python -m tests.integration.plain_worker BOOTSTRAP PREFIX SESSION``. Positions are the group's committed offsets;
a message below the state's position is skipped, as an agent guards itself against repeats.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from faust.transport.drivers import aiokafka as driver

from connectors.storage.kafka import worker
from stream.runners.faust_app import StrictThread, create_app
from stream.runners.partition_tasks import TaskManager
from tests.integration import chain_worker


class PlainConsumer(driver.Consumer):  # type: ignore[misc]
    """Faust's consumer; it only also restores the engines after each assignment."""

    def _new_consumer_thread(self) -> StrictThread:
        return StrictThread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        task_manager: TaskManager = self.app.task_manager
        task_manager.release()
        await super().perform_seek()
        for tp in sorted(self.assignment()):
            await task_manager.open(tp.partition, _anywhere)

    async def reopen_lost(self) -> None:
        """Reopen nothing: what is lost stays lost here."""

    def unopened(self) -> list[int]:
        """Leave the watchdog nothing to do."""
        return []

    def ended_tasks(self) -> list[str]:
        return []


async def _anywhere() -> tuple[int, int]:
    return 0, 1 << 60


class PlainTransport(driver.Transport):  # type: ignore[misc]
    Consumer = PlainConsumer


def plain_app(*, source: str, task_manager: TaskManager, **settings: Any) -> Any:
    app = create_app(source=source, task_manager=task_manager, transport=PlainTransport, **settings)
    app._agents_to_keep = None
    app.agents.clear()
    topic = app.topic(source, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")

    async def engine(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            task = task_manager.tasks.get(message.partition)
            while task is None:
                await asyncio.sleep(0.05)
                task = task_manager.tasks.get(message.partition)
            if message.offset >= task.position:
                task.position = message.offset
                await task.process(message.offset, message.offset, message.key, message.value, None)
            event.ack()

    app.agent(topic, name="plain", concurrency=1)(engine)
    return app


if __name__ == "__main__":
    vars(worker).update(create_app=plain_app)
    sys.exit(chain_worker.main())
