"""Prior differential privacy: exact leakages against the definition, Gaussian and group closed forms."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from stream.accounting.leakage import prior
from stream.accounting.leakage.prior import (
    Tuples,
    exact_leakage,
    exact_leakages,
    gaussian_leakages,
    group_leakage,
    tuples,
)
from stream.errors import UsageError

BINARY = [0, 1]
E = math.e


def pair(joint: list[list[float]], domains: tuple[Any, ...] = (BINARY, BINARY), scale: float = 1.0) -> Tuples:
    return tuples([list(d) for d in domains], joint, scale)


@pytest.mark.parametrize(
    ("joint", "leakage"),
    [
        ([[0.3, 0.2], [0.2, 0.3]], 1.185375903),
        ([[0.2, 0.3], [0.3, 0.2]], 0.814624097),
        ([[0.4, 0.1], [0.1, 0.4]], 1.569445196),
        ([[0.1, 0.4], [0.4, 0.1]], 0.430554804),
        ([[0.45, 0.05], [0.20, 0.30]], 1.549947988),
    ],
)
def test_two_binary_tuples(joint: list[list[float]], leakage: float) -> None:
    model = pair(joint)
    assert exact_leakage(model, 0) == pytest.approx(leakage, abs=5e-10)
    assert exact_leakage(model, 0, (1,)) == pytest.approx(1.0, abs=1e-12)


def test_the_first_value_is_its_formula() -> None:
    expected = 1 + math.log((0.4 + 0.6 * E) / (0.6 + 0.4 * E))
    assert exact_leakage(pair([[0.3, 0.2], [0.2, 0.3]]), 0) == pytest.approx(expected, rel=1e-14)


def test_perfect_correlation_adds_the_sensitivities() -> None:
    assert exact_leakage(pair([[0.5, 0], [0, 0.5]]), 0) == pytest.approx(2.0, abs=1e-12)
    five = pair([[0.5, 0], [0, 0.5]], ([0, 5], BINARY))
    assert [exact_leakage(five, i) for i in (0, 1)] == [pytest.approx(6.0, abs=1e-12)] * 2


def test_an_adversary_who_already_knows_learns_nothing() -> None:
    assert exact_leakage(pair([[0.5, 0], [0, 0.5]]), 0, (1,)) == 0.0


def test_a_maximum_between_the_sums_extremes_is_found() -> None:
    model = pair([[0.25, 0.25], [0.5, 0]], (BINARY, [0, 2]))
    assert exact_leakage(model, 0) == pytest.approx(1.0, abs=1e-12)
    tails = max(ratios(model, 0, (), [end]) for end in (-50.0, 50.0))
    assert tails == pytest.approx(0.433781, abs=5e-7)


def test_the_two_tails_of_an_asymmetric_pair_differ() -> None:
    model = pair([[0.45, 0.05], [0.20, 0.30]])
    plus, minus = (ratios(model, 0, (), [end]) for end in (50.0, -50.0))
    assert plus == pytest.approx(1.549947988, abs=5e-10)
    assert minus == pytest.approx(1.411565, abs=5e-7)


def test_where_a_domain_begins_makes_no_difference() -> None:
    joint = [[0.3, 0.2], [0.2, 0.3]]
    for start in (-7, 1e6, 2.0**40):
        moved = pair(joint, ([start, start + 1], BINARY))
        assert [exact_leakage(moved, i) for i in (0, 1)] == [pytest.approx(1.185375903, abs=5e-10)] * 2


def test_large_domains_are_worked_on_in_blocks(monkeypatch: pytest.MonkeyPatch, seeded: Any) -> None:
    model = tuples([[0, 1, 3], [0, 2, 7]], seeded(44).dirichlet(np.ones(9)).reshape(3, 3), 1.5)
    whole = exact_leakages(model)
    monkeypatch.setattr(prior, "_BLOCK", 4)
    assert exact_leakages(model) == whole


def test_all_twelve_adversaries_of_three_tuples() -> None:
    weights = np.array([1, 1, 2, 14, 7, 1, 1, 1]).reshape(2, 2, 2) / 28
    found = {(a.target, a.knows): a.leakage for a in exact_leakages(tuples([BINARY] * 3, weights, 1))}
    expected = {
        (0, ()): 0.538090, (0, (1,)): 0.702426, (0, (2,)): 0.663170, (0, (1, 2)): 1,
        (1, ()): 0.958318, (1, (0,)): 1.425547, (1, (2,)): 0.663170, (1, (0, 2)): 1,
        (2, ()): 1.032232, (2, (0,)): 1.425547, (2, (1,)): 0.806438, (2, (0, 1)): 1,
    }  # fmt: skip
    assert found == {key: pytest.approx(value, abs=5e-7) for key, value in expected.items()}
    assert [(a.target, a.knows) for a in exact_leakages(tuples([BINARY] * 3, weights, 1))] == list(expected)


def ratios(model: Tuples, target: int, knows: tuple[Any, ...], points: Iterable[float]) -> float:
    """Every |ln ratio| of Definition 2 at the given r, by summing over the unknown one state at a time."""
    n, scale = model.joint.ndim, model.scale
    worst = 0.0
    for known in itertools.product(*[range(len(model.values[a])) for a in knows]):
        densities = []
        for value in range(len(model.values[target])):
            terms = []
            for x in np.ndindex(*model.joint.shape):
                if x[target] == value and all(x[a] == v for a, v in zip(knows, known, strict=True)):
                    total = math.fsum(float(model.values[a][x[a]]) for a in range(n))
                    terms.append((float(model.joint[x]), total))
            mass = math.fsum(p for p, _ in terms)
            if mass > 0:
                densities.append(
                    [math.fsum(p * math.exp(-abs(r - s) / scale) for p, s in terms) / mass for r in points]
                )
        for one, other in itertools.permutations(densities, 2):
            worst = max(worst, *(math.log(a / b) for a, b in zip(one, other, strict=True)))
    return worst


def attainable(model: Tuples) -> list[float]:
    return sorted({math.fsum(s) for s in itertools.product(*[map(float, v) for v in model.values])})


def random_tuples(rng: np.random.Generator) -> Tuples:
    n = int(rng.integers(1, 4))
    domains = [rng.choice([0, 1, 2, 3, -1], size=int(rng.integers(2, 4)), replace=False).tolist() for _ in range(n)]
    shape = [len(d) for d in domains]
    joint = rng.dirichlet(np.full(math.prod(shape), 0.5)).reshape(shape)
    return tuples(domains, joint, float(rng.uniform(0.5, 3)), rng.choice([-1, 1, 2], n).tolist())


def test_leakages_equal_enumeration_to_1e_12_on_2000_random_adversaries(seeded: Any) -> None:
    rng = seeded(21)
    checked = 0
    while checked < 2000:
        model = random_tuples(rng)
        for a in exact_leakages(model):
            # known tuples shift r, so the sums of all tuples contain every breakpoint
            assert a.leakage == pytest.approx(ratios(model, a.target, a.knows, attainable(model)), rel=1e-12, abs=1e-12)
            checked += 1


def test_no_output_between_the_sums_says_more(seeded: Any) -> None:
    rng = seeded(22)
    for _ in range(40):
        model = random_tuples(rng)
        sums = attainable(model)
        grid = np.linspace(sums[0] - 5, sums[-1] + 5, 301)
        assert ratios(model, 0, (), grid) <= exact_leakage(model, 0) + 1e-12


def test_knowledge_makes_no_difference_to_independent_tuples() -> None:
    first, second = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.4])
    model = tuples([[0, 1, 4], [0, 2]], np.outer(first, second), 2.0)
    assert [exact_leakage(model, 0, k) for k in ((), (1,))] == pytest.approx([2.0, 2.0], abs=1e-12)


def test_no_adversary_learns_more_than_group_privacy_allows(seeded: Any) -> None:
    rng = seeded(23)
    for _ in range(100):
        model = random_tuples(rng)
        for a in exact_leakages(model):
            moved = [i for i in range(model.joint.ndim) if i not in a.knows]
            assert a.leakage <= sum(np.ptp(model.values[i]) for i in moved) / model.scale + 1e-12


def test_weights_are_a_linear_query() -> None:
    joint = [[0.3, 0.2], [0.2, 0.3]]
    weighted = tuples([BINARY, BINARY], joint, 1, [2, -1])
    assert exact_leakage(weighted, 0) == exact_leakage(tuples([[0, 2], [0, -1]], joint, 1), 0)


def test_gaussian_tuples_have_the_closed_form() -> None:
    sigma = [[1, 0.5, -0.3], [0.5, 2, 0.4], [-0.3, 0.4, 1.5]]
    found = {(a.target, a.knows): a.leakage for a in gaussian_leakages(sigma, 2, 1.5)}
    expected = {
        (0, ()): 1.6, (0, (1,)): 0.723810, (0, (2,)): 2.156028,
        (1, ()): 1.933333, (1, (0,)): 1.752381, (1, (2,)): 1.741784,
        (2, ()): 1.422222, (2, (0,)): 1.853428, (2, (1,)): 0.957746,
    }  # fmt: skip
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=5e-7)
    for key in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        assert found[key] == pytest.approx(4 / 3, rel=1e-12)


def test_a_gaussian_tuple_that_the_others_settle_leaks_nothing_more() -> None:
    found = {(a.target, a.knows): a.leakage for a in gaussian_leakages([[1, 1], [1, 1]], 1, 1)}
    assert found == {(0, ()): 2.0, (0, (1,)): 0.0, (1, ()): 2.0, (1, (0,)): 0.0}


@pytest.mark.parametrize(
    ("group", "leakage"),
    [
        ((5, 0.5, 0.3, 0.5), 1.535885),
        ((5, 0.9, 0.3, 0.5), 2.311184),
        ((10, 0.5, 0.3, 0.1), 0.554260),
        ((20, 0.8, 0.5, 0.1), 1.619544),
    ],
)
def test_group_values(group: tuple[int, float, float, float], leakage: float) -> None:
    assert group_leakage(*group) == pytest.approx(leakage, abs=5e-7)


@pytest.mark.parametrize(("rho", "p"), [(0.0, 0.3), (0.4, 0.1), (0.7, 0.8), (1.0, 0.5)])
def test_the_group_form_equals_the_exact_leakage_of_its_joint_distribution(rho: float, p: float) -> None:
    size, epsilon = 6, 0.7
    q = (p * (1 - rho), p + rho * (1 - p))
    joint = np.empty((2,) * size)
    for x in np.ndindex(*joint.shape):
        others = sum(x[1:])
        joint[x] = (p if x[0] else 1 - p) * q[x[0]] ** others * (1 - q[x[0]]) ** (size - 1 - others)
    exact = exact_leakage(tuples([BINARY] * size, joint, 1 / epsilon), 0)
    assert group_leakage(size, rho, p, epsilon) == pytest.approx(exact, rel=1e-12)


def test_a_group_of_one_or_without_correlation_pays_epsilon() -> None:
    assert group_leakage(1, 0.9, 0.3, 0.5) == group_leakage(7, 0.0, 0.3, 0.5) == pytest.approx(0.5)
    assert group_leakage(7, 1.0, 0.3, 0.5) == pytest.approx(3.5)


@pytest.mark.parametrize(
    ("arguments", "entry"),
    [
        (([BINARY, BINARY], [[0.5, 0.5], [0.5]], 1), r"joint\[1\]"),
        (([BINARY, BINARY], [[0.5, 0.5], [0.1, 0.5]], 1), "joint must sum"),
        (([BINARY, BINARY], [[0.5, 0.5], [-0.1, 0.1]], 1), r"joint\[1\]\[0\]"),
        (([BINARY, [1, 1]], [[0.25] * 2] * 2, 1), r"domains\[1\]"),
        (([BINARY, [1, "x"]], [[0.25] * 2] * 2, 1), r"domains\[1\]\[1\]"),
        (([], 1.0, 1), "domains"),
        (([BINARY], [0.5, 0.5], 0), "scale"),
        (([BINARY], [0.5, 0.5], 1, [1, 2]), "weights"),
        (([[0]] * 13, 1, 1), "domains must be of 1 to 12 tuples, got 13"),
        (
            ([[0, 1e10], BINARY], [[0.25] * 2] * 2, 1),
            r"domains\[1\] must have values whose differences, times their weight",
        ),
    ],
)
def test_a_malformed_model_names_its_entry(arguments: tuple[Any, ...], entry: str) -> None:
    with pytest.raises(UsageError, match=entry):
        tuples(*arguments)


@pytest.mark.parametrize(
    ("covariance", "entry"),
    [
        ([[1, 0.5], [0.4, 1]], r"covariance\[0\]\[1\]"),
        ([[1, 2], [2, 1]], "semidefinite"),
        ([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]], "its correlations have eigenvalue"),
        ([[1, 2]], "covariance"),
        ([], "covariance"),
        ([[0] * 17] * 17, "covariance must be of 1 to 16 tuples, got 17"),
        ([[-1]], "semidefinite"),
        ([[0, 0.1], [0.1, 1]], r"covariance\[0\]\[1\] must be at most 0"),
    ],
)
def test_a_malformed_covariance_names_its_entry(covariance: list[Any], entry: str) -> None:
    with pytest.raises(UsageError, match=entry):
        gaussian_leakages(covariance, 1, 1)


def test_a_tuple_that_is_certain_leaks_nothing_of_the_others() -> None:
    alone = {(each.target, each.knows): each.leakage for each in gaussian_leakages([[0, 0], [0, 1]], 1, 1)}
    assert alone == {(0, ()): 0.0, (0, (1,)): 0.0, (1, ()): 1.0, (1, (0,)): 1.0}


def test_a_leakage_is_not_negative_where_the_others_move_against_a_tuple() -> None:
    found = gaussian_leakages([[1, -0.9], [-0.9, 1]], 1, 1, weights=[1, 3])
    assert found[0].leakage == pytest.approx(abs(1 - 3 * 0.9))
