"""The Faust side of the stream: one agent that passes each message to the task of its partition.

Faust provides the agent, the group membership and the life cycle. Its tables, its producer, its transactions and its
web server are not used. State, position and publishing belong to ``stream.runners.partition_tasks``; delivery belongs
to the transport that the caller passes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import faust
from faust.app import BootStrategy
from faust.tables import TableManager
from faust.tables.recovery import Recovery

from stream.runners.partition_tasks import TaskManager
from stream.settings import SESSION_TIMEOUT

METADATA_AGE_MS = 10_000
"""Milliseconds after which a worker refreshes its metadata of topics: one may have been deleted and recreated."""


class _ConsumerOnly(BootStrategy):  # type: ignore[misc]
    """Starts no producer: nothing is sent through Faust, and its producer would not use this project's connections."""

    enable_kafka_producer = False


class _Recovery(Recovery):  # type: ignore[misc]
    """Faust's service that opens partitions after each assignment."""

    async def _wait(self, coro: Any, timeout: float | None = None) -> None:  # noqa: ASYNC109 - Faust's
        # Faust waits for ``broker_request_timeout``. When that wait times out, mode behaves as if the service had been
        # asked to stop: Faust then opens no partition any more, logs nothing, and stays in the group.
        del timeout
        await super()._wait(coro)


class _TableManager(TableManager):  # type: ignore[misc]
    """A manager without tables, through which Faust opens partitions."""

    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery


class TacetApp(faust.App):  # type: ignore[misc]
    """A Faust app over a given transport; it writes no folders and starts no web server."""

    tenures: TaskManager
    source: str
    transport_type: Callable[[Any, Any], Any]
    BootStrategy = _ConsumerOnly

    def _new_transport(self) -> Any:
        return self.transport_type(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Create nothing on disk: the snapshot topic holds all state."""


def create_app(
    *,
    brokers: str,
    group: str,
    source: str,
    task_manager: TaskManager,
    transport: Callable[[Any, Any], Any],
    session_timeout: float = SESSION_TIMEOUT,
) -> TacetApp:
    """Return the app: one agent on ``source`` that passes each message to the task for which it was read.

    ``brokers`` is a list of ``host:port`` separated by commas. ``session_timeout`` is in seconds: when a worker has
    been silent for so long, its partitions are assigned to another.
    """
    app = TacetApp(
        group,
        broker=";".join(f"kafka://{broker.strip()}" for broker in brokers.split(",")),
        broker_session_timeout=session_timeout,
        broker_heartbeat_interval=session_timeout / 4,
        broker_request_timeout=session_timeout + 5.0,  # longer than a join waits; a hung broker is detected earlier
        broker_commit_interval=1.0,
        consumer_max_fetch_size=16 << 20,
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=METADATA_AGE_MS,
        stream_buffer_maxsize=256,  # messages of up to a thousand rows; the strict consumer waits for room
        stream_wait_empty=False,
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        agent_supervisor="mode.CrashingSupervisor",
        TableManager=_TableManager,
    )
    app.tenures, app.source, app.transport_type = task_manager, source, transport
    topic = app.topic(source, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")

    async def engine(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            with task_manager.failing():
                await message.task.process(
                    message.expected_offset, message.offset, message.key, message.value or b"", message.stamp,
                    after_loss=message.after_loss,
                )  # fmt: skip

    app.agent(topic, name="engine", concurrency=1)(engine)
    return app


LOOKS = 4
"""A task counts as ended after it is missing in this many consecutive checks: a service starts before its tasks."""


class TaskWatch:
    """Detects tasks of an app's services that have ended by themselves.

    mode crashes a service when one of its tasks raises. A task that returns or is cancelled just ends, and the rest of
    the service continues.
    """

    def __init__(self, root: Any) -> None:
        """``root`` is the service under which all others run."""
        self._root = root
        self._missing: dict[tuple[Any, int, str], int] = {}
        """(service, its restart count, task name) -> number of consecutive checks in which the task was missing."""

    def ended(self) -> list[str]:
        """Check once; return the names of tasks that have ended although their service continues."""
        missing = {
            (service, service.restart_count, name)
            for service in {*_services(self._root.beacon)}
            if service.started and not service.should_stop
            for name in {task.fun.__qualname__ for task in service._get_tasks()} - _running(service)  # noqa: SLF001
        }
        self._missing = {each: self._missing.get(each, 0) + 1 for each in missing}
        return sorted(name for (_, _, name), times in self._missing.items() if times >= LOOKS)


def _services(node: Any) -> Iterator[Any]:
    """Yield the services of a tree, some more than once."""
    if hasattr(node.data, "_get_tasks"):
        yield node.data
    for child in list(node.children):
        if hasattr(child, "children"):
            yield from _services(child)


def _running(service: Any) -> set[str]:
    futures = [future for future in list(service._futures) if not future.done()]  # noqa: SLF001
    return {getattr(getattr(future, "__wrapped__", None), "__qualname__", "") for future in futures}
