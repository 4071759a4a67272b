"""A client table that a program behind net-snmp's agent answers: the protocol of snmpd.conf's pass_persist.

``python client_tables.py ROWS_FILE`` is that program. A row of the file is an object identifier, a type and a value.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CISCO = "1.3.6.1.4.1.9.9.599.1.3.1.1"


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
