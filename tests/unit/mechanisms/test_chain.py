from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from stream.domains import Draw
from stream.errors import UsageError
from stream.mechanisms.exact import evaluate
from stream.mechanisms.inversion import bernoulli
from stream.mechanisms.noise import chain, discrete_laplace, keep_probability, pmf
from stream.mechanisms.noise_labels import Context

F = Fraction
KEY = b"k" * 32
DIGEST = b"d" * 32
CONTEXT = Context("dbh", "occupancy", 300_000_000, 1, ("a", "b"))
PAIRS = [(".1", "1", ".009214410780"), (".5", ".7", ".500162489918"), (".05", ".1", ".249843815081")]


@pytest.mark.parametrize(("coarser", "finer", "published"), [*PAIRS, ("1", "3", ".059892024545")])
def test_keep_probability_has_its_published_value(coarser: str, finer: str, published: str) -> None:
    assert float(evaluate(keep_probability(F(finer), F(coarser)), 40)) == pytest.approx(float(published), abs=6e-13)


@pytest.mark.parametrize(("coarser", "finer", "_"), PAIRS)
def test_finer_noise_plus_step_has_the_coarser_law(coarser: str, finer: str, _: str) -> None:
    z = np.arange(-900, 901)
    step = step_pmf(F(finer), F(coarser), z)
    both = np.convolve(pmf(F(finer), z), step)[900:-900]
    assert np.abs(both - pmf(F(coarser), z))[300:-300].max() < 1e-15


def test_each_coarser_value_is_that_of_the_next_finer_one_where_its_coin_says_so() -> None:
    n, epsilons = 400, [F("1"), F("0.9"), F("0.8"), F("0.7")]
    noise = chain(KEY, CONTEXT, DIGEST, epsilons, n)
    for finer, coarser in pairwise(epsilons):
        kept = bernoulli(
            KEY, CONTEXT.label(Draw.CHAIN_KEEP, finer, coarser, digest=DIGEST), keep_probability(finer, coarser), n
        )
        assert kept.sum() > n // 2
        assert (noise[coarser] == noise[finer])[kept].all()


def step_pmf(finer: Fraction, coarser: Fraction, z: np.ndarray) -> np.ndarray:
    p_0 = float(evaluate(keep_probability(finer, coarser), 40))
    law: np.ndarray = (1 - p_0) * pmf(coarser, z) + p_0 * (z == 0)
    return law


def joint(epsilons: list[Fraction], outputs: tuple[int, ...], count: int) -> float:
    """Density of the joint release of a descending noise chain around a true count."""
    chance = pmf(epsilons[0], np.array([outputs[0] - count]))[0]
    for (finer, coarser), (before, after) in zip(pairwise(epsilons), pairwise(outputs), strict=True):
        chance *= step_pmf(finer, coarser, np.array([after - before]))[0]
    return float(chance)


def test_joint_release_costs_a_coalition_its_finest_epsilon_exactly() -> None:
    epsilons = [F("1"), F("0.6"), F("0.3")]
    ratios = [
        np.log(joint(epsilons, outputs, 0) / joint(epsilons, outputs, 1)) for outputs in product(range(-6, 7), repeat=3)
    ]
    assert max(map(abs, ratios)) == pytest.approx(1, abs=1e-12)


def test_marginal_of_any_coalition_costs_its_finest_epsilon() -> None:
    epsilons = [F("1"), F("0.6"), F("0.3")]
    grid = np.arange(-14, 16)
    first, second = (step_pmf(*pair, grid[None, :] - grid[:, None]) for pair in pairwise(epsilons))
    steps = first[:, :, None] * second[None, :, :]
    table = {c: pmf(epsilons[0], grid - c)[:, None, None] * steps for c in (0, 1)}
    for x, y, w in ((0, 0, 0), (9, 14, 22), (29, 3, 12)):
        assert table[1][x, y, w] == pytest.approx(joint(epsilons, (x - 14, y - 14, w - 14), 1))
    for seen in (pair for n in (1, 2) for pair in combinations(range(3), n)):
        hidden = tuple(set(range(3)) - set(seen))
        inner = tuple(slice(8, -8) for _ in seen)
        ratio = np.log(table[0].sum(axis=hidden)[inner] / table[1].sum(axis=hidden)[inner])
        finest = float(max(epsilons[i] for i in seen))
        assert np.abs(ratio).max() == pytest.approx(finest, rel=0.02)


def test_noise_of_an_epsilon_does_not_depend_on_coarser_ones() -> None:
    alone = chain(KEY, CONTEXT, DIGEST, [F(1)], 100)
    more = chain(KEY, CONTEXT, DIGEST, [F("0.1"), F(1), F("0.5")], 100)
    assert (alone[F(1)] == more[F(1)]).all()
    assert (chain(KEY, CONTEXT, DIGEST, [F(1), F("0.5")], 100)[F("0.5")] == more[F("0.5")]).all()


def test_order_and_repetition_of_epsilons_do_not_matter() -> None:
    one = chain(KEY, CONTEXT, DIGEST, [F("0.1"), F(1), F("0.1")], 100)
    other = chain(KEY, CONTEXT, DIGEST, [F(1), F("0.1")], 100)
    assert one.keys() == other.keys()
    assert all((one[e] == other[e]).all() for e in one)


def test_coarser_value_repeats_the_finer_one_as_often_as_it_should() -> None:
    noise = chain(KEY, CONTEXT, DIGEST, [F(1), F(3)], 200_000)
    p_0 = 0.059892024545
    same = p_0 + (1 - p_0) * pmf(F(1), np.array([0]))[0]
    share = (noise[F(1)] == noise[F(3)]).mean()
    assert abs(share - same) < 5 * np.sqrt(same / 200_000)


def test_label_of_a_step_holds_both_epsilons() -> None:
    via_one = chain(KEY, CONTEXT, DIGEST, [F(1), F("0.1")], 1000)
    via_two = chain(KEY, CONTEXT, DIGEST, [F(2), F("0.1")], 1000)
    added_one, added_two = via_one[F("0.1")] - via_one[F(1)], via_two[F("0.1")] - via_two[F(2)]
    assert (added_one == added_two).mean() < 0.5


def test_finest_draw_is_the_discrete_laplace_of_its_label() -> None:
    expected = discrete_laplace(KEY, CONTEXT.label(Draw.CHAIN, F(1), digest=DIGEST), F(1), 20)
    assert (chain(KEY, CONTEXT, DIGEST, [F(1)], 20)[F(1)] == expected).all()


def test_no_epsilon_is_refused() -> None:
    with pytest.raises(UsageError, match="must not be empty"):
        chain(KEY, CONTEXT, DIGEST, [], 3)
