"""Radio addresses, names and senders' addresses as sources and sockets write them."""

from __future__ import annotations

import functools
import ipaddress
import re

from connectors.spellings import spelled

NOWHERE = bytes(6)
LONGEST_NAME = 256
"""No text with an address or a name is longer, in octets."""
_TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


def mac(content: bytes) -> bytes | None:
    """Return the six octets of an address given raw or as text, or None.

    Six octets are always raw. Text: every form of ``spelled``, with a name before or behind an ``@``. Surrounding
    quotes, blanks and NULs are dropped.
    """
    return address_and_name(content)[0]


def address_and_name(content: bytes) -> tuple[bytes | None, bytes]:
    """Return the address in ``content`` and the name beside it: ``aa:bb:cc:dd:ee:ff@lobby``, either way round.

    Without an address all of it is the name, if it is no longer than a name can be.
    """
    if len(content) == 6:
        return content, b""
    if len(content) > LONGEST_NAME:
        return None, b""
    head, _, tail = content.strip(b'\x00 "').partition(b"@")
    for text, name in ((head, tail), (tail, head)):
        address = spelled(text.strip())
        if address is not None:
            return address, name.strip()
    return None, content


def access_point_name(content: bytes) -> str | None:
    """Return an access point's name, at most 64 printable characters, or None."""
    try:
        text = content.decode().strip("\x00 ")
    except UnicodeDecodeError:
        return None
    return text if _TEXT.fullmatch(text) else None


@functools.lru_cache(maxsize=4096)
def sender(host: str) -> str:
    """Return the one form of a numeric address: IPv4 within IPv6 as IPv4, shortest spelling, without a scope.

    Raises ``ValueError`` for anything else.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
