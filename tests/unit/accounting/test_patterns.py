"""All patterns at once, against the single outcome and against the worked example."""

import itertools
from typing import Any

import numpy as np
import pytest

from stream.accounting.leakage.dependence import declared, factors
from stream.accounting.leakage.guard import pattern_factors, worst_factors

TRIPLE = declared(
    {"000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40}
)
ONES = np.array([1, 1, 1])


@pytest.mark.parametrize(
    ("target", "pattern", "factor"),
    [
        (0, (0, 0, 0), 3.74086680),
        (0, (0, 0, 1), 1.13341242),
        (0, (0, 1, 0), 1.51714524),
        (0, (0, 1, 1), 0.71354898),
        (0, (1, 0, 1), 0.0),
        (1, (0, 0, 0), 2.65137891),
        (1, (0, 0, 1), 0.94650727),
        (1, (1, 0, 0), 0.88993159),
        (1, (1, 0, 1), 0.55644343),
        (2, (0, 0, 0), 2.63411080),
        (2, (0, 1, 0), 0.91000537),
        (2, (1, 0, 0), 0.54540100),
        (2, (1, 1, 0), 0.25104343),
    ],
)
def test_worked_example(target: int, pattern: tuple[int, ...], factor: float) -> None:
    found = pattern_factors(TRIPLE, np.array([1, 0.5, 0.25]), ONES)
    assert found[(target, *pattern)] == pytest.approx(factor, abs=5e-9)


def test_every_pattern_equals_its_single_outcome_to_1e_12_on_random_models(seeded: Any) -> None:
    rng = seeded(4)
    for _ in range(300):
        k = int(rng.integers(1, 6))
        joint = rng.dirichlet(np.ones(2**k)).reshape((2,) * k)
        epsilon, queries = rng.uniform(0.01, 3, k), rng.integers(0, 4, k)
        table = pattern_factors(joint, epsilon, queries)
        for pattern in itertools.product((0, 1), repeat=k):
            place: tuple[slice | int, ...] = (slice(None), *pattern)
            column = table[place]
            if any(m > n for m, n in zip(pattern, queries, strict=True)):
                assert np.isnan(column).all()
            else:
                single = factors(joint, epsilon, queries, np.array(pattern))
                assert column == pytest.approx(single, rel=1e-12)


def test_the_worst_factor_is_the_largest_that_can_happen() -> None:
    table = pattern_factors(TRIPLE, np.array([1, 0.5, 0.25]), ONES)
    expected = [np.nanmax(table[j]) for j in range(3)]
    assert worst_factors(TRIPLE, np.array([1, 0.5, 0.25]), ONES) == pytest.approx(expected)


def test_the_worst_factor_never_falls_with_epsilon_or_with_another_attribute(seeded: Any) -> None:
    rng = seeded(5)
    for _ in range(200):
        joint = rng.dirichlet(np.full(8, 0.5)).reshape(2, 2, 2)
        epsilon = rng.uniform(0.05, 2, 3)
        base = worst_factors(joint, epsilon, ONES)
        more = worst_factors(joint, epsilon * np.array([1.5, 1, 1]), ONES)
        fewer = worst_factors(joint, epsilon, np.array([0, 1, 1]))
        assert (more >= base * (1 - 1e-12)).all()
        assert (fewer <= base * (1 + 1e-12)).all()


def test_two_releases_of_an_exclusive_or_are_the_worst() -> None:
    xor = declared({"000": 0.25, "011": 0.25, "101": 0.25, "110": 0.25})
    assert worst_factors(xor, np.full(3, 0.1), ONES).tolist() == [np.inf] * 3


def test_twelve_attributes_have_a_table(seeded: Any) -> None:
    joint = seeded(6).dirichlet(np.ones(4096)).reshape((2,) * 12)
    table = pattern_factors(joint, np.ones(12), np.ones(12, dtype=np.int64))
    assert table.shape == (12, *(2,) * 12)
