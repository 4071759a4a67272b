"""What any source says of a device, whatever its protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a message says; the first three place a device at an access point."""

    ASSOCIATE = "associate"
    ROAM = "roam"
    RUN = "run"
    KEEPALIVE = "keepalive"
    RESTART = "restart"
    IGNORED = "ignored"
    """Well-formed, and nothing of anybody; it never leaves its entrance."""


OBSERVATIONS = frozenset({Kind.ASSOCIATE, Kind.ROAM, Kind.RUN})


class Sighting(NamedTuple):
    """What a decoder lets out: who and where, and nothing else that the message held; shown without either."""

    kind: Kind
    client: bytes = b""
    """The device's address, six octets; empty unless it is an observation."""
    access_point: bytes = b""
    """The radio's address, six octets, or empty where the source gives only a name or is the access point."""
    name: bytes = b""
    """The access point's name as sent; empty if there is none."""
    at_sender: bool = False
    """The access point is the sender itself."""
    uptime: int | None = None
    """Hundredths of a second since the sender started, modulo 2**32; read in the laboratory's uptime mode only."""

    def __repr__(self) -> str:
        """Name what it is, never who or where."""
        return f"Sighting({self.kind})"
