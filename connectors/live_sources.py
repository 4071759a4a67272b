"""What may be listened to or followed: each of them gives the entrance where its messages come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.handover.entrance import HandoverEntrance
from connectors.intake.admission import AllowList
from connectors.intake.entrance import Entrance
from connectors.intake.tail import TailedFile
from connectors.radius.clients import Client, ClientFile, Clients
from connectors.radius.entrance import AccountingEntrance
from connectors.secrets_file import SecretsNow
from connectors.snmp.admission import Senders
from connectors.snmp.communities import CommunityFile
from connectors.snmp.entrance import TrapEntrance
from connectors.snmp.forwarded import CollectedEntrance, ForwardedEntrance, LoggedEntrance
from connectors.snmp.snmptrapd import LONGEST, written_at
from connectors.snmp.usm.listening import V3Files
from connectors.snmp.usm.users import UserFile
from stream.records import Micros


@dataclass(frozen=True, slots=True)
class UdpSource:
    """Controllers that send traps to an address of this machine."""

    address: tuple[str, int]
    communities: tuple[bytes, ...] | CommunityFile
    v3: V3Files | None = None
    """Who may speak SNMPv3; None: nobody."""
    start: Micros | None = None
    """What uptime 0 stands for, in a laboratory whose event time is the controllers' sysUpTime; None: arrival."""

    def entrance(self, sources: Sequence[str]) -> Entrance:
        """Return where traps of the policy's sources come in."""
        senders = Senders(AllowList(sources), self.communities, or_v3=self.v3 is not None)
        return TrapEntrance(self.address, senders, v3=self.v3)


@dataclass(frozen=True, slots=True)
class RadiusSource:
    """Controllers that send RADIUS accounting to an address of this machine."""

    address: tuple[str, int]
    clients: tuple[Client, ...] | ClientFile

    def entrance(self, sources: Sequence[str]) -> Entrance:
        """Return where accounting of the policy's sources comes in."""
        return AccountingEntrance(self.address, Clients(self.clients, sources))


@dataclass(frozen=True, slots=True)
class HandedSource:
    """Systems of the cloud, whose sightings ``tacet hooks`` hands over at a socket."""

    path: Path

    def entrance(self, sources: Sequence[str]) -> Entrance:
        """Return where sightings of the policy's sources are handed over."""
        return HandoverEntrance(self.path, sources)


@dataclass(frozen=True, slots=True)
class ForwardedSource:
    """A pipe into which snmptrapd writes what controllers send."""

    path: Path
    """``-``: standard input."""

    def entrance(self, sources: Sequence[str]) -> Entrance:
        """Return where forwarded traps of the policy's sources come in."""
        return ForwardedEntrance(self.path, AllowList(sources))


@dataclass(frozen=True, slots=True)
class LoggedSource:
    """A log into which snmptrapd writes what controllers send."""

    path: Path
    state: Path
    """Where it is kept how far it was read."""

    def entrance(self, sources: Sequence[str]) -> Entrance:
        """Return where traps of the policy's sources are read."""
        return LoggedEntrance(TailedFile(self.path, self.state, LONGEST, written_at), AllowList(sources))


@dataclass(frozen=True, slots=True)
class CollectedSource:
    """A topic into which telegraf writes what controllers send."""

    kafka: str
    topic: str
    group: str
    communities: CommunityFile | None
    """None: nothing but SNMPv3 counts."""

    def entrance(self, sources: Sequence[str]) -> Entrance:
        """Return where traps of the policy's sources are read."""
        from connectors.kafka.foreign import ForeignTopic  # noqa: PLC0415 - loads a client of Kafka

        topic = ForeignTopic(self.kafka, self.topic, self.group)
        return CollectedEntrance(topic, AllowList(sources), self.communities)


LiveSource = UdpSource | RadiusSource | ForwardedSource | LoggedSource | CollectedSource | HandedSource
Live = Sequence[LiveSource]
"""All that one receiver listens to."""


def secrets_of(live: Live) -> list[SecretsNow[Any]]:
    """Return the files of secrets that are read anew when they change, by which those are known who are listened to."""
    found: list[SecretsNow[Any]] = []
    for source in live:
        if isinstance(source, CollectedSource) and source.communities is not None:
            found.append(source.communities)
        if isinstance(source, UdpSource):
            found += [source.communities] if isinstance(source.communities, CommunityFile) else []
            users = None if source.v3 is None else source.v3.users
            found += [users.file] if isinstance(users, UserFile) else []
        elif isinstance(source, RadiusSource) and isinstance(source.clients, ClientFile):
            found.append(source.clients)
    return found


def uptime_start(live: Live) -> Micros | None:
    """Return what uptime 0 stands for, where event time is the controllers' uptime; None: it is the time of arrival."""
    return next((source.start for source in live if isinstance(source, UdpSource)), None)
