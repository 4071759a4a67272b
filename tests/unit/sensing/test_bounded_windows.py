"""Windows with bounded counts: what is counted by the day, what is remembered for it, and which batches are taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from stream.encoding import decode_message, encode_message
from stream.encryption import Kind, clear_of, seal, unseal
from stream.operators import scan
from stream.records import (
    DAY,
    HOUR,
    MINUTE,
    Heartbeat,
    Micros,
    ObservationBatch,
    OccupancyWindow,
    PrivacyDay,
    Rejected,
    Row,
)
from stream.sensing.contribution import ContributionBound
from stream.sensing.occupancy import OccupancyOperator
from stream.sensing.state import SensingState, decode_status

TICK = 15 * MINUTE
VALIDITY = 20 * MINUTE
LATENESS = MINUTE
NUMBER = 20_000
BEGINS = NUMBER * DAY + 4 * HOUR
"""Start of a privacy day."""
BY_DAY = ContributionBound("04:00", "UTC", 2, ignore_residents=False, tick_length=TICK, validity=VALIDITY)
Item = ObservationBatch | Heartbeat


def sense(**changes: Any) -> OccupancyOperator:
    settings: dict[str, Any] = {
        "site": "dbh", "zones": ("A", "B"), "access_points": {"ap-a": "A", "ap-b": "B"}, "sources": ("one",),
        "tick_length": TICK, "validity": VALIDITY, "lateness": LATENESS, "max_devices": 100,
        "ahead": HOUR, "by_day": BY_DAY,
    }  # fmt: skip
    return OccupancyOperator(**(settings | changes))


def day_of(time: Micros) -> PrivacyDay:
    number = (time - 4 * HOUR - 1) // DAY
    return PrivacyDay(number, number * DAY + 4 * HOUR, (number + 1) * DAY + 4 * HOUR)


def log(seen: Iterable[tuple[str, str, int]], hours: range = range(26), *, named: bool = True) -> list[Item]:
    """Return what a connector sends of (device, access point, minutes from the day's start), and its heartbeats."""
    items: list[Item] = []
    timed = sorted((BEGINS + minute * MINUTE, device, point) for device, point, minute in seen)
    for time in range(BEGINS + hours.start * HOUR, BEGINS + hours.stop * HOUR, TICK):
        items.append(Heartbeat("dbh", "one", 1, time + LATENESS + 1, 0))
        rows = tuple(Row(device, point, at) for at, device, point in timed if time < at <= time + TICK)
        if rows:
            epoch = day_of(rows[0].time) if named else None
            items.append(ObservationBatch("dbh", "one", 1, time // TICK, rows, epoch))
    return items


def windows(
    stage: OccupancyOperator, items: Iterable[Item], state: SensingState | None = None
) -> dict[int, OccupancyWindow]:
    """Return the windows by the minutes from the day's start to their end."""
    _, out = scan(stage, items, state)
    return {(w.window_end - BEGINS) // MINUTE: w for w in out if isinstance(w, OccupancyWindow)}


def bounded(
    stage: OccupancyOperator, items: Iterable[Item], state: SensingState | None = None
) -> dict[int, tuple[int, ...] | None]:
    return {minute: window.bounded for minute, window in windows(stage, items, state).items()}


STAY = [("anne", "ap-a", minute) for minute in range(61, 181, 10)]


# ---- counts --------------------------------------------------------------------------------------------


def test_a_window_has_counts_with_and_without_the_bound_and_names_its_privacy_day() -> None:
    found = windows(sense(), log([*STAY, ("ben", "ap-b", 100)], range(-1, 26)))
    assert [found[minute].counts for minute in (75, 90, 105, 120)] == [(1, 0), (1, 0), (1, 1), (1, 0)]
    assert [found[minute].bounded for minute in (75, 90, 105, 120)] == [(1, 0), (1, 0), (0, 1), (0, 0)]
    assert {window.privacy_day for window in found.values()} == {
        day_of(BEGINS),
        day_of(BEGINS + 1),
        day_of(BEGINS + DAY + 1),
    }
    assert found[0].privacy_day == day_of(BEGINS), "the tick at its start is the last of the day before"


def test_a_site_that_bounds_nothing_has_neither() -> None:
    found = windows(sense(by_day=None), log(STAY, named=False))
    assert {(window.bounded, window.privacy_day) for window in found.values()} == {(None, None)}


def test_presence_is_cut_where_the_day_starts() -> None:
    found = windows(sense(), log([("anne", "ap-a", -4), ("ben", "ap-a", 24 * 60 - 1)], range(-1, 26)))
    assert found[0].counts == found[0].bounded == (1, 0)
    assert (found[15].counts, found[15].bounded) == ((1, 0), (0, 0))
    assert found[24 * 60].bounded == (1, 0)
    assert (found[24 * 60 + 15].counts, found[24 * 60 + 15].bounded) == ((1, 0), (0, 0))


# ---- what is remembered --------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(0, 110, 9))
def test_counters_go_on_over_a_restart_after_any_message(cut: int) -> None:
    stage = sense(by_day=BY_DAY._replace(ignore_residents=True))
    items = log([*STAY, *(("printer", "ap-b", minute) for minute in range(1, 600, 7)), ("anne", "ap-a", 24 * 60 + 31)])
    state, before = scan(stage, items[:cut])
    again = stage.decode(stage.encode(state))
    assert again == state
    assert again.known_devices == state.known_devices
    assert [*before, *scan(stage, items[cut:], again)[1]] == list(scan(stage, items)[1])


def test_who_was_seen_in_a_day_is_in_the_state_until_its_end_and_not_beyond() -> None:
    items = log(STAY)
    for minutes, stored in ((12 * 60, True), (24 * 60, True), (24 * 60 + 15, False)):
        upto = [
            item
            for item in items
            if isinstance(item, ObservationBatch) or item.watermark <= BEGINS + minutes * MINUTE + TICK
        ]
        state, _ = scan(sense(), upto)
        assert state.closed == BEGINS + minutes * MINUTE
        assert (b'"anne"' in sense().encode(state)) is stored
        assert ("anne" in state.known_devices) is stored


def test_the_byte_form_has_counters_only_where_counts_are_bounded() -> None:
    counters = {}
    for by_day in (None, BY_DAY):
        stage = sense(by_day=by_day)
        data = stage.encode(scan(stage, log(STAY, named=by_day is not None))[0])
        counters[by_day] = "tally" in orjson.loads(data)
        assert decode_status(data).last_window == BEGINS + 25 * HOUR + 45 * MINUTE
    assert counters == {None: False, BY_DAY: True}


def test_a_shut_site_is_known_as_one_in_every_form() -> None:
    for by_day in (None, BY_DAY):
        stage = sense(by_day=by_day, max_devices=1)
        crowd = [("anne", "ap-a", 61), ("ben", "ap-a", 61)]
        assert decode_status(stage.encode(scan(stage, log(crowd, named=by_day is not None))[0])).suspended


def test_max_devices_is_of_the_devices_of_a_day() -> None:
    seen = [(f"{hour:016x}", "ap-a", 60 * hour + 1) for hour in range(1, 24)]
    assert not scan(sense(max_devices=23), log(seen))[0].suspended
    assert scan(sense(max_devices=22), log(seen))[0].suspended
    assert not scan(sense(max_devices=22, by_day=None), log(seen, named=False))[0].suspended
    assert not scan(sense(max_devices=23), log([*seen, ("anne", "ap-a", 24 * 60 + 31)]))[0].suspended, "a day has ended"


# ---- one run a day -------------------------------------------------------------------------------------


def noon(stage: OccupancyOperator, seen: Iterable[tuple[str, str, int]] = STAY) -> SensingState:
    return scan(stage, log(seen, range(8), named=stage.by_day is not None))[0]


def unbounded_until(found: dict[int, tuple[int, ...] | None]) -> int:
    """Return the first minute with bounded counts; before it there are none, from it on there are always some."""
    first = min(minute for minute, counts in found.items() if counts is not None)
    assert all((counts is None) == (minute < first) for minute, counts in found.items())
    return first


REST = log([], range(8, 52))
NEXT = 24 * 60 + 15
"""The first tick of the next day."""


def test_after_a_loss_nothing_is_bounded_until_the_next_day() -> None:
    stage = sense()
    state = stage.mark_data_loss(noon(stage))
    assert b'"anne"' in stage.encode(noon(stage))
    assert b'"anne"' not in stage.encode(state)
    assert unbounded_until(bounded(stage, REST, state)) == NEXT


def test_after_a_site_has_shut_nothing_is_bounded_until_the_next_day() -> None:
    stage = sense(max_devices=1)
    state = noon(stage, [*STAY, ("ben", "ap-a", 121)])
    assert state.suspended
    assert b'"anne"' not in stage.encode(state)
    assert unbounded_until(bounded(stage, REST, stage.resume(stage.decode(stage.encode(state))))) == NEXT


@pytest.mark.parametrize(
    "changes",
    [{"most": 3}, {"ignore_residents": True}, {"validity": VALIDITY + 1}],
    ids=lambda changes: next(iter(changes)),
)
def test_under_another_definition_nothing_is_bounded_until_the_next_day(changes: dict[str, Any]) -> None:
    before, after = sense(), sense(by_day=BY_DAY._replace(**changes))
    state = after.decode(before.encode(noon(before)))
    assert unbounded_until(bounded(after, REST, state)) == NEXT


def test_zones_and_sources_may_change_within_the_day() -> None:
    before, after = sense(), sense(zones=("C", "A"), access_points={"ap-a": "A", "ap-c": "C"}, sources=("one", "two"))
    state = before.decode(before.encode(scan(before, log(STAY, range(2)))[0]))
    again = after.decode(before.encode(state))
    assert again.tally == state.tally
    assert state.tally is not None
    assert state.tally.counted == {"anne": 2}


def test_a_site_that_begins_to_bound_waits_for_a_day_with_its_own_names_alone() -> None:
    before = sense(by_day=None)
    state = sense().decode(before.encode(noon(before, [("anne", "ap-a", 479)])))
    assert unbounded_until(bounded(sense(), REST, state)) == NEXT


def test_a_bound_that_is_taken_away_and_given_back_within_the_day_does_not_begin_a_second_run() -> None:
    without = sense(by_day=None)
    state = without.decode(sense().encode(noon(sense())))
    between, _ = scan(without, log([], range(8, 10)), state)
    back = sense().decode(without.encode(between))
    assert unbounded_until(bounded(sense(), log([], range(10, 52)), back)) == NEXT


def test_a_site_without_a_bound_forgets_when_the_day_is_over_that_it_had_one() -> None:
    without = sense(by_day=None)
    state, _ = scan(without, REST, without.decode(sense().encode(noon(sense()))))
    assert "tally" not in orjson.loads(without.encode(state))


def test_counters_that_begin_within_a_day_are_a_run_of_their_own() -> None:
    assert unbounded_until(bounded(sense(), REST)) == 8 * 60 + 15


# ---- epochs --------------------------------------------------------------------------------------------

GOOD = ObservationBatch("dbh", "one", 1, 0, (Row("anne", "ap-a", BEGINS + HOUR),), day_of(BEGINS + HOUR))


def taken(batch: ObservationBatch, stage: OccupancyOperator | None = None) -> tuple[list[Rejected], int]:
    """Return what of a batch is rejected, and how many of its rows are accepted."""
    stage = stage or sense()
    items: list[Item] = [Heartbeat("dbh", "one", 1, BEGINS + HOUR, 0), batch]
    state, out = scan(stage, items)
    return [each for each in out if isinstance(each, Rejected)], state.counters["accepted"]


def test_a_batch_of_the_sites_own_epoch_is_taken() -> None:
    assert taken(GOOD) == ([], 1)


@pytest.mark.parametrize(
    "epoch",
    [
        None,
        day_of(BEGINS)._replace(number=NUMBER),
        day_of(BEGINS + HOUR)._replace(start=BEGINS + TICK),
        day_of(BEGINS + HOUR)._replace(end=BEGINS + DAY + HOUR),
        PrivacyDay(0, 0, 0),
        PrivacyDay(-(2**53) + 1, -(2**53) + 1, 2**53 - 1),
    ],
)
def test_a_batch_without_epoch_or_of_another_reckoning_is_rejected_whole(epoch: PrivacyDay | None) -> None:
    assert taken(replace(GOOD, epoch=epoch)) == ([Rejected("one", "epoch", "epoch")], 0)


def test_a_batch_with_an_epoch_is_rejected_where_the_site_bounds_nothing() -> None:
    assert taken(GOOD, sense(by_day=None)) == ([Rejected("one", "epoch", "epoch")], 0)


def test_a_row_outside_the_epoch_of_its_batch_is_rejected_alone() -> None:
    times = (BEGINS, BEGINS + 1, BEGINS + HOUR, BEGINS + DAY, BEGINS + DAY + 1)
    rows = tuple(Row("anne", "ap-a", time) for time in times)
    stage = sense(ahead=2 * DAY)
    items: list[Item] = [Heartbeat("dbh", "one", 1, BEGINS - HOUR, 0), replace(GOOD, rows=rows)]
    state, out = scan(stage, items)
    assert list(out) == [Rejected("one", "epoch", "rows[0].time"), Rejected("one", "epoch", "rows[4].time")]
    assert (state.counters["accepted"], state.counters["epoch"]) == (3, 2)


def test_a_message_carries_its_epoch_and_one_without_is_as_it_always_was() -> None:
    assert decode_message(encode_message(GOOD)) == (GOOD, [])
    assert epoch_of(encode_message(GOOD)) == [*day_of(BEGINS + HOUR)]
    plain = replace(GOOD, epoch=None)
    assert decode_message(encode_message(plain)) == (plain, [])
    assert epoch_of(encode_message(plain)) is None


def epoch_of(value: bytes) -> Any:
    return orjson.loads(clear_of(Kind.OBSERVATIONS, value)).get("epoch")


@pytest.mark.parametrize("epoch", [1, "x", [], [1, 2], [1, 2, 3, 4], [1, 2, True], [1, 2, "3"], [1, 2, 2**53], {}])
def test_what_is_no_epoch_is_rejected(epoch: Any) -> None:
    head = orjson.loads(clear_of(Kind.OBSERVATIONS, encode_message(GOOD))) | {"epoch": epoch}
    rows = unseal(Kind.OBSERVATIONS, encode_message(GOOD))
    value = seal(Kind.OBSERVATIONS, rows, clear=orjson.dumps(head))
    assert decode_message(value) == (None, [Rejected("one", "type", "epoch")])
