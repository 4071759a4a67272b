"""The sighting of a device, and the messages made of sightings."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from stream.records import Heartbeat, Micros, ObservationBatch


class Kind(StrEnum):
    """The kind of a message.

    The first three place a device at an access point, all in the same way: it comes, moves, or is there already. The
    fourth ends a stay there.
    """

    ASSOCIATE = "associate"
    ROAM = "roam"
    RUN = "run"
    LEAVE = "leave"
    KEEPALIVE = "keepalive"
    RESTART = "restart"
    IGNORED = "ignored"
    """Well-formed, and not about a device; it never leaves its listener."""


OBSERVATIONS = frozenset({Kind.ASSOCIATE, Kind.ROAM, Kind.RUN, Kind.LEAVE})
"""The kinds that are about a device."""


class Sighting(NamedTuple):
    """The output of a decoder: device, place and login, and nothing else of the message; its repr hides them."""

    kind: Kind
    client: bytes = b""
    """The device's address, six octets; empty unless the kind is an observation."""
    access_point: bytes = b""
    """The radio's address, six octets, or empty if the source has only a name or is itself the access point."""
    name: bytes = b""
    """The access point's name as sent; empty if there is none."""
    at_sender: bool = False
    """The access point is the sender itself."""
    uptime: int | None = None
    """Hundredths of a second since the sender started, modulo 2**32; read in the laboratory's uptime mode only."""
    age: Micros = 0
    """Age at its receive time, as an authenticated source declares it; below 0: from the future.

    The ingest limits it.
    """
    session: bytes = b""
    """A value that stands for the source's own name of this stay; empty if it has none. At a site that counts events,
    only ``LEAVE`` of the same session ends a stay."""
    nas: bytes = b""
    """A value that stands for the access server that reports it; empty if the source names none. ``RESTART`` ends the
    stays that the same server reported, at a site that counts sessions."""

    user_name: bytes = b""
    """The user name as sent, if some site counts logins by it; empty if there is none."""
    cui: bytes = b""
    """The Chargeable-User-Identity as sent, likewise."""

    def __repr__(self) -> str:
        """Show the kind, never device or place."""
        return f"Sighting({self.kind})"


Message = ObservationBatch | Heartbeat
"""Observations of a site, or the progress of one of its sources."""


class Sink(Protocol):
    """Receives messages, one after the other."""

    async def append(self, message: Message) -> None:
        """Return when the message is durable."""
