"""A batch that is added at once leaves the site exactly as one that is added row by row, with the same outputs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from stream.records import MINUTE, SECOND, Columns, Heartbeat, ObservationBatch, PrivacyDay, Row
from stream.sensing import occupancy
from stream.sensing.occupancy import OccupancyOperator

TICK = 5 * MINUTE
START = 4_000 * TICK
POINTS = {f"ap-{number}": f"zone-{number % 3}" for number in range(5)}


def sense(**changes: Any) -> OccupancyOperator:
    given: dict[str, Any] = {
        "site": "dbh", "zones": ("zone-0", "zone-1", "zone-2"), "access_points": POINTS, "sources": ("one", "two"),
        "tick_length": TICK, "validity": 10 * MINUTE, "lateness": 30 * SECOND, "max_devices": 60, "ahead": 4 * MINUTE,
    }  # fmt: skip
    return OccupancyOperator(**(given | changes))


def rows(chance: random.Random, begin: int, unruly: float) -> tuple[Row, ...]:
    """Return rows about a time, most of them in order; some batches are of another kind."""
    spread = chance.choice([10 * SECOND, MINUTE, 8 * MINUTE])
    times = sorted(begin + chance.randrange(spread) // SECOND * SECOND for _ in range(chance.randrange(40)))
    if chance.random() < unruly:
        chance.shuffle(times)
    strange = chance.random() < unruly
    return tuple(
        Row(f"{chance.randrange(50):016x}", chance.choice([*POINTS, None, "ap-x" if strange else None]), time)
        for time in times
    )


def log(chance: random.Random, unruly: float) -> list[ObservationBatch | Heartbeat]:
    """Return two sources' batches, the one up to two windows behind the other, and heartbeats."""
    made: list[ObservationBatch | Heartbeat] = []
    if chance.random() < 0.8:
        made += [Heartbeat("dbh", source, 1, START, START) for source in ("one", "two")]
    for number in range(30):
        at = START + number * MINUTE
        for source in ("one", "two"):
            begin = at - chance.choice([0, 0, 30 * SECOND, 6 * MINUTE]) + chance.choice([0, 0, 0, 3 * MINUTE])
            made.append(ObservationBatch("dbh", source, 1, number, rows(chance, begin, unruly)))
            if chance.random() < 0.5:
                made.append(Heartbeat("dbh", source, 1, at - MINUTE, START))
    return made


def outcome(
    stage: OccupancyOperator, items: list[ObservationBatch | Heartbeat]
) -> tuple[bytes, list[Any], set[str], bytes]:
    """Return what a log leaves and what comes out; state is put down and taken up again amid it."""
    state, out = stage.initial(), []
    for number, item in enumerate(items):
        state, more = stage.step(state, item)
        out += more
        if number == len(items) // 2:
            middle = stage.encode(state)
            state = stage.decode(middle)
    return stage.encode(state), out, state.known_devices, middle


@pytest.mark.parametrize("unruly", [0.0, 0.3])
@pytest.mark.parametrize(
    "changes", [{}, {"max_devices": 45}, {"first_window": START + 2 * TICK}, {"keep_presence": True}]
)
def test_rows_are_filed_at_once_as_they_are_one_by_one(
    changes: dict[str, Any], unruly: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, real = 0, occupancy.OccupancyOperator._file_at_once

    def counting(*given: Any) -> bool:
        nonlocal at_once
        done = real(*given)
        at_once += done
        return done

    for seed in range(25):
        items = log(random.Random(f"{seed} {unruly}"), unruly)
        with monkeypatch.context() as patch:
            patch.setattr(occupancy.OccupancyOperator, "_file_at_once", counting)
            together = outcome(sense(**changes), items)
        with monkeypatch.context() as patch:
            patch.setattr(occupancy, "MANY", 1 << 30)
            one_by_one = outcome(sense(**changes), items)
        assert together == one_by_one
    assert at_once > 30 or "keep_presence" in changes


def test_columns_are_filed_as_rows_are() -> None:
    items = log(random.Random(1), 0.3)
    columns = [
        ObservationBatch(each.site, each.source, each.session, each.sequence, Columns.of(each.rows))
        if isinstance(each, ObservationBatch)
        else each
        for each in items
    ]
    assert outcome(sense(), items) == outcome(sense(), columns)


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, TICK + 1)])
def test_a_batch_with_one_row_of_another_window_or_day_is_filed_row_by_row(first: int, last: int) -> None:
    stage, day = sense(ahead=9 * MINUTE), PrivacyDay(1, START, START + TICK)
    state = stage.initial()
    for source in ("one", "two"):
        stage.step(state, Heartbeat("dbh", source, 1, START, START))
    times = sorted([START + first, *(START + 5 + n for n in range(20)), START + last])
    batch = ObservationBatch("dbh", "one", 1, 0, tuple(Row(f"{n:016x}", "ap-1", t) for n, t in enumerate(times)))
    stage.step(state, batch)
    held = {tick: len(entries) for tick, entries in state.pending.items()}
    assert sum(held.values()) == len(times)
    assert len(held) == 2
    assert not stage._refusal(state, START + 5, day)
