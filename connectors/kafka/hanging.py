"""Brokers that hang: their connections stay open and answer nothing. A process waits for such a one once.

What one client of this process finds out, all of them go by: every open connection to that broker is cut, and
until it answers again nobody waits for it, as if it refused. How long a question may stay open before the broker
is asked whether it is still there, and how long that answer may take, follow from the one session timeout.
"""

from __future__ import annotations

import logging
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from stream.settings import SESSION_TIMEOUT

log = logging.getLogger(__name__)

Address = tuple[str, int]
"""Host and port."""
SHARE = 4
"""A session timeout holds so many waits: two find a hanging broker out, two are left to go on elsewhere."""


class Loop(Protocol):
    """The event loop of a connection."""

    def call_soon_threadsafe(self, callback: object, /) -> object:
        """Run something soon, in the loop's own thread."""


class Connection(Protocol):
    """An open connection to a broker."""

    address: Address
    loop: Loop

    def abort(self) -> None:
        """Cut it; whoever waits for an answer is told at once."""


class Brokers:
    """Which brokers hang, as far as this process knows. May be asked and told from any thread."""

    def __init__(self, session_timeout: float = SESSION_TIMEOUT) -> None:
        """Take the seconds after which a worker that is silent loses its partitions."""
        self.go_by(session_timeout)
        self._lock = threading.Lock()
        self._hanging: set[Address] = set()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()

    def go_by(self, session_timeout: float) -> None:
        """Take another session timeout, in seconds."""
        self.silence = session_timeout / SHARE
        """Seconds for which a question may stay open before the broker is asked whether it is there."""
        self.patience = session_timeout / SHARE
        """Seconds within which it must answer that."""

    def hangs(self, address: Address) -> bool:
        """Return whether this broker was found to hang and has not answered since."""
        return address in self._hanging

    def opened(self, connection: Connection) -> None:
        """Learn of a connection, and that its broker answers."""
        with self._lock:
            self._hanging.discard(connection.address)
            self._open.add(connection)

    def refused(self, address: Address) -> None:
        """Learn that a broker refuses connections: it is down, and nobody has to wait to learn so."""
        with self._lock:
            self._hanging.discard(address)

    def hung(self, address: Address) -> None:
        """Learn that a broker does not answer; cut every connection to it, so that nobody waits any longer."""
        with self._lock:
            known = address in self._hanging
            self._hanging.add(address)
            waiting = [connection for connection in self._open if connection.address == address]
        if not known:
            log.warning("a broker at %s:%d hangs; it is waited for no more until it answers", *address)
        for connection in waiting:
            with suppress(RuntimeError):  # its loop has ended, and what waited there with it
                connection.loop.call_soon_threadsafe(connection.abort)


BROKERS = Brokers()
"""What this process knows."""
