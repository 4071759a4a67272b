"""What a receiver must report of a trap schedule, worked out without one: every datagram has one fate."""

from __future__ import annotations

from connectors.simulation.faults import Kind
from connectors.simulation.traps import TrapSchedule
from connectors.snmp.admission import BAD_COMMUNITY, UNKNOWN_SOURCE
from connectors.snmp.ingest import COLLAPSE, COLLAPSED, TICK_OF_UPTIME, UNKNOWN_ACCESS_POINT
from stream.errors import UsageError
from stream.records import DAY

ACCEPTED = "accepted"
ASSOCIATIONS = (Kind.ASSOCIATE, Kind.ASSOCIATE_STATISTICS, Kind.RUN_STATE)


def expected_fates(schedule: TrapSchedule) -> dict[str, int]:
    """Return how many datagrams end as ``accepted`` and under each reason for a drop; they add up to all.

    For a receiver on the up-time clock, with names that change each UTC day, that lists every controller but
    the flooding one, and that gets all datagrams in the schedule's order.

    Raises:
        UsageError: the schedule has a reboot, after which up-times say nothing about time.
    """
    if schedule.boots.any():
        raise UsageError("faults: a schedule with a reboot has no expected fates on the up-time clock")
    counts = schedule.counts
    fates = {
        UNKNOWN_SOURCE: counts["flood"],
        BAD_COMMUNITY: counts["wrong_community"],
        UNKNOWN_ACCESS_POINT: counts["unknown_ap"],
        COLLAPSED: _repeats(schedule),
    }
    return {ACCEPTED: len(schedule) - sum(fates.values()), **fates}


def _repeats(schedule: TrapSchedule) -> int:
    """Count associations less than 5 s from the device's last kept one in the same zone and UTC day."""
    traps, kept, repeats = schedule.traps, dict[int, tuple[int, int]](), 0
    times = schedule.simulation.start + schedule.uptimes * TICK_OF_UPTIME
    columns = (traps.kind.tolist(), traps.device.tolist(), traps.point.tolist(), times.tolist())
    for kind, device, point, time in zip(*columns, strict=True):
        if kind not in ASSOCIATIONS:
            continue
        where, since = kept.get(device, (-1, 0))
        if where == point and abs(time - since) < COLLAPSE and time // DAY == since // DAY:
            repeats += 1
        elif where < 0 or time >= since:
            kept[device] = (point, time)
    return repeats
