"""The MQTT sink: retained messages of each node, and Home Assistant discovery.

``tacet/public/dbh/zone/2011/occupancy`` contains the newest window of zone 2011; floors are at ``…/floor/2/…``, the
building at ``…/building/…``. A denied window clears the value of every node that its release has published.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import aiomqtt
import orjson
import structlog

from connectors.runtime.signals import first_to_end
from connectors.sinks.feed import Notes, is_latest_count, note_latest
from connectors.storage.site_metadata import SitesMetadata, display_name
from connectors.subscribe.nodes import bound_of, counted_in, node_values
from connectors.subscribe.order import Release
from stream.records import JsonObject

OF_THE_RECORD = ("window_start", "window_end", "released", "reason", "coverage", "release_id", "laboratory")
_OF_PEOPLE = ("counted", "band", "provisional", "of")
_ESCAPED = str.maketrans({"_": "__", ".": "_d", "-": "_h", "/": "-"})
"""Maps a topic to a Home Assistant name of letters, digits, _ and -; different topics stay different."""


def status_topic(prefix: str) -> str:
    """Return the topic of a sink's availability, ``online`` or ``offline``."""
    return f"{prefix}/status"


def messages(prefix: str, record: Release, retained: Mapping[str, str]) -> dict[str, str]:
    """Return the retained messages of a record of counts or people, by topic.

    Only those of people say what is counted (``counted``); the others are about devices. A node without an estimate
    of people loses its earlier one. ``retained`` are the earlier messages: a denied window lists no nodes, so its
    release's nodes are found there.
    """
    common = {name: record[name] for name in (*OF_THE_RECORD, *_OF_PEOPLE) if name in record} | bound_of(record)
    kind = record.get("half_width_kind")
    found = {
        f"{prefix}/{record['site']}/{value.node.replace(':', '/')}/{record['release']}": {
            "value": value.value, "low": value.low, "high": value.high, "half_width": value.half_width, "kind": kind,
        }
        for value in node_values(record)
    }  # fmt: skip
    cleared = dict.fromkeys(("value", "low", "high", "half_width", "kind"))
    for node, why in record.get("unknown", {}).items():
        topic = f"{prefix}/{record['site']}/{node.replace(':', '/')}/{record['release']}"
        if topic in retained:
            found[topic] = cleared | {"unknown": why}
    if not record["released"]:
        own = (topic for topic in retained if _is_of(topic, prefix, record))
        found = dict.fromkeys(own, cleared) | found
    return {topic: orjson.dumps(body | common).decode() for topic, body in found.items()}


def _is_of(topic: str, prefix: str, record: Release) -> bool:
    return topic.startswith(f"{prefix}/{record['site']}/") and topic.endswith(f"/{record['release']}")


def site_topic(prefix: str, site: str) -> str:
    """Return the topic of a site's metadata."""
    return f"{prefix}/{site}/metadata"


def discovery(
    base: str,
    prefix: str,
    topics: Iterable[str],
    sites: SitesMetadata,
    counted: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the retained messages that define a Home Assistant sensor for each topic, below ``base``.

    ``sites`` is the sites' metadata, which contains the sensors' names; ``counted`` is what a topic counts, if not
    devices.
    """
    return dict(_sensor(base, prefix, topic, sites, counted.get(topic, "devices")) for topic in topics)


def _sensor(base: str, prefix: str, topic: str, sites: SitesMetadata, unit: str) -> tuple[str, str]:
    site, *node, release = topic.removeprefix(f"{prefix}/").split("/")
    name, device = topic.translate(_ESCAPED), f"{prefix}/{site}".translate(_ESCAPED)
    known = sites.get(site)
    body: JsonObject = {
        "name": f"{display_name(known, ':'.join(node)) or ' '.join(node)} {release}",
        "unique_id": name,
        "state_topic": topic,
        "value_template": "{{ value_json.value }}",
        "json_attributes_topic": topic,
        "unit_of_measurement": unit,
        "state_class": "measurement",
        "icon": "mdi:account-group",
        "availability_topic": status_topic(prefix),
        "device": {"identifiers": [device], "name": site if known is None else known["name"], "manufacturer": "Tacet"},
        "origin": {"name": "Tacet"},
    }
    return f"{base}/sensor/{name}/config", orjson.dumps(body).decode()


log = structlog.get_logger("tacet.sink")
ONLINE, OFFLINE = "online", "offline"
KEEP_ALIVE = 30
"""Seconds of silence after which broker and sink consider the connection lost; the broker then publishes
``offline``."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before reconnecting to an unavailable broker, doubled each time."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Address and credentials; ``tls`` verifies the broker by the system's authorities, or by those in
    ``authorities``."""

    host: str
    port: int
    tls: bool
    username: str | None = None
    password: Callable[[], str] | None = None
    """Reads the password; it is called for each connection."""
    authorities: Path | None = None

    def client(self, prefix: str) -> aiomqtt.Client:
        """Return a client whose last will sets its availability to offline."""
        context = ssl.create_default_context(cafile=self.authorities) if self.tls else None
        password = None if self.password is None else self.password()
        return aiomqtt.Client(
            self.host, self.port, username=self.username, password=password, tls_context=context,
            keepalive=KEEP_ALIVE, timeout=10.0, will=aiomqtt.Will(status_topic(prefix), OFFLINE, qos=1, retain=True),
        )  # fmt: skip


class MqttSink:
    """Delivers the latest counts to a broker, and retries until the broker accepts them."""

    def __init__(
        self, broker: Broker, prefix: str, notes: Notes, sites: SitesMetadata, *,
        home_assistant: str | None,
    ) -> None:  # fmt: skip
        """Store the topic prefix, the cursor's notes, and the sites' metadata.

        ``home_assistant`` is the prefix below which Home Assistant looks for sensors; None: no discovery.
        """
        self._broker, self._prefix, self._notes, self._sites = broker, prefix, notes, sites
        self._base = home_assistant
        self._queue: asyncio.Queue[Mapping[str, str]] = asyncio.Queue(1)
        self._latest: Mapping[str, str] | None = None

    async def deliver(self, record: Release) -> None:
        """Publish a record's nodes unless newer ones are published; return when the broker has acknowledged them."""
        if not is_latest_count(record, self._notes):
            return
        retained = self._notes.setdefault("retained", {})
        fresh = messages(self._prefix, record, retained)
        new = {topic: body for topic, body in fresh.items() if topic not in retained}
        await self._queue.put(self._described(new) | fresh)
        await self._queue.join()
        retained |= fresh
        note_latest(record, self._notes)

    def _described(self, messages: Mapping[str, str]) -> dict[str, str]:
        """Return the messages that precede the first values of some topics: site metadata and discovery."""
        counted = {topic: counted_in(orjson.loads(message)) for topic, message in messages.items()}
        topics = list(messages)
        names = {topic.removeprefix(f"{self._prefix}/").partition("/")[0] for topic in topics}
        sites = {
            site_topic(self._prefix, name): orjson.dumps(self._sites[name]).decode()
            for name in sorted(names) if name in self._sites
        }  # fmt: skip
        return sites | ({} if self._base is None else discovery(self._base, self._prefix, topics, self._sites, counted))

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
            retained = self._notes.get("retained", {})
            await _publish(client, self._described(retained) | retained)  # the broker may have lost them
            await _publish(client, {status_topic(self._prefix): ONLINE})
            await first_to_end(self._publish_queued(client), _watch(client))
        except asyncio.CancelledError:
            with suppress(aiomqtt.MqttError):
                await _publish(client, {status_topic(self._prefix): OFFLINE})  # a clean disconnect sends no will
            raise

    async def _publish_queued(self, client: aiomqtt.Client) -> None:
        while True:
            if self._latest is None:
                self._latest = await self._queue.get()
            await _publish(client, self._latest)
            self._latest = None
            self._queue.task_done()


async def _publish(client: aiomqtt.Client, retained: Mapping[str, str]) -> None:
    for topic, body in retained.items():
        await client.publish(topic, body, qos=1, retain=True)


async def _watch(client: aiomqtt.Client) -> None:
    """Raise MqttError as soon as the connection is lost."""
    async for _ in client.messages:
        pass
