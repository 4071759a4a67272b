"""net-snmp's agent on loopback, for tests of whatever reads from an agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

HOST = "127.0.0.1"
SNMPD = shutil.which("snmpd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""The agent's program; None if it is not installed (Debian: ``snmpd``)."""


@asynccontextmanager
async def snmpd(folder: Path, settings: str) -> AsyncIterator[int]:
    """Run the agent with these settings, whose files are in a folder; yield its port, which may not answer yet.

    Where the agent is not installed, the test is skipped, or fails if ``TACET_REQUIRE_SNMPTRAP`` is 1.
    """
    if SNMPD is None and os.environ.get("TACET_REQUIRE_SNMPTRAP") == "1":
        pytest.fail("net-snmp's snmpd is required here and missing")
    if SNMPD is None:
        pytest.skip("net-snmp's snmpd is not installed (Debian: snmpd)")
    port, file = free_port(socket.SOCK_DGRAM), folder / "snmpd.conf"
    file.write_text(settings)
    child = await asyncio.create_subprocess_exec(
        SNMPD, "-f", "-Lo", "-C", "-c", file, "-I", "-smux", f"udp:{HOST}:{port}",
        env={**os.environ, "MIBS": "", "SNMP_PERSISTENT_DIR": str(folder / "kept"), "SNMPCONFPATH": str(folder)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield port
    finally:
        child.terminate()
        await child.wait()
