"""Encodes and sends traps of a simulated controller."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from connectors.sources.snmp.ber import (
    INFORM,
    IP_ADDRESS,
    OBJECT_IDENTIFIER,
    OCTET_STRING,
    SEQUENCE,
    TIME_TICKS,
    TRAP_V1,
    TRAP_V2,
    encode_integer,
    encode_oid,
    tlv,
)
from connectors.sources.snmp.profiles import COLD_START, ENTERPRISES, HEARTBEAT, SNMP_TRAP_OID, SYS_UP_TIME

BSN_ASSOCIATE = f"{ENTERPRISES}.14179.2.6.3.53"
BSN_DISASSOCIATE = f"{ENTERPRISES}.14179.2.6.3.1"
"""bsnDot11StationAssociate and bsnDot11StationDisassociate of AIRESPACE-WIRELESS-MIB."""
_BSN = f"{ENTERPRISES}.14179.2.6.2"
_SLICE = 0.001
"""Shortest sleep in seconds for which the event loop is used."""


@functools.cache
def _oid(text: str) -> bytes:
    return tlv(OBJECT_IDENTIFIER, encode_oid(text))


def varbind(oid: str, value: bytes) -> bytes:
    """Return one variable binding; ``value`` is already encoded."""
    return tlv(SEQUENCE, _oid(oid) + value)


def octets(content: bytes) -> bytes:
    """Return an OCTET STRING."""
    return tlv(OCTET_STRING, content)


@functools.cache
def _trap_oid(trap: str) -> bytes:
    return varbind(f"{SNMP_TRAP_OID}.0", _oid(trap))


@functools.lru_cache(maxsize=256)
def _number(column: str, value: int) -> bytes:
    return varbind(column, encode_integer(value))


def encode_notification(
    trap: str,
    varbinds: bytes = b"",
    *,
    community: bytes,
    uptime: int,
    request_id: int = 1,
    version: int = 2,
    inform: bool = False,
) -> bytes:
    """Return one datagram: a v1 trap, a v2c trap or a v2c inform.

    ``trap`` is the dotted identifier of the v2 form, ``varbinds`` the encoded bindings after the first two, ``uptime``
    hundredths of a second (modulo 2**32).
    """
    ticks = encode_integer(uptime % 2**32, TIME_TICKS)
    if version == 1:
        pdu = tlv(TRAP_V1, _v1_head(trap) + ticks + tlv(SEQUENCE, varbinds))
    else:
        head = varbind(f"{SYS_UP_TIME}.0", ticks) + _trap_oid(trap)
        body = encode_integer(request_id) + b"\x02\x01\x00\x02\x01\x00" + tlv(SEQUENCE, head + varbinds)
        pdu = tlv(INFORM if inform else TRAP_V2, body)
    return tlv(SEQUENCE, encode_integer(version - 1) + octets(community) + pdu)


@functools.cache
def _v1_head(trap: str) -> bytes:
    """Return enterprise, agent address and the two numbers of a v1 trap (RFC 3584 section 3.2)."""
    base, _, number = trap.rpartition(".")
    if base == COLD_START.rpartition(".")[0]:
        enterprise, generic, specific = f"{ENTERPRISES}.14179", int(number) - 1, 0
    else:
        enterprise, generic, specific = base.removesuffix(".0"), 6, int(number)
    return _oid(enterprise) + tlv(IP_ADDRESS, bytes(4)) + encode_integer(generic) + encode_integer(specific)


@dataclass(frozen=True, slots=True)
class Association:
    """A client at an access point, with a controller's additional columns; the decoder drops all of these."""

    client: bytes
    """Six octets."""
    access_point: bytes
    """The radio's six octets."""
    slot: int = 1
    user: bytes = b""
    address: bytes = bytes(4)
    """The client's IPv4 address."""
    name: bytes = b""
    """The access point's name; the only one of these that may be read, if there is no radio address."""


def encode_associate(
    seen: Association, *, community: bytes, uptime: int, request_id: int = 1, version: int = 2, inform: bool = False
) -> bytes:
    """Return Cisco AireOS's trap for an association, with varbinds in the MIB's order."""
    varbinds = b"".join(
        (
            varbind(f"{_BSN}.35.0", octets(seen.access_point)),
            _number(f"{_BSN}.36.0", seen.slot),
            varbind(f"{_BSN}.43.0", tlv(IP_ADDRESS, seen.address)),
            varbind(f"{_BSN}.34.0", octets(seen.client)),
            varbind(f"{_BSN}.39.0", octets(seen.user)),
            varbind(f"{ENTERPRISES}.14179.2.2.1.1.3.0", octets(seen.name)),
        )
    )
    return encode_notification(
        BSN_ASSOCIATE, varbinds,
        community=community, uptime=uptime, request_id=request_id, version=version, inform=inform,
    )  # fmt: skip


def encode_disassociate(
    client: bytes, access_point: bytes, *, slot: int, community: bytes, uptime: int, request_id: int, version: int = 2
) -> bytes:
    """Return Cisco AireOS's trap for a disassociation, because the client leaves (reason 8 of IEEE 802.11)."""
    varbinds = b"".join(
        (
            varbind(f"{_BSN}.35.0", octets(access_point)),
            _number(f"{_BSN}.36.0", slot),
            varbind(f"{_BSN}.34.0", octets(client)),
            _number(f"{_BSN}.37.0", 8),
        )
    )
    return encode_notification(
        BSN_DISASSOCIATE, varbinds, community=community, uptime=uptime, request_id=request_id, version=version
    )


def encode_keepalive(*, community: bytes, uptime: int, request_id: int = 1, version: int = 2) -> bytes:
    """Return the keep-alive of a simulated controller: it contains only its uptime."""
    return encode_notification(HEARTBEAT, community=community, uptime=uptime, request_id=request_id, version=version)


def encode_cold_start(*, community: bytes, uptime: int = 0, request_id: int = 1, version: int = 2) -> bytes:
    """Return the trap that a controller sends after a restart."""
    return encode_notification(COLD_START, community=community, uptime=uptime, request_id=request_id, version=version)


async def send(
    datagrams: Iterable[tuple[int, bytes]],
    address: tuple[str, int],
    speed: float | None = 1.0,
    *,
    source: str | None = None,
    max_rate: float = 20_000.0,
) -> int:
    """Send datagrams (microseconds after the start, octets) in order; return how many were sent.

    ``speed`` is a multiple of real time; None: as fast as ``max_rate`` (datagrams per second) allows, since UDP has no
    other flow control. ``source`` binds the sending address. Raises ``OSError`` if an address cannot be used.
    """
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        if source is not None:
            sock.bind((source, 0))
        start, sent = loop.time(), 0
        for offset, datagram in datagrams:
            due = start + max(sent / max_rate, 0.0 if speed is None else offset / 1e6 / speed)
            wait = due - loop.time()
            if wait > _SLICE or sent % 64 == 0:
                await asyncio.sleep(max(wait, 0.0))
            try:
                sock.sendto(datagram, address)
            except BlockingIOError:
                await loop.sock_sendto(sock, datagram, address)
            sent += 1
        return sent
