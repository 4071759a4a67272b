"""The heat map as a stage: what it remembers, from when on it has colours, how it forgets, its byte form."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream.errors import DataError, UsageError
from stream.mechanisms.base import WeekSlot
from stream.mechanisms.heatmap import LARGEST, MOST, HeatMap, HeatMapInput, HeatMapState
from stream.records import MINUTE

NINE = WeekSlot(18, 9, weekend=False)
TEN = WeekSlot(20, 10, weekend=False)
SUNDAY = WeekSlot(18, 9, weekend=True)
Window = tuple[WeekSlot, Sequence[int] | None]


def passed(window: Window) -> HeatMapInput:
    slot, values = window
    return HeatMapInput(slot, None if values is None else np.array(values, np.int64))


def seen(stage: HeatMap, windows: Iterable[Window]) -> list[list[int] | None]:
    """Drive a stage, its state through its bytes at every step; return the colours."""
    data, reported = stage.encode(stage.initial()), []
    for window in windows:
        state, [shown] = stage.step(stage.decode(data), passed(window))
        data = stage.encode(state)
        reported.append(None if shown is None else shown.colours.tolist())
    return reported


def days(*values: int, slot: WeekSlot = NINE, other: WeekSlot = TEN) -> list[Window]:
    """Return one window of a half hour a day, and one of another between them."""
    return [window for value in values for window in ((slot, [value]), (other, [0]))]


# --- when there are colours ------------------------------------------------------------------------------------------


def test_a_half_hour_has_colours_once_enough_of_its_windows_are_known() -> None:
    reported = seen(HeatMap(1, 2), days(10, 14, 12, 100))
    assert reported[::2] == [None, None, [6], [10]]  # usual is 12 ±2 on the third day


def test_windows_of_the_half_hour_at_hand_are_not_usual_yet() -> None:
    """Else a crowd that comes at nine would be usual at five past nine."""
    known = days(10, 14)
    assert seen(HeatMap(1, 2), [*known, (NINE, [100]), (NINE, [100]), (NINE, [12])])[-3:] == [[10], [10], [6]]


def test_what_is_usual_is_of_the_same_half_hour_and_kind_of_day() -> None:
    reported = seen(HeatMap(1, 2), [*days(10, 14), (SUNDAY, [12]), (TEN, [12]), (NINE, [12])])
    assert reported[-3:] == [None, [10], [6]]  # at ten nobody ever was


def test_a_denied_window_has_no_colour_and_teaches_nothing() -> None:
    reported = seen(HeatMap(1, 2), [*days(10, 14), (NINE, None), (NINE, [12]), (TEN, None), (NINE, [12])])
    assert reported[-4:] == [None, [6], None, [6]]


def test_each_place_has_its_own_usual() -> None:
    windows: list[Window] = [(NINE, [10, 0]), (TEN, [0, 0]), (NINE, [14, 0]), (TEN, [0, 0]), (NINE, [12, 1])]
    assert seen(HeatMap(2, 2), windows)[-1] == [6, 10]


def test_what_is_usual_is_told_beside_the_colours() -> None:
    stage, state = HeatMap(1, 2), HeatMap(1, 2).initial()
    for window in [*days(-3, 9), (NINE, [3])]:
        state, [shown] = stage.step(state, passed(window))
    assert shown is not None
    assert (shown.usual.mean.tolist(), shown.usual.deviation.tolist()) == ([3], [6])


# --- what is long ago fades ------------------------------------------------------------------------------------------


def grown(values: Iterable[int]) -> tuple[HeatMap, HeatMapState]:
    stage, state = HeatMap(1, 2), HeatMap(1, 2).initial()
    for window in days(*values):
        state, _ = stage.step(state, passed(window))
    return stage, state


def test_sums_are_halved_when_a_half_hour_has_its_most_windows() -> None:
    _, full = grown([-5] * MOST)
    assert (full.counted[18], full.total[18], full.squares[18]) == (MOST, -5 * MOST, 25 * MOST)
    _, after = grown([-5] * MOST + [7])
    assert (after.counted[18], after.total[18]) == (MOST // 2 + 1, -5 * MOST // 2 + 7)


def test_a_place_whose_use_has_changed_is_usual_again() -> None:
    stage, state = grown([0] * MOST + [50] * (4 * MOST))
    _, [shown] = stage.step(state, passed((NINE, [50])))
    assert shown is not None
    assert shown.usual.mean[0] > 45
    _, kept = grown([0] * MOST)
    assert kept.total[18] == 0


@given(*[st.integers(-LARGEST, LARGEST)] * 3)
def test_no_deviation_becomes_imaginary(always: int, first: int, second: int) -> None:
    stage = HeatMap(1, 2)
    counted, (total, squares) = np.zeros(96, np.int64), np.zeros((2, 96, 1), np.int64)
    counted[18], total[18], squares[18] = MOST - 1, (MOST - 1) * always, (MOST - 1) * always**2
    state = HeatMapState(counted, total, squares, 18, np.array([[first], [second]], np.int64))
    for window in ((TEN, [0]), (NINE, [always])):
        state, [shown] = stage.step(state, passed(window))  # refuses what is not finite
    assert shown is not None
    assert (state.counted[18] * state.squares[18] >= state.total[18] ** 2).all()


def test_values_beyond_any_place_count_as_so_large_and_nothing_overflows() -> None:
    stage, state = HeatMap(1, 2), HeatMap(1, 2).initial()
    for number in range(4):
        for _ in range(1800):  # a window a second
            state, [shown] = stage.step(state, passed((NINE, [(-1) ** number * 10**15])))
        state, _ = stage.step(state, passed((TEN, [0])))
    state, [shown] = stage.step(state, passed((NINE, [0])))
    assert shown is not None
    assert (np.abs(shown.usual.mean) <= LARGEST).all()
    assert (state.squares >= 0).all()


# --- its byte form ---------------------------------------------------------------------------------------------------


def test_the_byte_form_gives_the_same_state_back() -> None:
    stage, state = grown([4, 9, -2])
    again = stage.decode(stage.encode(state))
    assert stage.encode(again) == stage.encode(state)
    assert (again.counted == state.counted).all()
    assert (again.squares == state.squares).all()


def test_the_byte_form_is_pinned() -> None:
    stage, state = grown([3, -1])
    data = stage.encode(state)
    counted = [0] * 96
    counted[18], counted[20] = 2, 1
    numbers = [*counted, 0, 2, 0, 10, 0]  # values at hand, then sums and squares at nine and ten
    assert data == struct.pack("<4sIIiI", b"HEA1", 1, 2, 20, 1) + struct.pack("<101q", *numbers)


def test_no_past_is_longer_than_it_says() -> None:
    stage, state = HeatMap(3, 2), HeatMap(3, 2).initial()
    for half_hour in [*range(48), *range(48), 0]:
        for weekend in (False, True):
            for _ in range(6):
                state, _ = stage.step(state, passed((WeekSlot(half_hour, half_hour // 2, weekend), [1, 2, 3])))
    assert len(stage.encode(state)) == stage.most_bytes(5 * MINUTE)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-8],
        lambda data: data[:-1],
        lambda data: data + bytes(8),
        lambda data: b"HEA2" + data[4:],
        lambda data: data[:12] + struct.pack("<i", 96) + data[16:],
        lambda data: data[:12] + struct.pack("<i", -2) + data[16:],
        lambda data: data[:20] + struct.pack("<q", -1) + data[28:],
        lambda _: b"",
    ],
)
def test_bytes_of_something_else_are_refused(spoil: Any) -> None:
    stage, state = grown([4, 9, -2])
    with pytest.raises(DataError, match="heat map state"):
        stage.decode(spoil(stage.encode(state)))


def test_the_state_of_another_heat_map_is_refused() -> None:
    stage, state = grown([4, 9])
    for other in (HeatMap(2, 2), HeatMap(1, 3)):
        with pytest.raises(DataError, match="header does not fit"):
            other.decode(stage.encode(state))


@pytest.mark.parametrize(("places", "least"), [(0, 2), (1, 1), (1, MOST // 2 + 1)])
def test_heat_maps_that_cannot_be_are_refused(places: int, least: int) -> None:
    with pytest.raises(UsageError, match="must have 1 place and 2 to 336 windows"):
        HeatMap(places, least)
