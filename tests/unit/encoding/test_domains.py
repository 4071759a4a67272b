"""Constants that enter bytes: no two are confusable, and all are in one module."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path

import pytest

from stream import domains
from stream.domains import Domain, Draw, Epoch, Label, Magic, Part, Purpose, Suffix

ROOT = Path(__file__).parents[3]
GROUPS = (Domain, Purpose, Epoch, Label, Draw, Suffix, Magic, Part)
FOLLOWED = {Purpose.DAY: " ", Purpose.DECIDE_LABEL: " ", Purpose.TUNE: "/"}
"""The purposes that something follows, and by what it is separated."""


def beginnings(values: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    return [(one, other) for one, other in permutations(values, 2) if other.startswith(one)]


def test_no_domain_and_no_magic_is_the_beginning_of_another() -> None:
    assert beginnings([each.value for each in Domain]) == []
    assert beginnings([each.value for each in Magic]) == []


def test_an_audit_entry_is_signed_over_digits_that_are_no_domain() -> None:
    """Its MAC under the audit key is over the hexadecimal hash of the entry, without a prefix."""
    assert [each for each in Domain if re.fullmatch(rb"[0-9a-f]*", each)] == []


def test_what_follows_a_purpose_makes_no_other_purpose_of_it() -> None:
    for purpose, separator in FOLLOWED.items():
        assert [each for each in Purpose if each.startswith(purpose + separator)] == []


def test_epochs_of_two_modes_have_no_common_key() -> None:
    assert beginnings([each.value + b" " for each in Epoch]) == []


def test_a_draw_ends_where_its_suffix_begins() -> None:
    assert [each for each in Draw if "/" in each] == []
    assert [each for each in Suffix if not each.startswith("/")] == []
    assert beginnings([each.value.encode() for each in Suffix]) == []


@pytest.mark.parametrize("group", GROUPS)
def test_no_value_stands_twice_in_a_group(group: type[Domain]) -> None:
    assert len({each.value for each in group}) == len(group.__members__)


def test_the_bytes_are_what_they_were() -> None:
    """A changed string is another stored form: released values, keys or states are others. It needs an entry under
    'Changes to public names and outputs' of the changelog."""
    values = sorted(f"{group.__name__} {each.value!r}" for group in GROUPS for each in group)
    assert hashlib.sha256("\n".join(values).encode()).hexdigest() == (
        "f26e597c93bc3bb603f41356fd1e0e772012d9323f155be97281a1ed6dc29581"
    )


def test_every_constant_says_what_it_separates() -> None:
    tree = ast.parse(Path(domains.__file__).read_text())
    for group in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        described = {
            target.id
            for one, after in zip(group.body, group.body[1:], strict=False)
            if isinstance(one, ast.Assign) and isinstance(after, ast.Expr)
            for target in one.targets
            if isinstance(target, ast.Name)
        }
        assert described == set(getattr(domains, group.name).__members__)


HASHING = {"sha256", "sha512", "blake2b", "shake_256", "subkey", "label", "_sponge"}


def calls(folder: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls that derive a key, hash, sign or name a draw, with their places."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and is_hashing(node.func):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def is_hashing(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id in HASHING
    if not isinstance(called, ast.Attribute):
        return False
    owner = called.value.id if isinstance(called.value, ast.Name) else None
    return called.attr in HASHING or (owner == "hmac" and called.attr in {"new", "digest"})


PLAIN = {"big", "utf-8", "surrogatepass", "md5", "sha256", "sha512"}
"""Encodings and algorithms: none of them is a domain."""
ELSEWHERE = {"open": "connectors/lab/attacks/recording.py"}
"""The order in which a laboratory opens zones at random; no key and no draw."""


def test_no_key_hash_or_label_is_made_with_a_constant_of_its_own() -> None:
    found = [
        f"{place}: {word}"
        for place, call in [*calls("stream"), *calls("connectors")]
        for word in words(call)
        if word not in PLAIN and not place.startswith(ELSEWHERE.get(word, "nowhere"))
    ]
    assert found == []


def words(call: ast.Call) -> Iterator[str]:
    """Yield the texts among the arguments that have two letters in a row."""
    for each in [*call.args, *call.keywords]:
        for node in ast.walk(each):
            value = node.value if isinstance(node, ast.Constant) else None
            text = value.decode("latin1") if isinstance(value, bytes) else value
            if isinstance(text, str) and re.search("[A-Za-z]{2}", text):
                yield text.strip(" %d/")
