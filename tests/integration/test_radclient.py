"""FreeRADIUS' own ``radclient`` against the receiver: what it sends is taken, and it takes the answers for genuine."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.runtime.clock import AnchoredClock
from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.receiver import Receiver
from connectors.sources.radius.clients import Client, Clients
from connectors.sources.radius.listener import AccountingListener
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import MINUTE, SECOND
from tests.support.documents import ROOT
from tests.support.patience import within_patience
from tests.support.ports import free_port
from tests.support.receivers import Log

pytestmark = pytest.mark.radclient

SECRET, RADIO = "a-secret-of-16-octets", "02:00:00:00:00:01"
NAMES = Pseudonyms.daily(bytes(32))


@pytest.fixture(autouse=True)
def _program() -> None:
    if shutil.which("radclient") is not None:
        return
    if os.environ.get("TACET_REQUIRE_RADCLIENT") == "1":
        pytest.fail("FreeRADIUS' radclient is required here and missing")
    pytest.skip("FreeRADIUS' radclient is not installed (Debian: freeradius-utils)")


@asynccontextmanager
async def receiving(sink: Log, client: dict[str, Any] | None = None) -> AsyncIterator[Receiver]:
    made = Client(address="127.0.0.1", secrets=(SECRET,), **client or {})
    limits = SiteLimits(("127.0.0.1",), 10 * MINUTE, 100, NAMES, 30 * SECOND)
    async with Receiver(
        [AccountingListener(("127.0.0.1", 0), Clients([made], ["127.0.0.1"]))],
        ingest=Ingest(
            access_points={RADIO: ("dbh", "2065")}, sites={"dbh": limits}, aliases={"2065-clwa": RADIO},
        ),
        sink=sink, clock=AnchoredClock(lambda: time.time_ns() // 1000, lambda: time.monotonic_ns() // 1000),
    ) as receiver:  # fmt: skip
        yield receiver


async def radclient(
    address: tuple[str, int], *requests: dict[str, str], kind: str = "acct", secret: str = SECRET, tries: int = 8
) -> tuple[int, str]:
    """Send requests, one after the other, and return the exit code and what was said of the answers."""
    text = "\n\n".join("\n".join(f"{name} = {value}" for name, value in each.items()) for each in requests)
    child = await asyncio.create_subprocess_exec(
        "radclient", "-x", "-r", str(tries), "-t", "1", "-n", "50", f"{address[0]}:{address[1]}", kind, secret,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await within_patience(child.communicate(text.encode() + b"\n"), "radclient")
    return child.returncode or 0, said.decode()


def accounting(status: str, session: str = '"5A3F"', **more: str) -> dict[str, str]:
    held = {
        "Acct-Status-Type": status, "User-Name": '"anne@example.org"', "Calling-Station-Id": '"3C-00-00-00-00-01"',
        "Called-Station-Id": '"02-00-00-00-00-01:eduroam"', "Acct-Session-Id": session, "NAS-Identifier": '"wlc"',
    }  # fmt: skip
    return held | {name.replace("_", "-"): value for name, value in more.items()}


async def test_a_visit_is_taken_and_every_answer_is_genuine() -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        for status in ("Start", "Interim-Update", "Stop"):
            code, said = await radclient(receiver.address, accounting(status))
            assert code == 0, said
            assert said.count("Received Accounting-Response") == 1
    assert (receiver.counters.accepted, receiver.counters.dropped["collapsed"]) == (2, 1)
    name = NAMES.name(bytes.fromhex("3c0000000001"), sink.rows[0].time // (24 * 60 * MINUTE))
    assert [(row.device, row.access_point) for row in sink.rows] == [(name, RADIO), (name, None)]
    assert "anne" not in repr(sink.messages)


async def test_many_requests_at_once_are_answered_each() -> None:
    sink = Log()
    requests = [accounting("Start", Calling_Station_Id=f'"3c00000000{n:02x}"') for n in range(1, 41)]
    async with receiving(sink) as receiver:
        code, said = await radclient(receiver.address, *requests)
        assert code == 0, said
    assert said.count("Received Accounting-Response") >= 40
    assert receiver.counters.accepted == len(sink.rows) == 40


async def test_proxies_words_and_message_authenticators_are_checked_by_the_other_side_too() -> None:
    async with receiving(Log()) as receiver:
        code, said = await radclient(
            receiver.address,
            accounting("Accounting-On", Proxy_State="0x6f6e65", Message_Authenticator="0x00"),
            {"Message-Authenticator": "0x00"} | accounting("Start", Called_Station_Id='"2065-CLWA:eduroam"'),
        )
        assert code == 0, said
        code, asked = await radclient(receiver.address, {"Message-Authenticator": "0x00"}, kind="status")
        assert code == 0, asked
    received = said[said.index("Received") :]
    assert "Proxy-State = 0x6f6e65" in received
    assert receiver.counters.accepted == 3


async def test_another_secret_is_never_answered_nor_counted_as_anything_else() -> None:
    sink = Log()
    async with receiving(sink) as receiver:
        code, said = await radclient(receiver.address, accounting("Start"), secret="another-secret-of-16", tries=1)
        assert code != 0, said
        assert "Received" not in said
        assert {reason: n for reason, n in receiver.counters.dropped.items() if n} == {"bad_authenticator": 1}
    assert sink.rows == []


async def test_run_listens_for_accounting_beside_traps_and_tells_nothing_of_it(tmp_path: Path) -> None:
    """The whole way, from the verb's own options and files."""
    (tmp_path / "policy.toml").write_text(POLICY)
    for name, text in (("communities", "c0mm\n"), ("clients.toml", CLIENTS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "TACET_LOG_LEVEL": "debug",
        "TACET_RADIUS_CLIENTS_FILE": str(tmp_path / "clients.toml"),
        "TACET_SNMP_COMMUNITIES_FILE": str(tmp_path / "communities"),
    }  # fmt: skip

    async def tacet(*words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "connectors", *words, cwd=tmp_path, env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    assert await (await tacet("key", "create", "key", "--laboratory")).wait() == 0
    ports = [free_port(socket.SOCK_DGRAM) for _ in range(2)]
    run = await tacet(
        "run", "--policy", "policy.toml", "--key-file", "key", "--store", "store", "--json",
        "--udp", f"127.0.0.1:{ports[0]}", "--radius", f"127.0.0.1:{ports[1]}",
    )  # fmt: skip
    address = ("127.0.0.1", ports[1])
    itself = accounting("Start", Called_Station_Id='"3C-00-00-00-00-01:eduroam"')
    try:
        code, said = await radclient(address, accounting("Start"), accounting("Stop", '"other"'), itself, tries=40)
        assert code == 0, said
        await radclient(address, accounting("Start"), secret="another-secret-of-16", tries=1)
    finally:
        run.send_signal(signal.SIGTERM)
        printed, logged = await within_patience(run.communicate(), "the run to end")
    report = orjson.loads(printed.splitlines()[-1])
    assert (report["accepted"], report["requests_answered"], report["informs_answered"]) == (1, 3, 0)
    assert report["dropped"] == {"bad_authenticator": 1, "no_stay": 1, "unknown_access_point": 1}
    shown = (printed + logged).decode().lower()
    for needle in ("anne", "eduroam", "5a3f", "3c-00", "3c00", "3c:00", SECRET, "another-secret"):
        assert needle not in shown


CLIENTS = f'[[client]]\naddress = "127.0.0.1"\nsecrets = ["{SECRET}"]\n'
POLICY = """
[[audience]]
name = "public"

[site.house]
sources = ["127.0.0.1"]

[[site.house.zones]]
id = "hall"
floor = "1"
capacity = 200
access_points = ["02:00:00:00:00:01"]

[[release]]
name = "rough"
query = "count"
mechanism = "laplace"
epsilon = { public = "0.5" }
"""
