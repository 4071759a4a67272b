"""Bounded counts: at which ticks of its privacy day a device counts, and which counters go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

import orjson
import pytest

from stream.records import DAY, HOUR, MINUTE, SECOND, Micros
from stream.sensing.contribution import BoundedCounts, ContributionBound, DayCounter, migrated_counter

TICK = 5 * MINUTE
VALIDITY = 10 * MINUTE
BEGINS = 20_000 * DAY + 4 * HOUR
"""The start of a privacy day."""
PLAIN = ContributionBound("04:00", "UTC", 3, ignore_residents=False, tick_length=TICK, validity=VALIDITY)
IGNORING = PLAIN._replace(ignore_residents=True)

Seen = Mapping[str, Iterable[int]]
"""Device -> minutes from the day's start at which it is seen, in zone 0."""


def present(seen: Seen, tick: Micros, start: Micros = BEGINS) -> dict[str, tuple[int, Micros]]:
    """Return where each device is at a tick by its last observation, whatever its day."""
    times = {device: [start + m * MINUTE for m in minutes] for device, minutes in seen.items()}
    last = {device: max((t for t in each if t <= tick), default=-DAY) for device, each in times.items()}
    return {device: (0, time) for device, time in last.items() if tick < time + VALIDITY}


def counted(
    seen: Seen,
    definition: ContributionBound = PLAIN,
    *,
    minutes: Iterable[int] = range(5, 24 * 60 + 5, 5),
    tally: DayCounter | None = None,
) -> list[int]:
    """Return the minutes of the ticks at which somebody counted."""
    stage = BoundedCounts(definition)
    tally = stage.initial() if tally is None else tally
    found = []
    for minute in minutes:
        tick = BEGINS + minute * MINUTE
        counts = stage.count(tally, tick, present(seen, tick), 1)
        assert counts is not None
        found += [minute] * counts[0]
    return found


# ---- at which ticks ------------------------------------------------------------------------------------


def test_a_device_counts_at_its_first_k_ticks_of_a_day() -> None:
    assert counted({"anne": range(61, 200, 5)}) == [65, 70, 75]


def test_a_stay_that_is_interrupted_uses_up_only_the_ticks_at_which_it_counted() -> None:
    assert counted({"anne": (61, 300, 400)}) == [65, 70, 300]


def test_each_device_has_a_contribution_of_its_own() -> None:
    anne, ben = {"anne": range(61, 200, 5)}, {"ben": range(64, 200, 5)}
    assert counted(anne | ben) == sorted(counted(anne) + counted(ben))


def test_what_was_seen_before_the_day_does_not_count_in_it() -> None:
    """Two minutes before its start, and at its start, which belongs to the day before."""
    assert counted({"anne": (-2,), "ben": (0,)}) == []
    assert counted({"anne": (-2, 3)}) == [5, 10]


def test_the_tick_at_the_end_belongs_to_the_day_and_a_new_one_begins_behind_it() -> None:
    stage = BoundedCounts(PLAIN)
    tally = stage.initial()
    seen = {"anne": range(24 * 60 - 30, 24 * 60 + 60, 5)}
    ticks = [BEGINS + minute * MINUTE for minute in range(24 * 60 - 30, 24 * 60 + 30, 5)]
    found = [tick for tick in ticks if stage.count(tally, tick, present(seen, tick), 1) == (1,)]
    assert [(tick - BEGINS) // MINUTE - 24 * 60 for tick in found] == [-30, -25, -20, 5, 10, 15]
    assert tally.counted == {"anne": 3}


def test_who_was_seen_is_forgotten_at_the_first_tick_of_the_next_day() -> None:
    stage = BoundedCounts(IGNORING)
    tally = stage.initial()
    seen = {"anne": range(1, 24 * 60, 5)}
    for minute in range(5, 24 * 60 + 5, 5):
        stage.count(tally, BEGINS + minute * MINUTE, present(seen, BEGINS + minute * MINUTE), 1)
    assert (tally.counted, tally.residents) == ({"anne": 0}, {"anne": 0})
    stage.count(tally, BEGINS + DAY + TICK, {}, 1)
    assert (tally.counted, tally.residents) == ({}, {})


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-10-30", 24), ("2026-10-31", 25), ("2026-11-01", 24), ("2026-03-07", 23)]
)
@pytest.mark.parametrize("ignore_residents", [False, True])
def test_a_device_begins_every_day_with_its_whole_contribution_however_many_hours_it_has(
    day: str, hours: int, ignore_residents: bool
) -> None:
    """The device is there all through the day before, in which it uses up what it may count, or is a resident."""
    definition = PLAIN._replace(timezone="America/Los_Angeles", ignore_residents=ignore_residents)
    stage = BoundedCounts(definition)
    number = (date.fromisoformat(day) - date(1970, 1, 1)).days
    before, start = stage.days.start(number - 1), stage.days.start(number)
    end = start + hours * HOUR
    assert stage.days.at(end) == (*stage.days.at(start + 1)[:2], end)
    tally, counted_at = stage.initial(), list[Micros]()
    for tick in range(before + TICK, end + TICK, TICK):
        seen = {"anne": (0, tick - 1)} if not start < tick <= start + HOUR else {}
        if stage.count(tally, tick, seen, 1) == (1,):
            counted_at.append(tick)
    used_up = [] if ignore_residents else [before + n * TICK for n in (1, 2, 3)]
    assert counted_at == [*used_up, *(start + HOUR + n * TICK for n in (1, 2, 3))]
    assert stage.count(tally, end + TICK, {"anne": (0, end + 1)}, 1) == ((0,) if ignore_residents else (1,))


@pytest.mark.parametrize("day", ["2026-10-31", "2026-11-01", "2026-03-07"])
def test_who_was_a_resident_of_the_day_before_is_none_of_a_day_that_it_begins_elsewhere(day: str) -> None:
    """Ticks of 15 minutes: it is absent at the two in which residents are noted, which are too few to have left."""
    quarter = 3 * TICK
    stage = BoundedCounts(IGNORING._replace(timezone="America/Los_Angeles", tick_length=quarter))
    start = stage.days.start((date.fromisoformat(day) - date(1970, 1, 1)).days)
    tally, counted_at = stage.initial(), list[int]()
    for number in range(-97, 9):
        tick = start + number * quarter
        if stage.count(tally, tick, {} if number in (1, 2) else {"guard": (0, tick - 1)}, 1) == (1,):
            counted_at.append(number)
    assert counted_at[-3:] == [3, 4, 5]


def test_counts_are_by_zone() -> None:
    stage = BoundedCounts(PLAIN)
    tick = BEGINS + HOUR
    where = {"anne": (2, tick), "ben": (0, tick - 1), "carl": (2, tick - VALIDITY + 1)}
    assert stage.count(stage.initial(), tick, where, 4) == (1, 0, 2, 0)


# ---- residents -----------------------------------------------------------------------------------------


def test_a_device_that_is_there_when_the_day_starts_does_not_count_while_it_stays() -> None:
    assert counted({"printer": range(1, 24 * 60, 5)}, IGNORING) == []
    assert counted({"printer": range(1, 24 * 60, 5)}, PLAIN) == [5, 10, 15]


@pytest.mark.parametrize(("first", "ignored"), [(26, True), (30, True), (31, False)])
def test_residents_are_those_present_at_a_tick_of_the_first_half_hour(first: int, ignored: bool) -> None:
    assert (counted({"anne": range(first, 200, 5)}, IGNORING) == []) is ignored


@pytest.mark.parametrize(("first", "counts"), [(30, []), (31, [31, 32, 33])])
def test_ticks_of_a_minute_find_residents_until_the_thirtieth(first: int, counts: list[int]) -> None:
    bound = IGNORING._replace(tick_length=MINUTE)
    assert counted({"anne": range(first, 60)}, bound, minutes=range(1, 60)) == counts


@pytest.mark.parametrize(("back", "counts"), [(66, []), (71, [75, 80, 85])])
def test_a_resident_counts_after_six_empty_ticks_in_a_row(back: int, counts: list[int]) -> None:
    """Seen last at 31 minutes it is present until 40; the empty ticks are 45, 50 to 65 or 70."""
    assert counted({"guard": (1, 11, 21, 31, *range(back, 200, 5))}, IGNORING) == counts


def test_empty_ticks_that_are_not_in_a_row_do_not_add_up() -> None:
    assert counted({"printer": range(1, 24 * 60, 30)}, IGNORING) == []


def test_ticks_as_a_resident_use_nothing_up() -> None:
    seen = {"guard": (*range(1, 300, 5), *range(400, 600, 5))}
    assert counted(seen, IGNORING) == [400, 405, 410]


def test_a_device_that_was_there_the_evening_before_is_a_resident_only_by_what_the_day_says_of_it() -> None:
    """Its last observation of the day before is still valid at the first tick."""
    assert counted({"anne": (-1, *range(31, 200, 5))}, IGNORING) == [35, 40, 45]


# ---- one run -------------------------------------------------------------------------------------------


def restarted(tally: DayCounter) -> DayCounter:
    return DayCounter.from_plain(orjson.loads(orjson.dumps(tally.to_plain())))


def test_counters_go_on_over_a_restart_at_any_tick() -> None:
    seen: Seen = {"guard": (1, 11, 21, 31, *range(71, 200, 5)), "anne": range(44, 200, 5), "ben": (61, 300, 400)}
    whole = counted(seen, IGNORING)
    for cut in range(5, 24 * 60, 35):
        tally = BoundedCounts(IGNORING).initial()
        before = counted(seen, IGNORING, minutes=range(5, cut + 5, 5), tally=tally)
        after = counted(seen, IGNORING, minutes=range(cut + 5, 24 * 60 + 5, 5), tally=restarted(tally))
        assert before + after == whole


def test_a_tally_has_one_byte_form_in_whatever_order_devices_came() -> None:
    one, other = (
        DayCounter(PLAIN, None, None, dict(order), {}) for order in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    )
    assert one.to_plain() == other.to_plain()
    assert restarted(one) == one


def noon(definition: ContributionBound = PLAIN) -> DayCounter:
    """Return the counters of a day at noon."""
    tally = BoundedCounts(definition).initial()
    counted({"anne": (61, 300)}, definition, minutes=range(5, 8 * 60, 5), tally=tally)
    return tally


def test_a_bound_that_was_given_up_is_stored_until_its_day_is_over() -> None:
    given_up = migrated_counter(noon(), None, None)
    assert given_up is not None
    assert restarted(given_up) == given_up
    assert [given_up.is_over(BEGINS + DAY - TICK), given_up.is_over(BEGINS + DAY)] == [False, True]


def resumes(
    tally: DayCounter | None, definition: ContributionBound, since: Micros = BEGINS + 8 * HOUR
) -> Micros | None:
    """Return the first tick of the next two days at which there are counts."""
    assert tally is not None
    stage = BoundedCounts(definition)
    ticks = range(since, since + 2 * DAY, TICK)
    return next((tick for tick in ticks if stage.count(tally, tick, {}, 1) is not None), None)


def test_counters_of_the_same_definition_go_on() -> None:
    tally = noon()
    assert migrated_counter(tally, PLAIN, BEGINS + 8 * HOUR) is tally
    assert resumes(tally, PLAIN) == BEGINS + 8 * HOUR


@pytest.mark.parametrize(
    "other",
    [
        PLAIN._replace(most=4),
        PLAIN._replace(ignore_residents=True),
        PLAIN._replace(validity=VALIDITY + SECOND),
        PLAIN._replace(tick_length=MINUTE),
    ],
)
def test_under_another_definition_nothing_is_counted_before_the_next_day(other: ContributionBound) -> None:
    tally = migrated_counter(noon(), other, BEGINS + 8 * HOUR)
    assert tally is not None
    assert tally.counted == {}
    assert resumes(tally, other) == BEGINS + DAY + TICK


@pytest.mark.parametrize(
    ("day_starts", "first"),
    [
        ("05:00", BEGINS + DAY + HOUR),
        ("03:00", BEGINS + 2 * DAY - HOUR),  # the day that starts an hour before the old one is over would share it
    ],
)
def test_the_next_day_begins_when_the_old_one_is_over(day_starts: str, first: Micros) -> None:
    other = PLAIN._replace(day_starts=day_starts)
    assert resumes(migrated_counter(noon(), other, BEGINS + 8 * HOUR), other) == first + TICK


def test_a_definition_that_changes_exactly_with_the_day_counts_at_once() -> None:
    tally = BoundedCounts(PLAIN).initial()
    counted({"anne": (61,)}, PLAIN, tally=tally)
    other = PLAIN._replace(most=7)
    assert (
        resumes(migrated_counter(tally, other, BEGINS + DAY + MINUTE), other, BEGINS + DAY + TICK)
        == BEGINS + DAY + TICK
    )


def test_changing_back_within_the_day_does_not_begin_a_second_run() -> None:
    other = PLAIN._replace(most=4)
    for between in (other, None):
        assert (
            resumes(migrated_counter(migrated_counter(noon(), between, None), PLAIN, None), PLAIN)
            == BEGINS + DAY + TICK
        )


def test_a_state_without_counters_counts_from_the_first_day_with_none_of_its_observations() -> None:
    """They bear names of UTC days: a device would count under two names."""
    tally = migrated_counter(None, PLAIN, BEGINS + 8 * HOUR)
    assert resumes(tally, PLAIN) == BEGINS + DAY + TICK
    assert resumes(migrated_counter(None, PLAIN, None), PLAIN) == BEGINS + 8 * HOUR
    assert migrated_counter(None, None, BEGINS) is None


def test_observations_named_by_another_day_count_in_no_day_of_this_one() -> None:
    tally = BoundedCounts(PLAIN).initial()
    counted({"anne": (61,)}, PLAIN, tally=tally)
    other = PLAIN._replace(day_starts="04:05")
    began = BEGINS + DAY + 6 * MINUTE
    assert resumes(migrated_counter(tally, other, began), other, BEGINS + DAY + 2 * TICK) == BEGINS + 2 * DAY + 2 * TICK


@pytest.mark.parametrize("moved", [{"start": BEGINS - HOUR}, {"start": BEGINS + HOUR}, {"end": BEGINS + DAY + HOUR}])
def test_days_that_newer_data_of_the_time_zone_move_do_not_begin_a_second_run(moved: dict[str, Micros]) -> None:
    tally = noon()
    assert tally.day is not None
    tally.day = tally.day._replace(**moved)
    first = BEGINS + 2 * DAY if tally.day.end > BEGINS + DAY else BEGINS + DAY
    assert resumes(tally, PLAIN) == first + TICK


def test_broken_off_counters_forget_everybody_and_wait_for_the_latest_end() -> None:
    tally = noon()
    tally.suspend_until(BEGINS + DAY)
    assert (tally.counted, tally.residents) == ({}, {})
    tally.suspend_until(BEGINS)
    assert resumes(restarted(tally), PLAIN) == BEGINS + DAY + TICK
