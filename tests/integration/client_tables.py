"""net-snmp's agent with a client table that a program behind it answers: the protocol of snmpd.conf's pass_persist.

``python client_tables.py ROWS_FILE`` is that program. A row of the file is an object identifier, a type and a value.
"""

from __future__ import annotations

import asyncio
import bisect
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

HOST, COMMUNITY, ENGINE = "127.0.0.1", "read-only", "80000000010a0b0c"
AUTH, PRIVACY = "auth password", "privacy password"
CISCO = "1.3.6.1.4.1.9.9.599.1.3.1.1"
SNMPD = shutil.which("snmpd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Cell(NamedTuple):
    """One value of the agent."""

    oid: str
    kind: str
    value: str


def index(address: bytes) -> str:
    return ".".join(map(str, address))


def cisco(clients: Iterable[tuple[bytes, bytes, int]]) -> Iterator[Cell]:
    """Yield the status and the base radio of clients in cldcClientTable."""
    for client, radio, status in clients:
        yield Cell(f"{CISCO}.2.{index(client)}", "integer", str(status))
        yield Cell(f"{CISCO}.8.{index(client)}", "octet", radio.hex(" "))


def write(path: Path, cells: Iterable[Cell]) -> None:
    """Write the agent's values for the program behind it, which reads them for each walk."""
    new = path.with_suffix(".new")
    new.write_text("".join(f"{cell.oid} {cell.kind} {cell.value}\n" for cell in cells))
    new.replace(path)


@asynccontextmanager
async def agent(folder: Path, base: str = CISCO, more: str = "") -> AsyncIterator[int]:
    """net-snmp's agent on loopback, whose table below ``base`` is in ``folder/rows``; its port."""
    assert SNMPD is not None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HOST, 0))
        port = int(sock.getsockname()[1])
    settings = folder / "snmpd.conf"
    settings.write_text(
        f"rocommunity {COMMUNITY} {HOST}\nexactEngineID 0x{ENGINE}\n"
        f'createUser tacet SHA-256 "{AUTH}" AES "{PRIVACY}"\nrouser tacet priv\n'
        f"pass_persist .{base} {sys.executable} {Path(__file__).resolve()} {folder / 'rows'}\n{more}"
    )
    child = await asyncio.create_subprocess_exec(
        SNMPD, "-f", "-Lo", "-C", "-c", settings, "-I", "-smux", f"udp:{HOST}:{port}",
        env={**os.environ, "MIBS": "", "SNMP_PERSISTENT_DIR": str(folder / "kept"), "SNMPCONFPATH": str(folder)},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield port
    finally:
        child.terminate()
        await child.wait()


# --- the program behind the agent -----------------------------------------------------------------------


class _Values:
    """The values of a file, in the order of SNMP."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, 0
        self._order: list[tuple[int, ...]] = []
        self._cells: list[Cell] = []

    def _renew(self) -> None:
        if (seen := self._path.stat().st_ino) == self._seen:
            return
        self._seen = seen
        cells = [Cell(*line.split(" ", 2)) for line in self._path.read_text().splitlines()]
        ranked = sorted((_numbers(cell.oid), cell) for cell in cells)
        self._order, self._cells = [rank for rank, _ in ranked], [cell for _, cell in ranked]

    def after(self, oid: str) -> Cell | None:
        self._renew()
        place = bisect.bisect_right(self._order, _numbers(oid))
        return self._cells[place] if place < len(self._cells) else None

    def at(self, oid: str) -> Cell | None:
        self._renew()
        place = bisect.bisect_left(self._order, numbers := _numbers(oid))
        return self._cells[place] if place < len(self._cells) and self._order[place] == numbers else None


def _numbers(oid: str) -> tuple[int, ...]:
    return tuple(map(int, oid.strip(".").split(".")))


def answer_requests(path: Path) -> None:
    """Answer PING, get and getnext on standard input until it ends."""
    values = _Values(path)
    for line in sys.stdin:
        request = line.strip()
        if request == "PING":
            reply = "PONG"
        elif request in {"get", "getnext"}:
            oid = sys.stdin.readline()
            cell = values.at(oid) if request == "get" else values.after(oid)
            reply = "NONE" if cell is None else f".{cell.oid}\n{cell.kind}\n{cell.value}"
        else:
            reply = "NONE"
        print(reply, flush=True)


if __name__ == "__main__":
    answer_requests(Path(sys.argv[1]))
