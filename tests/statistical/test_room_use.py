"""Of rooms that are said to be empty, or in use, with probability p, a share p is: on simulated bookings with known
counts, at the least favourable shares and with other ones.

Each check simulates rooms until a fixed number of statements has been made, so that its false-alarm probability does
not depend on how rare statements are. If the promise holds, the number of right ones is at least binomial with p; it
is below the bound with probability 1e-6 at most. The noise is drawn by the test, not by the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from connectors.records.bands import NoiseDistribution
from connectors.records.room_use import CALLED, Assumptions, room_use

Ints = NDArray[np.int64]
FALSE_ALARM = 1e-6
ASSUMED = Assumptions(empty_devices=1, used_devices=3, empty_share=0.1, used_share=0.05)
LAPLACE, GAUSSIAN = NoiseDistribution("laplace", 2.0), NoiseDistribution("gaussian", 3.0)
STATEMENTS = 600
ROOMS_AT_ONCE, MOST_ROOMS = 4000, 400_000


def drawn(random: np.random.Generator, law: NoiseDistribution, size: tuple[int, int]) -> Ints:
    if law.noise == "laplace":
        p = 1 - np.exp(-1 / law.scale)
        return np.asarray(random.geometric(p, size) - random.geometric(p, size), np.int64)
    reach = np.arange(-60, 61)
    weights = np.exp(-(reach**2) / (2 * law.scale**2))
    chosen: Any = random.choice(reach, size, p=weights / weights.sum())
    return np.asarray(chosen, np.int64)


def least_favourable(random: np.random.Generator, rooms: int, windows: int, *, empty: bool) -> Ints:
    """Return as many devices as an empty room may have, or as few as one in use: each window alike."""
    del random
    return np.full((rooms, windows), ASSUMED.empty_devices if empty else ASSUMED.used_devices, np.int64)


def uneven(random: np.random.Generator, rooms: int, windows: int, *, empty: bool) -> Ints:
    """Return counts that are unlike from window to window: people come late, leave early, or pass through."""
    if empty:
        return np.asarray(random.permuted(np.eye(rooms, windows, dtype=np.int64) * windows, axis=1), np.int64)
    present = np.asarray(random.integers(3, 12, (rooms, 1)) * np.ones((1, windows)), np.int64)
    late = random.integers(0, windows // 4, rooms)
    present[np.arange(windows)[None, :] < late[:, None]] = 0
    lacking = np.maximum(0, 3 * windows - present.sum(axis=1, keepdims=True))
    return np.asarray(present + -(-lacking // windows), np.int64)


Counts = Callable[..., Ints]


def share_right(law: NoiseDistribution, windows: int, counts: Counts, share: float, *, said: str) -> tuple[int, int]:
    """Return how many statements were made, and how many are right."""
    random = np.random.default_rng(20)
    made = right = 0
    known: dict[int, bool] = {}
    for _ in range(MOST_ROOMS // ROOMS_AT_ONCE):
        empty = random.random(ROOMS_AT_ONCE) < (share if said == "empty" else 1 - share)
        true = np.where(
            empty[:, None], counts(random, ROOMS_AT_ONCE, windows, empty=True),
            counts(random, ROOMS_AT_ONCE, windows, empty=False),
        )  # fmt: skip
        totals = (true + drawn(random, law, true.shape)).sum(axis=1)
        for total in set(totals.tolist()) - set(known):
            use: Any = room_use(total, [law] * windows, ASSUMED)
            known[total] = getattr(use, said) >= CALLED
        called = np.array([known[total] for total in totals.tolist()])
        made += int(called.sum())
        right += int((called & (empty if said == "empty" else ~empty)).sum())
        if made >= STATEMENTS:
            break
    return made, right


@pytest.mark.parametrize("said", ["empty", "used"])
@pytest.mark.parametrize(("law", "windows"), [(LAPLACE, 10), (LAPLACE, 16), (GAUSSIAN, 10)])
@pytest.mark.parametrize("counts", [least_favourable, uneven])
def test_statements_are_right_as_often_as_they_say(
    law: NoiseDistribution, windows: int, counts: Counts, said: str
) -> None:
    share = ASSUMED.empty_share if said == "empty" else ASSUMED.used_share
    made, right = share_right(law, windows, counts, share, said=said)
    assert made >= STATEMENTS  # it is said of enough rooms for the next line to mean something
    assert right >= binom.ppf(FALSE_ALARM, made, CALLED)


@pytest.mark.parametrize("said", ["empty", "used"])
def test_the_check_notices_shares_that_are_far_below_the_assumed_ones(said: str) -> None:
    """So it can fail: with a tenth of the share, statements are wrong too often."""
    share = (ASSUMED.empty_share if said == "empty" else ASSUMED.used_share) / 10
    made, right = share_right(LAPLACE, 10, least_favourable, share, said=said)
    assert right < binom.ppf(FALSE_ALARM, made, CALLED)


@pytest.mark.parametrize(("said", "devices"), [("empty", 0), ("used", 4)])
def test_statements_are_made_of_every_other_room_that_is_clearly_empty_or_in_use(said: str, devices: int) -> None:
    """The number of windows that a room needs (``least_windows``) is one from which on this holds."""
    random = np.random.default_rng(3)
    totals = (devices + drawn(random, LAPLACE, (2000, 10))).sum(axis=1)
    called = sum(getattr(room_use(int(total), [LAPLACE] * 10, ASSUMED), said) >= CALLED for total in totals)
    assert called >= binom.ppf(FALSE_ALARM, 2000, 0.5)


def called_by_then(law: NoiseDistribution, devices: int, limits: list[int]) -> float:
    """Return how probably a room with so many devices in each window is called empty after some window.

    Exact: the law of the sum, without the part that was called before, window by window.
    """
    reach = np.arange(-80, 81)
    one = np.exp(-abs(reach) / law.scale if law.noise == "laplace" else -(reach**2) / (2 * law.scale**2))
    one /= one.sum()
    sums, least, called = np.ones(1), 0, 0.0
    for limit in limits:
        sums, least = np.convolve(sums, one), least + devices - 80
        below = max(0, min(len(sums), limit + 1 - least))
        called += sums[:below].sum()
        sums[:below] = 0
    return float(called)


@pytest.mark.parametrize("law", [NoiseDistribution("laplace", 1.0), LAPLACE, GAUSSIAN])
def test_a_running_booking_may_be_looked_at_after_each_window(law: NoiseDistribution) -> None:
    """Also of rooms that are called at any of 36 looks, the share is right: at the least favourable counts. A room that
    stays empty throughout has no more devices, one in use no fewer, so each is called at least, or at most, as often.
    """
    limits = []
    for windows in range(1, 37):
        low, high = -1000, 3 * windows
        while high - low > 1:
            middle = (low + high) // 2
            empty = room_use(middle, [law] * windows, ASSUMED).empty >= CALLED
            low, high = (middle, high) if empty else (low, middle)
        limits.append(low)
    right = ASSUMED.empty_share * called_by_then(law, ASSUMED.empty_devices, limits)
    wrong = (1 - ASSUMED.empty_share) * called_by_then(law, ASSUMED.used_devices, limits)
    assert right / (right + wrong) >= CALLED
