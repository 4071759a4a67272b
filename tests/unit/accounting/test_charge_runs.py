"""Windows remembered as runs: the same sums as a list of windows, whatever came and in which order."""

import random

import pytest

from stream.accounting.charge_runs import ChargeRun, add_window, runs_after, windows_within


def test_windows_at_one_distance_and_price_are_one_run() -> None:
    runs: list[ChargeRun[int]] = []
    for end in range(5, 505, 5):
        add_window(runs, end, 7)
    assert runs == [ChargeRun(5, 5, 100, 7)]
    assert runs_after(runs, 490) == [ChargeRun(495, 5, 2, 7)]
    assert runs_after(runs, 500) == []


@pytest.mark.parametrize("windows", [1, 2, 3, 20])
def test_a_run_is_cut_at_any_window(windows: int) -> None:
    run = ChargeRun(100, 5 if windows > 1 else 0, windows, 7)
    ends = range(100, 100 + 5 * windows, 5)
    for end in range(90, 105 + 5 * windows):
        passed = [each for each in ends if each <= end]
        assert run.through(end) == len(passed)
        rest = run.since(end)
        assert (0 if rest is None else rest.windows) == windows - len(passed)
        assert rest is None or (rest.first, rest.last, rest.charge) == (ends[len(passed)], ends[-1], 7)
    assert run.since(99) == run


def test_without_its_last_window_a_run_goes_on_as_if_that_had_not_been() -> None:
    runs: list[ChargeRun[int]] = []
    before: list[ChargeRun[int] | None] = [None]
    for end in range(100, 130, 5):
        add_window(runs, end, 7)
        assert runs[-1].without_last() == before[-1]
        before.append(runs[-1])


@pytest.mark.parametrize("seed", range(20))
def test_runs_hold_what_a_list_of_windows_would(seed: int) -> None:
    """Gaps, other prices, other ticks, late windows and second attempts at random."""
    rng = random.Random(seed)
    runs: list[ChargeRun[int]] = []
    plain: list[tuple[int, int]] = []
    end, step = 100, 5
    for _ in range(200):
        step = rng.choice((1, 5, 15)) if rng.random() < 0.05 else step
        end += step * (1 if rng.random() < 0.8 else rng.randrange(4))
        at = end if rng.random() < 0.9 else rng.randrange(1, end)
        nano = 3 if rng.random() < 0.9 else rng.randrange(1, 4)
        add_window(runs, at, nano)
        plain.append((at, nano))
        if rng.random() < 0.05:
            until = end - rng.randrange(300)
            runs, plain = runs_after(runs, until), [row for row in plain if row[0] > until]
        first, last = sorted((rng.randrange(end), rng.randrange(end)))
        assert sorted(windows_within(runs, first, last)) == sorted(row for row in plain if first <= row[0] <= last)
