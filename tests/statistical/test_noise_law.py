"""The law of the keyed noise. Every test is a function of its fixed keys, so it cannot fail by chance later;
a right sampler would have failed at most once in a million choices of keys.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from stream.mechanisms.exact import Ints
from stream.mechanisms.inversion import words
from stream.mechanisms.noise import chain, discrete_laplace, pmf
from stream.mechanisms.noise_labels import Context, counts_digest, label
from tests.statistical.chi_square import one_sample, two_sample

F = Fraction
KEY = b"statistical".ljust(32, b".")
ALPHA = 1e-6
N = 1_000_000
EPSILONS = [F(4, 5), F(8, 100), F(3)]


def draws(epsilon: Fraction, n: int = N) -> Ints:
    return discrete_laplace(KEY, label("chi-square", epsilon), epsilon, n)


def chi_square(observed: Ints, epsilon: Fraction) -> float:
    """The p-value of Pearson's test against the exact law, tails joined so that cells expect 25 or more."""
    reach = int(np.log(25 / (len(observed) * pmf(epsilon, np.array([0]))[0])) / -float(epsilon))
    inner = pmf(epsilon, np.arange(-reach, reach + 1))
    tail = (1 - inner.sum()) / 2
    inner[[0, -1]] += tail
    return one_sample(observed, len(observed) * inner)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_draws_have_the_exact_law(epsilon: Fraction) -> None:
    assert chi_square(draws(epsilon), epsilon) > ALPHA


def test_draws_of_the_two_table_method_have_the_exact_law() -> None:
    """ε = 1/2000: in steps of 100, whose law is that of whole blocks of a geometric tail."""
    epsilon, step = F(1, 2000), 100
    observed = np.abs(draws(epsilon))
    a = np.exp(-float(epsilon))
    k = np.arange(1, 140) * step
    at_least = np.concatenate([[1], 2 * a**k / (1 + a)])
    expected = N * np.append(-np.diff(at_least), at_least[-1])
    cells = np.bincount(np.minimum(observed // step, 139), minlength=140)
    assert chi2.sf(((cells - expected) ** 2 / expected).sum(), 139) > ALPHA
    assert abs((draws(epsilon) > 0).sum() - (draws(epsilon) < 0).sum()) < 5 * np.sqrt(N)


def rounded_laplace(epsilon: Fraction) -> Ints:
    uniform = (words(KEY, label("rounded"), N).astype(np.float64) + 0.5) / 2.0**64 - 0.5
    continuous = -np.sign(uniform) * np.log1p(-2 * np.abs(uniform)) / float(epsilon)
    drawn: Ints = np.rint(continuous).astype(np.int64)
    return drawn


WRONG: dict[str, Callable[[Fraction], Ints]] = {
    "five percent too much": lambda epsilon: draws(epsilon / F("1.05")),
    "five percent too little": lambda epsilon: draws(epsilon / F("0.95")),
    "shifted by one": lambda epsilon: draws(epsilon) + 1,
    "magnitude without sign": lambda epsilon: np.abs(draws(epsilon)),
}


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_the_same_test_rejects_noise_that_is_wrong(wrong: str, epsilon: Fraction) -> None:
    assert chi_square(WRONG[wrong](epsilon), epsilon) < ALPHA


@pytest.mark.parametrize("epsilon", [F(4, 5), F(3)])
def test_the_same_test_rejects_rounded_continuous_noise(epsilon: Fraction) -> None:
    """Its law differs by about ε²/24 at 0: too little to be seen in 10^6 draws at 0.08."""
    assert chi_square(rounded_laplace(epsilon), epsilon) < ALPHA


def test_draws_agree_with_those_of_opendp() -> None:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    n = 200_000
    theirs = np.array(dp.m.make_laplace(*space, scale=1.25)([0] * n))
    assert two_sample(draws(F(4, 5), n), theirs) > ALPHA
    assert two_sample(draws(F(4, 5) / F("1.05"), n), theirs) < ALPHA
    assert two_sample(draws(F(4, 5) / F("0.95"), n), theirs) < ALPHA


# Three audiences


def step_pmf(finer: Fraction, coarser: Fraction, z: Ints) -> np.ndarray:
    a_1, a_2 = np.exp(-float(coarser)), np.exp(-float(finer))
    p_0 = ((1 - a_1) / (1 - a_2)) ** 2 * a_2 / a_1
    added: np.ndarray = p_0 * (z == 0) + (1 - p_0) * pmf(coarser, z)
    return added


def test_three_audiences_have_the_joint_law_of_the_chain() -> None:
    finest, middle, coarsest = F("1.2"), F("0.6"), F("0.3")
    context = Context("dbh", "occupancy", 0, 1, ("a",))
    noise = chain(KEY, context, counts_digest(np.zeros(1)), [coarsest, finest, middle], N)
    reach = 4
    grid = np.arange(-reach, reach + 1)
    x, y, z = np.meshgrid(grid, grid, grid, indexing="ij")
    law = pmf(finest, x) * step_pmf(finest, middle, y - x) * step_pmf(middle, coarsest, z - y)
    inside = np.ones(N, dtype=bool)
    code = np.zeros(N, dtype=np.int64)
    for epsilon in (finest, middle, coarsest):
        inside &= np.abs(noise[epsilon]) <= reach
        code = code * len(grid) + noise[epsilon] + reach
    cells = np.bincount(code[inside], minlength=len(grid) ** 3)
    expected = N * law.ravel()
    many = expected >= 25
    observed = np.append(cells[many], N - cells[many].sum())
    wanted = np.append(expected[many], N - expected[many].sum())
    assert chi2.sf(((observed - wanted) ** 2 / wanted).sum(), many.sum()) > ALPHA
    independent = N * (pmf(finest, x) * pmf(middle, y) * pmf(coarsest, z)).ravel()[many]
    assert ((cells[many] - independent) ** 2 / independent).sum() > 10 * chi2.isf(ALPHA, many.sum())


def test_each_audience_has_the_law_of_its_own_epsilon() -> None:
    context = Context("dbh", "occupancy", 5, 1, ("a",))
    noise = chain(KEY, context, counts_digest(np.zeros(1)), [F("0.3"), F("1.2"), F("0.6")], N)
    for epsilon, drawn in noise.items():
        assert chi_square(drawn, epsilon) > ALPHA
        assert chi_square(drawn, epsilon / F("1.05")) < ALPHA
        assert chi_square(drawn, epsilon / F("0.95")) < ALPHA
