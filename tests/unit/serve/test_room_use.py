"""Whether a room is empty or in use, from sums of noisy counts: exact against sums of all outcomes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from connectors.records.bands import NoiseDistribution
from connectors.records.room_use import CALLED, MOST_SURE, Assumptions, Use, least_windows, room_use
from tests.support.documents import ROOT

LAPLACE, WIDE = NoiseDistribution("laplace", 2.0), NoiseDistribution("laplace", 5.0)
GAUSSIAN = NoiseDistribution("gaussian", 3.0)
SUM = LAPLACE._replace(draws=3)
"""The noise of a place that is a sum of three."""
ASSUMED = Assumptions(empty_devices=1, used_devices=4, empty_share=0.2, used_share=0.1)
NARROW, NO_DEVICE = NoiseDistribution("gaussian", 1.0), Assumptions(0, 1, 0.1, 0.1)
"""Where an empty room holds none, one device more or less in a sum counts."""
REACH = 400


def densities(laws: list[NoiseDistribution]) -> dict[int, float]:
    """Return the law of a sum, by adding up all outcomes of one draw after the other."""
    away = np.abs(np.arange(-REACH, REACH + 1))
    found = np.ones(1)
    for law in laws:
        weights = np.exp(-away / law.scale if law.noise == "laplace" else -(away**2) / (2 * law.scale**2))
        for _ in range(law.draws):
            found = np.convolve(found, weights / weights.sum())
    return {at - len(found) // 2: float(density) for at, density in enumerate(found)}


@pytest.mark.parametrize(
    "laws", [[LAPLACE], [GAUSSIAN], [LAPLACE, LAPLACE], [LAPLACE, WIDE], [GAUSSIAN, LAPLACE], [SUM]]
)
def test_a_probability_is_that_of_the_two_least_favourable_counts(laws: list[NoiseDistribution]) -> None:
    n, known = len(laws), densities(laws)
    for total in range(n, 4 * n + 1):
        empty, used = known[total - n], known[total - 4 * n]
        found = room_use(total, laws, ASSUMED)
        assert found.empty == pytest.approx(0.2 * empty / (0.2 * empty + 0.8 * used), rel=1e-6)
        assert found.used == pytest.approx(0.1 * used / (0.1 * used + 0.9 * empty), rel=1e-6)


@pytest.mark.parametrize("law", [NoiseDistribution("laplace", 0.3), LAPLACE, WIDE, GAUSSIAN])
@pytest.mark.parametrize("windows", [1, 6, 48])
def test_the_more_devices_the_less_empty_and_the_more_in_use(law: NoiseDistribution, windows: int) -> None:
    """Also where densities are too small to be computed."""
    found = [room_use(total, [law] * windows, ASSUMED) for total in range(-10 * windows, 15 * windows)]
    assert all(a.empty >= b.empty - 1e-9 for a, b in pairwise(found))
    assert all(a.used <= b.used + 1e-9 for a, b in pairwise(found))
    assert max(use.empty for use in found) <= MOST_SURE
    assert max(use.used for use in found) <= MOST_SURE


def test_noise_without_bounds_yields_no_statement() -> None:
    assert room_use(0, [NoiseDistribution("laplace", 1e9)], ASSUMED) == Use(0.0, 0.0)
    assert least_windows(NoiseDistribution("laplace", 1e9), ASSUMED, 48) is None


def test_a_law_is_computed_on_a_grid_of_a_million_counts_at_most() -> None:
    assert room_use(0, [NoiseDistribution("laplace", 12_000.0)], ASSUMED) != Use(0.0, 0.0)
    assert room_use(0, [NoiseDistribution("laplace", 13_000.0)], ASSUMED) == Use(0.0, 0.0)


def test_the_less_noise_the_fewer_windows_are_needed() -> None:
    needed = [least_windows(NoiseDistribution("laplace", scale), ASSUMED, 48) for scale in (0.1, 1, 2, 4, 6)]
    assert needed == sorted(needed, key=lambda each: each or 99)
    assert needed[0] == 1
    assert least_windows(NoiseDistribution("laplace", 20), ASSUMED, 48) is None


@pytest.mark.parametrize(
    ("law", "assumed"), [(LAPLACE, ASSUMED), (WIDE, ASSUMED), (GAUSSIAN, ASSUMED), (NARROW, NO_DEVICE)]
)
def test_from_the_least_number_of_windows_on_both_statements_are_reached_and_before_it_not_both(
    law: NoiseDistribution, assumed: Assumptions
) -> None:
    needed = least_windows(law, assumed, 96)
    assert needed is not None
    both = assumed.empty_devices + assumed.used_devices
    for windows in range(1, 97):
        empty, used = (room_use(total * windows, [law] * windows, assumed) for total in (0, both))
        assert (min(empty.empty, used.used) >= CALLED) == (windows >= needed)


@pytest.mark.parametrize(("scale", "minutes"), [(1, 15), (4, 180)])
def test_the_document_says_how_many_minutes_of_counts_rooms_need(scale: int, minutes: int) -> None:
    needed = least_windows(NoiseDistribution("laplace", scale), Assumptions(), 48)
    assert needed == minutes // 5
    words = {15: "With noise of scale 1 (ε = 1 for a window) it takes 15 minutes", 180: "with scale 4 three hours"}
    assert words[minutes] in (ROOT / "docs" / "building.md").read_text()
