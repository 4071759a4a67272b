"""Connector and engine together: one person is counted once, and one trap moves few counts, whatever restarts.

Two connectors of one site, each started again now and then, carry random traps over midnight UTC. Seeds are fixed:
no false alarm is possible.
"""

import random
from typing import Any

import pytest

from connectors.sources.ingest.ingest import GRID, Ingest, SiteLimits
from connectors.sources.ingest.sighting import Kind, Sighting
from stream.pseudonyms.derivation import Pseudonyms
from stream.records import DAY, MINUTE, SECOND, OccupancyWindow
from stream.sensing.occupancy import OccupancyOperator

MIDNIGHT = 17_564 * DAY
START, END = MIDNIGHT - 30 * MINUTE, MIDNIGHT + 30 * MINUTE
TICK, VALIDITY = 5 * MINUTE, 10 * MINUTE
ZONES = ("lobby", "room", "hall")
RADIOS = {f"5c:52:1e:00:00:0{n}": zone for n, zone in enumerate(ZONES)}
SOURCES = ("10.2.0.5", "10.2.0.6")
CLIENTS = [bytes([0x3C, 0, 0, 0, 0, n]) for n in range(6)]


def trap(client: Any, radio: Any) -> Any:
    return Sighting(Kind.ASSOCIATE, client, bytes.fromhex(radio.replace(":", "")))


def drawn(rng: Any, count: int = 120) -> Any:
    """Times, sources, devices and access points; and when each source's connector is started again."""
    traps = sorted(
        (rng.randrange(START, END), rng.choice(SOURCES), rng.choice(CLIENTS), rng.choice([*RADIOS]))
        for _ in range(count)
    )
    restarts = {source: sorted(rng.randrange(START, END) for _ in range(4)) for source in SOURCES}
    return traps, restarts


def counted(traps: Any, restarts: Any, names: Any) -> Any:
    """Return the windows that the engine closes, from what both connectors send."""
    engine = OccupancyOperator(
        site="dbh", zones=ZONES, access_points=RADIOS, sources=SOURCES,
        tick_length=TICK, validity=VALIDITY, lateness=30 * SECOND, max_devices=1000,
    )  # fmt: skip
    core = {
        source: Ingest(
            access_points={radio: ("dbh", zone) for radio, zone in RADIOS.items()},
            sites={"dbh": SiteLimits((source,), VALIDITY, 1000, names())},
        )
        for source in SOURCES
    }
    state, out = engine.initial(), []
    started = {source: core[source].initial(START - MINUTE) for source in SOURCES}
    again = {source: list(restarts[source]) for source in SOURCES}
    received = list(traps)

    def give(messages: Any) -> None:
        for message in messages:
            out.extend(engine.step(state, message)[1])

    for now in range(START, END + 5 * MINUTE, GRID):
        for source in SOURCES:
            while again[source] and again[source][0] <= now:
                give(core[source].drain(started[source]))
                started[source] = core[source].initial(now)
                again[source].pop(0)
        while received and received[0][0] < now + GRID:
            time, source, client, radio = received.pop(0)
            give(core[source].poll(started[source], time))
            core[source].observe(started[source], time, source, source, trap(client, radio))
        for source in SOURCES:
            give(core[source].poll(started[source], now + GRID))
    return {window.window_end: window.counts for window in out if isinstance(window, OccupancyWindow)}


def brute(traps: Any) -> Any:
    """Count each device where it was last seen in the last ten minutes."""
    found = {}
    for tick in range(START, END + TICK, TICK):
        counts = [0] * len(ZONES)
        for client in CLIENTS:
            seen = [(time, radio) for time, _, who, radio in traps if who == client and time <= tick < time + VALIDITY]
            if seen:
                counts[ZONES.index(RADIOS[max(seen)[1]])] += 1
        found[tick] = tuple(counts)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "names",
    [lambda: Pseudonyms.daily(bytes(32)), lambda: Pseudonyms.rotating(bytes(32), 90 * SECOND)],
    ids=["daily", "ttl"],
)
def test_everybody_is_counted_once_over_midnight_restarts_and_two_connectors(seed: Any, names: Any) -> None:
    traps, restarts = drawn(random.Random(seed))
    found, expected = counted(traps, restarts, names), brute(traps)
    assert {tick: tuple(found[tick]) for tick in found if tick in expected} == {
        tick: expected[tick] for tick in found if tick in expected
    }
    assert len(found) >= 12


@pytest.mark.parametrize("seed", range(4))
def test_one_trap_more_or_less_changes_at_most_four_counts(seed: Any) -> None:
    rng = random.Random(100 + seed)
    traps, restarts = drawn(rng)
    whole = counted(traps, restarts, lambda: Pseudonyms.daily(bytes(32)))
    for place in rng.sample(range(len(traps)), 12):
        less = counted(traps[:place] + traps[place + 1 :], restarts, lambda: Pseudonyms.daily(bytes(32)))
        assert less.keys() == whole.keys()
        cells = [(tick, n) for tick in whole for n in range(len(ZONES)) if whole[tick][n] != less[tick][n]]
        assert len(cells) <= 4
