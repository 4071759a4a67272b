"""Signed heads: one follows the other, none is left out, and only their signer can make them."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from stream.accounting.audit import ChainLink, ChainWitness
from stream.accounting.signed_heads import SignedHead, check_heads, longest, parse_head, sign_head, witnesses
from stream.errors import AuditError

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(each * 32) for each in (b"k", b"o"))
PUBLIC = KEY.public_key()


def heads(count: int, key: Ed25519PrivateKey = KEY) -> list[SignedHead]:
    made: list[SignedHead] = []
    for number in range(count):
        sites = {"dbh": ChainLink(10 * number + 1, f"hash {number}")}
        made.append(sign_head(made[-1] if made else None, sites, f"2026-03-0{number + 1}T00:20:00Z", key))
    return made


def test_heads_that_follow_one_another_are_good() -> None:
    made = heads(3)
    check_heads(made, PUBLIC)
    check_heads([], PUBLIC)
    assert [head.number for head in made] == [0, 1, 2]
    assert [parse_head(head.to_bytes()) for head in made] == made
    assert list(witnesses(made[:1])) == [
        ("dbh", ChainWitness("signed head 0 of 2026-03-01T00:20:00Z", ChainLink(1, "hash 0")))
    ]


@pytest.mark.parametrize("left", [(1, 2), (0, 2), (0, 2, 1), (1,), (0, 0)])
def test_no_head_may_be_left_out_or_change_its_place(left: tuple[int, ...]) -> None:
    made = heads(3)
    with pytest.raises(AuditError, match="must be there and include the one before it"):
        check_heads([made[number] for number in left], PUBLIC)


def test_a_head_includes_the_very_one_before_it() -> None:
    """The signer signs two histories; a head of one does not stand behind a head of the other."""
    mine, other = heads(1), [sign_head(None, {"dbh": ChainLink(1, "another")}, "2026-03-01T00:20:00Z", KEY)]
    behind = sign_head(mine[0], {"dbh": ChainLink(2, "next")}, "2026-03-02T00:20:00Z", KEY)
    check_heads([*mine, behind], PUBLIC)
    with pytest.raises(AuditError, match="signed head 1 must be there and include the one before it"):
        check_heads([*other, behind], PUBLIC)
    with pytest.raises(AuditError, match="must be the same in every copy"):
        longest([mine, other])
    assert longest([mine, [*mine, behind]]) == [*mine, behind]


def test_what_another_key_has_signed_vouches_for_nothing() -> None:
    with pytest.raises(AuditError, match=r"signed head 0 .* must be signed with the key given"):
        check_heads(heads(1, OTHER), PUBLIC)
    first = heads(1)[0]
    for forged in (
        replace(first, sites={"dbh": ChainLink(1, "another")}), replace(first, time="2026-03-01T00:21:00Z"),
        replace(first, signature=""), replace(first, signature="00" * 64), replace(first, signature="no hex"),
    ):  # fmt: skip
        with pytest.raises(AuditError, match="must be signed with the key given"):
            check_heads([forged], PUBLIC)
    with pytest.raises(AuditError, match="must be signed with the key given"):
        sign_head(heads(1, OTHER)[0], {}, "2026-03-02T00:20:00Z", KEY)


def test_no_head_goes_back_in_time_or_has_fewer_entries() -> None:
    (first,) = heads(1)
    with pytest.raises(AuditError, match="the clock must have come as far as signed head 0"):
        sign_head(first, {"dbh": ChainLink(1, "hash 0")}, "2026-02-28T00:20:00Z", KEY)
    for sites in ({"dbh": ChainLink(0)}, {}):
        behind = sign_head(first, sites, "2026-03-02T00:20:00Z", KEY)
        with pytest.raises(AuditError, match="must have 1 entries of site dbh"):
            check_heads([first, behind], PUBLIC)
    at_once = sign_head(first, first.sites, first.time, KEY)
    check_heads([first, at_once], PUBLIC)
    earlier = replace(at_once, time="2026-02-28T00:20:00Z")
    signed = replace(earlier, signature=KEY.sign(earlier.signed()).hex())
    with pytest.raises(AuditError, match=r"signed head 1 .* must not be earlier than the one before it"):
        check_heads([first, signed], PUBLIC)


def test_a_line_that_says_more_than_was_signed_is_refused() -> None:
    (first,) = heads(1)
    for spoilt in (orjson.loads(first.to_bytes()) | {"besides": 1}, {}, {"head": 1, "signature": ""}):
        with pytest.raises(AuditError, match=r"must say nothing besides|must be one that 'tacet audit sign' wrote"):
            parse_head(orjson.dumps(spoilt))
