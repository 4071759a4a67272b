"""Tags and ciphers of the user-based security model, from the standard library and ``cryptography``; pure.

Tags: HMAC with SHA-256, SHA-384 or SHA-512 (RFC 7860), and SHA-1 (RFC 3414) for controllers that support no other: a
forger would have to find a key, not a collision. Not MD5. Ciphers: AES in CFB mode with 128 bits (RFC 3826) or 256; not
DES. The two conventions for extending a shorter key to AES-256 differ, so AES-256 is accepted only with tags whose key
needs no extension, where both give the same key.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from connectors.sources.snmp.ber import OCTET_STRING, tlv
from connectors.sources.snmp.usm.messages import AUTHENTICATED, PRIVATE, REPORTABLE, Claim, Secured, encoded

TAGS = {
    "SHA-1": ("sha1", 12, 20),
    "SHA-256": ("sha256", 24, 32),
    "SHA-384": ("sha384", 32, 48),
    "SHA-512": ("sha512", 48, 64),
}
"""Hash, octets of the tag, and octets of a key."""
CIPHERS = {"AES-128": 16, "AES-256": 32}
"""Octets of the key."""
_STRETCH = 1_048_576
"""Octets of the repeated password from which a key is derived (RFC 3414, A.2)."""


class Keys(NamedTuple):
    """One user's keys at one engine; its repr hides them."""

    hash: str
    tag_size: int
    tag: bytes
    cipher: bytes
    """Empty: no privacy."""

    def __repr__(self) -> str:
        """Show nothing."""
        return "Keys()"


def master_key(tag: str, password: bytes) -> bytes:
    """Return the key of a password before it is bound to an engine (RFC 3414, A.2; RFC 7860, section 9.3)."""
    repeats = -(-_STRETCH // len(password))
    return hashlib.new(TAGS[tag][0], (password * repeats)[:_STRETCH]).digest()


def local_key(tag: str, master: bytes, engine: bytes) -> bytes:
    """Return a key that is valid at one engine only: an attacker who learns it there has no other engine's key."""
    return hashlib.new(TAGS[tag][0], master + engine + master).digest()


def is_genuine(keys: Keys, datagram: bytes, head: Secured) -> bool:
    """Return whether the tag is the one that the key's owner would compute."""
    if head.tag_size != keys.tag_size:
        return False
    end = head.tag + head.tag_size
    blank = datagram[: head.tag] + bytes(head.tag_size) + datagram[end:]
    return hmac.compare_digest(_tag(keys, blank), datagram[head.tag : end])


def decrypted(keys: Keys, datagram: bytes, head: Secured) -> bytes:
    """Return the plain octets of a message's encrypted part."""
    cipher = _aes(keys, head.boots, head.time, head.salt).decryptor()
    return cipher.update(datagram[head.start : head.stop]) + cipher.finalize()


def sealed(keys: Keys | None, claim: Claim, salt: bytes, plain: bytes) -> bytes:
    """Return a message: tagged if there are keys, encrypted if these include a cipher.

    ``salt`` must differ for each message of the same boots and time.
    """
    if keys is None:
        return bytes(encoded(claim, 0, b"", plain)[0])
    flags = claim.flags & REPORTABLE | AUTHENTICATED
    if keys.cipher:
        flags |= PRIVATE
        cipher = _aes(keys, claim.boots, claim.time, salt).encryptor()
        plain = tlv(OCTET_STRING, cipher.update(plain) + cipher.finalize())
    whole, place = encoded(claim._replace(flags=flags), keys.tag_size, salt if keys.cipher else b"", plain)
    whole[place : place + keys.tag_size] = _tag(keys, bytes(whole))
    return bytes(whole)


def _tag(keys: Keys, message: bytes) -> bytes:
    return hmac.digest(keys.tag, message, keys.hash)[: keys.tag_size]


def _aes(keys: Keys, boots: int, time: int, salt: bytes) -> Cipher[CFB]:
    """RFC 3826, section 3.1.2.1: the initialisation vector is boots, time and salt."""
    return Cipher(algorithms.AES(keys.cipher), CFB(boots.to_bytes(4, "big") + time.to_bytes(4, "big") + salt))
