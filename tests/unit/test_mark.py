"""The mark beside the key: how far each chain has been given out; it only moves forward."""

from __future__ import annotations

import json
import stat

import pytest

from connectors.mark import MarkFile
from stream.errors import UsageError


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_text("{}")
    return path


def stores(key):
    return json.loads(key.with_name("key.mark").read_text())["stores"]


def test_a_mark_lies_beside_its_key_for_its_owner_only(key):
    MarkFile(key, "s", laboratory=True).advance({"dbh": (3, "abc")})
    assert stat.S_IMODE(key.with_name("key.mark").stat().st_mode) == 0o600
    assert MarkFile(key, "s", laboratory=True).read() == {"dbh": (3, "abc")}


def test_a_mark_only_moves_forward(key):
    mark = MarkFile(key, "s", laboratory=True)
    mark.advance({"dbh": (3, "abc"), "other": (1, "x")})
    mark.advance({"dbh": (2, "older"), "other": (2, "y")})
    mark.advance({"dbh": (3, "same number")})
    assert MarkFile(key, "s", laboratory=True).read() == {"dbh": (3, "abc"), "other": (2, "y")} == mark.read()


def test_a_mark_that_has_not_moved_is_not_written(key):
    mark = MarkFile(key, "s", laboratory=True)
    mark.advance({"dbh": (3, "abc")})
    before = key.with_name("key.mark").stat().st_ino
    mark.advance({"dbh": (3, "abc")})
    assert key.with_name("key.mark").stat().st_ino == before


def test_stores_of_a_laboratory_key_keep_their_marks_apart_also_at_once(key):
    one, other = MarkFile(key, "one", laboratory=True), MarkFile(key, "other", laboratory=True)
    one.advance({"dbh": (5, "a")})
    other.advance({"dbh": (2, "b")})
    one.advance({"dbh": (6, "c")})
    assert stores(key) == {"one": {"dbh": [6, "c"]}, "other": {"dbh": [2, "b"]}}


def test_a_production_key_belongs_to_the_store_that_first_opens_it_even_before_any_release(key):
    MarkFile(key, "one", laboratory=False)
    with pytest.raises(UsageError, match=r"key\.mark: this production key belongs to store one, got store other"):
        MarkFile(key, "other", laboratory=False)
    MarkFile(key, "one", laboratory=False).advance({"dbh": (1, "a")})
    assert stores(key) == {"one": {"dbh": [1, "a"]}}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stores": {"s": {"dbh": 3}}}', '{"stores": 5}'])
def test_a_damaged_mark_is_not_taken_for_an_empty_one(key, text):
    key.with_name("key.mark").write_text(text)
    with pytest.raises(UsageError, match="must be the mark that 'tacet run' wrote"):
        MarkFile(key, "s", laboratory=True)
