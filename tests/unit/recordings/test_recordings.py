"""Recordings: the order of rows changes nothing, and with a public range no row decides which records exist."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.sources.recordings.observations import ObservationFile
from connectors.sources.recordings.replay import replay
from stream.errors import UsageError
from stream.pipeline import Options, Pipeline
from stream.records import DAY, MINUTE, Heartbeat, Micros, ObservationBatch, Published, Row
from stream.release.validation import Policy, load_policy
from stream.schemas import AUDIT, parse_record, rfc3339
from tests.support.small_building import (
    EVENING,
    PLAIN,
    SITE,
    SOURCES,
    Seen,
    access_point,
    building,
    laboratory,
    mac,
    people,
    policy_text,
    run,
    write_csv,
)

POLICY = building()
SIMPLE = building(releases=PLAIN)
KEY = bytes(range(32))
HOUR = 60 * MINUTE
TICK = POLICY.site[SITE].tick
SINCE, UNTIL = EVENING + 13 * HOUR, EVENING + 16 * HOUR
V = POLICY.site[SITE].validity


def messages(path: Path, seen: Sequence[Seen], policy: Policy = POLICY, **bounds: Any) -> list[Any]:
    return list(ObservationFile(write_csv(path, seen), policy, KEY, **bounds).messages())


def published(log: Sequence[Any], since: Micros | None = None, until: Micros | None = None) -> list[Published]:
    pipeline = Pipeline(POLICY, SITE, laboratory(), Options(first_window=since, last_window=until))
    return [out for out in run(pipeline, log) if isinstance(out, Published)]


def dropped(log: Sequence[Any]) -> dict[str, int]:
    """Return how many rows were not counted, by reason; what is released of the others makes no difference."""
    pipeline = Pipeline(SIMPLE, SITE, laboratory())
    states = pipeline.initial()
    for item in log:
        states, _ = pipeline.step(states, item)
    counters = states.occupancy.counters
    return {reason: rows for reason, rows in counters.items() if reason not in {"rows", "accepted"}}


# --- order ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["newest first", "shuffled 1", "shuffled 2"])
@pytest.mark.parametrize("bounds", [{}, {"since": SINCE, "until": UNTIL}], ids=["rows' range", "public range"])
def test_rows_in_any_order_give_the_messages_of_the_sorted_file(tmp_path: Path, order: Any, bounds: Any) -> None:
    seen = people(hours=30)
    other = list(seen)
    if order == "newest first":
        other.reverse()
    else:
        random.Random(order).shuffle(other)
    wanted = messages(tmp_path / "sorted.csv", seen, **bounds)
    assert messages(tmp_path / "other.csv", other, **bounds) == wanted
    assert sum(isinstance(item, ObservationBatch) for item in wanted) > 10


def test_nothing_of_a_file_in_any_order_is_late(tmp_path: Path) -> None:
    assert dropped(messages(tmp_path / "o.csv", people(hours=30)[::-1])) == {}


def test_rows_of_the_same_time_in_any_order_give_the_same_messages(tmp_path: Path) -> None:
    rng = random.Random(3)
    seen = [Seen(row.time // (5 * MINUTE) * 5 * MINUTE, row.device, row.access_point) for row in people(hours=14)]
    seen += [row._replace(access_point=access_point("c")) for row in seen[::3]]
    wanted = messages(tmp_path / "o.csv", seen)
    for _ in range(3):
        rng.shuffle(seen)
        assert messages(tmp_path / "o.csv", seen) == wanted


# --- the public range -------------------------------------------------------------------------------------

FAR = [
    [Seen(SINCE - 400 * DAY, mac(99), access_point("a"))],
    [Seen(UNTIL + 400 * DAY, mac(99), access_point("a"))],
    [Seen(UNTIL + 2 * DAY, mac(99), access_point("a"))],
    [Seen(SINCE - V, mac(99), access_point("a"))],
    [Seen(SINCE + HOUR, mac(99), access_point("a"))],
    [Seen(UNTIL, mac(99), access_point("a"))],
    [Seen(SINCE + n * MINUTE, mac(99), access_point("a")) for n in range(-100, 400, 7)],
]


@pytest.mark.parametrize(
    "rows", FAR, ids=["year before", "year after", "two days after", "V before", "inside", "end", "all"]
)
@pytest.mark.parametrize("others", [people(hours=30), []], ids=["among others", "alone"])
def test_rows_of_one_device_never_change_which_records_exist(tmp_path: Path, rows: Any, others: Any) -> None:
    bounds: dict[str, Any] = {"since": SINCE, "until": UNTIL}
    without = messages(tmp_path / "without.csv", others, **bounds)
    log = messages(tmp_path / "with.csv", [*rows, *others], **bounds)
    assert beats(log) == beats(without)
    records = [(record.topic, record.id, record.time) for record in published(log, SINCE, UNTIL)]
    assert records == [(record.topic, record.id, record.time) for record in published(without, SINCE, UNTIL)]
    windows = {parse_record(r.value)["window_end"] for r in published(log, SINCE, UNTIL) if r.topic == AUDIT}
    assert windows == {rfc3339(tick) for tick in range(SINCE, UNTIL + 1, TICK)}


@pytest.mark.parametrize("rows", FAR[:3], ids=["year before", "year after", "two days after"])
def test_a_row_outside_the_range_drops_nobody_elses(tmp_path: Path, rows: Any) -> None:
    bounds: dict[str, Any] = {"since": SINCE, "until": UNTIL}
    others = people(hours=30)
    for place in (0, len(others) // 2, len(others)):
        log = messages(tmp_path / "with.csv", [*others[:place], *rows, *others[place:]], **bounds)
        assert log == messages(tmp_path / "without.csv", others, **bounds)


def test_two_days_ahead_in_a_laboratory_costs_nobody_else_a_row(tmp_path: Path) -> None:
    others = people(hours=4)
    for place in (0, len(others) // 2, len(others)):
        ahead = Seen(others[-1].time + 2 * DAY, mac(99), access_point("a"))
        assert dropped(messages(tmp_path / "o.csv", [*others[:place], ahead, *others[place:]])) == {}


def test_heartbeats_of_a_range_lie_on_its_grid_and_say_when_listening_began(tmp_path: Path) -> None:
    log = messages(tmp_path / "o.csv", people(hours=30), since=SINCE, until=UNTIL)
    marks = [mark for source, mark in beats(log) if source == SOURCES[0]]
    end = UNTIL + POLICY.site[SITE].lateness + 1
    assert sorted(set(marks)) == [*range(SINCE, UNTIL + 1, TICK), end]
    assert {item.session for item in log} == {SINCE}
    assert {item.listened_since for item in log if isinstance(item, Heartbeat)} == {SINCE - TICK}


def test_in_a_laboratory_a_recording_vouches_from_the_window_of_its_first_row_on(tmp_path: Path) -> None:
    log = messages(tmp_path / "o.csv", [Seen(EVENING + MINUTE, mac(1), access_point("a"))])
    assert {item.listened_since for item in log if isinstance(item, Heartbeat)} == {EVENING}


def test_a_range_that_begins_before_the_rows_has_its_empty_windows(tmp_path: Path) -> None:
    log = messages(tmp_path / "o.csv", people(hours=4), since=EVENING - 2 * TICK)
    first = min(parse_record(r.value)["window_end"] for r in published(log, EVENING - 2 * TICK) if r.topic == AUDIT)
    assert first == rfc3339(EVENING - 2 * TICK)


def test_who_was_seen_shortly_before_the_range_is_there_when_it_begins(tmp_path: Path) -> None:
    rows = [Seen(SINCE - V, mac(1), access_point("a")), Seen(SINCE - V + 1, mac(2), access_point("a"))]
    log = messages(tmp_path / "o.csv", rows, since=SINCE, until=UNTIL)
    assert [row.time for item in log if isinstance(item, ObservationBatch) for row in item.rows] == [SINCE - V + 1]


@pytest.mark.parametrize("minutes", [20, 35, 45, 50])
def test_a_recording_in_parts_gives_every_site_the_batches_of_the_whole(tmp_path: Path, minutes: Any) -> None:
    """A run that goes on knows a batch by its number; a tick of one site lies within a window of another."""
    other = policy_text(sites=("dbh1",)).partition("[[audience]]")[0].replace('"15min"', '"20min"', 1)
    policy = load_policy(policy_text(head=other.replace("02:00:", "02:01:")))
    rows = [
        *people(hours=2),
        *(
            Seen(row.time, row.device, row.access_point.replace("02:00:", "02:01:"), "dbh1")
            for row in people(2, hours=2)
        ),
    ]
    part, whole = (
        batches(messages(tmp_path / "o.csv", rows, policy, since=EVENING, until=EVENING + until * MINUTE))
        for until in (minutes, 120)
    )
    assert {site for site, _ in part} == {SITE, "dbh1"}
    assert part.items() <= whole.items()


def batches(log: Sequence[Any]) -> dict[tuple[str, int], Sequence[Row]]:
    return {(item.site, item.sequence): item.rows for item in log if isinstance(item, ObservationBatch)}


def beats(log: Sequence[Any]) -> list[tuple[str, Micros]]:
    return [(item.source, item.watermark) for item in log if isinstance(item, Heartbeat)]


# --- the folder of a replay -----------------------------------------------------------------------------


def test_a_replay_fills_a_new_folder_that_only_its_owner_enters_and_no_used_one(tmp_path: Path) -> None:
    recording, out = write_csv(tmp_path / "o.csv", people(hours=2)), tmp_path / "out"

    def replayed() -> None:
        replay(ObservationFile(recording, SIMPLE, KEY), SIMPLE, laboratory(), out, Options(occupancy=True))

    replayed()
    folders = {path for path in (out, *out.rglob("*")) if path.is_dir()}
    assert out / "private" in folders
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in out.rglob("*.*")} == {0o600}
    with pytest.raises(UsageError, match="must be a new or empty folder"):
        replayed()


# --- BSSIDs -------------------------------------------------------------------------------------------------


def test_a_row_at_a_bssid_is_at_its_base_radio_as_with_traps(tmp_path: Path) -> None:
    text = policy_text().replace('access_points = ["02:00:00:00:00:02"]', 'base_radio = "24:de:c6:cc:dd:e0/44"')
    rows = [Seen(EVENING, mac(n), radio) for n, radio in enumerate(("24:de:c6:cc:dd:e7", "24:de:c6:cc:dd:f7"))]
    file = ObservationFile(write_csv(tmp_path / "o.csv", rows), load_policy(text), KEY)
    log = list(file.messages())
    points = [row.access_point for item in log if isinstance(item, ObservationBatch) for row in item.rows]
    assert (points, file.tally.unknown_access_points) == (["24:de:c6:cc:dd:e0"], 1)


# --- times without an offset --------------------------------------------------------------------------------


def test_a_time_without_an_offset_is_local_to_its_site(tmp_path: Path) -> None:
    path = tmp_path / "o.csv"
    path.write_text(f"time,device,access_point,site\n2026-03-02 20:05,{mac(1)},{access_point('a')},{SITE}\n")
    log = list(ObservationFile(path, POLICY, KEY).messages())
    assert [row.time for item in log if isinstance(item, ObservationBatch) for row in item.rows] == [
        EVENING + 5 * MINUTE
    ]
