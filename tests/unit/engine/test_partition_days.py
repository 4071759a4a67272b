"""Privacy-day counters of a partition: what they survive, what ends them, and what is quarantined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from stream.encoding import encode_message
from stream.engine.outputs import OutputRecord
from stream.engine.partition import PartitionEngine
from stream.records import MINUTE, Heartbeat, Micros, ObservationBatch
from stream.release.validation import Policy
from stream.schemas import QUARANTINE
from stream.sensing.contribution import DayCounter
from tests.support.day_policies import day_site
from tests.support.small_building import SITE, building, days_of, laboratory, messages, people

DAILY = day_site("1h", residents="ignore")
PLAIN = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
epsilon = { board = "1" }
"""


def policy(site: str = DAILY, releases: str = PLAIN, **changes: Any) -> Policy:
    return building(site=site, releases=releases, **changes)


POLICY = policy()
ITEMS = list(messages(people(hours=30)[:1500], POLICY))
LOG = [encode_message(item) for item in ITEMS]
AHEAD_AT_15_MIN: Micros = 15 * MINUTE
"""How far beyond the watermark an observation may lie at a site with this tick."""
CUT = len(LOG) * 2 // 3
"""In the middle of a day."""


def fed(partition: PartitionEngine, first: int, last: int = len(LOG)) -> list[OutputRecord]:
    return [out for offset in range(first, last) for out in partition.process(offset, None, LOG[offset])]


def tally(partition: PartitionEngine) -> DayCounter:
    found = partition.sites.sensing()[SITE].tally
    assert found is not None
    return found


def at_the_cut() -> PartitionEngine:
    partition = PartitionEngine(POLICY, laboratory())
    fed(partition, 0, CUT)
    assert len(tally(partition).counted) > 10
    return partition


def restored(partition: PartitionEngine, wanted: Policy) -> PartitionEngine:
    other = PartitionEngine(wanted, laboratory(), accept_policy=True)
    assert other.restore(partition.snapshot(CUT, 0)) == CUT
    return other


def test_a_takeover_goes_on_with_the_counters_of_the_day() -> None:
    straight = PartitionEngine(POLICY, laboratory())
    fed(straight, 0)
    taken = restored(at_the_cut(), POLICY)
    fed(taken, CUT)
    assert tally(taken) == tally(straight)
    assert max(tally(taken).counted.values()) == 4


@pytest.mark.parametrize(
    "changed",
    [{"releases": PLAIN.replace('"1"', '"2"')}, {"site": f"{DAILY}\nmax_devices = 500"}],
    ids=["epsilon", "max_devices"],
)
def test_a_policy_that_changes_something_else_goes_on_with_them(changed: dict[str, str]) -> None:
    before = at_the_cut()
    assert tally(restored(before, policy(**changed))) == tally(before)


@pytest.mark.parametrize(
    "changed",
    [{"site": DAILY.replace("1h", "2h")}, {"site": DAILY.replace("ignore", "count")}, {"tick": "5min"}],
    ids=["contribution", "residents", "tick"],
)
def test_a_policy_that_changes_what_is_counted_waits_for_the_next_day(changed: dict[str, str]) -> None:
    before = at_the_cut()
    day, after = tally(before).day, tally(restored(before, policy(**changed)))
    assert day is not None
    assert (after.counted, after.residents, after.resumes) == ({}, {}, day.end)


@pytest.mark.parametrize("before", [None, DAILY.replace("04:00", "05:00")], ids=["added", "changed"])
@pytest.mark.parametrize("heard", [0, 1, 40])
def test_another_day_counts_from_a_time_that_the_clock_alone_decides(before: str | None, heard: int) -> None:
    """Whoever was seen, and when: nothing that is held may be later than the watermark and ``AHEAD``."""
    old, state = policy("" if before is None else before), _without_the_latest(heard)
    partition = PartitionEngine(old, laboratory(), accept_policy=True)
    partition.restore(state(old))
    mark, previous = partition.sites.watermarks()[SITE], partition.sites.sensing()[SITE].tally
    assert mark is not None
    over = mark if previous is None or previous.day is None else previous.day.end
    assert tally(restored(partition, POLICY)).resumes == max(mark + AHEAD_AT_15_MIN, over)


def _without_the_latest(rows: int) -> Callable[[Policy], bytes]:
    """Return what makes the state at the cut of a site that did not hear its last observations, or none at all."""

    def state(old: Policy) -> bytes:
        days, partition = days_of(old), PartitionEngine(old, laboratory())
        for offset, item in enumerate(ITEMS[:CUT]):
            message: ObservationBatch | Heartbeat = item
            if isinstance(item, ObservationBatch):
                if not rows or (rows == 1 and offset > CUT - 100):
                    continue
                message = replace(item, epoch=None if days is None else days.at(item.rows[0].time))
            partition.process(offset, None, encode_message(message))
        return partition.snapshot(CUT, 0)

    return state


def test_what_was_heard_before_a_site_had_a_watermark_is_let_go_under_other_names() -> None:
    old, first = (
        policy(""),
        ITEMS[: ITEMS.index(next(each for each in ITEMS if isinstance(each, ObservationBatch))) + 1],
    )
    partition = PartitionEngine(old, laboratory())
    for offset, item in enumerate(each for each in first if isinstance(each, ObservationBatch)):
        partition.process(offset, None, encode_message(replace(item, epoch=None)))
    assert len(partition.sites.sensing()[SITE].known_devices) > 0
    after = restored(partition, POLICY).sites.sensing()[SITE]
    assert (after.known_devices, after.tally and after.tally.resumes) == (set(), None)


def test_a_loss_waits_for_the_next_day() -> None:
    partition = at_the_cut()
    day = tally(partition).day
    assert day is not None
    partition.resume_after_loss(CUT + 5)
    assert (tally(partition).counted, tally(partition).resumes) == ({}, day.end)


def test_a_site_that_a_policy_brings_back_goes_on_with_its_counters() -> None:
    before = at_the_cut()
    elsewhere = building(sites=("ics",), releases=PLAIN)
    back = restored(restored(before, elsewhere), POLICY)
    assert tally(back) == tally(before)


def test_a_batch_of_another_epoch_goes_to_quarantine_without_what_it_says() -> None:
    days = days_of(POLICY)
    place, batch = next((n, each) for n, each in enumerate(ITEMS) if isinstance(each, ObservationBatch))
    assert days is not None
    assert batch.epoch == days.at(batch.rows[0].time)
    partition = PartitionEngine(POLICY, laboratory())
    fed(partition, 0, place)
    for epoch in (None, batch.epoch._replace(start=batch.epoch.start - 5 * MINUTE)):
        [out] = partition.process(place, None, encode_message(replace(batch, epoch=epoch)))
        assert out.topic == QUARANTINE
        record = orjson.loads(out.value)
        assert (record["reason"], record["place"]) == ("epoch", "epoch")
        assert batch.rows[0].device.encode() not in out.value
    assert partition.sites.sensing()[SITE].counters["accepted"] == 0
