"""The door: connections at once, counted as they are accepted, before a handshake or a word.

A door that is full lets go of whoever has stood longest without a question that is being answered, so that nobody
keeps others out by standing there. What is being answered has bounds of its own, well below the door's.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Collection
from contextlib import suppress
from typing import Any

MOST_CONNECTIONS = 1024
SPARE_FILES = 256
"""Open files that connections leave to everything else."""
Peer = tuple[str, int]
"""Address and port at the other end of a connection."""


class Door(socket.socket):
    """A listening socket with room for ``most`` connections.

    ``busy`` holds the peers whose questions are being answered; it may change at any time.
    """

    def __init__(self, *kind: Any) -> None:
        super().__init__(*kind)
        self.most = most_connections()
        self.busy: Collection[Peer] = ()
        self._inside: dict[Peer, socket.socket] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection; ConnectionAbortedError where everybody inside is being answered."""
        connection, address = super().accept()
        self._inside = {peer: held for peer, held in self._inside.items() if held.fileno() != -1}
        if len(self._inside) >= self.most and not self._make_room():
            connection.close()
            raise ConnectionAbortedError
        self._inside[address[:2]] = connection
        return connection, address

    def _make_room(self) -> bool:
        idle = next((peer for peer in self._inside if peer not in self.busy), None)
        if idle is None:
            return False
        with suppress(OSError):  # it may have ended meanwhile
            self._inside.pop(idle).shutdown(socket.SHUT_RDWR)  # who holds it closes it when it is told of its end
        return True


def most_connections() -> int:
    """Return how many connections there may be: ``MOST_CONNECTIONS``, or what this process may open besides."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(files - SPARE_FILES, 64))
