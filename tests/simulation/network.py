"""Connections between processes and brokers: bytes arrive in order, after a delay, or not at all.

A link between a process and a broker may be cut. TCP sends again what was not confirmed, so what is sent over a link
that is cut arrives when the link is whole again; an end that gives up meanwhile leaves the other one half-open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tests.simulation.processes import Loop, Process, World

REFUSED_AFTER = 0.001
"""Seconds after which a machine says that nobody listens on a port."""


class Listener(Protocol):
    """A server that accepts connections."""

    listening: bool

    def accepted(self, connection: Incoming) -> None:
        """Take a connection that was made."""

    def received(self, connection: Incoming, data: bytes) -> None:
        """Take bytes that arrived."""

    def closed(self, connection: Incoming) -> None:
        """Take note that the client has closed a connection."""


class Network:
    """The machines, and which of them reach each other."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[str, Listener] = {}
        self.cut: dict[tuple[str, str], None] = {}
        """Links (process, machine) over which nothing passes."""
        self.delay = 0.0005
        """Seconds that bytes take on average."""
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        world.connect = self._connect

    def one_delay(self) -> float:
        """Draw how long bytes take."""
        return self.delay * (0.5 + self.world.random.random())

    def cut_link(self, process: str, machine: str) -> None:
        """Let nothing pass between a process and a machine."""
        self.cut[process, machine] = None

    def mend_link(self, process: str, machine: str) -> None:
        """Let everything pass again; what was held arrives."""
        self.cut.pop((process, machine), None)
        for arrive in self._held.pop((process, machine), []):
            self.world.after(self.one_delay(), arrive)

    def carry(self, link: tuple[str, str], not_before: float, arrive: Callable[[], None]) -> float:
        """Let something arrive at the other end of a link; return when it does."""
        if link in self.cut:
            self._held.setdefault(link, []).append(arrive)
            return not_before
        when = max(self.world.now + self.one_delay(), not_before)
        self.world.at(when, arrive)
        return when

    def _connect(
        self, process: Process, loop: Loop, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = loop.create_future()
        link = (process.name, host)

        def refuse() -> None:
            if not answer.done():
                loop.call_soon(_settle, answer, None)

        def arrive() -> None:
            listener = self.listeners.get(host)
            if listener is None or not listener.listening:
                self.carry(link, self.world.now + REFUSED_AFTER, refuse)
            else:
                self.carry(link, self.world.now, lambda: accept(listener))

        def accept(listener: Listener) -> None:
            if process.alive and not answer.done():
                incoming = Incoming(self, link, listener)
                outgoing = Outgoing(self, process, loop, link, incoming)
                incoming.peer = outgoing
                listener.accepted(incoming)
                loop.call_soon(_made, answer, outgoing, factory)

        self.carry(link, self.world.now, arrive)
        return answer


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_exception(ConnectionRefusedError("connection refused"))


def _made(answer: asyncio.Future[Any], outgoing: Outgoing, factory: Callable[[], asyncio.Protocol]) -> None:
    if answer.done():
        outgoing.abort()
        return
    protocol = factory()
    outgoing.set_protocol(protocol)
    protocol.connection_made(outgoing)
    answer.set_result((outgoing, protocol))


class Incoming:
    """The server's end of a connection."""

    def __init__(self, network: Network, link: tuple[str, str], listener: Listener) -> None:
        self._network, self.link, self._listener = network, link, listener
        self.peer: Outgoing | None = None
        self.open = True
        self._next = 0.0

    def send(self, data: bytes) -> None:
        """Send bytes to the process."""
        if self.open:
            self._next = self._network.carry(self.link, self._next, partial(self._deliver, data))

    def _deliver(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.arrived(data)

    def reset(self) -> None:
        """Break the connection; the process learns of it if the link is whole."""
        if self.open:
            self.open = False
            self._network.carry(self.link, self._next, self._broken)

    def _broken(self) -> None:
        if self.peer is not None:
            self.peer.lost(ConnectionResetError("connection reset"))

    def take(self, data: bytes) -> None:
        """Take bytes of the process."""
        if self.open:
            self._listener.received(self, data)

    def hang_up(self) -> None:
        """Take note that the process has closed its end."""
        if self.open:
            self.open = False
            self._listener.closed(self)


class Outgoing(asyncio.Transport):
    """The process's end of a connection."""

    def __init__(self, network: Network, process: Process, loop: Loop, link: tuple[str, str], peer: Incoming) -> None:
        super().__init__()
        self._network, self._process, self._loop, self._link, self._peer = network, process, loop, link, peer
        self._protocol: Any = None
        self._closing = False
        self._waiting: list[bytes] | None = None
        self._next = 0.0
        process.connections[self] = None

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        if not self._closing and self._process.alive:
            self._next = self._network.carry(self._link, self._next, partial(self._peer.take, bytes(data)))

    def pause_reading(self) -> None:
        self._waiting = self._waiting or []

    def resume_reading(self) -> None:
        waiting, self._waiting = self._waiting or [], None
        for data in waiting:
            self.arrived(data)

    def arrived(self, data: bytes) -> None:
        """Take bytes of the server: they wait until the process runs."""
        if self._process.alive and not self._closing:
            self._loop.call_soon(self._pass_on, data)

    def _pass_on(self, data: bytes) -> None:
        if self._closing:
            return
        if self._waiting is not None:
            self._waiting.append(data)
        elif self._protocol is not None:
            self._protocol.data_received(data)

    def lost(self, error: Exception | None) -> None:
        """Take note that the connection is broken."""
        if self._process.alive and not self._closing:
            self._loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if not self._closing:
            self._let_go()
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def _let_go(self) -> None:
        """Take nothing more; the server, which may have its end for longer, does not keep this one."""
        self._closing = True
        self._process.connections.pop(self, None)
        self._peer.peer = None

    def close(self) -> None:
        if not self._closing:
            self._let_go()
            self._network.carry(self._link, self._next, self._peer.hang_up)
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def vanish(self) -> None:
        """Close because the process is gone: its machine tells the server, if the link is whole."""
        self._closing = True
        self._protocol = self._peer.peer = None
        self._network.carry(self._link, self._next, self._peer.hang_up)
