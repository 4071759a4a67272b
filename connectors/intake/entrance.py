"""Where one protocol comes in: it hears, checks, and puts sightings into the waiting room."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from connectors.intake.port import Port
from connectors.intake.waiting import WaitingRoom
from stream.records import Micros

RECEIVE_BUFFER = 4 * 1024 * 1024
"""Octets, as the kernel is asked for them."""


class Entrance(Protocol):
    """What a receiver needs of a protocol's side. What it hears is counted once: taken, or dropped for one reason."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Every reason for which it drops anything, in the order of its checks."""

    @property
    def everyday(self) -> frozenset[str]:
        """Those of them that point to no fault."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which it is open."""

    @property
    def kernel_drops(self) -> int:
        """What was lost before it could be heard."""

    @property
    def receive_buffer(self) -> int:
        """Octets that may wait to be heard; 0 where nothing is known of it."""

    @property
    def hearing(self) -> bool:
        """Whether what is sent would be heard now; while it would not, nothing is vouched for."""

    async def open(self, room: WaitingRoom) -> None:
        """Begin to hear; ``OSError`` where that is impossible."""

    async def finish(self) -> None:
        """Take in what has already arrived, then hear no more; answers can still be given."""

    def stop(self) -> None:
        """Hear no more, at once."""

    async def close(self) -> None:
        """Give no answers any more, and let everything go; harmless on one that was never open."""


class UdpEntrance(ABC):
    """An entrance that is one UDP port; ``hear`` is what a protocol adds."""

    reasons: ClassVar[tuple[str, ...]]
    everyday: ClassVar[frozenset[str]]
    hearing: ClassVar[bool] = True

    def __init__(self, address: tuple[str, int], receive_buffer: int = RECEIVE_BUFFER) -> None:
        """Take where to listen, and the octets that the kernel is asked to hold."""
        self._wanted, self._buffer = address, receive_buffer
        self._port: Port | None = None

    @abstractmethod
    def hear(self, now: Micros, datagram: bytes, address: Any) -> None:
        """Take one datagram that was received at ``now``, or count why not; never waits."""

    def turned(self) -> None:  # noqa: B027 - most protocols have nothing to do
        """Do what must be done once for all that was just heard, before the worker makes anything of it."""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the socket is bound to."""
        return self._wanted if self._port is None else self._port.address

    @property
    def kernel_drops(self) -> int:
        """Datagrams that the kernel had no room for."""
        return 0 if self._port is None else self._port.kernel_drops

    @property
    def receive_buffer(self) -> int:
        """The socket's buffer in octets, as the kernel granted it."""
        return 0 if self._port is None else self._port.receive_buffer

    async def open(self, room: WaitingRoom) -> None:
        """Bind the socket and read."""
        self.room = room
        self._port = Port(self._wanted, self._buffer, self._turn)
        self._port.open()

    async def finish(self) -> None:
        """Read what the kernel still holds, then no more."""
        if self._port is not None:
            await self._port.finish()

    def stop(self) -> None:
        """Read no more; sending still works."""
        if self._port is not None:
            self._port.stop()

    async def close(self) -> None:
        """Give the address back."""
        if self._port is not None:
            self._port.close()

    def send(self, datagram: bytes, address: Any) -> bool:
        """Send one datagram if the kernel takes it; return whether it did."""
        return self._port is not None and self._port.send(datagram, address)

    def _turn(self) -> int:
        port, room = self._port, self.room
        before, waiting = room.counters.datagrams, len(room.queue)
        if port is not None:
            try:
                port.read(functools.partial(self.hear, room.clock.now()))
                self.turned()
            except Exception as error:  # else the event loop would only log it, and never look at the port again
                room.turn_back(waiting)
                room.fail(error)
                port.stop()
        room.call_worker()
        return room.counters.datagrams - before
