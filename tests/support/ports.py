"""Ports of loopback for programs that are told their port before they listen."""

import os
import random
import socket

_HIGHEST = 32_767
"""Linux gives ports from 32,768 on to sockets that ask for any; none of those is handed out here."""
_LOWEST = 20_000
_handed_out: set[int] = set()
_random = random.Random(os.getpid())


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM, host: str = "127.0.0.1") -> int:
    """Return a port that nobody uses, that no socket is given by chance, and that this process has not had before.

    Raises OSError if a hundred ports in a row are in use.
    """
    for _ in range(100):
        port = _random.randint(_LOWEST, _HIGHEST)
        if port in _handed_out:
            continue
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise OSError("no free port was found on loopback")
