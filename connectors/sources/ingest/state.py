"""The state of the ingest: batches, last sightings, unknown access points, probes.

A heartbeat confirms coverage of a source (``Coverage``) by its probe's answers if it has a probe. A source that is
probed every minute is covered from the first of an unbroken run of answers up to the last answered probe. Messages that
the source sends by itself do not count, because they depend on people. A heartbeat between two probes confirms nothing
yet: so a source that falls silent is not covered beyond its last answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from connectors.sources.ingest.sighting import Message
from stream.records import DAY, MINUTE, Micros, PrivacyDay, Row

PROBE_GRID: Micros = 1 * MINUTE
"""Sources are probed at multiples of it on the connector's clock."""

Pair = tuple[str, str]
"""(site, source)."""


@dataclass(slots=True)
class ListeningSpan:
    """A run of answers without a miss."""

    since: Micros
    """Time of the first answered probe."""
    latest: Micros
    """Time of the last one."""
    reported: bool = False
    """Whether a heartbeat has confirmed coverage by it."""


@dataclass(slots=True)
class Coverage:
    """The last run of each source; a probe without an answer, or a skipped probe, ends it."""

    runs: dict[Pair, ListeningSpan] = field(default_factory=dict)

    def note(self, pair: Pair, at: Micros, *, answered: bool) -> None:
        """Record the result of the probe at ``at``, a point of the probes' grid."""
        run = self.runs.get(pair)
        if not answered:
            return
        if run is None or at - run.latest > PROBE_GRID:  # a probe between them had no answer or was skipped
            self.runs[pair] = ListeningSpan(at, at)
        elif at > run.latest:
            run.latest, run.reported = at, False

    def since(self, pair: Pair, watermark: Micros, listened: Micros) -> Micros | None:
        """Return the beginning of the coverage that a heartbeat confirms up to ``watermark``; None: it confirms none.

        ``listened`` is the time since which the connector has listened.
        """
        run = self.runs.get(pair)
        if run is None or run.reported or watermark < run.latest:
            return None
        run.reported = True
        return max(run.since, listened)


UNKNOWN_LISTED = 256
"""Number of unknown access points that are remembered by address; further ones are only counted."""
MOST_UNKNOWN = 20
"""Number of the most frequent ones that are listed at the end."""
_RADIO = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")

BatchKey = tuple[str, str]
"""(site, source)."""


class ClientKey(NamedTuple):
    """By what a message is remembered: the device that it is about, where logins count with its login."""

    address: bytes
    login: str | None = None
    """The login's pseudonym."""


class RememberedDevice(NamedTuple):
    """The last kept sighting of a device at a site."""

    time: Micros
    epoch: int
    zone: str
    batch: BatchKey
    stay: tuple[bytes, str] | None = None
    """Session and radio of the last sighting that named its stay, if this sighting was that one or repeated it."""
    radio: str = ""
    """With sessions: the access point."""
    nas: bytes = b""
    """With sessions: the access server that reported it."""


@dataclass(slots=True)
class OpenBatch:
    """Rows that wait for the end of the batching delay."""

    since: Micros
    epoch: PrivacyDay | None
    """The privacy day of all its rows, if pseudonyms change with privacy days."""
    rows: list[Row] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    """The login of each row, where the site counts logins."""


@dataclass(slots=True)
class IngestState:
    """The connector's memory, which ends with the connector."""

    session: Micros
    now: Micros
    """Receive time of the present sighting."""
    grid: Micros
    """The last served point of the grid."""
    listened_since: Micros
    """When listening began, or the first point of the grid after the last pause of at least ``OUTAGE``."""
    awake: Micros
    """Beginning of the last interval of the grid in which the connector ran."""
    ready: list[Message] = field(default_factory=list)
    open: dict[BatchKey, OpenBatch] = field(default_factory=dict)
    sequences: dict[BatchKey, int] = field(default_factory=dict)
    devices: dict[str, dict[ClientKey, RememberedDevice]] = field(default_factory=dict)
    """By site the devices of the last V and of one step of the grid; at most ``max_devices``. Where the site counts
    logins, of messages with a login only."""
    restarts: dict[tuple[BatchKey, bytes], Micros] = field(default_factory=dict)
    """When an access server of a (site, source) last restarted, while messages from before it may still come."""
    latest: dict[ClientKey, Micros] = field(default_factory=dict)
    """With sessions: the time of the last message that placed a device, while earlier ones may still come."""
    left_out: dict[tuple[str, bytes], Micros] = field(default_factory=dict)
    """(site, device) whose last login opted out -> start of the day for which that holds."""
    suspended: set[str] = field(default_factory=set)
    """Sites that had more devices than ``max_devices``: nothing more is sent for them."""
    simulated: dict[str, Micros] = field(default_factory=dict)
    """Uptime mode: the last served grid point of each source."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Access points without a zone, with their number of sightings; at most ``UNKNOWN_LISTED``."""
    locally_administered: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    """The answers of probed sources."""

    def note_unknown(self, seen_as: str) -> None:
        """Count a sighting at an access point without a zone."""
        if seen_as in self.unknown or len(self.unknown) < UNKNOWN_LISTED:
            self.unknown[seen_as] = self.unknown.get(seen_as, 0) + 1

    def forget(self, site: str, before: Micros) -> None:
        """Drop the devices of a site whose last kept sighting is too old to count."""
        seen = self.devices[site]
        for client in [client for client, kept in seen.items() if kept.time < before]:
            del seen[client]

    def forget_order(self, before: Micros) -> None:
        """Drop what decides about late messages: none comes any more from before this instant."""
        self.latest = {client: time for client, time in self.latest.items() if time >= before}
        self.left_out = {device: start for device, start in self.left_out.items() if start >= before - 2 * DAY}
        self.restarts = {server: time for server, time in self.restarts.items() if time >= before}


def most_unknown(state: IngestState) -> dict[str, int]:
    """Return the unknown access points with the most sightings and their numbers, highest first.

    Only radio addresses are reported: they belong to equipment in the owner's network that the policy lacks. A name is
    free text, and an address that was also seen as a client's may belong to a person's device.
    """
    clients = {client.address.hex(":") for seen in state.devices.values() for client in seen}
    report = [each for each in state.unknown.items() if _RADIO.fullmatch(each[0]) and each[0] not in clients]
    return dict(sorted(report, key=lambda each: (-each[1], each[0]))[:MOST_UNKNOWN])
