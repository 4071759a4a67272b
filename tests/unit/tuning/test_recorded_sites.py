"""A recording as a search reads it, and the attackers who read what a candidate releases of it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from connectors.lab.tuning import AttackUtility, RecordedSite, recorded_site
from stream.errors import UsageError
from stream.lab.attackers.beliefs import OPEN_KINDS
from stream.lab.tuning.bench import Bench, exact_release
from stream.lab.tuning.utility import Released, World, world_of
from stream.pseudonyms.rotation import Sightings
from stream.records import DAY, MINUTE, OccupancyWindow
from tests.support.small_building import SITE, ZONES, building, people, write_csv

MIDNIGHT = 1_772_524_800_000_000
"""2026-03-03, at the site."""
NOBODY = Sightings(*np.zeros((3, 0), dtype=np.int64))


def window(end: int, counts: tuple[int, ...], bounded: tuple[int, ...] | None = None) -> OccupancyWindow:
    return OccupancyWindow(SITE, end, counts, Fraction(1), bounded=bounded)


def test_a_site_has_the_zones_and_windows_of_its_policy() -> None:
    recorded = RecordedSite(SITE, building(), (), NOBODY)
    assert recorded.kinds == tuple(ZONES.values())
    assert (recorded.site.name, recorded.site.zones, recorded.site.tick) == (SITE, tuple(ZONES), 15 * MINUTE)


def test_a_day_that_is_paid_for_has_the_counts_that_are_bounded_by_it() -> None:
    first, second, fewer = (3, 1, 0, 0, 0, 0), (4, 1, 0, 0, 0, 0), (2, 1, 0, 0, 0, 0)
    windows = (window(MIDNIGHT, first), window(MIDNIGHT + MINUTE, second, fewer))
    recorded = RecordedSite(SITE, building(), windows, NOBODY)
    times, counts = recorded.counts(bounded=False)
    assert (times.tolist(), counts.tolist()) == ([MIDNIGHT, MIDNIGHT + MINUTE], [[*first], [*second]])
    times, counts = recorded.counts(bounded=True)
    assert (times.tolist(), counts.tolist()) == ([MIDNIGHT + MINUTE], [[*fewer]])
    with pytest.raises(UsageError, match="must have counts in at least one window"):
        RecordedSite(SITE, building(), windows[:1], NOBODY).counts(bounded=True)


def test_only_the_rows_of_the_site_are_read(tmp_path: Path) -> None:
    seen = people(hours=14, devices=4, sites=2)
    here = [row for row in seen if row.site == SITE]
    assert 0 < len(here) < len(seen)
    policy = building(sites=(SITE, f"{SITE}1"))
    found = recorded_site(policy, SITE, write_csv(tmp_path / "seen.csv", seen)).sightings
    assert found.time.tolist() == [row.time for row in here]
    assert len(set(found.device.tolist())) == len({row.device for row in here})


class Exact:
    """A mechanism without noise."""

    chance = False

    def release(self, world: World, place: int, run: int) -> Released:
        del place, run
        return exact_release(world.counts[world.released])


def test_attackers_read_the_end_of_each_ten_minutes_of_the_day() -> None:
    """At these ends a person is in each zone, else nobody; zones that an attacker sees into are not attacked."""
    policy, ends = building(tick="5min"), range(MIDNIGHT + 5 * MINUTE, MIDNIGHT + 2 * DAY + 1, 5 * MINUTE)
    counts = [(int((end - MIDNIGHT) % (10 * MINUTE) == 0),) * len(ZONES) for end in ends]
    recorded = RecordedSite(SITE, policy, tuple(map(window, ends, counts)), NOBODY)
    world = world_of(recorded.site, *recorded.counts(bounded=False), measured=1)
    bench: Bench = Exact()  # type: ignore[assignment]
    found = AttackUtility(recorded, world, bench).found(0, "all")
    assert found is not None
    closed = {name: sum(kind not in kinds for kind in ZONES.values()) for name, kinds in OPEN_KINDS.items()}
    assert {name: each["people"] for name, each in found.items()} == {name: n for name, n in closed.items() if n}
    alone = world_of(recorded.site, *recorded.counts(bounded=False), measured=2)
    assert AttackUtility(recorded, alone, bench).found(0, "all") is None
