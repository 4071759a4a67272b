"""What any source says of a device, whatever its protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from stream.records import Micros


class Kind(StrEnum):
    """What a message says; the first three place a device at an access point, the fourth ends a stay there."""

    ASSOCIATE = "associate"
    ROAM = "roam"
    RUN = "run"
    LEAVE = "leave"
    KEEPALIVE = "keepalive"
    RESTART = "restart"
    IGNORED = "ignored"
    """Well-formed, and nothing of anybody; it never leaves its entrance."""


OBSERVATIONS = frozenset({Kind.ASSOCIATE, Kind.ROAM, Kind.RUN, Kind.LEAVE})
"""Those that are of a device."""


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
    age: Micros = 0
    """How long before it was received it happened, as an authenticated source says; below 0: after that. The ingest
    bounds it."""
    session: bytes = b""
    """What stands for the source's own name of this stay; empty where it names none. Only ``LEAVE`` of the same session
    ends a stay."""

    def __repr__(self) -> str:
        """Name what it is, never who or where."""
        return f"Sighting({self.kind})"
