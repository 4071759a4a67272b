"""The canary of a release that is paid by windows: where and when it is, and what else is the same."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from connectors.lab.attacks.membership import count_worlds
from connectors.lab.attacks.published import count_releases
from connectors.lab.attacks.recording import Day, RecordedSightings
from stream.pseudonyms.rotation import Sightings
from stream.records import MINUTE, OccupancyWindow
from stream.release.validation import Policy, load_policy
from tests.support.small_building import EVENING, SITE, policy_text

RELEASES = """
[[release]]
name = "plain"
query = "count"
mechanism = "laplace"
zones = { kind = "hall" }
epsilon = { public = "1" }

[[release]]
name = "any-three"
query = "count"
mechanism = "ba"
zones = { kind = "hall" }
w = 3
epsilon = { public = "1" }
"""
HALLS = ("a", "b", "c")


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(policy_text(RELEASES, head="[privacy]\nmax_factor = 1e30\n"))


def day_with(in_b: list[int]) -> Day:
    """Return a day with so many people in hall b, fewer in the other halls, and most in the lobby."""
    counts = np.array([(0, most, 1, 20, 0, 0) for most in in_b], dtype=np.int64)
    ticks = EVENING + 15 * MINUTE * np.arange(len(in_b))
    windows = [
        OccupancyWindow(SITE, end, tuple(row), Fraction(1))
        for end, row in zip(ticks.tolist(), counts.tolist(), strict=True)
    ]
    return Day("2026-03-02", windows, ticks, counts)


@pytest.mark.parametrize(
    ("release", "in_b", "shown", "canary"),
    [
        ("plain", [3, 3, 3, 3, 7, 3, 3, 3, 3, 3], slice(2, 7), slice(4, 5)),
        ("plain", [7, 3, 3, 3, 3, 3, 3, 3, 3, 3], slice(0, 3), slice(0, 1)),
        ("any-three", [3, 3, 3, 3, 7, 3, 3, 3, 3, 3], slice(2, 9), slice(4, 7)),
        ("any-three", [3, 3, 3, 3, 3, 3, 3, 3, 3, 7], slice(5, 10), slice(7, 10)),
    ],
)
def test_the_canary_is_in_the_fullest_covered_zone_from_its_peak_on_or_up_to_the_end_of_the_day(
    policy: Policy, release: str, in_b: list[int], shown: slice, canary: slice
) -> None:
    """It stays for as many windows as one epsilon pays for; two windows before and after are the same in both."""
    day, nobody = day_with(in_b), Sightings(*np.zeros((3, 0), dtype=np.int64))
    recorded = RecordedSightings(policy.site[SITE], SITE, day.windows, nobody, nobody, [])
    (wanted,) = (each for each in count_releases(policy, SITE) if each.name == release)
    both = count_worlds(policy, recorded, day, wanted)
    more = [replace(window, counts=(0, window.counts[1] + 1, 1, 20, 0, 0)) for window in day.windows[canary]]
    assert HALLS[both.zone] == "b"
    assert both.away == day.windows[shown]
    assert both.there == [*day.windows[shown.start : canary.start], *more, *day.windows[canary.stop : shown.stop]]
