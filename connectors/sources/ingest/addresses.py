"""Spellings of radio addresses, access point names and senders' addresses in sources and sockets."""

from __future__ import annotations

import functools
import ipaddress
import re

_SPELLINGS = tuple(
    re.compile(spelling)
    for spelling in (
        rb"([0-9a-fA-F]{1,2})([:\- ])" + rb"([0-9a-fA-F]{1,2})\2" * 4 + rb"([0-9a-fA-F]{1,2})",
        rb"([0-9a-fA-F]{2})([._])" + rb"([0-9a-fA-F]{2})\2" * 4 + rb"([0-9a-fA-F]{2})",
        rb"([0-9a-fA-F]{4})([.:\- ])([0-9a-fA-F]{4})\2([0-9a-fA-F]{4})",
        rb"([0-9a-fA-F]{6})([.:\- ])([0-9a-fA-F]{6})",
        rb"(?:0[xX])?([0-9a-fA-F]{12})",
    )
)


def parse_address(text: bytes) -> bytes | None:
    """Return the six octets that a text spells, or None.

    Accepted are pairs (``aa:bb:..``, ``a:b:..``; also with ``-``, blank, and, of two digits each, with ``.`` or ``_``),
    fours (``aabb.ccdd.eeff``) and sixes (``aabbcc-ddeeff``) with ``.``, ``:``, ``-`` or a blank, twelve digits, and
    ``0x`` with twelve digits.
    """
    for spelling in _SPELLINGS:
        if match := spelling.fullmatch(text):
            digits = match.groups()
            parts = digits if len(digits) == 1 else (digits[0], *digits[2:])
            return bytes.fromhex(b"".join(part.zfill(2) for part in parts).decode())
    return None


def address_of(text: str) -> bytes | None:
    """Return the six octets that a text spells, without surrounding blanks, or None."""
    text = text.strip()
    return parse_address(text.encode()) if text.isascii() else None


def colons(address: bytes) -> str:
    """Return an address in the form of policies and observations: ``5c:52:1e:00:20:65``."""
    return address.hex(":")


NOWHERE = bytes(6)
LONGEST_NAME = 256
"""Maximum length in octets of a text with an address or a name."""
_TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,64}")


def mac(content: bytes) -> bytes | None:
    """Return the six octets of an address given raw or as text, or None.

    Six octets are always raw. Text: every form of ``parse_address``, with a name before or behind an ``@``. Surrounding
    quotes, blanks and NULs are dropped.
    """
    return address_and_name(content)[0]


def address_and_name(content: bytes) -> tuple[bytes | None, bytes]:
    """Return the address in ``content`` and the name beside it: ``aa:bb:cc:dd:ee:ff@lobby``, in either order.

    Without an address all of it is the name, if it is no longer than a name can be.
    """
    if len(content) == 6:
        return content, b""
    if len(content) > LONGEST_NAME:
        return None, b""
    head, _, tail = content.strip(b'\x00 "').partition(b"@")
    for text, name in ((head, tail), (tail, head)):
        address = parse_address(text.strip())
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
    """Return the canonical form of a numeric address: IPv4 within IPv6 as IPv4, shortest spelling, without a scope.

    Raises ``ValueError`` for anything else.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
