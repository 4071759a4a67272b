"""The key pair that signs heads: private for its owner, public for everybody, never overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

from connectors.keys.signing_key import create, private_key, public_key, public_path
from stream.errors import KeyFileError


@pytest.fixture
def made(tmp_path: Path) -> Path:
    create(path := tmp_path / "signing.key")
    return path


def test_the_public_part_verifies_what_the_private_part_signs(made: Path) -> None:
    public_key(public_path(made)).verify(private_key(made).sign(b"head"), b"head")


def test_only_its_owner_reads_the_key_and_everybody_the_public_part(made: Path) -> None:
    assert made.stat().st_mode & 0o777 == 0o600
    assert public_path(made).stat().st_mode & 0o777 == 0o644
    made.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        private_key(made)


def test_neither_part_is_written_over(made: Path) -> None:
    before = made.read_bytes(), public_path(made).read_bytes()
    with pytest.raises(KeyFileError, match="never overwritten"):
        create(made)
    public_path(made).unlink()
    with pytest.raises(KeyFileError):
        create(made)
    assert made.read_bytes() == before[0]
    made.unlink()
    public_path(made).write_bytes(before[1])
    with pytest.raises(KeyFileError, match="never overwritten"):
        create(made)
    assert not made.exists()


def test_another_kind_of_key_is_refused_and_not_shown(tmp_path: Path, made: Path) -> None:
    rsa = generate_private_key(65537, 2048)
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    of_kinds = {
        "rsa": rsa.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
        "rsa.pub": rsa.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo),
        "text": b"a secret that is no key",
    }
    for name, content in of_kinds.items():
        (path := tmp_path / name).write_bytes(content)
        path.chmod(0o600)
        for read in (private_key, public_key):
            with pytest.raises(KeyFileError, match="made by 'tacet audit keygen'") as refused:
                read(path)
            assert "secret" not in str(refused.value)
    with pytest.raises(KeyFileError, match="must be a public key"):
        public_key(made)


def test_a_public_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot be read"):
        public_key(tmp_path / "gone.pub")
