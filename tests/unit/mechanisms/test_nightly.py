"""When a filter learns, on which zones, from what, and from which window on it goes by that."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError
from stream.mechanisms.base import RevisedDay, WeekSlot
from stream.mechanisms.filter import learning as nightly_module
from stream.mechanisms.filter.learning import BEFORE, PARTS, FilterOutput, LearningFilter, LearningState
from stream.mechanisms.filter.smoothing import Learning, learn
from stream.mechanisms.filter.state import Learnt
from stream.mechanisms.filter.step import Estimate, FilterItem, RegimeFilter
from stream.mechanisms.noise_parameters import gaussian_noise, laplace_noise

F = Fraction
LONG = 60
"""Windows of a day in these tests: four parts are learnt a window."""
NEEDED = PARTS // 4
"""Windows that it takes."""
CAPACITIES = (12, 40, 12, 7)


def nightly(capacities: tuple[int, ...] = CAPACITIES, calendar: bool = True) -> LearningFilter:
    return LearningFilter(RegimeFilter(capacities, laplace_noise(F(1, 2)), calendar))


def stream(days: int, capacities: tuple[int, ...] = CAPACITIES, long: int = LONG, seed: int = 1) -> list[FilterItem]:
    """Noisy values about a third of the capacity by day and about 0 by night."""
    rng, items = Random(seed), []
    for day in range(days):
        for n in range(long):
            by_day = 10 * 2 < n * 48 // long < 18 * 2
            noisy = [by_day * capacity // 3 + rng.randrange(-3, 4) for capacity in capacities]
            items.append(FilterItem(np.array(noisy), WeekSlot(n * 48 // long, n * 24 // long, day % 7 > 4, day)))
    return items


def run(stage: LearningFilter, items: list[FilterItem]) -> Iterator[tuple[LearningState, FilterOutput]]:
    state = stage.initial()
    for item in items:
        state, [told] = stage.step(state, item)
        yield state, told


def histories(stage: LearningFilter, items: list[FilterItem]) -> list[RevisedDay]:
    return [history for _, told in run(stage, items) for history in told.histories]


# When


def test_what_was_learnt_of_a_day_is_used_behind_the_windows_that_learning_takes() -> None:
    stage, items = nightly(), stream(2)
    alone, states, told = stage.filter.initial(), [], []
    differing = []
    for place, (item, (state, made)) in enumerate(zip(items, run(stage, items), strict=True)):
        alone, [estimate] = stage.filter.step(alone, item)
        states.append(state)
        told.append(made)
        if _numbers(estimate) != _numbers(made.estimate):
            differing.append(place)
    assert LONG + NEEDED <= min(differing) < LONG + NEEDED + 9
    assert [len(made.histories) for made in told] == [0] * LONG + [4] * NEEDED + [0] * (LONG - NEEDED)
    assert [state.part for state in states[LONG : LONG + NEEDED]] == list(range(4, PARTS + 1, 4))
    assert not any(each.counted.any() for each in states[LONG + NEEDED - 2].filter.learnt)
    assert all(each.counted.any(axis=0).all() for each in states[LONG + NEEDED - 1].filter.learnt)


def test_of_a_day_of_five_minutes_one_part_is_learnt_a_window() -> None:
    told = [len(made.histories) for _, made in run(nightly((7,)), stream(2, (7,), long=288)[: 288 + 60])]
    assert told == [0] * 288 + [1] * PARTS + [0] * 12


def _numbers(estimate: Estimate) -> list[list[int]]:
    return [each.tolist() for each in estimate]


def test_each_zone_is_in_one_part_the_smaller_the_earlier() -> None:
    found = histories(nightly(), stream(2))
    zones = [zone for history in found for zone in history.zones.tolist()]
    assert zones == [3, 0, 2, 1], "by capacity, then as in the registry"
    assert [history.is_last for history in found] == [False] * (PARTS - 1) + [True]


def test_parts_cost_about_the_same_and_zones_whose_values_reach_alike_go_together() -> None:
    made = LearningFilter(RegimeFilter((2000,) * 960, laplace_noise(F(1))))
    low = np.zeros((4, 960), np.int64)
    assert [len(made._zones_of_part(low, part)) for part in range(PARTS)] == [20] * PARTS
    half = low.copy()
    half[2, ::2] = 1000
    parts = [made._zones_of_part(half, part) for part in range(PARTS)]
    assert np.concatenate(parts).tolist() == [*range(1, 960, 2), *range(0, 960, 2)], "who reaches less first"
    assert [1 for part in parts if len({zone % 2 for zone in part.tolist()}) > 1] in ([], [1])
    costs = [sum(16 + (16, 1024)[zone % 2 == 0] for zone in part.tolist()) for part in parts]
    assert max(costs) - min(costs) <= 2 * (16 + 1024), "one zone more or less"


def test_what_is_left_of_a_day_is_learnt_when_the_next_but_one_begins() -> None:
    """A day of 60 windows, one of 5 and the next: 20 parts in the second, the other 28 with the third's first window.

    Of the day of 5 windows there are 57 parts a window: all at once.
    """
    items = [*stream(1), *stream(3, long=5)[5:]]
    made = [told.histories for _, told in run(nightly(), items)]
    assert [len(each) for each in made] == [0] * 60 + [4] * 5 + [28 + PARTS] + [0] * 4
    assert [history.day for history in made[65]] == [0] * 28 + [1] * PARTS
    assert sum(history.is_last for each in made for history in each) == 2


def test_where_no_window_comes_any_more_the_rest_is_told_at_once_the_day_at_hand_too() -> None:
    stage, items = nightly(), stream(2)[: LONG + 7]
    *_, (state, _) = run(stage, items)
    told = stage.rest(state)
    assert [(each.day, each.is_last) for each in told if each.is_last] == [(0, True), (1, True)]
    assert len(told) == PARTS - 7 * 4 + PARTS
    assert {len(each.median) for each in told if each.day == 1} == {7}
    assert stage.rest(stage.initial()) == []


# From what


def test_a_day_is_told_as_it_is_known_and_better_than_window_by_window() -> None:
    """At ε = ½, a hundred people by day: of two zones, the error and the band over the second day."""
    truth = np.array([[100 if 20 < n * 48 // 96 < 36 else 3] * 2 for _ in range(2) for n in range(96)])
    rng = np.random.default_rng(4)
    noisy = truth + rng.geometric(1 - np.exp(-0.5), truth.shape) - rng.geometric(1 - np.exp(-0.5), truth.shape)
    items = [FilterItem(row, WeekSlot(n % 96 // 2, n % 96 // 4, False, n // 96)) for n, row in enumerate(noisy)]
    stage = nightly((150, 150))
    made = list(run(stage, items))
    (second,) = [each for each in stage.rest(made[-1][0]) if each.day == 1 and each.zones.tolist() == [0]]
    first = np.array([told.estimate.median[0] for _, told in made[96:]])
    error, before = (np.abs(each - truth[96:, 0]).mean() for each in (second.median[:, 0], first))
    assert error < 0.8 * before
    assert (np.abs(second.median - truth[96:, :1]) <= second.half_width).mean() > 0.95


def test_windows_that_were_denied_are_not_there() -> None:
    items = [item for n, item in enumerate(stream(2)) if n % 3]
    assert {len(each.median) for each in histories(nightly(), items)} == {LONG * 2 // 3}


def test_a_day_is_seen_in_the_light_of_windows_before_it_and_no_others() -> None:
    """One that lies further back than 144 windows changes nothing; the 144th does."""
    items, told = stream(4, (7,)), []
    for changed in (None, 3 * LONG - BEFORE - 1, 3 * LONG - BEFORE):
        noisy = [item.noisy.copy() for item in items]
        if changed is not None:
            noisy[changed] += 9
        again = [item._replace(noisy=row) for item, row in zip(items, noisy, strict=True)]
        *_, (state, _) = run(nightly((7,)), again)
        told.append([item.noisy.tolist() for item in state.log])
    assert len(told[0]) == BEFORE + LONG
    assert told[0] == told[1] != told[2]


def test_no_more_is_kept_than_a_day_and_what_is_before_it_and_of_the_next_what_learning_takes() -> None:
    lengths = [len(state.log) for state, _ in run(nightly((7,)), stream(6, (7,)))]
    assert max(lengths) == BEFORE + LONG + NEEDED - 1
    assert lengths[-1] == BEFORE + LONG


def test_zones_learn_each_for_itself_whatever_their_capacity_and_number() -> None:
    items = stream(3)
    *_, (together, _) = run(nightly(), items)
    for zone, capacity in enumerate(CAPACITIES):
        *_, (own, _) = run(nightly((capacity,)), [item._replace(noisy=item.noisy[[zone]]) for item in items])
        family = sorted(set(CAPACITIES)).index(capacity)
        place = [z for z, other in enumerate(CAPACITIES) if other == capacity].index(zone)
        for one, other in zip(_arrays(together.filter.learnt[family]), _arrays(own.filter.learnt[0]), strict=True):
            assert one[..., place].tobytes() == other[..., 0].tobytes()


def _arrays(learnt: Learnt) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    yield learnt.counted
    if learnt.calendar is not None:
        yield learnt.calendar.history
        yield learnt.calendar.sums


def test_a_filter_without_calendar_learns_how_a_zone_moves_alone() -> None:
    *_, (state, _) = run(nightly(calendar=False), stream(2))
    assert all(each.counted.any() and each.calendar is None for each in state.filter.learnt)


def test_changes_of_two_days_add_up() -> None:
    """Of 60 windows a day 59 changes at the first, of the second its share of 119; used when both are learnt."""
    *_, (state, _) = run(nightly((7,)), stream(3, (7,)))
    assert state.filter.learnt[0].counted.sum() == pytest.approx(59 + 119 * 60 / 120, rel=1e-4)


# State


@pytest.mark.parametrize("calendar", [True, False])
def test_a_restart_at_any_window_changes_nothing(calendar: bool) -> None:
    stage = nightly(calendar=calendar)
    state, through = stage.initial(), stage.initial()
    for place, item in enumerate(stream(3 if calendar else 2)):
        state, [expected] = stage.step(state, item)
        data = stage.encode(through)
        through = stage.decode(data)
        assert stage.encode(through) == data
        through, [made] = stage.step(through, item)
        assert _numbers(made.estimate) == _numbers(expected.estimate), place
        for one, other in zip(made.histories, expected.histories, strict=True):
            assert [each.tolist() for each in one[1:4]] == [each.tolist() for each in other[1:4]]
    assert stage.encode(through) == stage.encode(state)


@pytest.mark.parametrize(("capacities", "long"), [((7, 9), LONG), ((7,), 300)])
def test_parts_that_are_learnt_on_ahead_of_their_window_change_nothing(capacities: tuple[int, ...], long: int) -> None:
    """Of two zones the second is learnt with the last of a window's four parts, which is then done ahead, too."""
    stage, items = nightly(capacities), stream(2, capacities, long=long)[: long + 60]
    state = prepared = stage.initial()
    for place, item in enumerate([*items, *stream(3, capacities)[-2:]]):
        state, told = stage.step(state, item)
        prepared, told_too = stage.step(prepared, item)
        assert stage.encode(prepared) == stage.encode(state)
        assert [_plain(history) for history in told_too[0].histories] == [_plain(each) for each in told[0].histories]
        for _ in range(place % 5):
            prepared = stage.prepare(prepared)
        assert stage.encode(prepared) == stage.encode(state)


def test_what_is_done_ahead_is_what_the_next_window_would_wait_for_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, items, learnt = nightly(), stream(2), list[int]()

    def noted(*given: Any) -> Learning:
        learnt.append(1)
        return learn(*given)

    monkeypatch.setattr(nightly_module, "learn", noted)
    states = [state for state, _ in run(stage, items)]
    state = states[LONG]
    while (more := stage.prepare(state)) is not state:
        state = more
    assert len(state.ahead) == 4  # four parts a window, though each is asked for by itself
    learnt.clear()
    after, [told] = stage.step(state, items[LONG + 1])
    assert len(told.histories) == 4
    assert not learnt
    assert not after.ahead
    assert stage.prepare(states[LONG - 1]) is states[LONG - 1]
    assert stage.prepare(states[-1]) is states[-1]


def _plain(history: RevisedDay) -> list[object]:
    return [history.day, history.zones.tolist(), history.median.tolist(), history.half_width.tolist(), history.is_last]


def test_a_state_that_was_handed_on_can_be_gone_on_with_twice() -> None:
    """As revision does with the state before a window."""
    stage, items = nightly(), stream(2)
    *_, (state, _) = run(stage, items[: LONG + 1])
    for item in items[LONG + 1 : LONG + NEEDED]:
        data = stage.encode(state)
        after, _ = stage.step(state, item)
        assert stage.encode(state) == data
        state = after


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"X" + b[1:], lambda _: b""])
@pytest.mark.parametrize("windows", [0, 5, LONG + 3])
def test_bytes_that_are_no_such_state_are_refused(spoil: object, windows: int) -> None:
    stage = nightly()
    state = stage.initial()
    for item in stream(2)[:windows]:
        state, _ = stage.step(state, item)
    with pytest.raises(DataError, match=r"filter state|packed array"):
        stage.decode(spoil(stage.encode(state)))  # type: ignore[operator]


def test_noisy_values_beyond_what_the_filter_tells_apart_are_kept_within_four_bytes() -> None:
    item = FilterItem(np.array([1 << 40, -(1 << 40)]), WeekSlot(0, 0, False))
    stage = LearningFilter(RegimeFilter((7, 7), gaussian_noise(F(4))))
    state, _ = stage.step(stage.initial(), item)
    assert state.log[0].noisy.tolist() == [1 << 30, -(1 << 30)]
    assert stage.encode(stage.decode(stage.encode(state))) == stage.encode(state)


@pytest.mark.pinned
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_what_is_learnt_is_the_same_bytes_on_every_machine(kind: str) -> None:
    noise = {"laplace": laplace_noise(F(3, 10)), "gaussian": gaussian_noise(F("21.854") ** 2)}[kind]
    stage = LearningFilter(RegimeFilter(CAPACITIES, noise))
    *_, (state, _) = run(stage, stream(3))
    assert sha256(stage.encode(state)).hexdigest() == PINNED[kind]


PINNED = {
    "laplace": "c12d6441471ee45391f108db17c89cc957caa617ffea69f2d01bf828b1cf1618",
    "gaussian": "6716c4d72720dadd9eec7f9e22d8e976602c47bb13c683c92b20f58585817906",
}
