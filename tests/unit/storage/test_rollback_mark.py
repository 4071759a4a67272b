"""The rollback mark beside the key: each hash chain's published length, which only grows."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.secrets import private_files
from connectors.storage.embedded.rollback_mark import DamagedMarkError, MarkFile, mark_path, one_run
from stream.errors import FinalityError, KeyFileError, UsageError


@pytest.fixture
def key(tmp_path: Path) -> Any:
    path = tmp_path / "key"
    path.write_text("{}")
    return path


def stores(key: Any) -> Any:
    return json.loads(key.with_name("key.mark").read_text())["stores"]


def test_a_mark_lies_beside_its_key_for_its_owner_only(key: Any) -> None:
    MarkFile(key, "s", laboratory=True).advance({"dbh": (3, "abc")})
    assert stat.S_IMODE(key.with_name("key.mark").stat().st_mode) == 0o600
    assert MarkFile(key, "s", laboratory=True).read() == {"dbh": (3, "abc")}


def test_a_mark_only_moves_forward(key: Any) -> None:
    mark = MarkFile(key, "s", laboratory=True)
    mark.advance({"dbh": (3, "abc"), "other": (1, "x")})
    mark.advance({"dbh": (2, "older"), "other": (2, "y")})
    mark.advance({"dbh": (3, "same number")})
    assert MarkFile(key, "s", laboratory=True).read() == {"dbh": (3, "abc"), "other": (2, "y")} == mark.read()


def test_a_mark_that_has_not_moved_is_not_written(key: Any) -> None:
    mark = MarkFile(key, "s", laboratory=True)
    mark.advance({"dbh": (3, "abc")})
    before = key.with_name("key.mark").stat().st_ino
    mark.advance({"dbh": (3, "abc")})
    assert key.with_name("key.mark").stat().st_ino == before


def test_stores_of_a_laboratory_key_keep_their_marks_apart_also_at_once(key: Any) -> None:
    one, other = MarkFile(key, "one", laboratory=True), MarkFile(key, "other", laboratory=True)
    one.advance({"dbh": (5, "a")})
    other.advance({"dbh": (2, "b")})
    one.advance({"dbh": (6, "c")})
    assert stores(key) == {"one": {"dbh": [6, "c"]}, "other": {"dbh": [2, "b"]}}


# --- a production key -----------------------------------------------------------------------------------


@pytest.fixture
def production(tmp_path: Path) -> Any:
    (tmp_path / "safe").mkdir()
    key_files.create(tmp_path / "safe" / "key", laboratory=False)
    return tmp_path / "safe" / "key"


def copied(key: Any, folder: Any, *, mark: bool = False) -> Any:
    folder.mkdir()
    for path in (key, mark_path(key))[: 1 + mark]:
        shutil.copy2(path, folder)
    return folder / key.name


def test_a_production_key_belongs_to_the_store_that_first_opens_it_even_before_any_release(production: Any) -> None:
    MarkFile(production, "one", laboratory=False)
    with pytest.raises(UsageError, match=r"key: this production key belongs to store one, got store other"):
        MarkFile(production, "other", laboratory=False)
    MarkFile(production, "one", laboratory=False).advance({"dbh": (1, "a")})
    assert stores(production) == {"one": {"dbh": [1, "a"]}}


@pytest.mark.parametrize("mark", [False, True])
def test_a_copy_of_a_used_key_serves_no_other_store(production: Any, tmp_path: Path, mark: Any) -> None:
    """A copied key served a second store with fresh noise, under ids that were taken."""
    MarkFile(production, "one", laboratory=False)
    copy = copied(production, tmp_path / "elsewhere", mark=mark)
    with pytest.raises(UsageError, match="belongs to store one, got store other"):
        MarkFile(copy, "other", laboratory=False)


def test_a_used_key_whose_mark_is_gone_is_refused(production: Any, tmp_path: Path) -> None:
    MarkFile(production, "one", laboratory=False).advance({"dbh": (1, "a")})
    copy = copied(production, tmp_path / "elsewhere")
    mark_path(production).unlink()
    for key in (production, copy):
        with pytest.raises(UsageError, match=r"key\.mark: must exist, because .* 'tacet recover'"):
            MarkFile(key, "one", laboratory=False)


def test_a_copy_made_before_the_first_use_cannot_be_told_from_its_original(production: Any, tmp_path: Path) -> None:
    """The limit: what two copies do afterwards, neither file can know. README, Not protected."""
    copy = copied(production, tmp_path / "elsewhere")
    MarkFile(production, "one", laboratory=False)
    MarkFile(copy, "other", laboratory=False)


def test_a_key_serves_one_home_be_it_a_store_or_a_cluster(production: Any, tmp_path: Path) -> None:
    """A second home would be a second ledger, with fresh noise for the same ids."""
    unused = copied(production, tmp_path / "elsewhere")
    MarkFile(production, "one", laboratory=False)
    with pytest.raises(KeyFileError, match="belongs to store one, got cluster c1"):
        key_files.serve(production, "c1")
    key_files.serve(unused, "c1")
    key_files.serve(unused, "c1")
    with pytest.raises(KeyFileError, match="belongs to cluster c1, got cluster c2"):
        key_files.serve(unused, "c2")
    with pytest.raises(KeyFileError, match="belongs to cluster c1, got store one"):
        MarkFile(unused, "one", laboratory=False)


def test_a_key_file_that_does_not_say_whether_it_was_used_is_refused(production: Any) -> None:
    """Taken for a new one it would serve a second store, with other noise under the same ids."""
    document = json.loads(production.read_text())
    del document["store"]
    for changed in (document, document | {"store": ""}, document | {"store": 1}):
        private_files.replace_file(production, changed)
        with pytest.raises(KeyFileError, match="a part of it is damaged"):
            MarkFile(production, "one", laboratory=False)


# --- links ----------------------------------------------------------------------------------------------


def test_a_key_behind_a_link_is_the_key_itself(production: Path, tmp_path: Path) -> None:
    """It is bound, and lets go of days, where it lies; what stayed behind could draw all noise again, and anew."""
    link = tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(production)
    keys = key_files.FileKeys(link)
    keys.noise_key(100)
    MarkFile(link, "one", laboratory=False).advance({"dbh": (3, "abc")})
    keys.forget_before(103)
    assert link.is_symlink()
    assert [path.name for path in link.parent.iterdir()] == ["link"]
    assert key_files.store_of(production) == "one"
    with pytest.raises(KeyFileError, match="must contain the requested day"):
        key_files.FileKeys(production).noise_key(102)
    for name in (link, production):
        assert MarkFile(name, "one", laboratory=False).read() == {"dbh": (3, "abc")}
        with pytest.raises(KeyFileError, match="belongs to store one"):
            MarkFile(name, "two", laboratory=False)


# --- damage ---------------------------------------------------------------------------------------------


def test_a_mark_of_a_later_version_is_refused_by_its_number_and_left_as_it_is(production: Path) -> None:
    """It is not damaged: 'tacet recover' must not write it anew."""
    MarkFile(production, "one", laboratory=False).advance({"dbh": (3, "a")})
    document = {"tacet_mark": 2, "marks": json.loads(mark_path(production).read_text())["stores"]}
    private_files.replace_file(mark_path(production), document)
    with pytest.raises(UsageError, match=r"key\.mark: must be a mark of version 1, got 2; use the version") as refused:
        MarkFile(production, "one", laboratory=False)
    assert not isinstance(refused.value, DamagedMarkError)
    assert json.loads(mark_path(production).read_text()) == document


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stores": {"s": {"dbh": 3}}}', '{"stores": 5}'])
def test_a_damaged_mark_is_not_taken_for_an_empty_one(key: Any, text: Any) -> None:
    key.with_name("key.mark").write_text(text)
    with pytest.raises(UsageError, match="must be the mark that 'tacet run' wrote"):
        MarkFile(key, "s", laboratory=True)


# --- one run, and one that moves the mark ---------------------------------------------------------------


def test_a_second_run_is_refused_and_told_who_runs(production: Path, tmp_path: Path) -> None:
    with one_run(production, tmp_path / "store", laboratory=False):
        output = rf"by one run at a time, but process {os.getpid()} has used it for store {tmp_path}/store since \S+Z;"
        with (
            pytest.raises(UsageError, match=output),
            one_run(production, tmp_path / "restored", laboratory=False),
        ):
            pass
    with one_run(production, tmp_path / "restored", laboratory=False):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"pid": "x"}', b"\xff"])
def test_a_lock_of_which_nobody_can_read_who_holds_it_is_a_lock(
    production: Path, tmp_path: Path, content: bytes
) -> None:
    with one_run(production, tmp_path / "store", laboratory=False):
        mark_path(production).with_name("key.mark.lock").write_bytes(content)
        with (
            pytest.raises(UsageError, match="but another process uses it"),
            one_run(production, tmp_path / "restored", laboratory=False),
        ):
            pass


def test_a_lock_is_its_owners_and_holds_no_secret(production: Path, tmp_path: Path) -> None:
    with one_run(production, tmp_path / "store", laboratory=False):
        lock = mark_path(production).with_name("key.mark.lock")
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        assert json.loads(lock.read_text()).keys() == {"pid", "store", "since"}


def another_mark(production: Path) -> None:
    marks = {"one": {"dbh": [4, "b"]}}
    private_files.replace_file(mark_path(production), {"tacet_mark": 1, "stores": marks, "mechanisms": {}})


def no_mark(production: Path) -> None:
    mark_path(production).unlink()


def another_lock(production: Path) -> None:
    lock = mark_path(production).with_name("key.mark.lock")
    lock.unlink()
    lock.touch()


@pytest.mark.parametrize("change", [another_mark, no_mark, another_lock])
def test_a_mark_that_was_changed_by_something_else_stops_whoever_moves_it(
    production: Path, tmp_path: Path, change: Any
) -> None:
    with one_run(production, tmp_path / "store", laboratory=False) as lock:
        mark = MarkFile(production, "one", laboratory=False, lock=lock)
        mark.advance({"dbh": (3, "a")})
        mark.check_unmoved()
        change(production)
        stored = mark_path(production).read_bytes() if mark_path(production).exists() else None
        with pytest.raises(FinalityError, match="nothing more is released"):
            mark.check_unmoved()
        with pytest.raises(FinalityError, match="nothing more is released"):
            mark.advance({"dbh": (5, "c")})
        assert stored == (mark_path(production).read_bytes() if mark_path(production).exists() else None)
