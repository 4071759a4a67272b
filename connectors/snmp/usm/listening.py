"""A receiver's side of SNMPv3 while it listens: the gate, and the file that remembers for it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from connectors.snmp.usm.engine_file import EngineFile
from connectors.snmp.usm.engines import Engines
from connectors.snmp.usm.gate import Gate, Own
from connectors.snmp.usm.users import Users
from stream.records import Micros

_PREFIX = bytes.fromhex("8000000005")
"""Of an engine of no maker, named by octets of its own (RFC 3411, SnmpEngineID)."""


@dataclass(frozen=True, slots=True)
class V3Files:
    """Who may speak SNMPv3, and where what must not be forgotten is kept."""

    users: Users
    state: Path


class Memory(Protocol):
    """What keeps what was heard."""

    def keep(self, engines: Engines) -> None:
        """Make durable what was taken since the last time."""


class Passing:
    """A memory that ends with whoever listens."""

    def keep(self, engines: Engines) -> None:
        """Note nothing anywhere else."""
        engines.fresh.clear()


@dataclass(frozen=True, slots=True)
class V3:
    """The gate and its memory."""

    gate: Gate
    file: Memory

    def keep(self) -> None:
        """Make durable what was heard; nothing of it may count before."""
        self.file.keep(self.gate.engines)


def in_passing(users: Users, now: Micros) -> V3:
    """Listen from ``now`` on without a file, for whoever takes nothing: a copy of an older trap is new to it."""
    own = Own(_PREFIX + secrets.token_bytes(12), 1, now)
    return V3(Gate(users, own, Engines(), secrets.randbits(64)), Passing())


@contextmanager
def listening(files: V3Files, now: Micros) -> Iterator[V3]:
    """Hold the file while listening; this start, at ``now``, is counted in it first."""
    file = EngineFile(files.state)
    try:
        engine, boots = file.start(_PREFIX + secrets.token_bytes(12))
        yield V3(Gate(files.users, Own(engine, boots, now), file.engines(), secrets.randbits(64)), file)
    finally:
        file.close()
