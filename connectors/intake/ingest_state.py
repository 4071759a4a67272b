"""What the ingest remembers: open batches, the last sighting of each device, access points that no zone has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.intake.vouching import Vouching
from connectors.sink import Message
from stream.records import Micros, PrivacyDay, Row

UNKNOWN_LISTED = 256
"""So many unknown access points are remembered by address; further ones are only counted."""
MOST_UNKNOWN = 20
"""So many of them, the most frequent, are listed at the end."""
_RADIO = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")

BatchKey = tuple[str, str]
"""(site, source)."""


class Kept(NamedTuple):
    """The last kept sighting of a device at a site."""

    time: Micros
    epoch: int
    zone: str
    batch: BatchKey
    stay: tuple[bytes, str] | None = None
    """Session and radio of the last sighting that named its stay, if that was this one or repeated it."""


@dataclass(slots=True)
class OpenBatch:
    """Rows that wait for the end of the batching delay."""

    since: Micros
    epoch: PrivacyDay | None
    """The privacy day of all its rows, where names are by such days."""
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class IngestState:
    """What the connector remembers; it dies with the connector."""

    session: Micros
    now: Micros
    """When the sighting at hand was received."""
    grid: Micros
    """The last point of the grid that was served."""
    listened_since: Micros
    """When listening began, or the first point of the grid after it last stood still for ``OUTAGE``."""
    awake: Micros
    """The last interval of the grid, by its beginning, in which the connector was seen to run."""
    ready: list[Message] = field(default_factory=list)
    open: dict[BatchKey, OpenBatch] = field(default_factory=dict)
    sequences: dict[BatchKey, int] = field(default_factory=dict)
    seen: dict[str, dict[bytes, Kept]] = field(default_factory=dict)
    """By site the devices of the last V and of one step of the grid; at most ``max_devices``."""
    shut: set[str] = field(default_factory=set)
    """Sites that had more devices than ``max_devices``: nothing more is sent for them."""
    simulated: dict[str, Micros] = field(default_factory=dict)
    """Uptime mode: the last grid point served of each source."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Access points that no zone has, with their sightings; at most ``UNKNOWN_LISTED``."""
    unknown_unlisted: int = 0
    locally_administered: int = 0
    vouching: Vouching = field(default_factory=Vouching)
    """What probes tell of the sources that are asked."""

    def note_unknown(self, seen_as: str) -> None:
        """Count a sighting at an access point that no zone has."""
        if seen_as in self.unknown or len(self.unknown) < UNKNOWN_LISTED:
            self.unknown[seen_as] = self.unknown.get(seen_as, 0) + 1
        else:
            self.unknown_unlisted += 1

    def forget(self, site: str, before: Micros) -> None:
        """Drop the devices of a site whose last kept sighting can hold no presence any more."""
        seen = self.seen[site]
        for client in [client for client, kept in seen.items() if kept.time < before]:
            del seen[client]


def most_unknown(state: IngestState) -> dict[str, int]:
    """Return the unknown access points with the most sightings, and these, most first.

    Only radio addresses are reported, of equipment in the owner's own network that the policy lacks: a name is free
    text, and an address that was also seen as a client's is nobody's business.
    """
    clients = {client.hex(":") for seen in state.seen.values() for client in seen}
    report = [each for each in state.unknown.items() if _RADIO.fullmatch(each[0]) and each[0] not in clients]
    return dict(sorted(report, key=lambda each: (-each[1], each[0]))[:MOST_UNKNOWN])
