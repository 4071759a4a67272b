"""The MQTT sink: holds the latest of each node on a broker, as retained messages, and says whether it is there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt
import orjson
import structlog

from connectors.signals import first_to_end
from connectors.sinks.feed import is_latest_count, note_latest
from connectors.sinks.topics import discovery, messages, site_topic, status_topic
from connectors.subscriber import Release

log = structlog.get_logger("tacet.sink")
ONLINE, OFFLINE = "online", "offline"
KEEP_ALIVE = 30
"""Seconds of silence after which broker and sink miss each other; the broker then says ``offline`` for it."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before a broker that is away is tried again: doubled each time."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where, and as whom; ``tls`` verifies the broker by the system's authorities, or by those in ``authorities``."""

    host: str
    port: int
    tls: bool
    username: str | None = None
    password: str | None = None
    authorities: Path | None = None

    def client(self, prefix: str) -> aiomqtt.Client:
        """Return a client whose last will takes its availability back."""
        context = ssl.create_default_context(cafile=self.authorities) if self.tls else None
        return aiomqtt.Client(
            self.host, self.port, username=self.username, password=self.password, tls_context=context,
            keepalive=KEEP_ALIVE, timeout=10.0, will=aiomqtt.Will(status_topic(prefix), OFFLINE, qos=1, retain=True),
        )  # fmt: skip


class MqttSink:
    """Delivers the latest counts to a broker; what it cannot deliver waits until the broker is there."""

    def __init__(
        self, broker: Broker, prefix: str, notes: dict[str, Any], sites: Mapping[str, dict[str, Any]], *,
        home_assistant: str | None,
    ) -> None:  # fmt: skip
        """Take the topics' common beginning, the cursor's notes, and what is known of sites.

        ``home_assistant`` is the topic below which it looks for sensors; None where it is not to find any.
        """
        self._broker, self._prefix, self._notes, self._sites = broker, prefix, notes, sites
        self._base = home_assistant
        self._queue: asyncio.Queue[Mapping[str, str]] = asyncio.Queue(1)
        self._held: Mapping[str, str] | None = None

    async def deliver(self, record: Release) -> None:
        """Publish a record's nodes, if none is newer; return when the broker has them."""
        if not is_latest_count(record, self._notes):
            return
        retained: dict[str, str] = self._notes.setdefault("retained", {})
        fresh = messages(self._prefix, record, retained)
        await self._queue.put(self._described([topic for topic in fresh if topic not in retained]) | fresh)
        await self._queue.join()
        retained |= fresh
        note_latest(record, self._notes)

    def _described(self, topics: Iterable[str]) -> dict[str, str]:
        """Return what goes before the first values of some topics: their sites' metadata, and their sensors."""
        topics = list(topics)
        names = {topic.removeprefix(f"{self._prefix}/").partition("/")[0] for topic in topics}
        sites = {
            site_topic(self._prefix, name): orjson.dumps(self._sites[name]).decode()
            for name in sorted(names) if name in self._sites
        }  # fmt: skip
        return sites | ({} if self._base is None else discovery(self._base, self._prefix, topics, self._sites))

    async def run(self) -> None:
        """Stay connected until cancelled."""
        wait = FIRST_WAIT
        while True:
            try:
                async with self._broker.client(self._prefix) as client:
                    wait = FIRST_WAIT
                    await self._serve(client)
            except aiomqtt.MqttError as error:
                reason = str(error.rc) if isinstance(error, aiomqtt.MqttCodeError) else None
                log.warning("MQTT broker is away", error=type(error).__name__, reason=reason)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _serve(self, client: aiomqtt.Client) -> None:
        try:
            held: dict[str, str] = self._notes.get("retained", {})
            await _publish(client, self._described(held) | held)  # a broker may have lost what it retained
            await _publish(client, {status_topic(self._prefix): ONLINE})
            await first_to_end(self._hand_on(client), _watch(client))
        except asyncio.CancelledError:
            with suppress(aiomqtt.MqttError):
                await _publish(client, {status_topic(self._prefix): OFFLINE})  # a clean end sends no will
            raise

    async def _hand_on(self, client: aiomqtt.Client) -> None:
        while True:
            if self._held is None:
                self._held = await self._queue.get()
            await _publish(client, self._held)
            self._held = None
            self._queue.task_done()


async def _publish(client: aiomqtt.Client, retained: Mapping[str, str]) -> None:
    for topic, body in retained.items():
        await client.publish(topic, body, qos=1, retain=True)


async def _watch(client: aiomqtt.Client) -> None:
    """Raise MqttError as soon as the connection is lost."""
    async for _ in client.messages:
        pass
