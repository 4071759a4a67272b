"""Names that live from when a device is first heard under them: counts by hand, and by the definition row by row."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.errors import UsageError
from stream.pseudonyms.rotation import Sightings, counts_under_names
from stream.records import MINUTE, SECOND, Micros

V = 10 * MINUTE
GONE = -1
TICKS = np.arange(1, 13, dtype=np.int64) * 5 * MINUTE


def seen(*rows: tuple[int, int, float]) -> Sightings:
    """Return rows of device, zone and minute."""
    device, zone, minute = zip(*rows, strict=True)
    times = np.array([round(each * MINUTE) for each in minute], dtype=np.int64)
    return Sightings(times, np.array(device, dtype=np.int64), np.array(zone, dtype=np.int64))


def counted(rows: Sightings, ttl: Micros | None, zones: int) -> NDArray[np.int64]:
    return counts_under_names(rows, TICKS, zones, V, ttl, "first")


def zone_counts(rows: Sightings, ttl: Micros | None, zone: int = 0, zones: int = 2) -> list[int]:
    return list(counted(rows, ttl, zones)[:, zone].tolist())


STAYS = seen((7, 0, 0), (7, 0, 4), (7, 0, 8), (7, 0, 12))
"""Heard every four minutes, from minute 0 on; its last stay ends at 22."""


def test_sightings_since_an_instant_have_the_one_at_this_instant() -> None:
    rest = STAYS.since(8 * MINUTE)
    assert [column.tolist() for column in rest] == [[8 * MINUTE, 12 * MINUTE], [7, 7], [0, 0]]


def test_under_a_lasting_name_a_device_counts_once() -> None:
    assert zone_counts(STAYS, None) == [1, 1, 1, 1] + [0] * 8


def test_each_name_counts_for_the_whole_validity_of_its_last_observation() -> None:
    """Names of 5 minutes: 0 and 4; 8 and 12. At minute 10 both are valid, until 14 the first."""
    assert zone_counts(STAYS, 5 * MINUTE) == [1, 2, 1, 1] + [0] * 8


def test_names_that_change_at_each_observation_count_every_observation_of_ten_minutes() -> None:
    assert zone_counts(STAYS, SECOND) == [2, 2, 2, 1] + [0] * 8


def test_an_observation_exactly_as_old_as_a_name_may_be_still_bears_it() -> None:
    pair = seen((7, 0, 1), (7, 1, 4))
    assert zone_counts(pair, 3 * MINUTE) == [0] * 12
    assert zone_counts(pair, 3 * MINUTE - 1) == [1, 1] + [0] * 10


def test_who_moves_under_a_new_name_is_counted_in_both_places() -> None:
    moved = seen((7, 0, 1), (7, 1, 4))
    assert zone_counts(moved, MINUTE, zone=0) == [1, 1] + [0] * 10
    assert zone_counts(moved, MINUTE, zone=1) == [1, 1] + [0] * 10


def test_an_end_ends_the_stay_of_the_name_at_hand() -> None:
    assert zone_counts(seen((7, 0, 1), (7, GONE, 8)), None) == [1] + [0] * 11


def test_a_count_holds_the_tick_at_which_a_stay_begins_and_not_that_at_which_it_ends() -> None:
    assert zone_counts(seen((7, 0, 5)), None) == [1, 1] + [0] * 10


def test_of_equal_times_the_last_row_holds() -> None:
    both = seen((7, 0, 2), (7, 1, 2))
    assert (sum(zone_counts(both, None, 0)), sum(zone_counts(both, None, 1))) == (0, 2)


def test_rows_may_come_in_any_order() -> None:
    mixed = Sightings(*(column[::-1] for column in STAYS))
    assert zone_counts(mixed, 5 * MINUTE) == zone_counts(STAYS, 5 * MINUTE)


def test_nobody_is_no_trouble() -> None:
    empty = np.zeros(0, dtype=np.int64)
    assert not counted(Sightings(empty, empty, empty), SECOND, 3).any()


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_life_of_nothing_is_refused(ttl: int) -> None:
    with pytest.raises(UsageError, match="life of a name must be above 0"):
        counted(STAYS, ttl, 1)


def _by_definition(rows: Sightings, ttl: Micros, zones: int) -> NDArray[np.int64]:
    """Count names one by one: each is (device, instant of its first observation)."""
    last: dict[tuple[int, Micros], list[tuple[Micros, int]]] = defaultdict(list)
    born: dict[int, Micros] = {}
    for row in np.argsort(rows.time, kind="stable").tolist():
        time, device, zone = (int(column[row]) for column in rows)
        if time - born.get(device, -(10**18)) > ttl:
            born[device] = time
        last[device, born[device]].append((time, zone))
    counts = np.zeros((len(TICKS), zones), dtype=np.int64)
    for received in last.values():
        for place, tick in enumerate(TICKS.tolist()):
            until = [each for each in received if each[0] <= tick]
            if until and tick < until[-1][0] + V and until[-1][1] != GONE:
                counts[place, until[-1][1]] += 1
    return counts


@pytest.mark.parametrize("ttl", [1, SECOND, 90 * SECOND, 4 * MINUTE, 17 * MINUTE, 10**12])
def test_counts_are_those_of_the_definition(ttl: Micros) -> None:
    generator = np.random.default_rng(3)
    times = generator.integers(0, 60 * 12, 300) * 5 * SECOND
    rows = Sightings(times, generator.integers(0, 9, 300), generator.integers(-1, 3, 300))
    assert (counted(rows, ttl, 3) == _by_definition(rows, ttl, 3)).all()
