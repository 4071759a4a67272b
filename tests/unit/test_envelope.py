"""The envelope around stored data: what comes back, what of the version before, and what is refused."""

from __future__ import annotations

import pytest

from stream.envelope import VERSION, Kind, seal, unseal, version_of
from stream.errors import DataError

MAGIC = b"\x89TACET"


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("content", [b"", b"{}", MAGIC, bytes(range(256)) * 50])
def test_content_comes_back_as_it_was(content: bytes, compress: bool) -> None:
    data = seal(Kind.SITE, content, compress=compress)
    assert unseal(Kind.SITE, data) == content
    assert version_of(data) == VERSION == 2


def test_bytes_without_an_envelope_are_of_version_1_and_their_own_content() -> None:
    for content in (b"", b'{"v":1}', b'{"parts":[]}\n'):
        assert version_of(content) == 1
        assert unseal(Kind.SNAPSHOT, content) == content


def test_the_form_is_pinned() -> None:
    assert seal(Kind.MESSAGE, b"{}") == MAGIC + b"\x02\x03\x00\x00\x00{}"


def test_a_version_to_come_is_refused_by_number() -> None:
    with pytest.raises(DataError, match="site: must be of version 2 or 1, got version 3"):
        unseal(Kind.SITE, MAGIC + b"\x03\x02\x00\x00\x00x")


def test_encrypted_content_is_refused() -> None:
    with pytest.raises(DataError, match="message: must not be encrypted"):
        unseal(Kind.MESSAGE, MAGIC + b"\x02\x03\x00\x02k1\x01nxyz")


@pytest.mark.parametrize(
    "data",
    [
        seal(Kind.MESSAGE, b"{}"),
        MAGIC + b"\x02",
        MAGIC + b"\x02\x02\x00\x00",
        MAGIC + b"\x02\x02\x00\x00\x09",
        MAGIC + b"\x02\x02\x07\x00\x00x",
        MAGIC + b"\x02\x02\x01\x00\x00not compressed",
    ],
)
def test_another_kind_and_damage_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="site: must be a whole envelope of its kind"):
        unseal(Kind.SITE, data)
