"""The truth of a simulated building, independent of product code: presence, and the fate of each trap."""

from __future__ import annotations

import numpy as np

from connectors.lab.simulation.faults import Kind
from connectors.lab.simulation.traps import TrapSchedule
from connectors.sources.ingest.ingest import COLLAPSE, COLLAPSED, TICK_OF_UPTIME, UNKNOWN_ACCESS_POINT
from connectors.sources.ingest.source_filter import UNKNOWN_SOURCE
from connectors.sources.snmp.drop_reasons import BAD_COMMUNITY
from stream.errors import UsageError
from stream.lab.simulator.events import Simulation
from stream.lab.simulator.radio import Ints
from stream.lab.simulator.visits import Visits
from stream.records import DAY

ACCEPTED = "accepted"
ASSOCIATIONS = (Kind.ASSOCIATE, Kind.ASSOCIATE_STATISTICS, Kind.RUN_STATE)


def occupancy(visits: Visits, ticks: Ints, zones: int) -> Ints:
    """Return the devices truly present, (ticks, zones): visits with start <= tick < end.

    ``ticks`` ascend; visits of one device must not overlap, as ``settle`` leaves them.
    """
    change = np.zeros((len(ticks) + 1, zones), dtype=np.int64)
    np.add.at(change, (np.searchsorted(ticks, visits.start), visits.zone), 1)
    np.add.at(change, (np.searchsorted(ticks, visits.end), visits.zone), -1)
    return np.cumsum(change, axis=0)[:-1]


def true_occupancy(run: Simulation, ticks: Ints) -> Ints:
    """Return the distinct devices truly present, (ticks, zones): start <= tick < end. Ticks ascend."""
    return occupancy(run.visits, ticks, len(run.building.zones))


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
