"""Data keys: one a day, in files of ingest and worker, destroyed with their day."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import aead

from connectors.cli.ingest import FORGET_AFTER, let_go
from connectors.keys import key_files
from connectors.keys.data_keys import DataKeys
from stream.errors import DataError, KeyFileError, UsageError
from stream.keys import ratchet
from stream.records import DAY


@pytest.fixture
def production(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=False, first_day=20_000)
    return tmp_path / "key"


def data_of(path: Path) -> dict[str, object]:
    part: dict[str, object] = json.loads(path.read_text())["data"]
    return part


def test_each_days_key_follows_from_the_one_before_however_they_are_asked_for() -> None:
    keys = DataKeys(10, bytes(32))
    days = [14, 11, 10, 13, 12, 14]
    assert [keys.key_of(day) for day in days] == [DataKeys(10, bytes(32)).key_of(day) for day in days]
    assert keys.key_of(11) == ratchet(bytes(32))
    assert keys.key_of(14) == ratchet(keys.key_of(13))


def test_an_earlier_day_than_the_oldest_is_encrypted_under_the_oldest() -> None:
    keys = DataKeys(10, bytes(32))
    assert keys.lock(3).key_id == keys.lock(10).key_id != keys.lock(11).key_id


def test_a_forged_day_costs_no_more_than_the_steps_to_the_last_one() -> None:
    with pytest.raises(DataError, match="must name the day of its key"):
        DataKeys(0, bytes(32)).open(b"\xff" * 12, bytes(12), b"", b"")
    assert DataKeys(104_000, bytes(32)).lock(1 << 60).key_id == DataKeys(104_000, bytes(32)).lock(104_249).key_id


def test_only_a_few_days_are_kept_at_hand_and_none_that_is_forgotten() -> None:
    keys = DataKeys(10, bytes(32))
    first = keys.lock(10)
    for day in range(10, 60):
        keys.lock(day)
    assert keys.lock(10).key_id == first.key_id
    keys.forget_before(59)
    stored = [*keys._keys.values(), *(lock.key_id for lock in keys._locks.values())]
    assert DataKeys(10, bytes(32)).key_of(58) not in stored
    assert keys.lock(10).key_id == DataKeys(10, bytes(32)).lock(59).key_id
    assert "59" in repr(keys)
    assert keys.key_of(59).hex() not in repr(keys)


def test_ingest_and_worker_get_the_same_data_key(tmp_path: Path, production: Path) -> None:
    key_files.export(production, "ingest", tmp_path / "ingest")
    key_files.export(production, "worker", tmp_path / "worker")
    sealed = key_files.IngestKeys(tmp_path / "ingest").vault.lock(20_002).encrypt(bytes(12), b"rows", b"whose")
    key_id = key_files.IngestKeys(tmp_path / "ingest").vault.lock(20_002).key_id
    assert key_files.FileKeys(tmp_path / "worker").vault.open(key_id, bytes(12), sealed, b"whose") == b"rows"


def test_the_worker_lets_go_of_the_data_key_with_the_noise_key(production: Path) -> None:
    keys = key_files.FileKeys(production)
    keys.noise_key(20_000)
    gone = keys.vault.key_of(20_000)
    keys.forget_before(20_003)
    assert keys.vault.first == key_files.FileKeys(production).vault.first == data_of(production)["day"] == 20_003
    assert gone.hex() not in production.read_text()


def test_a_first_noise_day_leaves_the_data_key_where_it_is(tmp_path: Path) -> None:
    key_files.create(tmp_path / "key", laboratory=False)
    key_files.FileKeys(tmp_path / "key").noise_key(20_000)
    assert data_of(tmp_path / "key")["day"] == 0


def test_an_ingest_lets_go_of_days_in_a_file_of_its_own_and_in_no_other(tmp_path: Path, production: Path) -> None:
    key_files.export(production, "ingest", tmp_path / "ingest")
    for path, day in ((tmp_path / "ingest", 20_005), (production, 20_000)):
        keys = key_files.IngestKeys(path)
        keys.forget_before(20_005)
        keys.forget_before(20_004)
        assert data_of(path)["day"] == day
    assert (tmp_path / "ingest").stat().st_mode & 0o777 == 0o600


def test_a_key_file_that_cannot_be_written_is_told_of_and_tried_again(
    tmp_path: Path, production: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_files.export(production, "ingest", tmp_path / "ingest")
    keys, reported = key_files.IngestKeys(tmp_path / "ingest"), tmp_path / "told"

    def refuse(path: Path, document: object) -> None:
        del document
        reported.touch()
        raise PermissionError(13, "Permission denied", str(path))

    now = 20_004 * DAY + FORGET_AFTER
    with monkeypatch.context() as patch:
        patch.setattr(key_files, "replace_file", refuse)
        let_go(keys, now)
    assert reported.exists()
    assert (keys.vault.first, data_of(tmp_path / "ingest")["day"]) == (20_000, 20_000)
    let_go(keys, now - 1)
    assert keys.vault.first == 20_003
    let_go(keys, now)
    assert (keys.vault.first, data_of(tmp_path / "ingest")["day"]) == (20_004, 20_004)


def test_a_file_without_a_data_key_is_refused(production: Path) -> None:
    document = json.loads(production.read_text())
    del document["data"]
    production.write_text(json.dumps(document))
    for read in (key_files.FileKeys, key_files.IngestKeys):
        with pytest.raises(KeyFileError, match="must contain the data key, which this command needs"):
            read(production)


@pytest.mark.parametrize(
    "part", [{}, [], {"day": -1, "key": "00"}, {"day": True, "key": "00"}, {"day": 1, "key": "zz"}]
)
def test_a_damaged_data_key_is_refused(production: Path, part: object) -> None:
    production.write_text(json.dumps(json.loads(production.read_text()) | {"data": part}))
    with pytest.raises(KeyFileError, match="a part of it is damaged"):
        key_files.FileKeys(production)


def test_a_library_without_the_cipher_is_refused_before_anything_is_stored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, production: Path
) -> None:
    monkeypatch.delattr(aead, "AESGCMSIV")
    uses: list[Callable[[], object]] = [
        lambda: key_files.FileKeys(production), lambda: key_files.IngestKeys(production),
        lambda: key_files.create(tmp_path / "new", laboratory=False),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(UsageError, match="cryptography: must have AES-GCM-SIV, which OpenSSL has from 3"):
            use()
    assert not (tmp_path / "new").exists()
