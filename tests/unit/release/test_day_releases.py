"""Releases that are paid by a device's privacy day, through the real release stage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

from stream.accounting.calibration import calibrate
from stream.errors import PolicyError
from stream.keys import LaboratoryKeys
from stream.policy.document import PolicyDocument
from stream.policy.privacy_days import PrivacyDays
from stream.records import DAY, HOUR, MINUTE, CountCharge, Micros, OccupancyWindow, PrivacyDay
from stream.release.paid_days import DayPaymentStatus, PaidDays
from stream.release.stage import ReleaseStage
from stream.release.state import ReleaseState
from stream.release.validation import Policy, load_policy, validate
from stream.schemas import parse_time
from tests.support.day_policies import day_release, put_through

TICK = 5 * MINUTE
KEYS = LaboratoryKeys(b"r" * 32, "ledger", b"a" * 32)
DAYS = PrivacyDays("04:00", "America/Los_Angeles")
FOUR: Micros = parse_time("2026-03-03T04:00:00-08:00")
"""A start of a privacy day."""

SITE = """
[site.dbh]
sources = ["10.0.0.1"]
timezone = "America/Los_Angeles"
day_starts = "04:00"
contribution = "8h"
zones = [
  { id = "101", floor = "1", capacity = 20, access_points = ["02:00:00:00:01:01"] },
  { id = "201", floor = "2", capacity = 20, access_points = ["02:00:00:00:02:01"] },
]
[[audience]]
name = "public"
[[audience]]
name = "facilities"
"""
RELEASE = day_release(mechanism="laplace")


def policy(release: str = RELEASE, site: str = SITE) -> Policy:
    return load_policy(site + release)


def windows(first: Micros, number: int, bounded: bool = True) -> list[OccupancyWindow]:
    ends = [first + n * TICK for n in range(number)]
    return [OccupancyWindow("dbh", end, (9, 9), Fraction(1), DAYS.at(end), (5, 3) if bounded else None) for end in ends]


def released(
    items: Iterable[OccupancyWindow], stage: ReleaseStage | None = None, state: ReleaseState | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[CountCharge], ReleaseState]:
    """Return records, ledger entries, charges and the state of windows put through the stage."""
    stage = stage or ReleaseStage(policy(), "dbh", KEYS)
    return put_through(stage, items, state or stage.initial())


def spends(records: Iterable[dict[str, Any]], audience: str = "public") -> list[str]:
    return [record["spend"] for record in records if record["audience"] == audience]


def test_a_day_is_charged_once_with_its_first_window() -> None:
    records, entries, _, _ = released(windows(FOUR + TICK, 5))
    assert spends(records) == ["2", "0", "0", "0", "0"]
    assert [entry["nano"] for entry in entries if entry["audience"] == "facilities"] == [4_000_000_000, 0, 0, 0, 0]
    assert {entry["outcome"] for entry in entries} == {"released"}
    assert {record["epsilon"] for record in records} == {"2", "4"}


def test_the_window_that_ends_at_the_start_of_a_day_belongs_to_the_day_before() -> None:
    records, _, _, _ = released(windows(FOUR - TICK, 4))
    assert spends(records) == ["2", "0", "2", "0"]


def test_a_day_of_23_hours_is_paid_like_any_other() -> None:
    spring = parse_time("2026-03-08T03:30:00-07:00")  # the clocks went forward at 02:00; the day began the day before
    begins = DAYS.at(spring).start
    assert DAYS.at(spring).end - begins == 23 * HOUR
    records, _, _, _ = released(windows(begins + TICK, 2 * 12 * 23))
    assert spends(records).count("2") == 2
    assert spends(records)[12 * 23] == "2"


def test_every_window_of_a_day_is_released() -> None:
    records, _, _, _ = released(windows(FOUR + TICK, 288))
    assert len(records) == 2 * 288
    assert all(record["released"] for record in records)


def test_a_record_says_unit_noise_delta_and_sigma() -> None:
    records, _, _, _ = released(windows(FOUR + TICK, 1))
    record = next(record for record in records if record["audience"] == "public")
    assert (record["unit"], record["noise"], record["delta"]) == ("device_day", "gaussian", "0.000001")
    sigma = math.sqrt(calibrate(Fraction(2), Fraction("1e-6"), 96)[0])
    assert record["noise_scale"] == {"101": pytest.approx(sigma), "201": pytest.approx(sigma)}
    assert record["half_width_95"]["101"] == pytest.approx(1.96 * sigma, abs=1)
    assert record["mechanism"] == "laplace"


def test_records_of_a_release_that_pays_by_the_window_have_no_such_fields() -> None:
    plain = '\n[[release]]\nname = "w"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "1" }\n'
    records, _, _, _ = released(windows(FOUR + TICK, 1), ReleaseStage(policy(plain), "dbh", KEYS))
    assert not {"unit", "noise", "delta"} & records[0].keys()


def test_it_publishes_bounded_counts_and_a_release_by_the_window_all() -> None:
    both = RELEASE.replace('"gaussian"', '"laplace"').replace('"2"', '"100"').replace('"4"', '"99"') + (
        '\n[[release]]\nname = "w"\nquery = "count"\nmechanism = "laplace"\nepsilon = { public = "100" }\n'
    )
    records, _, _, _ = released(windows(FOUR + TICK, 100), ReleaseStage(policy(both), "dbh", KEYS))
    means = {
        name: sum(r["values"]["101"] for r in records if r["release"] == name and r["audience"] == "public") / 100
        for name in ("day", "w")
    }
    assert means["w"] == 9  # at epsilon 100 there is no noise
    assert abs(means["day"] - 5) < 2  # 100 draws of deviation 1.35: beyond 2 with probability below 1e-40


def test_without_bounded_counts_it_waits_and_charges_nothing() -> None:
    records, entries, charges, state = released(windows(FOUR + TICK, 2, bounded=False))
    assert {record["reason"] for record in records} == {"waiting"}
    assert not any(entry["nano"] for entry in entries)
    assert not any(charge.epsilon for charge in charges)
    later, _, _, _ = released(windows(FOUR + DAY + TICK, 2), state=state)
    assert spends(later) == ["2", "0"]


def test_a_day_goes_on_after_a_restart_without_a_second_charge() -> None:
    stage = ReleaseStage(policy(), "dbh", KEYS)
    records, _, _, state = released(windows(FOUR + TICK, 2), stage)
    again, _, _, _ = released(windows(FOUR + 3 * TICK, 2), stage, stage.decode(stage.encode(state)))
    assert spends(records) + spends(again) == ["2", "0", "0", "0"]


CHANGES = {
    "epsilon": RELEASE.replace('"2"', '"3"'),
    "delta": RELEASE + 'delta = "1e-5"\n',
    "noise": RELEASE.replace('"gaussian"', '"laplace"'),
    "audiences": RELEASE.replace(', facilities = "4"', ""),
    "zones": RELEASE + 'zones = { floor = "1" }\n',
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_day_costs_changes_when_the_next_one_begins(change: str) -> None:
    _, _, _, state = released(windows(FOUR + TICK, 2))
    old, new = ReleaseStage(policy(), "dbh", KEYS), ReleaseStage(policy(CHANGES[change]), "dbh", KEYS)
    adopted = new.migrate(old.encode(state), {})
    waiting, _, _, adopted = released(windows(FOUR + 3 * TICK, 2), new, adopted)
    assert {record["reason"] for record in waiting} == {"waiting"}
    started, _, _, _ = released(windows(FOUR + DAY + TICK, 2), new, adopted)
    assert all(record["released"] for record in started)


@pytest.mark.parametrize(
    "change",
    ['contribution = "6h"', 'day_starts = "05:00"', 'residents = "ignore"', 'timezone = "America/Denver"'],
    ids=lambda change: change.split()[0],
)
def test_what_bounds_a_day_changes_when_the_next_one_begins(change: str) -> None:
    _, _, _, state = released(windows(FOUR + TICK, 2))
    key = change.split(maxsplit=1)[0]
    site = "\n".join(line for line in SITE.splitlines() if not line.startswith(key))
    site = site.replace("[site.dbh]", f"[site.dbh]\n{change}")
    old, new = ReleaseStage(policy(), "dbh", KEYS), ReleaseStage(policy(site=site), "dbh", KEYS)
    waiting, _, _, _ = released(windows(FOUR + 3 * TICK, 1), new, new.migrate(old.encode(state), {}))
    assert {record["reason"] for record in waiting} == {"waiting"}


def test_a_policy_that_comes_back_within_the_day_goes_on_with_what_was_paid() -> None:
    old, new = ReleaseStage(policy(), "dbh", KEYS), ReleaseStage(policy(CHANGES["epsilon"]), "dbh", KEYS)
    _, _, _, state = released(windows(FOUR + TICK, 1), old)
    _, _, _, state = released(windows(FOUR + 2 * TICK, 1), new, new.migrate(old.encode(state), {}))
    records, _, _, _ = released(windows(FOUR + 3 * TICK, 1), old, old.migrate(new.encode(state), {}))
    assert spends(records) == ["0"]


def test_a_release_under_another_name_is_another_price() -> None:
    old, new = (
        ReleaseStage(policy(), "dbh", KEYS),
        ReleaseStage(policy(RELEASE.replace('"day"', '"other"')), "dbh", KEYS),
    )
    _, _, _, state = released(windows(FOUR + TICK, 1), old)
    records, _, _, _ = released(windows(FOUR + 2 * TICK, 1), new, new.migrate(old.encode(state), {}))
    assert spends(records) == ["2"]


def test_every_charge_says_what_its_day_paid_for() -> None:
    _, _, charges, _ = released(windows(FOUR + TICK, 3))
    public = [charge for charge in charges if charge.audience == "public"]
    assert {charge.epsilon for charge in public} == {Fraction(2)}
    [terms] = {charge.terms for charge in public}
    assert terms is not None
    assert (terms.day, terms.noise, terms.ticks) == (DAYS.at(FOUR + TICK), "gaussian", 96)
    assert terms.parameters == calibrate(Fraction(2), Fraction("1e-6"), 96)


REFUSED = {
    "mechanism": (RELEASE.replace('"laplace"', '"pegasus"'), "unit = 'device_day' must be used with laplace or filter"),
    "gaussian by the window": (
        RELEASE.replace('unit = "device_day"\n', ""), "noise = 'gaussian' must be used with unit = 'device_day'",
    ),
    "budget": (RELEASE + 'daily_budget = { public = "4" }\n', "daily_budget must not be used with unit = 'device_day'"),
    "w_budget": (RELEASE + 'w_budget = { public = "4" }\n', "w_budget must not be used with unit = 'device_day'"),
    "refresh": (RELEASE + 'refresh = "7d"\n', "refresh must not be used with unit = 'device_day'"),
    "states": (RELEASE + 'states = { both = ["101", "201"] }\n', "states must not be used with unit = 'device_day'"),
    "delta of laplace": (
        RELEASE.replace('"gaussian"', '"laplace"') + 'delta = "1e-6"\n', "delta must be used with noise = 'gaussian'",
    ),
    "delta too large": (RELEASE + 'delta = "0.1"\n', r"delta .*: must be a decimal in quotes from '1e-10' to '0.01'"),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_what_a_day_cannot_pay_for_is_refused_at_load(rule: str) -> None:
    text, message = REFUSED[rule]
    with pytest.raises(PolicyError, match=message):
        policy(text)


def test_a_site_without_a_privacy_day_is_refused() -> None:
    site = SITE.replace('day_starts = "04:00"\n', "").replace('contribution = "8h"\n', "")
    with pytest.raises(PolicyError, match=r"site\.dbh\.day_starts must be given with unit = 'device_day'"):
        policy(site=site)


def test_a_policy_with_days_is_the_same_when_read_back_from_its_document() -> None:
    """The books keep it so: the account of a month reads it again."""
    made = policy()
    assert validate(PolicyDocument.from_document(made.document())) == made


def test_no_two_days_of_one_number_are_paid_whatever_time_zone_their_dates_are_of() -> None:
    """Tokyo's third of March is over when that of Los Angeles begins; the account knows a day by its date."""
    tokyo, angeles = (
        SITE.replace("America/Los_Angeles", zone).replace("04:00", begins)
        for zone, begins in (("Asia/Tokyo", "00:00"), ("America/Los_Angeles", "08:00"))
    )
    old, new = (ReleaseStage(policy(site=site), "dbh", KEYS) for site in (tokyo, angeles))
    before, after = PrivacyDays("00:00", "Asia/Tokyo"), PrivacyDays("08:00", "America/Los_Angeles")
    first, second = before.at(FOUR), after.at(FOUR + 5 * HOUR)
    assert (first.number, first.end <= second.start) == (second.number, True)
    paid, _, _, state = released([window_of(first.end, first)], old)
    state = new.migrate(old.encode(state), {})
    waiting, _, _, state = released([window_of(second.start + TICK, second)], new, state)
    third = after.at(second.end + TICK)
    started, _, _, _ = released([window_of(third.start + TICK, third)], new, state)
    assert (spends(paid), spends(started)) == (["2"], ["2"])
    assert {record["reason"] for record in waiting} == {"waiting"}


def test_a_day_that_was_paid_is_remembered_when_the_next_one_is_paid() -> None:
    """A change of time zone may still bring a day that overlaps it."""
    first, second = DAYS.at(FOUR), DAYS.at(FOUR + HOUR)
    paid = PaidDays()
    for day in (first, second):
        paid.record_payment("r", day, "terms")
    assert [paid.status("r", day, "terms") for day in (first, second)] == [DayPaymentStatus.PAID] * 2
    moved = first._replace(start=first.start - 8 * HOUR, end=first.end - 8 * HOUR)
    assert paid.status("r", moved, "terms") is DayPaymentStatus.OTHER_TERMS


def window_of(end: Micros, day: PrivacyDay) -> OccupancyWindow:
    return OccupancyWindow("dbh", end, (9, 9), Fraction(1), day, (5, 3))
