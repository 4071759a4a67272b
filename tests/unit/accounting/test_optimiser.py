"""Both problems to their global optimum: worked values, random feasible points, brute-force grids."""

import itertools
import math
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream.accounting.leakage.dependence import declared
from stream.accounting.leakage.information import Channel, attribute_curve, attribute_information, channel
from stream.accounting.leakage.optimiser import CELLS, Curve, Objective, _convolve, maximise_epsilon, optimise
from stream.errors import UsageError
from tests.unit.accounting.closed_forms import limit_information

TRIPLE = declared(
    {"000": 0.20, "001": 0.05, "010": 0.08, "011": 0.07, "100": 0.06, "101": 0.09, "110": 0.05, "111": 0.40}
)
ONES, EVEN = np.array([1, 1, 1]), np.ones(3)
OBJECTIVES: list[Objective] = ["releases", "epsilon"]
LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("budget", "p", "epsilon"),
    [
        (0.05, (0.0202, 0.0757, 0.0306), None),
        (0.2, (0.1395, 0.1907, 0.1469), (0.1502, 0.2116, 0.1588)),
        (0.4, (0.2798, 0.3256, 0.2838), (0.3282, 0.3939, 0.3337)),
    ],
)
def test_expected_releases_reproduce_the_worked_values(
    budget: float, p: tuple[float, ...], epsilon: tuple[float, ...] | None
) -> None:
    best = optimise(TRIPLE, ONES, EVEN, budget=budget)
    assert epsilon is None or best.epsilon == pytest.approx(epsilon, abs=5e-5)
    assert 1 - np.exp(-best.epsilon) == pytest.approx(p, abs=5e-5)
    assert best.leakage_total == pytest.approx(budget, rel=1e-9)
    assert best.leakage_total <= budget * (1 + 1e-12)
    assert best.objective == best.expected_releases
    assert best.objective <= best.upper_bound <= best.objective * (1 + 1e-9)


@pytest.mark.parametrize(("budget", "value"), [(0.05, 0.1339), (0.2, 0.5584), (0.4, 1.2183)])
def test_the_sum_of_epsilons_goes_to_one_attribute(budget: float, value: float) -> None:
    best = optimise(TRIPLE, ONES, EVEN, budget=budget, objective="epsilon", cap=5.0)
    assert best.objective == pytest.approx(value, abs=5e-5)
    assert best.epsilon.tolist() == [0.0, pytest.approx(value, abs=5e-5), 0.0]
    assert best.objective <= best.upper_bound <= best.objective * 1.002


def test_bounds_of_the_sum_of_epsilons_are_those_of_the_worked_example() -> None:
    best = optimise(TRIPLE, ONES, EVEN, budget=0.2, objective="epsilon", cap=5.0)
    assert best.upper_bound == pytest.approx(0.5589, abs=5e-5)
    budget = np.array([0.2])
    alone = [float(Curve(channel(TRIPLE), i, 1, 1.0, 5.0).inverse(budget)[0][0]) for i in range(3)]
    assert alone == pytest.approx([0.5293, 0.5584, 0.5231], abs=5e-5)


def test_the_s_shaped_trio_of_the_worked_example() -> None:
    """Its bound is taken at B + 3 cells of the budget; B + 2 are enough, so the one here is lower."""
    model, weights = s_shaped_channel(), np.array([1.0] * 3 + [0.0] * 6)
    epsilon, upper = maximise_epsilon(model, np.ones(9, dtype=np.int64), weights, budget=0.3, cap=5.0)
    assert float(weights @ epsilon) == pytest.approx(3.1249, abs=5e-5)
    highs = [
        Curve(model, i, 1, 1.0, 5.0).inverse(np.arange(CELLS + 1, dtype=np.float64) * (0.3 / CELLS))[1]
        for i in range(3)
    ]
    _, at_three_more = _convolve(highs, CELLS + 3)
    assert at_three_more == pytest.approx(3.1292, abs=1e-4)
    assert float(weights @ epsilon) <= upper <= at_three_more


def true_information(joint: NDArray[Any], epsilon: NDArray[Any], queries: NDArray[Any]) -> Decimal:
    """Sum of I(X_j; M_i) over all i and j from its definition, in 120 digits."""
    with localcontext(Context(prec=120)):
        k, total = joint.ndim, Decimal(0)
        mass = {x: Decimal(float(joint[x])) for x in np.ndindex(joint.shape)}
        whole = sum(mass.values())
        for i, j in itertools.product(range(k), repeat=2):
            p = 1 - (-Decimal(float(epsilon[i])) * int(queries[i])).exp()
            table = {cell: Decimal(0) for cell in itertools.product((0, 1), repeat=2)}
            for pattern, share in mass.items():
                hit = p if pattern[i] else Decimal(0)
                table[pattern[j], 1] += share / whole * hit
                table[pattern[j], 0] += share / whole * (1 - hit)
            for (x, m), share in table.items():
                if share > 0:
                    alone = (table[x, 0] + table[x, 1]) * (table[0, m] + table[1, m])
                    total += share * (share / alone).ln()
        return total


HARD = {
    "worked example": (TRIPLE, ONES),
    "many queries": (declared({"00": 0.3, "01": 0.2, "10": 0.1, "11": 0.4}), np.array([1000, 1])),
    "hardly dependent": (declared({"00": 0.25, "01": 0.25, "10": 0.25 - 1e-7, "11": 0.25 + 1e-7}), np.array([1, 1])),
    "hardly ever released": (declared({"00": 0.5, "01": 0.5 - 2e-12, "10": 1e-12, "11": 1e-12}), np.array([1, 1])),
    "hardly ever sensitive": (declared({"00": 1e-12, "01": 2e-12, "10": 1e-12, "11": 1 - 4e-12}), np.array([2, 1])),
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(
    "budget", [0.1, 1e-12, 1e-100, pytest.param(1e-6, marks=LONG), pytest.param(1e-15, marks=LONG)]
)
def test_no_budget_is_too_small_to_be_kept_and_used(name: str, budget: float, objective: Objective) -> None:
    joint, queries = HARD[name]
    best = optimise(joint, queries, np.ones(joint.ndim), budget=budget, objective=objective, cap=5.0)
    used = float(true_information(joint, best.epsilon, queries) / Decimal(budget))
    assert used <= 1 + 1e-9
    assert used >= 1 - 1e-6 or (best.epsilon == 5.0).all()
    assert best.leakage_total == pytest.approx(used * budget, rel=1e-9)
    assert best.objective <= best.upper_bound <= best.objective * (1.01 if objective == "epsilon" else 1 + 1e-6)


def test_without_a_cap_the_sum_is_unbounded_once_one_attribute_fits_whole() -> None:
    least = float(limit_information(TRIPLE).min())
    below = optimise(TRIPLE, ONES, EVEN, budget=least * 0.999, objective="epsilon")
    above = optimise(TRIPLE, ONES, EVEN, budget=least * 1.001, objective="epsilon")
    assert math.isfinite(below.objective)
    assert math.isfinite(below.upper_bound)
    assert (above.objective, above.upper_bound) == (math.inf, math.inf)
    assert above.leakage_total <= least * 1.001 * (1 + 1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_budget_for_everything_releases_everything(objective: Objective) -> None:
    total = float(limit_information(TRIPLE).sum())
    assert optimise(TRIPLE, ONES, EVEN, budget=total * 1.01, objective=objective).epsilon.tolist() == [math.inf] * 3
    capped = optimise(TRIPLE, ONES, EVEN, budget=total, objective=objective, cap=0.7)
    assert capped.epsilon.tolist() == [0.7] * 3
    assert capped.upper_bound == pytest.approx(capped.objective, rel=1e-12)


def random_problem(rng: np.random.Generator) -> tuple[Any, ...]:
    k = int(rng.integers(1, 5))
    joint = rng.dirichlet(np.full(2**k, rng.choice([0.3, 1.0]))).reshape((2,) * k)
    queries, weights = rng.integers(1, 4, k), rng.choice([0.5, 1.0, 2.0], k)
    cap = float(rng.choice([0.3, 1.0, 4.0]))
    full = attribute_information(joint, np.full(k, cap), queries).sum()
    return joint, queries, weights, cap, float(rng.uniform(0.05, 0.9) * full)


def feasible_points(rng: np.random.Generator, problem: tuple[Any, ...], number: int) -> NDArray[Any]:
    """Random points scaled onto the budget along their ray (in p) or cut off at random."""
    joint, queries, _, cap, budget = problem
    model = channel(joint)
    k = joint.ndim
    direction = rng.uniform(0, 1, (number, k)) ** rng.choice([0.3, 1, 4, 12], (number, 1))
    direction *= rng.uniform(0, 1, (number, k)) < rng.choice([0.4, 1.0], (number, 1))
    low, high = np.zeros(number), np.ones(number)
    for _ in range(40):
        middle = (low + high) / 2
        p = -np.expm1(-queries * cap * direction * middle[:, None])
        fits = sum(attribute_curve(model, i, p[:, i]) for i in range(k)) <= budget
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    points: NDArray[Any] = cap * direction * low[:, None]
    return points


@pytest.mark.parametrize("problems", [4, pytest.param(20, marks=LONG)])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_optimum_is_below_any_of_500_feasible_points(objective: Objective, problems: int, seeded: Any) -> None:
    rng = seeded(19)
    for _ in range(problems):
        problem = random_problem(rng)
        joint, queries, weights, cap, budget = problem
        best = optimise(joint, queries, weights, budget=budget, objective=objective, cap=cap)
        points = feasible_points(rng, problem, 500)
        if objective == "releases":
            values = (-np.expm1(-queries * points)) @ (weights * channel(joint).release)
        else:
            values = points @ weights
        assert best.objective >= values.max() * (1 - 1e-9)
        assert best.upper_bound >= values.max()
        assert best.leakage_total <= budget * (1 + 1e-12)
        assert (best.epsilon <= cap).all()
        assert best.upper_bound <= best.objective * (1.01 if objective == "epsilon" else 1 + 1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_optima_match_brute_force_grids(objective: Objective, seeded: Any) -> None:
    rng = seeded(20)
    for _ in range(6):
        joint = rng.dirichlet(np.ones(4)).reshape(2, 2)
        cap = 2.0
        model, axis = channel(joint), np.linspace(0, cap, 801)
        p = -np.expm1(-axis)
        spent = np.add.outer(attribute_curve(model, 0, p), attribute_curve(model, 1, p))
        worth = [axis, axis] if objective == "epsilon" else [model.release[0] * p, model.release[1] * p]
        budget = float(spent[-1, -1]) * 0.4
        grid = np.where(spent <= budget, np.add.outer(*worth), -1.0).max()
        best = optimise(joint, np.array([1, 1]), np.ones(2), budget=budget, objective=objective, cap=cap)
        step = 2 * cap / 800
        assert grid <= best.objective * (1 + 1e-12) <= grid + step
        assert best.upper_bound >= grid


@pytest.mark.parametrize("problems", [3, pytest.param(6, marks=LONG)])
def test_the_bound_of_the_sum_of_epsilons_is_above_every_vertex_and_its_answer_not_below(
    problems: int, seeded: Any
) -> None:
    """Vertices: all attributes at 0 or the cap but one, which takes what is left."""
    rng = seeded(32)
    for _ in range(problems):
        joint, queries, weights, cap, budget = random_problem(rng)
        model, k = channel(joint), joint.ndim
        epsilon, upper = maximise_epsilon(model, queries, weights, budget=budget, cap=cap)
        best = 0.0
        for others in itertools.product((0.0, cap), repeat=k - 1):
            for j in range(k):
                low, high = 0.0, cap
                for _ in range(60):
                    point = np.insert(others, j, (low + high) / 2)
                    fits = attribute_information(joint, point, queries).sum() <= budget
                    low, high = (point[j], high) if fits else (low, point[j])
                point[j] = low
                if attribute_information(joint, point, queries).sum() <= budget:
                    best = max(best, float(weights @ point))
        assert weights @ epsilon >= best * (1 - 1e-12)
        assert upper >= best


def s_shaped_channel() -> Channel:
    """Three attributes alike, released nine times in ten, each weakly dependent on six others."""
    k = 9
    given = np.full((k, k, 2), 0.5)
    given[:3] = 0.9
    for i in range(3):
        given[i, i] = (0.0, 1.0)
        given[i, 3:] = (0.95, 0.85)
    release = np.array([0.9] * 3 + [0.5] * 6)
    return Channel(release, given - release[:, None, None], np.column_stack([1 - release, release]))


def test_at_a_vertex_attributes_stand_exactly_at_the_cap() -> None:
    joint = np.array([7, 9, 8, 5, 9, 9, 9, 1]).reshape(2, 2, 2) / 57
    best = optimise(joint, ONES, EVEN, budget=0.255, objective="epsilon", cap=0.5)
    assert best.epsilon.tolist() == [0.5, pytest.approx(0.240374, abs=1e-6), 0.0]
    assert best.leakage_total == pytest.approx(0.255, rel=1e-12)


def test_beside_a_capped_attribute_the_rest_of_the_budget_is_used_to_the_last() -> None:
    """The dear attribute goes to its cap; the other two share, as their informations are convex there."""
    model, cap = s_shaped_channel(), 0.5
    at_cap, at_share = (float(attribute_curve(model, 0, np.array(-math.expm1(-e)))) for e in (cap, 0.31))
    weights = np.array([10.0, 1.0, 1.0] + [0.0] * 6)
    budget = at_cap + 2 * at_share
    epsilon, _ = maximise_epsilon(model, np.ones(9, dtype=np.int64), weights, budget=budget, cap=cap)
    assert epsilon[:3] == pytest.approx([cap, 0.31, 0.31], abs=1e-3)
    assert epsilon[0] == pytest.approx(cap, rel=1e-6)
    assert weights @ epsilon == pytest.approx(10 * cap + 0.62, rel=1e-7)


@pytest.mark.parametrize("budget", [0.02, 0.1, 0.3])
def test_an_interior_optimum_of_s_shaped_informations_is_found(budget: float) -> None:
    """A grid over all divisions agrees, and no equal division among one, two or three is better."""
    model = s_shaped_channel()
    weights = np.array([1.0] * 3 + [0.0] * 6)
    epsilon, upper = maximise_epsilon(model, np.ones(9, dtype=np.int64), weights, budget=budget, cap=3.0)
    axis = np.linspace(0, 3, 121)
    curve = attribute_curve(model, 0, -np.expm1(-axis))
    spent = curve[:, None, None] + curve[None, :, None] + curve[None, None, :]
    sums = axis[:, None, None] + axis[None, :, None] + axis[None, None, :]
    grid = float(np.where(spent <= budget, sums, 0).max())
    assert grid * (1 - 1e-9) <= epsilon.sum() <= grid + 3 * 3 / 120
    assert grid <= upper <= epsilon.sum() * 1.01
    fine = np.linspace(0, 3, 100_001)
    for shares in (1, 2, 3):
        fits = attribute_curve(model, 0, -np.expm1(-fine)) <= budget / shares
        assert epsilon.sum() >= shares * float(fine[fits].max()) * (1 - 1e-9)


def test_an_attribute_that_gives_nothing_away_is_always_released() -> None:
    joint = declared({"01": 0.5, "11": 0.5})
    best = optimise(joint, np.array([1, 1]), np.ones(2), budget=0.01, cap=2.0)
    assert best.epsilon[1] == 2.0
    assert optimise(joint, np.array([1, 1]), np.ones(2), budget=0.01).epsilon[1] == math.inf


def test_an_attribute_of_no_worth_gets_no_budget() -> None:
    for objective in OBJECTIVES:
        weights = np.array([1.0, 0.0, 1.0])
        best = optimise(TRIPLE, ONES, weights, budget=0.2, objective=objective, cap=5.0)
        assert best.epsilon[1] == 0.0


def test_optima_grow_with_the_budget() -> None:
    for objective in OBJECTIVES:
        values = [
            optimise(TRIPLE, ONES, EVEN, budget=b, objective=objective, cap=2.0).objective for b in (0.1, 0.3, 0.8)
        ]
        assert all(a < b for a, b in itertools.pairwise(values))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"budget": 0.0}, "budget"),
        ({"budget": math.nan}, "budget"),
        ({"cap": -1.0}, "cap"),
        ({"objective": "utility"}, "objective"),
        ({"queries": np.array([1, 0, 1])}, r"queries\[1\]"),
        ({"weights": np.array([1, 1, -1.0])}, r"weights\[2\]"),
    ],
)
def test_arguments_out_of_range_are_named(change: dict[str, Any], field: str) -> None:
    arguments: dict[str, Any] = {"queries": ONES, "weights": EVEN, "budget": 0.1} | change
    with pytest.raises(UsageError, match=field):
        optimise(TRIPLE, arguments.pop("queries"), arguments.pop("weights"), **arguments)
