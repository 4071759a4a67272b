"""Opt-outs: what the file says, from when an entry counts, and which files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner

from connectors.cli.main import tacet
from connectors.keys import key_files, opt_outs
from connectors.keys.opt_outs import OptOutFile
from connectors.runtime.clock import wall_clock
from connectors.sources.live import opt_out_file
from connectors.sources.recorded import refuse_opt_outs
from stream.errors import KeyFileError, UsageError
from stream.records import DAY, HOUR, MINUTE
from tests.support.small_building import building

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
MIDNIGHT = 20_000 * DAY
NOON = MIDNIGHT + 12 * HOUR
ANNE, BERT = bytes.fromhex("3c0000000001"), bytes.fromhex("3c0000000002")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "opt-outs"
    opt_outs.add(made, KEY, [ANNE], NOON)
    return made


def starts(path: Path, address: bytes = ANNE) -> list[bool]:
    """Whether the days of noon, and the three next ones, leave a device out."""
    file = OptOutFile(path, KEY)
    return [file.leaves_out(address, MIDNIGHT + day * DAY) for day in range(4)]


def test_an_opt_out_takes_effect_with_the_next_day_and_for_its_device_alone(path: Path) -> None:
    assert starts(path) == [False, True, True, True]
    assert starts(path, BERT) == [False] * 4


def test_an_opt_out_at_a_days_very_start_counts_for_that_day(path: Path) -> None:
    opt_outs.add(path, KEY, [BERT], MIDNIGHT)
    assert starts(path, BERT) == [True] * 4


def test_a_repeated_opt_out_keeps_its_beginning(path: Path) -> None:
    opt_outs.add(path, KEY, [ANNE], NOON + DAY)
    assert starts(path) == [False, True, True, True]


def test_a_removal_takes_effect_with_the_next_day_and_can_be_taken_back(path: Path) -> None:
    opt_outs.remove(path, KEY, [ANNE, BERT], NOON + DAY)
    assert starts(path) == [False, True, False, False]
    opt_outs.add(path, KEY, [ANNE], NOON + DAY + MINUTE)
    assert starts(path) == [False, True, True, True]


def test_a_removed_entry_is_deleted_when_its_last_day_is_long_over(path: Path) -> None:
    opt_outs.remove(path, KEY, [ANNE], NOON + DAY)
    opt_outs.add(path, KEY, [BERT], NOON + 3 * DAY)
    assert len(json.loads(path.read_text())["entries"]) == 2
    for after, entries in ((8 * DAY - 1, 2), (8 * DAY, 1)):
        opt_outs.add(path, KEY, [BERT], NOON + after)
        assert len(json.loads(path.read_text())["entries"]) == entries


def test_of_addresses_that_were_looked_for_only_so_many_are_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opt_outs, "_CACHED", 2)
    content = OptOutFile(path, KEY).content
    for number in range(10):
        content.leaves_out(bytes([number]) * 6, NOON)
        assert len(content._found) <= 2


def test_the_file_is_private_and_contains_no_address(path: Path) -> None:
    content = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert ANNE.hex() not in content
    assert KEY.hex() not in content
    assert "3c" not in repr(OptOutFile(path, KEY).content)


def test_digests_under_two_keys_have_nothing_in_common(path: Path, tmp_path: Path) -> None:
    opt_outs.add(tmp_path / "other", OTHER_KEY, [ANNE], NOON)
    first, second = (json.loads(each.read_text()) for each in (path, tmp_path / "other"))
    assert first["key"] != second["key"]
    assert not set(first["entries"]) & set(second["entries"])


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document | {"tacet_opt_outs": 2},
        lambda document: document | {"key": 7},
        lambda document: document | {"entries": []},
        lambda document: document | {"entries": {"ab": [1, None]}},
        lambda document: document | {"entries": {"ab" * 16: [1]}},
        lambda document: document | {"entries": {"ab" * 16: [1, None, None]}},
        lambda document: document | {"entries": {"ab" * 16: [True, None]}},
        lambda document: document | {"entries": {"ab" * 16: [None, None]}},
        lambda document: document | {"entries": {"ab" * 16: [2, 1]}},
        lambda document: document | {"entries": {"ab" * 16: [-1, 1]}},
        lambda document: [document],
    ],
)
def test_a_damaged_file_is_refused_without_its_content(path: Path, change: Any) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(KeyFileError, match="must be a file made by 'tacet optout add'") as refused:
        OptOutFile(path, KEY)
    assert "abab" not in str(refused.value)


def test_a_missing_file_one_for_others_and_one_of_another_key_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="must be a readable file of opt-outs"):
        OptOutFile(tmp_path / "none", KEY)
    with pytest.raises(KeyFileError, match="under the opt-out key of this key file"):
        OptOutFile(path, OTHER_KEY)
    with pytest.raises(KeyFileError, match="under the opt-out key of this key file"):
        opt_outs.add(path, OTHER_KEY, [BERT], NOON)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="readable by its owner only"):
        OptOutFile(path, KEY)


def test_a_change_is_read_and_leaves_no_trace_in_the_log(path: Path) -> None:
    file = OptOutFile(path, KEY)
    assert not file.leaves_out(BERT, MIDNIGHT + DAY)
    with structlog.testing.capture_logs() as lines:
        opt_outs.add(path, KEY, [BERT], NOON)
        assert file.renew()
    assert file.leaves_out(BERT, MIDNIGHT + DAY)
    assert lines == []


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_opt_outs_stay_in_effect_while_the_file_is_missing_or_damaged(path: Path, content: bytes | None) -> None:
    file = OptOutFile(path, KEY)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with structlog.testing.capture_logs() as lines:
        assert not file.renew()
    assert file.leaves_out(ANNE, MIDNIGHT + DAY)
    assert [line["log_level"] for line in lines] == ["warning"]


# --- the key --------------------------------------------------------------------------------------------


def test_an_ingest_gets_the_opt_out_key_and_a_worker_does_not(tmp_path: Path) -> None:
    whole, of_ingest, of_worker = (tmp_path / name for name in ("key", "ingest", "worker"))
    key_files.create(whole, laboratory=False, first_day=20_000)
    key_files.export(whole, "ingest", of_ingest)
    key_files.export(whole, "worker", of_worker)
    assert key_files.opt_out_key(whole) == key_files.opt_out_key(of_ingest)
    with pytest.raises(KeyFileError, match="must contain the opt_out key"):
        key_files.opt_out_key(of_worker)


def test_a_new_key_file_can_take_over_the_list_of_an_earlier_one(path: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    key_files.create(first, laboratory=False)
    key_files.create(second, laboratory=False, opt_out=key_files.opt_out_key(first))
    key_files.create(third, laboratory=False)
    assert key_files.opt_out_key(second) == key_files.opt_out_key(first) != key_files.opt_out_key(third)


@pytest.mark.parametrize("key", ["zz", 7, "00" * 31])
def test_a_damaged_opt_out_key_is_refused(tmp_path: Path, key: object) -> None:
    path = tmp_path / "key"
    key_files.create(path, laboratory=True)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"opt_out": key}))
    with pytest.raises(KeyFileError, match="a part of it is damaged"):
        key_files.opt_out_key(path)


# --- the verb, and which ingests need a file ------------------------------------------------------------


def run_verb(tmp_path: Path, verb: str, addresses: str, **env: str) -> Any:
    words = ["optout", verb, "--key-file", str(tmp_path / "key")]
    return CliRunner().invoke(tacet, [*words, *(["--file", str(tmp_path / "list")] if not env else [])], addresses, env)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=True)
    return tmp_path / "key"


def test_addresses_come_from_standard_input_and_the_answer_tells_nothing(key_file: Path, tmp_path: Path) -> None:
    answers = [run_verb(tmp_path, "add", "3C-00-00-00-00-01\n\n3c00.0000.0002\n") for _ in range(2)]
    assert [answer.exit_code for answer in answers] == [0, 0]
    assert answers[0].output == answers[1].output == "added: takes effect with the next day\n"
    file = OptOutFile(tmp_path / "list", key_files.opt_out_key(key_file))
    tomorrow = (wall_clock() // DAY + 1) * DAY
    assert file.leaves_out(ANNE, tomorrow)
    assert file.leaves_out(BERT, tomorrow)
    known, unknown = (run_verb(tmp_path, "remove", text) for text in ("3c:00:00:00:00:01", "3c:00:00:00:00:09"))
    assert known.output == unknown.output == "removed: takes effect with the next day\n"
    assert not OptOutFile(tmp_path / "list", key_files.opt_out_key(key_file)).leaves_out(ANNE, tomorrow)


def test_the_environment_names_the_file_and_a_randomised_address_is_warned_of(key_file: Path, tmp_path: Path) -> None:
    answer = run_verb(tmp_path, "add", "3e:00:00:00:00:01", TACET_OPT_OUTS_FILE=str(tmp_path / "list"))
    assert "lapses when the device changes it" in answer.output
    assert OptOutFile(tmp_path / "list", key_files.opt_out_key(key_file))


@pytest.mark.parametrize("text", ["nobody", "01:00:5e:00:00:01", "00:00:00:00:00:00", "", "\n"])
def test_a_line_that_is_no_devices_address_is_refused_and_nothing_is_written(
    key_file: Path, tmp_path: Path, text: str
) -> None:
    answer = run_verb(tmp_path, "add", f"{text}\n")
    assert isinstance(answer.exception, UsageError | SystemExit)
    assert not text.strip() or text not in str(answer.exception)
    assert not (tmp_path / "list").exists()


def test_a_site_with_a_list_needs_a_file_and_a_file_needs_such_a_site(key_file: Path, path: Path) -> None:
    plain, listed = building(), building(site='opt_out = "list"\n')
    assert opt_out_file(plain, None, key_file) is None
    with pytest.raises(UsageError, match="must name the file of opt-outs"):
        opt_out_file(listed, None, key_file)
    with pytest.raises(UsageError, match="must not be set while no site"):
        opt_out_file(plain, path, key_file)
    with pytest.raises(KeyFileError, match="under the opt-out key of this key file"):
        opt_out_file(listed, path, key_file)
    opt_outs.add(path.with_name("list"), key_files.opt_out_key(key_file), [ANNE], NOON)
    assert opt_out_file(listed, path.with_name("list"), key_file) is not None
    refuse_opt_outs(plain)
    with pytest.raises(UsageError, match="must have opt_out = 'none' to release a recording"):
        refuse_opt_outs(listed)


def test_at_their_defaults_both_keys_are_left_out_of_the_policys_document() -> None:
    plain, given = building(), building(site='opt_out = "none"\nrandomised = "count"\n')
    assert plain.version == given.version
    assert len({plain.version, *(building(site=text).version for text in OTHERWISE)}) == 1 + len(OTHERWISE)


OTHERWISE = ('opt_out = "list"\n', 'randomised = "ignore"\n')
