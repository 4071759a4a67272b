"""The law of the discrete Gaussian noise. Functions of fixed keys, so that no test can fail by chance later; a right
sampler would have failed at most once in a million choices of keys.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from stream.mechanisms.exact import Ints
from stream.mechanisms.gaussian import discrete_gaussian, gaussian_chain
from stream.mechanisms.noise_labels import Context, counts_digest, label
from tests.statistical.chi_square import one_sample, two_sample

F = Fraction
KEY = b"gaussian".ljust(32, b".")
ALPHA = 1e-6
N = 1_000_000
VARIANCES = [F(1, 4), F(3), F("21.854") ** 2]


def pmf(variance: Fraction, reach: int) -> np.ndarray:
    """The exact law to the accuracy of a float, from -reach to reach."""
    z = np.arange(-reach - 400, reach + 401)
    weights = np.exp(-z * z / (2 * float(variance)))
    law: np.ndarray = (weights / weights.sum())[400:-400]
    return law


def draws(variance: Fraction, n: int = N) -> Ints:
    return discrete_gaussian(KEY, label("chi-square", variance), variance, n)


def chi_square(observed: Ints, variance: Fraction) -> float:
    """The p-value of Pearson's test against the exact law, tails joined so that cells expect 25 or more."""
    wide = pmf(variance, 400)
    reach = int((wide[400:] * len(observed) >= 25).sum()) - 1
    expected = len(observed) * wide[400 - reach : 401 + reach]
    expected[[0, -1]] += (len(observed) - expected.sum()) / 2
    return one_sample(observed, expected)


@pytest.mark.parametrize("variance", VARIANCES)
def test_draws_have_the_exact_law(variance: Fraction) -> None:
    assert chi_square(draws(variance), variance) > ALPHA


def rounded_normal(variance: Fraction) -> Ints:
    """As many normal draws, rounded: a law of variance σ² + 1/12."""
    rng = np.random.default_rng(3)
    drawn: Ints = np.rint(rng.normal(0, float(variance) ** 0.5, N)).astype(np.int64)
    return drawn


WRONG: dict[str, Callable[[Fraction], Ints]] = {
    "five percent too much": lambda variance: draws(variance * F("1.05") ** 2),
    "five percent too little": lambda variance: draws(variance * F("0.95") ** 2),
    "shifted by one": lambda variance: draws(variance) + 1,
    "magnitude without sign": lambda variance: np.abs(draws(variance)),
}


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("wrong", WRONG)
def test_the_same_test_rejects_noise_that_is_wrong(wrong: str, variance: Fraction) -> None:
    assert chi_square(WRONG[wrong](variance), variance) < ALPHA


@pytest.mark.parametrize("variance", VARIANCES[:2])
def test_the_same_test_rejects_rounded_normal_noise(variance: Fraction) -> None:
    assert chi_square(rounded_normal(variance), variance) < ALPHA


def test_draws_agree_with_those_of_opendp() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space, n, variance = (dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")), 100_000, F(9, 4)
    theirs = np.array(dp.m.make_gaussian(*space, scale=1.5)([0] * n))
    assert two_sample(draws(variance, n), theirs) > ALPHA
    assert two_sample(draws(variance * F("1.05") ** 2, n), theirs) < ALPHA
    assert two_sample(draws(variance * F("0.95") ** 2, n), theirs) < ALPHA


def test_each_audience_has_the_law_of_its_own_variance_and_shares_the_finer_noise() -> None:
    """The correlation of two members of the chain is σ_f/σ_c; of independent noise, 0 within 5 / √N."""
    context = Context("dbh", "occupancy", 5, 1, ("a",))
    finest, middle, coarsest = F(9), F(25), F(100)
    noise = gaussian_chain(KEY, context, counts_digest(np.zeros(1)), [coarsest, finest, middle], N)
    for variance, drawn in noise.items():
        assert chi_square(drawn, variance) > ALPHA
        assert chi_square(drawn, variance * F("1.05") ** 2) < ALPHA
        assert chi_square(drawn, variance * F("0.95") ** 2) < ALPHA
    for finer, coarser, wanted in ((finest, middle, 3 / 5), (middle, coarsest, 1 / 2), (finest, coarsest, 3 / 10)):
        assert abs(np.corrcoef(noise[finer], noise[coarser])[0, 1] - wanted) < 5 / N**0.5
    steps = [noise[middle] - noise[finest], noise[coarsest] - noise[middle]]
    assert abs(np.corrcoef(steps)[0, 1]) < 5 / N**0.5
    assert [chi_square(step, variance) > ALPHA for step, variance in zip(steps, (F(16), F(75)), strict=True)] == [
        True,
        True,
    ]
