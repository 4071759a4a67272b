"""Which brokers hang, as far as this process knows, and how long each is waited for.

A broker hangs if its connections stay open and it answers nothing. All clients of a process share one ``BrokerHealth``:
when one of them finds that a broker hangs, every open connection to it is cut, and until it answers again it is treated
like a broker that refuses connections.

Only time in which the waiting event loop itself runs counts (``within``). A process that is paused or lacks CPU has not
read its brokers' answers and must not blame them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from contextlib import suppress
from typing import Protocol, TypeVar

from connectors.storage.kafka.timeouts import SESSION_PARTS
from stream.settings import SESSION_TIMEOUT

log = logging.getLogger(__name__)
T = TypeVar("T")

Address = tuple[str, int]
"""Host and port."""
TURNS = 10
"""Each wait is divided into so many turns; a pause of the process uses up one turn, however long it lasts."""


class Loop(Protocol):
    """The event loop of a connection."""

    def call_soon_threadsafe(self, callback: object, /) -> object:
        """Schedule a callback in the loop's own thread."""


class Connection(Protocol):
    """An open connection to a broker."""

    address: Address
    loop: Loop

    def abort(self) -> None:
        """Cut the connection; callers that wait for an answer fail at once."""


class BrokerHealth:
    """What this process knows of its brokers: which of them hang, and how long each is waited for. Thread-safe."""

    def __init__(self, session_timeout: float = SESSION_TIMEOUT) -> None:
        """Set the session timeout: the seconds after which a silent worker loses its partitions."""
        self.set_session_timeout(session_timeout)
        self._lock = threading.Lock()
        self._hanging: set[Address] = set()
        self._open: weakref.WeakKeyDictionary[Connection, None] = weakref.WeakKeyDictionary()  # in order of opening

    def set_session_timeout(self, session_timeout: float) -> None:
        """Derive how long a broker is waited for from a session timeout, in seconds."""
        self.silence = session_timeout / SESSION_PARTS
        """Seconds for which a request may wait before the broker is probed."""
        self.answer_timeout = session_timeout / SESSION_PARTS
        """Seconds within which the broker must answer a probe."""

    def hangs(self, address: Address) -> bool:
        """Return whether this broker was found to hang and has not answered since."""
        return address in self._hanging

    def record_open(self, connection: Connection) -> None:
        """Record a connection, and that its broker answers."""
        with self._lock:
            self._hanging.discard(connection.address)
            self._open[connection] = None

    def record_refusal(self, address: Address) -> None:
        """Record that a broker refuses connections: it is down, so callers fail fast."""
        with self._lock:
            self._hanging.discard(address)

    def record_hanging(self, address: Address) -> None:
        """Record that a broker does not answer, and cut every connection to it so that no caller waits any longer."""
        with self._lock:
            known = address in self._hanging
            self._hanging.add(address)
            waiting = [connection for connection in self._open if connection.address == address]
        if not known:
            log.warning("a broker at %s:%d hangs; nothing waits for it until it answers", *address)
        for connection in waiting:
            with suppress(RuntimeError):  # its loop has ended, and with it everything that waited there
                connection.loop.call_soon_threadsafe(connection.abort)


async def within(seconds: float, answer: asyncio.Future[T]) -> bool:
    """Return whether an answer arrives within so many seconds in which this loop runs."""
    for _ in range(TURNS):
        if (await asyncio.wait({answer}, timeout=seconds / TURNS))[0]:
            return True
    return False
