"""Spellings of addresses and names, and senders' canonical forms."""

from __future__ import annotations

import pytest

from connectors.sources.ingest.addresses import (
    LONGEST_NAME,
    access_point_name,
    address_and_name,
    address_of,
    colons,
    mac,
    parse_address,
    sender,
)

ADDRESS = bytes.fromhex("5c521e002065")


@pytest.mark.parametrize(
    "text",
    [
        "5c:52:1e:00:20:65", "5C-52-1E-00-20-65", "5c 52 1e 0 20 65", "5c:52:1e:0:20:65", "5c.52.1e.00.20.65",
        "5c_52_1e_00_20_65", "5c52.1e00.2065", "5c52:1e00:2065", "5c52-1e00-2065", "5c52 1e00 2065", "5c521e-002065",
        "5c521e.002065", "5c521e002065", "0x5c521e002065", "0X5C521E002065",
    ],
)  # fmt: skip
def test_every_spelling_gives_the_same_octets(text: str) -> None:
    assert parse_address(text.encode()) == ADDRESS
    assert address_of(f" {text}\t") == ADDRESS
    assert mac(text.encode()) == ADDRESS


@pytest.mark.parametrize(
    "text",
    [
        "", "5c:52-1e:00:20:65", "5c52.1e00-2065", "5c.52.1e.0.20.65", "5c:52:1e:00:20", "5c:52:1e:00:20:65:66",
        "5c521e00206", "5c521e0020655", "0x5c:52:1e:00:20:65", "g4:52:1e:00:20:65", "5c:52:1e:00:20:065",
        "5c52..1e00.2065", "５c:52:1e:00:20:65",
    ],
)  # fmt: skip
def test_other_texts_are_no_address(text: str) -> None:
    assert parse_address(text.encode()) is None
    assert address_of(text) is None


def test_six_octets_are_an_address_as_they_are() -> None:
    assert mac(b"lobby1") == b"lobby1"


@pytest.mark.parametrize("text", [b"5c:52:1e:00:20:65@lobby", b"lobby@5c521e002065", b'"5c521e002065@ lobby "\x00'])
def test_a_name_may_stand_beside_an_address(text: bytes) -> None:
    assert address_and_name(text) == (ADDRESS, b"lobby")


def test_a_text_without_an_address_is_a_name_of_limited_length() -> None:
    assert address_and_name(b"lobby-1") == (None, b"lobby-1")
    assert address_and_name(b"x" * LONGEST_NAME) == (None, b"x" * LONGEST_NAME)
    assert address_and_name(b"x" * (LONGEST_NAME + 1)) == (None, b"")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"lobby", "lobby"), (b"\x00 lobby \x00", "lobby"), ("Saal Ö".encode(), "Saal Ö"), (b"x" * 64, "x" * 64),
        (b"", None), (b" ", None), (b"x" * 65, None), (b"\xff", None), (b"a\nb", None), (b"a\x7fb", None),
    ],
)  # fmt: skip
def test_an_access_points_name_is_printable_and_short(content: bytes, name: str | None) -> None:
    assert access_point_name(content) == name


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("10.2.0.5", "10.2.0.5"), ("::ffff:10.2.0.5", "10.2.0.5"), ("FE80:0::1%eth0", "fe80::1"),
        ("2001:db8:0:0::1", "2001:db8::1"),
    ],
)  # fmt: skip
def test_a_sender_has_one_form(host: str, canonical: str) -> None:
    assert sender(host) == canonical


def test_a_sender_is_a_numeric_address() -> None:
    with pytest.raises(ValueError, match=r"wlc\.example\.org"):
        sender("wlc.example.org")


def test_an_address_is_shown_as_policies_have_it() -> None:
    assert colons(ADDRESS) == "5c:52:1e:00:20:65"
