"""The envelope around encrypted data: what opens, and what is refused."""

from __future__ import annotations

import pytest

from connectors.keys.data_keys import DataKeys
from stream.encryption import PADDED, VERSION, Kind, clear_of, is_encrypted, seal, unseal, version_of
from stream.errors import DataError, DestroyedKeyError, KeyFileError, LaterVersionError

MAGIC = b"\x89TACET"
VAULT = DataKeys(20_000, b"k" * 32)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("content", [b"", b"{}", MAGIC, bytes(range(256)) * 50])
def test_content_comes_back_as_it_was(content: bytes, compress: bool) -> None:
    data = seal(Kind.SITE, content, compress=compress)
    assert unseal(Kind.SITE, data) == content
    assert version_of(data) == VERSION
    assert not is_encrypted(data)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("clear", [b"", b'{"site":"dbh"}'])
@pytest.mark.parametrize("content", [b"", b"{}", MAGIC, bytes(range(256)) * 50])
def test_encrypted_content_comes_back_and_so_does_what_is_clear(content: bytes, clear: bytes, compress: bool) -> None:
    data = seal(Kind.SITE, content, clear=clear, compress=compress, lock=VAULT.lock(20_003))
    assert (unseal(Kind.SITE, data, VAULT), clear_of(Kind.SITE, data)) == (content, clear)
    assert version_of(data) == VERSION == 1
    assert is_encrypted(data)


def test_a_clear_part_goes_without_a_key_too() -> None:
    data = seal(Kind.OBSERVATIONS, b"rows", clear=b"head")
    assert (unseal(Kind.OBSERVATIONS, data), clear_of(Kind.OBSERVATIONS, data)) == (b"rows", b"head")
    assert not is_encrypted(data)


def test_whether_it_is_encrypted_can_be_asked_of_what_was_cut_off_anywhere() -> None:
    data = seal(Kind.SITE, b"x", lock=VAULT.lock(20_003))
    found = [is_encrypted(data[:length]) for length in range(len(data) + 1)]
    assert found == sorted(found)
    assert {*found} == {False, True}


def test_the_same_content_in_the_same_place_is_the_same_bytes_and_elsewhere_others() -> None:
    def sealed(content: bytes = b"x", clear: bytes = b"a", day: int = 20_000, kind: Kind = Kind.SITE) -> bytes:
        return seal(kind, content, clear=clear, lock=VAULT.lock(day))

    assert sealed() == sealed()
    others = {sealed(), sealed(b"y"), sealed(clear=b"b"), sealed(day=20_001), sealed(kind=Kind.OBSERVATIONS)}
    assert len({data[-PADDED:] for data in others}) == 5


@pytest.mark.parametrize(("length", "size"), [(0, 256), (252, 256), (253, 512), (4092, 4096), (4093, 4608)])
def test_the_size_of_what_is_encrypted_is_one_of_few(length: int, size: int) -> None:
    empty = len(seal(Kind.RESTRICTED, b"", lock=VAULT.lock(0))) - PADDED
    assert len(seal(Kind.RESTRICTED, bytes(length), lock=VAULT.lock(0))) - empty == size


@pytest.mark.parametrize("content", [b"", b'{"v":1}', b'{"parts":[]}\n', MAGIC])
def test_bytes_without_an_envelope_are_refused(content: bytes) -> None:
    assert version_of(content) is None
    for read in (unseal, clear_of):
        with pytest.raises(DataError, match="snapshot: must be a complete envelope of its kind"):
            read(Kind.SNAPSHOT, content)


def test_the_form_is_pinned() -> None:
    assert seal(Kind.MESSAGE, b"{}") == MAGIC + b"\x01\x03\x00\x00\x00\x00\x00\x00\x00{}"
    assert seal(Kind.OBSERVATIONS, b"r", clear=b"c") == MAGIC + b"\x01\x05\x00\x00\x00\x00\x00\x01c\x00r"
    encrypted = seal(Kind.OBSERVATIONS, b"r", clear=b"c", lock=VAULT.lock(20_000))
    key_id = VAULT.lock(20_000).key_id
    assert encrypted[:-PADDED].startswith(MAGIC + b"\x01\x05\x00\x0c" + key_id + b"\x00\x00\x00\x01c\x0c")
    assert encrypted[-36:].hex() == "256672d5d768aeeae76a86e018348a06dfc3e027844d9c423dfe253b9348a2adf1812166"


def test_a_version_to_come_is_refused_by_number() -> None:
    with pytest.raises(LaterVersionError, match="site: must be of version 1, got version 2"):
        unseal(Kind.SITE, MAGIC + b"\x02\x02\x00\x00\x00x")


def test_encrypted_content_needs_the_key_of_its_day() -> None:
    data = seal(Kind.MESSAGE, b"{}", clear=b"c", lock=VAULT.lock(20_004))
    with pytest.raises(KeyFileError, match="message: is encrypted; give a key file"):
        unseal(Kind.MESSAGE, data)
    with pytest.raises(KeyFileError, match=r"encrypted, got another; .* after 'tacet key retire' those of the new one"):
        unseal(Kind.MESSAGE, data, DataKeys(20_000, b"o" * 32))
    later = DataKeys(20_000, b"k" * 32)
    later.forget_before(20_004)
    assert unseal(Kind.MESSAGE, data, later) == b"{}"
    later.forget_before(20_006)
    with pytest.raises(DestroyedKeyError, match="2 days before its oldest"):
        unseal(Kind.MESSAGE, data, later)


def test_no_bit_can_be_changed_and_nothing_cut_off_or_added() -> None:
    data = seal(Kind.OBSERVATIONS, b"rows", clear=b"whose", lock=VAULT.lock(20_000))
    for place in range(len(MAGIC), len(data)):
        for bit in (1, 128):
            flipped = data[:place] + bytes((data[place] ^ bit,)) + data[place + 1 :]
            with pytest.raises((DataError, KeyFileError)):
                unseal(Kind.OBSERVATIONS, flipped, VAULT)
    for end in range(len(MAGIC) + 1, len(data)):
        with pytest.raises((DataError, KeyFileError)):
            unseal(Kind.OBSERVATIONS, data[:end], VAULT)
    with pytest.raises(DataError, match="damaged, or was copied"):
        unseal(Kind.OBSERVATIONS, data + b"\0", VAULT)


def test_content_that_is_moved_under_another_clear_part_does_not_open() -> None:
    mine, other = (seal(Kind.SITE, b"people", clear=clear, lock=VAULT.lock(20_000)) for clear in (b"one", b"two"))
    place = mine.index(b"one") + 3
    with pytest.raises(DataError, match="damaged, or was copied"):
        unseal(Kind.SITE, other[:place] + mine[place:], VAULT)


def test_what_comes_from_outside_cannot_swell() -> None:
    bomb = seal(Kind.SITE, bytes(1 << 24), clear=b"c", compress=True)
    with pytest.raises(DataError, match="observations: must be a complete envelope"):
        unseal(Kind.OBSERVATIONS, bomb[:7] + bytes((Kind.OBSERVATIONS,)) + bomb[8:])


@pytest.mark.parametrize(
    "data",
    [
        seal(Kind.MESSAGE, b"{}"),
        MAGIC + b"\x01",
        MAGIC + b"\x01\x02\x00\x00",
        MAGIC + b"\x01\x02\x00\x00\x00\x00\x00\x00\x09",
        MAGIC + b"\x01\x02\x07\x00\x00\x00\x00\x00\x00x",
        MAGIC + b"\x01\x02\x00\x02k1\x00\x00\x00\x00\x00xyz",
        MAGIC + b"\x01\x02\x00\x00\x00\x00\x00\x00\x01nxyz",
        MAGIC + b"\x01\x02\x01\x00\x00\x00\x00\x00\x00not compressed",
        MAGIC + b"\x01\x02\x00\x00\x00\x00\xff\xffx",
    ],
)
def test_another_kind_and_damage_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="site: must be a complete envelope of its kind"):
        unseal(Kind.SITE, data)
