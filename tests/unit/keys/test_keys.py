"""Keys by day, and the files that hold them."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.keys import key_files
from stream.errors import KeyFileError
from stream.keys import ForwardKeys, LaboratoryKeys, fingerprint, key_day_of, ratchet, subkey
from stream.records import DAY, MINUTE


@pytest.fixture
def production(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=False)
    return tmp_path / "key"


@pytest.fixture
def laboratory(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "lab", laboratory=True)
    return tmp_path / "lab"


def test_a_key_day_is_the_utc_day_of_the_windows_start() -> None:
    assert key_day_of(20_000 * DAY - 5 * MINUTE) == 19_999
    assert key_day_of(20_000 * DAY) == 20_000


def test_each_day_follows_from_the_one_before_and_none_from_the_one_after() -> None:
    keys = ForwardKeys(10, bytes(32), "l", b"a")
    assert keys.noise_key(11) == ratchet(keys.noise_key(10))
    assert keys.noise_key(13) == ratchet(keys.noise_key(12))
    assert keys.from_key_day(12).noise_key(13) == keys.noise_key(13)
    with pytest.raises(KeyFileError, match="2 days before its oldest"):
        keys.from_key_day(12).noise_key(10)
    assert keys.from_key_day(12).from_key_day(10).first == 12


def test_later_days_of_a_key_are_of_the_same_installation() -> None:
    keys = ForwardKeys(10, bytes(32), "l", b"a", laboratory=True)
    assert keys.from_key_day(12) == replace(keys, first=12, key=keys.noise_key(12))


def test_days_purposes_and_roots_have_unrelated_keys() -> None:
    keys = LaboratoryKeys(bytes(32), "l", b"a")
    days = {keys.noise_key(day) for day in range(50)} | {LaboratoryKeys(b"\1" * 32, "l", b"a").noise_key(0)}
    purposes = {subkey(keys.noise_key(0), purpose) for purpose in ("noise", "coins", "commitment")}
    assert len(days | purposes) == 54


def test_a_fingerprint_tells_key_files_apart_and_stays_the_same_as_days_pass() -> None:
    keys = ForwardKeys(10, bytes(32), "l", b"a")
    others = [ForwardKeys(10, bytes(32), "m", b"a"), ForwardKeys(10, bytes(32), "l", b"b")]
    assert len({fingerprint(each) for each in (keys, *others)}) == 3
    assert fingerprint(keys.from_key_day(12)) == fingerprint(keys)
    assert len(bytes.fromhex(fingerprint(keys))) == 8


def test_a_key_file_is_private_and_never_written_over(production: Path) -> None:
    assert stat.S_IMODE(production.stat().st_mode) == 0o600
    before = production.read_bytes()
    with pytest.raises(KeyFileError, match="must not exist yet"):
        key_files.create(production, laboratory=True)
    assert production.read_bytes() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o602])
def test_a_key_file_that_others_can_reach_is_refused(production: Path, mode: int) -> None:
    production.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode 0600.*got {mode:04o}"):
        key_files.FileKeys(production)
    with pytest.raises(KeyFileError, match="mode 0600"):
        key_files.pseudonym_key(production)


def test_the_three_keys_are_unrelated_and_new_each_time(tmp_path: Path, production: Path, laboratory: Path) -> None:
    secrets = set()
    for path in (production, laboratory):
        document = json.loads(path.read_text())
        secrets |= {document["pseudonym"], document["audit"], *map(str, document["noise"].values()), document["ledger"]}
    assert len(secrets - {"None"}) == 8


def test_a_production_key_begins_with_the_first_day_asked_for(production: Path) -> None:
    keys = key_files.FileKeys(production)
    first = keys.noise_key(20_000)
    assert json.loads(production.read_text())["noise"] == {"day": 20_000, "key": first.hex()}
    assert key_files.FileKeys(production).noise_key(20_000) == first
    with pytest.raises(KeyFileError):
        key_files.FileKeys(production).noise_key(19_999)


@pytest.mark.parametrize(("day", "laboratory"), [(-1, False), (200_000, False), (20_000, True)])
def test_a_key_that_nothing_could_use_is_not_made(tmp_path: Path, day: int, laboratory: bool) -> None:
    with pytest.raises(KeyFileError, match="--first-day: must "):
        key_files.create(tmp_path / "new", laboratory=laboratory, first_day=day)
    assert not (tmp_path / "new").exists()


def test_a_production_key_steps_forward_and_never_back(production: Path) -> None:
    keys = key_files.FileKeys(production)
    gone, kept = keys.noise_key(20_000), keys.noise_key(20_001)
    keys.forget_before(20_001)
    assert keys.noise_key(20_001) == kept
    for holder in (keys, key_files.FileKeys(production)):
        with pytest.raises(KeyFileError, match="must contain the requested day"):
            holder.noise_key(20_000)
    assert gone.hex() not in production.read_text()
    assert stat.S_IMODE(production.stat().st_mode) == 0o600
    keys.forget_before(20_000)
    assert key_files.FileKeys(production).noise_key(20_001) == kept


def test_a_process_that_lags_behind_does_not_bring_a_destroyed_day_back(production: Path) -> None:
    key_files.FileKeys(production).noise_key(20_000)
    ahead, behind = key_files.FileKeys(production), key_files.FileKeys(production)
    ahead.forget_before(20_005)
    behind.forget_before(20_003)
    assert json.loads(production.read_text())["noise"]["day"] == 20_005
    assert behind.noise_key(20_005) == ahead.noise_key(20_005)


def test_two_processes_that_begin_at_once_agree_on_the_first_day(production: Path) -> None:
    one, other = key_files.FileKeys(production), key_files.FileKeys(production)
    first = one.noise_key(20_000)
    assert other.noise_key(20_001) == one.noise_key(20_001) == ratchet(first)
    assert json.loads(production.read_text())["noise"]["day"] == 20_000


def test_a_laboratory_key_keeps_every_day(laboratory: Path) -> None:
    keys = key_files.FileKeys(laboratory)
    before = keys.noise_key(20_000)
    keys.forget_before(30_000)
    assert key_files.FileKeys(laboratory).noise_key(20_000) == before
    assert keys.laboratory
    assert key_files.laboratory_keys(laboratory).noise_key(20_000) == before


def test_replaying_needs_a_laboratory_key(production: Path) -> None:
    with pytest.raises(KeyFileError, match="must be a laboratory key"):
        key_files.laboratory_keys(production)


def test_a_key_is_copied_to_workers_only_once_it_knows_its_first_day(tmp_path: Path, production: Path) -> None:
    with pytest.raises(KeyFileError, match="must have a first day before a part of it is exported"):
        key_files.export(production, "worker", tmp_path / "worker")
    key_files.FileKeys(production).noise_key(20_000)
    key_files.export(production, "worker", tmp_path / "worker")
    assert key_files.FileKeys(tmp_path / "worker").noise_key(20_001) == key_files.FileKeys(production).noise_key(20_001)


def test_an_exported_part_holds_that_part_alone(tmp_path: Path) -> None:
    production = tmp_path / "key"
    key_files.create(production, laboratory=False, first_day=20_000)
    key_files.export(production, "ingest", tmp_path / "ingest")
    key_files.export(production, "worker", tmp_path / "worker")
    assert set(json.loads((tmp_path / "ingest").read_text())) & {"noise", "audit", "pseudonym"} == {"pseudonym"}
    assert set(json.loads((tmp_path / "worker").read_text())) & {"noise", "audit", "pseudonym"} == {"noise", "audit"}
    assert key_files.pseudonym_key(tmp_path / "ingest") == key_files.pseudonym_key(production)
    with pytest.raises(KeyFileError, match="must contain the audit key"):
        key_files.FileKeys(tmp_path / "ingest")
    with pytest.raises(KeyFileError, match="must contain the pseudonym key"):
        key_files.pseudonym_key(tmp_path / "worker")
    assert stat.S_IMODE((tmp_path / "worker").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"tacet_key": 2}', '{"tacet_key": 1, "audit": "zz", "noise": {}, "ledger": "x", "laboratory": false}',
     '{"tacet_key": 1, "audit": "00", "noise": {"day": 1}, "ledger": "x", "laboratory": false}',
     *(f'{{"tacet_key": 1, "audit": "00", "noise": {{"day": {day}, "key": "00"}}, "ledger": "x", "laboratory": false}}'
       for day in ('"a"', "1.5", "true", "-1", "99999999999", "[]")),
     '{"tacet_key": 1, "audit": "00", "noise": "n", "ledger": "x", "laboratory": false}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_key_file_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(handle, text.encode())
    os.close(handle)
    with pytest.raises(KeyFileError, match="must be a key file made by 'tacet key create'") as caught:
        key_files.FileKeys(path)
    assert text not in str(caught.value) or not text
    with pytest.raises(KeyFileError, match="must"):
        key_files.export(path, "worker", tmp_path / "copy")


@pytest.mark.parametrize(("name", "why"), [("none", "No such file or directory"), ("", "Is a directory")])
def test_a_key_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, name: str, why: str) -> None:
    path = tmp_path / name
    with pytest.raises(KeyFileError) as refused:
        key_files.read_keys(path)
    assert str(refused.value) == f"{path}: key file cannot be read ({why})"


def test_a_damaged_pseudonym_key_is_refused(tmp_path: Path, production: Path) -> None:
    document = json.loads(production.read_text()) | {"pseudonym": "zz"}
    production.write_text(json.dumps(document))
    with pytest.raises(KeyFileError, match="a part of it is damaged"):
        key_files.pseudonym_key(production)


@pytest.mark.parametrize("part", ["pseudonym", "opt_out", "audit"])
def test_a_key_that_is_cut_off_is_damaged(production: Path, part: str) -> None:
    document = json.loads(production.read_text())
    production.write_text(json.dumps(document | {part: document[part][:-2]}))
    with pytest.raises(KeyFileError, match="a part of it is damaged") as caught:
        key_files.FileKeys(production)
    assert document[part][:-2] not in str(caught.value)


def test_a_file_is_rewritten_with_the_fields_that_it_had_in_their_order(tmp_path: Path) -> None:
    for part in ("whole", "ingest", "worker"):
        path = tmp_path / part
        if part == "whole":
            key_files.create(path, laboratory=False, first_day=20_000)
        else:
            key_files.export(tmp_path / "whole", part, path)  # type: ignore[arg-type]
        before = path.read_text()
        key_files.bind(path, "one")
        assert path.read_text() == before.strip().replace('"store": null', '"store": "one"')


def test_no_key_shows_itself(production: Path, laboratory: Path) -> None:
    unpinned, lab, pinned = (key_files.FileKeys(path) for path in (production, laboratory, production))
    pinned.noise_key(20_000)
    for keys in (unpinned, lab, pinned):
        stored = key_files.read_keys(keys.path)
        report = f"{keys!r} {keys.keys!r} {keys.keys!s} {stored!r} {stored!s}"
        for path in (production, laboratory):
            document = json.loads(path.read_text())
            for secret in (document["audit"], *map(str, document["noise"].values())):
                assert secret not in report
                assert repr(bytes.fromhex(secret))[2:-1] not in report if len(secret) == 64 else True


def test_a_retired_key_file_holds_no_key_and_says_for_ever_which_ledger_goes_on(production: Path) -> None:
    before = json.loads(production.read_text())
    key_files.retire(production, "l2")
    after = json.loads(production.read_text())
    assert set(after) == {"tacet_key", "laboratory", "ledger", "retired"}
    assert after["ledger"] == before["ledger"]
    assert stat.S_IMODE(production.stat().st_mode) == 0o600
    key_files.retire(production, "l3")
    assert key_files.follower(production) == "l2", "done again it changes nothing"
    with pytest.raises(KeyFileError, match="was retired and its keys are destroyed; use the key of ledger l2"):
        key_files.FileKeys(production)
