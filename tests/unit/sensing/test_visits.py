"""Counts by visits: which ticks belong to a visit, when a device is out for the day, and which counters go on."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

import orjson
import pytest

from stream.records import DAY, HOUR, MINUTE, LevelCounts
from stream.sensing.visits import VisitBound, VisitCounter, VisitCounts, migrated_visits

TICK = 5 * MINUTE
VALIDITY = 10 * MINUTE
BEGINS = 20_000 * DAY + 4 * HOUR
"""The start of a privacy day."""
ZONES = (("a", "1"), ("b", "1"), ("c", "2"))
BOUND = VisitBound("04:00", "UTC", 4, 2, TICK, VALIDITY, ZONES)
LATER = 12
"""Ticks from the day's start until residents are no longer told from others."""
AWAY = None

Walk = Mapping[int, str | None]
"""Tick, counted from the day's start -> the zone in which a device is from then on."""


class Cells(NamedTuple):
    """The ticks at which each node has a device, by level."""

    zone: dict[str, list[int]]
    floor: dict[str, list[int]]
    building: list[int]


def stepped(tally: VisitCounter, stage: VisitCounts, walks: Mapping[str, Walk], tick: int) -> LevelCounts | None:
    at = BEGINS + tick * TICK
    present = {}
    for device, walk in walks.items():
        zone = walk[max(since for since in walk if since <= tick)] if min(walk) <= tick else AWAY
        if zone is not AWAY:
            present[device] = ("abc".index(zone), at)
    return stage.count(tally, at, present)


def counted(walk: Walk, bound: VisitBound = BOUND, *, ticks: int = 250, restarts: bool = False) -> Cells:
    """Return where one device counts; with ``restarts`` the counters go through their byte form at every tick."""
    stage = VisitCounts(bound)
    tally, found = stage.initial(), Cells({"a": [], "b": [], "c": []}, {"1": [], "2": []}, [])
    for tick in range(1, ticks):
        if restarts:
            tally = VisitCounter.from_plain(orjson.loads(orjson.dumps(tally.to_plain())))
        counts = stepped(tally, stage, {"anne": walk}, tick)
        assert counts is not None
        for (name, _), count in zip(ZONES, counts.zone, strict=True):
            found.zone[name] += [tick] * count
        for floor, count in zip("12", counts.floor, strict=True):
            found.floor[floor] += [tick] * count
        found.building.extend([tick] * counts.building[0])
    return found


def moves(*zones: str | None, since: int = LATER, each: int = 10) -> Walk:
    """Return a walk that is in each place for so many ticks."""
    return {since + place * each: zone for place, zone in enumerate(zones)} | {since + len(zones) * each: AWAY}


# ---- what a visit is -----------------------------------------------------------------------------------


def test_a_device_that_stays_counts_all_day_at_every_level() -> None:
    found = counted({LATER: "a"}, ticks=280)
    assert found.zone["a"] == found.floor["1"] == found.building == [*range(LATER, 280)]


def test_a_move_ends_one_visit_and_opens_another_and_all_nodes_share_them() -> None:
    found = counted(moves("a", "b", "c", "a", "b", AWAY, "c"))
    assert found.zone == {
        "a": [*range(12, 22), *range(42, 52)], "b": [*range(22, 32)], "c": [*range(32, 42)],
    }  # fmt: skip
    assert found.floor["1"] == [*range(12, 32), *range(42, 62)], "to the floor it is the third visit"
    assert found.floor["2"] == [*range(32, 42), *range(72, 82)]


def test_after_its_last_visit_a_device_is_out_until_the_day_ends() -> None:
    found = counted(moves("a", "b", "a", "b", "a", "b", "a"))
    assert sorted(found.zone["a"] + found.zone["b"]) == [*range(12, 52)]
    assert found.building == [*range(12, 84)], "it never left the building, and counts for the gap after it did"
    assert counted(moves("a", AWAY, "a", AWAY, "a", AWAY, "a", AWAY, "a")).zone["a"][-1] == 81


def test_the_next_day_begins_anew() -> None:
    stage = VisitCounts(BOUND)
    tally, walks = stage.initial(), {"anne": moves("a", "b", "a", "b", "a", each=20)}
    for tick in range(1, 289):
        stepped(tally, stage, walks, tick)
    assert tally.levels[0]["anne"].made == 4
    assert stepped(tally, stage, {"ben": {300: "a"}}, 300) == LevelCounts((1, 0, 0), (1, 0), (1,))
    assert tally.levels[0].keys() == {"ben"}


# ---- short absences ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("away", "visits"), [(1, 1), (2, 1), (3, 2), (9, 2)])
def test_an_absence_of_at_most_the_gap_ends_no_visit_to_the_building(away: int, visits: int) -> None:
    stage = VisitCounts(BOUND)
    tally = stage.initial()
    for tick in range(1, 100):
        stepped(tally, stage, {"anne": {20: "a", 40: AWAY, 40 + away: "b"}}, tick)
    assert tally.levels[2]["anne"].made == visits
    assert tally.levels[0]["anne"].made == 2, "there is no gap for zones"


def test_who_leaves_counts_for_the_gap_in_the_building_alone() -> None:
    found = counted(moves("a"))
    assert found.zone["a"] == found.floor["1"] == [*range(12, 22)]
    assert found.building == [*range(12, 24)]


def test_the_gap_needs_no_later_observation() -> None:
    """Whatever comes later, what was counted stays."""
    came, stayed = counted({20: "a", 40: AWAY, 42: "a"}), counted({20: "a", 40: AWAY})
    assert came.building[:22] == stayed.building == [*range(20, 42)]


def test_without_a_gap_the_building_is_a_level_like_others() -> None:
    found = counted(moves("a", AWAY, "a", AWAY, "a", AWAY, "a", AWAY, "a"), BOUND._replace(gap=0))
    assert found.building == found.zone["a"]


# ---- residents -----------------------------------------------------------------------------------------


def test_a_resident_makes_no_visit_until_it_has_been_away() -> None:
    assert counted({0: "a"}).building == []
    assert counted({0: "a", 50: AWAY, 55: "a"}).building == [], "five ticks are too few, whatever the gap"
    back = counted({0: "a", 50: AWAY, 56: "a"})
    assert back.zone["a"] == back.building == [*range(56, 250)]


# ---- what one device adds ------------------------------------------------------------------------------


def drawn(rng: random.Random) -> Walk:
    times = sorted(rng.sample(range(1, 280), rng.randrange(1, 30)))
    return {time: rng.choice([*"abc", AWAY]) for time in times}


def test_a_device_changes_the_counts_of_a_level_at_most_twice_a_visit() -> None:
    rng, most = random.Random(1), [0, 0, 0]
    for _ in range(300):
        found = counted(drawn(rng), ticks=289)
        for level, nodes in enumerate((found.zone.values(), found.floor.values(), [found.building])):
            changes = sum(len({*ticks} ^ {tick + 1 for tick in ticks}) for ticks in nodes)
            assert changes <= 2 * BOUND.visits
            most[level] = max(most[level], changes)
    assert most == [8, 8, 8]


def test_what_a_device_adds_is_the_same_whoever_else_is_there_and_over_restarts() -> None:
    rng = random.Random(2)
    for _ in range(20):
        walks = {name: drawn(rng) for name in ("anne", "ben")}
        stage = VisitCounts(BOUND)
        tally = stage.initial()
        together = [stepped(tally, stage, walks, tick) for tick in range(1, 250)]
        alone = [counted(walk, restarts=True) for walk in walks.values()]
        assert sum(sum(each.zone) for each in together if each) == sum(
            len(ticks) for each in alone for ticks in each.zone.values()
        )
        assert [each.building[0] for each in together if each] == [
            sum(tick in each.building for each in alone) for tick in range(1, 250)
        ]


# ---- one run a day -------------------------------------------------------------------------------------


def test_another_definition_counts_nothing_until_the_next_day() -> None:
    stage = VisitCounts(BOUND)
    tally = stage.initial()
    stepped(tally, stage, {"anne": {20: "a"}}, 20)
    assert migrated_visits(tally, BOUND, None) is tally
    for other in (BOUND._replace(visits=3), BOUND._replace(gap=1), BOUND._replace(zones=ZONES[:2])):
        anew = migrated_visits(tally, other, None)
        assert anew is not None
        assert anew.resumes == BEGINS + DAY
        assert stepped(anew, VisitCounts(other), {"anne": {20: "a"}}, 60) is None
        assert stepped(anew, VisitCounts(other), {"anne": {20: "a"}}, 300) is not None


def test_a_definition_that_was_given_up_is_remembered_until_its_day_is_over() -> None:
    stage = VisitCounts(BOUND)
    tally = stage.initial()
    stepped(tally, stage, {"anne": {20: "a"}}, 20)
    without = migrated_visits(tally, None, None)
    assert without is not None
    assert not without.is_over(BEGINS + 23 * HOUR)
    assert without.is_over(BEGINS + DAY)
    again = migrated_visits(without, BOUND, None)
    assert again is not None
    assert again.resumes == BEGINS + DAY


def test_a_site_that_counted_no_changes_begins_at_once_unless_pseudonyms_change() -> None:
    first = migrated_visits(None, BOUND, None)
    assert first is not None
    assert first.resumes is None
    renamed = migrated_visits(None, BOUND, BEGINS + HOUR)
    assert renamed is not None
    assert renamed.resumes == BEGINS + HOUR
    assert migrated_visits(None, None, BEGINS) is None


def test_after_a_loss_nothing_is_counted_until_the_next_day() -> None:
    stage = VisitCounts(BOUND)
    tally = stage.initial()
    stepped(tally, stage, {"anne": {20: "a"}}, 20)
    stage.suspend(tally, BEGINS + 21 * TICK)
    assert tally.levels == ({}, {}, {})
    assert stepped(tally, stage, {"anne": {20: "a"}}, 21) is None
    assert stepped(tally, stage, {"anne": {300: "a"}}, 300) == LevelCounts((1, 0, 0), (1, 0), (1,))


def test_counters_go_through_their_byte_form() -> None:
    tally = VisitCounts(BOUND).initial()
    stepped(tally, VisitCounts(BOUND), {"anne": {20: "a"}, "ben": {0: "b"}}, 20)
    assert VisitCounter.from_plain(orjson.loads(orjson.dumps(tally.to_plain()))) == tally
    assert "anne" not in repr(tally)


def test_the_stored_form_says_how_many_visits_were_made_at_which_node_and_minus_one_for_none() -> None:
    """A stored state is read by later releases too."""
    tally = VisitCounts(BOUND).initial()
    for tick in range(1, 60):
        stepped(tally, VisitCounts(BOUND), {"anne": moves("a", "b", "a", "b", "a")}, tick)
    assert tally.to_plain()[-1] == [[["anne", 4, -1, 0]], [["anne", 1, 0, 0]], [["anne", 1, 0, 0]]]
