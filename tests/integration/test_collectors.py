"""Collectors of other people's, set up as docs/sources.md says: snmptrapd's log, and telegraf's topic on a real broker.

telegraf builds from the Go module proxy; ``TACET_TELEGRAF`` names it. Without it what it wrote is played.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from connectors.runtime.clock import wall_clock
from connectors.sources.external_topic import ExternalTopic
from connectors.sources.ingest.followed_logs import TailedFile
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.listeners import Listener
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.collectors import SnmptrapdLogListener, TelegrafListener
from connectors.sources.snmp.communities import CommunityFile
from connectors.sources.snmp.snmptrapd import LONGEST, written_at
from connectors.storage.kafka.topics import create_topics
from stream.errors import UsageError
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND
from tests.integration.kafka_brokers import Broker
from tests.integration.kafka_topics import administrator, delete_topics
from tests.support.any_broker import AnyBroker, on_any_broker
from tests.support.documents import section
from tests.support.patience import until, within_patience
from tests.support.ports import free_port
from tests.support.receivers import Hands, Log
from tests.unit.snmp.test_telegraf import AS_DIGITS, AS_TEXT

RADIO, BSN = "02:00:00:00:00:01", ".1.3.6.1.4.1.14179.2.6"
OTHER_RADIO = "f8:4f:57:ab:cd:ef"
PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
TOPIC, GROUP = "telegraf.traps", "tacet.telegraf"


@contextlib.asynccontextmanager
async def receiving(entrance: Listener, sink: Log) -> AsyncIterator[Receiver]:
    limits = SiteLimits(("127.0.0.1",), 10 * MINUTE, 100, Pseudonyms.daily(bytes(32)), 30 * SECOND)
    places = {RADIO: ("dbh", "2065"), OTHER_RADIO: ("dbh", "2011")}
    ingest = Ingest(access_points=places, sites={"dbh": limits})
    async with Receiver([entrance], ingest=ingest, sink=sink, clock=Hands()) as receiver:
        yield receiver


async def trap(port: int, device: str, *, community: str = "c0mm", version: str = "2c") -> None:
    where = [f"{BSN}.2.34.0", "x", device, f"{BSN}.2.35.0", "x", RADIO.replace(":", "")]
    begin = [f"{BSN}.3", "10.1.2.3", "6", "53", "77"] if version == "1" else ["", f"{BSN}.3.53"]
    words = ["snmptrap", "-v", version, "-c", community, f"127.0.0.1:{port}", *begin, *where]
    child = await asyncio.create_subprocess_exec(*words, env={**os.environ, "MIBS": "", "PATH": PATH})
    assert await within_patience(child.wait(), "snmptrap") == 0


def needed(program: str, required: str) -> None:
    missing = [each for each in (program, "snmptrap") if shutil.which(each, path=PATH) is None]
    if missing and os.environ.get(required) == "1":
        pytest.fail(f"{missing[0]} is required here and missing")
    if missing:
        pytest.skip(f"{missing[0]} is not installed")


# --- snmptrapd's log ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def snmptrapd(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run it here as the document says: its configuration is that of the pipe."""
    whole = section("docs/sources.md", "snmptrapd")
    configuration, _, command = re.findall(r"```text\n(.*?)```", whole, re.DOTALL)
    words = shlex.split(command.replace("udp:162", f"udp:127.0.0.1:{port}"))
    Path("snmptrapd.conf").write_text(configuration.replace("COMMUNITY 10.2.0.5", "c0mm 127.0.0.1"))
    environment = {**os.environ, "MIBS": "", "PATH": PATH, "SNMPCONFPATH": ".", "SNMP_PERSISTENT_DIR": "."}
    daemon = await asyncio.create_subprocess_exec(*words, env=environment, umask=0o027)
    try:
        await until(lambda: Path("traps.log").exists() and Path("traps.log").stat().st_size > 0)
        yield daemon
    finally:
        with contextlib.suppress(ProcessLookupError):
            daemon.terminate()
        await daemon.wait()


@pytest.mark.snmptrap
async def test_snmptrapds_log_is_read_over_its_rotation_and_our_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("snmptrapd", "TACET_REQUIRE_SNMPTRAP")
    monkeypatch.chdir(tmp_path)
    port, sink = free_port(socket.SOCK_DGRAM), Log()

    def entrance() -> SnmptrapdLogListener:
        return SnmptrapdLogListener(
            TailedFile(Path("traps.log"), Path("state"), LONGEST, written_at), AllowList(["127.0.0.1"])
        )

    async with snmptrapd(port) as daemon:
        async with receiving(entrance(), sink) as receiver:
            await trap(port, "3C0000000001")
            await trap(port, "3C0000000002", version="1")
            await trap(port, "3C0000000003", community="wrong")
            await until(lambda: receiver.counters.accepted == 2)
            Path("traps.log").rename("traps.log.1")
            await trap(port, "3C0000000004")
            await until(lambda: receiver.counters.accepted == 3)
            daemon.send_signal(1)
            await until(Path("traps.log").exists)
            await trap(port, "3C0000000005")
            await until(lambda: receiver.counters.accepted == 4)
            assert receiver.counters.check()
        await trap(port, "3C0000000006")
        await until(lambda: b"3C 00 00 00 00 06" in Path("traps.log").read_bytes())
        async with receiving(entrance(), sink) as receiver:
            await until(lambda: receiver.counters.accepted == 1)
            await asyncio.sleep(0.3)
            assert {reason for reason, n in receiver.counters.dropped.items() if n} <= {"no_trap_line"}
    assert len({row.device for row in sink.rows}) == len(sink.rows) == 5
    assert all(abs(row.time - wall_clock()) < 120 * SECOND for row in sink.rows)


# --- telegraf's topic ---------------------------------------------------------------------------------


async def begun(broker: AnyBroker | Broker) -> str:
    """Let telegraf's topic be empty; return the bootstrap servers."""
    await delete_topics(broker.bootstrap, [TOPIC])
    await create_topics(broker.bootstrap, [TOPIC], partitions=2)
    return broker.bootstrap


def collected(bootstrap: str, folder: Path, group: str) -> TelegrafListener:
    file = folder / "communities"
    if not file.exists():
        file.write_text("public\nc0mm\n")
        file.chmod(0o600)
    return TelegrafListener(ExternalTopic(bootstrap, TOPIC, group), AllowList(["127.0.0.1"]), CommunityFile(file))


async def play(bootstrap: str, *messages: str, ago: int = 0) -> None:
    """Write what telegraf wrote, in turns to both partitions."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number, message in enumerate(messages):
        now = int(time.time() * 1000) - ago * 1000
        await producer.send_and_wait(TOPIC, message.encode(), partition=number % 2, timestamp_ms=now)
    await producer.stop()


@on_any_broker
async def test_what_telegraf_wrote_is_read_once_and_on_after_a_restart(broker: AnyBroker, tmp_path: Path) -> None:
    bootstrap, sink, group = await begun(broker), Log(), "restarted"
    await play(bootstrap, AS_TEXT)
    async with receiving(collected(bootstrap, tmp_path, group), sink) as receiver:
        (entrance,) = receiver.listeners
        await until(lambda: entrance.can_receive)
        assert receiver.counters.datagrams == 0, "the first time it is read from its end"
        await play(bootstrap, AS_TEXT, AS_TEXT.replace("public", "wrong"), "cpu usage=1 1", AS_DIGITS)
        await until(lambda: receiver.counters.datagrams == 4)
        await until(lambda: receiver.counters.waiting == 0)
        assert receiver.counters.check()
        assert {why: n for why, n in receiver.counters.dropped.items() if n} == {
            "bad_community": 1, "no_trap_metric": 1,
        }  # fmt: skip
    await play(bootstrap, AS_DIGITS.replace("a45e60112233", "a45e60112244"))
    await play(bootstrap, AS_TEXT, ago=3600)
    async with receiving(collected(bootstrap, tmp_path, group), sink) as receiver:
        await until(lambda: receiver.counters.datagrams == 2)
        await until(lambda: receiver.counters.accepted == 1)
        assert receiver.counters.dropped["wrong_time"] == 1
    assert sorted(row.access_point or "" for row in sink.rows) == [RADIO, OTHER_RADIO, OTHER_RADIO]


@on_any_broker
async def test_where_a_topic_has_lost_what_was_not_read_it_goes_on_with_what_is_left(
    broker: AnyBroker, tmp_path: Path
) -> None:
    bootstrap, sink, group = await begun(broker), Log(), "lost"
    async with receiving(collected(bootstrap, tmp_path, group), sink) as receiver:
        await until(lambda: receiver.listeners[0].can_receive)
        await play(bootstrap, *[AS_DIGITS] * 4)
        await until(lambda: receiver.counters.datagrams == 4)
    await play(bootstrap, *[AS_TEXT] * 4)
    async with administrator(bootstrap) as admin:
        await admin.delete_records(
            {TopicPartition(TOPIC, number): RecordsToDelete(before_offset=3) for number in (0, 1)}
        )
    async with receiving(collected(bootstrap, tmp_path, group), sink) as receiver:
        await until(lambda: receiver.counters.datagrams == 2)
        await until(lambda: receiver.listeners[0].can_receive)
        assert receiver.counters.datagrams == 2


@on_any_broker
async def test_a_topic_that_is_not_there_is_named(broker: AnyBroker, tmp_path: Path) -> None:
    await delete_topics(broker.bootstrap, [TOPIC])
    with pytest.raises(UsageError, match=f"topic {TOPIC}: does not exist"):
        async with receiving(collected(broker.bootstrap, tmp_path, "nothing"), Log()):
            pass


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("form", ["json", "influx"])
async def test_telegraf_itself(kafka: Broker, tmp_path: Path, form: str) -> None:
    telegraf = os.environ.get("TACET_TELEGRAF") or shutil.which("telegraf")
    if telegraf is None:
        pytest.skip("telegraf is not on this machine; it builds from the Go module proxy, and TACET_TELEGRAF names it")
    needed("snmptrapd", "TACET_REQUIRE_SNMPTRAP")
    bootstrap = await begun(kafka)
    (text,) = re.findall(r"```toml\n(.*?)```", section("docs/sources.md", "telegraf"), re.DOTALL)
    port, sink = free_port(socket.SOCK_DGRAM), Log()
    text = (
        text.replace('data_format = "json"', f'data_format = "{form}"')
        .replace("udp://:162", f"udp://127.0.0.1:{port}")
        .replace("kafka.example.org:9092", bootstrap)
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "telegraf.conf").write_text(text.replace("/var/empty", str(tmp_path / "empty")))
    with (tmp_path / "telegraf.log").open("wb") as log:
        words = [telegraf, "--config", str(tmp_path / "telegraf.conf")]
        daemon = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)
    try:
        await until(lambda: "Listening on" in (tmp_path / "telegraf.log").read_text())
        async with receiving(collected(bootstrap, tmp_path, form), sink) as receiver:
            await until(lambda: receiver.listeners[0].can_receive)
            await trap(port, "3C0000000001")
            await trap(port, "A45E60112233", version="1")
            await trap(port, "0A0D22005C7F", community="wrong")
            await until(lambda: receiver.counters.datagrams == 3)
            await until(lambda: receiver.counters.accepted == 2)
            assert receiver.counters.dropped["bad_community"] == 1
    finally:
        daemon.terminate()
        await daemon.wait()
    assert len({row.device for row in sink.rows}) == 2
    assert all(abs(row.time - wall_clock()) < 60 * SECOND for row in sink.rows)
