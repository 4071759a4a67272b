"""The demo's controller waits for a receiver that is slow: a busy machine loses no part of the day."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from connectors.commands import demo
from connectors.intake.admission import Counters
from connectors.intake.waiting import ROOM

TRAPS = 3 * demo.WAITING


class SlowReceiver:
    """Queues all that has arrived each time it is looked at, and works off some of it when the sender waits."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = self._socket.getsockname()
        self._counters = Counters()
        self.most = 0
        """The most that ever waited in the queue."""

    @property
    def counters(self) -> Counters:
        while True:
            try:
                self._socket.recv(64)
            except BlockingIOError:
                break
            self._counters.datagrams += 1
            self._counters.waiting += 1
        self.most = max(self.most, self._counters.waiting)
        return self._counters

    def work(self) -> None:
        self._counters.waiting = max(0, self._counters.waiting - 1000)

    def close(self) -> None:
        self._socket.close()


async def test_no_more_traps_are_sent_than_a_slow_receiver_has_room_for() -> None:
    slow: Any = SlowReceiver()
    day: Any = Day()
    try:
        assert await demo._send(day, slow, 1e9, slow.work) == TRAPS
        assert slow.most <= demo.WAITING + demo.AHEAD < ROOM
    finally:
        slow.close()


class Day:
    """A day whose traps are all due at once."""

    simulation = SimpleNamespace(start=0)

    def __iter__(self) -> Any:
        return (SimpleNamespace(time=0, data=b"trap") for _ in range(TRAPS))
