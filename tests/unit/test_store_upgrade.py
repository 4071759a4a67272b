"""A store of the version before: what is read as it is, and what needs ``tacet store upgrade``."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.operations.reports.audit import store_books, verify
from connectors.operations.reports.recovery import store_findings
from connectors.operations.reports.status import describe
from connectors.secrets.private_files import private_folder, replace_file
from connectors.storage.embedded.reader import read_outbox, read_policies, read_snapshot, read_topic
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.store import SqliteStore
from stream.engine.snapshot import open_snapshot, seal_site, seal_snapshot, upgraded
from stream.errors import KeyFileError, UsageError
from stream.release.validation import load_policy
from stream.runners.embedded import Embedded
from stream.schemas import AUDIT, OCCUPANCY, parse_record
from tests.chains import verify_chain
from tests.core_ground import COUNTS, building, messages, people
from tests.later_version import LATER, NOW, later

FIXTURE: dict[str, Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "store_1.json").read_text())
POLICY = load_policy(FIXTURE["policy"])
LOG = list(messages(people(hours=1.5, devices=3), POLICY))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a store of format 1, beside its key and mark, as the code of then left it when it was killed."""
    folder = tmp_path / "store"
    private_folder(private_folder(folder) / "private")
    for name, statements in FIXTURE["files"].items():
        connection = sqlite3.connect(folder / name)
        connection.executescript("\n".join(statements))
        connection.close()
        (folder / name).chmod(0o600)
    replace_file(tmp_path / "key", FIXTURE["key"])
    replace_file(tmp_path / "key.mark", FIXTURE["mark"])
    return folder


def go_on(folder: Path) -> None:
    renew_key(folder)
    with embedded(POLICY, folder.parent / "key", folder) as runner:
        take_rest(runner)


def renew_key(folder: Path) -> Path:
    """Give a key of then its data key."""
    path = folder.parent / "key"
    if key_files.FileKeys(path).data is None:
        key_files.upgrade(path)
    return path


def take_rest(runner: Embedded) -> None:
    for message in LOG:  # what was taken before is known by its session and sequence
        runner.take(message)


def upgrade(folder: Path) -> bool:
    store = SqliteStore(folder)
    try:
        return store.upgrade()
    finally:
        store.close()


def audit(folder: Path) -> list[dict[str, Any]]:
    return [parse_record(value) for value in read_topic(folder, AUDIT)]


def test_records_and_books_of_an_old_store_are_read_as_they_are(old: Any) -> None:
    assert len(audit(old)) == 20
    assert [parse_record(value)["site"] for value in read_topic(old, OCCUPANCY)] == ["dbh"] * 4
    assert read_policies(old) == []


def test_where_an_old_store_stands_is_told(old: Any) -> None:
    snapshot, _ = read_snapshot(old)
    assert snapshot is not None
    report = describe(snapshot, POLICY)
    assert report["policy_version"] == POLICY.version
    assert report["sites"]["dbh"]["ledger_entries"] == 20
    assert report["sites"]["dbh"]["last_window"] == "2026-03-03T05:00:00Z"


def test_an_old_store_is_refused_with_what_to_do_and_left_as_it_was(old: Any) -> None:
    before = read_snapshot(old)
    with pytest.raises(UsageError, match=r"mechanism version: must be 1, .* got 3; 'tacet store upgrade'"):
        go_on(old)
    assert read_snapshot(old) == before


def test_a_key_of_then_is_refused_until_it_has_a_data_key(old: Any) -> None:
    upgrade(old)
    before = read_snapshot(old)
    with (
        pytest.raises(KeyFileError, match="must hold the data key, which files made before have not"),
        embedded(POLICY, old.parent / "key", old),
    ):
        pass
    assert read_snapshot(old) == before
    told = [finding.ways[0].do for finding in store_findings(old, old.parent / "key", POLICY)]
    assert [do for do in told if do.startswith("'tacet key upgrade ")]
    renew_key(old)
    told = [finding.ways[0].do for finding in store_findings(old, old.parent / "key", POLICY)]
    assert not [do for do in told if do.startswith("'tacet key upgrade ")]


def test_what_an_old_store_held_in_clear_is_encrypted_from_the_first_commit_on(old: Any) -> None:
    snapshot, _ = read_snapshot(old)
    assert snapshot is not None
    devices = {device for device, *_ in orjson.loads(open_snapshot(snapshot)[1]["dbh"]["sense"])["current"]}
    assert devices
    upgrade(old)
    go_on(old)
    kept = b"".join(path.read_bytes() for path in old.glob("store.sqlite*"))
    assert not [device for device in devices if device.encode() in kept]
    snapshot, _ = read_snapshot(old)
    assert snapshot is not None
    assert "sense" not in open_snapshot(snapshot)[1]["dbh"]


def test_an_upgraded_store_goes_on_with_its_books(old: Any) -> None:
    entries, boxes = audit(old), read_outbox(old, "board", 0)
    assert upgrade(old)
    go_on(old)
    longer = audit(old)
    assert longer[: len(entries)] == entries
    assert len(longer) > len(entries)
    verify_chain(longer, bytes.fromhex(FIXTURE["key"]["audit"]))
    ids = [entry["release_id"] for entry in longer]
    assert len(set(ids)) == len(ids)
    assert read_outbox(old, "board", 0)[: len(boxes)] == boxes
    assert read_policies(old) == [POLICY.document()]
    report = verify(store_books(old, records=True), old, old.parent / "key")
    assert (report["first_break"], report["records"]) == (None, len(longer))
    assert report["commitments"] == sum(entry["release"] != "office-day" for entry in longer)


def test_messages_that_waited_in_an_old_store_are_counted(old: Any) -> None:
    """The last batch of the killed run lies in the store alone: without it somebody is missing."""
    _, waiting = read_snapshot(old)
    assert waiting == 1
    upgrade(old)
    with embedded(POLICY, renew_key(old), old) as runner:
        assert runner.partition.counters.rows > 0


def test_a_second_upgrade_changes_nothing(old: Any) -> None:
    assert upgrade(old)
    once = read_snapshot(old)
    assert not upgrade(old)
    assert read_snapshot(old) == once


def test_an_upgrade_to_the_version_between_that_was_never_used_is_ordered_once_more(old: Any) -> None:
    assert upgrade(old)
    connection = sqlite3.connect(old / "store.sqlite")
    connection.execute("UPDATE meta SET value = '2' WHERE name = 'upgrade'")
    connection.commit()
    connection.close()
    with pytest.raises(UsageError, match=r"mechanism version: must be 1, .* got 3; 'tacet store upgrade'"):
        go_on(old)
    assert upgrade(old)
    go_on(old)


def test_accepting_a_change_upgrades_too(old: Any) -> None:
    with embedded(POLICY, renew_key(old), old, accept_policy=True) as runner:
        take_rest(runner)
    assert verify(store_books(old, records=True), old, old.parent / "key")["ok"]
    assert not upgrade(old)


def test_a_mechanism_version_to_come_is_never_taken_back(old: Any) -> None:
    snapshot, _ = read_snapshot(old)
    assert snapshot is not None
    head, sites = open_snapshot(upgraded(snapshot))
    later = seal_snapshot(head | {"mechanisms": "9"}, {site: seal_site(site, stages) for site, stages in sites.items()})
    with pytest.raises(UsageError, match="mechanism version: must be 1, 2 or 3 to go on from, got 9"):
        upgraded(later)


def test_an_upgrade_waits_for_no_run_but_is_refused_while_one_has_the_store(old: Any) -> None:
    store = SqliteStore(old)
    try:
        with pytest.raises(UsageError, match="must not be in use by another process"):
            upgrade(old)
    finally:
        store.close()


def test_a_store_of_a_version_to_come_is_refused(old: Any) -> None:
    connection = sqlite3.connect(old / "store.sqlite")
    connection.execute("INSERT INTO meta VALUES ('format', '3')")
    connection.commit()
    connection.close()
    with pytest.raises(UsageError, match="store must be of format 1 or 2, got 3"):
        upgrade(old)


# --- from the present version to the next -----------------------------------------------------------------

WALK = building(releases=COUNTS)
WALKED = list(messages(people(hours=4, devices=3), WALK))
HALF = len(WALKED) // 2


def work(folder: Path, part: list[Any]) -> None:
    with embedded(WALK, folder.parent / "key", folder) as runner:
        for message in part:
            runner.take(message, durable=False)


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Return a store of the present version that has released half of a recording."""
    key_files.create(tmp_path / "key", laboratory=False)
    work(tmp_path / "store", WALKED[:HALF])
    return tmp_path / "store"


def records(folder: Path) -> dict[str, bytes]:
    """Return all records by their ids, of which none may come twice."""
    values = [value for audience in ("facilities", "public", "board") for _, value in read_outbox(folder, audience, 0)]
    held = {parse_record(value)["release_id"]: value for value in values}
    assert len(held) == len(values)
    return held


def ways(folder: Path) -> list[str]:
    return [way.do for finding in store_findings(folder, folder.parent / "key", WALK) for way in finding.ways]


def test_a_store_of_the_present_version_is_gone_on_with_by_the_next(half: Path) -> None:
    before = records(half)
    with later():
        assert "'tacet store upgrade --store'" in ways(half)
        assert upgrade(half)
        assert ways(half) == []
        work(half, WALKED[HALF:])
        assert verify(store_books(half, records=True), half, half.parent / "key")["ok"]
        assert not upgrade(half)
    assert records(half).items() > before.items()
    with pytest.raises(UsageError, match=f"to go on from, got {LATER}; 'tacet recover' says"):
        work(half, [])
    assert [way.split()[0] for way in ways(half)] == ["'tacet", "begin"]


def test_until_the_next_version_has_released_something_the_present_one_can_still_go_on(half: Path) -> None:
    with later():
        assert upgrade(half)
    work(half, WALKED[HALF:])
    assert verify(store_books(half, records=True), half, half.parent / "key")["ok"]


def test_what_was_published_beyond_a_store_that_was_set_back_is_repeated_by_no_other_version(half: Path) -> None:
    """Its audit entries would come out equal, and its records not: an outbox that was set back too would not notice."""
    shutil.copytree(half, half.parent / "copy")
    work(half, WALKED[HALF:])
    published = records(half)
    put_back(half)
    with later():
        assert upgrade(half)
        with pytest.raises(
            UsageError, match=f"must be {NOW}, which had a part in what was published beyond this store"
        ):
            work(half, WALKED[HALF:])
        assert [way.split(":")[0] for way in ways(half)][1] == f"with mechanism version {NOW}, which made them"
    work(half, WALKED[HALF:])
    assert records(half) == published
    with later():
        work(half, [])


def test_what_two_versions_have_published_beyond_a_copy_is_repeated_by_neither(half: Path) -> None:
    shutil.copytree(half, half.parent / "copy")
    with later():
        upgrade(half)
        work(half, WALKED[HALF:])
    put_back(half)
    with pytest.raises(UsageError, match=f"must be {LATER}, which had a part .* got {NOW}; .* 'tacet recover' says"):
        work(half, WALKED[HALF:])
    assert [way.split()[0] for way in ways(half)] == ["put", "begin"]
    with later():
        upgrade(half)
        with pytest.raises(UsageError, match=f"must be {NOW}, which had a part .* got {LATER}"):
            work(half, WALKED[HALF:])
        assert [way.split()[0] for way in ways(half)] == ["put", "begin"]


def put_back(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / "copy", folder)
