"""One heartbeat that closes many windows is processed in steps; the append time bounds what a message may claim."""

from __future__ import annotations

from stream.encoding import encode_message
from stream.engine.partition import PartitionEngine
from stream.engine.snapshot import open_snapshot
from stream.records import DAY, MINUTE, Heartbeat
from stream.release.validation import Policy
from stream.schemas import AUDIT, QUARANTINE, parse_record
from stream.sensing.occupancy import WINDOWS_AT_ONCE
from tests.support.small_building import PLAIN, SITE, SOURCES, building, laboratory, messages, people

POLICY = building()
CHEAP = building(releases=PLAIN)
"""For what does not depend on what is released."""
TICK = POLICY.site[SITE].tick
SEEN = people()[:300]
BEFORE = [encode_message(item) for item in messages(SEEN, POLICY)][:40]
SESSION = 1


def begun(policy: Policy = CHEAP) -> tuple[PartitionEngine, int]:
    """Return a partition in the middle of a day and its watermark."""
    partition = PartitionEngine(policy, laboratory())
    for offset, value in enumerate(BEFORE):
        partition.process(offset, None, value)
    reached = partition.sites.watermarks()[SITE]
    assert reached is not None
    return partition, reached


def test_a_heartbeat_after_a_long_outage_is_folded_in_by_small_steps() -> None:
    partition, reached = begun()
    value = encode_message(Heartbeat(SITE, SOURCES[0], SESSION, reached + 2 * DAY, 0))
    steps = list(partition.process_in_steps(40, None, value, None))
    windows = [len({out.timestamp_ms for out in part if out.topic == AUDIT}) for part, _ in steps]
    assert sum(windows) >= 2 * DAY // TICK - 1
    assert max(windows) <= WINDOWS_AT_ONCE
    assert [last for _, last in steps] == [False] * (len(steps) - 1) + [True]


def test_after_any_step_a_snapshot_goes_on_where_it_was_made() -> None:
    straight, reached = begun(POLICY)
    value = encode_message(Heartbeat(SITE, SOURCES[0], SESSION, reached + DAY // 2, 0))
    wanted = straight.process(40, None, value)

    partition, _ = begun(POLICY)
    made = []
    while True:
        part, last = next(iter(partition.process_in_steps(40, None, value, None)))
        made += part
        if last:
            break
        again = PartitionEngine(POLICY, laboratory())
        assert again.restore(partition.snapshot(40, 0)) == 40
        partition = again
    assert made == wanted
    assert partition.snapshot(41, 0) == straight.snapshot(41, 0)


def test_a_heartbeat_35_days_ahead_of_its_stamp_closes_nothing_and_goes_to_quarantine_at_every_replay() -> None:
    partition, reached = begun()
    value = encode_message(Heartbeat(SITE, SOURCES[0], SESSION, reached + 35 * DAY, 0))
    _, sites = open_snapshot(partition.snapshot(40, 0))
    made = [partition.process(40, None, value, reached) for _ in range(2)]
    assert made[0] == made[1]
    [out] = made[0]
    assert out.topic == QUARANTINE
    record = parse_record(out.value)
    assert (record["reason"], record["place"]) == ("ahead", "watermark")
    assert str(reached + 35 * DAY) not in out.value.decode()
    assert open_snapshot(partition.snapshot(40, 0))[1] == sites


def test_a_heartbeat_within_five_minutes_of_its_stamp_counts() -> None:
    partition, reached = begun()
    for source in SOURCES:
        value = encode_message(Heartbeat(SITE, source, SESSION, reached + DAY + 5 * MINUTE, 0))
        partition.process(40, None, value, reached + DAY)
    assert partition.sites.watermarks()[SITE] == reached + DAY + 5 * MINUTE
