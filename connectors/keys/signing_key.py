"""The key pair that signs audit heads, in two files.

Both are PEM (PKCS #8 and SubjectPublicKeyInfo), so that other programs can read them. The key belongs to the party that
monitors the engine, never to the engine: its owner could sign another ledger and audit log.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from connectors.secrets.private_files import read_private, write_new_bytes
from stream.errors import KeyFileError


def public_path(path: Path) -> Path:
    """Return the path of a new key's public part."""
    return path.with_name(path.name + ".pub")


def create(path: Path) -> None:
    """Write a new key and its public part; KeyFileError if either exists."""
    if public_path(path).exists():
        msg = f"{public_path(path)}: must not exist yet; a public key is never overwritten"
        raise KeyFileError(msg)
    key = Ed25519PrivateKey.generate()
    write_new_bytes(
        path,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_new_bytes(public_path(path), public)
    public_path(path).chmod(0o644)


def private_key(path: Path) -> Ed25519PrivateKey:
    """Return the signing key; KeyFileError if the file is accessible to others or invalid."""
    content = read_private(path, "a signing key")
    try:
        key = serialization.load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        msg = f"{path}: must be a signing key made by 'tacet audit keygen' (Ed25519, PEM)"
        raise KeyFileError(msg)
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Return the key that verifies signatures; KeyFileError if the file is invalid."""
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise KeyFileError(msg) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        msg = f"{path}: must be a public key made by 'tacet audit keygen' (Ed25519, PEM)"
        raise KeyFileError(msg)
    return key
