"""Laws of the sensing stages: what they put out depends on what was observed, not on how it arrived."""

import random
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import pytest

from connectors.sources.ingest.ingest import Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.lab.simulator.events import SimulatorConfig, simulate
from stream.operators import scan
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, Heartbeat, ObservationBatch, OccupancyWindow, Row, Stay
from stream.sensing.day_attributes import DayAttributes
from stream.sensing.occupancy import OccupancyOperator
from stream.sensing.presence import stays

TICK = 5 * MINUTE
V = 10 * MINUTE
LATENESS = 30 * SECOND
T0 = 18_000 * DAY
SPAN = 12 * TICK
ZONES = ("A", "B", "C")
ACCESS_POINTS = {"ap-a": "A", "ap-a2": "A", "ap-b": "B", "ap-c": "C"}
SOURCES = ("north", "south")

Seen = tuple[str, Row]
"""An observation and the source that made it."""


def sense(**changes: Any) -> OccupancyOperator:
    settings: dict[str, Any] = {
        "site": "dbh",
        "zones": ZONES,
        "access_points": ACCESS_POINTS,
        "sources": SOURCES,
        "tick_length": TICK,
        "validity": V,
        "lateness": LATENESS,
        "max_devices": 1000,
        "keep_presence": True,
    }
    return OccupancyOperator(**(settings | changes))


def history(seed: int, devices: int = 12, rows: int = 150) -> list[Seen]:
    """Random observations in time order, many of them on or beside a tick or a device's expiry."""
    rng = random.Random(seed)
    last = dict.fromkeys((f"{n:016x}" for n in range(devices)), T0)
    used: set[tuple[str, int]] = set()
    seen = []
    for _ in range(rows):
        device = rng.choice(list(last))
        time = rng.choice(
            [
                T0 + rng.randrange(SPAN),
                T0 + rng.randrange(12) * TICK + rng.choice([-1, 0, 1]),
                last[device] + V + rng.choice([-1, 0, 1]),
                last[device] + rng.randrange(7 * SECOND),
            ]
        )
        if (device, time) in used or time > T0 + SPAN:
            continue
        used.add((device, time))
        last[device] = time
        access_point = None if rng.random() < 0.1 else rng.choice(list(ACCESS_POINTS))
        seen.append((rng.choice(SOURCES), Row(device, access_point, time)))
    return sorted(seen, key=lambda one: one[1].time)


def ends(source: str) -> Heartbeat:
    return Heartbeat("dbh", source, 1, T0 + SPAN + V + LATENESS + 2 * TICK, 0)


def deliver(seen: Iterable[Seen], delay: Any, cut: Any) -> list[ObservationBatch | Heartbeat]:
    """Send observations: ``delay()`` after their time, a new batch wherever ``cut()`` says so.

    Each source beats every minute and its heartbeat is its own clock, so rows may be as old as the lateness.
    """
    arrivals = sorted(((row.time + delay(), n, source, row) for n, (source, row) in enumerate(seen)))
    beats = [(T0 + n * MINUTE, -1, source, None) for n in range(SPAN // MINUTE + 1) for source in SOURCES]
    items: list[ObservationBatch | Heartbeat] = [Heartbeat("dbh", source, 1, T0, 0) for source in SOURCES]
    open_rows: dict[str, list[Row]] = {source: [] for source in SOURCES}
    sequence = dict.fromkeys(SOURCES, 0)

    def flush(source: str) -> None:
        if open_rows[source]:
            items.append(ObservationBatch("dbh", source, 1, sequence[source], tuple(open_rows[source])))
            sequence[source] += 1
            open_rows[source] = []

    for at, _, source, row in sorted([*arrivals, *beats], key=lambda event: event[:3]):
        if row is None:
            flush(source)
            items.append(Heartbeat("dbh", source, 1, at, 0))
            continue
        open_rows[source].append(row)
        if cut():
            flush(source)
    for source in SOURCES:
        flush(source)
    return [*items, *map(ends, SOURCES)]


def at_once(seen: Sequence[Seen]) -> list[ObservationBatch | Heartbeat]:
    return deliver(seen, lambda: 0, lambda: False)


def one_by_one(seen: Sequence[Seen]) -> list[ObservationBatch | Heartbeat]:
    return deliver(seen, lambda: 0, lambda: True)


def split_outputs(out: Iterable[object]) -> tuple[list[OccupancyWindow], list[Stay]]:
    out = list(out)
    return [o for o in out if isinstance(o, OccupancyWindow)], [o for o in out if isinstance(o, Stay)]


def naive_counts(seen: Iterable[tuple[int, str, str | None]], tick: int, zones: Sequence[str]) -> tuple[int, ...]:
    """The definition: a device is where it was last seen up to the tick, if that is less than V ago."""
    last: dict[str, tuple[int, str | None]] = {}
    for time, device, zone in seen:
        if time <= tick:
            last[device] = (time, zone)
    there = [zone for time, zone in last.values() if tick < time + V]
    return tuple(there.count(zone) for zone in zones)


def in_zones(seen: Iterable[Seen]) -> list[tuple[int, str, str | None]]:
    return [(row.time, row.device, ACCESS_POINTS.get(row.access_point or "")) for _, row in seen]


@pytest.mark.parametrize("seed", range(20))
def test_every_tick_of_a_random_history_equals_a_naive_recomputation(seed: Any) -> None:
    seen = history(seed)
    windows, _ = split_outputs(scan(sense(), at_once(seen))[1])
    observations = in_zones(seen)
    assert [w.window_end for w in windows] == [T0 + n * TICK for n in range(len(windows))]
    assert len(windows) >= SPAN // TICK + 2
    for window in windows:
        assert window.counts == naive_counts(observations, window.window_end, ZONES)


def test_every_tick_of_a_simulated_day_equals_a_naive_recomputation() -> None:
    day = simulate(SimulatorConfig(zones=16, scale=0.6))
    place = day.building
    zones = place.zones
    access_points = dict(zip(place.access_points, zones, strict=True))
    stage = sense(zones=zones, access_points=access_points, sources=("c",), max_devices=20_000, keep_presence=False)
    seen = [
        (int(time), day.devices[device], int(where))
        for time, device, where in zip(day.time, day.device, day.access_point, strict=True)
    ]
    items: list[ObservationBatch | Heartbeat] = [Heartbeat("dbh", "c", 1, day.start, 0)]
    for n, (minute, group) in enumerate(groupby(seen, key=lambda one: one[0] // MINUTE)):
        rows = tuple(Row(device, place.access_points[where], time) for time, device, where in group)
        items += [Heartbeat("dbh", "c", 1, minute * MINUTE, 0), ObservationBatch("dbh", "c", 1, n, rows)]
    items.append(Heartbeat("dbh", "c", 1, day.end + TICK + LATENESS, 0))
    state, out = scan(stage, items)
    windows, _ = split_outputs(out)
    assert len(windows) == 289
    assert state.counters["accepted"] == len(seen) > 1000
    observations = [(time, device, zones[where]) for time, device, where in seen]
    for window in windows:
        assert window.counts == naive_counts(observations, window.window_end, zones)


@pytest.mark.parametrize("seed", range(20))
def test_stays_agree_with_the_batch_form_and_with_occupancy(seed: Any) -> None:
    seen = history(seed)
    windows, found = split_outputs(scan(sense(), at_once(seen))[1])
    expected = stays(in_zones(seen), V, tail=True)
    assert sorted(found, key=lambda s: (s.start, s.device)) == [Stay("dbh", *stay) for stay in expected]
    for window in windows:
        there = [stay.zone for stay in found if stay.start <= window.window_end < stay.end]
        assert window.counts == tuple(there.count(zone) for zone in ZONES)


@pytest.mark.parametrize("seed", range(10))
def test_splitting_batches_differently_gives_the_same_outputs(seed: Any) -> None:
    seen = history(seed)
    rng = random.Random(seed)
    whole = scan(sense(), at_once(seen))[1]
    assert scan(sense(), one_by_one(seen))[1] == whole
    assert scan(sense(), deliver(seen, lambda: 0, lambda: rng.random() < 0.3))[1] == whole


@pytest.mark.parametrize("seed", range(10))
def test_arrival_in_any_order_within_lateness_gives_the_same_windows_and_stays(seed: Any) -> None:
    seen = history(seed)
    rng = random.Random(seed)
    expected = split_outputs(scan(sense(), at_once(seen))[1])
    shuffled = deliver(seen, lambda: rng.randrange(LATENESS + 1), lambda: rng.random() < 0.3)
    state, out = scan(sense(), shuffled)
    assert split_outputs(out) == expected
    assert state.counters["late"] == 0


def test_arrival_later_than_lateness_is_dropped_and_counted_when_its_window_has_closed() -> None:
    seen = history(3)
    rng = random.Random(3)
    state, _ = scan(sense(), deliver(seen, lambda: rng.choice([0, 3 * TICK]), lambda: True))
    assert 0 < state.counters["late"] < len(seen)
    assert state.counters["late"] + state.counters["accepted"] == state.counters["rows"] == len(seen)


@pytest.mark.parametrize("seed", range(10))
def test_exact_duplicates_of_rows_change_nothing(seed: Any) -> None:
    seen = history(seed)
    twice = [one for one in seen for _ in range(2)]
    assert scan(sense(), at_once(twice))[1] == scan(sense(), at_once(seen))[1]
    assert scan(sense(), one_by_one(twice))[1] == scan(sense(), at_once(seen))[1]


@pytest.mark.parametrize("seed", range(10))
def test_items_that_come_again_change_nothing(seed: Any) -> None:
    items = one_by_one(history(seed))
    rng = random.Random(seed)
    expected = scan(sense(), items)[1]
    assert scan(sense(), [item for item in items for _ in range(2)])[1] == expected
    crash = rng.randrange(len(items))
    back = rng.randrange(crash + 1)
    assert scan(sense(), [*items[:crash], *items[back:]])[1] == expected


@pytest.mark.parametrize("seed", range(4))
def test_state_survives_its_byte_form_at_every_step(seed: Any) -> None:
    stage = sense()
    items = one_by_one(history(seed))
    expected = scan(stage, items)[1]
    state, out = stage.initial(), []
    for item in items:
        data = stage.encode(state)
        restored = stage.decode(data)
        assert restored == state
        assert restored.known_devices == state.known_devices
        assert stage.encode(restored) == data
        state, produced = stage.step(restored, item)
        out += produced
    assert out == expected


def test_two_orders_of_arrival_meet_in_the_same_windows_ever_after() -> None:
    """After all has closed nothing is left of how it came: only counters and batch numbers differ."""
    seen = history(5)
    rng = random.Random(5)
    one, _ = scan(sense(), at_once(seen))
    other, _ = scan(sense(), deliver(seen, lambda: rng.randrange(LATENESS), lambda: True))
    assert (one.current, one.pending, one.rows, one.open_stays) == ({}, {}, {}, {})
    assert (other.current, other.pending, other.rows, other.open_stays) == ({}, {}, {}, {})


# Sensitivity: what one datagram less can change, through the connector's collapse and naming and presence.

RADIOS = {zone: f"5c:52:1e:00:00:0{n}" for n, zone in enumerate(ZONES)}
INGEST = Ingest(
    access_points={radio: ("dbh", zone) for zone, radio in RADIOS.items()},
    sites={"dbh": SiteLimits(("c",), V, 10, Pseudonyms.daily(bytes(16)))},
)
SENSE = sense(
    access_points={radio: zone for zone, radio in RADIOS.items()},
    sources=("c",),
    ahead=DAY,
    keep_presence=False,
)
NOON, BEFORE_MIDNIGHT = T0 + DAY // 2, T0 - 2 * TICK


def trap(zone: str) -> Sighting:
    radio = bytes.fromhex(RADIOS[zone].replace(":", ""))
    client = bytes.fromhex("020000000001")
    return Sighting(Kind.ASSOCIATE, client, radio)


TRAPS = {zone: trap(zone) for zone in ZONES}


def cells(datagrams: Sequence[tuple[int, str]], start: int) -> list[int]:
    """Counts of every zone at every tick from ``start`` on, of one device's datagrams."""
    received = INGEST.initial(start)
    for time, zone in datagrams:
        INGEST.observe(received, time, "c", "127.0.0.1", TRAPS[zone])
    beats = [Heartbeat("dbh", "c", received.session, at, 0) for at in (start, start + 12 * TICK)]
    out = scan(SENSE, [beats[0], *INGEST.drain(received), beats[1]])[1]
    return [count for window in split_outputs(out)[0] for count in window.counts]


def small_history(rng: random.Random, start: int) -> list[tuple[int, str]]:
    """Up to eight datagrams: anywhere, beside a tick, in a burst, or beside the expiry of the one before."""
    time = start + rng.randrange(TICK)
    datagrams: list[tuple[int, str]] = []
    for _ in range(rng.randrange(1, 9)):
        datagrams.append((time, rng.choice(ZONES[: rng.choice([1, 2, 3])])))
        time = rng.choice(
            [
                time + rng.randrange(12 * MINUTE),
                (time // TICK + 1) * TICK + rng.randrange(-3 * SECOND, 3 * SECOND),
                time + rng.randrange(6 * SECOND),
                time + V + rng.randrange(-6 * SECOND, 6 * SECOND),
            ]
        )
    return sorted(one for one in datagrams if one[0] < start + 8 * TICK)


@pytest.mark.parametrize(
    ("start", "histories"),
    [(BEFORE_MIDNIGHT, 3_000), *(pytest.param(at, 10_000, marks=pytest.mark.long) for at in (NOON, BEFORE_MIDNIGHT))],
)
def test_one_datagram_less_changes_at_most_four_cells_and_four_is_attained(start: Any, histories: int) -> None:
    rng = random.Random(11)
    worst = 0
    for _ in range(histories):
        datagrams = small_history(rng, start)
        gone = rng.randrange(len(datagrams))
        everything = cells(datagrams, start)
        less = cells(datagrams[:gone] + datagrams[gone + 1 :], start)
        changes = [abs(a - b) for a, b in zip(everything, less, strict=True)]
        assert max(changes) <= 1
        assert sum(changes) <= 4
        worst = max(worst, sum(changes))
    assert worst == 4


def test_four_cells_are_attained_when_a_move_just_before_a_tick_is_lost() -> None:
    stayed = [(NOON + TICK - 2 * SECOND, "A")]
    moved = [*stayed, (NOON + TICK - SECOND, "B")]
    changes = [a - b for a, b in zip(cells(moved, NOON), cells(stayed, NOON), strict=True)]
    assert sorted(changes)[:2] == [-1, -1]
    assert sorted(changes)[-2:] == [1, 1]
    assert sum(map(abs, changes)) == 4


def test_long_row_of_datagrams_seconds_apart_keeps_the_device_present() -> None:
    """The collapse is anchored on the last one kept; on the last one heard, it would swallow hours."""
    burst = [(NOON + 1 + n * 4 * SECOND, "A") for n in range(600)]
    everything = cells(burst, NOON)
    assert everything[0::3] == [0] + [1] * 9 + [0] * 2
    for gone in range(0, 600, 37):
        less = cells(burst[:gone] + burst[gone + 1 :], NOON)
        assert sum(abs(a - b) for a, b in zip(everything, less, strict=True)) <= 4


@pytest.mark.parametrize("seed", range(20))
def test_a_new_day_of_names_counts_nobody_twice(seed: Any) -> None:
    datagrams = small_history(random.Random(seed), BEFORE_MIDNIGHT)
    observations = [(time, "d", zone) for time, zone in datagrams]
    expected = [naive_counts(observations, BEFORE_MIDNIGHT + n * TICK, ZONES) for n in range(12)]
    found = cells(datagrams, BEFORE_MIDNIGHT)
    assert all(sum(found[n : n + 3]) <= 1 for n in range(0, len(found), 3))
    assert all(sum(found[3 * n : 3 * n + 3]) <= sum(expected[n]) for n in range(12))


# Attributes of a day.


def day_windows(seed: int) -> list[OccupancyWindow]:
    rng = random.Random(seed)
    sample = sense(keep_presence=False)
    beats = [Heartbeat("dbh", source, 1, time, 0) for time in range(T0, T0 + 3 * DAY + 1, TICK) for source in SOURCES]
    windows, _ = split_outputs(scan(sample, beats)[1])
    chance = rng.choice([0.02, 0.5])
    return [
        OccupancyWindow(w.site, w.window_end, tuple(int(rng.random() < chance) for _ in ZONES), w.coverage)
        for w in windows
    ]


ATTRIBUTES = DayAttributes(site="dbh", zones=(("A", 0), ("C", 2)), timezone="America/Los_Angeles", tick_length=TICK)


@pytest.mark.parametrize("seed", range(2))
def test_day_state_survives_its_byte_form_at_every_step(seed: Any) -> None:
    expected = scan(ATTRIBUTES, day_windows(seed))[1]
    assert [len(day.attributes) for day in expected] == [8, 8]
    state, out = ATTRIBUTES.initial(), []
    for window in day_windows(seed):
        data = ATTRIBUTES.encode(state)
        restored = ATTRIBUTES.decode(data)
        assert restored == state
        assert ATTRIBUTES.encode(restored) == data
        state, produced = ATTRIBUTES.step(restored, window)
        out += produced
    assert out == expected


def test_windows_that_come_again_change_no_day() -> None:
    windows = day_windows(1)
    expected = scan(ATTRIBUTES, windows)[1]
    assert scan(ATTRIBUTES, [w for w in windows for _ in range(2)])[1] == expected
    assert scan(ATTRIBUTES, [*windows[:400], *windows[100:]])[1] == expected
