"""Windows remembered as spells: the same sums as a list of windows, whatever came and in which order."""

import random

import pytest

from stream.accounting.charge_runs import ChargeRun, add_window, runs_after, windows_within


def test_windows_at_one_distance_and_price_are_one_spell() -> None:
    spells: list[ChargeRun[int]] = []
    for end in range(5, 505, 5):
        add_window(spells, end, 7)
    assert spells == [ChargeRun(5, 5, 100, 7)]
    assert runs_after(spells, 490) == [ChargeRun(495, 5, 2, 7)]
    assert runs_after(spells, 500) == []


@pytest.mark.parametrize("seed", range(20))
def test_spells_hold_what_a_list_of_windows_would(seed: int) -> None:
    """Gaps, other prices, other ticks, late windows and second attempts at random."""
    rng = random.Random(seed)
    spells: list[ChargeRun[int]] = []
    plain: list[tuple[int, int]] = []
    end, step = 100, 5
    for _ in range(200):
        step = rng.choice((1, 5, 15)) if rng.random() < 0.05 else step
        end += step * (1 if rng.random() < 0.8 else rng.randrange(4))
        at = end if rng.random() < 0.9 else rng.randrange(1, end)
        nano = 3 if rng.random() < 0.9 else rng.randrange(1, 4)
        add_window(spells, at, nano)
        plain.append((at, nano))
        if rng.random() < 0.05:
            until = end - rng.randrange(300)
            spells, plain = runs_after(spells, until), [row for row in plain if row[0] > until]
        first, last = sorted((rng.randrange(end), rng.randrange(end)))
        assert sorted(windows_within(spells, first, last)) == sorted(row for row in plain if first <= row[0] <= last)
