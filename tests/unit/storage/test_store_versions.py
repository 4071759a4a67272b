"""A store over a change of mechanism version; stores of later formats are not touched."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from connectors.keys import key_files
from connectors.operations.audit.verification import store_bundle, verify
from connectors.operations.recovery.store import store_obstacles
from connectors.storage.embedded.reader import read_mechanisms, read_outbox, read_snapshot
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.store import FORMAT, SqliteStore
from stream.errors import UsageError
from stream.schemas import parse_record
from tests.support.later_mechanism_version import LATER, NOW, later
from tests.support.small_building import COUNTS, building, messages, people

WALK = building(releases=COUNTS)
WALKED = list(messages(people(hours=4, devices=3), WALK))
HALF = len(WALKED) // 2


def work(folder: Path, part: list[Any], *, accept: bool = False) -> None:
    with embedded(WALK, folder.parent / "key", folder, accept_policy=accept) as runner:
        for message in part:
            runner.process(message, durable=False)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Return a store of the present version that has released half of a recording."""
    key_files.create(tmp_path / "key", laboratory=False)
    work(tmp_path / "store", WALKED[:HALF])
    return tmp_path / "store"


def records(folder: Path) -> dict[str, bytes]:
    """Return all records by their ids, of which none may come twice."""
    values = [value for audience in ("facilities", "public", "board") for _, value in read_outbox(folder, audience, 0)]
    stored = {parse_record(value)["release_id"]: value for value in values}
    assert len(stored) == len(values)
    return stored


def ways(folder: Path) -> list[str]:
    return [way.do for finding in store_obstacles(folder, folder.parent / "key", WALK) for way in finding.remedies]


def test_the_next_version_continues_a_store_of_the_present_one_where_that_is_accepted(half: Path) -> None:
    before, state = records(half), read_snapshot(half)
    with later():
        assert any("'tacet run --accept-policy'" in way for way in ways(half))
        with pytest.raises(UsageError, match=f"must be {NOW}, under which this state was made, got {LATER}; --accept"):
            work(half, WALKED[HALF:])
        assert read_snapshot(half) == state
        work(half, WALKED[HALF:], accept=True)
        assert ways(half) == []
        assert read_mechanisms(half) == {NOW, LATER}
        work(half, [])
        assert verify(store_bundle(half, records=True), half, half.parent / "key").ok
    assert records(half).items() > before.items()
    with pytest.raises(UsageError, match=f"must be {NOW} to continue from, got {LATER}; 'tacet recover' lists"):
        work(half, [], accept=True)
    assert [way.split()[0] for way in ways(half)] == ["'tacet", "begin"]


def test_what_was_published_beyond_a_store_that_was_set_back_is_repeated_by_no_other_version(half: Path) -> None:
    """Its audit entries would come out equal, and its records not: an outbox that was set back too would not notice."""
    shutil.copytree(half, half.parent / "copy")
    work(half, WALKED[HALF:])
    published = records(half)
    put_back(half)
    with later():
        with pytest.raises(
            UsageError, match=f"must be {NOW}, which had a part in what was published beyond this store"
        ):
            work(half, WALKED[HALF:], accept=True)
        assert f"with mechanism version {NOW}, which made them" in [way.split(":")[0] for way in ways(half)]
    work(half, WALKED[HALF:])
    assert records(half) == published


def test_what_two_versions_have_published_beyond_a_copy_is_repeated_by_neither(half: Path) -> None:
    shutil.copytree(half, half.parent / "copy")
    with later():
        work(half, WALKED[HALF:], accept=True)
    put_back(half)
    with pytest.raises(UsageError, match=f"must be {LATER}, which had a part .* got {NOW}; .* 'tacet recover' lists"):
        work(half, WALKED[HALF:])
    assert [way.split()[0] for way in ways(half)] == ["put", "begin"]
    with later():
        with pytest.raises(UsageError, match=f"must be {NOW}, which had a part .* got {LATER}"):
            work(half, WALKED[HALF:], accept=True)
        assert not [way for way in ways(half) if "mechanism version" in way]


def test_a_store_of_a_later_format_is_refused(half: Path) -> None:
    with closing(sqlite3.connect(half / "store.sqlite")) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'format'", (str(int(FORMAT) + 1),))
    with pytest.raises(UsageError, match=f"store must be of format {FORMAT}, got {int(FORMAT) + 1}; use the version"):
        SqliteStore(half)


def put_back(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "copy", folder)
