from fractions import Fraction
from random import Random
from statistics import median
from typing import Any

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import Groups, Ratio, whole
from stream.mechanisms.grouper import Grouper, GroupItem
from stream.mechanisms.queries import GroupWindowSum, JumpDrop, LowSignal, QueryHistory, WindowSum, rounded, total

F = Fraction
EXAMPLE = [5, 5, 6, 9, 10, 10, 10]
Grouped = list[tuple[Groups, list[list[list[int]]]]]


def values(*numbers: int | Fraction) -> Ratio:
    exact = [F(number) for number in numbers]
    return Ratio(np.array([x.numerator for x in exact]), np.array([x.denominator for x in exact]))


def fractions(ratio: Ratio | None) -> list[Fraction | int] | None:
    return None if ratio is None else [F(int(n), int(d)) for n, d in zip(*ratio, strict=True)]


def run(stage: Any, items: Any) -> Any:
    """Drive a stage, its state through its bytes at every step."""
    data, seen = stage.encode(stage.initial()), []
    for item in items:
        state, [output] = stage.step(stage.decode(data), item)
        data = stage.encode(state)
        seen.append(output)
    return seen


def noise_free_groups(stream: list[int]) -> list[Groups]:
    """The groups of θ = 2 without noise."""
    grouper, zero = Grouper(1, F(25, 2)), np.zeros(1, np.int64)
    state, seen = grouper.initial(), []
    for count in stream:
        item = GroupItem(np.array([count]), np.array([count]), zero, zero)
        state, [groups] = grouper.step(state, item)
        seen.append(groups)
    return seen


def random_groups(seed: int, ticks: int = 120, zones: int = 3) -> Grouped:
    """Groups as a grouper gives them, and the partition of each zone so far as lists of noisy values."""
    rng, seen = Random(seed), []
    partitions: list[list[list[int]]] = [[] for _ in range(zones)]
    for _ in range(ticks):
        for groups in partitions:
            if not groups or rng.random() < 0.3:
                groups.append([])
            groups[-1].append(rng.randrange(-5, 30))
        last = [groups[-1] for groups in partitions]
        longest = max(map(len, last))
        padded = np.array([group + [0] * (longest - len(group)) for group in last])
        seen.append(
            (
                Groups(np.array([len(group) for group in last]), padded),
                [[list(group) for group in p] for p in partitions],
            )
        )
    return seen


# Window sums


def test_window_sum_adds_the_released_values_of_the_last_w_windows() -> None:
    stream = [values(1, 10), values(2, 20), values(4, 40), values(8, 80)]
    assert [fractions(s) for s in run(WindowSum(2, 3), stream)] == [None, None, [7, 70], [14, 140]]


def test_window_sum_is_exact_over_fractions() -> None:
    stream = [values(F(1, 3)), values(F(5, 3)), values(F(-1, 2))] * 2
    assert [fractions(s) for s in run(WindowSum(1, 3), stream)[2:]] == [[F(3, 2)]] * 4


def test_window_sum_of_many_different_denominators_does_not_overflow() -> None:
    stream = [values(10**9 + F(1, n)) for n in range(200, 260)]
    expected = sum((10**9 + F(1, n) for n in range(200, 260)), F(0))
    assert fractions(run(WindowSum(1, 60), stream)[-1]) == [expected]


def test_a_window_that_is_not_released_leaves_no_sum_until_w_windows_follow_it() -> None:
    stream = [values(1), values(1), None, values(1), values(2)]
    assert [fractions(s) for s in run(WindowSum(1, 2), stream)] == [None, [2], None, None, [3]]


def test_sum_over_one_window_is_the_value() -> None:
    assert [fractions(s) for s in run(WindowSum(1, 1), [values(7), values(-2)])] == [[7], [-2]]


def test_published_sums_are_rounded_half_to_even_and_not_negative_unless_noise_is_left_as_it_is() -> None:
    sums = values(F(1, 2), F(3, 2), F(-5, 2), F(7, 3))
    assert rounded(sums).tolist() == [0, 2, 0, 2]
    assert rounded(sums, negative=True).tolist() == [0, 2, -2, 2]


# Over groups


@pytest.mark.parametrize(("statistic", "at_5"), [("median", 24), ("average", F(73, 3))])
def test_groups_of_the_worked_example_give_the_known_sums(statistic: str, at_5: Fraction) -> None:
    sums = run(GroupWindowSum(1, 3, statistic), noise_free_groups(EXAMPLE))
    assert fractions(sums[4]) == [at_5]
    assert fractions(sums[6]) == [30]


@pytest.mark.parametrize("windows", [1, 4, 12])
@pytest.mark.parametrize("statistic", ["median", "average"])
def test_every_window_counts_its_whole_groups_statistic(statistic: str, windows: int) -> None:
    stream = random_groups(7)
    sums = run(GroupWindowSum(3, windows, statistic), [groups for groups, _ in stream])
    for tick, (_, partitions) in enumerate(stream):
        if tick < windows - 1:
            assert sums[tick] is None
            continue
        expected = []
        for partition in partitions:
            stats = [F(median(map(F, g))) if statistic == "median" else F(sum(g), len(g)) for g in partition for _ in g]
            expected.append(sum(stats[-windows:], F(0)))
        assert fractions(sums[tick]) == expected


def test_refused_window_ends_the_sums_over_groups_too() -> None:
    groups = noise_free_groups(EXAMPLE)
    assert [fractions(s) for s in run(GroupWindowSum(1, 2), [*groups[:2], None, groups[4], groups[5]])] == [
        None,
        [10],
        None,
        None,
        [20],
    ]


# Events


def test_jump_and_drop_compare_with_w_minus_1_windows_ago_and_count_from_delta_on() -> None:
    stream = [values(n) for n in (0, 0, 5, 4, 4, 0, 0)]
    signs = run(JumpDrop(1, 3, F(4)), stream)
    assert signs[:2] == [None, None]
    assert [int(s[0]) for s in signs[2:]] == [1, 1, 0, -1, -1]


def test_jump_is_decided_exactly() -> None:
    third = F(1, 3)
    assert run(JumpDrop(1, 2, third), [values(0), values(third)])[1].tolist() == [1]
    assert run(JumpDrop(1, 2, third), [values(third), values(0)])[1].tolist() == [-1]
    assert run(JumpDrop(1, 2, third + F(1, 10**9)), [values(0), values(third)])[1].tolist() == [0]


def test_low_signal_is_a_sum_of_delta_or_less() -> None:
    stream = [values(n, 9) for n in (1, 1, 1, 2, 0)]
    low = run(LowSignal(WindowSum(2, 2), F(2)), stream)
    assert low[0] is None
    assert [x.tolist() for x in low[1:]] == [[1, 0], [1, 0], [0, 0], [1, 0]]


def test_low_signal_takes_the_sums_over_groups_as_well() -> None:
    low = run(LowSignal(GroupWindowSum(1, 3, "average"), F(73, 3)), noise_free_groups(EXAMPLE))
    assert [x if x is None else x.tolist() for x in low] == [None, None, [1], [1], [1], [0], [0]]


def test_events_pause_with_the_release() -> None:
    assert run(JumpDrop(1, 2, F(1)), [values(0), None, values(9), values(9)])[1:3] == [None, None]
    assert run(LowSignal(WindowSum(1, 2), F(1)), [values(0), None, values(0), values(0)])[1:3] == [None, None]


def test_published_integers_drive_the_stages_without_the_release_stage() -> None:
    published = [np.array([3]), np.array([8])]
    items = [whole(v) for v in published]
    assert fractions(run(WindowSum(1, 2), items)[1]) == [11]
    assert run(JumpDrop(1, 2, F(5)), items)[1].tolist() == [1]


# Byte form, errors


def test_state_of_other_parameters_is_refused() -> None:
    stage = WindowSum(2, 3)
    data = stage.encode(stage.step(stage.initial(), values(1, 2))[0])
    for other in (WindowSum(1, 3), WindowSum(2, 4)):
        with pytest.raises(DataError, match="header does not fit"):
            other.decode(data)
    for broken in (b"", data[:-1], data + b"\0"):
        with pytest.raises(DataError):
            stage.decode(broken)
    window = (1).to_bytes(8, "little") * 4  # two zones: numerators and denominators
    four_windows = data[:12] + (4).to_bytes(4, "little") + window * 4
    with pytest.raises(DataError, match="length does not fit"):
        stage.decode(four_windows)
    assert stage.decode(data[:12] + (3).to_bytes(4, "little") + window * 3)
    zero_denominator = data[:-8] + bytes(8)
    with pytest.raises(DataError, match="denominators must be positive"):
        stage.decode(zero_denominator)


def test_history_never_holds_more_than_w_windows() -> None:
    stage = WindowSum(1, 2)
    state = stage.initial()
    for n in range(5):
        state, _ = stage.step(state, values(n))
    assert state.numerator.tolist() == [[3, 4]]
    assert fractions(total(QueryHistory(state.numerator, state.denominator))) == [7]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowSum(0, 1), "zones must be at least 1, got 0"),
        (lambda: WindowSum(1, 0), "windows must be at least 1, got 0"),
        (lambda: GroupWindowSum(1, 2, "mode"), "statistic must be one of average, median, got 'mode'"),
        (lambda: JumpDrop(1, 1, F(1)), "windows must be at least 2 and threshold positive, got 1 and 1"),
        (lambda: JumpDrop(1, 2, F(0)), "windows must be at least 2 and threshold positive, got 2 and 0"),
    ],
)
def test_parameters_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
