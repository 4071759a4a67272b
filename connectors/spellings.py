"""Six octets of an address as people, controllers and other programs write them."""

from __future__ import annotations

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


def spelled(text: bytes) -> bytes | None:
    """Return the six octets that a text spells, or None.

    Pairs (``aa:bb:..``, ``a:b:..``; also with ``-``, blank, and, of two digits each, with ``.`` or ``_``), fours
    (``aabb.ccdd.eeff``) and sixes (``aabbcc-ddeeff``) with ``.``, ``:``, ``-`` or a blank, twelve digits, ``0x`` and
    twelve digits.
    """
    for spelling in _SPELLINGS:
        if match := spelling.fullmatch(text):
            digits = match.groups()
            parts = digits if len(digits) == 1 else (digits[0], *digits[2:])
            return bytes.fromhex(b"".join(part.zfill(2) for part in parts).decode())
    return None


def address_of(text: str) -> bytes | None:
    """Return the six octets that a text spells, blanks around them left out, or None."""
    text = text.strip()
    return spelled(text.encode()) if text.isascii() else None


def colons(address: bytes) -> str:
    """Return an address as policies and observations write it: ``5c:52:1e:00:20:65``."""
    return address.hex(":")
