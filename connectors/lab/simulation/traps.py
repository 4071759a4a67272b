"""The simulated building's controllers: their datagrams, and the number of each kind.

The time in a trap is the controller's up-time. With T the start of the run, a trap made at event time t carries
``(t - T) // 10 ms``, so a receiver that knows T computes t as ``T + uptime / 100``, at most 10 ms early. After a
``reboot`` fault the up-time of that controller counts from the restart, and this no longer holds for it. Each
controller also sends a keep-alive each simulated minute, from T until ``tail`` minutes after the end.

Access point i belongs to controller ``i % controllers``. Where stays are seldom heard, controllers also report
departures; faults treat these as they treat associations.

``send_schedule`` sends the datagrams to a receiver, at a multiple of real time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from connectors.lab.simulation import faults as faulty
from connectors.lab.simulation.faults import Fault, Kind, Traps, join, parse_faults, rows
from connectors.lab.simulation.files import CENTISECOND, access_point_name
from connectors.sources.snmp.profiles import ENTERPRISES
from connectors.sources.snmp.sender import (
    Association,
    encode_associate,
    encode_cold_start,
    encode_disassociate,
    encode_keepalive,
    encode_notification,
    octets,
    send,
    varbind,
)
from stream.errors import UsageError
from stream.lab.simulator.building import Draws, draws, unknown_access_point
from stream.lab.simulator.events import Simulation
from stream.records import MINUTE, Micros

Ints = NDArray[np.int64]

WRONG_COMMUNITY = b"not-the-community"
_LWAPP = f"{ENTERPRISES}.9.9.599"
_CLIENT_TABLE = f"{_LWAPP}.1.3.1.1"
ASSOCIATE_STATISTICS, RUN_STATE = f"{_LWAPP}.0.7", f"{_LWAPP}.0.4"
"""ciscoLwappDot11ClientAssocDataStatsTrap and ciscoLwappDot11ClientMovedToRunState."""
_PARTS = {name: number for number, name in enumerate(Fault)}


class Datagram(NamedTuple):
    """One datagram of the schedule."""

    time: Micros
    """When it arrives at the network, UTC."""
    data: bytes
    controller: int
    """0 to controllers - 1; -1 for a sender that no policy lists: send it from another address."""


@dataclass(frozen=True, slots=True, eq=False)
class TrapSchedule:
    """Datagrams in the order of sending; each iteration encodes the same bytes."""

    simulation: Simulation
    traps: Traps
    boots: Ints
    """Restart of each controller, UTC microseconds; 0 where it never restarts."""
    counts: MappingProxyType[str, int]
    """Exact numbers. Sent: ``cold_start``, ``associate``, ``associate_statistics``, ``run_state``, ``unknown_ap``,
    ``wrong_community``, ``flood``, ``keepalive``, ``disassociate``; they add up to ``sent``, second arrivals counted
    in their kind. Reported besides: ``copies`` (second arrivals), ``late`` (held up), and ``lost`` and
    ``silent``: made, but not sent."""
    community: bytes = field(repr=False)
    version: int = 2

    def __len__(self) -> int:
        """Return the number of datagrams."""
        return len(self.traps)

    @property
    def uptimes(self) -> Ints:
        """The up-time in each datagram, hundredths of a second."""
        return _uptimes(self.traps, self.boots, self.simulation.start)

    def __iter__(self) -> Iterator[Datagram]:
        """Encode one datagram after the other."""
        encoder = _Encoder(self.simulation, self.community, self.version)
        traps, uptimes = self.traps, self.uptimes
        columns = (traps.sent, traps.kind, traps.device, traps.point, traps.controller, uptimes, traps.event)
        for sent, kind, device, point, controller, uptime, event in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            # A copy has its original's event time and device, hence the same number and the same bytes.
            number = 1 + (event // 1000 + device) % 2**30
            yield Datagram(sent, encoder.encode(Kind(kind), device, point, uptime, number), controller)


def trap_schedule(
    simulation: Simulation,
    faults: str | Iterable[str] = (),
    seed: int = 0,
    controllers: int = 1,
    *,
    community: bytes = b"public",
    version: int = 2,
    tail: int = 15,
) -> TrapSchedule:
    """Return all datagrams of a run, the faults included; the same arguments give the same bytes.

    Keep-alives continue for ``tail`` minutes after the end, so that a receiver closes the last window.

    Raises:
        UsageError: an unknown fault, or fewer than one controller.
    """
    if controllers < 1:
        raise UsageError(f"controllers: must be at least 1, not {controllers}")
    chosen = parse_faults(faults)
    counts: dict[str, int] = {}
    made, boots = _device_traps(simulation, chosen, seed, controllers)
    arriving = _arriving(made, boots, chosen, seed, counts)
    extra = _extra(simulation, arriving, chosen, seed)
    everything = join([_on_the_way(arriving, chosen, seed, counts), *extra, _signs(simulation, boots, tail)])
    everything = everything.select(np.lexsort((everything.kind, everything.sent)))
    numbers = np.bincount(everything.kind, minlength=len(Kind)).tolist()
    counts |= {kind.name.lower(): numbers[kind] for kind in Kind} | {"sent": len(everything)}
    return TrapSchedule(simulation, everything, boots, MappingProxyType(counts), community, version)


def _draws(seed: int, fault: Fault) -> Draws:
    return draws(seed, 1_000 + _PARTS[fault])


def _device_traps(simulation: Simulation, chosen: frozenset[Fault], seed: int, controllers: int) -> tuple[Traps, Ints]:
    """Return the traps about devices before network faults, and the times at which controllers restart."""
    point = simulation.access_point
    traps = rows(simulation.time, Kind.ASSOCIATE, simulation.device, point, point % controllers)
    boots = np.zeros(controllers, dtype=np.int64)
    if Fault.REBOOT in chosen:
        rng = _draws(seed, Fault.REBOOT)
        controller = int(rng.integers(controllers))
        boots[controller] = _moment(simulation, rng)
        again = faulty.storm(simulation, int(boots[controller]), controllers, controller, rng)
        traps = join([traps, again])
    if Fault.ENHANCED in chosen:
        traps = join([traps, faulty.reported_twice_more(traps, _draws(seed, Fault.ENHANCED))])
    if simulation.config.sessions:
        time, device, point = simulation.departures
        traps = join([traps, rows(time, Kind.DISASSOCIATE, device, point, point % controllers)])
    return traps, boots


def _arriving(traps: Traps, boots: Ints, chosen: frozenset[Fault], seed: int, counts: dict[str, int]) -> Traps:
    """Drop the traps that a silent controller or the network loses."""
    boot = boots[traps.controller]
    silent = (boot > 0) & (traps.event >= boot - faulty.SILENCE) & (traps.event < boot)
    counts["silent"] = int(silent.sum())
    traps = traps.select(~silent)
    counts["lost"] = 0
    if Fault.LOSS in chosen:
        lost = faulty.draw_lost(traps, _draws(seed, Fault.LOSS))
        counts["lost"] = int(lost.sum())
        traps = traps.select(~lost)
    return traps


def _on_the_way(traps: Traps, chosen: frozenset[Fault], seed: int, counts: dict[str, int]) -> Traps:
    """Delay some traps, and duplicate some."""
    counts["late"] = counts["copies"] = 0
    if Fault.REORDERING in chosen:
        delay = faulty.delays(traps, _draws(seed, Fault.REORDERING))
        counts["late"] = int((delay > 0).sum())
        traps = replace(traps, sent=traps.sent + delay)
    if Fault.DUPLICATES in chosen:
        again, later = faulty.copies(traps, _draws(seed, Fault.DUPLICATES))
        counts["copies"] = len(again)
        copy = traps.select(again)
        traps = join([traps, replace(copy, sent=copy.sent + later)])
    return traps


def _extra(simulation: Simulation, traps: Traps, chosen: frozenset[Fault], seed: int) -> list[Traps]:
    """Return traps that must never be counted, in addition to the true ones."""
    parts = []
    for fault, kind in ((Fault.UNKNOWN_AP, Kind.UNKNOWN_AP), (Fault.WRONG_COMMUNITY, Kind.WRONG_COMMUNITY)):
        if fault in chosen:
            parts.append(faulty.foreign(traps, kind, _draws(seed, fault)))
    if Fault.FLOOD in chosen:
        rng = _draws(seed, Fault.FLOOD)
        parts.append(faulty.flood(simulation, _moment(simulation, rng), rng))
    return parts


def _signs(simulation: Simulation, boots: Ints, tail: int) -> Traps:
    """Return keep-alives, one per controller and simulated minute, and the cold starts."""
    controllers = len(boots)
    minutes = np.arange(simulation.start, simulation.end + tail * MINUTE + 1, MINUTE)
    event, controller = np.repeat(minutes, controllers), np.tile(np.arange(controllers), len(minutes))
    boot = boots[controller]
    is_sent = ~((boot > 0) & (event >= boot - faulty.SILENCE) & (event < boot))
    alive = rows(event, Kind.KEEPALIVE, np.zeros_like(event), np.zeros_like(event), controller).select(is_sent)
    booted = np.flatnonzero(boots)
    none = np.zeros(len(booted), dtype=np.int64)
    return join([alive, rows(boots[booted], Kind.COLD_START, none, none, booted)])


def _moment(simulation: Simulation, rng: Draws) -> Micros:
    """Draw an instant near the middle of a run (of a day: between 9:36 and 14:24)."""
    span = simulation.end - simulation.start
    return simulation.start + int(span * rng.uniform(0.4, 0.6))


def _uptimes(traps: Traps, boots: Ints, start: Micros) -> Ints:
    boot = np.where(traps.controller < 0, 0, boots[traps.controller])
    since = np.where((boot > 0) & (traps.event >= boot), boot, start)
    uptime: Ints = (traps.event - since) // CENTISECOND
    return uptime


class _Encoder:
    """Encodes each kind of datagram."""

    def __init__(self, simulation: Simulation, community: bytes, version: int) -> None:
        self.clients = [_octets(mac) for mac in simulation.devices]
        self.points = [_octets(mac) for mac in simulation.building.access_points]
        self.names = [access_point_name(simulation, i).encode()[:32] for i in range(len(self.points))]
        self.unknown = [_octets(unknown_access_point(simulation.config.building, i)) for i in range(len(self.points))]
        self.community, self.version = community, version

    def encode(self, kind: Kind, device: int, point: int, uptime: int, number: int) -> bytes:
        """Return one datagram."""
        community = WRONG_COMMUNITY if kind == Kind.WRONG_COMMUNITY else self.community
        if kind == Kind.KEEPALIVE:
            return encode_keepalive(community=community, uptime=uptime, request_id=number, version=self.version)
        if kind == Kind.COLD_START:
            return encode_cold_start(community=community, uptime=uptime, request_id=number, version=self.version)
        if kind in {Kind.ASSOCIATE_STATISTICS, Kind.RUN_STATE}:
            return self._enhanced(kind, device, point, uptime, number)
        if kind == Kind.DISASSOCIATE:
            return encode_disassociate(
                self.clients[device], self.points[point], slot=point % 2,
                community=community, uptime=uptime, request_id=number, version=self.version,
            )  # fmt: skip
        known = kind != Kind.UNKNOWN_AP
        return encode_associate(
            Association(
                self.clients[device],
                self.points[point] if known else self.unknown[point],
                slot=point % 2,
                name=self.names[point] if known else b"",
            ),
            community=community,
            uptime=uptime,
            request_id=number,
            version=self.version,
        )

    def _enhanced(self, kind: Kind, device: int, point: int, uptime: int, number: int) -> bytes:
        """Return an LWAPP trap: the statistics carry the client's address in the index alone."""
        client, access_point = self.clients[device], self.points[point]
        if kind == Kind.RUN_STATE:
            trap = RUN_STATE
            varbinds = varbind(f"{_CLIENT_TABLE}.1.0", octets(client))
            varbinds += varbind(f"{_CLIENT_TABLE}.8.0", octets(access_point))
        else:
            trap, index = ASSOCIATE_STATISTICS, ".".join(str(octet) for octet in client)
            varbinds = varbind(f"{_CLIENT_TABLE}.8.{index}", octets(access_point))
        return encode_notification(
            trap, varbinds,
            community=self.community, uptime=uptime, request_id=number, version=self.version,
        )  # fmt: skip


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


async def send_schedule(
    schedule: TrapSchedule,
    address: tuple[str, int],
    speed: float | None,
    progress: Callable[[int], None] | None = None,
    *,
    foreign: str | None = None,
) -> int:
    """Send a schedule's datagrams to an address; return how many were sent.

    Datagrams of unlisted senders are sent from the address ``foreign``, or not at all without one.
    """

    def due() -> Iterator[tuple[int, bytes]]:
        for number, datagram in enumerate(schedule, start=1):
            if progress is not None and number % 256 == 0:
                progress(number)
            if datagram.controller >= 0:
                yield datagram.time - schedule.simulation.start, datagram.data

    async with asyncio.TaskGroup() as group:
        sending = [group.create_task(send(due(), address, speed))]
        if foreign is not None:
            others = ((d.time - schedule.simulation.start, d.data) for d in schedule if d.controller < 0)
            sending.append(group.create_task(send(others, address, speed, source=foreign)))
    return sum(task.result() for task in sending)
