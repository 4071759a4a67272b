"""Backfill: recorded observations against the releases of a store."""

import csv
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.cli.backfill import StoreHistory
from connectors.keys import key_files
from connectors.lab.simulation import files as simulation
from connectors.lab.simulation import policy as simulation_policy
from connectors.sources.recordings.observations import ObservationFile
from connectors.storage.embedded.reader import read_outbox, read_snapshot, read_topic
from connectors.storage.embedded.runner import opened
from stream.engine.backfill import Backfill, Backfilled
from stream.engine.snapshot import open_snapshot, seal_site, seal_snapshot
from stream.errors import DataError, FinalityError, KeyFileError
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.pipeline import Options
from stream.records import DAY
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_time
from tests.support.hash_chain import verify_chain
from tests.support.small_building import building, messages, people
from tests.support.window_policies import by_window

NOON = parse_time("2018-02-01T20:00:00Z")


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Policy]:
    """A small simulated day: its folder with ``o.csv``, and its policy, of ticks of a quarter of an hour."""
    folder = tmp_path_factory.mktemp("day")
    made = simulate(SimulatorConfig(seed=3, zones=8, scale=0.3))
    with (folder / "o.csv").open("w", newline="") as file:
        simulation.write_csv(made, file)
    text = simulation_policy.policy_text(made).replace('tick = "5min"', 'tick = "15min"')
    return folder, load_policy(by_window(text))


def run(
    day: Any, where: Path, key: Path, *, first: int | None, last: int | None = None, accept_policy: bool = False
) -> None:
    folder, policy = day
    options = Options(first_window=first, last_window=last)
    with opened(policy, key, where, options, accept_policy=accept_policy) as (runner, _):
        for message in ObservationFile(folder / "o.csv", policy, key_files.pseudonym_key(key)).messages():
            runner.process(message, durable=False)


def backfill(
    day: tuple[Path, Policy], where: Path, key: Path, file: Path | None = None, attempt: int = 1, *,
    first: Any = None, last: Any = None, earlier: Sequence[Policy] = (), names: Sequence[str] = (),
) -> Backfilled:  # fmt: skip
    folder, policy = day
    options = Options(attempt=attempt, first_window=first, last_window=last)
    with opened(policy, key, where) as (runner, store):
        book = StoreHistory(store)
        settled = Backfill(policy, key_files.FileKeys(key), runner.partition, book, options, earlier, names)
        for message in ObservationFile(file or folder / "o.csv", policy, key_files.pseudonym_key(key)).messages():
            settled.process(message)
        settled.close()
        runner.publish(settled.made.emitted)
        return settled.made


def new_key(folder: Path, *, laboratory: bool = True) -> Path:
    key_files.create(folder / "key", laboratory=laboratory)
    return folder / "key"


def records(where: Path) -> dict[str, bytes]:
    return {
        orjson.loads(value)["release_id"]: value
        for audience in ("facilities", "public")
        for _, value in read_outbox(where, audience, 0)
    }


def test_windows_already_released_come_out_as_stored_and_charge_nothing(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    run(day, tmp_path / "s", key, first=None)
    before, chain = records(tmp_path / "s"), read_topic(tmp_path / "s", AUDIT)
    made = backfill(day, tmp_path / "s", key)
    assert (made.released, made.unchecked, made.emitted) == (0, 0, [])
    assert sorted(made.stored) == sorted(before.values())
    assert read_topic(tmp_path / "s", AUDIT) == chain


def test_windows_never_released_are_charged_as_live_and_then_final(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON)
    before = records(tmp_path / "s")
    made = backfill(day, tmp_path / "s", key)
    after = records(tmp_path / "s")
    fresh = set(after) - set(before)
    assert made.released > 40
    assert all(after[name] == value for name, value in before.items())
    entries = [orjson.loads(value) for value in read_topic(tmp_path / "s", AUDIT)]
    verify_chain(entries)
    charged = [entry["release_id"] for entry in entries]
    assert len(charged) == len(set(charged)) == len(after)
    assert fresh <= set(charged)
    assert backfill(day, tmp_path / "s", key).released == 0


def test_other_observations_under_the_same_ids_are_refused(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    run(day, tmp_path / "s", key, first=None)
    with (day[0] / "o.csv").open() as file:
        rows = list(csv.reader(file))
    changed = tmp_path / "changed.csv"
    with changed.open("w", newline="") as file:
        csv.writer(file).writerows(rows[: len(rows) // 2] + rows[len(rows) // 2 + 400 :])
    before = records(tmp_path / "s")
    with pytest.raises(FinalityError, match="was made from other observations"):
        backfill(day, tmp_path / "s", key, changed)
    assert records(tmp_path / "s") == before


def forget_everything(key: Path, where: Path) -> None:
    """Let a store have gone on for days, under whose keys its state lies, and the keys of those before be gone."""
    vault, later = key_files.FileKeys(key).vault, (NOON // DAY) + 5
    snapshot, _ = read_snapshot(where)
    assert snapshot is not None
    head, sites = open_snapshot(snapshot, vault)
    sealed = seal_snapshot(head, {name: seal_site(name, stages, vault, later) for name, stages in sites.items()})
    with closing(sqlite3.connect(where / "store.sqlite")) as connection, connection:
        connection.execute("UPDATE state SET value = ?", (sealed,))
    key_files.FileKeys(key).forget_before(later)


def test_when_the_keys_are_gone_the_stored_record_comes_out_and_nothing_is_drawn(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path, laboratory=False)
    run(day, tmp_path / "s", key, first=None)
    forget_everything(key, tmp_path / "s")
    made = backfill(day, tmp_path / "s", key)
    assert made.unchecked == made.again > 0
    assert sorted(made.stored) == sorted(records(tmp_path / "s").values())


def test_a_window_never_released_whose_key_is_gone_is_refused(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path, laboratory=False)
    run(day, tmp_path / "s", key, first=NOON)
    forget_everything(key, tmp_path / "s")
    with pytest.raises(KeyFileError):
        backfill(day, tmp_path / "s", key)


def test_an_ordered_second_release_is_a_charged_attempt_with_fresh_noise(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON)
    before = records(tmp_path / "s")
    made = backfill(day, tmp_path / "s", key, attempt=2, names=["occupancy"])
    second = {name: value for name, value in records(tmp_path / "s").items() if name.endswith("#2")}
    assert made.released > 40
    assert len(second) == sum(record.topic == AUDIT for record in made.emitted)
    same = [
        orjson.loads(value)["values"] == orjson.loads(before[name.removesuffix("#2")])["values"]
        for name, value in second.items()
        if name.removesuffix("#2") in before and "values" in orjson.loads(value)
    ]
    assert len(same) > 40
    assert sum(same) < len(same) / 10  # small counts clamped at 0 may come out alike by chance


def test_a_recording_with_more_devices_than_a_site_may_hold_settles_nothing(tmp_path: Path) -> None:
    policy, key = building(site="max_devices = 3"), new_key(tmp_path)
    with opened(policy, key, tmp_path / "s") as (runner, store):
        settled = Backfill(policy, key_files.FileKeys(key), runner.partition, StoreHistory(store), Options())
        with pytest.raises(DataError, match=r"^site dbh: the recording has more devices than its max_devices; nothing"):
            list(map(settled.process, messages(people(hours=2), policy)))


def test_windows_ahead_of_the_live_run_are_left_to_it(day: Any, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    run(day, tmp_path / "s", key, first=NOON, last=NOON + 12 * 300_000_000)
    made = backfill(day, tmp_path / "s", key)
    assert made.ahead > 40
    assert not any(
        parse_time(orjson.loads(v)["window_end"]) > NOON + DAY // 24 for v in records(tmp_path / "s").values()
    )
