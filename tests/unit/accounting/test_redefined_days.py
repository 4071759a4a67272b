"""A site defines its days anew (``day_starts``, ``timezone``): no charge of a device's day is lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import orjson

from stream.accounting.account import Account
from stream.accounting.account_state import AccountState
from stream.policy.fields import EVERYBODY
from stream.policy.mechanisms import SPARSE_VECTOR
from stream.policy.privacy_days import PrivacyDays
from stream.records import MINUTE, PURE, CountCharge, DayTerms, Micros, WindowCharges
from stream.release.account_stage import account_stage
from stream.schemas import parse_time
from tests.support.small_building import (
    SITE,
    building,
)

TICK = 5 * MINUTE
MIDNIGHT: Micros = parse_time("2026-03-03T00:00:00Z")
MORNING = PrivacyDays("04:00", "America/Los_Angeles")
"""12:00Z to 12:00Z."""
EVENING = PrivacyDays("20:00", "America/Los_Angeles")
"""04:00Z to 04:00Z; the day that begins on 3 March in UTC has the number of 2 March."""
Window = tuple[PrivacyDays | None, Micros, tuple[CountCharge, ...]]
"""Definition of the day in force, end of the window, what it was charged."""
PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { facilities = "1", public = "1" }
"""


@cache
def stage_under(days: PrivacyDays | None) -> Account:
    stage = account_stage(building(releases=PLAIN), SITE, laboratory=True)
    zones = dict.fromkeys(("plain", "first", "second"), ())
    readers = {reader: stage.readers[reader] for reader in ("public", EVERYBODY)}  # of whom this file reads
    return replace(stage, readers=readers, tick_length=TICK, ticks_per_observation=2, privacy_days=days, zones=zones)


def reopened(stage: Account, state: AccountState) -> AccountState:
    """Return the state as it comes back from its bytes."""
    return stage.decode(stage.encode(state))


def records(windows: Iterable[Window]) -> list[dict[str, Any]]:
    """Return the account's records; where the day is defined anew the state goes through its bytes, as in a worker.

    What the bytes report is compared at every fifth window and at the last one.
    """
    state, under, made, listed = AccountState(), None, [], list(windows)
    for place, (days, end, charges) in enumerate(listed, 1):
        stage = stage_under(days)
        state = state if days is under else reopened(stage, state)
        under = days
        state, [record] = stage.step(state, WindowCharges(SITE, end, charges))
        made.append(orjson.loads(record.value))
        if place % 5 == 0 or place == len(listed):
            reported = stage.spend_at(reopened(stage, state), end)
            assert reported["public"]["device_day"] == made[-1]["audiences"]["public"]["device_day"]
    return made


def ends(first: Micros, number: int) -> list[Micros]:
    return [first + n * TICK for n in range(number)]


def one(name: str = "plain", w: int = 1) -> CountCharge:
    return CountCharge(name, "public", "laplace", Fraction(1), w=w)


def paid(name: str, day: PrivacyDays, end: Micros) -> CountCharge:
    terms = DayTerms(day.at(end), "laplace", (Fraction(2, 96),), 96)
    return CountCharge(name, "public", "laplace", Fraction(2), terms=terms)


def opened(name: str, day: PrivacyDays, end: Micros, runs: int) -> CountCharge:
    terms = DayTerms(day.at(end), PURE, (Fraction(1),), runs)
    return CountCharge(name, "public", SPARSE_VECTOR, Fraction(runs), terms=terms)


def last(windows: Iterable[Window], unit: str = "device_day") -> tuple[str, str]:
    """Return what a unit has cost the public, and everybody together, at the last window."""
    record = records(windows)[-1]
    return record["audiences"]["public"][unit], record["coalition"][unit]


# --- paid window by window --------------------------------------------------------------------------------


def test_what_the_day_so_far_was_charged_counts_on_when_the_day_is_defined_anew() -> None:
    at = ends(MIDNIGHT + 2 * TICK, 144)
    windows: list[Window] = [(None, end, (one(),)) for end in at[:-1]]
    assert last([*windows, (EVENING, at[-1], (one(),))]) == ("144", "144")


def test_the_day_of_the_definition_before_goes_on_to_its_end() -> None:
    at = ends(MIDNIGHT + 2 * TICK, 288)
    windows: list[Window] = [(None if place < 60 else EVENING, end, (one(),)) for place, end in enumerate(at)]
    assert last(windows) == ("288", "288")


def test_windows_before_the_change_that_lie_in_the_new_day_count_in_it() -> None:
    """UTC's day is over when the window ends; the new day began at noon before and has both."""
    noon = MIDNIGHT + 144 * TICK
    windows: list[Window] = [(None, end, (one(),)) for end in ends(noon + 3 * TICK, 150)]
    end = windows[-1][1] + TICK
    assert last([*windows, (MORNING, end, (one(),))]) == ("151", "151")


def test_the_first_windows_of_a_new_day_count_twice_also_where_they_were_charged_before_the_change() -> None:
    """The evening's last observation may count in them instead (an observation counts at two ticks)."""
    noon = MIDNIGHT + 144 * TICK
    windows: list[Window] = [(None, end, (one(),)) for end in ends(noon + TICK, 150)]
    end = windows[-1][1] + TICK
    assert last([*windows, (MORNING, end, (one(),))]) == ("153", "153")


def test_epsilon_at_delta_is_of_all_windows_too() -> None:
    at = ends(MIDNIGHT + 2 * TICK, 144)
    windows: list[Window] = [(None, end, (one(),)) for end in at]
    whole = records(windows)[-1]["audiences"]["public"]["tight"]["device_day"]
    changed = records([*windows[:-1], (EVENING, *windows[-1][1:])])[-1]["audiences"]["public"]["tight"]["device_day"]
    assert changed == whole


def test_the_definition_before_is_forgotten_once_its_day_is_over() -> None:
    at = ends(MIDNIGHT + 2 * TICK, 2 * 288)
    windows: list[Window] = [(None if place < 60 else EVENING, end, (one(),)) for place, end in enumerate(at)]
    made = [record["audiences"]["public"]["device_day"] for record in records(windows)]
    begins = MIDNIGHT + 288 * TICK + 48 * TICK  # 04:00Z
    of = dict(zip(at, made, strict=True))
    assert (of[begins], of[begins + 2 * TICK], of[begins + 3 * TICK]) == ("290", "292", "5")


def test_equal_days_under_another_name_are_one_day() -> None:
    berlin, paris = PrivacyDays("04:00", "Europe/Berlin"), PrivacyDays("04:00", "Europe/Paris")
    at = ends(MIDNIGHT + 2 * TICK, 400)
    one_name = records([(berlin, end, (one(),)) for end in at])
    two_names = records([(berlin if place % 100 < 50 else paris, end, (one(),)) for place, end in enumerate(at)])
    assert two_names == one_name


def test_a_run_that_pays_for_w_windows_goes_on() -> None:
    at = ends(MIDNIGHT + 2 * TICK, 100)
    windows: list[Window] = [(None, end, (one(w=4),)) for end in at[:-1]]
    assert last([*windows, (EVENING, at[-1], (one(w=4),))]) == ("25", "25")


def test_where_a_run_broke_off_is_known_of_a_day_defined_later() -> None:
    """5 and 6 windows of 4 cost 2 epsilons each, in a day that nobody had defined when they were charged."""
    noon = MIDNIGHT + 144 * TICK
    first, *rest = (ends(noon + 140 * TICK, 5), ends(noon + 145 * TICK, 1), ends(noon + 146 * TICK, 6))
    waiting = CountCharge("plain", "public", "laplace", Fraction(0), reason="waiting", w=4)
    windows: list[Window] = [(None, end, (one(w=4),)) for end in first]
    windows += [(None, end, (waiting,)) for end in rest[0]]
    windows += [(None, end, (one(w=4),)) for end in rest[1]]
    assert last([*windows[:-1], (MORNING, *windows[-1][1:])]) == ("4", "4")


# --- paid by the day --------------------------------------------------------------------------------------


def test_days_that_overlap_add_up_where_two_releases_have_paid_them() -> None:
    """2 for the first's day and 2 for the second's; a part of another's day may change all of it, which doubles it."""
    at = MIDNIGHT + 150 * TICK
    windows: list[Window] = [(MORNING, at, (paid("first", MORNING, at),))]
    later = MIDNIGHT + 160 * TICK
    windows.append((EVENING, later, (paid("second", EVENING, later),)))
    assert last(windows) == ("6", "6")
    assert last(windows, "device_day_moved") == ("8", "8")
    assert last(windows, "device_total") == ("4", "4")


def test_a_part_of_a_day_that_was_paid_costs_that_day_changed() -> None:
    at = MIDNIGHT + 150 * TICK
    windows: list[Window] = [(MORNING, at, (paid("first", MORNING, at),))]
    windows.append((EVENING, at + TICK, ()))
    assert last(windows) == ("4", "4")


def test_a_paid_day_within_a_longer_one_is_paid_once() -> None:
    """The clocks go back: Los Angeles has a day of 25 hours, which holds all of a day of Phoenix."""
    longer, within = PrivacyDays("00:00", "America/Los_Angeles"), PrivacyDays("01:00", "America/Phoenix")
    at = parse_time("2026-11-01T12:00:00-08:00")
    outer, inner = longer.at(at), within.at(at)
    assert outer.start < inner.start < inner.end <= outer.end
    windows: list[Window] = [(within, at, (paid("first", within, at),)), (longer, at + TICK, ())]
    assert last(windows) == ("2", "2")


def test_runs_of_threshold_streams_on_days_that_overlap_add_up() -> None:
    at, later = MIDNIGHT + 150 * TICK, MIDNIGHT + 160 * TICK
    windows: list[Window] = [(MORNING, at, (opened("first", MORNING, at, 2),))]
    windows.append((EVENING, later, (opened("second", EVENING, later, 1),)))
    assert last(windows) == ("5", "5")  # the first's day 4, changed in part, and the second's 1


def test_days_of_one_number_that_do_not_overlap_are_paid_each() -> None:
    """Tokyo's 3 March is over before Los Angeles' begins."""
    tokyo, late = PrivacyDays("00:00", "Asia/Tokyo"), PrivacyDays("23:00", "America/Los_Angeles")
    first, second = parse_time("2026-03-03T00:10:00+09:00"), parse_time("2026-03-03T23:30:00-08:00")
    assert tokyo.at(first).number == late.at(second).number
    windows: list[Window] = [(tokyo, first, (paid("first", tokyo, first),))]
    windows.append((late, second, (paid("first", late, second),)))
    assert last(windows, "device_total") == ("4", "4")
    assert last(windows) == ("2", "2")
