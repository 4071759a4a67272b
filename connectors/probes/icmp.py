"""Asking an address for an echo, by a socket that needs no right but the kernel's leave (``ping_group_range``)."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass

from connectors.probes.asking import TRIES, Answer, connected, exchange
from stream.errors import UsageError

_REQUEST, _REPLY = {4: b"\x08\0", 6: b"\x80\0"}, {4: 0, 6: 129}
"""Type and code of a request, type of its reply (RFC 792, RFC 4443)."""
_HEAD, _NONCE = 8, 16


@dataclass(frozen=True, slots=True)
class Echo:
    """ICMP: it says that the address is up, and nothing of whose it is."""

    host: str

    async def ask(self) -> Answer | None:
        """Ask up to three times."""
        version = 6 if ":" in self.host else 4
        nonce = secrets.token_bytes(_NONCE)
        try:
            sock = _socket(self.host)
        except OSError:
            return None
        with sock:
            for number in range(1, TRIES + 1):
                # The kernel writes checksum and identifier, and hands on replies to this socket's identifier only.
                heard = await exchange(sock, _REQUEST[version] + bytes(4) + number.to_bytes(2, "big") + nonce)
                if heard is not None and heard[:1] == bytes([_REPLY[version]]) and heard[_HEAD:] == nonce:
                    return Answer()
        return None


def check_allowed(host: str) -> None:
    """Raise ``UsageError`` where the kernel does not let this process ask for echoes."""
    try:
        _socket(host).close()
    except PermissionError:
        msg = (
            "probe by 'icmp': must be allowed by the kernel: the group of this process must lie in "
            "net.ipv4.ping_group_range"
        )
        raise UsageError(msg) from None
    except OSError:
        return  # there is no way to it now; that is what is asked every minute


def _socket(host: str) -> socket.socket:
    protocol = socket.IPPROTO_ICMPV6 if ":" in host else socket.IPPROTO_ICMP
    return connected(host, 0, socket.SOCK_DGRAM, protocol)
