"""Rows of counts from a topic: which are in time, which windows are made of them and when, and what a bad row loses."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.sources.counters.files import CountsFile
from connectors.sources.counters.windows import WindowCollector, first_windows
from connectors.sources.recordings.rows import CellRules
from stream.errors import UsageError
from stream.records import DAY, MINUTE, SECOND, CountedWindow, Micros
from stream.release.validation import load_policy
from stream.schemas import rfc3339
from tests.unit.release.test_counter_sites import BEGIN, SITE, TICK, ZONES, text, window, written
from tests.unit.release.test_counter_sites import OMITTED as POLICY
from tests.unit.release.test_counter_sites import POLICY as REPORTED

LATENESS = POLICY.site[SITE].lateness
END = BEGIN + LATENESS
"""The last instant of the first window's lateness."""


def row(number: int, zone: str = "gate", count: Any = 3, **more: Any) -> bytes:
    return orjson.dumps({"window_end": rfc3339(BEGIN + number * TICK), "zone": zone, "count": count, **more})


def gathering(**options: Any) -> WindowCollector:
    return WindowCollector(CellRules(POLICY), BEGIN, {SITE: BEGIN}, **options)


def closed(made: WindowCollector, now: Micros) -> list[CountedWindow]:
    return list(made.close(now))


# --- when a window closes -----------------------------------------------------------------------------


def test_a_window_closes_when_its_lateness_is_over_and_not_before() -> None:
    made = gathering()
    made.process(row(0), BEGIN + 1)
    assert closed(made, END) == []
    assert closed(made, END + 1) == [window(0, 3)]
    assert closed(made, END + 1) == []


def test_every_window_of_a_day_waits_for_its_lateness_also_that_of_midnight() -> None:
    made = gathering()
    for number in range(DAY // TICK + 1):
        end = BEGIN + number * TICK
        assert closed(made, end + LATENESS) == [], rfc3339(end)
        made.process(row(number), end + LATENESS)
        assert closed(made, end + LATENESS + 1) == [window(number, 3)]
    assert not made.dropped


def test_windows_close_by_the_clock_with_or_without_rows() -> None:
    made = gathering()
    made.process(row(2, "hall", 5), BEGIN + 2 * TICK)
    assert closed(made, END + 3 * TICK) == [window(0), window(1), window(2, None, 5)]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(ZONES), st.integers(0, 9), st.integers(0, 4)), max_size=12)
)
@settings(max_examples=60)
def test_no_row_decides_which_windows_there_are(rows: list[tuple[int, str, int, int]]) -> None:
    made, never = gathering(), gathering()
    for number, zone, count, late in rows:
        made.process(row(number, zone, count), BEGIN + late * TICK)
    ends = [[each.window_end for each in closed(one, END + 3 * TICK + 1)] for one in (made, never)]
    assert ends[0] == ends[1] == [BEGIN + n * TICK for n in range(4)]


def of_two_sites(**options: Any) -> WindowCollector:
    other = text(site='tick = "5min"').replace('tick = "15min"\n', "", 1).replace(f"site.{SITE}", "site.arena")
    policy = load_policy(other.partition("[[audience]]")[0] + text())
    return WindowCollector(CellRules(policy), BEGIN, {SITE: BEGIN, "arena": BEGIN}, **options)


def test_the_end_is_reached_when_every_site_has_closed_its_last_window() -> None:
    made = of_two_sites(last=BEGIN)
    windows = made.close(END + TICK + 1)
    assert [next(windows).site, made.over] == ["arena", False]
    assert [next(windows).site, made.over] == [SITE, True]


def test_of_several_sites_the_earlier_window_comes_first() -> None:
    made = of_two_sites()
    made.process(row(0, site="arena"), BEGIN)
    made.process(row(0), BEGIN)  # of no site
    windows = closed(made, END + TICK + 1)
    assert [(each.site, (each.window_end - BEGIN) // MINUTE) for each in windows] == [
        ("arena", 0), (SITE, 0), ("arena", 5), ("arena", 10), ("arena", 15), (SITE, 15),
    ]  # fmt: skip
    assert windows[0].counts == (("gate", 3),)
    assert windows[1].counts == ()
    assert made.dropped == {"bad_row": 1, "incomplete": 1}


def test_behind_the_last_window_there_is_none() -> None:
    made = gathering(last=BEGIN + TICK)
    made.process(row(2), BEGIN + 2 * TICK)
    assert not made.over
    assert closed(made, BEGIN + 50 * TICK) == [window(0), window(1)]
    assert made.over


def test_it_is_over_when_the_last_window_of_every_site_is_closed() -> None:
    rules = CellRules(load_policy(text().replace(f"site.{SITE}", "site.arena").partition("[[audience]]")[0] + text()))
    made = WindowCollector(rules, BEGIN, {SITE: BEGIN, "arena": BEGIN + TICK}, BEGIN)
    assert not made.over, "a window of one site is open"
    assert [each.site for each in made.close(END + 1)] == [SITE]
    assert made.over
    assert not made.dropped


# --- which rows are in time ---------------------------------------------------------------------------

IN_TIME = ((BEGIN - TICK + 1, None), (BEGIN - TICK, "early"), (BEGIN, None), (END, None), (END + 1, "late"))


@pytest.mark.parametrize(("when", "reason"), IN_TIME)
def test_a_row_is_in_time_from_its_windows_begin_until_its_lateness_is_over(when: Micros, reason: str | None) -> None:
    made = gathering()
    made.process(row(0), when)
    assert dict(made.dropped) == ({} if reason is None else {reason: 1})
    assert closed(made, END + 1) == [window(0) if reason else window(0, 3)]


def test_a_row_of_a_closed_window_is_late_whatever_its_timestamp() -> None:
    made = gathering()
    assert closed(made, END + 1) == [window(0)]
    made.process(row(0), BEGIN)
    assert made.dropped == {"late": 1}


def test_how_long_a_window_waits_is_the_policys() -> None:
    patient = load_policy(text(site='lateness = "5min"'))
    made = WindowCollector(CellRules(patient), BEGIN, {SITE: BEGIN})
    made.process(row(0), BEGIN + 5 * MINUTE)
    assert closed(made, BEGIN + 5 * MINUTE) == []
    assert closed(made, BEGIN + 5 * MINUTE + 1) == [window(0, 3)]


def test_rows_of_windows_before_the_first_are_history_and_no_loss() -> None:
    made = gathering()
    made.process(row(-3), BEGIN - 3 * TICK)
    assert (made.rows, not made.dropped) == (1, True)


# --- copies, contradictions, bad rows -----------------------------------------------------------------


def test_a_copy_of_a_row_changes_nothing() -> None:
    made = gathering()
    for _ in range(3):
        made.process(row(0), BEGIN)
    assert not made.dropped
    assert closed(made, END + 1) == [window(0, 3)]


@pytest.mark.parametrize("counts", [(3, 4), (3, 4, 3), (4, 4, 3, 3)])
def test_two_different_rows_of_a_cell_invalidate_it(counts: tuple[int, ...]) -> None:
    made = gathering()
    for count in counts:
        made.process(row(0, count=count), BEGIN)
    made.process(row(0, "hall"), BEGIN)
    assert closed(made, END + 1) == [window(0, None, 3)]
    assert made.dropped["differs"] > 0


NO_ROWS = (
    b"", b"{", b"[]", b"null", b"7", b'"gate"', b"\xff", b"{}",
    row(0, "cellar"), orjson.dumps({"window_end": BEGIN, "zone": "gate", "count": 3}),
    orjson.dumps({"window_end": rfc3339(BEGIN + SECOND), "zone": "gate", "count": 3}),
    orjson.dumps({"window_end": rfc3339(BEGIN), "zone": ["gate"], "count": 3}),
    orjson.dumps({"window_end": rfc3339(BEGIN), "zone": "gate", "count": 3, "site": "elsewhere"}),
)  # fmt: skip


@pytest.mark.parametrize("value", NO_ROWS)
def test_an_invalid_row_affects_only_itself(value: bytes) -> None:
    made = gathering()
    made.process(row(0), BEGIN)
    made.process(value, BEGIN)
    made.process(row(0, "hall", 4), BEGIN)
    assert made.dropped == {"bad_row": 1}
    assert closed(made, END + 1) == [window(0, 3, 4)]


@pytest.mark.parametrize("count", [-1, 1_000_001, 3.0, True, None, "three", [3], "3 "])
def test_a_bad_count_spoils_its_own_cell(count: Any) -> None:
    for order in ((count, 3), (3, count)):
        made = gathering()
        made.process(row(0, "hall", 4), BEGIN)
        for each in order:
            made.process(row(0, count=each), BEGIN)
        assert closed(made, END + 1) == [window(0, None, 4)]


def test_rows_of_a_window_that_lacks_a_zone_are_counted_as_dropped_where_zeros_are_reported() -> None:
    made = WindowCollector(CellRules(REPORTED), BEGIN, {SITE: BEGIN})
    for zone in ZONES:
        made.process(row(0, zone), BEGIN)
    made.process(row(1, "hall"), BEGIN + TICK)
    assert closed(made, END + 2 * TICK + 1) == [window(0, 3, 3, 3), window(1, None, 3), window(2)]
    assert made.dropped == {"incomplete": 1}


def test_fields_that_are_not_known_are_skipped() -> None:
    made = gathering()
    made.process(row(0, camera="north-2", confidence=0.93), BEGIN)
    assert closed(made, END + 1) == [window(0, 3)]


# --- begun again --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_same_rows_read_again_close_the_same_windows(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        (row(rng.randrange(4), rng.choice(ZONES), rng.choice([1, 2, -1])), BEGIN + rng.randrange(-TICK, 4 * TICK))
        for _ in range(60)
    ]
    whole = gathering()
    for value, when in rows:
        whole.process(value, when)
    expected = closed(whole, END + 3 * TICK + 1)
    stopped = rng.randrange(len(rows))
    made, now = gathering(), BEGIN + rng.randrange(3 * TICK)
    for value, when in rows[:stopped]:
        made.process(value, when)
    made = gathering()  # killed before anything was closed
    for value, when in rows:
        if when <= now:
            made.process(value, when)
    got = closed(made, now)
    since = made.begin_again()  # the broker was away: from here on all is read again
    before = made.dropped.copy()
    for value, when in rows:
        if when >= since:
            made.process(value, when)
    assert got + closed(made, END + 3 * TICK + 1) == expected
    assert made.dropped["late"] >= before["late"]


def test_rows_of_closed_windows_read_again_are_not_late() -> None:
    made = gathering()
    made.process(row(0), BEGIN)
    assert closed(made, END + 1) == [window(0, 3)]
    assert made.begin_again() == BEGIN
    made.process(row(0), BEGIN)
    assert not made.dropped


def test_a_topic_gives_the_windows_of_a_file_with_the_same_rows(tmp_path: Path) -> None:
    rng, made = random.Random(3), gathering(last=BEGIN + 9 * TICK)
    lines = []
    for number in range(10):
        for zone in ZONES:
            if rng.random() < 0.8:
                count: Any = rng.randrange(40) if rng.random() < 0.9 else "many"
                lines.append(f"{rfc3339(BEGIN + number * TICK)},{zone},{count}")
                made.process(row(number, zone, count), BEGIN + number * TICK)
    file = CountsFile(written(tmp_path, *lines), POLICY, since=BEGIN, until=BEGIN + 9 * TICK)
    assert file.begin() == BEGIN
    read = file.tally.rows
    assert closed(made, BEGIN + 20 * TICK) == list(file.messages())
    assert file.tally.rows == read == len(lines), "it is read once"


# --- where it begins ----------------------------------------------------------------------------------

NOW = BEGIN + 10 * SECOND
FIRST: tuple[tuple[Micros, Micros | None, dict[str, Micros], int], ...] = (
    (NOW, None, {}, 0),  # the window that waits is told of
    (END, None, {}, 0),
    (END + 1, None, {}, 1),
    (NOW, BEGIN - 5 * TICK - 1, {}, -5),  # as asked for
    (NOW, None, {SITE: BEGIN - 9 * TICK}, -9),  # nothing is left out after an outage
    (NOW, BEGIN - 5 * TICK, {SITE: BEGIN - 9 * TICK}, -5),
    (NOW, BEGIN - 5 * TICK, {SITE: BEGIN - 2 * TICK}, -2),  # what is closed is not told of again
)


@pytest.mark.parametrize(("now", "since", "known", "number"), FIRST)
def test_the_first_window(now: Micros, since: Micros | None, known: dict[str, Micros], number: int) -> None:
    assert first_windows(CellRules(POLICY), now, since, known) == {SITE: BEGIN + number * TICK}


def test_a_policy_without_such_a_site_is_refused() -> None:
    devices = load_policy(text().replace('feed = "counts"', 'sources = ["10.2.0.5"]').replace(
        "capacity = 20", 'capacity = 20\naccess_points = ["02:00:00:00:00:01"]', 1
    ).replace('id = "hall"', 'id = "hall"\naccess_points = ["02:00:00:00:00:02"]').replace(
        'id = "roof"', 'id = "roof"\naccess_points = ["02:00:00:00:00:03"]'
    ))  # fmt: skip
    with pytest.raises(UsageError, match="must have a site with feed = 'counts'"):
        CellRules(devices)
