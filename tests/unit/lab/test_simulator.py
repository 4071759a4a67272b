"""The simulated building: totals, calendar, people, and the truth it records."""

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from stream.errors import UsageError
from stream.lab.simulator.building import building, calendar, day_factor, is_teaching
from stream.lab.simulator.events import Simulation, SimulatorConfig, simulate
from stream.lab.simulator.radio import Heard
from stream.lab.simulator.visits import DeviceClass, Manner, Visits
from stream.records import DAY, MINUTE, SECOND
from tests.support.simulated_truth import occupancy, true_occupancy

PACIFIC = ZoneInfo("America/Los_Angeles")
V = 10 * MINUTE
FULL_EVENTS, FULL_DEVICES = 3_895_732, 36_436


@pytest.fixture(scope="module")
def full() -> Simulation:
    return simulate(SimulatorConfig(days=89, seed=1))


@pytest.fixture(scope="module")
def day() -> Simulation:
    return simulate(SimulatorConfig(seed=1))


def by_device(run: Simulation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.lexsort((run.time, run.device))
    return run.device[order], run.time[order], run.access_point[order]


def counted(run: Simulation, ticks: np.ndarray) -> np.ndarray:
    """Distinct devices whose last event is less than V old, at each tick."""
    device, time, _ = by_device(run)
    end = time + V
    same = device[1:] == device[:-1]
    end[:-1] = np.where(same, np.minimum(end[:-1], time[1:]), end[:-1])
    opened = np.searchsorted(np.sort(time), ticks, side="right")
    return opened - np.searchsorted(np.sort(end), ticks, side="right")


def local(time: int) -> datetime:
    return datetime.fromtimestamp(time / SECOND, PACIFIC)


def ticks_of(run: Simulation) -> np.ndarray:
    return np.arange(run.start, run.end, 5 * MINUTE)


class TestTotals:
    def test_full_scale_is_within_two_percent_of_the_published_building(self, full: Any) -> None:
        assert len(full.time) == pytest.approx(FULL_EVENTS, rel=0.02)
        assert len(full.devices) == pytest.approx(FULL_DEVICES, rel=0.02)
        assert len(full.building.access_points) == 64

    def test_events_per_device_follow_the_calibrated_percentiles(self, full: Any) -> None:
        per_device = np.bincount(full.device)
        assert per_device.mean() == pytest.approx(108, rel=0.03)
        ten, quarter, half, upper, ninety, high, top = np.percentile(per_device, [10, 25, 50, 75, 90, 95, 99])
        assert (ten, quarter) == (1, 2)
        assert 3 <= half <= 5
        assert upper == pytest.approx(78, rel=0.15)
        assert ninety == pytest.approx(278, rel=0.10)
        assert high == pytest.approx(397, rel=0.10)
        assert top == pytest.approx(1310, rel=0.15)

    def test_days_differ_as_the_calibrated_ones_do(self, full: Any) -> None:
        day = (full.time - full.start) // DAY
        events = np.bincount(day)
        assert events.min() == pytest.approx(6_483, rel=0.10)
        assert np.median(events) == pytest.approx(47_874, rel=0.05)
        assert events.max() == pytest.approx(76_807, rel=0.05)
        pairs = np.unique(day * 10**6 + full.device)
        assert len(pairs) / 89 == pytest.approx(2_487, rel=0.04)
        days_seen = np.bincount(pairs % 10**6)
        assert (days_seen == 1).mean() == pytest.approx(0.558, abs=0.02)
        assert (days_seen >= 20).mean() == pytest.approx(0.075, abs=0.01)

    def test_gaps_and_ping_pong_follow_the_calibrated_ones(self, full: Any) -> None:
        device, time, point = by_device(full)
        same = device[1:] == device[:-1]
        gap = (time[1:] - time[:-1])[same] / SECOND
        assert np.percentile(gap, [5, 25, 50, 75, 90]) == pytest.approx([12, 55, 201, 631, 2478], rel=0.12)
        assert (gap <= 600).mean() == pytest.approx(0.74, abs=0.02)
        stayed = (point[1:] == point[:-1])[same]
        assert stayed[gap < 3600].mean() == pytest.approx(0.66, abs=0.03)
        back = (device[2:] == device[:-2]) & (point[2:] == point[:-2]) & (point[1:-1] != point[:-2])
        assert (back & (time[2:] - time[:-2] <= 120 * SECOND)).mean() == pytest.approx(0.018, abs=0.005)

    def test_mean_count_stays_below_what_the_number_of_events_allows(self, full: Any) -> None:
        counts = counted(full, ticks_of(full))
        bound = len(full.time) * V / (full.end - full.start)
        assert bound == pytest.approx(304, rel=0.02)
        assert 0.40 * bound < counts.mean() < bound
        assert counts.mean() == pytest.approx(142, rel=0.05)
        assert counts.max() == pytest.approx(640, rel=0.10)

    def test_ten_minutes_of_validity_count_about_half_of_those_present_at_midday(self, full: Any) -> None:
        ticks = np.array([t for t in ticks_of(full) if local(t).weekday() < 5 and 10 <= local(t).hour < 16])
        counts, present = counted(full, ticks).mean(), true_occupancy(full, ticks).sum(axis=1).mean()
        assert counts == pytest.approx(357, rel=0.05)
        assert present == pytest.approx(654, rel=0.05)
        assert counts / present == pytest.approx(0.55, abs=0.03)

    @pytest.mark.parametrize("seed", range(4))
    def test_one_day_alone_looks_like_a_typical_day_of_the_model(self, seed: Any) -> None:
        run = simulate(SimulatorConfig(seed=seed))
        assert len(run.devices) == pytest.approx(2_600, rel=0.06)
        assert len(run.time) == pytest.approx(49_500, rel=0.06)
        assert 130 <= counted(run, ticks_of(run)).mean() <= len(run.time) * V / DAY

    def test_people_scale_with_zones_and_with_scale(self, day: Any) -> None:
        twice = simulate(SimulatorConfig(seed=1, zones=128))
        half = simulate(SimulatorConfig(seed=1, scale=0.5))
        assert len(twice.time) == pytest.approx(2 * len(day.time), rel=0.06)
        assert len(twice.devices) == pytest.approx(2 * len(day.devices), rel=0.06)
        assert len(half.devices) == pytest.approx(0.5 * len(day.devices), rel=0.06)


class TestRepeatability:
    def test_same_seed_same_arrays(self, day: Any) -> None:
        again = simulate(SimulatorConfig(seed=1))
        for name in ("time", "device", "access_point", "device_class"):
            assert getattr(again, name).tobytes() == getattr(day, name).tobytes()
        assert again.devices == day.devices
        assert again.visits.start.tobytes() == day.visits.start.tobytes()

    def test_another_seed_gives_other_events_in_the_same_building(self, day: Any) -> None:
        other = simulate(SimulatorConfig(seed=2))
        assert other.time.tobytes() != day.time.tobytes()
        assert other.building.kinds == day.building.kinds
        assert other.building.capacities == day.building.capacities

    def test_another_building_has_other_access_points_and_other_events(self, day: Any) -> None:
        other = simulate(SimulatorConfig(seed=1, building=1))
        assert not set(other.building.access_points) & set(day.building.access_points)
        assert other.time.tobytes() != day.time.tobytes()


class TestEdges:
    @pytest.mark.parametrize("zones", [1, 3, 64])
    def test_every_static_device_is_heard_at_local_midnight_and_one_near_the_end(self, zones: Any) -> None:
        run = simulate(SimulatorConfig(seed=3, zones=zones))
        static = np.flatnonzero(run.device_class == DeviceClass.STATIC)
        assert len(static) >= 1
        assert local(run.start) == datetime(2018, 2, 1, tzinfo=PACIFIC)
        assert set(static) == set(run.device[run.time == run.start])
        assert run.time[0] == run.start
        assert run.end - V < run.time[-1] < run.end
        assert run.end - 5 * MINUTE < run.time[np.isin(run.device, static)].max()

    def test_a_static_device_is_heard_in_two_zones_at_most(self, day: Any) -> None:
        for device in np.flatnonzero(day.device_class == DeviceClass.STATIC):
            assert len(np.unique(day.access_point[day.device == device])) <= 2

    def test_every_static_device_keeps_being_heard_for_the_whole_run(self, full: Any) -> None:
        for device in np.flatnonzero(full.device_class == DeviceClass.STATIC)[::30]:
            times = full.time[full.device == device]
            assert times[-1] > full.end - DAY
            assert np.diff(times).max() < DAY * 2

    def test_departures_are_known_where_a_device_that_stays_is_seldom_heard(self) -> None:
        assert {each: SimulatorConfig(heard=each).sessions for each in Heard} == {
            Heard.OFTEN: False, Heard.SELDOM: True, Heard.ROAMS: True,
        }  # fmt: skip

    def test_events_are_ordered_by_time(self, full: Any) -> None:
        assert (np.diff(full.time) >= 0).all()

    def test_a_day_with_a_clock_change_has_twenty_three_hours_and_classes_on_the_wall_clock(self) -> None:
        run = simulate(SimulatorConfig(days=3, seed=1, start=date(2018, 3, 10)))
        assert run.end - run.start == 3 * DAY - 60 * MINUTE
        days = calendar(date(2018, 3, 11), 1, PACIFIC)
        nine = days.utc(np.array([0]), np.array([9 * 3600.0]))[0]
        assert nine == datetime(2018, 3, 11, 16, tzinfo=UTC).timestamp() * SECOND

    @pytest.mark.parametrize(
        ("wrong", "named"),
        [
            ({"days": 0}, "days"),
            ({"zones": 0}, "zones"),
            ({"zones": 5000}, "zones"),
            ({"scale": 0.0}, "scale"),
            ({"seed": -1}, "seed"),
            ({"site": "a,b"}, "site"),
            ({"building": 256}, "building"),
            ({"timezone": "Mars/Olympus"}, "timezone"),
        ],
    )
    def test_a_setting_out_of_range_is_refused_by_name(self, wrong: Any, named: Any) -> None:
        with pytest.raises(UsageError, match=f"^{named}: "):
            simulate(SimulatorConfig(**wrong))


class TestCalendar:
    @pytest.mark.parametrize(
        ("when", "factor", "teaching"),
        [
            (date(2018, 2, 1), 1.0, True),
            (date(2018, 2, 2), 0.72, True),
            (date(2018, 2, 3), 0.16, False),
            (date(2018, 2, 4), 0.20, False),
            (date(2018, 2, 19), 0.2, False),
            (date(2018, 3, 19), 0.8, False),
            (date(2018, 3, 27), 0.35, False),
            (date(2018, 3, 30), 0.2, False),
            (date(2018, 4, 2), 1.0, True),
        ],
    )
    def test_days_are_as_full_as_the_calendar_says(self, when: Any, factor: Any, teaching: Any) -> None:
        assert day_factor(when) == pytest.approx(factor)
        assert is_teaching(when) is teaching

    def test_the_default_day_is_a_teaching_day_in_the_middle_of_the_week(self) -> None:
        first = SimulatorConfig().start
        assert is_teaching(first)
        assert first.weekday() in (1, 2, 3)

    def test_attendees_come_to_the_slots_of_the_day(self, day: Any) -> None:
        visits = day.visits
        attending = visits.manner == Manner.ATTENDEE
        minutes = (visits.start[attending] - day.start) / MINUTE
        slots = np.array([8, 9.5, 11, 12.5, 14, 15.5, 17]) * 60
        off = np.abs(minutes[:, None] - slots[None, :]).min(axis=1)
        assert (off < 12).mean() > 0.98
        stay = (visits.end - visits.start)[attending] / MINUTE
        assert np.median(stay) == pytest.approx(82, abs=2)


class TestTruth:
    def test_visits_of_a_device_never_overlap(self, full: Any) -> None:
        visits = full.visits
        same = visits.device[1:] == visits.device[:-1]
        assert (visits.end[:-1] <= visits.start[1:])[same].all()
        assert (visits.start < visits.end).all()
        assert visits.start.min() == full.start
        assert visits.end.max() == full.end

    def test_every_event_lies_in_a_true_visit_and_each_visit_opens_with_one_in_its_zone(self, day: Any) -> None:
        visits = day.visits
        key = visits.device * 10**13 + (visits.start - day.start)
        row = np.searchsorted(key, day.device * 10**13 + (day.time - day.start), side="right") - 1
        assert (visits.device[row] == day.device).all()
        assert (day.time < visits.end[row]).all()
        first = day.time == visits.start[row]
        assert np.unique(row[first]).tolist() == list(range(len(visits.start)))
        assert (day.access_point[first] == visits.zone[row[first]]).all()

    def test_true_occupancy_equals_a_naive_recomputation(self, day: Any) -> None:
        ticks = ticks_of(day)
        occupied = true_occupancy(day, ticks)
        visits = day.visits
        for index in range(0, len(ticks), 17):
            there = (visits.start <= ticks[index]) & (ticks[index] < visits.end)
            naive = np.bincount(visits.zone[there], minlength=64)
            assert occupied[index].tolist() == naive.tolist()
            assert len(np.unique(visits.device[there])) == naive.sum()

    def test_a_visit_counts_at_the_tick_of_its_start_and_not_at_that_of_its_end(self) -> None:
        one, zone = np.array([0]), np.array([1])
        visit = Visits(device=one, zone=zone, start=np.array([10]), end=np.array([30]), manner=one)
        assert occupancy(visit, np.array([9, 10, 20, 29, 30, 40]), 2)[:, 1].tolist() == [0, 1, 1, 1, 0, 0]


class TestDevices:
    def test_addresses_are_distinct_and_of_single_stations(self, full: Any) -> None:
        assert len(set(full.devices)) == len(full.devices)
        assert not any(int(mac[:2], 16) & 1 for mac in full.devices)

    def test_a_share_of_moving_devices_is_locally_administered_and_no_static_one(self, full: Any) -> None:
        randomised = np.array([bool(int(mac[:2], 16) & 2) for mac in full.devices])
        static = full.device_class == DeviceClass.STATIC
        assert not randomised[static].any()
        assert randomised[~static].mean() == pytest.approx(0.45, abs=0.02)


class TestBuilding:
    def test_each_zone_has_its_own_id_and_access_point(self) -> None:
        for zones in (1, 7, 64, 4095):
            place = building(zones)
            assert len(set(place.zones)) == len(set(place.access_points)) == zones
            assert all(zone.startswith(floor) for zone, floor in zip(place.zones, place.floors, strict=True))

    def test_twelve_of_sixty_four_zones_are_offices_for_one_and_draw_no_public(self) -> None:
        place = building(64)
        offices = place.of_kind("office")
        assert len(offices) == 12
        assert all(place.capacities[zone] == 1 for zone in offices)
        assert place.popularity[offices].sum() == 0
        assert place.popularity.sum() == pytest.approx(1)
        assert {"classroom", "open", "corridor", "office"} == set(place.kinds)


class TestOffices:
    def spells(self, run: Simulation, office: int) -> dict[date, tuple[float, float]]:
        """First arrival and last departure of the owner's devices, local hours, by date."""
        visits = run.visits
        rows = np.flatnonzero((visits.zone == office) & (visits.manner == Manner.OWNER))
        days: dict[date, tuple[float, float]] = {}
        for row in rows:
            begin, end = local(visits.start[row]), local(visits.end[row])
            came, left = begin.hour + begin.minute / 60, end.hour + end.minute / 60
            known = days.get(begin.date(), (24.0, 0.0))
            days[begin.date()] = (min(known[0], came), max(known[1], left))
        return days

    def test_only_owners_and_rare_guests_are_truly_in_an_office(self, full: Any) -> None:
        visits = full.visits
        inside = np.isin(visits.zone, full.building.of_kind("office"))
        assert set(np.unique(visits.manner[inside])) == {Manner.OWNER, Manner.GUEST}
        length = (visits.end - visits.start)[inside]
        guests = visits.manner[inside] == Manner.GUEST
        assert 0 < length[guests].sum() < 0.02 * length.sum()

    def test_an_owner_in_the_office_is_heard_every_few_minutes(self, full: Any) -> None:
        office = int(full.building.of_kind("office")[0])
        here = full.access_point == office
        time = full.time[here & (full.device_class[full.device] == DeviceClass.OWNER)]
        gap = np.diff(time) / SECOND
        working = gap[gap < 3 * 3600]
        assert (working < 600).mean() > 0.93

    def test_owners_differ_from_each_other_more_than_from_day_to_day(self, full: Any) -> None:
        arrivals = []
        for office in full.building.of_kind("office"):
            days = self.spells(full, int(office))
            arrivals.append([came for when, (came, _) in days.items() if when.weekday() < 5])
        between = np.std([np.mean(own) for own in arrivals])
        within = np.mean([np.std(own) for own in arrivals])
        assert within > 0.05
        assert between > 1.3 * within

    def test_most_owners_are_absent_on_some_working_days_and_present_on_most(self, full: Any) -> None:
        teaching = sum(is_teaching(date.fromordinal(date(2018, 2, 1).toordinal() + n)) for n in range(89))
        shares = []
        for office in full.building.of_kind("office"):
            days = self.spells(full, int(office))
            shares.append(sum(is_teaching(when) for when in days) / teaching)
        assert min(shares) > 0.6
        assert sum(share < 1 for share in shares) >= 6

    def test_lunch_leaves_the_office_empty_long_enough_to_be_seen(self, full: Any) -> None:
        """At ticks, with ten minutes of validity: a hole of three empty ticks between first and last."""
        device, time, point = by_device(full)
        end = time + V
        same = device[1:] == device[:-1]
        end[:-1] = np.where(same, np.minimum(end[:-1], time[1:]), end[:-1])
        office = int(full.building.of_kind("office")[2])
        time, end, seen, broken = time[point == office], end[point == office], 0, 0
        for first in range(full.start, full.start + 40 * DAY, DAY):
            ticks = np.arange(first, first + DAY, 5 * MINUTE)
            occupied = [bool(((time <= t) & (t < end)).any()) for t in ticks]
            if sum(occupied) < 24:
                continue
            begin, last = occupied.index(True), len(occupied) - 1 - occupied[::-1].index(True)
            shape = "".join("x" if now else "." for now in occupied[begin : last + 1])
            seen += 1
            broken += "..." in shape
        assert seen >= 15
        assert broken / seen > 0.6


class TestPeopleWhoSitStill:
    """How often a device that stays is heard, and what is heard of its departure."""

    @pytest.mark.parametrize("heard", list(Heard))
    def test_how_often_devices_are_heard_changes_no_visit(self, day: Any, heard: Heard) -> None:
        run = simulate(SimulatorConfig(seed=1, heard=heard))
        assert run.devices == day.devices
        for name in ("device", "zone", "start", "end"):
            assert np.array_equal(getattr(run.visits, name), getattr(day.visits, name))
        of_static = [(each.device_class[each.device] == DeviceClass.STATIC).sum() for each in (run, day)]
        assert of_static[0] == pytest.approx(of_static[1], rel=0.15), "nobody carries them, so they sit still always"

    def test_a_device_that_sits_still_is_heard_at_the_half_hour_and_one_that_only_roams_still_less(self) -> None:
        for heard, least, most in ((Heard.OFTEN, 2, 8), (Heard.SELDOM, 20, 30), (Heard.ROAMS, 60, 150)):
            run = simulate(SimulatorConfig(seed=1, heard=heard))
            device, time, point = by_device(run)
            same = (device[1:] == device[:-1]) & (run.device_class[device[1:]] == DeviceClass.RESIDENT)
            still = same & (point[1:] == point[:-1])
            if heard is Heard.ROAMS:  # from one access point to another: how long it sat at the first one
                still = same & (point[1:] != point[:-1]) & (np.diff(time) > 150 * SECOND)
            assert least < np.median(np.diff(time)[still]) / MINUTE < most, heard

    def test_a_device_that_roams_without_moving_is_back_within_minutes(self) -> None:
        run = simulate(SimulatorConfig(seed=1, heard=Heard.ROAMS))
        device, time, point = by_device(run)
        visit = {
            (int(d), int(s)): int(z)
            for d, s, z in zip(run.visits.device, run.visits.start, run.visits.zone, strict=True)
        }
        home, returns = -1, 0
        for at in range(len(time) - 1):
            home = visit.get((int(device[at]), int(time[at])), home)
            follows = device[at + 1] == device[at] and (int(device[at]), int(time[at + 1])) not in visit
            if run.device_class[device[at]] != DeviceClass.STATIC and point[at] != home and follows:
                assert point[at + 1] == home
                assert time[at + 1] - time[at] <= 150 * SECOND
                returns += 1
        assert returns > 50

    def test_a_departure_is_heard_at_the_last_access_point_when_the_visit_ends_or_after_the_idle_timeout(self) -> None:
        run = simulate(SimulatorConfig(seed=1, heard=Heard.SELDOM))
        ends = set(zip(run.visits.device.tolist(), run.visits.end.tolist(), strict=True))
        device, time, point = by_device(run)
        silent = 0
        for left, who, where in zip(*(column.tolist() for column in run.departures), strict=True):
            late = (who, left) not in ends
            assert not late or (who, left - 300 * SECOND) in ends
            before = np.flatnonzero((device == who) & (time <= left))[-1]
            assert point[before] == where
            silent += late
        stays = int((run.visits.end < run.end).sum())
        assert 0.8 * stays < len(run.departures.time) <= 0.97 * stays
        assert silent / len(run.departures.time) == pytest.approx(0.63, abs=0.05)
