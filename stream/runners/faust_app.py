"""The Faust side of the stream: one agent that feeds each message to the tenure it was handed on for.

Faust gives the agent, the group membership and the life cycle. Its tables, its producer, its transactions
and its web server are not used: state, position and publishing are in ``stream.runners.tenure``, delivery is the
transport's that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import faust
from faust.app import BootStrategy

from stream.runners.tenures import Tenures
from stream.settings import SESSION_TIMEOUT

METADATA_AGE_MS = 10_000
"""Milliseconds after which a worker looks again which topics and partitions there are: one may have been made anew."""


class _ConsumerOnly(BootStrategy):  # type: ignore[misc]
    """Starts no producer: nothing is sent through Faust, and its connections would be made by nobody's rules."""

    enable_kafka_producer = False


class TacetApp(faust.App):  # type: ignore[misc]
    """A Faust app over a transport that was handed in; it writes no folders and starts no web server."""

    tenures: Tenures
    source: str
    transport_type: Callable[[Any, Any], Any]
    BootStrategy = _ConsumerOnly

    def _new_transport(self) -> Any:
        return self.transport_type(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Keep nothing on disk: the snapshot topic holds all state."""


def create_app(
    *,
    brokers: str,
    group: str,
    source: str,
    tenures: Tenures,
    transport: Callable[[Any, Any], Any],
    session_timeout: float = SESSION_TIMEOUT,
) -> TacetApp:
    """Return the app: one agent on ``source`` that feeds each message to the tenure it was handed on for.

    ``brokers`` is a list of ``host:port`` separated by commas, ``session_timeout`` is in seconds: so long
    after a worker fell silent its partitions go to another.
    """
    app = TacetApp(
        group,
        broker=";".join(f"kafka://{broker.strip()}" for broker in brokers.split(",")),
        broker_session_timeout=session_timeout,
        broker_heartbeat_interval=session_timeout / 4,
        broker_request_timeout=session_timeout + 5.0,  # longer than a join waits; who hangs is found out long before
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
    )
    app.tenures, app.source, app.transport_type = tenures, source, transport
    topic = app.topic(source, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw")

    async def engine(stream: Any) -> None:
        async for event in stream.noack().events():
            message = event.message
            try:
                await message.tenure.feed(
                    message.follows, message.offset, message.key, message.value or b"", message.stamp
                )
            except Exception as failure:
                tenures.fail(failure)
                raise

    app.agent(topic, name="engine", concurrency=1)(engine)
    return app
