"""Files of a simulated building: observations, truth, a policy, and controllers' datagrams."""

import csv
import io
import json
import re
import tomllib
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from connectors.lab.simulation import faults
from connectors.lab.simulation.faults import LATE_WITHIN, SILENCE, Fault, Kind
from connectors.lab.simulation.files import timeticks, write_csv, write_jsonl, write_snmptrapd, write_truth
from connectors.lab.simulation.policy import policy_text, site_text
from connectors.lab.simulation.traps import WRONG_COMMUNITY, TrapSchedule, trap_schedule
from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind as Meaning
from connectors.sources.ingest.source_filter import AllowList
from connectors.sources.snmp.communities import is_known
from connectors.sources.snmp.traps import decode, envelope
from stream.errors import UsageError
from stream.lab.simulator.events import Simulation, SimulatorConfig, simulate
from stream.lab.simulator.radio import Heard
from stream.policy.attributes import AttributeRelease
from stream.policy.counts import CountRelease
from stream.records import MINUTE, SECOND
from stream.release.validation import load_policy
from tests.support.simulated_truth import expected_fates, true_occupancy

FLOOD = 50_000
SCALE = 0.12


@pytest.fixture
def short_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a flood of a tenth of its datagrams, where it matters only that there is one."""
    monkeypatch.setattr(faults, "FLOOD_RATE", FLOOD // 100)


@pytest.fixture(scope="module")
def run() -> Simulation:
    return simulate(SimulatorConfig(seed=5, scale=SCALE))


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.replace(microsecond=0).timestamp()) * SECOND + moment.microsecond


def text_of(write: Any, simulation: Simulation, *more: object) -> str:
    out = io.StringIO()
    write(simulation, out, *more)
    return out.getvalue()


class TestObservations:
    def test_csv_gives_back_every_event_in_order(self, run: Any) -> None:
        rows = list(csv.DictReader(io.StringIO(text_of(write_csv, run))))
        assert list(rows[0]) == ["time", "device", "access_point", "site"]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", row["time"]) for row in rows)
        assert [micros(row["time"]) for row in rows] == run.time.tolist()
        assert [row["device"] for row in rows] == [run.devices[index] for index in run.device]
        points = run.building.access_points
        assert [row["access_point"] for row in rows] == [points[index] for index in run.access_point]
        assert {row["site"] for row in rows} == {"dbh"}

    def test_json_lines_say_the_same_as_the_csv(self, run: Any) -> None:
        rows = list(csv.DictReader(io.StringIO(text_of(write_csv, run))))
        assert [json.loads(line) for line in text_of(write_jsonl, run).splitlines()] == rows

    def test_same_seed_same_bytes(self, run: Any) -> None:
        again = simulate(SimulatorConfig(seed=5, scale=SCALE))
        for write in (write_csv, write_jsonl, write_snmptrapd, write_truth):
            assert text_of(write, again) == text_of(write, run)

    def test_progress_ends_at_the_number_of_rows(self, run: Any) -> None:
        report: list[tuple[int, int]] = []
        number = write_csv(run, io.StringIO(), lambda done, total: report.append((done, total)))
        assert number == len(run.time)
        assert report[-1] == (number, number)
        assert [done for done, _ in report] == sorted({done for done, _ in report})


class TestSnmptrapd:
    LINE = re.compile(
        r"T\|UDP: \[127\.0\.0\.1\]:\d+->\[127\.0\.0\.1\]:1162\|(?P<time>\d+)\|0\.0\.0\.0\|\.\|0\|0\|"
        r"\.1\.3\.6\.1\.2\.1\.1\.3\.0 = Timeticks: \((?P<ticks>\d+)\) [^\t]*\t"
        r"\.1\.3\.6\.1\.6\.3\.1\.1\.4\.1\.0 = OID: \.1\.3\.6\.1\.4\.1\.14179\.2\.6\.3\.53\t"
        r"\.1\.3\.6\.1\.4\.1\.14179\.2\.6\.2\.35\.0 = Hex-STRING: (?P<point>(?:[0-9A-F]{2} ){6})\t"
        r".*\.1\.3\.6\.1\.4\.1\.14179\.2\.6\.2\.34\.0 = Hex-STRING: (?P<client>(?:[0-9A-F]{2} ){6})\t.*"
    )

    def test_lines_have_snmptrapds_own_form_and_hold_every_event(self, run: Any) -> None:
        lines = text_of(write_snmptrapd, run).splitlines()
        assert len(lines) == len(run.time)
        for index in range(0, len(lines), 97):
            found = self.LINE.fullmatch(lines[index])
            assert found is not None
            assert int(found["time"]) == run.time[index] // SECOND
            assert int(found["ticks"]) == (run.time[index] - run.start) // 10_000
            assert found["client"].strip().lower().replace(" ", ":") == run.devices[run.device[index]]
            point = run.building.access_points[run.access_point[index]]
            assert found["point"].strip().lower().replace(" ", ":") == point

    @pytest.mark.parametrize(
        ("ticks", "text"),
        [
            (1, "(1) 0:00:00.01"),
            (8_640_042, "(8640042) 1 day, 0:00:00.42"),
            (4_075_268_204, "(4075268204) 471 days, 16:11:22.04"),
        ],
    )
    def test_up_time_reads_as_net_snmp_prints_it(self, ticks: Any, text: Any) -> None:
        assert timeticks(ticks) == text


class TestTruth:
    def test_occupancy_recomputed_from_the_file_is_the_true_one(self, run: Any) -> None:
        rows = list(csv.DictReader(io.StringIO(text_of(write_truth, run))))
        assert list(rows[0]) == ["device", "zone", "start", "end", "class"]
        assert len(rows) == len(run.visits.start)
        assert {row["class"] for row in rows} == {
            *("passer-by", "occasional", "attendee", "resident", "static", "owner")
        }
        spans = [(row["device"], row["zone"], micros(row["start"]), micros(row["end"])) for row in rows]
        ticks = np.arange(run.start, run.end, 60 * MINUTE)
        true = true_occupancy(run, ticks)
        for index, tick in enumerate(ticks.tolist()):
            there = Counter(zone for _, zone, start, end in spans if start <= tick < end)
            assert [there[zone] for zone in run.building.zones] == true[index].tolist()


class TestPolicy:
    def test_the_policy_is_valid_and_places_each_access_point_in_exactly_one_zone(self, run: Any) -> None:
        text = policy_text(run)
        policy = load_policy(text)
        points = [mac for zone in policy.site["dbh"].zones for mac in zone.access_points]
        assert sorted(points) == sorted(run.building.access_points)
        assert len(set(points)) == len(points)
        assert tomllib.loads(text)["site"]["dbh"]["sources"] == ["127.0.0.1"]

    def test_offices_are_in_no_count_release_and_in_the_attribute_release(self, run: Any) -> None:
        policy = load_policy(policy_text(run))
        rooms, floors, attributes = policy.release
        for counts in (rooms, floors):
            assert {zone.kind for zone in policy.zones_of(counts, "dbh")} == {"classroom", "open", "corridor"}
        assert len(policy.zones_of(attributes, "dbh")) == 12
        assert {zone.kind for zone in policy.zones_of(attributes, "dbh")} == {"office"}
        assert isinstance(attributes, AttributeRelease)
        assert set(attributes.attributes) == {"arrival", "departure", "breaks", "occupancy_level"}

    def test_a_building_without_offices_has_a_valid_policy_too(self) -> None:
        policy = load_policy(policy_text(simulate(SimulatorConfig(zones=2, site="tiny.hall"))))
        assert [release.name for release in policy.release] == ["occupancy", "floors"]

    def test_the_public_gets_floors_and_the_building_and_no_room(self, run: Any) -> None:
        policy = load_policy(policy_text(run))
        rooms, floors, _ = policy.release
        assert isinstance(rooms, CountRelease)
        assert isinstance(floors, CountRelease)
        assert (set(rooms.epsilon), set(floors.epsilon)) == ({"facilities"}, {"public"})
        assert floors.levels == ("floor", "building")

    def test_the_public_stream_is_paid_by_a_devices_whole_day(self, run: Any) -> None:
        policy = load_policy(policy_text(run))
        _, floors, _ = policy.release
        assert isinstance(floors, CountRelease)
        assert (floors.unit, floors.noise) == ("device_day", "gaussian")
        assert floors.epsilon["public"] == 2
        assert (policy.site["dbh"].day_starts, policy.site["dbh"].residents) == ("04:00", "ignore")

    @pytest.mark.parametrize(("zones", "scale", "devices"), [(64, 1, 20_000), (64, 30, 38_400), (200, 100, 200_000)])
    def test_a_site_has_room_for_twenty_devices_a_zone_within_limits(
        self, run: Any, zones: Any, scale: Any, devices: Any
    ) -> None:
        policy = load_policy(policy_text(replace(run, config=replace(run.config, zones=zones, scale=float(scale)))))
        assert policy.site["dbh"].max_devices == devices

    def test_several_buildings_fit_into_one_policy(self, run: Any) -> None:
        other = simulate(SimulatorConfig(site="east", zones=8, building=1))
        policy = load_policy(site_text(other, ("127.0.0.2",), by_day=True) + policy_text(run))
        assert len(policy.access_points()) == 72


def decoded(schedule: TrapSchedule) -> Counter[Any]:
    return Counter(decode(datagram.data).kind for datagram in schedule)


class TestTraps:
    def test_without_faults_each_event_is_one_association_at_its_time_within_ten_milliseconds(self, run: Any) -> None:
        schedule = trap_schedule(run)
        assert schedule.counts["associate"] == len(run.time)
        assert schedule.counts["sent"] == len(schedule) == len(run.time) + schedule.counts["keepalive"]
        assert [schedule.counts[name] for name in ("copies", "late", "lost", "silent")] == [0, 0, 0, 0]
        index = 0
        for datagram in schedule:
            trap = decode(datagram.data)
            if trap.kind is not Meaning.ASSOCIATE:
                continue
            assert trap.uptime is not None
            early = run.time[index] - (run.start + trap.uptime * 10_000)
            assert 0 <= early < 10_000
            assert datagram.time == run.time[index]
            assert trap.client.hex(":") == run.devices[run.device[index]]
            assert trap.access_point.hex(":") == run.building.access_points[run.access_point[index]]
            index += 1
        assert index == len(run.time)

    def test_each_controller_says_it_is_alive_each_simulated_minute_until_after_the_end(self, run: Any) -> None:
        schedule = trap_schedule(run, controllers=3, tail=15)
        times: dict[int, list[int]] = {}
        for datagram in schedule:
            if decode(datagram.data).kind is Meaning.KEEPALIVE:
                times.setdefault(datagram.controller, []).append(datagram.time)
        expected = list(range(run.start, run.end + 15 * MINUTE + 1, MINUTE))
        assert times == {0: expected, 1: expected, 2: expected}

    def test_each_access_point_has_one_controller(self, run: Any) -> None:
        where: dict[bytes, set[int]] = {}
        for datagram in trap_schedule(run, controllers=3):
            trap = decode(datagram.data)
            if trap.access_point:
                where.setdefault(trap.access_point, set()).add(datagram.controller)
        assert all(len(controllers) == 1 for controllers in where.values())
        assert set().union(*where.values()) == {0, 1, 2}

    @pytest.mark.parametrize("version", [1, 2])
    def test_same_arguments_same_bytes(self, run: Any, version: Any) -> None:
        some = set(Fault) - {Fault.FLOOD}
        first, again = (list(trap_schedule(run, some, 3, 2, version=version)) for _ in range(2))
        assert first == again
        assert decode(first[0].data).version == version
        assert list(trap_schedule(run, some, 4, 2, version=version)) != first

    @pytest.mark.usefixtures("short_flood")
    def test_datagrams_come_in_the_order_of_sending(self, run: Any) -> None:
        times = trap_schedule(run, list(Fault), 3).traps.sent.tolist()
        assert times == sorted(times)

    def test_where_people_sit_still_controllers_also_report_who_leaves(self) -> None:
        run = simulate(SimulatorConfig(seed=1, zones=8, heard=Heard.SELDOM))
        schedule = trap_schedule(run, controllers=2)
        left = [decode(each.data) for each in schedule if decode(each.data).kind is Meaning.LEAVE]
        assert len(left) == schedule.counts["disassociate"] == len(run.departures.time) > 0
        expected = zip(run.departures.device.tolist(), run.departures.access_point.tolist(), strict=True)
        addresses = [(run.devices[who], run.building.access_points[where]) for who, where in expected]
        assert sorted((trap.client.hex(":"), trap.access_point.hex(":")) for trap in left) == sorted(addresses)
        assert load_policy(policy_text(run)).site["dbh"].has_sessions


class TestFaults:
    @pytest.mark.usefixtures("short_flood")
    def test_every_datagram_has_exactly_one_counted_kind(self, run: Any) -> None:
        schedule = trap_schedule(run, list(Fault), 3, 2)
        counts = schedule.counts
        assert sum(counts[kind.name.lower()] for kind in Kind) == counts["sent"]
        everything = decoded(schedule)
        associated = ("associate", "associate_statistics", "unknown_ap", "wrong_community", "flood")
        assert everything[Meaning.ASSOCIATE] == sum(counts[name] for name in associated)
        assert everything[Meaning.RUN] == counts["run_state"]
        assert everything[Meaning.KEEPALIVE] == counts["keepalive"]
        assert everything[Meaning.RESTART] == counts["cold_start"] == 1

    def test_duplicates_repeat_a_datagram_byte_for_byte_soon_after(self, run: Any) -> None:
        schedule = trap_schedule(run, "duplicates", 3)
        seen: dict[bytes, int] = {}
        gaps = []
        for datagram in schedule:
            if datagram.data in seen:
                gaps.append(datagram.time - seen[datagram.data])
            seen[datagram.data] = datagram.time
        assert len(gaps) == schedule.counts["copies"] > 0
        assert schedule.counts["associate"] == len(run.time) + len(gaps)
        assert all(0 < gap <= 50_000 for gap in gaps)

    def test_reordering_holds_traps_up_for_at_most_two_seconds_and_keeps_their_up_time(self, run: Any) -> None:
        schedule = trap_schedule(run, "reordering", 3)
        late = []
        for datagram in schedule:
            uptime = decode(datagram.data).uptime
            assert uptime is not None
            late.append(datagram.time - (run.start + uptime * 10_000))
        assert max(late) <= LATE_WITHIN + 10_000
        assert max(late) > 1_500_000
        assert schedule.counts["late"] == pytest.approx(0.02 * len(run.time), rel=0.3)
        assert schedule.counts["associate"] == len(run.time)

    def test_loss_takes_one_trap_in_a_hundred_and_no_keepalive(self, run: Any) -> None:
        schedule, whole = trap_schedule(run, "loss", 3), trap_schedule(run)
        assert schedule.counts["lost"] == pytest.approx(0.01 * len(run.time), rel=0.4)
        assert schedule.counts["associate"] == len(run.time) - schedule.counts["lost"]
        assert schedule.counts["keepalive"] == whole.counts["keepalive"]

    def test_a_rebooting_controller_is_silent_then_starts_at_zero_and_is_stormed(self, run: Any) -> None:
        schedule = trap_schedule(run, "reboot", 3, 2)
        booted = int(np.flatnonzero(schedule.boots)[0])
        moment = int(schedule.boots[booted])
        after = before = storm = 0
        for datagram in schedule:
            trap = decode(datagram.data)
            if datagram.controller != booted:
                continue
            assert not moment - SILENCE <= datagram.time < moment
            before += datagram.time < moment
            if datagram.time >= moment:
                after += 1
                assert trap.uptime == (datagram.time - moment) // 10_000
                storm += trap.kind is Meaning.ASSOCIATE and datagram.time < moment + 90 * SECOND
        assert before > 0 < after
        zones = np.arange(64) % 2 == booted
        present = int(true_occupancy(run, np.array([moment]))[0][zones].sum())
        assert storm >= 0.9 * present
        extra = schedule.counts["associate"] + schedule.counts["silent"] - len(run.time)
        assert 0.9 * present <= extra <= present
        assert schedule.counts["cold_start"] == 1

    def test_unknown_access_points_are_on_no_map_and_wrong_communities_are_wrong(self, run: Any) -> None:
        schedule = trap_schedule(run, "unknown-ap,wrong-community", 3)
        known = {bytes.fromhex(mac.replace(":", "")) for mac in run.building.access_points}
        traps = [decode(datagram.data) for datagram in schedule]
        strange = sum(bool(trap.access_point) and trap.access_point not in known for trap in traps)
        wrong = sum(envelope(datagram.data).community == WRONG_COMMUNITY for datagram in schedule)
        assert strange == schedule.counts["unknown_ap"] > 0
        assert wrong == schedule.counts["wrong_community"] > 0
        assert schedule.counts["associate"] == len(run.time)

    def test_the_flood_comes_from_an_unlisted_controller_for_ten_seconds(self, run: Any) -> None:
        schedule = trap_schedule(run, "flood", 3, 2)
        times = [datagram.time for datagram in schedule if datagram.controller == -1]
        assert len(times) == schedule.counts["flood"] == FLOOD
        assert times[-1] - times[0] < 10 * SECOND
        assert schedule.counts["associate"] == len(run.time)

    def test_enhanced_controllers_report_each_association_three_times(self, run: Any) -> None:
        schedule = trap_schedule(run, "enhanced", 3)
        counts = schedule.counts
        assert counts["associate_statistics"] == counts["run_state"] == counts["associate"] == len(run.time)
        clients = Counter((trap.client, trap.access_point) for trap in map(decode, data_of(schedule)))
        clients.pop((b"", b""))
        assert all(number % 3 == 0 for number in clients.values())

    def test_an_unknown_fault_is_refused_with_the_known_ones(self, run: Any) -> None:
        with pytest.raises(UsageError, match=r"^faults: .*unknown-ap.*'gremlins'"):
            trap_schedule(run, "loss,gremlins")
        with pytest.raises(UsageError, match=r"^controllers: "):
            trap_schedule(run, controllers=0)

    @pytest.mark.usefixtures("short_flood")
    @pytest.mark.parametrize("chosen", ["", "duplicates,reordering,loss,unknown-ap,wrong-community,enhanced,flood"])
    def test_the_real_connector_reports_exactly_the_fates_worked_out_beforehand(self, run: Any, chosen: Any) -> None:
        schedule = trap_schedule(run, chosen, 3, 2)
        policy = load_policy(policy_text(run, ("127.0.0.1", "127.0.0.2")))
        assert fates(schedule, Ingest.of_policy(policy, b"k" * 32, start=run.start), policy.site["dbh"].sources) == {
            reason: number for reason, number in expected_fates(schedule).items() if number
        }
        assert sum(expected_fates(schedule).values()) == schedule.counts["sent"]

    def test_fates_hold_where_most_traps_overtake_each_other(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("connectors.lab.simulation.faults.LATE_SHARE", 0.7)
        schedule = trap_schedule(run, "reordering,enhanced", 3)
        policy = load_policy(policy_text(run))
        found = fates(schedule, Ingest.of_policy(policy, b"k" * 32, start=run.start), policy.site["dbh"].sources)
        assert {**dict.fromkeys(expected_fates(schedule), 0), **found} == expected_fates(schedule)

    def test_after_a_reboot_nothing_is_worked_out_on_the_uptime_clock(self, run: Any) -> None:
        with pytest.raises(UsageError, match="reboot"):
            expected_fates(trap_schedule(run, "reboot", 3))


def data_of(schedule: TrapSchedule) -> list[bytes]:
    return [datagram.data for datagram in schedule]


def fates(schedule: TrapSchedule, ingest: Ingest, sources: tuple[str, ...]) -> dict[str, int]:
    """Take every datagram through allow-list, decoder, community check and ingest, as the receiver does."""
    state, allow, found = ingest.initial(schedule.simulation.start), AllowList(sources), Counter[str]()
    for datagram in schedule:
        host = f"127.0.0.{datagram.controller + 1}" if datagram.controller >= 0 else "127.0.0.99"
        source = allow.listed(host)
        if source is None:
            found["unknown_source"] += 1
            continue
        if not is_known(envelope(datagram.data).community, (b"public",)):
            found["bad_community"] += 1
            continue
        dropped, _ = ingest.observe(state, datagram.time, source, host, decode(datagram.data).sighting)
        found[dropped or "accepted"] += 1
        state.ready.clear()
    return dict(found)
