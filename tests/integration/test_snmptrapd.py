"""net-snmp's own ``snmptrapd``, started as docs/sources.md says, hands traps on by a pipe."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import socket
import time
from pathlib import Path

import pytest

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.collectors import SnmptrapdPipeListener
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, ObservationBatch
from tests.support.documents import section
from tests.support.patience import until, within_patience
from tests.support.ports import free_port
from tests.support.receivers import Log

pytestmark = pytest.mark.snmptrap

RADIO, BSN = "02:00:00:00:00:01", ".1.3.6.1.4.1.14179.2.6"
PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [program for program in ("snmptrapd", "snmptrap") if shutil.which(program, path=PATH) is None]
    if missing and os.environ.get("TACET_REQUIRE_SNMPTRAP") == "1":
        pytest.fail(f"net-snmp's {missing[0]} is required here and missing")
    if missing:
        pytest.skip(f"net-snmp's {missing[0]} is not installed (Debian: snmp, snmptrapd)")
    for name, value in (("MIBS", ""), ("SNMPCONFPATH", tmp_path), ("SNMP_PERSISTENT_DIR", tmp_path), ("PATH", PATH)):
        monkeypatch.setenv(name, str(value))


def documented(port: int) -> tuple[str, list[str]]:
    """Return the configuration and the words of the command as the document has them, for a port of the loopback."""
    configuration, command, *_ = re.findall(r"```text\n(.*?)```", section("docs/sources.md", "snmptrapd"), re.DOTALL)
    words = shlex.split(command.partition(" > ")[0].replace("udp:162", f"udp:127.0.0.1:{port}"))
    return configuration.replace("COMMUNITY 10.2.0.5", "c0mm 127.0.0.1"), words


async def run(*words: str) -> None:
    child = await asyncio.create_subprocess_exec(*words)
    assert await within_patience(child.wait(), words[0]) == 0


async def test_traps_of_both_versions_come_through_and_a_wrong_community_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_port(socket.SOCK_DGRAM)
    configuration, words = documented(port)
    Path("snmptrapd.conf").write_text(configuration)
    os.mkfifo("pipe")
    sink = Log()
    limits = SiteLimits(("127.0.0.1",), 10 * MINUTE, 100, Pseudonyms.daily(bytes(32)))
    async with Receiver(
        [SnmptrapdPipeListener(Path("pipe"), AllowList(["127.0.0.1"]))],
        ingest=Ingest(access_points={RADIO: ("dbh", "2065")}, sites={"dbh": limits}), sink=sink,
        clock=AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000),
    ) as receiver:  # fmt: skip
        with Path("pipe").open("wb", buffering=0) as pipe:
            daemon = await asyncio.create_subprocess_exec(*words, stdout=pipe)
        try:
            await until(lambda: receiver.counters.dropped["no_trap_line"] > 0)
            target = f"127.0.0.1:{port}"
            for community, device in (("no", "09"), ("c0mm", "01")):
                where = [f"{BSN}.2.34.0", "x", f"3C00000000{device}", f"{BSN}.2.35.0", "x", "020000000001"]
                named = [f"{BSN}.2.39.0", "s", "a name of somebody that is longer than sixteen octets"]
                await run("snmptrap", "-v", "2c", "-c", community, target, "", f"{BSN}.3.53", *where, *named)
            where[2] = "3C0000000002"
            await run("snmptrap", "-v", "1", "-c", "c0mm", target, f"{BSN}.3", "10.1.2.3", "6", "53", "77", *where)
            await until(lambda: receiver.counters.accepted == 2)
        finally:
            daemon.terminate()
            await daemon.wait()
    assert receiver.counters.check()
    rows = [row for message in sink.messages if isinstance(message, ObservationBatch) for row in message.rows]
    assert [row.access_point for row in rows] == [RADIO, RADIO]
    assert {reason for reason, n in receiver.counters.dropped.items() if n} == {"no_trap_line"}
