"""Counts under changing names: those of devices if names never change, larger ones if they change often."""

from __future__ import annotations

import numpy as np
import pytest

from stream.pipeline import Options, build_stages
from stream.pseudonyms.rotation import Sightings, counts_under_names
from stream.records import MINUTE, SECOND, ObservationBatch, OccupancyWindow
from stream.release.validation import load_policy
from tests.support.small_building import SITE, ZONES, laboratory, messages, people, policy_text

VALIDITY = 10 * MINUTE


def seen(*rows: tuple[int, int, int]) -> Sightings:
    """Return sightings of minute, device and zone."""
    time, device, zone = np.array(rows).T
    return Sightings(time * MINUTE, device, zone)


def counted(sightings: Sightings, at: list[int], life: int | None, zones: int = 2) -> list[list[int]]:
    found: list[list[int]] = counts_under_names(sightings, np.array(at) * MINUTE, zones, VALIDITY, life).tolist()
    return found


def test_a_device_is_where_it_was_seen_last() -> None:
    assert counted(seen((0, 1, 0), (3, 1, 1), (4, 2, 1)), [2, 3, 5, 12, 13], None) == [
        [1, 0], [0, 1], [0, 2], [0, 2], [0, 1]
    ]  # fmt: skip


def test_a_stay_elsewhere_within_one_tick_ends_what_was_before_it_there() -> None:
    """Ticks at 5, 10 and 15; the device is in zone 0, then 1, then 0 again, all before the first of them."""
    assert counted(seen((1, 1, 0), (2, 1, 1), (4, 1, 0)), [5, 10, 15], None) == [[1, 0], [1, 0], [0, 0]]
    assert counted(seen((1, 1, 0), (4, 1, 1)), [5, 10, 15], None) == [[0, 1], [0, 1], [0, 0]]


def test_a_new_name_counts_beside_the_old_one_until_that_expires() -> None:
    sightings = seen((0, 1, 0), (3, 1, 1))
    assert counted(sightings, [5, 9, 10, 12], 2 * MINUTE) == [[1, 1], [1, 1], [0, 1], [0, 1]]
    assert counted(sightings, [5, 9, 10, 12], 4 * MINUTE) == [[0, 1]] * 4


def test_who_leaves_is_not_counted() -> None:
    assert counted(seen((0, 1, 0), (3, 1, -1)), [2, 4], None) == [[1, 0], [0, 0]]


def test_rows_may_come_in_any_order_and_of_one_time_the_last_wins() -> None:
    assert counted(seen((3, 1, 1), (0, 1, 0), (3, 1, 0)), [1, 4], None) == [[1, 0], [1, 0]]


@pytest.mark.parametrize("seed", [1, 2])
def test_with_names_that_never_change_it_is_what_the_engine_counts(seed: int) -> None:
    policy = load_policy(policy_text(tick="5min"))
    sense = build_stages(policy, SITE, laboratory(), Options(), keep_presence=False).occupancy
    state, windows, rows = sense.initial(), [], []
    zone_of = {zone.radios[0]: number for number, zone in enumerate(policy.site[SITE].zones)}
    for message in messages(people(seed, hours=14), policy):
        if isinstance(message, ObservationBatch):
            rows += list(message.rows)
        state, out = sense.step(state, message)
        windows += [each for each in out if isinstance(each, OccupancyWindow)]
    names = {name: number for number, name in enumerate(sorted({row.device for row in rows}))}
    columns = [(row.time, names[row.device], zone_of[row.access_point or ""]) for row in rows]
    time, device, zone = np.array(columns).T
    ticks = np.array([window.window_end for window in windows])
    found = counts_under_names(Sightings(time, device, zone), ticks, len(ZONES), VALIDITY, None)
    assert found.tolist() == [list(window.counts) for window in windows]
    assert found.sum() > 500
    often = counts_under_names(Sightings(time, device, zone), ticks, len(ZONES), VALIDITY, SECOND)
    assert often.sum() > found.sum()
