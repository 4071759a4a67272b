"""Everything stored about people is encrypted under the data key of its day, and unreadable without it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.keys.data_keys import DataKeys
from connectors.operations.audit.verification import store_bundle, verify
from connectors.operations.status import describe
from connectors.sources.recordings.observations import ObservationFile
from connectors.storage.embedded.reader import outboxes, read_outbox, read_snapshot, read_topic
from connectors.storage.embedded.runner import embedded
from connectors.storage.embedded.store import SqliteStore
from stream.encoding import decode_message, encode_message
from stream.encryption import Kind as Envelope
from stream.encryption import clear_of, join_parts, split_parts, unseal
from stream.engine.partition import PartitionEngine
from stream.engine.snapshot import open_site, open_snapshot, seal_site, seal_snapshot, unpack_snapshot
from stream.errors import DataError, DestroyedKeyError, KeyFileError
from stream.records import DAY, HOUR, MINUTE, Heartbeat, ObservationBatch
from stream.release.validation import load_policy
from stream.schemas import AUDIT, LEAKAGE, OCCUPANCY, PRESENCE, RESTRICTED, parse_time
from tests.support.small_building import COUNTS, SITE, building, laboratory, mac, messages, people, write_csv
from tests.unit.release.test_counter_sites import text as counted_text
from tests.unit.release.test_counter_sites import window

RELEASES = COUNTS.split('[[release]]\nname = "smooth"', maxsplit=1)[0]
POLICY = building(releases=RELEASES, head="[restricted]\noccupancy = true\npresence = true\n")
PLAIN = building(releases=RELEASES)
NIGHT = parse_time("2026-03-03T00:00:00Z")
SEEN = people(hours=4, devices=6, every=12 * MINUTE, start=NIGHT - 2 * HOUR)
"""They walk about from two hours before a UTC day's end to two hours after it."""
TODAY = NIGHT // DAY
PUBLIC = {
    "meta": {"name", "value"},
    "policies": {"version", "document"},
    "observations": {"position", "stamp"},
    "state": {"one"},
    "outputs": {"seq", "topic", "key", "time", "id"},
}
"""Columns of the store that may be read without a key; values of ``outputs`` too, but for restricted topics."""
HEARTBEAT = {"v", "site", "source", "session", "kind", "watermark", "listened_since"}
COUNTS_MESSAGE = {"v", "site", "source", "session", "kind", "window_end"}
BATCH = {"v", "site", "source", "session", "sequence", "epoch"}
SITE_FORM = {"standing", "release", "account", "radios"}
STANDING = {"form", "clock", "ticks"}
RECORD = {"v", "topic", "site", "window_end"}


COUNTED = counted_text()


class Crash(BaseException):
    """Stands for the end of a process."""


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key_files.create(tmp_path / "key", laboratory=False, first_day=TODAY - 1)
    return tmp_path / "key"


def log_of(folder: Path, policy: Any = POLICY) -> list[ObservationBatch | Heartbeat]:
    file = write_csv(folder / "seen.csv", SEEN)
    return list(ObservationFile(file, policy, b"p" * 32).messages())


def copy_of(key: Path, folder: Path) -> Path:
    folder.mkdir()
    other = folder / "key"
    other.touch(0o600)
    other.write_bytes(key.read_bytes())
    return other


def taken(key: Path, folder: Path, log: Iterable[ObservationBatch | Heartbeat]) -> None:
    with embedded(POLICY, key, folder) as runner:
        for message in log:
            runner.process(message)


def given_out(folder: Path) -> dict[str, Any]:
    boxes = {name: read_outbox(folder, name, 0) for name, _ in outboxes(folder)}
    return boxes | {topic: read_topic(folder, topic) for topic in (AUDIT, LEAKAGE)}


def tables(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection:
        connection.row_factory = sqlite3.Row
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        for (name,) in names.fetchall():
            for row in connection.execute(f"SELECT * FROM {name}"):
                yield name, dict(row)


# --- what lies in a store ---------------------------------------------------------------------------------


def clear_part(table: str, column: str, value: bytes, topic: str) -> None:
    """Assert that a value holds nothing in clear but what may be public."""
    if table == "observations":
        message = unseal(Envelope.MESSAGE, value)
        if message.startswith(b"{"):
            assert orjson.loads(message).keys() <= HEARTBEAT
        else:
            head = orjson.loads(clear_of(Envelope.OBSERVATIONS, message))
            assert head.keys() <= (COUNTS_MESSAGE if head.get("kind") == "counts" else BATCH)
            with pytest.raises(KeyFileError, match="is encrypted"):
                unseal(Envelope.OBSERVATIONS, message)
    elif table == "state":
        for site in split_parts(unseal(Envelope.SNAPSHOT, value))[1].values():
            stages = split_parts(clear_of(Envelope.SITE, site))[1]
            assert stages.keys() <= SITE_FORM
            assert orjson.loads(stages["standing"]).keys() == STANDING
            assert split_parts(stages["release"])[1] == {}
            with pytest.raises(KeyFileError, match="is encrypted"):
                unseal(Envelope.SITE, site)
    else:
        assert (table, column) == ("outputs", "value")
        if topic in RESTRICTED:
            assert orjson.loads(clear_of(Envelope.RESTRICTED, value)).keys() == RECORD
            with pytest.raises(KeyFileError, match="is encrypted"):
                unseal(Envelope.RESTRICTED, value)


def test_every_field_outside_a_public_list_lies_in_an_envelope(tmp_path: Path, key: Path) -> None:
    seen: set[tuple[str, str]] = set()
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in log_of(tmp_path):
            runner.process(message)
            if isinstance(message, Heartbeat):
                continue
            runner.enqueue(message)  # waits until the next window closes
            for table, row in tables(tmp_path / "store"):
                for column in row.keys() - PUBLIC[table]:
                    clear_part(table, column, row[column], row.get("topic", ""))
                    seen.add((table, row.get("topic", "")))
    assert {("observations", ""), ("state", ""), ("outputs", OCCUPANCY), ("outputs", PRESENCE)} <= seen


def test_of_what_people_counters_tell_the_counts_lie_in_an_envelope_too(tmp_path: Path) -> None:
    policy = load_policy(COUNTED.replace("[site.", "[restricted]\noccupancy = true\n[site.", 1))
    key_files.create(tmp_path / "key", laboratory=False, first_day=window(0, 1).window_end // DAY)
    seen: set[tuple[str, str]] = set()
    with embedded(policy, tmp_path / "key", tmp_path / "store") as runner:
        for number in range(6):
            runner.enqueue(window(number, 3, 4, 5))
            for table, row in tables(tmp_path / "store"):
                for column in row.keys() - PUBLIC[table]:
                    clear_part(table, column, row[column], row.get("topic", ""))
                    seen.add((table, row.get("topic", "")))
            runner.process(window(number, 3, 4, 5))
    assert {("observations", ""), ("state", ""), ("outputs", OCCUPANCY)} <= seen


def needles(log: Iterable[ObservationBatch | Heartbeat]) -> set[bytes]:
    """Return every MAC address and pseudonym as text, and pseudonyms as bytes; those of an address are mostly zeros."""
    names = {row.device for message in log if isinstance(message, ObservationBatch) for row in message.rows}
    macs = {mac(number) for number in range(6)}
    texts = names | macs | {address.replace(":", "") for address in macs}
    raw = {bytes.fromhex(name) for name in names}
    return raw | {text.encode() for text in texts}


def found(sought: set[bytes], folder: Path) -> set[bytes]:
    kept = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return {each for each in sought if each in kept}


def test_no_address_and_no_pseudonym_is_in_any_file_of_a_store_at_any_moment(tmp_path: Path, key: Path) -> None:
    log = log_of(tmp_path)
    sought = needles(log)
    assert len(sought) >= 24
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in log:
            runner.process(message)  # between two commits it lies in the write-ahead log
            assert not found(sought, tmp_path / "store")
    assert not found(sought, tmp_path / "store")


def test_they_would_be_found_if_they_were_there(tmp_path: Path) -> None:
    """The same search finds all pseudonyms in what is kept where no vault is."""
    log = log_of(tmp_path)
    partition = PartitionEngine(POLICY, laboratory())
    (tmp_path / "store").mkdir()
    for offset, message in enumerate(log[:20]):
        partition.process(offset, None, encode_message(message))
        (tmp_path / "store" / str(offset)).write_bytes(encode_message(message))
    assert len(found(needles(log), tmp_path / "store")) >= 6


def test_true_counts_are_read_with_the_key_and_left_out_without(tmp_path: Path, key: Path) -> None:
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in log_of(tmp_path):
            runner.process(message)
    counts = read_topic(tmp_path / "store", OCCUPANCY, key_files.FileKeys(key).vault)
    assert {orjson.loads(value)["window_end"][:10] for value in counts} == {"2026-03-03"}
    assert read_topic(tmp_path / "store", OCCUPANCY) == []
    report = verify(store_bundle(tmp_path / "store", records=True), tmp_path / "store", key)
    assert (report.ok, report.unchecked) == (True, [])
    assert report.commitments > 0


def test_where_a_site_stands_needs_no_key(tmp_path: Path, key: Path) -> None:
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in log_of(tmp_path):
            runner.process(message)
    snapshot, _ = read_snapshot(tmp_path / "store")
    assert snapshot is not None
    status = describe(snapshot, POLICY)["sites"][SITE]
    assert status["ledger_entries"] == len(read_topic(tmp_path / "store", AUDIT)) > 0
    assert status["last_window"] is not None


# --- over a day's end -------------------------------------------------------------------------------------


def test_what_is_released_is_the_same_with_and_without_encryption(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    sealed = replace(laboratory(), vault=DataKeys(TODAY - 1, b"k" * 32))
    plain, under = (
        [
            each
            for partition in [PartitionEngine(PLAIN, keys)]
            for offset, message in enumerate(log)
            for each in partition.process(offset, None, encode_message(message, keys.vault))
        ]
        for keys in (laboratory(), sealed)
    )
    assert plain == under != []


def test_a_run_that_is_restarted_at_each_instant_over_a_days_end_releases_the_same(tmp_path: Path, key: Path) -> None:
    log = log_of(tmp_path)
    straight = copy_of(key, tmp_path / "one")
    with embedded(POLICY, straight, tmp_path / "straight") as runner:
        for message in log:
            runner.process(message)
    days = set()
    for message in log:
        with embedded(POLICY, key, tmp_path / "often") as runner:
            runner.process(message)
        days.add(key_files.FileKeys(key).vault.first)
    assert days == {TODAY - 1, TODAY}
    assert key_files.FileKeys(straight).vault.first == TODAY
    assert given_out(tmp_path / "often") == given_out(tmp_path / "straight")


@pytest.mark.parametrize("dies", ["before the key goes", "after the key has gone"])
def test_a_crash_beside_the_step_of_the_key_leaves_a_state_that_opens(
    tmp_path: Path, key: Path, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, step = log_of(tmp_path), key_files.FileKeys.forget_before
    stepped: list[int] = []

    def forget(self: key_files.FileKeys, key_day: int) -> None:
        if key_day > self.vault.first and not stepped:
            stepped.append(key_day)
            if dies.startswith("after"):
                step(self, key_day)
            raise Crash
        step(self, key_day)

    monkeypatch.setattr(key_files.FileKeys, "forget_before", forget)
    straight = copy_of(key, tmp_path / "one")
    with pytest.raises(Crash):
        taken(key, tmp_path / "store", log)
    assert stepped == [TODAY]
    assert key_files.FileKeys(key).vault.first == TODAY - dies.startswith("before")
    taken(key, tmp_path / "store", log)  # what was taken is known by session and sequence
    taken(straight, tmp_path / "straight", log)
    assert given_out(tmp_path / "store") == given_out(tmp_path / "straight")


def test_yesterdays_snapshot_does_not_open_today(tmp_path: Path, key: Path) -> None:
    copies: list[bytes] = []
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in log_of(tmp_path):
            runner.process(message)
            snapshot, _ = read_snapshot(tmp_path / "store")
            copies += [] if snapshot is None or snapshot in copies[-1:] else [snapshot]
    vault = key_files.FileKeys(key).vault
    open_snapshot(copies[-1], vault)
    with pytest.raises(DestroyedKeyError, match="1 days before its oldest"):
        open_snapshot(copies[1], vault)
    assert open_snapshot(copies[1])[0].policy == POLICY.version


def test_late_rows_under_a_key_that_is_gone_are_refused_and_nothing_else_changes(tmp_path: Path, key: Path) -> None:
    log = log_of(tmp_path)
    early = next(message for message in log if isinstance(message, ObservationBatch))
    value = encode_message(early, key_files.FileKeys(key).vault)
    with embedded(POLICY, key, tmp_path / "store") as runner:
        for message in log:
            runner.process(message)
        before = runner.partition.sites.sensing()[SITE].counters.copy()
        [out] = runner.partition.process(10_000, None, value)
        assert orjson.loads(out.value)["reason"] == "key_gone"
        assert runner.partition.sites.sensing()[SITE].counters == before


# --- what is refused --------------------------------------------------------------------------------------


def test_a_batch_under_another_key_stops_the_engine_and_is_read_with_the_right_one() -> None:
    log = list(messages(people(hours=3, devices=5), PLAIN))
    ours, others = (DataKeys(TODAY - 1, byte * 32) for byte in (b"o", b"x"))
    keys = replace(laboratory(), vault=ours)
    values = [encode_message(message, ours) for message in log]
    partition, straight = PartitionEngine(PLAIN, keys), PartitionEngine(PLAIN, keys)
    whole = [each for offset, value in enumerate(values) for each in straight.process(offset, None, value)]
    middle = next(n for n, message in enumerate(log) if n > 20 and isinstance(message, ObservationBatch))
    outputs = [each for offset in range(middle) for each in partition.process(offset, None, values[offset])]
    saved = partition.snapshot(middle, 0)
    with pytest.raises(KeyFileError, match="must be the one under which this was encrypted, got another"):
        partition.process(middle, None, encode_message(log[middle], others))
    assert partition.snapshot(middle, 0) == saved
    again = PartitionEngine(PLAIN, keys)
    assert again.restore(saved) == middle
    outputs += [each for offset in range(middle, len(log)) for each in again.process(offset, None, values[offset])]
    assert outputs == whole != []


def two_sites(vault: DataKeys) -> tuple[PartitionEngine, Any, bytes]:
    policy = building(releases=RELEASES, sites=(SITE, "two"))
    keys = replace(laboratory(), vault=vault)
    partition = PartitionEngine(policy, keys)
    for offset, message in enumerate(list(messages(people(hours=2, devices=5), policy))):
        partition.process(offset, None, encode_message(message, vault))
        partition.process(offset, None, encode_message(replace(message, site="two"), vault))
    return PartitionEngine(policy, keys), policy, partition.snapshot(7, 0)


def changed(snapshot: bytes, change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> bytes:
    head, sites = unpack_snapshot(snapshot)
    return seal_snapshot(head, change(sites))


def test_a_state_that_was_moved_damaged_or_cut_off_is_refused() -> None:
    vault = DataKeys(TODAY - 1, b"k" * 32)
    partition, _, snapshot = two_sites(vault)
    assert partition.restore(snapshot) == 7
    with pytest.raises(DataError, match="site dbh: state must be its own, is another site's"):
        partition.restore(changed(snapshot, lambda sites: {SITE: sites["two"], "two": sites[SITE]}))
    with pytest.raises(DataError, match="damaged, or was copied"):
        partition.restore(changed(snapshot, lambda sites: sites | {SITE: sites[SITE][:-1] + b"?"}))
    with pytest.raises(DataError, match="damaged, or was copied"):
        partition.restore(changed(snapshot, lambda sites: sites | {SITE: sites[SITE][:-20]}))
    with pytest.raises(DataError, match="must be"):
        partition.restore(changed(snapshot, lambda sites: sites | {SITE: sites[SITE][:40]}))


def test_the_books_of_one_moment_and_the_people_of_another_do_not_go_together() -> None:
    """Otherwise a ledger of today could be put beside presence of yesterday."""
    vault = DataKeys(TODAY - 1, b"k" * 32)
    _, _, snapshot = two_sites(vault)
    stages = open_snapshot(snapshot, vault)[1][SITE]
    now, later = (seal_site(SITE, stages | {"account": books}, vault, TODAY) for books in (b"{}", b"[]"))
    cut = len(now) - (len(now) - len(later)) - 300
    with pytest.raises(DataError, match="damaged, or was copied"):
        open_site(SITE, later[:cut] + now[cut:], vault)


def test_a_site_comes_back_whole_with_its_key_and_in_books_alone_without() -> None:
    vault = DataKeys(TODAY - 1, b"k" * 32)
    _, _, snapshot = two_sites(vault)
    whole, bare = open_snapshot(snapshot, vault)[1][SITE], open_snapshot(snapshot)[1][SITE]
    assert whole.keys() == {"sense", "attributes", "release", "account", "radios"}
    assert open_site(SITE, seal_site(SITE, whole, vault, TODAY), vault) == whole
    assert open_site(SITE, seal_site(SITE, whole)) == whole
    assert bare.keys() == SITE_FORM
    assert split_parts(bare["release"])[0] == split_parts(whole["release"])[0]
    assert split_parts(whole["release"])[1]


def test_a_site_away_for_longer_than_its_key_comes_back_with_its_books_and_nobody() -> None:
    vault = DataKeys(TODAY - 1, b"k" * 32)
    _, policy, snapshot = two_sites(vault)
    one, keys = building(releases=RELEASES), replace(laboratory(), vault=vault)
    alone = PartitionEngine(one, keys, accept_policy=True)
    alone.restore(snapshot)
    kept = alone.snapshot(8, 0)
    vault.forget_before(TODAY + 9)
    with pytest.raises(DestroyedKeyError):
        open_snapshot(snapshot, vault)
    head, sites = unpack_snapshot(kept)
    back = PartitionEngine(policy, keys, accept_policy=True)
    back.restore(seal_snapshot(head, {"two": sites["two"]}))
    stored = back.sites.get("two")
    assert stored is not None
    assert (stored.sensing.current, stored.sensing.pending, stored.sensing.known_devices) == ({}, {}, set())
    assert stored.chain == alone.sites.chains()["two"]
    assert stored.chain[0] > 0
    with pytest.raises(DestroyedKeyError):  # one that the policy had all the time is not forgotten unasked
        back.restore(seal_snapshot(head, {SITE: sites[SITE]}))


def test_a_site_that_comes_back_with_nobody_bounds_nothing_until_its_privacy_day_is_over() -> None:
    stages = {
        "standing": orjson.dumps({"form": 3, "clock": {}, "ticks": [NIGHT + HOUR, NIGHT, False]}),
        "release": join_parts({"carried": {"r": 1}, "waits": 5, "through": NIGHT}, {}),
        "account": b"{}", "away": b"",
    }  # fmt: skip
    vault = DataKeys(TODAY, b"k" * 32)
    whole = stages | {"sense": stages["standing"][:-1] + b',"zones":[]}', "attributes": b"{}"}
    site = seal_site(SITE, whole, vault, TODAY)
    vault.forget_before(TODAY + 1)
    forgotten = open_site(SITE, site, vault)
    assert orjson.loads(forgotten["sense"])["tally"] == [None, None, NIGHT + 2 * DAY, [], []]
    head = split_parts(forgotten["release"])[0]
    assert (head["carried"], head["waits"] > NIGHT + HOUR) == ({}, True)


def test_a_row_of_the_store_that_was_put_in_the_place_of_another_is_known_for_what_it_is(
    tmp_path: Path, key: Path
) -> None:
    """A message says in what is bound to it whose it is and which: in another place it is a copy, or comes too late."""
    log = log_of(tmp_path)
    batches = [message for message in log if isinstance(message, ObservationBatch)]
    vault = key_files.FileKeys(key).vault
    store = SqliteStore(tmp_path / "store")
    for message in (log[0], log[1], batches[0], batches[0], batches[1]):
        store.append(encode_message(message, vault))
    store.close()
    with embedded(POLICY, key, tmp_path / "store") as runner:
        counted = runner.partition.sites.sensing()[SITE].counters
        assert counted["repeated_batch"] == len(batches[0].rows)


def test_nothing_of_a_key_is_in_an_error_or_a_record(tmp_path: Path, key: Path) -> None:
    secrets = {json.loads(key.read_text())["data"]["key"]}
    value = encode_message(log_of(tmp_path)[2], key_files.FileKeys(key).vault)
    with pytest.raises(KeyFileError) as caught:
        decode_message(value, DataKeys(0, b"x" * 32))
    assert not any(secret in str(caught.value) for secret in secrets)
