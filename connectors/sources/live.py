"""Live sources of ``run`` and ``ingest``: what a receiver listens to, which sources it probes, whom it leaves out."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import structlog

from connectors.keys import key_files
from connectors.keys.opt_outs import OptOutFile
from connectors.runtime.clock import AnchoredClock, wall_clock
from connectors.runtime.signals import first_to_end
from connectors.secrets.secret_files import ReloadingSecrets
from connectors.sources.ingest.followed_logs import TailedFile
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.listeners import Listener
from connectors.sources.ingest.logins import login_attributes
from connectors.sources.ingest.receiver import Receiver, report_drops
from connectors.sources.ingest.sighting import Sink
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.ingest.state import Pair
from connectors.sources.ingest_socket.listener import SocketListener
from connectors.sources.probes.methods import ProbeMethod, provoke
from connectors.sources.probes.scheduler import ProbeScheduler, TrapPath
from connectors.sources.radius.clients import Client, ClientFile, Clients
from connectors.sources.radius.listener import AccountingListener
from connectors.sources.snmp.collectors import SnmptrapdLogListener, SnmptrapdPipeListener, TelegrafListener
from connectors.sources.snmp.communities import CommunityAuth, CommunityFile
from connectors.sources.snmp.listener import TrapListener
from connectors.sources.snmp.snmptrapd import LONGEST, written_at
from connectors.sources.snmp.usm.receiver import V3Files
from connectors.sources.snmp.usm.users import UserFile
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.fields import is_cloud
from stream.records import Micros

log = structlog.get_logger("tacet.run")


@dataclass(frozen=True, slots=True)
class UdpSource:
    """Controllers that send traps to an address of this machine."""

    address: tuple[str, int]
    communities: tuple[bytes, ...] | CommunityFile
    v3: V3Files | None = None
    """The users of SNMPv3; None: none."""
    start: Micros | None = None
    """Laboratory: the time of uptime 0, if event time is the controllers' sysUpTime; None: receive time."""

    def listener(self, sources: Sequence[str]) -> Listener:
        """Return the listener for traps of the policy's sources."""
        senders = CommunityAuth(AllowList(sources), self.communities, or_v3=self.v3 is not None)
        return TrapListener(self.address, senders, v3=self.v3)


@dataclass(frozen=True, slots=True)
class RadiusSource:
    """Controllers that send RADIUS accounting to an address of this machine."""

    address: tuple[str, int]
    clients: tuple[Client, ...] | ClientFile

    def listener(self, sources: Sequence[str], logins: Collection[str] = ()) -> Listener:
        """Return the listener for accounting of the policy's sources, which reads the attributes that name logins."""
        return AccountingListener(self.address, Clients(self.clients, sources), logins=logins)


@dataclass(frozen=True, slots=True)
class SocketSource:
    """Sources whose sightings another process, ``tacet hooks`` or ``tacet poll``, passes on through a socket."""

    path: Path
    option: str
    """The option that names the socket, for errors."""

    def listener(self, sources: Sequence[str]) -> Listener:
        """Return the listener for these sightings of the policy's sources."""
        return SocketListener(self.path, sources, self.option)


@dataclass(frozen=True, slots=True)
class SnmptrapdPipeSource:
    """A pipe to which snmptrapd writes the controllers' traps."""

    path: Path
    """``-``: standard input."""

    def listener(self, sources: Sequence[str]) -> Listener:
        """Return the listener for forwarded traps of the policy's sources."""
        return SnmptrapdPipeListener(self.path, AllowList(sources))


@dataclass(frozen=True, slots=True)
class SnmptrapdLogSource:
    """A log to which snmptrapd writes the controllers' traps."""

    path: Path
    state: Path
    """The file that stores the position in the log."""

    def listener(self, sources: Sequence[str]) -> Listener:
        """Return the listener that reads traps of the policy's sources from the log."""
        return SnmptrapdLogListener(TailedFile(self.path, self.state, LONGEST, written_at), AllowList(sources))


@dataclass(frozen=True, slots=True)
class TelegrafSource:
    """A topic to which telegraf writes the controllers' traps."""

    kafka: str
    topic: str
    group: str
    communities: CommunityFile | None
    """None: only SNMPv3 is accepted."""

    def listener(self, sources: Sequence[str]) -> Listener:
        """Return the listener that reads traps of the policy's sources from the topic."""
        from connectors.sources.external_topic import ExternalTopic  # noqa: PLC0415 - loads a client of Kafka

        topic = ExternalTopic(self.kafka, self.topic, self.group)
        return TelegrafListener(topic, AllowList(sources), self.communities)


LiveSource = UdpSource | RadiusSource | SnmptrapdPipeSource | SnmptrapdLogSource | TelegrafSource | SocketSource
Live = Sequence[LiveSource]
"""All inputs of one receiver."""


def secrets_of(live: Live) -> list[ReloadingSecrets[Any]]:
    """Return the files of secrets that identify senders; each is read again when it changes."""
    found: list[ReloadingSecrets[Any]] = []
    for source in live:
        if isinstance(source, TelegrafSource) and source.communities is not None:
            found.append(source.communities)
        if isinstance(source, UdpSource):
            found += [source.communities] if isinstance(source.communities, CommunityFile) else []
            users = None if source.v3 is None else source.v3.users
            found += [users.file] if isinstance(users, UserFile) else []
        elif isinstance(source, RadiusSource) and isinstance(source.clients, ClientFile):
            found.append(source.clients)
    return found


def live_pairs(policy: PolicyDocument) -> tuple[Pair, ...]:
    """Return each site with each of its sources."""
    return tuple((name, source) for name, site in policy.site.items() for source in site.sources)


def uptime_start(live: Live) -> Micros | None:
    """Return the time of uptime 0 if event time is the controllers' uptime; None: it is the receive time."""
    return next((source.start for source in live if isinstance(source, UdpSource)), None)


class Probing(NamedTuple):
    """The sources that are probed, and who receives the results besides the receiver."""

    probes: Mapping[Pair, ProbeMethod]
    report: Callable[..., None]
    """Called with site and source, and by keyword ``alive``, and ``at``: the point of the clock's grid of the probe."""
    provoked: Mapping[Pair, tuple[str, int]]
    """Host and port of the sources whose trap path is verified with a wrong community."""

    def scheduler(self, made: Receiver, clock: AnchoredClock) -> ProbeScheduler:
        """Return the scheduler whose answers decide the coverage that a receiver's heartbeats confirm."""

        def on_result(pair: Pair, at: Micros, *, answered: bool) -> None:
            made.state.coverage.note(pair, at, answered=answered)
            self.report(pair, alive=answered, at=at)

        trap_paths = {
            pair: TrapPath(partial(provoke, *where), partial(made.last_refusal, pair[1]))
            for pair, where in self.provoked.items()
        }
        return ProbeScheduler(self.probes, clock, on_result, trap_paths)


@asynccontextmanager
async def receiver(
    live: Live,
    policy: PolicyDocument,
    pseudonym_key: bytes,
    sink: Sink,
    *,
    newest: Micros = -1,
    probing: Probing | None = None,
    opt_outs: OptOutFile | None = None,
) -> AsyncIterator[Receiver]:
    """Receive from the policy's sources, in a session later than ``newest``, and probe some of them.

    ``opt_outs``: the devices that are left out, where the policy says so.
    """
    sources = sorted({source for site in policy.site.values() for source in site.sources})
    clock = AnchoredClock(wall_clock, lambda: time.monotonic_ns() // 1000)
    made = Receiver(
        [
            source.listener(sources, login_attributes(policy))
            if isinstance(source, RadiusSource)
            else source.listener(sources)
            for source in live
        ],
        ingest=Ingest.of_policy(policy, pseudonym_key, start=uptime_start(live), opt_outs=opt_outs),
        sink=sink,
        clock=clock,
        newest=newest,
    )
    async with made:
        for listener in made.listeners:
            log.info("listening", address=listener.address[0], port=listener.address[1])
        beside = [made.run_beside(report_drops(made))]
        if opt_outs is not None:
            beside.append(made.run_beside(_renew(opt_outs)))
        if probing is not None and uptime_start(live) is None:
            beside.append(made.run_beside(probing.scheduler(made, clock).run()))
        try:
            yield made
        finally:
            for task in beside:
                task.cancel()


OPT_OUTS_READ_EVERY = 5.0
"""Seconds between two checks whether the file of opt-outs has changed."""


async def _renew(opt_outs: OptOutFile) -> NoReturn:
    while True:
        await asyncio.sleep(OPT_OUTS_READ_EVERY)
        opt_outs.renew()


def opt_out_file(policy: PolicyDocument, path: Path | None, key_file: Path) -> OptOutFile | None:
    """Return the opt-outs of an ingest; None if no site of the policy uses them.

    Raises ``UsageError`` if a site uses them and no file is named, or the reverse, and ``KeyFileError`` if the file is
    missing or invalid: nobody who opted out is counted because of a missing file.
    """
    used = [name for name, site in policy.site.items() if site.opt_out == "list"]
    if used and path is None:
        msg = f"TACET_OPT_OUTS_FILE: must name the file of opt-outs, because site {used[0]} has opt_out = 'list'"
        raise UsageError(msg)
    if path is None:
        return None
    if not used:
        msg = "TACET_OPT_OUTS_FILE: must not be set while no site of the policy has opt_out = 'list'"
        raise UsageError(msg)
    return OptOutFile(path, key_files.opt_out_key(key_file))


def check_uptime_clock(policy: PolicyDocument, key_file: Path) -> None:
    """Refuse the uptime clock outside a laboratory: there a controller would determine the time."""
    sources = {source for site in policy.site.values() for source in site.sources}
    if not key_files.is_laboratory(key_file):
        msg = "--clock uptime: must be used with a laboratory key"
        raise UsageError(msg)
    if foreign := sorted(source for source in sources if not _is_loopback(source)):
        msg = f"--clock uptime: every source of the policy must be on loopback, got {foreign[0]}"
        raise UsageError(msg)


def _is_loopback(source: str) -> bool:
    return not is_cloud(source) and ipaddress.ip_network(source).is_loopback


async def until_stopped(made: Receiver, stop: asyncio.Event) -> None:
    """Wait for a stop signal, or raise what ended the receiver."""
    await first_to_end(made.wait(), stop.wait())
