"""What the calendar expects of each count, in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stream.mechanisms.base import WeekSlot
from stream.mechanisms.filter.calendar import Calendar, _usual, _usual_error, empty, expect, learnt
from stream.mechanisms.filter.model import bin_edges

CAPACITY, EPSILON = 40, 1.0
WORKDAY, WEEKEND = WeekSlot(20, 10, False), WeekSlot(20, 10, True)
WIDTHS = np.diff(bin_edges(CAPACITY))
FLAT = (WIDTHS / WIDTHS.sum())[:, None]
"""A history in which every count is as likely."""


def at(count: int) -> np.ndarray:
    """A history in which only one bin of counts was seen."""
    found = np.zeros((len(WIDTHS), 1), np.float32)
    found[np.searchsorted(bin_edges(CAPACITY), count, side="right") - 1] = 1
    return found


def calendar(workdays: np.ndarray, level: float = 0.0, errors: float = 0.0) -> Calendar:
    """A calendar of one zone: a history of workdays, and the level of the half hour from 10:00 with its errors."""
    made = empty(CAPACITY, 1)
    made.history[0] = workdays
    if level:
        made.sums[0, 0, 20], made.sums[1, 0, 20] = level, 1.0
        made.sums[2, 0, 19], made.sums[3, 0, 19] = errors, 1.0
    return made


def test_a_zone_without_history_expects_every_count_alike() -> None:
    assert expect(empty(CAPACITY, 2), CAPACITY, WORKDAY, EPSILON).tolist() == [[1.0, 1.0]] * (CAPACITY + 1)
    faint = calendar(FLAT * 0.019, level=20)
    assert set(expect(faint, CAPACITY, WORKDAY, EPSILON).ravel()) == {1.0}
    known = calendar(FLAT, level=20)
    both = Calendar(*(np.concatenate(parts, axis=-1) for parts in zip(*map(arrays, (faint, known)), strict=True)))
    found = expect(both, CAPACITY, WORKDAY, EPSILON)
    assert set(found[:, 0]) == {1.0}, "beside one that has some"
    assert found[:, 1].tolist() == expect(known, CAPACITY, WORKDAY, EPSILON)[:, 0].tolist()


def arrays(made: Calendar) -> tuple[np.ndarray, np.ndarray]:
    return made.history, made.sums


@pytest.mark.parametrize("errors", [0.0, 2.0])
def test_counts_near_the_usual_level_are_likelier_by_its_usual_error(errors: float) -> None:
    """β of the half hour and its neighbours, and e^(-min(.2 / β, ε) |z - m|) on a flat history."""
    beta = max(0.5, (0.25 * errors + 0.5 * (1 + math.sqrt(20))) / (0.25 + 0.5))
    expected = np.exp(-min(0.2 / beta, EPSILON) * np.abs(np.arange(CAPACITY + 1) - 20))
    assert np.allclose(expect(calendar(FLAT, 20, errors), CAPACITY, WORKDAY, EPSILON)[:, 0], expected, rtol=1e-4)


def test_no_pull_is_stronger_than_epsilon() -> None:
    expected = np.exp(-0.001 * np.abs(np.arange(CAPACITY + 1) - 20))
    assert np.allclose(expect(calendar(FLAT, 20), CAPACITY, WORKDAY, 0.001)[:, 0], expected, rtol=1e-5)


def test_weekdays_and_weekends_are_expected_apart() -> None:
    made = calendar(at(30))
    made.history[1] = at(2)
    likeliest = [int(expect(made, CAPACITY, slot, EPSILON).argmax()) for slot in (WORKDAY, WEEKEND)]
    edges = bin_edges(CAPACITY)
    assert [int(edges[edges <= count].max()) for count in (30, 2)] == likeliest


def test_an_hour_knows_its_neighbours_and_no_other() -> None:
    made = calendar(np.zeros((len(WIDTHS), 1)))
    made.history[0, 12] = at(30)
    assert set(expect(made, CAPACITY, WORKDAY, EPSILON).ravel()) == {1.0}, "two hours away"
    assert len(set(expect(made, CAPACITY, WORKDAY._replace(hour=11), EPSILON).ravel())) > 1


def test_an_hour_has_half_of_its_weight_from_itself_and_a_quarter_from_each_neighbour() -> None:
    """Over midnight too; half hours have their errors in the same parts, added up from the earlier one to the later."""
    made = calendar(np.zeros((len(WIDTHS), 1)))
    made.history[0, :, 0, 0] = 2.0 ** np.arange(24)
    for hour, expected in ((5, 16 / 4 + 32 / 2 + 64 / 4), (0, 2.0**23 / 4 + 1 / 2 + 2 / 4)):
        assert float(_usual(made, WORKDAY._replace(hour=hour))[0, 0]) == expected
    made.sums[2, 0, [46, 47, 0]] = [[8.0], [2.0], [4.0]]
    made.sums[3, 0, [46, 47, 0]] = 1.0
    level = np.zeros(1)
    for half_hour, error, count in ((47, 8 / 4 + 2 / 2 + 4 / 4, 1.0), (0, 2 / 4 + 4 / 2, 0.75)):
        slot = WORKDAY._replace(half_hour=half_hour)
        assert float(_usual_error(made, slot, level)[0]) == (error + 0.5) / (count + 0.5)
    tiny = 2e-16
    made.sums[2, 0, [19, 20, 21]] = [[4.0], [tiny], [tiny]]
    forwards = (4.0 / 4 + np.float32(tiny) / 2.0) + np.float32(tiny) / 4.0
    assert float(_usual_error(made, WORKDAY, level)[0]) == (float(forwards) + 0.5) / 0.5


def test_the_level_counts_from_a_fifth_of_a_day_on_and_errors_from_a_fiftieth_of_history() -> None:
    for days, pulls in ((0.2, False), (0.21, True)):
        made = calendar(FLAT)
        made.sums[0, 0, 20], made.sums[1, 0, 20] = 20 * days, days
        assert (len(set(expect(made, CAPACITY, WORKDAY, EPSILON).ravel())) > 1) is pulls, days
    parts, rest = [], 0.02  # exactly a fiftieth, as a sum of three float32
    for _ in range(3):
        parts.append(np.float32(rest))
        rest -= float(parts[-1])
    assert rest == 0
    made = calendar(np.zeros((len(WIDTHS), 1)))
    made.history[0, 10, :3, 0] = 2 * np.array(parts)
    assert float(_usual(made, WORKDAY).sum()) == 0.02
    assert set(expect(made, CAPACITY, WORKDAY, EPSILON).ravel()) == {1.0}
    certain = np.zeros((CAPACITY + 1, 1))
    certain[3] = 1.0
    assert not learnt(made, [WORKDAY], [certain]).sums[2:].any(), "no error is learnt yet"
