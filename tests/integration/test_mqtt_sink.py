"""The MQTT sink on a real broker (Mosquitto): the latest of each node, whatever dies in between."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from connectors.sinks import mqtt
from connectors.sinks.feed import deliver_releases, notes_of
from connectors.sinks.mqtt import Broker, MqttSink
from connectors.storage.site_metadata import SitesMetadata, ZoneEntry
from connectors.subscribe.cursor import Cursor
from tests.acceptance.command_line import command
from tests.integration.external_programs import Running, mosquitto
from tests.support.patience import PATIENCE, waiting_for
from tests.support.released_store import count, give

PREFIX = "tacet/public"
STATUS = f"{PREFIX}/status"
AULA: ZoneEntry = {"zone": "a", "floor": "1", "kind": "hall", "capacity": 100, "metadata": {"name": "Aula"}}
SITES: SitesMetadata = {
    "dbh": {
        "v": 1, "site": "dbh", "name": "Bren Hall", "timezone": "UTC", "tick_seconds": 300, "zones": [AULA],
    },
    "elsewhere": {
        "v": 1, "site": "elsewhere", "name": "elsewhere", "timezone": "UTC", "tick_seconds": 300, "zones": [],
    },
}  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(mqtt, "FIRST_WAIT", 0.05)
    running = mosquitto(tmp_path)
    running.start()
    yield running
    running.kill()


@asynccontextmanager
async def sinking(broker: Running, folder: Path, home_assistant: str | None = None) -> AsyncIterator[None]:
    """A sink at work, which is killed at the end."""
    cursor = Cursor(folder / "cursor")
    sink = MqttSink(
        Broker("127.0.0.1", broker.port, tls=False), PREFIX, notes_of(cursor), SITES, home_assistant=home_assistant
    )
    source: Any = {"store": folder / "store", "audience": "public"}
    works = [asyncio.create_task(w) for w in (sink.run(), deliver_releases(source, cursor, sink.deliver, sink.deliver))]
    try:
        yield
    finally:
        for work in reversed(works):
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


async def until_retained(broker: Running, wanted: dict[str, Any], of: str = "value") -> None:
    """Wait until a reader that comes anew is given these values by topic."""
    async with waiting_for(f"retained values {wanted}"):
        while (found := {t: json.loads(b)[of] for t, b in (await retained(broker)).items() if "/zone/" in t}) != wanted:
            await asyncio.sleep(0.05)
    assert found == wanted


async def retained(broker: Running, below: str = "#") -> dict[str, str]:
    """Return what the broker gives a new reader; a message of the reader's own comes behind all of it."""
    found: dict[str, str] = {}
    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await client.subscribe(below, qos=1)
        await client.subscribe("mark", qos=1)
        await client.publish("mark", b"", qos=1)
        async for message in client.messages:
            if message.topic.value == "mark":
                return found
            if message.retain:
                assert isinstance(message.payload, bytes)
                found[message.topic.value] = message.payload.decode()
    raise AssertionError


def topic(zone: str) -> str:
    return f"{PREFIX}/dbh/zone/{zone}/occupancy"


async def test_a_reader_that_comes_at_any_time_finds_the_latest_of_each_zone(broker: Running, tmp_path: Path) -> None:
    store = give(tmp_path / "store", [count(n, {"a": n, "b": 10 + n}) for n in range(20)])
    async with sinking(broker, tmp_path):
        await until_retained(broker, {topic("a"): 19, topic("b"): 29})
        assert (await retained(broker))[STATUS] == "online"
        give(store, [count(20, {"a": 3, "b": 0}), count(-3, {"a": 99, "b": 99})])
        await until_retained(broker, {topic("a"): 3, topic("b"): 0})
        give(store, [count(21, None)])
        await until_retained(broker, {topic("a"): None, topic("b"): None})
    assert (await retained(broker))[STATUS] == "offline"


async def test_a_new_sink_publishes_no_history_and_a_sink_that_goes_on_nothing_twice(
    broker: Running, tmp_path: Path
) -> None:
    store = give(tmp_path / "store", [count(n, {"a": n}) for n in range(50)])
    seen: list[int] = []

    async def watch(ready: asyncio.Event) -> None:
        async with aiomqtt.Client("127.0.0.1", broker.port) as client:
            await client.subscribe(topic("a"), qos=1)
            ready.set()
            async for message in client.messages:
                assert isinstance(message.payload, bytes)
                seen.append(json.loads(message.payload)["value"])

    ready = asyncio.Event()
    watching = asyncio.create_task(watch(ready))
    await ready.wait()
    async with sinking(broker, tmp_path):
        await until_retained(broker, {topic("a"): 49})
    give(store, [count(n, {"a": n}) for n in range(50, 53)])
    async with sinking(broker, tmp_path):
        await until_retained(broker, {topic("a"): 52})
    watching.cancel()
    assert [value for n, value in enumerate(seen) if value not in seen[:n]] == [49, 50, 51, 52]
    assert seen.count(49) == 2, "said once more at the second start, for the broker may have lost it"
    assert len(seen) == 5


async def test_what_a_broker_without_a_memory_has_lost_is_there_again_when_it_is_back(
    broker: Running, tmp_path: Path
) -> None:
    store = give(tmp_path / "store", [count(0, {"a": 1, "b": 2})])
    async with sinking(broker, tmp_path):
        await until_retained(broker, {topic("a"): 1, topic("b"): 2})
        broker.kill()
        give(store, [count(1, {"a": 5}), count(2, {"a": 6})])
        broker.start()
        await until_retained(broker, {topic("a"): 6, topic("b"): 2})
        assert (await retained(broker))[STATUS] == "online"


async def test_a_sink_that_dies_is_offline_by_its_last_will(broker: Running, tmp_path: Path) -> None:
    give(tmp_path / "store", [count(0, {"a": 1})])
    words = ["sink", "mqtt", "--store", str(tmp_path / "store"), "--audience", "public", "--cursor",
             str(tmp_path / "cursor"), "--broker", f"127.0.0.1:{broker.port}"]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*command(words))
    await until_retained(broker, {topic("a"): 1})
    assert (await retained(broker))[STATUS] == "online"
    process.kill()
    await process.wait()
    async with waiting_for("the status offline"):
        while (await retained(broker))[STATUS] != "offline":
            await asyncio.sleep(0.05)


async def test_home_assistant_finds_a_sensor_for_each_zone_when_it_is_asked_for(
    broker: Running, tmp_path: Path
) -> None:
    give(tmp_path / "store", [count(0, {"a": 1, "b": 2})])
    async with sinking(broker, tmp_path, home_assistant="homeassistant"):
        await until_retained(broker, {topic("a"): 1, topic("b"): 2})
        sensors = [json.loads(body) for body in (await retained(broker, "homeassistant/#")).values()]
    assert {sensor["state_topic"]: sensor["name"] for sensor in sensors} == {
        topic("a"): "Aula occupancy", topic("b"): "zone b occupancy",
    }  # fmt: skip
    assert {sensor["device"]["name"] for sensor in sensors} == {"Bren Hall"}


async def test_what_is_known_of_a_site_lies_beside_its_values_and_of_other_sites_nothing(
    broker: Running, tmp_path: Path
) -> None:
    give(tmp_path / "store", [count(0, {"a": 1})])
    async with sinking(broker, tmp_path):
        await until_retained(broker, {topic("a"): 1})
        found = {t: json.loads(body) for t, body in (await retained(broker)).items() if t.endswith("/metadata")}
    assert found == {f"{PREFIX}/dbh/metadata": SITES["dbh"]}


async def test_a_broker_that_asks_for_a_password_gets_it_from_a_file_and_no_log_shows_it(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("sink:pass-of-a-test\n")
    (tmp_path / "users").chmod(0o644)
    subprocess.run(["mosquitto_passwd", "-U", tmp_path / "users"], check=True)
    broker = mosquitto(tmp_path, "allow_anonymous false", f"password_file {tmp_path / 'users'}")
    broker.start()
    give(tmp_path / "store", [count(0, {"a": 1})])
    (tmp_path / "password").write_text("pass-of-a-test\n")
    (tmp_path / "password").chmod(0o600)
    words: list[str | Path] = ["sink", "mqtt", "--store", tmp_path / "store", "--audience", "public"]
    words += ["--cursor", tmp_path / "cursor", "--broker", f"127.0.0.1:{broker.port}", "--username", "sink",
              "--password-file", tmp_path / "password",
             "--until-end"]  # fmt: skip
    try:
        done = subprocess.run(command(words), capture_output=True, text=True, timeout=PATIENCE, check=False)
    finally:
        broker.kill()
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "cursor").read_bytes())["notes"]["newest"] == {
        "dbh/occupancy": count(0, {})["window_end"]
    }
    assert "pass-of-a-test" not in done.stdout + done.stderr + (tmp_path / "cursor").read_text()


def certified(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that vouches for itself; return it and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", *words, "-out", certificate, "-keyout", key], check=True, capture_output=True
    )  # fmt: skip
    return certificate, key


@pytest.mark.parametrize("authority", ["broker", "another"])
def test_a_broker_is_spoken_to_over_tls_only_if_an_authority_vouches_for_it(tmp_path: Path, authority: str) -> None:
    certificate, key = certified(tmp_path, "broker")
    certified(tmp_path, "another")
    broker = mosquitto(tmp_path, "allow_anonymous true", f"certfile {certificate}", f"keyfile {key}")
    broker.start()
    give(tmp_path / "store", [count(0, {"a": 1})])
    words: list[str | Path] = ["sink", "mqtt", "--store", tmp_path / "store", "--audience", "public", "--tls"]
    words += ["--cursor", tmp_path / "cursor", "--broker", f"127.0.0.1:{broker.port}", "--until-end",
              "--ca-file", tmp_path / f"{authority}.pem"]  # fmt: skip
    sink = subprocess.Popen(command(words), stderr=subprocess.PIPE, text=True)
    try:
        assert sink.stderr is not None
        if authority == "broker":
            assert sink.wait(timeout=PATIENCE) == 0
        else:
            assert "MQTT broker is away" in sink.stderr.readline()
            assert sink.poll() is None, "it tries again"
    finally:
        sink.kill()
        sink.communicate()
        broker.kill()
    assert (tmp_path / "cursor").exists() == (authority == "broker")
