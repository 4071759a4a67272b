from dataclasses import replace
from fractions import Fraction
from math import floor
from random import Random

import numpy as np
import pytest

from stream.errors import DataError, UsageError
from stream.mechanisms.base import Groups
from stream.mechanisms.grouper import (
    GRID,
    SENSITIVITY,
    Grouper,
    GrouperState,
    GroupItem,
    deviation,
    grouper_epsilon,
    open_counts_digest,
    perturber_epsilon,
)
from stream.mechanisms.noise_labels import Context

F = Fraction
KEY = b"k" * 32
CONTEXT = Context("dbh", "occupancy", 300_000_000, 1, ("a", "b", "c"))
THETA_2 = Grouper(1, F(25, 2))
"""θ = 5 / ε_g = 2."""


def noise_free(*counts: int) -> GroupItem:
    zero = np.zeros(len(counts), np.int64)
    return GroupItem(np.array(counts), np.array(counts), zero, zero)


def run(grouper: Grouper, stream: list[int]) -> list[list[int]]:
    """Return the last group after each tick of a single zone, without noise."""
    state, seen = grouper.initial(), []
    for count in stream:
        state, [groups] = grouper.step(state, noise_free(count))
        seen.append(groups.noisy[0, : groups.size[0]].tolist())
    return seen


def dev(counts: list[int]) -> Fraction:
    mean = F(sum(counts), len(counts))
    return sum((abs(c - mean) for c in counts), F(0))


def test_theta_is_five_over_the_groupers_epsilon() -> None:
    assert grouper_epsilon(F(1)) + perturber_epsilon(F(1)) == 1
    assert Grouper(1, F(1)).threshold == 25 * GRID
    assert Grouper(1, F(3)).threshold == -(-GRID * 25 // 3)
    assert THETA_2.threshold == 2 * GRID


def test_stream_without_noise_is_grouped_as_in_the_worked_example() -> None:
    assert run(THETA_2, [5, 5, 6, 9, 10, 10, 10]) == [
        [5],
        [5, 5],
        [5, 5, 6],
        [9],
        [10],
        [10, 10],
        [10, 10, 10],
    ]


def test_failed_tick_is_closed_too_so_the_next_opens_a_group() -> None:
    assert run(THETA_2, [0, 0, 50, 50, 50]) == [[0], [0, 0], [50], [50], [50, 50]]


def test_deviation_equal_to_the_threshold_closes() -> None:
    assert dev([0, 2]) == 2
    assert run(THETA_2, [0, 2, 2]) == [[0], [2], [2]]
    assert run(Grouper(1, F(25) / F("2.001")), [0, 2, 2])[1] == [0, 2]


def test_comparison_is_signed() -> None:
    state, _ = THETA_2.step(THETA_2.initial(), noise_free(0))
    item = noise_free(100)._replace(test_noise=np.array([-(10**9)]))
    assert THETA_2.step(state, item)[1][0].size == 2
    below = replace(state, threshold=np.array([-(10**6)]))
    assert THETA_2.step(below, noise_free(0))[1][0].size == 1


def test_threshold_noise_is_taken_when_a_group_opens_and_kept_until_it_closes() -> None:
    opened, _ = THETA_2.step(THETA_2.initial(), noise_free(5)._replace(threshold_noise=np.array([77])))
    assert opened.threshold == 2 * GRID + 77
    later, _ = THETA_2.step(opened, noise_free(5)._replace(threshold_noise=np.array([-(10**9)])))
    assert later.threshold == 2 * GRID + 77
    closed, _ = THETA_2.step(later, noise_free(500))
    assert closed.threshold == 0
    reopened, _ = THETA_2.step(closed, noise_free(5)._replace(threshold_noise=np.array([-3])))
    assert reopened.threshold == 2 * GRID - 3


def test_tick_that_opens_a_group_is_not_tested() -> None:
    item = noise_free(5)._replace(test_noise=np.array([10**12]), threshold_noise=np.array([-(10**12)]))
    state, [groups] = THETA_2.step(THETA_2.initial(), item)
    assert groups.size == 1
    assert state.size == 1


def test_deviation_is_the_floor_of_its_exact_value() -> None:
    rng = Random(3)
    for n in (1, 2, 3, 7, 50, 288):
        counts = [rng.choice([0, rng.randrange(10), rng.randrange(1000)]) for _ in range(n)]
        rows = np.array([counts + [0] * (288 - n)])
        assert deviation(rows, np.array([n])).tolist() == [floor(GRID * dev(counts))]


def test_deviation_of_no_count_is_zero() -> None:
    assert deviation(np.zeros((2, 3), np.int64), np.array([0, 0])).tolist() == [0, 0]


@pytest.mark.parametrize("n", [2, 3, 5, 10, 50])
def test_one_count_changed_by_one_changes_the_deviation_by_less_than_two(n: int) -> None:
    rng = Random(n)
    changes = []
    for _ in range(300):
        base = [rng.choice([0, 1, 5, rng.randrange(40)]) for _ in range(n)] if rng.random() < 0.9 else [4] * n
        for i in range(n):
            rows = np.array([base, base])
            rows[1, i] += 1
            before, after = deviation(rows, np.array([n, n]))
            changes.append(abs(int(after) - int(before)))
    assert max(changes) <= SENSITIVITY
    assert abs(max(changes) - GRID * 2 * (1 - 1 / n)) <= 1


def test_zones_do_not_influence_each_other() -> None:
    rng = Random(11)
    streams = [[rng.randrange(rng.choice([1, 3, 20])) for _ in range(60)] for _ in range(5)]
    together = Grouper(5, F(5))
    state, seen = together.initial(), []
    for tick in zip(*streams, strict=True):
        state, [groups] = together.step(state, noise_free(*tick))
        seen.append([groups.noisy[z, : groups.size[z]].tolist() for z in range(5)])
    assert [list(one) for one in zip(*seen, strict=True)] == [run(Grouper(1, F(5)), stream) for stream in streams]


def test_groups_hold_noisy_values_and_the_state_true_ones() -> None:
    zero = np.zeros(1, np.int64)
    item = GroupItem(np.array([5]), np.array([-7]), zero, zero)
    state, [groups] = THETA_2.step(THETA_2.initial(), item)
    assert groups.noisy.tolist() == [[-7]]
    assert state.counts.tolist() == [[5]]


def test_closing_all_groups_ends_every_run() -> None:
    grouper = Grouper(3, F(1))
    state = walked(grouper, 9)
    assert state.size.any()
    closed = grouper.close_all(state)
    assert grouper.encode(closed) == grouper.encode(grouper.initial())
    _, [groups] = grouper.step(closed, noise_free(4, 4, 4))
    assert groups.size.tolist() == [1, 1, 1]


def walked(grouper: Grouper, ticks: int, seed: int = 5) -> GrouperState:
    rng, state = Random(seed), grouper.initial()
    for tick in range(ticks):
        state = stepped(grouper, state, tick, [rng.randrange(4) for _ in range(grouper.zones)])[0]
    return state


def stepped(grouper: Grouper, state: GrouperState, tick: int, counts: list[int]) -> tuple[GrouperState, Groups]:
    context = replace(CONTEXT, window=tick)
    rho, nu = grouper.draw(KEY, context, state, np.array(counts))
    after, [groups] = grouper.step(state, GroupItem(np.array(counts), np.array(counts) - 1, rho, nu))
    return after, groups


def test_state_survives_its_byte_form_at_every_step() -> None:
    grouper, rng = Grouper(3, F(2)), Random(8)
    plain, through = grouper.initial(), grouper.initial()
    for tick in range(80):
        counts = [rng.randrange(6) for _ in range(3)]
        plain, expected = stepped(grouper, plain, tick, counts)
        through, groups = stepped(grouper, grouper.decode(grouper.encode(through)), tick, counts)
        assert groups.size.tolist() == expected.size.tolist()
        assert groups.noisy.tolist() == expected.noisy.tolist()
        assert grouper.encode(plain) == grouper.encode(through)


def test_byte_form_has_no_trace_of_closed_groups() -> None:
    grouper = Grouper(2, F(25, 2))
    state, _ = grouper.step(grouper.initial(), noise_free(123_456, 5))
    state, _ = grouper.step(state, noise_free(5, 5))
    assert state.size.tolist() == [0, 2]
    assert (123_456).to_bytes(8, "little") not in grouper.encode(state)


@pytest.mark.parametrize("spoil", [lambda b: b[:-8], lambda b: b + bytes(8), lambda b: b"X" + b[1:], lambda _: b""])
def test_bytes_that_are_no_state_are_refused(spoil: object) -> None:
    grouper = Grouper(3, F(1))
    with pytest.raises(DataError, match="grouper state"):
        grouper.decode(spoil(grouper.encode(walked(grouper, 9))))  # type: ignore[operator]


def test_state_of_another_number_of_zones_is_refused() -> None:
    with pytest.raises(DataError, match="header"):
        Grouper(2, F(1)).decode(Grouper(3, F(1)).encode(Grouper(3, F(1)).initial()))


def test_noise_is_laplace_on_the_grid_at_twice_and_four_times_the_sensitivity() -> None:
    grouper = Grouper(20_000, F(5))
    context = replace(CONTEXT, zones=tuple(map(str, range(20_000))))
    rho, nu = grouper.draw(KEY, context, grouper.initial(), np.zeros(20_000, np.int64))
    assert np.abs(rho).mean() / (2 * SENSITIVITY) == pytest.approx(1, abs=0.05)
    assert np.abs(nu).mean() / (4 * SENSITIVITY) == pytest.approx(1, abs=0.05)
    assert abs(np.corrcoef(rho, nu)[0, 1]) < 0.05


def test_noise_changes_with_the_counts_and_with_the_open_groups() -> None:
    grouper = Grouper(3, F(1))
    state, counts = grouper.initial(), np.array([1, 2, 3])
    one = grouper.draw(KEY, CONTEXT, state, counts)
    assert [a.tolist() for a in one] == [a.tolist() for a in grouper.draw(KEY, CONTEXT, state, counts)]
    other_counts = grouper.draw(KEY, CONTEXT, state, np.array([1, 2, 4]))
    other_groups = grouper.draw(KEY, CONTEXT, grouper.step(state, noise_free(0, 0, 0))[0], counts)
    other_epsilon = Grouper(3, F(2)).draw(KEY, CONTEXT, state, counts)
    drawn = {tuple(v.tolist()) for pair in (one, other_counts, other_groups, other_epsilon) for v in pair}
    assert len(drawn) == 8


def test_digest_of_open_groups_reads_their_counts_and_sizes_only() -> None:
    grouper = Grouper(2, F(1, 10))
    state, _ = grouper.step(grouper.initial(), noise_free(3, 4))
    other_noise = replace(state, noisy=state.noisy + 1, threshold=state.threshold + 1)
    other_count = replace(state, counts=state.counts + np.array([[0], [1]]))
    assert open_counts_digest(state) == open_counts_digest(other_noise)
    assert open_counts_digest(state) != open_counts_digest(other_count)


def test_epsilon_too_small_for_the_grid_is_refused() -> None:
    Grouper(1, F(1, 20_000))
    with pytest.raises(UsageError, match="epsilon must be at least"):
        Grouper(1, F(1, 25_000))
