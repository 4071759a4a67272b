import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from stream.mechanisms.exact import exp, half_of_three_quarter_power, half_widths, ln, ln_of, ordered_sum


def decimal_exp(x: float) -> float:
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(x).exp())


def decimal_ln(x: float) -> float:
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(x).ln())


def test_exp_is_right_to_a_few_last_bits() -> None:
    x = np.concatenate([np.linspace(-699, 5, 2001), [-1e-12, 0.0, 1e-9, 0.34657, -0.34658]])
    expected = np.array([decimal_exp(v) for v in x])
    assert np.abs(exp(x) / expected - 1).max() < 2e-15


def test_exp_is_zero_where_floats_would_become_subnormal() -> None:
    assert exp(np.array([-700.001, -1e6, -np.inf])).tolist() == [0, 0, 0]


def test_ln_is_right_to_a_few_last_bits() -> None:
    x = np.concatenate([np.logspace(-280, 280, 1501), 1 + np.linspace(-1e-3, 1e-3, 50), [0.5, 2**0.5, 1.0]])
    expected = np.array([decimal_ln(v) for v in x])
    assert np.abs(ln(x) - expected).max() < 2e-13
    assert [ln_of(v) for v in x.tolist()] == ln(x).tolist()
    near = np.abs(x - 1) < 2e-3
    assert np.allclose(ln(x)[near], expected[near], rtol=4e-15, atol=0)


def test_last_bits_are_pinned_so_that_another_machine_would_show() -> None:
    x = np.linspace(-30, 3, 12)
    assert [v.hex() for v in exp(x)[[0, 5, 9]].tolist()] == EXP_BITS
    assert [v.hex() for v in ln(np.array([0.02, 1.7, 900.0])).tolist()] == LN_BITS


EXP_BITS = ["0x1.a56e0c2ac7f75p-44", "0x1.4875ca227ec38p-22", "0x1.97db0ccceb0afp-5"]
LN_BITS = ["-0x1.f4bd2b7ac1bafp+1", "0x1.0fae81914a991p-1", "0x1.b35a6f90bd69bp+2"]


@pytest.mark.parametrize(("n", "rounded"), [(0, 0), (1, 0), (81, 14), (625, 62), (2, 1), (16, 4), (10, 3)])
def test_half_of_three_quarter_power_rounds_ties_to_even(n: int, rounded: int) -> None:
    assert half_of_three_quarter_power(n) == rounded


def test_half_of_three_quarter_power_is_the_rounded_real_number() -> None:
    for n in range(1, 5000):
        with localcontext() as context:
            context.prec = 60
            real = Decimal(n) ** Decimal("0.75") / 2
        if math.isqrt(math.isqrt(n)) ** 4 != n:
            assert half_of_three_quarter_power(n) == round(real)


def test_ordered_sum_adds_halves_of_the_first_axis() -> None:
    values = np.array([1e16, 1.0, -1e16, 1.0, 3.0])
    assert ordered_sum(values) == ((1e16 + 1.0) + 3.0) + (1.0 - 1e16)
    table = np.arange(35.0).reshape(7, 5)
    assert ordered_sum(table).tolist() == table.sum(axis=0).tolist()


def test_half_widths_are_the_smallest_with_their_share() -> None:
    rng = np.random.default_rng(5)
    weights, centre = rng.random((30, 200)) ** 6, rng.integers(0, 30, 200)
    distance = np.abs(np.arange(30)[:, None] - centre)
    for level in (0.5, 0.9, 0.96):
        within = np.array([np.where(distance <= width, weights, 0).sum(axis=0) for width in range(30)])
        expected = (within < (level - 1e-6) * weights.sum(axis=0)).sum(axis=0)
        assert half_widths(weights, centre, level).tolist() == expected.tolist()


def test_half_width_is_zero_where_one_count_is_certain_and_ends_with_the_grid() -> None:
    certain = np.array([[0.0, 1.0, 0.0]]).T
    assert half_widths(certain, np.array([1]), 0.99).tolist() == [0]
    assert half_widths(certain, np.array([0]), 0.99).tolist() == [1]
    assert half_widths(np.ones((5, 1)), np.array([0]), 1.0).tolist() == [4]
