"""Buffered rows of a window are the same, whether entries have been made of them or not."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from stream.sensing import state
from stream.sensing.presence import END
from stream.sensing.state import PendingWindow, Present, TickRun


def runs(chance: random.Random, number: int) -> list[TickRun]:
    """Return batches of a few devices, each later than the one before."""
    begins = sorted(chance.sample(range(0, 10_000, 100), number + 1))
    return [
        TickRun(
            ("one", 1, place),
            [f"{chance.randrange(6):016x}" for _ in range(5)],
            [chance.choice([END, 0, 1, 2]) for _ in range(5)],
            sorted(chance.randrange(begin + 1, end) for _ in range(5)),
        )
        for place, (begin, end) in enumerate(pairwise(begins))
    ]


@pytest.mark.parametrize("looked_at", [set(), {0}, {1, 3}, {0, 1, 2, 3, 4}])
def test_who_is_present_at_the_end_is_the_same_whenever_entries_were_asked_for(looked_at: set[int]) -> None:
    for seed in range(20):
        chance = random.Random(seed)
        one, other = PendingWindow(0), PendingWindow(0)
        before: Present = {f"{device:016x}": (chance.randrange(3), -1) for device in range(4)}
        batches = runs(chance, 5)
        for place, run in enumerate(batches):
            one.append(run)
            other.merge(run)
            assert not looked_at & {place} or one == other
        assert set(one.devices()) == set(other.devices()) == {device for run in batches for device in run.devices}
        first, second = dict(before), dict(before)
        one.move_into(first)
        other.move_into(second)
        assert first == second
        assert END not in {zone for zone, _ in first.values()}
        assert len(one) == len(other)
        assert one == other


def test_of_two_entries_of_a_device_the_later_stays_whichever_came_first() -> None:
    early, late = (TickRun(("one", 1, place), ["d"], [place], [100 + place]) for place in (0, 1))
    for order in [(early, late), (late, early)]:
        held = PendingWindow(0)
        for run in order:
            held.merge(run)
        assert held.entries == {"d": (101, ("one", 1, 1), 0, 1)}


def test_one_device_cannot_make_ever_more_rows_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MOST_ROWS", 10)
    held, most = PendingWindow(0), 0
    for place in range(50):
        held.append(TickRun(("one", 1, place), ["d"] * 4, [0] * 4, [place] * 4))
        most = max(most, sum(1 for _ in held.devices()))
    assert most <= 1 + 10
    assert held.entries == {"d": (49, ("one", 1, 49), 3, 0)}


def test_it_says_nothing_of_anybody() -> None:
    held = PendingWindow(0)
    held.append(TickRun(("one", 1, 0), ["00000000deadbeef"], [0], [1]))
    assert repr(held) == "PendingWindow(of 1 devices)"


def test_the_end_of_a_stay_is_stored_as_minus_one() -> None:
    """The number is part of stored states."""
    assert END == -1
