"""Radio addresses, names and senders' addresses as traps and sockets write them."""

from __future__ import annotations

import functools
import ipaddress
import re

NOWHERE = bytes(6)
_PAIRS = re.compile(rb"([0-9a-fA-F]{1,2})[:-]" * 5 + rb"([0-9a-fA-F]{1,2})")
_QUADS = re.compile(rb"([0-9a-fA-F]{4})[.:-]([0-9a-fA-F]{4})[.:-]([0-9a-fA-F]{4})")
_DIGITS = re.compile(rb"(?:0[xX])?([0-9a-fA-F]{12})")
_TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


def mac(content: bytes) -> bytes | None:
    """Return the six octets of an address given raw or as text, or None.

    Six octets are always raw. Text: ``aa:bb:..`` and ``a:b:..`` (also with ``-``), ``aabb.ccdd.eeff`` (also
    with ``-``), twelve digits, ``0x`` and twelve digits; surrounding quotes, blanks and NULs are dropped.
    """
    if len(content) == 6:
        return content
    text = content.strip(b'\x00 "')
    if match := _PAIRS.fullmatch(text):
        return bytes(int(pair, 16) for pair in match.groups())
    if match := _QUADS.fullmatch(text) or _DIGITS.fullmatch(text):
        return bytes.fromhex(b"".join(match.groups()).decode())
    return None


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
