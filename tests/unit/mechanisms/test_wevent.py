import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms import wevent
from stream.mechanisms.base import TickInput, WeekSlot
from stream.mechanisms.noise import discrete_laplace, half_width_95, std, sum_half_width_95
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.wevent import LONGEST, MOST_MOVES, BudgetAbsorption, Move, Publication, Repeated
from stream.policy.mechanisms import names_where
from tests.support.w_event import WEventMechanism, w_event_mechanism

F = Fraction
KEY = b"k" * 32
SILENT = F(400)
"""An epsilon whose noise is never seen."""
each_mechanism = pytest.mark.parametrize("name", names_where("pays_for_w"))


def input_of(window: int, *counts: int) -> TickInput:
    zones = tuple(f"z{i}" for i in range(len(counts)))
    true = np.array(counts, dtype=np.int64)
    return TickInput(true, np.zeros_like(true), KEY, Context("dbh", "w", window, 1, zones), WeekSlot(0, 0, False))


def run(mechanism: WEventMechanism, stream: Sequence[list[int] | None]) -> tuple[list[list[int]], list[Fraction]]:
    """Return values and costs; None is a window that is not released. The state goes through its bytes."""
    data, values, costs = mechanism.encode(mechanism.initial()), [], []
    for window, counts in enumerate(stream):
        state = mechanism.decode(data)
        if counts is None:
            state = mechanism.pause(state)
            costs.append(F(0))
        else:
            state, [value] = mechanism.step(state, input_of(window, *counts))
            values.append(value.values.tolist())
            costs.append(mechanism.spent(state))
        data = mechanism.encode(state)
    return values, costs


def dearest(costs: list[Fraction], windows: int) -> Fraction:
    """The largest sum over so many windows in a row."""
    return max(sum(costs[i : i + windows], F(0)) for i in range(len(costs)))


# Without noise


def test_uniform_publishes_in_every_window() -> None:
    stream = [[n] for n in (5, 5, 9, 20)]
    values, costs = run(w_event_mechanism("uniform", zones=1, epsilon=SILENT, windows=4), stream)
    assert values == stream
    assert costs == [SILENT / 4] * 4


def test_sample_publishes_in_every_wth_window_and_repeats_between() -> None:
    values, costs = run(w_event_mechanism("sample", zones=1, epsilon=SILENT, windows=3), [[n] for n in range(1, 8)])
    assert values == [[1], [1], [1], [4], [4], [4], [7]]
    assert costs == [SILENT, 0, 0, SILENT, 0, 0, SILENT]


def test_sample_does_not_count_a_window_that_is_not_released() -> None:
    mechanism = w_event_mechanism("sample", zones=1, epsilon=SILENT, windows=2)
    assert run(mechanism, [[1], None, [3], [4], None, None, [7], [8]])[0] == [[1], [1], [4], [4], [8]]


def test_budget_absorption_publishes_when_counts_have_moved_then_passes_as_many_windows_as_it_absorbed() -> None:
    """u = 50: k = 1, then 2 windows' units for the 9, so one window passes before 20 is seen."""
    stream = [[n] for n in (5, 5, 9, 20, 20, 20, 20, 20, 20, 20, 3, 4, 4, 4, 4)]
    values, costs = run(w_event_mechanism("ba", zones=1, epsilon=SILENT, windows=4), stream)
    assert [v[0] for v in values] == [5, 5, 9, 9, 20, 20, 20, 20, 20, 20, 3, 3, 3, 3, 4]
    units = [1, 1, 3, 0, 2, 1, 1, 1, 1, 1, 5, 0, 0, 0, 2]
    assert costs == [n * SILENT / 8 for n in units]


@pytest.mark.parametrize(("moved", "published"), [(9, 0), (10, 0), (11, 11)])
def test_budget_absorption_wants_the_mean_distance_above_the_noise_of_the_publication(
    moved: int, published: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two zones, u = 1/5, one unit absorbed: the distance has to exceed 1/u = 5 on average, 10 in sum."""
    monkeypatch.setattr(wevent, "discrete_laplace", lambda _key, _label, _epsilon, n: np.zeros(n, np.int64))
    values, _ = run(BudgetAbsorption(2, F(2), 5), [[0, 0], [moved, 0]])
    assert values[1] == [published, 0]


def test_first_window_is_published_without_a_test() -> None:
    _, costs = run(w_event_mechanism("ba", zones=2, epsilon=F(1), windows=5), [[0, 0]])
    assert costs == [F(1, 10)]


# What it costs


@each_mechanism
@pytest.mark.parametrize("windows", [1, 2, 3, 12])
def test_any_w_windows_of_a_long_stream_with_pauses_cost_at_most_epsilon(name: str, windows: int) -> None:
    rng, epsilon = Random(windows), F(3)
    stream: list[list[int] | None] = []
    level = 0
    for _ in range(1500):
        level = rng.choice([level] * 6 + [rng.randrange(400)])
        stream.append(None if rng.random() < 0.1 else [level, rng.randrange(3)])
    _, costs = run(w_event_mechanism(name, zones=2, epsilon=epsilon, windows=windows), stream)
    assert dearest(costs, windows) <= epsilon
    assert dearest(costs, windows) > epsilon * F(2, 3)


class Decided(BudgetAbsorption):
    """BA whose tests come out as they are told to, without noise."""

    decisions: tuple[bool, ...]

    def _moved(self, state: Publication, item: TickInput, units: int) -> bool:
        return self.decisions[item.context.window]

    def _noisy(self, item: TickInput, units: int) -> np.ndarray:
        return item.counts


@pytest.mark.parametrize("windows", [1, 2, 3, 4, 5])
def test_whatever_the_tests_of_budget_absorption_say_any_windows_cost_at_most_their_bound(windows: int) -> None:
    """All 2^9 outcomes; the bound of w windows is epsilon and is reached."""
    mechanism = Decided(1, F(1), windows)
    items = [input_of(window, 0) for window in range(10)]
    largest = dict.fromkeys(range(1, 9), F(0))
    for decisions in product((False, True), repeat=9):
        object.__setattr__(mechanism, "decisions", (True, *decisions))
        state, costs = mechanism.initial(), []
        for item in items:
            state, _ = mechanism.step(state, item)
            costs.append(mechanism.spent(state))
        for n in largest:
            largest[n] = max(largest[n], dearest(costs, n))
    bound = {n: (n + max(n, windows)) * mechanism.unit for n in largest}
    assert all(largest[n] <= bound[n] for n in largest)
    assert bound[windows] == largest[windows] == 1
    assert largest[1] == bound[1]


@each_mechanism
def test_noise_is_drawn_at_exactly_what_is_booked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Fraction] = []
    true = discrete_laplace

    def recorded(key: bytes, label: bytes, epsilon: Fraction, n: int) -> np.ndarray:
        drawn.append(epsilon)
        return true(key, label, epsilon, n)

    monkeypatch.setattr(wevent, "discrete_laplace", recorded)
    rng = Random(4)
    stream = [[rng.choice([0, 200])] for _ in range(200)]
    _, costs = run(w_event_mechanism(name, zones=1, epsilon=F(2), windows=6), stream)
    assert sum(costs) == sum(drawn)
    if name == "ba":
        assert {F(k, 6) for k in (1, 2, 3)} <= set(drawn), "tests at u = 1/6, publications at several k u"


# Noise, widths, values


@each_mechanism
def test_release_repeats_and_depends_on_key_and_window(name: str) -> None:
    mechanism = w_event_mechanism(name, zones=3, epsilon=F(1, 2), windows=4)
    item = input_of(1, 10, 20, 30)
    [value] = mechanism.step(mechanism.initial(), item)[1]
    assert (mechanism.step(mechanism.initial(), item)[1][0].exact.numerator == value.exact.numerator).all()
    others = (item._replace(key=b"o" * 32), input_of(2, 10, 20, 30))
    for other in others:
        assert (mechanism.step(mechanism.initial(), other)[1][0].exact.numerator != value.exact.numerator).any()


def test_each_draw_is_named_by_its_purpose_and_by_all_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With w = 1 a test and its publication are drawn at the same u in the same window."""
    true, labels = discrete_laplace, []

    def recorded(key: bytes, label: bytes, epsilon: Fraction, n: int) -> np.ndarray:
        labels.append(label)
        return true(key, label, epsilon, n)

    monkeypatch.setattr(wevent, "discrete_laplace", recorded)
    mechanism, zero = BudgetAbsorption(1, F(2), 1), np.zeros(1, np.int64)
    for count, last in ((100, 0), (101, 0), (100, 1)):
        mechanism.step(Publication(zero + last, 1, 0, 0, 0), input_of(0, count))
    tests, publications = labels[::2], labels[1::2]
    assert all(b"w-event-test" in label for label in tests)
    assert all(b"w-event-publish" in label for label in publications)
    assert len(set(tests)) == 3, "a test reads the counts and what was published"
    assert publications[0] == publications[2] != publications[1], "a publication reads the counts"


@each_mechanism
def test_half_width_is_that_of_the_noise_in_the_published_value(name: str) -> None:
    mechanism = w_event_mechanism(name, zones=1, epsilon=F(1), windows=4)
    [value] = mechanism.step(mechanism.initial(), input_of(0, 5))[1]
    assert value.half_width.tolist() == [half_width_95({"uniform": F(1, 4), "sample": F(1), "ba": F(1, 8)}[name])]


@each_mechanism
def test_values_are_not_negative_but_what_sums_are_made_of_may_be(name: str) -> None:
    mechanism = w_event_mechanism(name, zones=50, epsilon=F(1, 2), windows=4)
    [value] = mechanism.step(mechanism.initial(), input_of(0, *[0] * 50))[1]
    assert value.values.min() == 0
    assert value.exact.numerator.min() < 0


# Bands of repeated values

UNIT = F(1, 8)


def expected_width(own: int, changes: Sequence[int], zones: int, moves: Sequence[Move], age: int) -> int:
    """The formulas of the module docstring, in plain loops."""
    squares = doubt = windows = 0.0
    for place, (change, move) in enumerate(zip(changes, moves, strict=True)):
        variance = zones * sum(std(units * UNIT) ** 2 for units in move.units)
        squares += 0.8**place * (change**2 - variance)
        doubt += 0.64**place * variance**2
        windows += 0.8**place * move.windows
    rate = max(0.0, squares + 0.3 * (2 * doubt) ** 0.5) / max(1.0, windows)
    return round(math.sqrt(own**2 + 2.7**2 * rate * age))


MOVES = (Move(np.array([30, -2, 1]), 4, (8, 8)), Move(np.array([-25, 0, 9]), 2, (8, 4)))


@pytest.mark.parametrize("age", [0, 1, 3, 11])
def test_bands_of_repeated_values_are_those_of_the_formulas(age: int) -> None:
    band = Repeated(Publication(np.array([40, 3, 12]), 8, 0, 0, 0, age, MOVES), UNIT)
    own, sum_of_two = half_width_95(F(1)), sum_half_width_95(F(1), 2)
    changes = [[int(move.change[zone]) for move in MOVES] for zone in range(3)]
    assert band.half_widths().tolist() == [expected_width(own, each, 1, MOVES, age) for each in changes]
    assert band.half_width([0, 2]) == expected_width(sum_of_two, [31, -16], 2, MOVES, age)
    if age:
        assert band.half_width([0, 2]) > sum_of_two
    else:
        assert band.half_widths().tolist() == [own] * 3
        assert band.half_width([0, 2]) == sum_of_two


def test_bands_of_repeated_values_get_wider_until_the_next_value() -> None:
    mechanism = w_event_mechanism("sample", zones=1, epsilon=F(1), windows=4)
    state, widths = mechanism.initial(), []
    for window in range(12):
        state, [value] = mechanism.step(mechanism.decode(mechanism.encode(state)), input_of(window, 30 * (window // 4)))
        widths.append(int(value.half_width[0]))
    own = half_width_95(F(1))
    assert widths[:4] == [own] * 4, "nothing is known of changes yet"
    assert own == widths[4] < widths[5] < widths[6] < widths[7]
    assert own == widths[8] < widths[9]


def test_the_bands_of_uniform_are_those_of_its_noise() -> None:
    mechanism = w_event_mechanism("uniform", zones=1, epsilon=F(1), windows=4)
    state = mechanism.initial()
    for window in range(8):
        state, [value] = mechanism.step(state, input_of(window, 100 * window))
        assert (value.half_width[0], value.sums) == (half_width_95(F(1, 4)), None)
    assert (mechanism.half_width_kind, state.moves) == ("noise", ())


@pytest.mark.parametrize("name", ["sample", "ba"])
def test_state_contains_the_latest_moves_and_their_windows(name: str) -> None:
    mechanism = w_event_mechanism(name, zones=1, epsilon=SILENT, windows=2)
    state, published = mechanism.initial(), []
    for window in range(60):
        state, [value] = mechanism.step(state, input_of(window, 100 * (window // 3)))
        if mechanism.spent(state) > SILENT / 4:
            published.append((window, int(value.values[0])))
    both = list(zip(published[::-1], published[-2::-1], strict=False))[:MOST_MOVES]
    found = [(int(move.change[0]), move.windows) for move in state.moves]
    assert found == [(value - last, window - before) for (window, value), (before, last) in both]
    assert len(found) == MOST_MOVES
    assert mechanism.half_width_kind == "posterior"


def test_windows_since_a_publication_are_counted_up_to_a_limit() -> None:
    stored = Publication(np.array([1]), 1, 0, 0, 0, LONGEST, (Move(np.array([1]), LONGEST, (1, 1)),))
    assert stored.repeated(waiting=0, unused=0, cost=0).age == LONGEST
    assert stored.replaced(np.array([2]), 1, waiting=0, cost=1).moves[0].windows == LONGEST


# Byte form, errors


@each_mechanism
def test_state_of_another_stage_is_refused(name: str) -> None:
    mechanism = w_event_mechanism(name, zones=2, epsilon=F(1), windows=4)
    data = mechanism.encode(mechanism.step(mechanism.initial(), input_of(0, 5, 6))[0])
    for broken in (b"", data[:-1], data + b"\0", b"X" + data[1:]):
        with pytest.raises(DataError, match="header does not fit"):
            mechanism.decode(broken)
    with pytest.raises(DataError, match="counters must be within w"):
        mechanism.decode(data[:12] + b"\xff\xff\xff\x7f" + data[16:])
    with pytest.raises(DataError, match="windows since a publication must be at most 1048576"):
        mechanism.decode(data[:24] + b"\xff\xff\xff\x7f" + data[28:])
    with pytest.raises(DataError, match="header does not fit"):
        mechanism.decode(data[:28] + b"\x0d\0\0\0" + data[32:] + bytes(13 * (12 + 16)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "bd"}, "mechanism must be one of .*, uniform, sample, ba, got 'bd'"),
        ({"zones": 0}, "zones must be at least 1, got 0"),
        ({"windows": 0}, r"windows must be in 1 … 1048576, got 0"),
        ({"epsilon": F(1, 10**9)}, "epsilon must be at least"),
        ({"epsilon": 0.5}, "epsilon must be an exact Fraction, got float"),
    ],
)
def test_parameters_out_of_range_are_refused(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"name": "ba", "zones": 1, "epsilon": F(1), "windows": 4} | changed
    with pytest.raises(UsageError, match=message):
        w_event_mechanism(given.pop("name"), **given)
