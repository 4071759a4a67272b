"""One person's traps, from the connector through the engine: what they change, and what they never change.

All draws come from fixed seeds, so there are no false alarms. True counts are read from the restricted topic.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest

from connectors.sources.ingest.ingest import Ingest
from connectors.sources.snmp.sender import Association, encode_associate
from connectors.sources.snmp.traps import decode
from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.pipeline import Options
from stream.records import MINUTE, SECOND, Micros
from stream.release.stage import ReleaseStage
from stream.schemas import OCCUPANCY, QUARANTINE, parse_record
from tests.support.small_building import EVENING, SITE, SOURCES, access_point, building, laboratory, mac

RELEASE = '[[release]]\nname = "r"\nquery = "count"\nmechanism = "laplace"\nzones = { kind = "hall" }\n'
SPEND = 'epsilon = { facilities = "1" }\n'
SPAN = 120 * MINUTE
ZONES = "abcd"


class Heard(NamedTuple):
    """One trap."""

    time: Micros
    device: int
    zone: str


Cells = Counter[tuple[str, str]]
"""(window end, zone) -> true count."""


@pytest.fixture(autouse=True)
def without_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are looked at before any noise, so nothing is released."""
    monkeypatch.setattr(ReleaseStage, "step", lambda _, state, item: (state, []))


@cache
def policy(max_devices: int = 1000) -> Any:
    return building(tick="5min", releases=RELEASE + SPEND, site=f"max_devices = {max_devices}")


def traps(rng: random.Random, devices: int, number: int) -> list[Heard]:
    """Draw traps that come in bursts, so that repeats are collapsed, and on ticks and edges of V."""
    made, time = [], EVENING + MINUTE
    for _ in range(number):
        time = rng.choice((rng.randrange(EVENING, EVENING + SPAN), time + 4 * SECOND, time + 10 * MINUTE, time + 1))
        time = min(time if rng.random() < 0.9 else time // (5 * MINUTE) * 5 * MINUTE, EVENING + SPAN)
        made.append(Heard(time, rng.randrange(devices), rng.choice(ZONES)))
    return sorted(made)


def log_of(heard: Sequence[Heard], max_devices: int = 1000) -> list[bytes]:
    """Return the messages that a connector makes of traps: the clock's grid, whoever moves."""
    core = Ingest.of_policy(policy(max_devices), bytes(32))
    state, log = core.initial(EVENING), []
    todo = [*heard]
    for now in range(EVENING, EVENING + SPAN + 30 * MINUTE, 5 * SECOND):
        while todo and todo[0].time <= now:
            time, device, zone = todo.pop(0)
            address, radio = (bytes.fromhex(text.replace(":", "")) for text in (mac(device), access_point(zone)))
            trap = decode(encode_associate(Association(address, radio), community=b"c", uptime=1))
            core.observe(state, time, SOURCES[device % 2], SOURCES[device % 2], trap.sighting)
            log += core.poll(state, time)
        core.record_running(state, now)
        log += core.poll(state, now)
    return [encode_message(message) for message in log]


def cells(log: Sequence[bytes], rng: random.Random | None = None, max_devices: int = 1000) -> Cells:
    """Return the true counts; with ``rng`` the engine is restarted from its snapshot now and then."""

    def made() -> PartitionEngine:
        return PartitionEngine(policy(max_devices), laboratory(), Options(occupancy=True))

    partition, found = made(), Cells()
    for offset, value in enumerate(log):
        if rng is not None and rng.random() < 0.02:
            snapshot, partition = partition.snapshot(offset, 0), made()
            partition.restore(snapshot)
        for out in partition.process(offset, None, value):
            if out.topic == OCCUPANCY:
                record = parse_record(out.value)
                found.update({(record["window_end"], zone): n for zone, n in record["counts"].items()})
    return found


def different(one: Cells, other: Cells) -> set[tuple[str, str]]:
    return {cell for cell in one.keys() | other.keys() if one[cell] != other[cell]}


def seeds(few: int, many: int) -> list[Any]:
    """Return the seeds of the ordinary run, and those that are left to the night."""
    return [seed if seed < few else pytest.param(seed, marks=pytest.mark.long) for seed in range(many)]


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_one_trap_more_changes_at_most_four_cells_whatever_else_is_heard(seed: int) -> None:
    rng = random.Random(seed)
    received = traps(rng, devices=rng.choice((2, 5, 40)), number=rng.choice((20, 120)))
    whole = cells(log_of(received), rng)
    changed = Counter[int]()
    for gone in rng.sample(range(len(received)), 5):
        found = different(whole, cells(log_of([*received[:gone], *received[gone + 1 :]]), rng))
        changed[len(found)] += 1
    assert max(changed) <= 4, "two zones at each of two ticks"
    assert changed.keys() - {0} or len(received) == 120, "the comparison means something"


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_below_the_stop_every_device_counts_as_if_it_were_alone(seed: int) -> None:
    """Counts of all are counts of all others plus its own, in every cell: nobody's admission depends on anybody."""
    rng = random.Random(100 + seed)
    received = traps(rng, devices=10, number=100)
    whole = cells(log_of(received, 10), rng, 10)
    for device in rng.sample(range(10), 2):
        others = cells(log_of([each for each in received if each.device != device], 10), rng, 10)
        alone = cells(log_of([each for each in received if each.device == device], 10), rng, 10)
        assert whole == others + alone or not different(whole, others + alone)
        assert sum(alone.values()) > 0


def test_at_the_stop_the_site_closes_for_all_whoever_was_one_too_many() -> None:
    everybody = [Heard(EVENING + 7 * MINUTE + device, device, "a") for device in range(6)]
    for order in ((0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0)):
        received = [Heard(EVENING + 7 * MINUTE + n, device, "a") for n, device in enumerate(order)]
        log = log_of(received, 5)
        found = cells(log, max_devices=5)
        assert max(end for end, _ in found) == "2026-03-03T04:05:00Z", "the last window that had closed by then"
        partition = PartitionEngine(policy(5), laboratory())
        made = [out for offset, value in enumerate(log) for out in partition.process(offset, None, value)]
        assert partition.sites.suspended_sites() == [SITE]
        assert [parse_record(out.value)["reason"] for out in made if out.topic == QUARANTINE] == ["site_shut"]
    assert len(cells(log_of(everybody[1:], 5), max_devices=5)) > 4 * 20, "one less, and it goes on"


def test_a_full_table_lets_no_trap_change_who_else_is_counted() -> None:
    """The attack: with the table full, one trap more changed 281 cells over 141 windows."""
    limit = 20
    rng = random.Random(7)
    steady = [
        Heard(EVENING + begin * MINUTE + device, device, rng.choice(ZONES))
        for begin in range(1, 115, 8)
        for device in range(limit - 1)
    ]
    one_more = [Heard(EVENING + 30 * MINUTE, limit, "b")]
    without, with_it = (cells(log_of(sorted([*steady, *more]), limit), max_devices=limit) for more in ([], one_more))
    assert len(different(without, with_it)) <= 4
    assert different(without, with_it)
    two = [*one_more, Heard(EVENING + 30 * MINUTE + SECOND, limit + 1, "c")]
    closed = cells(log_of(sorted([*steady, *two]), limit), max_devices=limit)
    assert max(end for end, _ in closed) < "2026-03-03T04:31:00Z"
    assert not {cell: n for cell, n in closed.items() if n != without[cell]}


def test_what_a_site_remembers_is_bounded_by_the_stop_before_it_grows() -> None:
    limit = 50
    partition = PartitionEngine(policy(limit), laboratory())
    rows = [Heard(EVENING + n, n, "a") for n in range(4 * limit)]
    for offset, value in enumerate(log_of(rows, 10**5)):
        partition.process(offset, None, value)
        state = partition.sites.sensing()[SITE]
        assert len(state.known_devices) <= limit
        assert sum(map(len, state.pending.values())) <= limit
    assert partition.sites.suspended_sites() == [SITE]
