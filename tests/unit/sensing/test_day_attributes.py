"""What a zone's day is, read off its occupancy."""

import random
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from stream.errors import DataError, UsageError
from stream.operators import scan as scan_days
from stream.policy.attributes import ATTRIBUTES, BREAK, DayShape
from stream.records import MINUTE, DayAttribute, OccupancyWindow
from stream.sensing.day_attributes import DayAttributes

TICK = 5 * MINUTE


def scan(stage: Any, windows: Any, state: Any = None) -> Any:
    """Drive the stage; return its state and the records of all days that closed."""
    after, days = scan_days(stage, windows, state)
    return after, [record for day in days for record in day.attributes]


IRVINE = "America/Los_Angeles"
MONDAY = date(2018, 2, 5)


def stage(**changes: Any) -> DayAttributes:
    settings: dict[str, Any] = {"site": "dbh", "zones": (("office", 1),), "timezone": IRVINE, "tick_length": TICK}
    return DayAttributes(**(settings | changes))


def ticks_of(day: date, timezone: str = IRVINE) -> list[tuple[int, str]]:
    """Every tick of a local day, found by looking at each one around it: (instant, local time)."""
    noon = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()) * 1_000_000
    found = []
    for tick in range(noon // TICK * TICK - 40 * 12 * TICK, noon + 40 * 12 * TICK, TICK):
        local = datetime.fromtimestamp(tick // 1_000_000, UTC).astimezone(ZoneInfo(timezone))
        if local.date() == day:
            found.append((tick, local.strftime("%H:%M")))
    return found


def window(tick: int, count: int, coverage: Fraction = Fraction(1)) -> OccupancyWindow:
    return OccupancyWindow("dbh", tick, (9, count, 9), coverage)


def day_of(*occupied: str, day: date = MONDAY, timezone: str = IRVINE, **changes: Any) -> list[DayAttribute]:
    """All records of a day on which the office is occupied at these local times."""
    windows = [window(tick, 2 * (local in occupied)) for tick, local in ticks_of(day, timezone)]
    midnight = window(windows[-1].window_end + TICK, 0)
    _, records = scan(stage(timezone=timezone, **changes), [*windows, midnight])
    return list(records)


def values(records: list[DayAttribute]) -> dict[str, object]:
    return {record.attribute: record.value for record in records}


def test_arrival_and_departure_are_the_first_and_last_occupied_tick_in_local_time() -> None:
    found = values(day_of("08:55", "09:00", "16:40"))
    assert (found["arrival"], found["departure"]) == ("08:55", "16:40")


def test_break_is_at_least_fifteen_minutes_empty() -> None:
    assert values(day_of("09:00", "09:15"))["breaks"] == 0
    assert values(day_of("09:00", "09:20"))["breaks"] == 1
    assert values(day_of("09:00", "09:20", "09:25", "12:00"))["breaks"] == 2


def test_time_before_arrival_and_after_departure_is_no_break() -> None:
    assert values(day_of("12:00"))["breaks"] == 0


def test_occupancy_level_is_the_share_of_occupied_ticks_in_working_hours() -> None:
    assert values(day_of("07:55", "08:00", "17:55", "18:00"))["occupancy_level"] == round(2 / 120, 4)
    every_tick = [local for _, local in ticks_of(MONDAY)]
    assert values(day_of(*every_tick))["occupancy_level"] == 1.0
    assert values(day_of("00:00", "23:55", working_hours=("00:00", "24:00")))["occupancy_level"] == 0.0069


def test_level_is_zero_when_the_zone_was_used_outside_working_hours_only() -> None:
    assert values(day_of("20:00"))["occupancy_level"] == 0.0


def test_zone_empty_all_day_has_no_value_in_any_attribute() -> None:
    assert values(day_of()) == dict.fromkeys(ATTRIBUTES)


def test_records_come_at_the_window_of_the_next_local_midnight_in_registry_order() -> None:
    machine = stage(zones=(("a", 0), ("b", 2)), attributes=("departure", "arrival"))
    windows = [window(tick, 0) for tick, _ in ticks_of(MONDAY)]
    state, out = scan(machine, windows)
    assert out == []
    midnight = windows[-1].window_end + TICK
    assert datetime.fromtimestamp(midnight // 1_000_000, UTC) == datetime(2018, 2, 6, 8, tzinfo=UTC)
    _, [day] = machine.step(state, window(midnight, 0))
    out = day.attributes
    assert (day.local_day, day.window_end) == ("2018-02-05", midnight)
    assert [(r.zone, r.attribute) for r in out] == [
        ("a", "departure"),
        ("a", "arrival"),
        ("b", "departure"),
        ("b", "arrival"),
    ]
    assert {(r.site, r.day, r.closed) for r in out} == {("dbh", "2018-02-05", midnight)}


def test_midnight_tick_belongs_to_the_day_that_it_begins() -> None:
    windows = [window(tick, 1) for tick, _ in ticks_of(MONDAY)[:1]]
    windows += [window(tick, 0) for tick, _ in ticks_of(MONDAY)[1:]]
    windows += [window(tick, 0) for tick, _ in ticks_of(MONDAY + timedelta(days=1))]
    windows.append(window(windows[-1].window_end + TICK, 1))
    _, out = scan(stage(attributes=("arrival",)), windows)
    assert [(r.day, r.value) for r in out] == [("2018-02-05", "00:00"), ("2018-02-06", None)]


@pytest.mark.parametrize(
    ("timezone", "day", "count", "first"),
    [
        (IRVINE, date(2018, 3, 11), 276, "00:00"),
        (IRVINE, date(2018, 11, 4), 300, "00:00"),
        ("Asia/Beirut", date(2024, 3, 31), 276, "01:00"),
        ("America/Havana", date(2024, 11, 3), 300, "00:00"),
        ("Australia/Lord_Howe", date(2024, 4, 7), 294, "00:00"),
        ("Asia/Kathmandu", date(2024, 4, 7), 288, "00:00"),
    ],
)
def test_day_on_which_the_clocks_change_is_whole_with_its_own_number_of_ticks(
    timezone: Any, day: Any, count: Any, first: Any
) -> None:
    ticks = ticks_of(day, timezone)
    assert (len(ticks), ticks[0][1]) == (count, first)
    everything = {local for _, local in ticks}
    found = values(day_of(*everything, day=day, timezone=timezone))
    assert (found["arrival"], found["departure"], found["breaks"]) == (first, "23:55", 0)
    one_short = [window(tick, 1) for tick, _ in ticks[1:]]
    machine = stage(timezone=timezone)
    state, out = scan(machine, [*one_short, window(ticks[-1][0] + TICK, 1)])
    assert (out, state.skipped) == ([], 1)


def test_break_over_a_change_of_the_clocks_is_measured_in_real_time() -> None:
    spring = date(2018, 3, 11)
    assert values(day_of("01:55", "03:00", day=spring))["breaks"] == 0
    assert values(day_of("01:50", "03:10", day=spring))["breaks"] == 1


def test_working_hours_of_a_day_with_repeated_hours_hold_more_ticks() -> None:
    autumn = date(2018, 11, 4)
    found = values(day_of("01:00", day=autumn, working_hours=("01:00", "02:00")))
    assert found["occupancy_level"] == round(2 / 24, 4)


def test_day_with_a_tick_that_no_source_reached_gives_no_record_and_is_counted() -> None:
    windows = [window(tick, 1) for tick, _ in ticks_of(MONDAY)]
    windows[100] = window(windows[100].window_end, 1, Fraction(0))
    machine = stage()
    state, out = scan(machine, [*windows, window(windows[-1].window_end + TICK, 1)])
    assert (out, state.skipped) == ([], 1)


def test_partly_covered_day_gives_its_records() -> None:
    windows = [window(tick, 1, Fraction(1, 3)) for tick, _ in ticks_of(MONDAY)]
    _, out = scan(stage(), [*windows, window(windows[-1].window_end + TICK, 1)])
    assert len(out) == len(ATTRIBUTES)


def test_which_records_come_and_when_does_not_depend_on_occupancy() -> None:
    shape = [(r.zone, r.day, r.attribute, r.closed) for r in day_of()]
    for occupied in [("00:00",), ("09:00", "17:00"), tuple(local for _, local in ticks_of(MONDAY))]:
        assert [(r.zone, r.day, r.attribute, r.closed) for r in day_of(*occupied)] == shape


def naive(occupied: list[bool], local: list[str]) -> dict[str, object]:
    """The definitions, once more, over the whole day at once."""
    if not any(occupied):
        return dict.fromkeys(ATTRIBUTES)
    text = "".join("#" if o else "." for o in occupied)
    office = [o for o, when in zip(occupied, local, strict=True) if "08:00" <= when < "18:00"]
    return {
        "arrival": local[text.index("#")],
        "departure": local[text.rindex("#")],
        "breaks": sum(len(gap) >= 3 for gap in text.strip(".").split("#")),
        "occupancy_level": round(sum(office) / len(office), 4),
    }


def test_random_days_agree_with_a_naive_recomputation() -> None:
    rng = random.Random(4)
    ticks = ticks_of(MONDAY)
    for _ in range(60):
        stay, come = rng.choice([0.5, 0.9, 0.98]), rng.choice([0.0, 0.02, 0.3])
        occupied = [False]
        for _ in ticks[1:]:
            occupied.append(rng.random() < (stay if occupied[-1] else come))
        records = day_of(*(local for (_, local), o in zip(ticks, occupied, strict=True) if o))
        assert values(records) == naive(occupied, [local for _, local in ticks])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tick_length": 0}, "tick"),
        ({"timezone": "Nowhere/Land"}, "timezone"),
        ({"timezone": "../etc"}, "timezone"),
        ({"attributes": ("mood",)}, "attributes"),
        ({"working_hours": ("18:00", "08:00")}, "working_hours"),
        ({"working_hours": ("8:00", "18:00")}, "working_hours"),
        ({"working_hours": ("08:00", "24:05")}, "working_hours"),
        ({"working_hours": ("08:60", "18:00")}, "working_hours"),
    ],
)
def test_configuration_without_meaning_is_refused_by_name(changes: Any, word: Any) -> None:
    with pytest.raises(UsageError, match=word):
        stage(**changes)


def test_window_of_another_site_is_refused() -> None:
    with pytest.raises(DataError, match=r"window\.site"):
        stage().step(stage().initial(), OccupancyWindow("elsewhere", 0, (1, 1, 1), Fraction(1)))


@pytest.mark.parametrize("data", [b"", b"{}", b'{"form":2}', b'{"form":1,"day":[],"zones":[]}', b"7"])
def test_bytes_that_are_no_state_are_refused_without_repeating_them(data: Any) -> None:
    with pytest.raises(DataError, match=r"^day state: not the byte form of a state$"):
        stage().decode(data)


@pytest.mark.parametrize("change", [lambda zone: zone[:-1], lambda zone: [*zone, 0]])
def test_a_state_with_another_number_of_counters_is_refused(change: Any) -> None:
    state, _ = scan(stage(), [window(tick, 1) for tick, _ in ticks_of(MONDAY)][:100])
    plain = orjson.loads(stage().encode(state))
    plain["zones"] = [change(zone) for zone in plain["zones"]]
    with pytest.raises(DataError, match="day state: not the byte form of a state"):
        stage().decode(orjson.dumps(plain))


@pytest.mark.parametrize("empty", [1, 2, 3, 4])
def test_what_is_a_break_here_is_one_in_the_logic_of_attributes(empty: Any) -> None:
    """Occupied at one tick, then empty for some: the most breaks that a day can have are counted here."""
    occupied = [local for place, (_, local) in enumerate(ticks_of(MONDAY)) if place % (empty + 1) == 0]
    found = values(day_of(*occupied))["breaks"]
    most = DayShape(288, 96, 216, -(-BREAK // TICK)).most_breaks
    assert found == (len(occupied) - 1 if empty * TICK >= 15 * MINUTE else 0)
    assert (found == most) is (empty == 3)


def test_state_shows_no_habits_when_printed() -> None:
    state, _ = scan(stage(), [window(ticks_of(MONDAY)[7][0], 1)])
    assert str(state.zones[0].first) not in repr(state.zones)
