"""Who comes to a simulated building, with which address, and when: owners of offices, people at desks, visitors.

Everything is drawn from a fixed seed, so that no outcome varies from run to run.
"""

from __future__ import annotations

from datetime import date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from stream.lab.simulator.building import CLASSROOM, Building, Draws, building, calendar, draws
from stream.lab.simulator.desks import LEFT, MOST_PEOPLE, AtDesks, at_desks
from stream.lab.simulator.offices import Owners, office_visits, owner_day, owner_devices, owners
from stream.lab.simulator.visits import (
    MOST_HOMES,
    DeviceClass,
    Manner,
    Population,
    Visits,
    addresses,
    moving_visits,
    population,
    static_visits,
)
from stream.records import DAY, HOUR, MINUTE, SECOND

PLACE = building(64)
LONDON = ZoneInfo("Europe/London")
WEEK = calendar(date(2018, 2, 5), 14, LONDON)
"""Two weeks of classes, from a Monday on."""


def rng(number: int = 1) -> Draws:
    return draws(number)


# --- addresses and haunts -------------------------------------------------------------------------------


def test_addresses_are_distinct_and_the_declared_share_of_moving_devices_is_randomised() -> None:
    kinds = np.repeat(np.array([DeviceClass.STATIC, DeviceClass.RESIDENT], dtype=np.int64), [500, 4_000])
    made = addresses(kinds, rng())
    first = np.array([int(address[:2], 16) for address in made])
    assert len(set(made)) == len(made)
    assert not (first & 1).any(), "each is the address of one station"
    assert not (first[:500] & 2).any()
    assert (first[500:] & 2).astype(bool).mean() == pytest.approx(0.45, abs=0.03)


def test_files_name_classes_of_devices_in_lower_case() -> None:
    assert [kind.label for kind in DeviceClass] == [
        "passer-by", "occasional", "attendee", "resident", "static", "owner",
    ]  # fmt: skip


def test_haunts_follow_popularity_and_attendees_are_mostly_in_classrooms() -> None:
    people = population({DeviceClass.ATTENDEE: 3_000, DeviceClass.RESIDENT: 3_000}, PLACE, rng())
    classrooms = np.flatnonzero(np.array(PLACE.kinds) == CLASSROOM)
    shares = [np.isin(people.homes[people.members(kind)], classrooms).mean() for kind in DeviceClass if kind in (2, 3)]
    expected = PLACE.popularity[classrooms].sum()
    assert shares[1] == pytest.approx(expected, abs=0.02)
    assert shares[0] == pytest.approx(expected / (expected + 0.25 * (1 - expected)), abs=0.02)
    assert people.homes.shape == (6_000, MOST_HOMES)


def test_few_attendees_come_when_there_are_no_classes() -> None:
    people = population({DeviceClass.ATTENDEE: 2_000}, PLACE, rng())
    finals, term = (calendar(date(2018, month, day), 5, LONDON) for month, day in ((3, 19), (2, 5)))
    held, quiet = (len(moving_visits(DeviceClass.ATTENDEE, people, days, rng()).device) for days in (term, finals))
    assert 0.1 < quiet / held < 0.2, "0.18 of those who come to classes, on days with 0.8 of the people"


def test_a_static_device_is_in_one_zone_from_the_first_instant_to_the_last() -> None:
    people = population({DeviceClass.STATIC: 5, DeviceClass.RESIDENT: 5}, PLACE, rng())
    visits = static_visits(people, WEEK)
    assert visits.device.tolist() == people.members(DeviceClass.STATIC).tolist()
    assert set(visits.start.tolist()) == {WEEK.start}
    assert set(visits.end.tolist()) == {WEEK.end}


# --- offices --------------------------------------------------------------------------------------------


def offices(seed: int = 1) -> tuple[Owners, Population, Visits, Building]:
    devices = owner_devices(PLACE, rng(seed))
    people = population({DeviceClass.RESIDENT: 20, DeviceClass.OWNER: int(devices.sum())}, PLACE, rng(seed))
    who = owners(PLACE, people, devices, rng(seed))
    return who, people, office_visits(who, PLACE, people, WEEK, rng(seed)), PLACE


def test_an_owner_is_in_the_office_for_twenty_minutes_between_breaks() -> None:
    who, *_ = offices()
    generator, stays = rng(), list[float]()
    for owner in range(len(who.office)):
        for _ in range(60):
            spells = owner_day(who, owner, generator)
            stays += [spell.end - spell.start for spell in spells]
            assert all(after.start > before.end for before, after in pairwise(spells))
    assert 20 * 60 <= min(stays) < 20.5 * 60


def test_an_owner_has_a_phone_and_three_of_four_a_laptop_too() -> None:
    devices = np.concatenate([owner_devices(PLACE, rng(seed)) for seed in range(20)])
    assert set(devices.tolist()) == {1, 2}
    assert (devices == 2).mean() == pytest.approx(0.75, abs=0.1)


def test_a_laptop_sleeps_while_its_owner_is_out_and_not_every_owner_has_one() -> None:
    who, _, visits, _ = offices()
    assert 0 < (who.laptop < 0).sum() < len(who.laptop)
    assert visits.device.min() >= 0
    for owner in np.flatnonzero(who.laptop >= 0):
        at = visits.device == who.phone[owner]
        at &= visits.zone == who.office[owner]
        phone = list(zip(visits.start[at].tolist(), visits.end[at].tolist(), strict=True))
        awake = visits.device == who.laptop[owner]
        assert awake.sum() == at.sum() > 0, "it wakes whenever its owner sits down"
        for start, end in zip(visits.start[awake].tolist(), visits.end[awake].tolist(), strict=True):
            assert any(since <= start and end <= until for since, until in phone)


def test_owners_come_about_nine_and_spend_two_of_three_breaks_elsewhere_in_the_building() -> None:
    who, _, visits, _ = offices()
    carried = np.isin(visits.device, who.phone)
    inside, elsewhere = carried & (visits.manner == Manner.OWNER), carried & (visits.manner == Manner.RESIDENT)
    first: dict[tuple[int, int], int] = {}
    for device, start in zip(visits.device[inside].tolist(), visits.start[inside].tolist(), strict=True):
        day, since = divmod(start - WEEK.start, DAY)
        first[device, day] = min(first.get((device, day), DAY), since)
    assert np.median(list(first.values())) == pytest.approx(9.1 * HOUR, abs=HOUR / 2)
    assert elsewhere.sum() / (inside.sum() - len(first)) == pytest.approx(0.65, abs=0.1)


def test_in_a_break_a_phone_is_nowhere_twice() -> None:
    who, _, visits, _ = offices()
    for phone in who.phone:
        order = np.argsort(visits.start[visits.device == phone], kind="stable")
        start, end = (column[visits.device == phone][order] for column in (visits.start, visits.end))
        assert (end[:-1] <= start[1:]).all()


def test_few_owners_come_at_weekends_and_guests_leave_with_the_owner() -> None:
    who, _, visits, _ = offices()
    day = (visits.start - WEEK.start) // (24 * 60 * MINUTE) % 7
    owned = visits.manner == Manner.OWNER
    assert owned[day >= 5].sum() < 0.1 * owned[day < 5].sum()
    guests = np.flatnonzero(visits.manner == Manner.GUEST)
    assert len(guests)
    for guest in guests:
        of = (visits.zone == visits.zone[guest]) & (visits.device == who.phone[who.office == visits.zone[guest]][0])
        inside = (visits.start[of] <= visits.start[guest]) & (visits.end[guest] <= visits.end[of] + SECOND)
        assert inside.any()


# --- desks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def desks() -> AtDesks:
    return at_desks((100, 100, 50), "Europe/London")


def test_two_thirds_of_the_people_come_and_all_of_them_leave(desks: AtDesks) -> None:
    last = {device: zone for _, device, zone in desks.heard}
    assert 0.6 < len(last) / 250 < 0.72
    assert set(last.values()) == {LEFT}
    assert list(desks.heard) == sorted(desks.heard)
    assert all(desks.start < time < desks.end for time, _, _ in desks.heard)


def test_the_day_is_a_thursday_on_which_people_come_about_nine(desks: AtDesks) -> None:
    midnight = datetime(2018, 2, 1, tzinfo=LONDON).timestamp() * SECOND
    assert (desks.start, desks.end) == (midnight, midnight + DAY)
    first = {device: time for time, device, _ in reversed(desks.heard)}
    assert np.median(list(first.values())) - midnight == pytest.approx(9 * HOUR, abs=10 * MINUTE)


def test_a_device_that_is_there_is_heard_every_two_to_six_minutes(desks: AtDesks) -> None:
    by_device: dict[int, list[tuple[int, int]]] = {}
    for time, device, zone in desks.heard:
        by_device.setdefault(device, []).append((time, zone))
    gaps = [
        after[0] - now[0]
        for heard in by_device.values()
        for now, after in pairwise(heard)
        if LEFT != now[1] == after[1]
    ]
    assert np.median(gaps) == pytest.approx(4 * MINUTE, abs=6 * SECOND)
    assert max(gaps) <= 6 * MINUTE


def test_most_leave_for_lunch_and_nobody_who_has_left_is_heard(desks: AtDesks) -> None:
    by_device: dict[int, list[int]] = {}
    for _, device, zone in desks.heard:
        by_device.setdefault(device, []).append(zone)
    away = [zones.count(LEFT) for zones in by_device.values()]
    assert 0.5 < sum(times > 1 for times in away) / len(away) < 0.8
    for zones in by_device.values():
        assert not any(now == after == LEFT for now, after in pairwise(zones))


def test_more_people_than_three_thousand_are_thinned() -> None:
    heard = at_desks((2_000, 2_000), "UTC").heard
    assert len({device for _, device, _ in heard}) <= MOST_PEOPLE
    assert max(device for _, device, _ in heard) < MOST_PEOPLE
