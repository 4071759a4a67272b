"""Windows that are held to be revised together: when, in which form, and from which state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.filter.calendar import Calendar, learnt
from stream.mechanisms.filter.history import (
    Block,
    BufferedWindows,
    DayRevision,
    HourRevision,
    RevisionInput,
    block_of_hour,
    window_of,
)
from stream.mechanisms.filter.learning import LearningState
from stream.mechanisms.filter.mechanism import Filtered, Revisable
from stream.mechanisms.filter.state import encode_rounded, restarted_state, rounded_size
from stream.mechanisms.filter.step import FilterItem
from stream.mechanisms.registry import count_mechanism
from stream.records import DAY, HOUR, MINUTE

F = Fraction
NOON = 20_000 * DAY + 12 * HOUR


def filtered() -> Filtered:
    made = count_mechanism("filter", epsilon=F(1, 2), max_counts=[12, 9])
    assert isinstance(made, Filtered)
    assert isinstance(made, Revisable)
    return made


def held_after(stage: HourRevision, windows: int) -> Iterator[tuple[BufferedWindows, LearningState]]:
    """Yield what is held, and the filter's live state, after each window of 5 min from noon on."""
    rng, live, stored = Random(2), filtered().initial(), stage.initial()
    for n in range(1, windows + 1):
        end, slot = NOON + n * 5 * MINUTE, WeekSlot(24 + n // 6, 12 + n // 12, False)
        noisy = np.array([rng.randrange(-3, 16), rng.randrange(-3, 12)])
        before = live
        live, _ = filtered().filter.step(live, FilterItem(noisy, slot))
        stored, _ = stage.step(stored, RevisionInput(end, window_of(end, F(1, 2), noisy, slot), before))
        yield stored, live


@pytest.mark.parametrize(("minutes", "hours"), [(5, 1), (60, 1), (65, 2), (120, 2)])
def test_a_window_belongs_to_the_hour_in_which_it_ends_and_is_due_an_hour_later(minutes: int, hours: int) -> None:
    assert block_of_hour(NOON + minutes * MINUTE) == Block(NOON + hours * HOUR, NOON + (hours + 1) * HOUR)


def test_a_block_that_was_revised_leaves_the_state_at_the_next_ones_start() -> None:
    """From the state at noon, rounded, to the one at 13:00: near what the filter itself had then."""
    stage = HourRevision(filtered())
    run = list(held_after(stage, 24))
    (_, then), (stored, _) = run[11], run[23]
    assert [window.end for window in stored.windows] == [NOON + n * 5 * MINUTE for n in range(13, 25)]
    each = filtered().filter.filter
    began = restarted_state(stored.start[0], then.filter, each.initial())
    for family, (start, live) in enumerate(zip(each.dense(began), each.dense(then.filter), strict=True)):
        shares = [cells.sum(axis=(0, 2)) / cells.sum(axis=(0, 1, 2)) for cells in (start, live)]
        assert np.abs(shares[0] - shares[1]).max() < 5e-3, family


def test_what_is_held_is_the_same_in_memory_as_in_bytes_so_that_a_restart_changes_nothing() -> None:
    stage = HourRevision(filtered())
    for stored, _ in held_after(stage, 50):
        again = stage.decode(stage.encode(stored))
        assert [_plain(window) for window in again.windows] == [_plain(window) for window in stored.windows]
        for one, other in zip(again.start, stored.start, strict=True):
            assert encode_rounded(one) == encode_rounded(other)
            assert one is None or other is None or one.values.tobytes() == other.values.tobytes()


def end_of_hour(second_hour: int) -> list[int]:
    """Return the last revised counts of an hour whose noisy values are 6, then 3 at its end, then those given."""
    stage, live = HourRevision(filtered()), filtered().initial()
    stored, made = stage.initial(), []
    for n in range(1, 25):
        end, slot = NOON + n * 5 * MINUTE, WeekSlot(24 + n // 6, 12 + n // 12, False)
        noisy = np.array([6, 6] if n < 12 else [3, 3] if n == 12 else [second_hour] * 2)
        before = live
        live, _ = filtered().filter.step(live, FilterItem(noisy, slot))
        stored, revised = stage.step(stored, RevisionInput(end, window_of(end, F(1), noisy, slot), before))
        made += revised
    assert [each.end for each in made] == [NOON + n * 5 * MINUTE for n in range(1, 13)]
    return [int(count) for count in made[-1].values.values]


def test_an_hour_is_revised_by_all_that_was_held_behind_it_and_not_by_its_own_windows_alone() -> None:
    """What comes behind says whether a low value at the end of an hour was noise, or people who left."""
    assert sum(end_of_hour(0)) < sum(end_of_hour(6)) < sum(end_of_hour(12))


def _plain(window: Any) -> tuple[Any, ...]:
    return window.end, window.coverage, window.item.noisy.tolist(), window.item.slot


def test_an_hour_is_revised_by_what_the_filter_has_learnt_by_then() -> None:
    """A calendar that knows of nobody at this hour is used as soon as the filter uses it."""
    stage = HourRevision(filtered())
    *_, (stored, now) = held_after(stage, 15)
    slots = [WeekSlot(24, 12, False), WeekSlot(25, 12, False), WeekSlot(26, 13, False)] * 100
    nobody = [np.eye(1, 10).T.repeat(2, axis=1)] * len(slots)
    taught = tuple(
        each._replace(calendar=calendar_after(each.calendar, slots, [w[:, : each.counted.shape[1]] for w in nobody]))
        for each in now.filter.learnt
    )
    by_now, later = (
        sum(int(each.values.values.sum()) for each in stage.finish(stored, state))
        for state in (now, replace(now, filter=replace(now.filter, learnt=taught)))
    )
    assert later < by_now


def calendar_after(calendar: Calendar | None, slots: list[WeekSlot], history: list[Any]) -> Calendar:
    assert calendar is not None
    return learnt(calendar, slots, history)


def test_noisy_values_beyond_what_the_filter_tells_apart_are_held_within_four_bytes() -> None:
    window = window_of(NOON, F(1), np.array([1 << 40, -(1 << 40), 5]), WeekSlot(0, 0, False))
    assert window.item.noisy.tolist() == [1 << 30, -(1 << 30), 5]


def test_no_more_is_held_than_was_foretold() -> None:
    stage = HourRevision(filtered())
    assert max(len(stage.encode(stored)) for stored, _ in held_after(stage, 40)) <= stage.most_bytes(5 * MINUTE) + 256


def test_what_is_foretold_is_two_hours_of_windows_and_a_state_or_the_windows_of_the_longest_day() -> None:
    """Of two zones: four bytes of each and 64 a window; by day a value, a half-width and twice as much."""
    state = rounded_size(filtered().filter.filter.form)
    assert HourRevision(filtered()).most_bytes(5 * MINUTE) == 24 * (2 * 4 + 64) + state
    assert DayRevision(filtered()).most_bytes(5 * MINUTE) == 300 * (2 * 8 + 128)


def test_finishing_revises_all_that_is_held_from_what_there_is() -> None:
    stage = HourRevision(filtered())
    *_, (stored, now) = held_after(stage, 15)
    made = stage.finish(stored, now)
    assert [each.end for each in made] == [NOON + n * 5 * MINUTE for n in range(1, 16)]
    assert {each.at for each in made} == {NOON + 75 * MINUTE}


@pytest.mark.parametrize("spoil", [lambda b: b[:-1], lambda b: b.replace(b"windows", b"winters"), lambda _: b""])
def test_bytes_that_are_no_such_state_are_refused(spoil: Any) -> None:
    stage = HourRevision(filtered())
    *_, (stored, _) = held_after(stage, 3)
    with pytest.raises(DataError):
        stage.decode(spoil(stage.encode(stored)))
