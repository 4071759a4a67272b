"""The check of the books: chains against what remembers them, charges against what was published."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from stream.accounting.audit import Audit, ChainLink, ChainWitness, MissingRecords, by_release, compare_records
from stream.accounting.ledger import GENESIS, Entry, chain_hash
from stream.errors import AuditError

KEY = b"audit key of a test"


def chain(count: int, site: str = "dbh", key: bytes = KEY, **more: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for sequence in range(count):
        body = {
            "site": site, "sequence": sequence, "previous": made[-1]["hash"] if made else GENESIS, "audience": "a",
            "release": "r", "release_id": f"{site}/r/a/{sequence}", "window_end": f"2026-03-02T1{sequence}:00:00Z",
            "epsilon": "0.5", "nano": 500_000_000, "outcome": "released",
        } | more  # fmt: skip
        digest = chain_hash(body)
        made.append(body | {"hash": digest, "mac": hmac.new(key, digest.encode(), sha256).hexdigest()})
    return made


def link(entries: Sequence[Entry]) -> ChainLink:
    return ChainLink(len(entries), str(entries[-1]["hash"]))


def audit(*known: ChainLink, key: bytes | None = KEY) -> Audit:
    return Audit({"dbh": [ChainWitness("the state", each) for each in known]}, key)


# --- chains -----------------------------------------------------------------------------------------------


def test_a_whole_chain_is_followed_to_its_end_with_and_without_the_key() -> None:
    entries = chain(4)
    for key in (KEY, None):
        assert audit(link(entries), link(entries[:2]), key=key).chains(entries) == {"dbh": link(entries)}


def test_chains_of_two_sites_may_be_mixed() -> None:
    one, other = chain(2), chain(2, "loft")
    assert audit(link(one)).chains([one[0], other[0], other[1], one[1]]) == {"dbh": link(one), "loft": link(other)}


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_chain_that_was_cut_short_is_noticed_by_what_remembers_its_length(left: int) -> None:
    entries = chain(4)
    with pytest.raises(AuditError, match=f"entry {left} is missing; the state knows of 4 entries"):
        audit(link(entries)).chains(entries[:left])


def test_books_that_were_written_anew_are_not_those_that_are_remembered() -> None:
    entries, anew = chain(4), chain(5, nano=1)
    with pytest.raises(AuditError, match="entry 1 must be the one that the state knows"):
        audit(link(entries[:2])).chains(anew)
    with pytest.raises(AuditError, match="entry 3 must be the one that the state knows"):
        audit(link(entries)).chains(anew)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda e: [e[0], e[2]], "entry 1 must be there and follow"),
        (lambda e: [e[1], e[2]], "entry 0 must be there and follow"),
        (lambda e: [e[0], e[1] | {"nano": 0}, e[2]], "entry 1 must have the hash"),
        (lambda e: [*chain(1, key=b"another"), *e[1:]], "entry 0 must be signed with the audit key"),
        (lambda e: [e[0] | {"mac": ""}, *e[1:]], "entry 0 must be signed with the audit key"),
    ],
)
def test_the_first_entry_that_is_wrong_is_named(spoil: Any, told: str) -> None:
    with pytest.raises(AuditError, match=told):
        audit().chains(spoil(chain(3)))


def test_entries_of_an_earlier_ledger_need_no_signature_of_this_one() -> None:
    entries = chain(3, key=b"another")
    assert Audit({}, KEY, {"dbh": 3}).chains(entries) == {"dbh": link(entries)}
    with pytest.raises(AuditError, match="entry 2 must be signed"):
        Audit({}, KEY, {"dbh": 2}).chains(entries)


# --- charges and records ----------------------------------------------------------------------------------


def record(number: int, **more: Any) -> dict[str, Any]:
    return {
        "site": "dbh", "release_id": f"dbh/r/a/{number}", "audience": "a", "release": "r", "mechanism": "laplace",
        "window_end": f"2026-03-02T1{number}:00:00Z", "epsilon": "0.5", "spend": "0.5", "reason": None,
    } | more  # fmt: skip


def compared(records: Sequence[dict[str, Any]], *, unreleased: Sequence[str] = ()) -> int:
    """Return how many records were compared, of which none may be missing."""
    found = compare_records(chain(3), records, unreleased=frozenset(unreleased))
    assert found.missing == []
    return found.records


def test_every_charge_has_its_record() -> None:
    whole = [record(number) for number in range(3)]
    assert compared(whole) == 3
    assert compared([whole[0], whole[2]], unreleased=["dbh/r/a/1"]) == 2


@pytest.mark.parametrize("kept", [[], [0], [0, 2], [1, 2]])
def test_records_that_are_gone_are_missed_wherever_they_lay(kept: list[int]) -> None:
    """At its ends a topic could lose any number without a word."""
    missing = compare_records(chain(3), [record(number) for number in kept]).missing
    gone = sorted({0, 1, 2} - {*kept})
    assert [entry["release_id"] for entry in missing] == [f"dbh/r/a/{number}" for number in gone]
    (found,) = by_release(missing)
    assert found == MissingRecords(
        "dbh", "r", "a", len(gone), record(gone[0])["window_end"], record(gone[-1])["window_end"]
    )
    assert f"{len(gone)} published record(s) of release r for a are missing" in str(found)


@pytest.mark.parametrize("spend", ["0.5", "0.000000001"])
def test_every_record_that_cost_something_was_charged(spend: str) -> None:
    whole = [record(number) for number in range(3)]
    assert compared([*whole, record(7, spend="0")]) == 4
    with pytest.raises(AuditError, match="record dbh/r/a/7 must have been charged"):
        compared([*whole, record(7, spend=spend)])


@pytest.mark.parametrize("more", [{"epsilon": "0.25"}, {"spend": "0.499999999"}, {"reason": "budget"}])
def test_a_charge_says_what_its_record_says(more: dict[str, Any]) -> None:
    with pytest.raises(AuditError, match="entry 1 must charge what its record dbh/r/a/1 says"):
        compared([record(0), record(1, **more), record(2)])


@pytest.mark.parametrize(("more", "good"), [({}, True), ({"revises": "dbh/r/a/9"}, False), ({"spend": "0.1"}, False)])
def test_a_revision_revises_at_no_cost_what_was_charged(more: dict[str, Any], good: bool) -> None:
    revision = record(8, release="r-revised", revises="dbh/r/a/1", spend="0") | more
    whole = [*(record(number) for number in range(3)), revision]
    if good:
        assert compared(whole) == 3
    else:
        with pytest.raises(AuditError, match="must revise, at no cost, a record that was charged"):
            compared(whole)


def test_nothing_is_charged_twice() -> None:
    entries = chain(2)
    with pytest.raises(AuditError, match="must not charge a second time for dbh/r/a/0"):
        compare_records([*entries, entries[0]], [record(0), record(1)])
