"""Names that building systems give zones: their form, never an address, and outside every promise."""

from __future__ import annotations

import tomllib

import pytest

from stream.errors import PolicyError
from stream.policy.document import PolicyDocument
from stream.release.validation import Policy, load_policy, validate
from tests.support.small_building import policy_text

NAMES = (
    'name = "Hall, ground floor", brick = "brick:Lobby", rec = "rec:Lobby", bacnet = "AV-2011", '
    'ifc = "2O2Fr$t4X7Zf8NOew3FL9r"'
)


def policy(metadata: str | None) -> Policy:
    text = policy_text()
    if metadata is not None:
        text = text.replace('id = "a"', f'id = "a"\nmetadata = {{ {metadata} }}', 1)
        assert tomllib.loads(text) != tomllib.loads(policy_text())
    return load_policy(text)


def test_names_are_kept_as_they_are_given() -> None:
    assert policy(NAMES).site["dbh"].zones[0].metadata == tomllib.loads(f"x = {{ {NAMES} }}")["x"]
    assert policy(None).site["dbh"].zones[0].metadata == {}


def test_names_are_no_part_of_the_policys_version_nor_of_what_is_kept_with_the_books() -> None:
    plain, named = policy(None), policy(NAMES)
    assert named.version == plain.version
    assert named.document() == plain.document()
    assert validate(PolicyDocument.from_document(named.document())) == plain


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ('brick = "Conference Room"', "brick must be a class such as 'brick:Conference_Room'"),
        ('rec = "brick:Room"', "rec must be a class"),
        ('bacnet = "2011"', "bacnet must be an object such as 'AV-2011'"),
        ('bacnet = "AV-4194303"', "at most 4194302"),
        ('Brick = "brick:Room"', "lower-case"),
        ('name = ""', "1 to 200 printable characters"),
        ('name = "a\\u001bb"', "1 to 200 printable characters"),
    ],
)
def test_an_entry_of_another_form_is_refused_with_its_rule(entry: str, rule: str) -> None:
    with pytest.raises(PolicyError) as reported:
        policy(entry)
    assert rule in str(reported.value)


@pytest.mark.parametrize(
    "address",
    ["02:00:00:00:0e:01", "02-00-00-00-0E-01", "0200.0000.0e01", "the AP is 020000000e01", "10.2.0.5",
     "at 10.2.0.5:161", "10.2.0.0/16", "fe80::1", "[fe80::1]:80"],
)  # fmt: skip
def test_an_address_is_refused_wherever_it_stands(address: str) -> None:
    with pytest.raises(PolicyError, match="must contain no address"):
        policy(f'name = "{address}"')


@pytest.mark.parametrize("name", ["Room 2.011", "10:30 lab", "ABCDEF room", "Level 1.2.3", "2001-2002"])
def test_a_name_that_is_no_address_is_taken(name: str) -> None:
    assert policy(f'name = "{name}"').site["dbh"].zones[0].metadata == {"name": name}
