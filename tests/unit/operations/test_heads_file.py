"""A file of signed heads: what its name, its mode and its absence mean to whoever signs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connectors.keys import signing_key
from connectors.operations.audit.signed_heads import (
    HeadsFile,
    read_bundle_file,
    read_heads,
    sign_bundle,
    write_bundle_file,
)
from connectors.operations.audit.verification import AuditBundle
from stream.errors import UsageError
from tests.unit.accounting.test_head_spelling import FIRST, SECOND


@pytest.fixture
def heads(tmp_path: Path) -> HeadsFile:
    return HeadsFile(tmp_path / "heads")


@pytest.fixture
def signer(tmp_path: Path) -> Path:
    signing_key.create(tmp_path / "signer")
    return tmp_path / "signer"


def test_a_file_that_is_missing_is_empty_and_grows_by_what_is_added(heads: HeadsFile) -> None:
    assert heads.read() == []
    heads.add(0, [FIRST])
    assert heads.read() == [FIRST]
    heads.add(1, [SECOND])
    assert heads.read() == read_heads(heads.path) == [FIRST, SECOND]


def test_everybody_reads_the_heads_and_only_their_owner_adds_to_them(heads: HeadsFile) -> None:
    before = os.umask(0)
    try:
        heads.add(0, [FIRST])
    finally:
        os.umask(before)
    assert heads.path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("kept", "first", "rule"),
    [([], False, "{}: must contain all heads signed so far"), ([FIRST], True, "because {} or a copy of it contains 1")],
)
def test_a_first_head_is_said_to_be_the_first_and_no_other_is(
    heads: HeadsFile, signer: Path, kept: list[object], first: bool, rule: str
) -> None:
    if kept:
        heads.add(0, [FIRST])
    with pytest.raises(UsageError) as refusal:
        sign_bundle(AuditBundle([], []), signer, [heads], first=first)
    assert rule.format(heads.path) in str(refusal.value)
    assert len(heads.read()) == len(kept)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for read in (read_heads, read_bundle_file):
        with pytest.raises(UsageError, match=r"heads: cannot be read \(No such file or directory\)"):
            read(tmp_path / "heads")


def test_a_bundle_is_written_once_and_read_as_it_was(tmp_path: Path) -> None:
    entry = {"site": "dbh", "sequence": 0}
    write_bundle_file(tmp_path / "books", [FIRST, SECOND], [entry])
    bundle, signed = read_bundle_file(tmp_path / "books")
    assert (bundle.entries, bundle.states_read, signed) == ([entry], False, [FIRST, SECOND])
    with pytest.raises(FileExistsError):
        write_bundle_file(tmp_path / "books", [], [])
