"""Whom a bound on contributions leaves out: the same as the counters of the sense stage leave out, tick by tick."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from stream.records import DAY, HOUR, MINUTE, Heartbeat, Micros, ObservationBatch, OccupancyWindow, PrivacyDay, Row
from stream.sensing.contribution import ContributionBound
from stream.sensing.device_days import DeviceDays, Hidden
from stream.sensing.occupancy import OccupancyOperator

MIDNIGHT = 20_000 * DAY
TICK = 5 * MINUTE
Heard = list[tuple[str, Micros]]


def definition(most: int, *, ignore_residents: bool = False) -> ContributionBound:
    return ContributionBound("00:00", "UTC", most, ignore_residents, TICK, 10 * MINUTE)


def days(heard: Heard, *, ignore_residents: bool = False) -> DeviceDays:
    made = DeviceDays(definition(1, ignore_residents=ignore_residents))
    made.add(heard)
    return made


def counted(heard: Heard, bound: ContributionBound) -> dict[Micros, int]:
    """Return the bounded counts of the day as the sense stage makes them."""
    sense = OccupancyOperator(
        site="s", zones=("z",), sources=("c",), max_devices=1000, access_points={"ap": "z"}, tick_length=TICK,
        validity=10 * MINUTE, lateness=MINUTE, by_day=bound,
    )  # fmt: skip
    rows = tuple(Row(device, "ap", time) for device, time in sorted(heard, key=lambda each: each[1]))
    state, made = sense.initial(), []
    for item in (
        ObservationBatch("s", "c", 0, 0, rows, PrivacyDay(20_000, MIDNIGHT, MIDNIGHT + DAY)),
        Heartbeat("s", "c", 0, MIDNIGHT), Heartbeat("s", "c", 0, MIDNIGHT + DAY + 2 * MINUTE),
    ):  # fmt: skip
        state, outputs = sense.step(state, item)
        made += [each for each in outputs if isinstance(each, OccupancyWindow)]
    return {each.window_end: each.bounded[0] for each in made if each.bounded is not None}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ignore_residents", [False, True])
def test_who_is_hidden_is_whom_the_counters_leave_out(seed: int, ignore_residents: bool) -> None:
    drawn = random.Random(seed)
    received = [
        (f"{device:016x}", time)
        for device in range(6)
        for spell in range(drawn.randrange(1, 5))
        for time in spell_of(drawn, MIDNIGHT + drawn.choice([0, 1, drawn.randrange(24 * 60)]) * MINUTE)
    ]
    most = drawn.randrange(1, 40)
    full, bounded = (counted(received, definition(each, ignore_residents=ignore_residents)) for each in (10_000, most))
    missing = {tick: full[tick] - bounded[tick] for tick in full}
    tick = min(missing, key=lambda each: (-missing[each], each))
    expected = Hidden(tick, Fraction(missing[tick], full[tick])) if missing[tick] else None
    assert days(received, ignore_residents=ignore_residents).most_hidden(most) == expected


def spell_of(drawn: random.Random, start: Micros) -> list[Micros]:
    times = [start + 1]
    for _ in range(drawn.randrange(1, 30)):
        times.append(times[-1] + drawn.randrange(MINUTE, 12 * MINUTE))
    return [time for time in times if time <= MIDNIGHT + DAY]


def test_a_share_of_device_days_is_covered_by_the_shortest_bound_that_holds_them_whole() -> None:
    received = [(f"{n:x}", MIDNIGHT + 10 * HOUR + 4 * MINUTE * at) for n in range(1, 101) for at in range(n)]
    lengths = sorted(len(ticks) for _, ticks in days(received)._counting())
    assert days(received).covering(Fraction(99, 100)) == lengths[98]
    assert days(received).covering(Fraction(1)) == lengths[99] > lengths[98]
    assert days([]).covering(Fraction(99, 100)) == 0


def test_what_is_there_when_the_day_begins_is_no_device_day_where_residents_are_ignored() -> None:
    machine = [("m", MIDNIGHT + 4 * MINUTE * at + 1) for at in range(350)]
    visitor = [("v", MIDNIGHT + 10 * HOUR + 4 * MINUTE * at) for at in range(15)]
    assert days(machine + visitor, ignore_residents=True).covering(Fraction(1)) < 15
    assert days(machine + visitor).covering(Fraction(1)) > 280


def test_the_loss_is_that_of_the_busiest_day() -> None:
    early = [("m", MIDNIGHT - 2 * HOUR + 4 * MINUTE * at) for at in range(20)]
    late = [(f"{n}", MIDNIGHT + 10 * HOUR + 4 * MINUTE * at) for n in range(3) for at in range(10)]
    found = days(early + late).most_hidden(4)
    assert found is not None
    assert found.tick > MIDNIGHT + 10 * HOUR


@pytest.mark.parametrize("absent", [4, 5, 6, 7])
def test_a_resident_counts_when_it_was_away_as_long_as_the_counters_ask(absent: int) -> None:
    """Heard just after a tick, a device is present at the next two."""
    again = MIDNIGHT + MINUTE + (2 + absent) * TICK
    received = [("r", MIDNIGHT + MINUTE), *(("r", again + n * TICK) for n in range(8))]
    full, bounded = (counted(received, definition(each, ignore_residents=True)) for each in (10_000, 3))
    missing = sum(full[tick] - bounded[tick] for tick in full)
    assert (days(received, ignore_residents=True).most_hidden(3) is not None) is (missing > 0) is (absent >= 6)


def test_a_batch_counts_like_its_observations_and_the_end_of_a_stay_is_none() -> None:
    device, times = "a" * 16, (MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR)
    rows = (*(Row(device, "ap", time) for time in times), Row(device, None, times[1] + HOUR))
    made = DeviceDays(definition(1))
    made.add_batch(ObservationBatch("s", "c", 0, 0, rows, None))
    assert made.covering(Fraction(1)) == days([(device, time) for time in times]).covering(Fraction(1)) == 4
