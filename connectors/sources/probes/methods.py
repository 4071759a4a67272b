"""Methods that probe a source: ICMP echo, HTTPS, and SNMP over v2c or v3.

- ``Echo``: ICMP. It shows that the address is up, and nothing of the host behind it. It needs no right but the kernel's
  permission (``ping_group_range``).
- ``Head``: HTTPS. Only the owner of the known certificate can answer.
- ``ByCommunity`` and ``ByUser``: the agent's sysUpTime over SNMPv2c or SNMPv3.
- ``declared``: the probes that a policy declares, each with its credentials.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from connectors.sources.ingest.state import Pair
from connectors.sources.snmp.polling import (
    Agent,
    discovered_agent,
    discovery_request,
    question,
    secured_answer,
    secured_question,
    uptime,
)
from connectors.sources.snmp.usm.protocols import Keys
from connectors.sources.snmp.usm.users import Users
from stream.errors import UsageError
from stream.policy.document import PolicyDocument
from stream.policy.sites import Probe

TRIES, WAIT = 3, 1.5
"""A request by datagram may be lost, so it is sent so many times, with so many seconds between two of them."""


class ProbeAnswer(NamedTuple):
    """The answer of a source that is alive."""

    uptime: int | None = None
    """Its sysUpTime in hundredths of a second, if it sent it."""


class ProbeMethod(Protocol):
    """One source and the way to probe it."""

    async def probe(self) -> ProbeAnswer | None:
        """Probe once; None if no valid answer came within a few seconds. Never raises."""


async def exchange(sock: socket.socket, question: bytes) -> bytes | None:
    """Send a datagram over a connected socket; return the next one that comes back in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(WAIT):
            await loop.sock_sendall(sock, question)
            return await loop.sock_recv(sock, 65_535)
    except OSError:  # includes timeouts; ICMP reports a closed port
        return None


def connected(host: str, port: int, kind: int = socket.SOCK_DGRAM, protocol: int = 0) -> socket.socket:
    """Return a socket that receives from this address only; ``OSError`` if there is no route to it."""
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.connect((host, port))
    except OSError:
        sock.close()
        raise
    return sock


# --- HTTPS ------------------------------------------------------------------------------------------

HTTPS_PORT = 443
_STATUS_LINE = b"HTTP/1."


@dataclass(frozen=True, slots=True)
class Head:
    """HTTPS; any HTTP answer of the server counts as alive."""

    host: str
    port: int
    name: str | None
    """The name in its certificate, which an authority trusted by this machine has signed."""
    fingerprint: str | None
    """Alternatively its certificate's SHA-256."""

    async def probe(self) -> ProbeAnswer | None:
        """Probe once, for as long as three datagrams would take: TCP repeats lost packets by itself."""
        try:
            async with asyncio.timeout(TRIES * WAIT):
                return await self._probe()
        except (OSError, EOFError, ValueError):  # no route, another certificate, a line without end
            return None

    async def _probe(self) -> ProbeAnswer | None:
        name = self.name or self.host
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self._context(), server_hostname=name)
        try:
            if not self._is_known(writer):
                return None
            writer.write(f"HEAD / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            line = await reader.readline()
            return ProbeAnswer() if line.startswith(_STATUS_LINE) else None
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self.fingerprint is not None:  # the certificate itself is pinned: its signer does not matter
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _is_known(self, writer: asyncio.StreamWriter) -> bool:
        if self.fingerprint is None:
            return True
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        return hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), self.fingerprint)


# --- ICMP echo --------------------------------------------------------------------------------------

_REQUEST, _REPLY = {4: b"\x08\0", 6: b"\x80\0"}, {4: 0, 6: 129}
"""Type and code of a request, type of its reply (RFC 792, RFC 4443)."""
_HEAD, _NONCE = 8, 16


@dataclass(frozen=True, slots=True)
class Echo:
    """ICMP: shows that the address is up, and nothing of the host behind it."""

    host: str

    async def probe(self) -> ProbeAnswer | None:
        """Probe up to three times."""
        version = 6 if ":" in self.host else 4
        nonce = secrets.token_bytes(_NONCE)
        try:
            sock = _socket(self.host)
        except OSError:
            return None
        with sock:
            for number in range(1, TRIES + 1):
                # The kernel writes checksum and identifier, and delivers replies to this socket's identifier only.
                response = await exchange(sock, _REQUEST[version] + bytes(4) + number.to_bytes(2, "big") + nonce)
                if response is not None and response[:1] == bytes([_REPLY[version]]) and response[_HEAD:] == nonce:
                    return ProbeAnswer()
        return None


def check_allowed(host: str) -> None:
    """Raise ``UsageError`` if the kernel does not let this process send echo requests."""
    try:
        _socket(host).close()
    except PermissionError:
        msg = (
            "probe by 'icmp': the kernel must permit it: include the group of this process in net.ipv4.ping_group_range"
        )
        raise UsageError(msg) from None
    except OSError:
        return  # there is no route now; the probes will report that


def _socket(host: str) -> socket.socket:
    protocol = socket.IPPROTO_ICMPV6 if ":" in host else socket.IPPROTO_ICMP
    return connected(host, 0, socket.SOCK_DGRAM, protocol)


# --- SNMP -------------------------------------------------------------------------------------------

T = TypeVar("T")
SNMP_PORT = 161


def request_number() -> int:
    """Return a number that a forger who does not see the request cannot guess, and so cannot answer."""
    return secrets.randbelow(2**31)


@dataclass(frozen=True, slots=True)
class ByCommunity:
    """SNMPv2c: anyone who reads the request can answer it."""

    host: str
    port: int
    community: bytes

    async def probe(self) -> ProbeAnswer | None:
        """Probe up to three times."""
        number = request_number()
        answer = await _request(
            self.host,
            self.port,
            question(self.community, number),
            lambda response: uptime(response, self.community, number),
        )
        return None if answer is None else ProbeAnswer(answer)


async def provoke(host: str, port: int) -> None:
    """Send one request with a community that no agent has, and do not wait for an answer."""
    with suppress(OSError), connected(host, port) as sock:
        await asyncio.get_running_loop().sock_sendall(sock, question(secrets.token_hex(8).encode(), request_number()))


class ByUser:
    """SNMPv3: only an owner of the user's key at the agent's own engine can answer."""

    def __init__(self, host: str, port: int, users: Users, user: str) -> None:
        """Set the users, which include this one; its key at the agent's engine is derived after the first answer."""
        self._host, self._port, self._users, self._user = host, port, users, user.encode()
        self._engine = b""
        self._salt = secrets.randbits(64)
        self._used: Keys | None = None

    async def probe(self) -> ProbeAnswer | None:
        """Discover the engine if it is unknown, then its time, then request its uptime."""
        self._engine = self._engine or await self._discovered_engine()
        valid = self._users.all_keys(self._user, self._engine) if self._engine else ()
        for keys in sorted(valid, key=lambda keys: keys != self._used):  # first the keys of the last answer
            answer: int | Agent | None = Agent(self._engine, 0, 0)
            for _ in range(TRIES):
                if not isinstance(answer, Agent):
                    break
                answer = await self._question(answer, keys)
            if isinstance(answer, int):
                self._used = keys
                return ProbeAnswer(answer)
        self._engine = b""  # the agent may have been replaced
        return None

    async def _discovered_engine(self) -> bytes:
        number = request_number()
        agent = await _request(
            self._host, self._port, discovery_request(number), lambda response: discovered_agent(response, number)
        )
        return agent.engine if agent is not None and self._users.may_be(self._host, agent.engine) else b""

    async def _question(self, agent: Agent, keys: Keys) -> int | Agent | None:
        """Return the uptime, or the agent's boots and time if the request's were wrong."""
        number = request_number()
        self._salt = (self._salt + 1) % 2**64
        request = secured_question(keys, agent, self._user, number, self._salt.to_bytes(8, "big"))
        return await _request(
            self._host, self._port, request, lambda response: secured_answer(keys, agent, response, number)
        )


async def _request(host: str, port: int, datagram: bytes, read: Callable[[bytes], T | None]) -> T | None:
    """Send a request up to three times; return the value of the first datagram that answers it."""
    try:
        sock = connected(host, port)
    except OSError:
        return None
    with sock:
        for _ in range(TRIES):
            response = await exchange(sock, datagram)
            answer = None if response is None else read(response)
            if answer is not None:
                return answer
    return None


# --- declared probes --------------------------------------------------------------------------------


def declared(policy: PolicyDocument, users: Users | None, community: bytes | None) -> dict[Pair, ProbeMethod]:
    """Return the probe method of each source of each site for which the policy declares a probe.

    Raises:
        UsageError: a probe needs a user, a community or a right that is missing.
    """
    return {
        (name, probe.source): _method(f"site.{name}.probe", probe, users, community)
        for name, site in policy.site.items()
        for probe in site.probe
    }


def provoked(policy: PolicyDocument) -> dict[Pair, tuple[str, int]]:
    """Return the address of each source whose trap path the policy verifies with a wrong community."""
    return {
        (name, probe.source): (_host(probe), probe.port or SNMP_PORT)
        for name, site in policy.site.items()
        for probe in site.probe
        if probe.wrong_community
    }


def _host(probe: Probe) -> str:
    return probe.source.partition("/")[0]


def _method(where: str, probe: Probe, users: Users | None, community: bytes | None) -> ProbeMethod:
    host = _host(probe)
    if probe.by == "icmp":
        check_allowed(host)
        return Echo(host)
    if probe.by == "https":
        return Head(host, probe.port or HTTPS_PORT, probe.name, probe.fingerprint)
    port = probe.port or SNMP_PORT
    if probe.user is not None:
        if users is None or not users.has(probe.user):
            msg = f"{where}: user must be one of the file that TACET_SNMP_USERS_FILE names, got {probe.user!r}"
            raise UsageError(msg)
        return ByUser(host, port, users, probe.user)
    if community is None:
        msg = (
            f"{where}: by 'snmp' without user needs TACET_SNMP_PROBE_COMMUNITY_FILE, a file of one community, mode 0600"
        )
        raise UsageError(msg)
    return ByCommunity(host, port, community)
