"""Outboxes of account readers and operators can be rebuilt, and contain no sum over few access points."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from connectors.keys import key_files
from connectors.storage.embedded.operator_outbox import ReceivedTraps, _dropped
from connectors.storage.embedded.reader import ACCOUNT_OUTBOX, OPERATOR_OUTBOX, read_outbox, read_topic
from connectors.storage.embedded.runner import opened
from stream.records import MINUTE
from stream.schemas import LEAKAGE, PRESENCE, parse_record, parse_time
from tests.support.small_building import ACCESS_POINTS, Seen, building, mac, messages, people

POLICY = building()


def ran(folder: Path) -> Path:
    """Run an evening's messages through a store."""
    key_files.create(folder / "key", laboratory=True)
    with opened(POLICY, folder / "key", folder / "store") as (runner, _):
        for message in messages(people()[:60], POLICY):
            runner.process(message)
    return folder / "store"


def account_in(store: Path) -> list[bytes]:
    return [value for _, value in read_outbox(store, ACCOUNT_OUTBOX, 0)]


def test_the_accounts_box_holds_the_account_as_it_was_streamed(tmp_path: Path) -> None:
    store = ran(tmp_path)
    assert account_in(store) == read_topic(store, LEAKAGE) != []


def test_a_box_that_is_gone_is_filled_anew(tmp_path: Path) -> None:
    store = ran(tmp_path)
    for path in (store / "private").glob(f"{ACCOUNT_OUTBOX}.sqlite*"):
        path.unlink()
    with opened(POLICY, tmp_path / "key", store):
        pass
    assert account_in(store) == read_topic(store, LEAKAGE) != []


def test_what_a_store_that_was_set_back_has_not_written_yet_leaves_the_box(tmp_path: Path) -> None:
    whole = ran(tmp_path)
    with opened(POLICY, tmp_path / "key", whole) as (_, store):
        known = store.account_outbox.last()
        store.account_outbox.forget_behind(known - 1)
        assert store.account_outbox.last() < known
    assert account_in(whole) != read_topic(whole, LEAKAGE)
    with opened(POLICY, tmp_path / "key", whole):
        pass
    assert account_in(whole) == read_topic(whole, LEAKAGE)


def test_the_accounts_records_are_numbered_by_themselves_whatever_else_the_store_holds(tmp_path: Path) -> None:
    """What is put aside of traps, and each stay, has a place in the store too."""
    key_files.create(tmp_path / "key", laboratory=True)
    policy = building(head="[restricted]\npresence = true\n")
    log = list(messages(people()[:200], policy))
    for part in (log[: len(log) // 2], log[len(log) // 2 :]):
        with opened(policy, tmp_path / "key", tmp_path / "store") as (runner, _):
            for message in part:
                runner.process(message)
    assert len(read_topic(tmp_path / "store", PRESENCE, key_files.FileKeys(tmp_path / "key").vault)) > 0
    numbers = [number for number, _ in read_outbox(tmp_path / "store", ACCOUNT_OUTBOX, 0)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert account_in(tmp_path / "store") == read_topic(tmp_path / "store", LEAKAGE)


@pytest.mark.parametrize("enough", [True, False])
def test_sums_that_depend_on_people_are_told_of_enough_access_points_only(
    tmp_path: Path, enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = len(ACCESS_POINTS)
    monkeypatch.setattr("connectors.storage.embedded.operator_outbox.LEAST_ACCESS_POINTS", 1 if enough else here + 1)
    last = parse_record(read_outbox(ran(tmp_path), OPERATOR_OUTBOX, 0)[-1][1])
    assert last["late"] == (0 if enough else None)
    assert last["rejected_messages"] == (0 if enough else None)


def test_the_record_of_a_site_has_these_fields(tmp_path: Path) -> None:
    reported = {field for _, value in read_outbox(ran(tmp_path), OPERATOR_OUTBOX, 0) for field in orjson.loads(value)}
    assert reported == {
        "v", "site", "window_end", "reached", "closed", "ledger_entries", "accepted", "late", "dropped", "traps",
        "rejected_messages", "oldest_key_day", "policy_version",
    }  # fmt: skip


def test_figures_are_five_minutes_apart_at_least(tmp_path: Path) -> None:
    ends = [parse_time(orjson.loads(v)["window_end"]) for _, v in read_outbox(ran(tmp_path), OPERATOR_OUTBOX, 0)]
    assert len(ends) > 3
    assert all(after - before >= 5 * 60_000_000 for before, after in pairwise(ends))


def test_a_site_has_reached_what_its_sources_have_reported(tmp_path: Path) -> None:
    """Each window is recorded when the watermark passes its end, and the start of a session is long before that."""
    ends = [(parse_time(r["window_end"]), parse_time(r["reached"])) for r in records_of(ran(tmp_path))]
    assert all(end <= reached <= end + 15 * MINUTE for end, reached in ends), "a tick of the policy"
    assert len({reached for _, reached in ends}) == len(ends) > 3


def records_of(store: Path) -> list[dict[str, Any]]:
    return [orjson.loads(value) for _, value in read_outbox(store, OPERATOR_OUTBOX, 0)]


def ran_beside(folder: Path, received: Callable[[], ReceivedTraps], unknown: int = 0) -> Path:
    """Run an evening's messages beside a receiver, with observations of an unknown access point before them."""
    key_files.create(folder / "key", laboratory=True)
    with opened(POLICY, folder / "key", folder / "store") as (runner, store):
        store.operator_outbox.count_traps(received)
        for message in messages([*strangers(unknown), *people()[:60]], POLICY):
            runner.process(message)
    return folder / "store"


def strangers(number: int) -> list[Seen]:
    [first, *_] = people()
    return [replace_access_point(first, n) for n in range(number)]


def replace_access_point(seen: Seen, number: int) -> Seen:
    return seen._replace(device=mac(900 + number), access_point="02:00:00:00:77:77")


@pytest.mark.parametrize("enough", [True, False])
def test_drops_are_in_the_record_by_reason(tmp_path: Path, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = len(ACCESS_POINTS)
    monkeypatch.setattr("connectors.storage.embedded.operator_outbox.LEAST_ACCESS_POINTS", 1 if enough else here + 1)
    counts = ReceivedTraps(0, 9, 4, {"stopping": 3, "queue_full": 0}, 2)
    last = records_of(ran_beside(tmp_path, lambda: counts, unknown=3))[-1]
    if enough:
        assert last["dropped"] == {"unknown_access_point": 3}
        assert last["accepted"] == len(people()[:60])
        assert last["traps"] == {"received": 9, "accepted": 4, "dropped": {"stopping": 3}, "kernel_drops": 2}
    else:
        assert [last[name] for name in ("accepted", "late", "dropped", "traps")] == [None] * 4


def test_late_rows_have_a_field_of_their_own_and_are_not_listed_among_the_drops() -> None:
    counters = {"rows": 9, "accepted": 5, "stale_heartbeats": 2, "late": 3, "unknown_zone": 1, "unknown_source": 0}
    assert _dropped(counters) == {"unknown_zone": 1}


def test_the_receivers_counts_step_every_five_minutes_of_its_clock_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that moves with each window that closes would be finer than the metrics are."""
    monkeypatch.setattr("connectors.storage.embedded.operator_outbox.LEAST_ACCESS_POINTS", 1)
    reads = [0]

    def received() -> ReceivedTraps:
        reads[0] += 1
        return ReceivedTraps(reads[0] * 2 * MINUTE, reads[0], 0, {}, 0)

    found = [record["traps"]["received"] for record in records_of(ran_beside(tmp_path, received))]
    assert len(found) > 5
    assert found == [1 + 3 * (number // 3) for number in range(len(found))]
