"""One chain of Gaussian noise: what is shared, what its labels hold, and how near sums are to the law."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from stream.domains import Draw
from stream.errors import UsageError
from stream.mechanisms.gaussian import (
    STEP_GAP,
    alike,
    discrete_gaussian,
    gaussian_chain,
    half_width_95,
    sum_half_width_95,
)
from stream.mechanisms.noise_labels import Context
from stream.mechanisms.noise_parameters import NoiseParameter, gaussian_noise, laplace_noise, noise_chain

F = Fraction
KEY = b"k" * 32
DIGEST = b"d" * 32
CONTEXT = Context("dbh", "occupancy", 300_000_000, 1, ("a", "b"))


def law(variance: Fraction, reach: int) -> np.ndarray:
    z = np.arange(-reach, reach + 1)
    weights = np.exp(-z * z / (2 * float(variance)))
    probabilities: np.ndarray = weights / weights.sum()
    return probabilities


def law_of_sum(variances: list[Fraction], reach: int) -> np.ndarray:
    """By direct convolution."""
    total = np.ones(1)
    for variance in variances:
        total = np.convolve(total, law(variance, reach))
    middle = len(total) // 2
    return total[middle - reach : middle + reach + 1]


def gap(one: Fraction, other: Fraction) -> float:
    """The largest |ln ratio| between the law of a sum and that of one draw, within six standard deviations."""
    reach = int(6 * float(one + other) ** 0.5)
    ratio = (
        law_of_sum([one, other], 4 * reach)[3 * reach : -3 * reach]
        / law(one + other, 4 * reach)[3 * reach : -3 * reach]
    )
    return float(np.abs(np.log(ratio)).max())


@pytest.mark.parametrize(("one", "other"), [("2.5", "2.5"), ("1.3", "33"), ("400", "1.26"), ("477.6", "900")])
def test_sum_of_two_is_as_near_to_one_draw_as_is_stated(one: str, other: str) -> None:
    assert alike(F(one), F(other))
    assert gap(F(one), F(other)) <= STEP_GAP


@pytest.mark.parametrize(("one", "other"), [("0.5", "0.5"), ("400", "0.3"), ("1", "1")])
def test_the_same_comparison_sees_sums_that_are_not_alike(one: str, other: str) -> None:
    assert not alike(F(one), F(other))
    assert gap(F(one), F(other)) > STEP_GAP


def test_stated_gap_follows_from_the_formula_at_the_shortest_step_allowed() -> None:
    eta = 2 * sum(np.exp(-2 * np.pi**2 * 1.25 * m * m) for m in (1, 2, 3))
    assert -np.log1p(-eta) + 3 * eta < STEP_GAP


def test_each_coarser_value_is_that_of_the_next_finer_one_plus_a_draw_of_the_difference() -> None:
    variances = [F(100), F(144), F(400)]
    noise = gaussian_chain(KEY, CONTEXT, DIGEST, variances, 50)
    assert (
        noise[F(100)] == discrete_gaussian(KEY, CONTEXT.label(Draw.GAUSSIAN, F(100), digest=DIGEST), F(100), 50)
    ).all()
    for finer, coarser in pairwise(variances):
        step = discrete_gaussian(
            KEY, CONTEXT.label(Draw.GAUSSIAN_ADD, finer, coarser, digest=DIGEST), coarser - finer, 50
        )
        assert (noise[coarser] == noise[finer] + step).all()


def test_noise_of_a_variance_does_not_depend_on_coarser_ones_or_on_order_and_repetition() -> None:
    alone = gaussian_chain(KEY, CONTEXT, DIGEST, [F(100)], 100)
    more = gaussian_chain(KEY, CONTEXT, DIGEST, [F(400), F(100), F(400)], 100)
    assert (alone[F(100)] == more[F(100)]).all()
    assert more.keys() == {F(100), F(400)}
    assert (more[F(400)] == gaussian_chain(KEY, CONTEXT, DIGEST, [F(100), F(400)], 100)[F(400)]).all()


@pytest.mark.parametrize(
    "other",
    [
        replace(CONTEXT, site="x"),
        replace(CONTEXT, release="x"),
        replace(CONTEXT, window=0),
        replace(CONTEXT, attempt=2),
        replace(CONTEXT, zones=("level 1", "a", "b")),
        replace(CONTEXT, suffix="/day 1"),
    ],
)
def test_all_of_a_context_and_what_a_day_adds_to_it_changes_every_step(other: Context) -> None:
    one, two = (gaussian_chain(KEY, context, DIGEST, [F(400), F(900)], 200) for context in (CONTEXT, other))
    assert (one[F(400)] != two[F(400)]).mean() > 0.5
    assert (one[F(900)] - one[F(400)] != two[F(900)] - two[F(400)]).mean() > 0.5


def test_label_of_a_step_holds_both_variances() -> None:
    """100 to 500 and 400 to 800 are steps of the same size."""
    one = gaussian_chain(KEY, CONTEXT, DIGEST, [F(100), F(500)], 200)
    two = gaussian_chain(KEY, CONTEXT, DIGEST, [F(400), F(800)], 200)
    assert (one[F(500)] - one[F(100)] != two[F(800)] - two[F(400)]).mean() > 0.5


def test_variances_too_near_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match=r"so far apart .* got 400 and 401"):
        gaussian_chain(KEY, CONTEXT, DIGEST, [F(400), F(401)], 3)
    assert len(gaussian_chain(KEY, CONTEXT, DIGEST, [F(400), F(402)], 3)) == 2


def test_no_variance_is_refused() -> None:
    with pytest.raises(UsageError, match="must not be empty"):
        gaussian_chain(KEY, CONTEXT, DIGEST, [], 3)


@pytest.mark.parametrize(("variance", "n"), [("0.3", 2), ("1", 5), ("2.5", 2), ("2.5", 64), ("477.6", 12)])
def test_half_width_of_a_sum_keeps_95_percent_and_is_not_idle(variance: str, n: int) -> None:
    width, reach = sum_half_width_95(F(variance), n), int(12 * (n * float(F(variance))) ** 0.5) + 4
    law_n = law_of_sum([F(variance)] * n, reach)
    beyond = [law_n[: reach - w].sum() + law_n[reach + w + 1 :].sum() for w in (width, width - 2)]
    assert beyond[0] <= 0.05
    assert beyond[1] > (0.05 if F(variance) >= F(5, 2) else 0.004)


def test_half_width_of_one_draw_is_the_exact_one() -> None:
    assert sum_half_width_95(F(400), 1) == half_width_95(F(400))


# Either kind behind one name


def test_chain_of_either_kind_is_found_by_its_parameters() -> None:
    gaussians = noise_chain(KEY, CONTEXT, DIGEST, [gaussian_noise(F(400)), gaussian_noise(F(900))], 5)
    assert gaussians[gaussian_noise(F(900))].tolist() == (
        gaussian_chain(KEY, CONTEXT, DIGEST, [F(400), F(900)], 5)[F(900)].tolist()
    )
    (laplace,) = noise_chain(KEY, CONTEXT, DIGEST, [laplace_noise(F(1))], 5)
    assert laplace == laplace_noise(F(1))


@pytest.mark.parametrize("parameters", [[], [laplace_noise(F(1)), gaussian_noise(F(1))]])
def test_no_chain_joins_kinds_of_noise(parameters: list[NoiseParameter]) -> None:
    with pytest.raises(UsageError, match="of one kind"):
        noise_chain(KEY, CONTEXT, DIGEST, parameters, 5)


def test_what_is_known_of_a_noise_follows_from_its_kind() -> None:
    gaussian, laplace = gaussian_noise(F(400)), laplace_noise(F(1, 4))
    assert (gaussian.scale, gaussian.deviation, gaussian.inverse_scale, gaussian.half_width_95) == (20, 20, 1 / 20, 39)
    assert (laplace.scale, laplace.inverse_scale, laplace.half_width_95) == (4, 1 / 4, 12)
    assert laplace.epsilon == F(1, 4)
    with pytest.raises(UsageError, match="laplace where a pure epsilon is needed, got gaussian"):
        assert gaussian.epsilon


def test_noise_that_cannot_be_made_is_refused_when_it_is_named() -> None:
    with pytest.raises(UsageError, match="variance"):
        gaussian_noise(F(0))
    with pytest.raises(UsageError, match="epsilon"):
        laplace_noise(F(0))
