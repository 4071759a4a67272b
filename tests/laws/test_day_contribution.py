"""One device's privacy day: how many bounded counts it can change, whatever happens around it.

Random histories go through an ingest or a recording, which name by privacy day and end earlier names, and through the
stage that counts. In each one device walks about, lives across midnight and across the start of its day,
was there the day before or was not; the engine is restarted in between, zones come and go, and the contribution is
changed. What is claimed is proved, so no test can alarm falsely; that the bound is reached shows that the
histories are wild enough to find a breach, and the variants at the end show that they do find one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest

from connectors.sources.ingest.ingest import Ingest
from connectors.sources.ingest.sighting import Kind, Sighting
from connectors.sources.recordings.playback import Playback, Range
from stream.pipeline import Pipeline
from stream.pseudonyms.derivation import names_by_site
from stream.records import HOUR, MINUTE, Heartbeat, Micros, ObservationBatch, OccupancyWindow, PrivacyDay, Rejected
from stream.release.validation import Policy
from stream.sensing.contribution import BoundedCounts, DayCounter
from stream.sensing.occupancy import OccupancyOperator
from tests.support.day_policies import day_on, day_site
from tests.support.small_building import SITE, SOURCES, access_point, building, laboratory

TICK = 30 * MINUTE
VALIDITY = 70 * MINUTE
K = 5
KEY = bytes(32)
POINTS = "abcd"
"""Zones in which devices walk about, each with one access point."""

Seen = tuple[Micros, str]
"""Time and zone of one device."""
Walks = Sequence[Sequence[Seen]]
"""The sightings of each device."""
Cells = dict[tuple[Micros, str], int]
"""(window, zone) -> bounded count; without the windows that have none."""


class Scenario(NamedTuple):
    """A site and the privacy day of which the histories are."""

    policy: Policy
    stages: tuple[OccupancyOperator, ...]
    """Under the site's policy; with other zones; with a smaller contribution."""
    day: PrivacyDay


def scenario(day_starts: str, date: str, residents: str) -> Scenario:
    site = day_site("150min", day_starts=day_starts, residents=residents)
    text = building(releases=PLAIN, site=site, tick="30min")
    policy = text.model_copy(update={"site": {SITE: text.site[SITE].model_copy(update={"validity": VALIDITY})}})
    site_now = policy.site[SITE]
    fewer = site_now.model_copy(update={"zones": tuple(zone for zone in reversed(site_now.zones) if zone.id != "c")})
    shorter = site_now.model_copy(update={"contribution": 3 * TICK})
    stages = tuple(stage(policy.model_copy(update={"site": {SITE: each}})) for each in (site_now, fewer, shorter))
    return Scenario(policy, stages, day_on(day_starts, date))


PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { public = "1" }
"""


def stage(policy: Policy) -> OccupancyOperator:
    return Pipeline(policy, SITE, laboratory()).stages.occupancy


def drawn(rng: random.Random, day: PrivacyDay) -> list[Seen]:
    """Return where a device was seen, from a few hours before the day until a few hours after it."""
    edges = [day.start, day.end, day.start + 24 * HOUR, (day.start + day.end) // 2]
    times = {
        rng.choice(edges) + rng.choice([-VALIDITY, -TICK, 0, TICK, VALIDITY]) + rng.randrange(-1, 2)
        for _ in range(rng.randrange(6))
    }
    for _ in range(rng.randrange(1, 5)):  # stays, short and long, some of them over an edge
        begin = rng.choice([*edges, rng.randrange(day.start, day.end)]) - rng.randrange(3 * HOUR)
        times |= set(range(begin, begin + rng.randrange(8 * HOUR), rng.choice([20, 35, 65]) * MINUTE))
    zone, walk = "a", []
    for time in sorted(times):
        zone = rng.choice(POINTS) if rng.random() < 0.4 else zone
        walk.append((time, zone))
    if rng.random() < 0.4:
        walk = [each for each in walk if each[0] > day.start]
    return walk


# ---- the way of a history ------------------------------------------------------------------------------


class Course(NamedTuple):
    """What happens besides the walks."""

    source: Callable[[Scenario, Walks, Micros, Micros], Log]
    restarts: dict[int, int]
    """After which heartbeats the engine starts again, and under which of the policies."""


def drawn_course(rng: random.Random) -> Course:
    return Course(rng.choice([recorded, heard]), drawn_restarts(rng))


def drawn_restarts(rng: random.Random) -> dict[int, int]:
    if rng.random() < 0.3:
        return {}
    return {rng.randrange(90): rng.choice([0, 0, 0, 1, 1, 2]) for _ in range(rng.randrange(1, 5))}


Log = list[ObservationBatch | Heartbeat]


def recorded(held: Scenario, walks: Walks, since: Micros, until: Micros) -> Log:
    """Return what a recording of these walks says."""
    site = held.policy.site[SITE]
    places = {zone.id: number for number, zone in enumerate(site.zones)}
    names = names_by_site(held.policy, KEY)
    rows = []
    for device, walk in enumerate(walks):
        for line, (time, zone) in enumerate(walk):
            name = bytes.fromhex(names[SITE].name(address(device), names[SITE].epoch(time)))
            rows.append((time, places[zone], name, line, device))
    points = [(zone.radios[0], SITE) for zone in site.zones]
    playback = Playback(held.policy, names, points, Range(since, until), since)
    log: Log = [*playback.begin()]
    for row in sorted(row for row in rows if since < row[0] <= until):
        log += [*playback.advance(row[0]), *playback.process(row)]
    return [*log, *playback.finish(until)]


def heard(held: Scenario, walks: Walks, since: Micros, until: Micros) -> Log:
    """Return what an ingest sends that hears these walks; of its heartbeats those at ticks."""
    core = Ingest.of_policy(held.policy, KEY)
    state = core.initial(since)
    sightings = sorted((time, zone, address(device)) for device, walk in enumerate(walks) for time, zone in walk)
    log: Log = []
    for tick in range(since, until + 2 * TICK, TICK):
        for time, zone, client in (each for each in sightings if tick - TICK < each[0] <= tick and since < each[0]):
            core.observe(state, time, SOURCES[0], SOURCES[0], trap(client, zone))
        log += core.drain(state)
        log += [Heartbeat(SITE, source, state.session, tick, since) for source in SOURCES]
    return log


def address(device: int) -> bytes:
    return (0xA4 << 40 | device).to_bytes(6, "big")


def trap(client: bytes, zone: str) -> Sighting:
    return Sighting(Kind.ASSOCIATE, client, bytes.fromhex(access_point(zone).replace(":", "")))


def cells(held: Scenario, walks: Walks, course: Course) -> Cells:
    """Return the bounded counts of a history, from five hours before the day until five hours after it.

    Each restart goes through the state's byte form.
    """
    sense, beats = held.stages[0], 0
    found: Cells = {}
    state = sense.initial()
    for message in course.source(held, walks, held.day.start - 5 * HOUR, held.day.end + 5 * HOUR):
        state, out = sense.step(state, message)
        for window in out:
            assert not isinstance(window, Rejected) or window.reason == "unknown_access_point"
            if isinstance(window, OccupancyWindow) and window.bounded is not None:
                found |= {(window.window_end, zone): n for zone, n in zip(sense.zones, window.bounded, strict=True)}
        if isinstance(message, Heartbeat):
            if beats in course.restarts:
                data, sense = sense.encode(state), held.stages[course.restarts[beats]]
                state = sense.rebase_ticks(sense.decode(data))
            beats += 1
    return found


def changed(one: Cells, other: Cells) -> list[tuple[Micros, str]]:
    """Return the cells that differ, each as often as it differs; which windows have counts never does."""
    assert one.keys() == other.keys()
    return [cell for cell in one for _ in range(abs(one[cell] - other[cell]))]


def within(day: PrivacyDay, walk: Sequence[Seen], *, inside: bool) -> list[Seen]:
    return [each for each in walk if (day.start < each[0] <= day.end) is inside]


# ---- the law -------------------------------------------------------------------------------------------

SCENARIOS = [
    ("04:00", "2026-03-04", "ignore"),
    ("04:00", "2026-03-04", "count"),
    ("04:00", "2026-03-07", "ignore"),
    ("00:00", "2026-03-08", "count"),
    ("04:00", "2026-10-31", "count"),
    ("00:00", "2026-11-01", "ignore"),
    ("16:30", "2026-03-04", "count"),
    ("23:30", "2026-03-07", "ignore"),
]
"""Days of 24, 23 and 25 hours, that begin at midnight, before, after, and near midnight UTC."""
MANY = 250
"""Histories of each scenario, each night; of the ordinary run's sample, a fourteenth."""
FEW = MANY // 14
HISTORIES = pytest.mark.parametrize(
    "histories", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.long)]
)
IDS = [f"{day_starts} on {date}, residents {residents}" for day_starts, date, residents in SCENARIOS]


def test_the_days_have_24_23_and_25_hours() -> None:
    hours = {(scenario(*each).day.end - scenario(*each).day.start) // HOUR for each in SCENARIOS}
    assert hours == {23, 24, 25}


@HISTORIES
@pytest.mark.parametrize("at", range(len(SCENARIOS)), ids=IDS)
def test_a_devices_day_changes_at_most_k_counts_all_of_that_day_and_one_at_a_tick(at: int, histories: int) -> None:
    rng, stored, most = random.Random(at), scenario(*SCENARIOS[at]), 0
    for _ in range(histories):
        mine, other, course = drawn(rng, stored.day), drawn(rng, stored.day), drawn_course(rng)
        without = within(stored.day, mine, inside=False)
        found = changed(cells(stored, [mine, other], course), cells(stored, [without, other], course))
        assert len(found) <= K
        assert len({tick for tick, _ in found}) == len(found)
        assert all(stored.day.start < tick <= stored.day.end for tick, _ in found)
        most = max(most, len(found))
    assert most == K


@HISTORIES
@pytest.mark.parametrize("at", range(len(SCENARIOS)), ids=IDS)
def test_a_part_of_the_day_that_changes_changes_at_most_2k_counts_of_that_day(at: int, histories: int) -> None:
    rng, stored = random.Random(100 + at), scenario(*SCENARIOS[at])
    most = {"one": 0, "half": 0}
    for _ in range(histories):
        mine, course = drawn(rng, stored.day), drawn_course(rng)
        before = cells(stored, [mine], course)
        for part, other in (
            ("one", one_changed(rng, stored.day, mine)),
            ("half", half_replaced(rng, stored.day, mine)),
        ):
            found = changed(before, cells(stored, [other], course))
            assert len(found) <= 2 * K
            assert all(stored.day.start < tick <= stored.day.end for tick, _ in found)
            most[part] = max(most[part], len(found))
    assert most["half"] == 2 * K
    assert most["one"] > 2


def one_changed(rng: random.Random, day: PrivacyDay, walk: Sequence[Seen]) -> list[Seen]:
    """Return the walk with one sighting of the day more or less, or elsewhere."""
    inside = within(day, walk, inside=True)
    left = [each for each in walk if each != (rng.choice(inside) if inside else None)]
    new = (rng.choice([day.start + 1, day.start + TICK, rng.randrange(day.start + 1, day.end)]), rng.choice(POINTS))
    return sorted(rng.choice([left, [*walk, new], [*left, new]]))


def half_replaced(rng: random.Random, day: PrivacyDay, walk: Sequence[Seen]) -> list[Seen]:
    """Return the walk with another half of the day, earlier or later, than it had."""
    middle = (day.start + day.end) // 2
    low, high = rng.choice([(day.start, middle), (middle, day.end)])
    other = rng.choice([[], [(time, rng.choice(POINTS)) for time, _ in drawn(rng, day)]])
    kept = [each for each in walk if not low < each[0] <= high]
    return sorted([*kept, *(each for each in other if low < each[0] <= high)])


@HISTORIES
@pytest.mark.parametrize("at", range(len(SCENARIOS)), ids=IDS)
def test_what_a_device_adds_is_the_same_whoever_else_is_there(at: int, histories: int) -> None:
    """The counts of several are the sums of the counts of each alone."""
    rng, stored = random.Random(200 + at), scenario(*SCENARIOS[at])
    for _ in range(histories // 5):
        walks, course = [drawn(rng, stored.day) for _ in range(3)], drawn_course(rng)
        alone = [cells(stored, [*[[]] * place, walk], course) for place, walk in enumerate(walks)]
        assert cells(stored, walks, course) == {cell: sum(each[cell] for each in alone) for cell in alone[0]}


@HISTORIES
@pytest.mark.parametrize("at", range(len(SCENARIOS)), ids=IDS)
def test_an_ingest_counts_as_a_recording_does_over_restarts_and_other_zones(at: int, histories: int) -> None:
    rng, stored = random.Random(300 + at), scenario(*SCENARIOS[at])
    for _ in range(histories // 5):
        walk = [(time, "abd"["abcd".index(zone) % 3]) for time, zone in drawn(rng, stored.day)]
        course = Course(recorded, {beat: policy % 2 for beat, policy in drawn_restarts(rng).items()})
        found, straight = cells(stored, [walk], course), cells(stored, [walk], Course(heard, {}))
        assert changed({cell: n for cell, n in straight.items() if cell in found}, found) == []


# ---- what must be found --------------------------------------------------------------------------------


class Uncut(BoundedCounts):
    """Lets what was seen before the day reach into it."""

    def count(
        self, tally: DayCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]], zones: int
    ) -> tuple[int, ...] | None:
        start = self.days.at(tick).start
        moved = {device: (zone, max(time, start + 1)) for device, (zone, time) in present.items()}
        return super().count(tally, tick, moved, zones)


class Forgetful(BoundedCounts):
    """Begins to count anew within the day, now and then."""

    def count(
        self, tally: DayCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]], zones: int
    ) -> tuple[int, ...] | None:
        if tick % (12 * TICK) == 0:
            tally.counted = {}
        return super().count(tally, tick, present, zones)


class Crowded(BoundedCounts):
    """Lets all devices together have one contribution."""

    def count(
        self, tally: DayCounter, tick: Micros, present: Mapping[str, tuple[int, Micros]], zones: int
    ) -> tuple[int, ...] | None:
        found = super().count(tally, tick, present, zones)
        tally.counted = dict.fromkeys(tally.counted, max(tally.counted.values(), default=0))
        return found


@pytest.mark.parametrize("variant", [Uncut, Forgetful, Crowded])
def test_the_histories_find_what_breaks_the_bound(variant: type[BoundedCounts]) -> None:
    rng, stored = random.Random(400), scenario(*SCENARIOS[1])
    for each in stored.stages:
        assert each.by_day is not None
        object.__setattr__(each, "_day_counts", variant(each.by_day))
    assert any(_too_many(rng, stored) for _ in range(MANY // 4))


def _too_many(rng: random.Random, stored: Scenario) -> bool:
    mine, other, course = drawn(rng, stored.day), drawn(rng, stored.day), drawn_course(rng)
    without = within(stored.day, mine, inside=False)
    return len(changed(cells(stored, [mine, other], course), cells(stored, [without, other], course))) > K
